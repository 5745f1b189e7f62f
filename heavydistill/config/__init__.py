"""What a user writes: typed YAML, read strictly, with every fault at its place.

``run`` is the configuration of a run, ``sets`` that of a build, ``models`` how a model is asked,
``yaml`` the reader of typed sections, ``versioned`` that of JSON files with a format.
"""
