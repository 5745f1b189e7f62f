"""Replaces the attempts of a finished run by others, for controls of its deliberations.

``other_pools`` takes the traces of the run and yields the pools that the control shows. A replaced
trajectory has the place of the old one, so that caches are selected and shuffled as in the run, and
an id of its own:

    garbled     the same attempts, with other values (see ``perturbation``)
    foreign     the attempts at another problem of the same kind and stratum, of similar length
    transplant  where a minority of the attempts shown is right: wrong attempts in the place of the
                right ones. Where all attempts shown are wrong, but another attempt of the pool is
                right: this one in the place of a wrong one
    empty       attempts without text
    answers     the last box of each attempt alone; attempts without one have no text
    steps       the same attempts without boxes, and without lines that hold nothing else; a value
                of a step stays without its box
    outputs     the same attempts, whose code printed other values; code and answers stay
    planted-N   right attempts, N of them with the same wrong step (see ``perturbation.plant``),
                which they carry on to their final answer

A cache can be garbled if all final answers that it shows can have other values. A foreign pool has
the same kind, that is verifier, family of a procedural problem, and number of options of a choice.
It comes from the problems nearby in the run, of another stratum if there is none of the same, and
without the right answer if possible. A transplant takes wrong attempts from the pool, those that no
cache shows before the others, and repeats them if they are too few. A wrong step is planted where
every attempt of the pool is usable, one is right and there is one round; the N attempts are copies,
of one whose steps are all true if there is one. Transplanted attempts, those with other outputs,
those of ``answers`` and right ones beside planted ones keep their verdicts; the others have none
and are judged.

Not covered: deliberations as attempts of a later round, which the control writes itself.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from heavydistill.config.run import Attempts
from heavydistill.experiments.perturbation import (
    box_alone,
    final_box,
    garble,
    plant,
    without_boxes,
)
from heavydistill.heavy.voting import stratum
from heavydistill.schema import (
    Problem,
    Trace,
    Trajectory,
    Verdict,
    content_id,
    turns_as_json,
)
from heavydistill.text.steps import read_steps

_NEARBY = 256  # number of traces that are in memory at once, at most twice
_LONGEST_REFERENCE = 100  # characters; longer references are worked solutions or tests

Pool = list[Trajectory]


def other_pools(attempts: Attempts, traces: Iterable[Trace]) -> Iterator[tuple[Trace, Pool]]:
    """Yield the traces of a run for which a control has a pool, with this pool.

    Pools have the size of the run's, and replaced attempts are as usable as the old ones. The same
    traces in the same order give the same pools.
    """
    name, _, shared = attempts.partition("-")
    replaced = _REPLACED[name] if not shared else functools.partial(_planted, shared=int(shared))
    before: list[Trace] = []
    remaining = iter(traces)
    while batch := list(itertools.islice(remaining, _NEARBY)):
        for trace in batch:
            if pool := replaced(trace, [*before, *batch]):
                yield trace, pool
        before = batch


def _garbled(trace: Trace, nearby: Sequence[Trace]) -> Pool | None:
    """The pool with other values; None if not all final answers that are shown have other ones."""
    right, options, ids = _right_answers(trace), _options(trace.problem), _shown(trace)
    pool, are_others = list(trace.pool), []
    for place, old in enumerate(trace.pool):
        if old.unusable_because is None:
            *texts, answer_text = garble(
                _words_of(old),
                f"{_seed(trace)}\x1f{old.id}",
                answer=old.extracted or "",
                right=right,
                options=options,
                problem=trace.problem.text,
            )
            new = _with_words(old, [*texts, answer_text])
            pool[place] = old if new == old else _instead(old, new, verdict=None)
            final = final_box(old.answer_text)
            if old.id in ids and (final or old.extracted is not None):
                are_others.append(
                    (final_box(answer_text) or answer_text) != (final or old.answer_text)
                )
    return pool if are_others and all(are_others) else None


def _foreign(trace: Trace, nearby: Sequence[Trace]) -> Pool | None:
    """The attempts at another problem; None if no trace nearby has a problem of the same kind."""
    right, length, kind = _right_answers(trace), _length(trace), _kind(trace.problem)

    def unlike(donor: Trace) -> tuple[bool, bool, float]:
        tells = any(one.extracted in right for one in donor.pool)
        shorter, longer = sorted([_length(donor), length])
        return donor.stratum != trace.stratum, tells, longer / max(1, shorter)

    donors = [
        donor
        for donor in nearby
        if donor.problem.id != trace.problem.id and _kind(donor.problem) == kind and _usable(donor)
    ]
    if not donors:
        return None
    given = itertools.cycle(_usable(min(donors, key=unlike)))
    return [
        one if one.unusable_because else _instead(one, next(given), verdict=None)
        for one in trace.pool
    ]


def _transplanted(trace: Trace, nearby: Sequence[Trace]) -> Pool | None:
    """The pool after the transplant; None if its attempts and their verdicts allow none."""
    ids, rng = _shown(trace), random.Random(_seed(trace))
    shown = [one for one in trace.pool if one.id in ids]
    others = [one for one in _usable(trace) if one.id not in ids]
    out: list[Trajectory] = []
    given: list[Trajectory] = []
    if stratum(shown) == "minority-right":
        out = [one for one in shown if one.is_correct]
        wrong = (list(filter(_is_wrong, group)) for group in (others, shown))
        given = [one for group in wrong for one in rng.sample(group, len(group))]
    elif not any(one.is_correct for one in shown):
        given = [one for one in others if one.is_correct]
        out = list(filter(_is_wrong, shown))
        out, given = (rng.sample(group, min(1, len(group))) for group in (out, given))
    if not (trace.caches and out and given):
        return None
    new = {old.id: by for old, by in zip(out, itertools.cycle(given), strict=False)}
    return [
        _instead(one, new[one.id], new[one.id].verdict) if one.id in new else one
        for one in trace.pool
    ]


def _cut(
    trace: Trace, nearby: Sequence[Trace], kept: Callable[[str], str], needs_box: bool = True
) -> Pool | None:
    """The pool with what ``kept`` leaves of the texts; None without a cache, or a box in it."""
    ids, pool, shown = _shown(trace), list(trace.pool), []
    for place, old in enumerate(trace.pool):
        if old.unusable_because is None:
            reasoning, answer_text = kept(old.reasoning), kept(old.answer_text)
            new = _with_texts(old, reasoning, answer_text)
            is_same = answer_text and final_box(answer_text) == final_box(old.answer_text)
            pool[place] = _instead(old, new, old.verdict if is_same else None)
            shown += [final_box(old.answer_text)] * (old.id in ids)
    return pool if trace.caches and (any(shown) or not needs_box) else None


def _other_outputs(trace: Trace, nearby: Sequence[Trace]) -> Pool | None:
    """The pool with other values in the outputs of its code; None if the caches show none."""
    ids, pool, is_shown = _shown(trace), list(trace.pool), False
    for place, old in enumerate(trace.pool):
        outputs = [turn.text for turn in old.turns if turn.role == "tool"]
        if old.unusable_because is None and outputs:
            seed = f"{_seed(trace)}\x1f{old.id}"
            texts = iter(garble(outputs, seed, problem=trace.problem.text))
            turns = [
                dataclasses.replace(turn, text=next(texts)) if turn.role == "tool" else turn
                for turn in old.turns
            ]
            new = dataclasses.replace(old, turns_json=turns_as_json(turns))
            pool[place] = _instead(old, new, old.verdict)
            is_shown |= new != old and old.id in ids
    return pool if trace.caches and is_shown else None


def _planted(trace: Trace, nearby: Sequence[Trace], shared: int) -> Pool | None:
    """Right attempts, ``shared`` of those that are shown with one wrong step; None if no right
    attempt has steps, or so many are not shown, or caches of several rounds show them."""
    rng, right = random.Random(_seed(trace)), [one for one in trace.pool if one.is_correct]
    ids = _shown(trace) & {one.id for one in trace.pool}
    if len(trace.caches) != 1 or shared > len(ids) or len(_usable(trace)) < len(trace.pool):
        return None
    for one in sorted(rng.sample(right, len(right)), key=_has_false_step):
        if texts := plant([one.reasoning, one.answer_text], _seed(trace), trace.problem.text):
            wrong = _with_texts(one, *texts)
            break
    else:
        return None
    given, places, pool = itertools.cycle(right), rng.sample(sorted(ids), shared), list(trace.pool)
    for place, old in enumerate(trace.pool):
        if old.id in places:
            pool[place] = _instead(old, wrong, verdict=None)
        elif old.id in ids and not old.is_correct:
            new = next(given)
            pool[place] = _instead(old, new, new.verdict)
    return pool


def _has_false_step(one: Trajectory) -> bool:
    return not all(step.is_true for step in read_steps(f"{one.reasoning}\n{one.answer_text}"))


_REPLACED: dict[str, Callable[[Trace, Sequence[Trace]], Pool | None]] = {
    "garbled": _garbled,
    "foreign": _foreign,
    "transplant": _transplanted,
    "empty": functools.partial(_cut, kept=lambda _: "", needs_box=False),
    "answers": functools.partial(_cut, kept=box_alone),
    "steps": functools.partial(_cut, kept=without_boxes),
    "outputs": _other_outputs,
}


def _words_of(one: Trajectory) -> list[str]:
    """The texts of all turns with the code of calls; the answer text is the last."""
    return [
        text
        for turn in one.turns
        for text in (*(call.arguments for call in turn.calls), turn.thinking, turn.text)
    ]


def _with_words(old: Trajectory, words: Sequence[str]) -> Trajectory:
    """The trajectory with other texts in the places of ``_words_of``."""
    if not old.turns_json:
        return _with_texts(old, *words)
    rest, turns = iter(words), []
    for turn in old.turns:
        calls = [dataclasses.replace(call, arguments=next(rest)) for call in turn.calls]
        turns.append(dataclasses.replace(turn, calls=calls, thinking=next(rest), text=next(rest)))
    return dataclasses.replace(old, turns_json=turns_as_json(turns))


def _with_texts(old: Trajectory, reasoning: str, answer_text: str) -> Trajectory:
    return dataclasses.replace(old, reasoning=reasoning, answer_text=answer_text, turns_json="")


def _instead(old: Trajectory, new: Trajectory, verdict: Verdict | None) -> Trajectory:
    """The trajectory ``new`` at the place of ``old``."""
    id = content_id("t", old.id, new.id, new.reasoning, new.answer_text)
    return dataclasses.replace(new, id=id, index=old.index, verdict=verdict)


def _seed(trace: Trace) -> str:
    return f"{trace.problem.id}\x1f{trace.caches[0].id if trace.caches else ''}"


def _usable(trace: Trace) -> Pool:
    return [one for one in trace.pool if one.unusable_because is None]


def _shown(trace: Trace) -> set[str]:
    """Ids of the attempts in the caches of all rounds; of all usable ones without a cache."""
    if not trace.caches:
        return {one.id for one in _usable(trace)}
    return {item.generation for cache in trace.caches for item in cache.items}


def _is_wrong(one: Trajectory) -> bool:
    return one.verdict is not None and one.verdict.label == "incorrect"


def _length(trace: Trace) -> float:
    """Mean number of characters of the usable answers."""
    return fmean([len(one.answer_text) for one in _usable(trace)] or [0])


def _right_answers(trace: Trace) -> set[str]:
    reference = trace.problem.reference
    right = {one.extracted for one in trace.pool if one.is_correct and one.extracted}
    return right | ({reference} if len(reference) <= _LONGEST_REFERENCE else set())


def _options(problem: Problem) -> list[str]:
    """The texts of a choice's options, which are empty if only their number is known."""
    options = problem.arguments.get("options")
    if isinstance(options, int):
        return [""] * options
    return list(map(str, options)) if isinstance(options, list) else []


def _kind(problem: Problem) -> tuple[object, ...]:
    return problem.verifier, problem.arguments.get("family"), len(_options(problem))
