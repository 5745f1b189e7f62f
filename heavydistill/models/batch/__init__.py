"""Requests in files: batches of a provider, and the files of ``vllm run-batch``."""
