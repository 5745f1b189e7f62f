"""Heavy mode as an OpenAI-compatible service: one model name for a thinker and a deliberator.

``app`` has the routes, ``request`` reads what a client asks, ``pair`` has the models, ``episode``
executes an episode for a request, ``stopping`` has the rule by which one ends early, ``replies``
sends the answer as ``completion`` or ``responses`` write it, ``mcp`` has tools for agents,
``record`` keeps answers with the ``feedback`` of users, and ``metrics`` and ``tallies`` count.
"""
