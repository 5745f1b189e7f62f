"""Models: finding them, asking them, and keeping account.

``resolve`` finds the models of a run once. ``registry`` finds a profile (``profiles``) by name and
opens its engine: ``http`` for a server, ``local`` for a checkpoint in this process. ``journaled``
sends only requests that the journal does not hold, ``ledger`` keeps the account of costs,
``contact`` and ``capabilities`` find out what a server accepts, and ``vllm`` starts a server.
"""
