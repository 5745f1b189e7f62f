"""Renders rows for a student: the format of its thinking, its tokens, and which have a loss.

``student`` makes rows, ``guard`` finds rows that would lose text in training, ``template`` renders
conversations and splits their tokens.
"""
