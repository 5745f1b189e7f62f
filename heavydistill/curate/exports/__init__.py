"""The sets of a build in the forms that other trainers read; ``folder`` writes them.

One module a trainer says what its rows look like, which files stand beside them, and in whose code
that was read. In all of them the same is learnt: everything after what opens the answer, thinking
and end of turn included, and nothing before it.
"""
