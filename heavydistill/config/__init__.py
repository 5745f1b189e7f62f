"""The configuration that a user writes: typed YAML, parsed strictly, with the line of every error.

``run`` is the configuration of a run, ``sets`` that of a build, ``models`` has the sections for
models, ``yaml`` reads typed sections, and ``versioned`` reads JSON files with a ``format`` version.
"""
