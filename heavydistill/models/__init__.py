"""Models: finding them, sending requests to them, and accounting for the costs.

``resolve`` determines the models of a run once. ``registry`` finds a profile (``profiles``) by name
and opens its engine: ``http`` for a server, ``local`` for a checkpoint in this process.
``journaled`` sends only requests whose responses are not in the journal, ``ledger`` keeps the
account of costs, ``contact`` and ``capabilities`` find out what a server accepts, and ``vllm``
starts a server.
"""
