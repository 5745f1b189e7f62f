"""Early stopping, replayed on the pools and deliberations of a finished run without a request.

The folder has ``adaptive.json``, see ``metrics.experiments.stopping``. Prices are those of the
run's models today; a model that cannot be found has none, and its sampling is not in the file.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from heavydistill.config.run import load_config
from heavydistill.config.versioned import write_versioned
from heavydistill.errors import ConfigError, UserError
from heavydistill.experiments.comparison import refuse_unfinished
from heavydistill.metrics.experiments import stopping
from heavydistill.metrics.problem_figures import prompts_of, verifiers_of
from heavydistill.models.resolve import ResolvedModel, resolve
from heavydistill.run.result import all_traces
from heavydistill.schema import Deliberation, Generation, Trajectory
from heavydistill.store.atomic import new_folder, refuse_taken

_ROLES: dict[type[Generation], str] = {Trajectory: "thinker", Deliberation: "deliberator"}


def measure_stopping(run: Path, out: Path) -> stopping.StoppingReport:
    """Measure early stopping on a run, and write the folder ``out``.

    Raises:
        ConfigError: ``out`` exists; the folder has no finished run; or its attempts are too few,
            have no judged deliberations, or are not all shown in the caches.
    """
    refuse_unfinished(run)
    refuse_taken(out)
    models, rows, judged, partial = models_of(run), list[stopping.StoppingRow](), 0, 0
    measured, usd = defaultdict[str, set[str]](set), prices_of(models)
    for kind, model in models.items():
        name, values = stopping.sampling_of(_ROLES[kind], model.sampling)
        measured[name] = values
    for trace in all_traces(run):
        rows.append(stopping.StoppingRow.of(trace, usd))
        for role, samples in trace.responses.items():
            measured[role] |= {sample.model for sample in samples}
        measured["prompts"] |= prompts_of(trace)
        measured["verifiers"] |= verifiers_of(trace)
        measured["rounds"] |= {str(each.round) for each in trace.deliberations[-1:]}
        judged += any(each.verdict for each in trace.deliberations)
        reasons = {each.reason for cache in trace.caches for each in cache.left_out}
        partial += "not_selected" in reasons
    if not judged:
        raise ConfigError(
            f"{run} has no deliberations with a verdict, which answer where attempts do not agree",
            f"Give a run with --d 1 or more; `heavydistill replay {run} --out FOLDER` judges anew.",
        )
    if partial:
        raise ConfigError(
            f"{run} has {partial:,} caches that show only some of the usable attempts, so it is "
            "not recorded how a deliberation on all of them ends",
            "Give a run without cache.width, or with one that is not below K.",
        )
    report = stopping.stopping_report(rows, {name: sorted(each) for name, each in measured.items()})
    with new_folder(out) as folder:
        write_versioned(report, folder / stopping.ADAPTIVE)
    return report


def models_of(run: Path) -> dict[type[Generation], ResolvedModel]:
    """The models of a run by what they write; none if its configuration or a model is unknown, and
    none of the trajectories if several thinkers share them."""
    try:
        config = load_config(run / "config.yaml").model_copy(update={"budget": None})
        resolved = resolve(config, starts=False)
    except UserError:
        return {}
    models: dict[type[Generation], ResolvedModel] = {Deliberation: resolved.deliberator}
    if len(resolved.thinkers) == 1:
        models[Trajectory] = resolved.thinkers[0]
    return models


def prices_of(models: Mapping[type[Generation], ResolvedModel]) -> stopping.Usd:
    """The price of each sample of a run, whose models are given by what they write.

    NaN where a model or its price is unknown.
    """

    def usd(sample: Generation) -> float:
        model = models.get(type(sample))
        tokens = sample.prompt_tokens, sample.completion_tokens, sample.cached_tokens
        cost = model.profile.usd(*tokens) if model and min(tokens[:2]) >= 0 else None
        return math.nan if cost is None else cost

    return usd
