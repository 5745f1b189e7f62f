"""Starts a vLLM server for a run, and stops it at the end."""
