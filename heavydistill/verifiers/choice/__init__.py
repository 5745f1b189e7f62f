"""The verifier ``choice``: whether a response names the right option of a question.

verifier   the verdicts and their reasons
claims     finds the claims of a response and whether they agree
reading    finds the option that a piece of text names; words of claims, denials and corrections
"""
