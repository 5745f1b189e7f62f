"""Whether a response follows the instructions in its prompt: the 25 of IFEval.

verifier    the verifier ``instructions``: its arguments, its verdicts and their reasons
checks      the 25 instructions, by id: what they count and which arguments they accept
language    recognises the language of a text
"""
