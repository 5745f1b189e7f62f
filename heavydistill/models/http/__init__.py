"""OpenAI-compatible servers: ``engine`` answers requests, with retries and several servers.

``client`` holds the resources that the engines of an endpoint share: ``limits`` decides when and to
which server a request is sent, ``transport`` sends it. ``completion`` and ``replies`` parse the
replies, ``failures`` classifies errors, and ``circuit_breaker`` recognizes failures of a whole
server.
"""
