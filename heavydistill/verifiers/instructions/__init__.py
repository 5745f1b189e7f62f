"""Checks whether a response follows the instructions in its prompt, from the 25 of IFEval.

verifier    the verifier ``instructions``: arguments, verdicts and reasons
checks      the 25 instructions by id: what each checks and which arguments it accepts
language    recognises the language of a text
"""
