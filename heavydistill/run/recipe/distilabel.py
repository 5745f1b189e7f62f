"""The names of distilabel that this package builds on.

Importing distilabel replaces ``sys.excepthook``, and IPython's, by one that prints the values of
local variables, which may be keys. Import it here, where the hooks of the program stay in place.
"""

from __future__ import annotations

import os
import warnings

import rich.traceback

# Both must be set before the first import of distilabel, in every process.
os.environ.setdefault("DISTILABEL_LOG_LEVEL", "WARNING")
warnings.filterwarnings("ignore", message=r"The '\w+' attribute with value .* was provided to")

_install = rich.traceback.install
rich.traceback.install = lambda **_: None  # type: ignore[assignment]
try:
    import distilabel
finally:
    rich.traceback.install = _install

from distilabel.distiset import Distiset  # noqa: E402
from distilabel.models.llms.base import LLM  # noqa: E402
from distilabel.pipeline import Pipeline  # noqa: E402
from distilabel.steps import GeneratorStep, Step, StepInput  # noqa: E402
from distilabel.steps.tasks import Task  # noqa: E402

SUPPORTED = "1.5.3"
if distilabel.__version__ != SUPPORTED:
    raise ImportError(
        f"heavydistill works with distilabel {SUPPORTED} and found {distilabel.__version__}. "
        f"Install distilabel=={SUPPORTED}."
    )

__all__ = ["LLM", "Distiset", "GeneratorStep", "Pipeline", "Step", "StepInput", "Task"]
