"""The ``heavydistill`` command: ``app`` is the entry point, each verb has a file."""
