"""The proof on the micro models: what is made for each seed, by which commands, and the page of it.

``stages`` says what is made from what, ``runner`` makes it, ``figures`` reads the figures of a
seed, and ``page`` writes them for all seeds. `scripts/reproduce_micro.py` is the command.
"""
