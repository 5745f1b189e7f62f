"""Heavy mode as an OpenAI-compatible service: one model name for a thinker and a deliberator.

``service`` answers, ``app`` puts it at an address, and ``mcp`` offers it to an agent. ``request``
reads what a client asks, ``pair`` has the models, ``episode`` executes an episode for a request,
``stopping`` has the rule by which one ends early, and ``replies`` sends the answer as
``completion`` or ``responses`` write it. ``record`` keeps answers with the ``feedback`` of users,
and ``figures`` counts.
"""
