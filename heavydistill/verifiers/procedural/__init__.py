"""The verifier ``procedural``: problems of reasoning-gym.

verifier         generates a problem again and judges the answer
families         how each family is judged, with scorers for families that reasoning-gym scores
                 wrongly
forms            the forms of answers, without LaTeX and typography
formulas         arithmetic and integrals, parsed with ``mathematics.formula``
"""
