"""Checks whether a response follows the instructions in its prompt, from IFEval and IFBench.

verifier    the verifier ``instructions``: arguments, verdicts and reasons
checks      the 25 instructions of IFEval by id: what each checks and which arguments it accepts
ifbench     those of IFBench, likewise
arguments   how arguments are read
counts      words, sentences and other parts of a text
language    recognises the language of a text
"""
