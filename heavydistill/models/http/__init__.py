"""OpenAI-compatible servers: ``engine`` asks, ``transport`` sends, ``completion`` reads.

``limits`` says which server is asked, and when; ``errors`` names what went wrong, and
``circuit_breaker`` tells what is wrong with all requests from what is wrong with one.
"""
