"""heavydistill: from a teacher's parallel reasoning to small models that deliberate.

Names are loaded on first use, so that importing this package imports neither torch nor distilabel.
The functions raise the errors of ``heavydistill.errors`` and print only the warnings of a run::

    import heavydistill as hd

    result = hd.generate(hd.load_config(overrides={"teacher": "micro", "problems.limit": 8}))
    for trace in hd.load_traces(result.folder):
        print(trace.problem.id, trace.stratum)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heavydistill.config.run import RunConfig as RunConfig
    from heavydistill.config.run import load_config as load_config
    from heavydistill.config.sets import BuildConfig as BuildConfig
    from heavydistill.config.sets import load_build_config as load_build_config
    from heavydistill.run.experiments.evaluation import Evaluated
    from heavydistill.run.generate import Finished
    from heavydistill.schema import Problem as Problem
    from heavydistill.schema import Trace as Trace
    from heavydistill.schema import Verdict as Verdict
    from heavydistill.store.sets.folder import Manifest
    from heavydistill.verifiers.base import Verifier as Verifier

__version__ = "0.1.0"

_LOADED_ON_USE = {
    "Problem": "heavydistill.schema",
    "Trace": "heavydistill.schema",
    "Verdict": "heavydistill.schema",
    "RunConfig": "heavydistill.config.run",
    "load_config": "heavydistill.config.run",
    "BuildConfig": "heavydistill.config.sets",
    "load_build_config": "heavydistill.config.sets",
    "Verifier": "heavydistill.verifiers.base",
}
__all__ = ["build_sets", "evaluate", "generate", "load_traces", *_LOADED_ON_USE]


def __getattr__(name: str) -> Any:
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_ON_USE[name]), name)


def generate(config: RunConfig) -> Finished:
    """Run a configuration, as ``heavydistill generate`` does.

    Returns:
        Folder and results of the run; ``is_complete`` is false if problems are missing.

    Raises:
        UserError: The user can fix the cause; no request was sent and nothing was written.
        HeavydistillError: The run failed. Every response is in the journal; the same call continues
            the run.
    """
    from heavydistill.models.contact import Contact
    from heavydistill.run.generate import check, run

    return run(check(config, contact=Contact()))


def load_traces(run: str | Path) -> Iterator[Trace]:
    """Read the traces of a run, with one row group in memory at a time.

    Raises:
        ConfigError: The folder holds no run, or the run cannot be read.
    """
    from heavydistill.store.traces import read_traces

    return read_traces(Path(run))


def build_sets(config: BuildConfig) -> Manifest:
    """Build training sets from runs, as ``heavydistill build`` does.

    Raises the errors of ``generate``.

    Returns:
        The manifest: the rows that were built, their sources, and the omitted rows with reasons.
    """
    from heavydistill.curate.build import build_sets as build
    from heavydistill.hub.dataset_card import write_card

    return build(config, on_written=write_card)


def evaluate(
    config: RunConfig,
    before: str | None = None,
    controls: Collection[str] = (),
    orders: int = 1,
) -> Evaluated:
    """Measure a thinker and a deliberator, as ``heavydistill evaluate`` does.

    Raises the errors of ``generate``.

    Args:
        config: Configuration of a run with the models to measure.
        before: Model before training; both roles are compared with it.
        controls: Control runs in which only the coordination or the attempts differ: ``alone``,
            ``chain``, ``choose``, ``garbled``, ``foreign``, ``transplant``, ``skill``; or ``all``.
        orders: Number of orders in which the same caches are read.
    """
    from heavydistill.models.contact import Contact
    from heavydistill.run.experiments import evaluation
    from heavydistill.run.generate import run

    plan = evaluation.check(config, before, controls, orders, contact=Contact())
    return evaluation.evaluate(plan, lambda _, each: run(each))
