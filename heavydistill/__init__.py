"""heavydistill: from a teacher's parallel reasoning to small models that deliberate.

Names are loaded on first use, so that importing this package imports neither torch nor distilabel.
The functions raise the errors of ``heavydistill.errors`` and print only the warnings of a run::

    import heavydistill as hd

    result = hd.generate({"teacher": "micro", "problems.limit": 8})
    for trace in hd.load_traces(result.folder):
        print(trace)
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heavydistill import errors
    from heavydistill.config.run import RunConfig, load_config
    from heavydistill.config.sets import BuildConfig, ImportConfig, load_build_config
    from heavydistill.curate.exports.export import export
    from heavydistill.curate.imports.import_pools import ImportResult, import_pools
    from heavydistill.experiments.comparison import compare
    from heavydistill.experiments.evaluation import EvaluationResult
    from heavydistill.hub.options import PublishOptions
    from heavydistill.hub.publish import PublishResult, publish
    from heavydistill.metrics.comparison import Comparison
    from heavydistill.plugins import plugin
    from heavydistill.report.page.writer import write_report
    from heavydistill.run.generate import Plan, RunResult
    from heavydistill.run.status import OnStatus, Status
    from heavydistill.schema import (
        Cache,
        Claim,
        Deliberation,
        Problem,
        Trace,
        Trajectory,
        Turn,
        Verdict,
    )
    from heavydistill.store.sets.folder import Manifest
    from heavydistill.store.traces import Traces
    from heavydistill.store.training_record import TrainingRecord
    from heavydistill.train.merge import MergeResult, merge
    from heavydistill.train.script import distill, grpo, sft
    from heavydistill.verifiers.base import Decision, Verifier
    from heavydistill.verifiers.pool import VerdictPool, judge

__version__ = "0.1.0"

# A type checker reads this list and the imports above, Python the table below.
__all__ = ["BuildConfig", "Cache", "Claim", "Comparison", "Decision", "Deliberation"]
__all__ += ["EvaluationResult", "ImportConfig", "ImportResult", "Manifest", "MergeResult"]
__all__ += ["Problem", "PublishOptions", "PublishResult", "RunConfig", "RunResult", "Status"]
__all__ += ["Trace", "Traces", "TrainingRecord", "Trajectory", "Turn"]
__all__ += ["Verdict", "VerdictPool", "Verifier"]
__all__ += ["build_sets", "compare", "distill", "errors", "evaluate", "export", "generate", "grpo"]
__all__ += ["import_pools", "judge", "load_build_config", "load_config", "load_traces", "merge"]
__all__ += ["plugin", "publish", "sft", "write_report"]

_NAMES = {
    "config.run": "RunConfig load_config",
    "config.sets": "BuildConfig ImportConfig load_build_config",
    "curate.exports.export": "export",
    "curate.imports.import_pools": "ImportResult import_pools",
    "hub.options": "PublishOptions",
    "hub.publish": "PublishResult publish",
    "metrics.comparison": "Comparison",
    "plugins": "plugin",
    "report.page.writer": "write_report",
    "experiments.comparison": "compare",
    "experiments.evaluation": "EvaluationResult",
    "run.generate": "RunResult",
    "run.status": "Status",
    "schema": "Cache Claim Deliberation Problem Trace Trajectory Turn Verdict",
    "store.sets.folder": "Manifest",
    "store.traces": "Traces",
    "store.training_record": "TrainingRecord",
    "train.merge": "MergeResult merge",
    "train.script": "distill grpo sft",
    "verifiers.base": "Decision Verifier",
    "verifiers.pool": "VerdictPool judge",
}
_LOADED_ON_USE = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module(f"{__name__}.errors")
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_ON_USE[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def generate(config: RunConfig | Mapping[str, Any], on_status: OnStatus | None = None) -> RunResult:
    """Run a configuration, as ``heavydistill generate`` does.

    Args:
        config: Configuration, or a mapping with keys as in a file; ``think.k`` is a key too.
        on_status: Called with the ``Status`` every two seconds and at the end, by another thread;
            without it a notebook shows a bar.

    Returns:
        Folder and results of the run; ``is_complete`` is false if problems are missing.

    Raises:
        UserError: The user can fix the cause; no request was sent and nothing was written.
        HeavydistillError: The run failed. Every response is in the journal; the same call continues
            the run.
    """
    from heavydistill.config.run import RunConfig
    from heavydistill.config.yaml import as_section
    from heavydistill.models.contact import ServerProbe
    from heavydistill.run.generate import check

    plan = check(as_section(RunConfig, config), contact=ServerProbe())
    return _run(plan.folder.name, plan, on_status)


def _run(name: str, plan: Plan, on_status: OnStatus | None) -> RunResult:
    from heavydistill.report.status import bar_of
    from heavydistill.run.generate import run

    with bar_of(name, on_status) as shows:
        return run(plan, on_status=shows)


def load_traces(run: str | Path) -> Traces:
    """Read the traces of a run, with one row group in memory at a time.

    Raises:
        ConfigError: The folder holds no run, or the run cannot be read.
    """
    from heavydistill.store.traces import Traces

    return Traces(run)


def build_sets(config: BuildConfig | Mapping[str, Any]) -> Manifest:
    """Build training sets from runs, as ``heavydistill build`` does.

    Takes mappings and raises errors like ``generate``.

    Returns:
        Numbers of the rows that were built, their sources, and the omitted rows with reasons.
    """
    from heavydistill.config.sets import BuildConfig
    from heavydistill.config.yaml import as_section
    from heavydistill.curate.build import build_sets as build
    from heavydistill.hub.dataset_card import write_card

    return build(as_section(BuildConfig, config), on_written=write_card)


def evaluate(
    config: RunConfig | Mapping[str, Any],
    before: str | None = None,
    controls: str | Collection[str] = (),
    orders: int = 1,
    on_status: OnStatus | None = None,
) -> EvaluationResult:
    """Measure a thinker and a deliberator, as ``heavydistill evaluate`` does.

    Raises the errors of ``generate``.

    Args:
        config: Configuration of a run with the models to measure, or a mapping.
        before: Model before training; both roles are compared with it.
        controls: Control runs in which only the coordination or the attempts differ: ``alone``,
            ``chain``, ``choose``, ``garbled``, ``foreign``, ``transplant``, ``empty``,
            ``answers``, ``steps``, ``planted``, ``skill``; or ``all``, where those that are not
            possible on the attempts are not asked.
        orders: Number of orders in which the same caches are read.
        on_status: Called as in ``generate``, for each run in turn.
    """
    from heavydistill.config.run import RunConfig
    from heavydistill.config.yaml import as_section
    from heavydistill.experiments import evaluation
    from heavydistill.models.contact import ServerProbe

    asked = as_section(RunConfig, config)
    plan = evaluation.check(asked, before, controls, orders, contact=ServerProbe())
    return evaluation.evaluate(plan, functools.partial(_run, on_status=on_status))
