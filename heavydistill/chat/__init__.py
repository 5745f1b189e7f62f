"""Renders rows for a student: the form of its thinking, its tokens, and the tokens to learn.

``student`` makes rows, ``guard`` finds rows that would lose something in training, ``template``
renders conversations and splits their tokens.
"""
