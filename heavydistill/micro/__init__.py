"""The bundled micro teacher and base student, and how they were made.

``teacher/`` and ``student/`` hold the weights, ``worked`` the solutions they learnt from, ``rows``
the training rows, ``tokenizer`` and ``train`` the rest. ``scripts/train_micro.py`` makes them.
"""
