"""OpenAI-compatible servers: ``engine`` asks, ``transport`` sends, ``completion`` reads.

``servers`` says which server is asked and when, ``rate_limit`` keeps the limits a minute,
``circuit_breaker`` and ``rejections`` tell what is wrong with all requests from what is wrong with
one, ``failures`` names it.
"""
