"""A vLLM server that is started for a run and stopped at its end."""
