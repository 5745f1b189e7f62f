"""Selects the training data after all traces are read: lengths, duplicates, mixture, splits.

The functions only change the labels in the notes of a build.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from heavydistill.curate.build_state import BuildState, GenerationNote, SetNote
from heavydistill.curate.candidates import CandidateSet, generator
from heavydistill.curate.mixture import mix
from heavydistill.store.sets.set_rows import USED


def mark_wanted(build: BuildState) -> None:
    """Split the problems, and mark the sets that the mixture would select if every set had a
    usable deliberation.
    """
    _split_problems(build)
    _label_sets(build)
    offered = [note for note in build.sets if not note.sft_label]
    labels = _mixed(offered, build)
    for note in offered:
        note.wanted = labels[note.of] == USED


def select(build: BuildState) -> None:
    """Label everything that is not used; anything without a label afterwards is used."""
    _label_deliberations(build)
    _label_trajectories(build)
    build.undeliberated = len({note.of for note in build.pending()})
    _select_for_sft(build)
    _select_for_rl(build)


def _split_problems(build: BuildState) -> None:
    """Assign each problem to train or validation, by a random rank from its id and the seed."""
    used = [key for key, note in build.problems.items() if not note.label]
    ranked = sorted(used, key=lambda key: generator(build.config.seed, "split", key).random())
    kept = set(ranked[: round(build.config.validation * len(ranked))])
    for key in used:
        build.problems[key].split = "validation" if key in kept else "train"


def _label_sets(build: BuildState) -> None:
    """Label the sets of excluded problems, and the sets beyond ``per_problem``.

    Sets of the runs come before drawn sets. A set that two runs made counts once; a set that was
    drawn twice, from a pool that two runs share, is left out the second time.
    """
    of_problem: dict[str, list[SetNote]] = defaultdict(list)
    for note in build.sets:
        if label := build.problems[note.of.problem].label:
            note.sft_label = note.rl_label = label
        elif not note.sft_label:
            of_problem[note.of.problem].append(note)
    for sets in of_problem.values():
        seen: set[CandidateSet] = set()
        for note in sorted(sets, key=lambda note: note.cache is None):
            again = note.cache is None and note.of in seen
            is_full = note.of not in seen and len(seen) == build.config.sets.per_problem
            if again or is_full:
                note.sft_label = note.rl_label = "over_cap"
            seen.add(note.of)


def _label_deliberations(build: BuildState) -> None:
    """Label deliberations that are too long, duplicates, or beyond ``per_set``.

    Deliberations on excluded sets are ignored, so that they do not displace others.
    """
    filters = build.config.filters
    sets = [note for note in build.sets if not note.sft_label]
    of_problem: dict[str, list[GenerationNote]] = defaultdict(list)
    for note in sets:
        of_problem[note.of.problem] += note.deliberations
    _label_long_and_same(of_problem, filters.length_quantile)
    for note in sets:
        for more in note.usable[filters.per_set :]:
            more.label = "not_chosen"


def _label_trajectories(build: BuildState) -> None:
    """Label attempts at excluded problems, attempts that are too long, and duplicates.

    Worked solutions are not too long: the longest are those of problems with the most steps.
    """
    sampled: dict[str, list[GenerationNote]] = defaultdict(list)
    solutions: dict[str, list[GenerationNote]] = defaultdict(list)
    most = build.config.thinker.handoff_tokens
    for source in build.sources:
        for trace in build.notes[source.name]:
            (solutions if source.has_solutions else sampled)[trace.problem] += trace.trajectories
            for attempt in trace.trajectories:
                attempt.label = build.problems[trace.problem].label or attempt.label
                if not attempt.label and most and attempt.answer_tokens > most:
                    attempt.label = "long_handoff"
    _label_long_and_same(sampled, build.config.filters.length_quantile)
    _label_long_and_same(solutions, 1.0)


def _select_for_sft(build: BuildState) -> None:
    """Apply the mixture to the sets that have a usable deliberation, and label all others."""
    offered = []
    for note in build.sets:
        if not note.sft_label and not note.usable:
            note.sft_label = "no_deliberation"
        elif not note.sft_label:
            offered.append(note)
    build.mixture = _mixed(offered, build)
    for note in offered:
        note.sft_label = build.mixture[note.of]


def _select_for_rl(build: BuildState) -> None:
    """Apply the mixture to the sets with both correct and other deliberations; label all others.

    If several runs made the same set, the one with the most judged deliberations is used.
    """
    offered = [note for note in build.sets if not note.rl_label]
    best: dict[CandidateSet, SetNote] = {}
    for note in sorted(offered, key=lambda note: -note.success.judged):
        is_best = best.setdefault(note.of, note) is note
        note.rl_label = note.success.label if is_best else "duplicate"
    offered = [note for note in offered if not note.rl_label]
    labels = _mixed(offered, build)
    for note in offered:
        note.rl_label = labels[note.of]


def _mixed(offered: Sequence[SetNote], build: BuildState) -> dict[CandidateSet, str]:
    domains = {key: note.domain for key, note in build.problems.items()}
    return mix((note.of for note in offered), build.preset, domains, build.config.seed)


def _label_long_and_same(
    of_problems: Mapping[str, Sequence[GenerationNote]], quantile: float
) -> None:
    """Label generations longer than a quantile of the unlabelled lengths (nearest rank), and
    generations that repeat an earlier one of the same problem.
    """
    passed = [(key, note) for key in of_problems for note in of_problems[key] if not note.label]
    lengths = sorted(note.tokens for _, note in passed)
    most = lengths[math.ceil(quantile * len(lengths)) - 1] if lengths else 0
    seen: set[tuple[str, str]] = set()
    for key, note in passed:
        if note.tokens > most:
            note.label = "too_long"
        elif (key, note.fingerprint) in seen:
            note.label = "duplicate"
        else:
            seen.add((key, note.fingerprint))
