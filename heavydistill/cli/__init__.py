"""The ``heavydistill`` command: ``app`` is the entry point, ``verbs`` lists the subcommands."""
