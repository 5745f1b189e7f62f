"""OpenAI-compatible servers: ``engine`` asks, ``transport`` sends, ``completion`` reads.

``servers`` says which server is asked, and when; ``circuit_breaker`` tells what is wrong with all
requests from what is wrong with one; ``reply`` names the failures.
"""
