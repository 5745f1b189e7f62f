"""Runs a checkpoint in this process: ``engine`` batches requests, ``decoding`` generates."""
