"""The bundled micro teacher and base student, and the code that made them.

``teacher/`` and ``student/`` hold the weights. ``worked`` writes the solutions on which they were
trained, ``rows`` generates the training rows, ``tokenizer`` trains the tokenizer and ``training``
the weights. ``scripts/train_micro.py`` runs all of it.
"""
