"""Builds what models are asked: pure functions without I/O.

``prompts`` has the wordings of the roles, ``selection`` chooses trajectories from a pool,
``pruning`` cuts them to a token budget, ``cache`` serializes them into one prompt, ``voting`` has
the vote and the strata, ``judge_votes`` counts the votes of a judge, ``mentions`` finds mentions of
attempts in a text.
"""
