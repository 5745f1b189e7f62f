"""What is used, once all traces are known: lengths, duplicates, the mixture, the splits.

Everything here changes labels of the notes and nothing else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heavydistill.config.sets import BuildConfig, Filters
from heavydistill.curate.candidates import CandidateSet, generator
from heavydistill.curate.notes import DeliberationNote, GenerationNote, SetNote, TraceNote
from heavydistill.curate.presets import Mixture, Preset, mix
from heavydistill.store.sets.rows import Split


@dataclass(slots=True)
class ProblemNote:
    """A problem of the build.

    Attributes:
        domain: Wording of its prompts.
        label: ``contaminated``, ``near_duplicate``, or empty.
        detail: Where.
        runs: Where it is, as ``RUN/ID``.
        split: Where its rows go; None if it has a label.
    """

    domain: str
    label: str = ""
    detail: str = ""
    runs: list[str] = field(default_factory=list)
    split: Split | None = None


def split_problems(problems: Mapping[str, ProblemNote], share: float, seed: int) -> None:
    """Put each problem without a label into a split: those for validation are the first by a rank
    that their ids and the seed draw.
    """
    used = [key for key, note in problems.items() if not note.label]
    ranked = sorted(used, key=lambda key: generator(seed, "split", key).random())
    kept = set(ranked[: round(share * len(ranked))])
    for key in used:
        problems[key].split = "validation" if key in kept else "train"


def settle_sets(notes: Iterable[TraceNote], problems: Mapping[str, ProblemNote], most: int) -> None:
    """Label the sets of problems that are left out, and those beyond ``most`` of a problem.

    The sets of the runs come before those that were drawn. A set that two runs made counts once; a
    set that was drawn twice, from the pool that two runs share, is left out the second time.
    """
    of_problem: dict[str, list[SetNote]] = defaultdict(list)
    for note in notes:
        label = problems[note.problem].label
        for one in note.sets:
            if label:
                one.sft_label = one.rl_label = label
            elif not one.sft_label:
                of_problem[note.problem].append(one)
    for those in of_problem.values():
        seen: set[CandidateSet] = set()
        for one in sorted(those, key=lambda one: one.cache is None):
            again = one.cache is None and one.of in seen
            if again or (one.of not in seen and len(seen) == most):
                one.sft_label = one.rl_label = "over_cap"
            seen.add(one.of)


def settle_deliberations(notes: Sequence[TraceNote], filters: Filters) -> None:
    """Label what is too long, says the same as another, or is more than a set may give.

    Those on sets that are left out count for nothing, and take nobody's place.
    """
    sets = [one for note in notes for one in note.sets if not one.sft_label]
    _label_long([d for one in sets for d in one.deliberations], filters.length_quantile)
    of_problem: dict[str, list[DeliberationNote]] = defaultdict(list)
    for one in sets:
        of_problem[one.of.problem] += one.deliberations
    for those in of_problem.values():
        _label_duplicates(those)
    for one in sets:
        for more in one.usable[filters.per_set :]:
            more.label = "not_chosen"


def settle_trajectories(
    notes: Sequence[TraceNote], problems: Mapping[str, ProblemNote], config: BuildConfig
) -> None:
    """Label the attempts of problems that are left out, long ones and repetitions."""
    attempts: dict[str, list[GenerationNote]] = defaultdict(list)
    for note in notes:
        for attempt in note.trajectories:
            if label := problems[note.problem].label:
                attempt.label = label
        attempts[note.problem] += note.trajectories
    everything = [attempt for those in attempts.values() for attempt in those]
    most = config.thinker.handoff_tokens
    for attempt in everything:
        if not attempt.label and most and attempt.answer_tokens > most:
            attempt.label = "long_handoff"
    _label_long(everything, config.filters.length_quantile)
    for those in attempts.values():
        _label_duplicates(those)


def wanted(
    notes: Sequence[TraceNote], problems: Mapping[str, ProblemNote], preset: Preset, seed: int
) -> list[SetNote]:
    """The sets that the mixture would take if every one had a deliberation to learn from."""
    return _mixed([s for n in notes for s in n.sets if not s.sft_label], problems, preset, seed)[0]


def choose_for_sft(
    notes: Sequence[TraceNote], problems: Mapping[str, ProblemNote], preset: Preset, seed: int
) -> Mixture:
    """The mixture of sets with a deliberation to learn from; all others get a label."""
    offered = [one for note in notes for one in note.sets if not one.sft_label]
    for one in offered:
        if not one.usable:
            one.sft_label = "no_deliberation"
    offered = [one for one in offered if not one.sft_label]
    kept, mixture = _mixed(offered, problems, preset, seed)
    for one in _rest(offered, kept):
        taken = preset.takes(one.of, problems[one.of.problem].domain)
        one.sft_label = "over_bound" if taken else "not_admitted"
    return mixture


def choose_for_rl(
    notes: Sequence[TraceNote], problems: Mapping[str, ProblemNote], preset: Preset, seed: int
) -> None:
    """The mixture of sets on which deliberations fail and succeed; all others get a label.

    Of a set that several runs made, the one that was judged most often stands for all.
    """
    offered = [one for note in notes for one in note.sets if not one.rl_label]
    best: dict[CandidateSet, SetNote] = {}
    for one in sorted(offered, key=lambda one: -one.success.judged):
        is_best = best.setdefault(one.of, one) is one
        one.rl_label = one.success.label if is_best else "duplicate"
    offered = [one for one in offered if not one.rl_label]
    kept, _ = _mixed(offered, problems, preset, seed)
    for one in _rest(offered, kept):
        taken = preset.takes(one.of, problems[one.of.problem].domain)
        one.rl_label = "over_bound" if taken else "not_admitted"


def _mixed(
    offered: Sequence[SetNote], problems: Mapping[str, ProblemNote], preset: Preset, seed: int
) -> tuple[list[SetNote], Mixture]:
    domains = {one.of.problem: problems[one.of.problem].domain for one in offered}
    mixture = mix(list(dict.fromkeys(one.of for one in offered)), preset, domains, seed)
    kept = set(mixture.kept)
    return [one for one in offered if one.of in kept], mixture


def _rest(offered: Iterable[SetNote], kept: Iterable[SetNote]) -> list[SetNote]:
    ids = set(map(id, kept))
    return [one for one in offered if id(one) not in ids]


def _label_long(those: Sequence[GenerationNote | DeliberationNote], quantile: float) -> None:
    """Label what is longer than the quantile, the nearest rank, of those without a label."""
    passed = [one for one in those if not one.label]
    if not passed:
        return
    lengths = sorted(one.tokens for one in passed)
    most = lengths[math.ceil(quantile * len(lengths)) - 1]
    for one in passed:
        if one.tokens > most:
            one.label = "too_long"


def _label_duplicates(those: Iterable[GenerationNote | DeliberationNote]) -> None:
    seen: set[str] = set()
    for one in those:
        if one.label:
            continue
        if one.fingerprint in seen:
            one.label = "duplicate"
        seen.add(one.fingerprint)
