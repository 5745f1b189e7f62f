"""The verifier ``math``: whether a final answer has the value of the reference.

The modules, in the order in which a response passes them:

verifier            decides, and lists the reasons of its verdicts
find                finds the final answer
context             text around the answer that may change it; answers that repeat the problem
shape               the kind of the answer, from the tokens of ``tokens``: a list, an interval, ...
shape_comparison    compares kind by kind, with ``sets``, ``relations`` and ``units``
references          finds unfit references
formula             reads a single formula into SymPy, bounded before anything is computed
formula_equality    whether two formulas are equal, exactly and at many digits
"""
