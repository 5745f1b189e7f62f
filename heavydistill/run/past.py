"""What a journal tells of how long a stage's responses are, and how long they take.

Only responses of the same model, in the same stage, with the same sampling count, whatever the
problems were. Of a large journal some are read: at random from one that an endpoint filled, in
the order of writing from one that a model in this process filled, so that its batches stay
together.

Not covered: how problems differ from those in the journal; that what was in flight when a run was
killed is longer than what had come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, islice

from heavydistill.config.models import Sampling
from heavydistill.metrics.intervals import Interval, predicted_ratio
from heavydistill.store.journal import Journal
from heavydistill.store.segment import Record

_MOST_READ = 5_000
_ENOUGH = 1_000


@dataclass(frozen=True, slots=True)
class Measured:
    """What the responses of a stage were like. Intervals are of the mean of those to come.

    Attributes:
        responses: How many were read.
        prompts: To how many different prompts.
        prompt_tokens: Of a response; None if the server did not count, or for a single prompt.
        completion_tokens: Likewise.
        seconds: From asking to its last token (endpoint), or of this machine for one response,
            batches divided among theirs (local). None as above.
        longest_s: The slowest one.
    """

    responses: int
    prompts: int
    prompt_tokens: Interval | None
    completion_tokens: Interval | None
    seconds: Interval | None
    longest_s: float


def records_of(
    journal: Journal, stages: Mapping[str, tuple[str, Sampling]], shuffled: bool
) -> dict[str, list[Record]]:
    """Up to ``_ENOUGH`` records of each stage, given as (model, sampling) by its name."""
    wanted = {stage: (model, sampling.model_dump()) for stage, (model, sampling) in stages.items()}
    found: dict[str, list[Record]] = {stage: [] for stage in stages}
    for record in islice(journal.answers(shuffled), _MOST_READ):
        stage = record.asked.get("stage")
        if not isinstance(stage, str) or not isinstance(record.asked.get("prompt"), str):
            continue  # not from a run
        of_stage = wanted.get(stage) == (record.model, record.asked.get("sampling"))
        if of_stage and len(found[stage]) < _ENOUGH:
            found[stage].append(record)
        if all(len(records) >= _ENOUGH for records in found.values()):
            break
    return found


def measure(records: list[Record], new_prompts: int, in_process: bool) -> Measured | None:
    """What records of one stage tell of responses to so many more prompts; None without records."""
    if not records or not new_prompts:
        return None

    def tokens(name: str) -> Interval | None:
        by_prompt = sorted((r.asked["prompt"], getattr(r.response, name)) for r in records)
        known = [pair for pair in by_prompt if pair[1] >= 0]
        return _predicted(known, new_prompts)

    if in_process:
        # All responses of a batch have its time, which no other batch has.
        batches = sorted((r.response.latency_s, 0.0) for r in records)
        per_batch = [list(batch) for _, batch in groupby(batches, key=lambda pair: pair[0])]
        more = -(-new_prompts * len(per_batch) // len({r.asked["prompt"] for r in records}))
        seconds = predicted_ratio([b[0][0] for b in per_batch], [len(b) for b in per_batch], more)
    else:
        seconds = _predicted(
            sorted((r.asked["prompt"], r.response.latency_s) for r in records), new_prompts
        )
    return Measured(
        responses=len(records),
        prompts=len({r.asked["prompt"] for r in records}),
        prompt_tokens=tokens("prompt_tokens"),
        completion_tokens=tokens("completion_tokens"),
        seconds=seconds,
        longest_s=max(r.response.latency_s for r in records),
    )


def _predicted(by_prompt: Iterable[tuple[str, float]], new: int) -> Interval | None:
    """Of (prompt, value), sorted."""
    groups = [
        [value for _, value in group] for _, group in groupby(by_prompt, key=lambda pair: pair[0])
    ]
    return predicted_ratio([sum(group) for group in groups], [len(group) for group in groups], new)
