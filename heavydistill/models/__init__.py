"""Who is asked, and how.

``resolve`` settles the models of a run once. ``registry`` finds a profile (``profiles``) by name
and opens its engine: ``http`` asks a server, ``local`` a checkpoint in this process. ``journaled``
asks only for what is not in the journal, ``ledger`` keeps the account, ``contact`` and
``capabilities`` say what a server takes, and ``vllm`` starts one.
"""
