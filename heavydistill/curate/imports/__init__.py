"""Pools that others sampled: their files become the folder of a run that starts at the cache.

``attempts`` says what is read of one answer, ``heavyskill``, ``pacore``, ``nemo`` and ``answers``
know a format each, ``pools`` joins the rows of all files to problems with their attempts, and
``importing`` judges and writes them. Labels that a file brings are counted against our verdicts
and never taken over.
"""
