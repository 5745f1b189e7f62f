"""Who is asked and how: requests in, responses out, and every failure is a response.

``registry`` finds a profile (``profile_files``) by name and opens its engine: ``http`` asks
servers, ``local`` runs a checkpoint in this process, ``vllm`` starts a server on this machine.
``complete`` fills in a configuration from profiles and ``capabilities``, what endpoints honour;
``contact`` finds out before a run what would go wrong. ``request`` holds the records of a request
and a response, ``ledger`` the account of a run, and ``journaled`` asks only for what the journal
does not hold.
"""
