"""Old module names, for pipelines saved when the package ``run`` was called ``pipeline``."""

from __future__ import annotations

import importlib
import sys

for _old, _new in {
    "compat": "runner",
    "judging": "recipe.tasks",
    "llm": "recipe.llm",
    "steps": "recipe.steps",
    "tasks": "recipe.tasks",
}.items():
    sys.modules[f"{__name__}.{_old}"] = importlib.import_module(f"heavydistill.run.{_new}")
