"""What the fork server loads, and no other process: all that every step needs.

It is kept out of every later search for garbage, which would copy its pages into each process.
"""

from __future__ import annotations

import gc
import sys

from heavydistill.run.processes import loading

with loading():
    import heavydistill.run.tasks
    import heavydistill.run.worker  # noqa: F401
# distilabel's shows the local variables of a traceback, keys too.
sys.excepthook = sys.__excepthook__
gc.freeze()
