"""Problems of reasoning-gym: the verifier ``procedural``.

verifier         makes a problem again and judges its answer
families         which judgement each family gets, and the scorers of those that reasoning-gym
                 itself would score wrongly
forms            what an answer must look like; LaTeX and typography taken away
formulas         arithmetic and integrals, with the reader of ``mathematics``
"""
