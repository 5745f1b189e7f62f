"""heavydistill: from a teacher's parallel reasoning to small models that deliberate.

Start with ``heavydistill.schema`` for the rows and ``heavydistill.run`` for the way of the
data. Importing this package, or anything but ``run``, imports neither torch nor distilabel.
"""

__version__ = "0.1.0"
