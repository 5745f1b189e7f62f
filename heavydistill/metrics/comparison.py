"""A run before and one after, on the same problems and asked alike, compared problem by problem.

A difference is after minus before, with the interval of pairs: each problem stands against itself.
What failed counts as wrong in both, and a problem that was not deliberated is worth 0 there (see
``estimators``). ``dataclasses.asdict`` of a comparison is what ``evaluation.json`` holds: the same
runs give the same bytes, and nothing in it is a path or an address.

Not covered: baselines that spend as many tokens as the deliberation did; more than two runs.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.errors import ConfigError
from heavydistill.metrics import estimators
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.summary import GenerationCounts, Summary
from heavydistill.schema import FAILED, Trace
from heavydistill.versioned import read_versioned

FORMAT = "heavydistill-evaluation/1"
COMPARISON = "evaluation.json"
_MOST_LISTED = 3


@dataclass(frozen=True, slots=True)
class Model:
    """Who was asked: the name of a profile or folder, or an id on the Hub.

    Attributes:
        name: That.
        revision: Tells its weights from others of that name; of a served model that cannot be.
    """

    name: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A run that is to be compared.

    Attributes:
        thinker: None if it took its pools from another run.
        deliberator: Who deliberated.
        config: How it was asked: its configuration without models, folders and addresses.
        summary: Of it.
        traces: All that the summary is over; read once.
    """

    thinker: Model | None
    deliberator: Model
    config: dict[str, Any]
    summary: Summary
    traces: Iterable[Trace]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a comparison keeps of a run beside its metrics.

    Attributes:
        thinker: As of ``Side``.
        deliberator: Likewise.
        prompts: Names and hashes of the wordings.
        verifiers: Names and versions behind the verdicts.
        trajectories: What became of the thinker's samples.
        deliberations: What became of the deliberator's samples.
        statuses: Traces of each status; ``failed`` are those that a step failed on.
    """

    thinker: Model | None
    deliberator: Model
    prompts: list[str]
    verifiers: list[str]
    trajectories: GenerationCounts
    deliberations: GenerationCounts
    statuses: dict[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A metric, as a share or a difference of shares.

    Attributes:
        before: None if there was no run before.
        after: Of the run after.
        difference: ``after - before``, paired by problem; None likewise.
    """

    before: Interval | None
    after: Interval
    difference: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All of it.

    Attributes:
        format: Of the file.
        heavydistill: Version that evaluated.
        versions: Of what else ran the models.
        problems: That both runs are over.
        k: Trajectories a problem.
        d: Deliberations a cache.
        rounds: Of deliberation; the metrics are those of the last one.
        config: How both were asked, as of ``Side``.
        before: None if one run alone was measured.
        after: The run after, or the only one.
        mean_at_k: M@K, which is the thinker's own pass@1.
        vote_at_k: V@K.
        pass_at_k: P@K, of the whole pool.
        heavy_mean_at_d: HM@D.
        heavy_pass_at_d: HP@D.
        heavy_minus_vote: HM@D - V@K, paired by problem within each run.
    """

    format: str = FORMAT
    heavydistill: str
    versions: dict[str, str]
    problems: int
    k: int
    d: int
    rounds: int
    config: dict[str, Any]
    before: Measured | None
    after: Measured
    mean_at_k: Change
    vote_at_k: Change
    pass_at_k: Change
    heavy_mean_at_d: Change
    heavy_pass_at_d: Change
    heavy_minus_vote: Change

    @property
    def metrics(self) -> list[tuple[str, str, Change]]:
        """(name, what it says, change) of each metric, in the order in which they are shown."""
        k, d = self.k, self.d
        return [
            (f"M@{k}", "the thinker's own pass@1", self.mean_at_k),
            (f"V@{k}", "the vote is right", self.vote_at_k),
            (f"P@{k}", "any trajectory is right", self.pass_at_k),
            (f"HM@{d}", "a deliberation is right", self.heavy_mean_at_d),
            (f"HP@{d}", "any deliberation is right", self.heavy_pass_at_d),
            (f"HM@{d} - V@{k}", "what deliberation adds", self.heavy_minus_vote),
        ]


def compare(after: Side, before: Side | None, versions: dict[str, str]) -> Comparison:
    """Measure a run, and compare it with another one if there is one.

    Args:
        after: The run.
        before: What it is compared with.
        versions: Of what ran the models.

    Raises:
        ConfigError: The two are not over the same problems, or were not asked alike.
    """
    if before:
        _refuse_other_ways(before.config, after.config)
    rounds = after.config["deliberate"]["rounds"]
    new = _Values(after.traces, rounds)
    old = _Values(before.traces, rounds) if before else None
    if old:
        _refuse_other_problems(old.asked, new.asked)

    def change(metric: str) -> Change:
        now = new.of(metric, new.asked)
        if old is None:
            return Change(None, bootstrap_mean(now), None)
        then = old.of(metric, new.asked)
        return Change(bootstrap_mean(then), bootstrap_mean(now), bootstrap_difference(now, then))

    return Comparison(
        heavydistill=heavydistill.__version__,
        versions=versions,
        problems=len(new.asked),
        k=after.config["think"]["k"],
        d=after.config["deliberate"]["d"],
        rounds=rounds,
        config=after.config,
        before=_measured(before, old) if before and old else None,
        after=_measured(after, new),
        mean_at_k=change("mean_at_k"),
        vote_at_k=change("vote_at_k"),
        pass_at_k=change("pass_at_k"),
        heavy_mean_at_d=change("heavy_mean_at_d"),
        heavy_pass_at_d=change("heavy_pass_at_d"),
        heavy_minus_vote=change("heavy_minus_vote"),
    )


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write it as JSON."""
    text = json.dumps(dataclasses.asdict(comparison), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_comparison(path: Path) -> Comparison:
    """The comparison in a file that ``write_comparison`` wrote.

    Raises:
        ConfigError: There is none, or it is of another version.
    """
    fix = "Give the file that `heavydistill evaluate` wrote, or evaluate again."
    return read_versioned(path, Comparison, FORMAT, what="evaluation", missing=fix, other=fix)


class _Values:
    """What each problem of a run counts for.

    Args:
        traces: Of the run.
        rounds: Of which the last one counts.

    Attributes:
        asked: Text and reference of each problem, by its id.
    """

    def __init__(self, traces: Iterable[Trace], rounds: int) -> None:
        self.asked: dict[str, tuple[str, str]] = {}
        self.prompts: set[str] = set()
        self.verifiers: set[str] = set()
        self._values: dict[str, dict[str, float]] = {}
        for trace in traces:
            problem = trace.problem
            self.asked[problem.id] = problem.text, problem.reference
            self._values[problem.id] = _values(trace, rounds)
            self.prompts |= {trace.thinker_prompt_version} - {""}
            self.prompts |= {cache.prompt_version for cache in trace.caches}
            judged = (one.verdict for one in (*trace.pool, *trace.deliberations))
            self.verifiers |= {verdict.verifier for verdict in judged if verdict}

    def of(self, metric: str, problems: Iterable[str]) -> list[float]:
        """The values of a metric, in the order of these problems."""
        return [self._values[problem][metric] for problem in problems]


def _values(trace: Trace, rounds: int) -> dict[str, float]:
    vote = estimators.vote_at_k(trace)
    heavy_mean = estimators.heavy_mean_at_d(trace, rounds)
    return {
        "mean_at_k": estimators.mean_at_k(trace),
        "vote_at_k": vote,
        "pass_at_k": estimators.pass_at_k(trace),
        "heavy_mean_at_d": heavy_mean,
        "heavy_pass_at_d": estimators.heavy_pass_at_d(trace, rounds),
        "heavy_minus_vote": heavy_mean - vote,
    }


def _measured(side: Side, values: _Values) -> Measured:
    return Measured(
        thinker=side.thinker,
        deliberator=side.deliberator,
        prompts=sorted(values.prompts),
        verifiers=sorted(values.verifiers),
        trajectories=side.summary.trajectories,
        deliberations=side.summary.deliberations,
        statuses=dict(_statuses(side.summary)),
    )


def _statuses(summary: Summary) -> Counter[str]:
    """Without the messages of faults, in which there may be paths."""
    counts: Counter[str] = Counter()
    for status, count in summary.statuses.items():
        counts["failed" if status.startswith(FAILED) else status] += count
    return counts


def _refuse_other_ways(before: dict[str, Any], after: dict[str, Any]) -> None:
    then, now = dict(_leaves(before)), dict(_leaves(after))
    different = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    if different:
        told = [f"{key} ({then.get(key)!r} before, {now.get(key)!r} after)" for key in different]
        raise ConfigError(
            f"The runs were not asked alike: {_listed(told)}",
            "Compare runs of one configuration that differ in their models alone.",
        )


def _leaves(tree: dict[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of each value that is no mapping."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def _refuse_other_problems(
    before: dict[str, tuple[str, str]], after: dict[str, tuple[str, str]]
) -> None:
    lonely = {
        "after": [problem for problem in before if problem not in after],
        "before": [problem for problem in after if problem not in before],
    }
    told = [f"{_listed(names)} missing {where}" for where, names in lonely.items() if names]
    changed = [name for name in before if name in after and before[name] != after[name]]
    told += [f"{_listed(changed)} with another text or reference"] if changed else []
    if told:
        raise ConfigError(
            f"The runs are not over the same problems: {'; '.join(told)}",
            "Compare runs on the same problems.",
        )


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
