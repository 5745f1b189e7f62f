"""What is used, once all traces are known: lengths, duplicates, the mixture, the splits.

Everything here changes labels of the notes and nothing else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from heavydistill.config.sets import BuildConfig, Filters
from heavydistill.curate.candidates import CandidateSet, generator
from heavydistill.curate.mixture import Mixture, Preset, mix
from heavydistill.curate.notes import (
    DeliberationNote,
    GenerationNote,
    ProblemNote,
    SetNote,
    TraceNote,
)

Problems = Mapping[str, ProblemNote]


def split_problems(problems: Problems, share: float, seed: int) -> None:
    """Put each problem without a label into a split: those for validation are the first by a rank
    that their ids and the seed draw.
    """
    used = [key for key, note in problems.items() if not note.label]
    ranked = sorted(used, key=lambda key: generator(seed, "split", key).random())
    kept = set(ranked[: round(share * len(ranked))])
    for key in used:
        problems[key].split = "validation" if key in kept else "train"


def label_sets(notes: Iterable[TraceNote], problems: Problems, most: int) -> None:
    """Label the sets of problems that are left out, and those beyond ``most`` of a problem.

    The sets of the runs come before those that were drawn. A set that two runs made counts once; a
    set that was drawn twice, from the pool that two runs share, is left out the second time.
    """
    of_problem: dict[str, list[SetNote]] = defaultdict(list)
    for trace in notes:
        label = problems[trace.problem].label
        for note in trace.sets:
            if label:
                note.sft_label = note.rl_label = label
            elif not note.sft_label:
                of_problem[trace.problem].append(note)
    for sets in of_problem.values():
        seen: set[CandidateSet] = set()
        for note in sorted(sets, key=lambda note: note.cache is None):
            again = note.cache is None and note.of in seen
            if again or (note.of not in seen and len(seen) == most):
                note.sft_label = note.rl_label = "over_cap"
            seen.add(note.of)


def label_deliberations(notes: Sequence[TraceNote], filters: Filters) -> None:
    """Label what is too long, says the same as another, or is more than a set may give.

    Those on sets that are left out count for nothing, and take no other's place.
    """
    sets = [note for trace in notes for note in trace.sets if not note.sft_label]
    _label_long([d for note in sets for d in note.deliberations], filters.length_quantile)
    of_problem: dict[str, list[DeliberationNote]] = defaultdict(list)
    for note in sets:
        of_problem[note.of.problem] += note.deliberations
    for deliberations in of_problem.values():
        _label_duplicates(deliberations)
    for note in sets:
        for more in note.usable[filters.per_set :]:
            more.label = "not_chosen"


def label_trajectories(notes: Sequence[TraceNote], problems: Problems, config: BuildConfig) -> None:
    """Label the attempts of problems that are left out, long ones and repetitions."""
    of_problem: dict[str, list[GenerationNote]] = defaultdict(list)
    for trace in notes:
        for attempt in trace.trajectories:
            attempt.label = problems[trace.problem].label or attempt.label
        of_problem[trace.problem] += trace.trajectories
    everything = [attempt for attempts in of_problem.values() for attempt in attempts]
    most = config.thinker.handoff_tokens
    for attempt in everything:
        if not attempt.label and most and attempt.answer_tokens > most:
            attempt.label = "long_handoff"
    _label_long(everything, config.filters.length_quantile)
    for attempts in of_problem.values():
        _label_duplicates(attempts)


def mark_wanted(notes: Sequence[TraceNote], problems: Problems, preset: Preset, seed: int) -> None:
    """Mark the sets that the mixture would take if all had a deliberation to learn from."""
    offered = [note for trace in notes for note in trace.sets if not note.sft_label]
    for note in _mixed(offered, problems, preset, seed)[0]:
        note.wanted = True


def select_for_sft(
    notes: Sequence[TraceNote], problems: Problems, preset: Preset, seed: int
) -> Mixture:
    """The mixture of sets with a deliberation to learn from; all others get a label."""
    offered = [note for trace in notes for note in trace.sets if not note.sft_label]
    for note in offered:
        if not note.usable:
            note.sft_label = "no_deliberation"
    offered = [note for note in offered if not note.sft_label]
    kept, mixture = _mixed(offered, problems, preset, seed)
    for note in _others(offered, kept):
        note.sft_label = _passed_over(note, problems, preset)
    return mixture


def select_for_rl(
    notes: Sequence[TraceNote], problems: Problems, preset: Preset, seed: int
) -> None:
    """The mixture of sets on which deliberations fail and succeed; all others get a label.

    Of a set that several runs made, the one that was judged most often stands for all.
    """
    offered = [note for trace in notes for note in trace.sets if not note.rl_label]
    best: dict[CandidateSet, SetNote] = {}
    for note in sorted(offered, key=lambda note: -note.success.judged):
        is_best = best.setdefault(note.of, note) is note
        note.rl_label = note.success.label if is_best else "duplicate"
    offered = [note for note in offered if not note.rl_label]
    kept, _ = _mixed(offered, problems, preset, seed)
    for note in _others(offered, kept):
        note.rl_label = _passed_over(note, problems, preset)


def _passed_over(note: SetNote, problems: Problems, preset: Preset) -> str:
    """The label of a set that the mixture does not take."""
    admitted = preset.takes(note.of, problems[note.of.problem].domain)
    return "over_bound" if admitted else "not_admitted"


def _mixed(
    offered: Sequence[SetNote], problems: Problems, preset: Preset, seed: int
) -> tuple[list[SetNote], Mixture]:
    domains = {note.of.problem: problems[note.of.problem].domain for note in offered}
    mixture = mix(list(dict.fromkeys(note.of for note in offered)), preset, domains, seed)
    kept = set(mixture.kept)
    return [note for note in offered if note.of in kept], mixture


def _others(offered: Iterable[SetNote], kept: Iterable[SetNote]) -> list[SetNote]:
    ids = set(map(id, kept))
    return [note for note in offered if id(note) not in ids]


def _label_long(notes: Sequence[GenerationNote], quantile: float) -> None:
    """Label what is longer than the quantile, the nearest rank, of those without a label."""
    passed = [note for note in notes if not note.label]
    if not passed:
        return
    lengths = sorted(note.tokens for note in passed)
    most = lengths[math.ceil(quantile * len(lengths)) - 1]
    for note in passed:
        if note.tokens > most:
            note.label = "too_long"


def _label_duplicates(notes: Iterable[GenerationNote]) -> None:
    seen: set[str] = set()
    for note in notes:
        if note.label:
            continue
        if note.fingerprint in seen:
            note.label = "duplicate"
        seen.add(note.fingerprint)
