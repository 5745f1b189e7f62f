"""The verifier ``procedural``: problems of reasoning-gym.

verifier         makes a problem again and judges its answer
families         how each family is judged, with scorers for families that reasoning-gym itself
                 would score wrongly
forms            the forms of answers, without LaTeX and typography
formulas         arithmetic and integrals, with the reader of ``mathematics``
"""
