"""What is asked: the heavy core as pure functions, without I/O.

``prompts`` words the two roles and the judge, ``selection`` chooses trajectories from the pool,
``pruning`` cuts them to a token budget, ``cache`` serializes them into one prompt, ``voting`` is
the baselines and the labels, ``judge_votes`` counts what a judge said, ``mentions`` finds the
attempts that a text speaks of.
"""
