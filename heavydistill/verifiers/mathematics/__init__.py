"""Whether a final answer is worth what the reference is worth: the verifier ``math``.

The way of a response:

verifier    the verdicts and their reasons
find        where the final answer stands
surroundings  what stands around it, and may change it; whether it only repeats the problem
shape       what kind of answer it is, on the tokens of ``tokens``: a list, an interval, ...
compare     kind by kind, with ``sets``, ``relations`` and ``units``; unfit references
formula     a single formula as SymPy has it, bounded before anything is computed
equality    whether two formulas are equal, exactly and at many digits
"""
