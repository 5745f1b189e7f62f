"""The verifier ``choice``: whether a response names the right option of a question.

verifier   decides, and lists the reasons of its verdicts
claims     finds the answers that a response claims, and checks that they agree
reading    finds the option that a piece of text names, and whether the text denies it
"""
