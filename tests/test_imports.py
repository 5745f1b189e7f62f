"""Importing the package stays light; see ``cli.test_help`` for its command line."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Imports every module outside ``run``, one after the other, and prints the first one after
# which a heavy package is loaded. Those that extend classes of torch, transformers and TRL are left
# out; others import them where a model is loaded or a training begins.
IMPORT_ALL = """
import importlib, pkgutil, sys
import heavydistill

EXTENDING = {
    f"heavydistill.{name}"
    for name in (
        "models.local.decoding",
        "train.callbacks",
        "train.sft.sampling",
        "train.sft.train",
        "train.sft.trainer",
        "train.distill.served_trainer",
        "train.distill.train",
        "train.distill.trainer",
        "train.rollouts.data",
        "train.grpo.joint",
        "train.grpo.passk",
        "train.rollouts.resolve",
        "train.grpo.trainer",
        "train.grpo.train",
        "train.rollouts.vllm",
        "train.held_out",
        "train.rollouts.config",
        "train.rollouts.plan",
        "train.rollouts.trainer",
        "train.trainer",
    )
}
HEAVY = {"torch", "transformers", "distilabel", "datasets", "pandas", "pyarrow", "trl"}

def check(name):
    loaded = sorted(HEAVY & sys.modules.keys())
    if loaded:
        sys.exit(f"importing {name} also imports {', '.join(loaded)}")

check("heavydistill")
count = 0
for module in pkgutil.walk_packages(heavydistill.__path__, "heavydistill."):
    if module.name in EXTENDING or module.name.endswith("__main__"):
        continue
    if module.name.startswith(("heavydistill.run", "heavydistill.pipeline")):
        continue
    importlib.import_module(module.name)
    check(module.name)
    count += 1
print(count)
"""


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


def test_no_module_outside_pipeline_imports_a_heavy_package():
    done = _python(IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_a_run_loads_sympy_only_for_a_verdict():
    done = _python(
        "import sys, heavydistill.run.recipe.pipeline\n"
        "from heavydistill.verifiers import registry\n"
        "assert 'sympy' not in sys.modules\n"
        "assert registry.get('procedural')"
    )
    assert done.returncode == 0, done.stderr
