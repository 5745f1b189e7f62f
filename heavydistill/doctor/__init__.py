"""What a run will meet: the machine it runs on, and what its endpoint really honours.

A check ends in a finding (``finding``), never in a guess: what the endpoint does is asked of it
(``endpoint``, with the requests of ``questions``), what the machine has is looked up
(``machine``). What a run must obey goes into the capability file (``models.capabilities``).
"""
