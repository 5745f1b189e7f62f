"""The traces of a run, read once: a row for each problem, and counts of everything else.

What is kept does not grow with the length of texts, so a run of any size fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from heavydistill.config.models import NEVER_JUDGED
from heavydistill.heavy.ballot import rule_of
from heavydistill.metrics.counts import GenerationCounts, GenerationTally
from heavydistill.metrics.judging import Judging, JudgingTally
from heavydistill.metrics.row import Row
from heavydistill.metrics.usage import Usage, UsageTally
from heavydistill.schema import Trace

_NO_CHANCE = 200  # characters that two samples do not have in common by chance


class Tally:
    """What the traces of a run come to.

    Args:
        traces: In any order.
        voted: As of ``summary.summarize``.

    Attributes:
        rows: One a problem, in the order of the traces.
        prompts: Names and hashes of the wordings.
        verifiers: Names and versions behind the verdicts, with the judge where there was one.
        thinkers: Who wrote the trajectories, as the traces name them.
        deliberators: Likewise, the deliberations.
        thoughts: Trajectories with thinking.
        same_texts: Pools whose trajectories are all the same, and too long for that to be chance.
        readers: Caches by what counted their tokens.
    """

    def __init__(self, traces: Iterable[Trace], voted: Collection[str] | None = None) -> None:
        self.rows: list[Row] = []
        self.prompts: set[str] = set()
        self.verifiers: set[str] = set()
        self.thinkers: set[str] = set()
        self.deliberators: set[str] = set()
        self.thoughts = self.same_texts = 0
        self.readers: Counter[str] = Counter()
        self._took_pools = voted is not None
        self._voted = voted or ()
        self._trajectories, self._deliberations = GenerationTally(), GenerationTally()
        self._judging = JudgingTally()
        self._statuses: Counter[str] = Counter()
        for trace in traces:
            self._add(trace)

    @property
    def rounds(self) -> int:
        """Of deliberation; 0 if there are none."""
        return max((len(row.rounds) for row in self.rows), default=0)

    @property
    def rules(self) -> set[str]:
        """The verifiers, without the judges that were asked after them."""
        return {rule_of(verifier) for verifier in self.verifiers}

    @property
    def trajectories(self) -> GenerationCounts:
        """What became of them."""
        return self._trajectories.counts

    @property
    def deliberations(self) -> GenerationCounts:
        """Likewise, of all rounds."""
        return self._deliberations.counts

    @property
    def left_open(self) -> int:
        """Undecided verdicts about which a judge could be asked."""
        return sum(
            count
            for counts in (self.trajectories, self.deliberations)
            for reason, count in counts.undecided_because.items()
            if reason.partition(":")[0] not in NEVER_JUDGED
        )

    @property
    def judging(self) -> Judging:
        """What a judge made of undecided verdicts."""
        return self._judging.counts

    @property
    def usage(self) -> dict[str, Usage]:
        """What each stage took, as of ``summary.Summary``."""
        return {
            "thinking": UsageTally().usage if self._took_pools else self._trajectories.usage,
            "deliberating": self._deliberations.usage,
            **self._judging.usage,
        }

    @property
    def statuses(self) -> dict[str, int]:
        """Traces of each status, most common first."""
        return dict(self._statuses.most_common())

    def _add(self, trace: Trace) -> None:
        self.rows.append(Row.of(trace))
        self.prompts |= prompts_of(trace)
        self.verifiers |= verifiers_of(trace)
        self.thinkers |= {one.model for one in trace.pool}
        self.deliberators |= {one.model for one in trace.deliberations}
        self._trajectories.add(trace.pool)
        self._deliberations.add(trace.deliberations)
        self._judging.add([*trace.pool, *trace.deliberations], self._voted)
        self._statuses[trace.status] += 1
        self.thoughts += sum(bool(one.reasoning) for one in trace.pool)
        self.same_texts += _is_one_text(trace)
        self.readers.update(cache.reader for cache in trace.caches)


def prompts_of(trace: Trace) -> set[str]:
    """Names and hashes of the wordings that were asked."""
    wordings = {trace.thinker_prompt_version, *(cache.prompt_version for cache in trace.caches)}
    return wordings - {""}


def _is_one_text(trace: Trace) -> bool:
    texts = [f"{one.reasoning}\n{one.answer_text}" for one in trace.pool if one.error is None]
    return len(texts) > 1 and len(set(texts)) == 1 and len(texts[0]) >= _NO_CHANCE


def verifiers_of(trace: Trace) -> set[str]:
    """Names and versions behind its verdicts."""
    samples = (*trace.pool, *trace.deliberations)
    return {one.verdict.verifier for one in samples if one.verdict}
