"""Builds the prompts for models and evaluates votes: pure functions without I/O.

``prompts`` loads the prompt wordings of the roles, ``selection`` chooses trajectories from a pool,
``pruning`` cuts them to a token budget, ``cache`` serializes them into one prompt, ``voting``
computes the vote and the strata, ``judge_votes`` counts the votes of a judge, ``mentions``
finds mentions of attempts in a text, ``claims`` reads which of them it calls right or wrong,
``checked_claims`` tells whether that is true, and ``controls`` replaces attempts by others, with
``garbling``.
"""
