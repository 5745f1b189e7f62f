"""How a student reads a conversation: the form of its thinking, its tokens, what is learnt.

``student`` is for whoever makes rows, ``guard`` says which rows would lose something, before a
training and in it; ``template`` renders and splits.
"""
