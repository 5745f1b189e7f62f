"""Pools that others sampled: their files become the folder of a run that starts at the cache.

``formats`` reads a row of each format, ``pools`` joins the rows of all files to problems with their
attempts, ``import_pools`` judges and writes them. Labels that a file brings are counted against our
verdicts and never taken over.
"""
