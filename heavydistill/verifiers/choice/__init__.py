"""Which option of a question a response chooses: the verifier ``choice``.

verifier   the verdicts and their reasons
claims     where a response claims an option, and whether its claims agree
reading    which option a piece of text names, and the words of claims, denials and corrections
"""
