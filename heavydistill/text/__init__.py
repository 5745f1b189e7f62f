"""What a text says: its final answer, mentions of attempts, claims, languages, words, leaks.

Pure functions on texts; the words that they look for are in the YAML files beside them where they
are lists. Whether an answer is right is decided by ``verifiers``.
"""
