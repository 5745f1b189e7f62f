"""Counts what leaves the steps of a run, as it goes on: what a bar, a line or a watch shows of it.

Shares of what is right are those of ``metrics.estimators``, over the problems that are so far: the
early ones are the quick ones, so they are no estimate of the end.

A batch is counted when it has left its step. Of what a step is at work on, only the samples and
tokens are known, as its processes report them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from heavydistill.config.run import RunConfig
from heavydistill.heavy.ballot import ballot_of
from heavydistill.metrics.counts import unanswered_because
from heavydistill.models.request import Work
from heavydistill.schema import Generation, Verdict, from_row

LOADS = ("load_problems", "load_pools")
THINKS, DELIBERATES, LABELS = "sample_trajectories", "deliberate_", "label_traces"
_JUDGES, _VERIFIES = "judge_", "verify_"
TRUNCATED, NO_VERDICT = "truncated", "no_verdict"
"""Why a sample cannot be used though its request did not fail."""


@dataclass(slots=True)
class Stage:
    """What left a step that asks.

    Attributes:
        name: For people.
        total: Problems that will leave it.
        samples: Asked of each problem; 0 where it depends on the problem, as for a judge.
        done: Problems that have left it.
        asked: Samples that have.
        from_journal: Those of them that were paid for earlier.
        thoughts: Samples with thinking; 0 for a judge's.
        failures: Samples that cannot be used, by reason.
        prompt_tokens: Of all samples whose tokens are known.
        completion_tokens: Likewise.
        new_tokens: Completion tokens without those of the journal; where a problem has some of
            both, its share of them.
        work: What its model was asked so far, by the number of the process.
    """

    name: str
    total: int
    samples: int
    done: int = 0
    asked: int = 0
    from_journal: int = 0
    thoughts: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    new_tokens: float = 0.0
    work: dict[int, Work] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """Samples that its model was asked for, without those of the journal."""
        return sum(work.asked for work in self.work.values())

    @property
    def ended(self) -> int:
        """Those of them whose responses are there."""
        return sum(work.ended for work in self.work.values())

    @property
    def written(self) -> float:
        """New tokens, those of samples that have not left the step included."""
        return max(self.new_tokens, sum(work.tokens for work in self.work.values()))

    @property
    def tokens(self) -> int:
        """As ``written``, with those of the journal that have left the step."""
        return self.completion_tokens + round(self.written - self.new_tokens)

    @property
    def failed(self) -> int:
        """Samples that cannot be used."""
        return self.failures.total()

    def add(self, rows: list[dict[str, Any]], step: str) -> None:
        """Count a batch that left the step of that name."""
        for row in rows:
            samples = _votes(row, step) if step.startswith(_JUDGES) else _samples(row, step)
            tokens = sum(sample.completion_tokens for sample in samples)
            reused = row.get("from_journal", 0)
            self.done += 1
            self.asked += len(samples)
            self.from_journal += reused
            self.thoughts += sum(sample.thinks for sample in samples)
            self.failures.update(sample.failure for sample in samples if sample.failure)
            self.prompt_tokens += sum(sample.prompt_tokens for sample in samples)
            self.completion_tokens += tokens
            self.new_tokens += tokens * (1 - min(1.0, reused / max(1, len(samples))))


@dataclass(slots=True)
class Share:
    """A mean over problems."""

    problems: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        """None without problems."""
        return self.total / self.problems if self.problems else None

    def add(self, labels: list[bool]) -> None:
        """Count a problem of which these were right; nothing is 0."""
        self.problems += 1
        self.total += sum(labels) / len(labels) if labels else 0.0


class Tally:
    """Counts of a run.

    Args:
        config: Completed.
        total: Its problems.

    Attributes:
        stages: Of each step that asks, by its name, in their order.
        loaded: Problems that have entered.
        finished: Problems that have left the last step.
        mean_at_k: M@K.
        heavy_mean_at_d: HM@D of the last round.
        strata: Finished problems of each stratum.
        statuses: Of each status, without what an error says.
        judged: Samples with a verdict that ended by themselves.
        unanswered: How many of these hold no final answer.
    """

    def __init__(self, config: RunConfig, total: int) -> None:
        self.stages = _stages(config, total)
        self.total = total
        self.loaded = self.finished = 0
        self.judged = self.unanswered = 0
        self.mean_at_k, self.heavy_mean_at_d = Share(), Share()
        self.strata: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self._round = config.rounds
        self._judged = _JUDGES if config.judge else _VERIFIES
        self._pool_judged = f"{self._judged}pool"
        self._deliberations_judged = f"{self._judged}deliberations_{self._round}"

    def add(self, step: str, rows: list[dict[str, Any]]) -> None:
        """Count a batch that left a step."""
        if stage := self.stages.get(step):
            stage.add(rows, step)
        if step in LOADS:
            self.loaded += len(rows)
        elif step == LABELS:
            self.finished += len(rows)
            self.strata.update(row["stratum"] for row in rows if row["stratum"])
            self.statuses.update(row["status"].partition(":")[0] for row in rows)
        if step.startswith(self._judged):
            for row in rows:
                self._add_judged(_generations(row, step))
        if step == self._pool_judged:
            for row in rows:
                self.mean_at_k.add([_is_right(each) for each in row.get("pool", ())])
        elif step == self._deliberations_judged:
            for row in rows:
                self.heavy_mean_at_d.add([_is_right(each) for each in _of_round(row, self._round)])

    def _add_judged(self, samples: list[dict[str, Any]]) -> None:
        for sample in samples:
            if sample["verdict"] and sample["finish_reason"] == "stop":
                self.judged += 1
                if sample["verdict"]["label"] != "correct":
                    self.unanswered += unanswered_because(from_row(Generation, sample)) is not None

    def at_work(self, step: str, replica: int, work: Work) -> None:
        """Note what the model of a step was asked so far in one of its processes."""
        if stage := self.stages.get(step):
            stage.work[replica] = work


@dataclass(frozen=True, slots=True)
class _Sample:
    failure: str
    prompt_tokens: int
    completion_tokens: int
    thinks: bool = False


def _stages(config: RunConfig, total: int) -> dict[str, Stage]:
    rounds = config.rounds
    names = {} if config.pools else {THINKS: ("thinking", config.think.k)}
    if config.judge:
        names[f"{_JUDGES}pool"] = ("judging trajectories", 0)
    for n in range(1, rounds + 1):
        number = "" if rounds == 1 else f", round {n}"
        names[f"{DELIBERATES}{n}"] = (f"deliberating{number}", config.deliberate.d)
        if config.judge:
            names[f"{_JUDGES}deliberations_{n}"] = (f"judging deliberations{number}", 0)
    return {step: Stage(name, total, samples) for step, (name, samples) in names.items()}


def _generations(row: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """Those of a row that are of the step."""
    if step == THINKS or step.endswith("pool"):
        return list(row.get("pool", ()))
    return _of_round(row, int(step.rpartition("_")[2]))


def _of_round(row: dict[str, Any], round: int) -> list[dict[str, Any]]:
    """A row that failed may have come without any."""
    return [each for each in row.get("deliberations", ()) if each["round"] == round]


def _samples(row: dict[str, Any], step: str) -> list[_Sample]:
    reasons = {"stop": "", "length": TRUNCATED}
    return [
        _Sample(
            reasons.get(each["finish_reason"], each["failure"] or "error"),
            max(0, each["prompt_tokens"]),
            max(0, each["completion_tokens"]),
            bool(each["reasoning"]),
        )
        for each in _generations(row, step)
    ]


def _votes(row: dict[str, Any], step: str) -> list[_Sample]:
    """The votes that were asked for the generations of a row."""
    found = []
    for each in _generations(row, step):
        ballot = each["verdict"] and ballot_of(from_row(Verdict, each["verdict"]))
        if not ballot or ballot.same_as:
            continue
        found += [
            _Sample(
                "" if vote.is_valid else vote.failure or NO_VERDICT,
                max(0, vote.prompt_tokens),
                max(0, vote.completion_tokens),
            )
            for vote in ballot.votes
        ]
    return found


def _is_right(generation: dict[str, Any]) -> bool:
    verdict = generation["verdict"]
    return verdict is not None and verdict["label"] == "correct"
