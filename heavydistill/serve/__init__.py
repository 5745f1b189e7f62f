"""Heavy mode as an OpenAI-compatible service: one model name for a thinker and a deliberator.

``app`` has the routes, ``request`` reads what a client asks, ``pair`` has the models, ``episode``
executes an episode for a request, and ``replies`` writes what the client reads.
"""
