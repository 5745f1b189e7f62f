"""The traces of a run, read once: a row for each problem, and counts of everything else.

What is kept does not grow with the length of texts, so a run of any size fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from heavydistill.config.models import NEVER_JUDGED
from heavydistill.heavy.ballot import rule_of
from heavydistill.metrics.counts import (
    GenerationCounts,
    GenerationTally,
    Judging,
    JudgingTally,
    Usage,
    UsageTally,
)
from heavydistill.metrics.row import ProblemFigures
from heavydistill.schema import Trace

_NO_CHANCE = 200  # characters that two samples do not have in common by chance


class RunTally:
    """Reads the traces of a run.

    Args:
        traces: All traces of the run, in any order.
        voted: See ``summary.summarize``.
    """

    def __init__(self, traces: Iterable[Trace], voted: Collection[str] | None = None) -> None:
        self.rows: list[ProblemFigures] = []  # one a problem, in the order of the traces
        self.prompts: set[str] = set()  # names and hashes of the prompt templates
        self.verifiers: set[str] = set()  # names and versions, with that of a judge
        self.thinkers: set[str] = set()  # names of the models, as in the traces
        self.deliberators: set[str] = set()
        self.thoughts = 0  # trajectories with thinking
        self.same_texts = 0  # pools of one text, too long for that to be chance
        self.readers: Counter[str] = Counter()  # caches by what counted their tokens
        trajectories, deliberations = GenerationTally(), GenerationTally()
        judging, statuses = JudgingTally(), Counter[str]()
        for trace in traces:
            self._add(trace)
            trajectories.add(trace.pool)
            deliberations.add(trace.deliberations)
            judging.add([*trace.pool, *trace.deliberations], voted or ())
            statuses[trace.status] += 1
        self.rounds = max((len(row.rounds) for row in self.rows), default=0)
        self.trajectories: GenerationCounts = trajectories.counts
        self.deliberations: GenerationCounts = deliberations.counts  # of all rounds
        self.judging: Judging = judging.counts
        self.statuses = dict(statuses.most_common())  # number of traces by status
        self.usage: dict[str, Usage] = {  # by stage; see `summary.Summary`
            "thinking": UsageTally().usage if voted is not None else trajectories.usage,
            "deliberating": deliberations.usage,
            **judging.usage,
        }

    @property
    def rules(self) -> set[str]:
        """The verifiers without the judges that were asked after them."""
        return {rule_of(verifier) for verifier in self.verifiers}

    @property
    def left_open(self) -> int:
        """Undecided verdicts about which a judge could be asked."""
        return sum(
            count
            for counts in (self.trajectories, self.deliberations)
            for reason, count in counts.undecided_because.items()
            if reason.partition(":")[0] not in NEVER_JUDGED
        )

    def _add(self, trace: Trace) -> None:
        self.rows.append(ProblemFigures.of(trace))
        self.prompts |= prompts_of(trace)
        self.verifiers |= verifiers_of(trace)
        self.thinkers |= {trajectory.model for trajectory in trace.pool}
        self.deliberators |= {deliberation.model for deliberation in trace.deliberations}
        self.thoughts += sum(bool(trajectory.reasoning) for trajectory in trace.pool)
        self.same_texts += _is_one_text(trace)
        self.readers.update(cache.reader for cache in trace.caches)


def prompts_of(trace: Trace) -> set[str]:
    """Names and hashes of the prompt templates of a trace."""
    versions = {trace.thinker_prompt_version, *(cache.prompt_version for cache in trace.caches)}
    return versions - {""}


def _is_one_text(trace: Trace) -> bool:
    texts = [
        f"{sample.reasoning}\n{sample.answer_text}" for sample in trace.pool if sample.error is None
    ]
    return len(texts) > 1 and len(set(texts)) == 1 and len(texts[0]) >= _NO_CHANCE


def verifiers_of(trace: Trace) -> set[str]:
    """Names and versions behind the verdicts of a trace."""
    samples = (*trace.pool, *trace.deliberations)
    return {sample.verdict.verifier for sample in samples if sample.verdict}
