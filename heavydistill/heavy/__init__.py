"""The protocol of heavy thinking: what is asked, shown and counted. It sends no request.

``episode`` is the protocol for one problem, ``prompts`` loads the prompt wordings of the roles,
``selection`` chooses trajectories from a pool, ``pruning`` cuts them to a token budget, ``cache``
serializes them into one prompt, ``voting`` computes the vote and the strata, and ``judge_votes``
counts the votes of a judge.
"""
