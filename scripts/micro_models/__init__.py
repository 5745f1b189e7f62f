"""What made the bundled micro teacher and base student, whose weights are in heavydistill/micro.

``worked`` writes the solutions on which they were trained, ``rows`` generates the training rows,
``tokenizer`` trains the tokenizer and ``training`` the weights. ``scripts/train_micro.py`` runs all
of it.
"""
