"""OpenAI-compatible servers: ``engine`` answers requests, with retries and several servers.

``client`` holds what the engines of an endpoint share: ``limits`` decides which server gets a
request and when, ``transport`` sends it. ``completion`` and ``replies`` read what comes back,
``failures`` classifies errors, and ``circuit_breaker`` recognizes failures of a whole server.
"""
