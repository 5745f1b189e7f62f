"""How a model is asked: requests in, responses out, and every failure is a response.

``request`` holds the two records, ``reasoning`` tells thinking from answer, ``local`` runs a
checkpoint in this process. ``openai_client`` asks servers: ``servers`` says which one and when,
``rate`` keeps the limits a minute, ``ledger`` the run's account, ``wire`` sends the request and
``completion`` reads what comes.
``journal`` keeps every response before it is used, in the files of ``segment``; ``journaled`` asks
only for what it does not hold, ``upkeep`` looks after it. ``failures`` names what went wrong,
``teachers.contact`` finds out before a run what would. ``silence`` and ``rejections`` tell what is
wrong with all requests from what is wrong with one.
"""
