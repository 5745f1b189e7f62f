"""The ``heavydistill`` command: ``app`` is the entry point, ``verbs`` the list; each has a file."""
