"""How a student reads a conversation: the form of its thinking, its tokens, what is learnt.

``student`` is for whoever makes rows or trains on them; ``guard`` says which rows would lose
something.
"""
