"""The rows of the sets, made of what the build chose."""

from __future__ import annotations

from typing import Any

from heavydistill.chat.student import Student
from heavydistill.curate.choosing import ProblemNote
from heavydistill.curate.notes import DeliberationNote, GenerationNote, SetNote
from heavydistill.curate.sources import Source
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Trajectory
from heavydistill.store.sets.rows import (
    CacheRow,
    DeliberationRow,
    ProblemRow,
    RlRow,
    SftRow,
    TrajectoryRow,
)


def sft_row(
    student: Student,
    max_tokens: int,
    source: Source,
    problem: Problem,
    prompt: str,
    generation: Generation,
    cache: str = "",
    of: SetNote | None = None,
) -> SftRow | str:
    """A row to learn from, or the label of what keeps it from being one.

    Args:
        student: For whom.
        max_tokens: Most tokens of it.
        source: The run.
        problem: Under its id in the sets.
        prompt: What is asked.
        generation: What is learnt.
        cache: Id of the cache that is asked about; empty for a thinker's row.
        of: The candidate set, likewise.
    """
    reasoning, answer_text = generation.reasoning.strip(), generation.answer_text.strip()
    tokens = student.tokens(prompt, reasoning, answer_text)
    if tokens.fault:
        return "not_renderable"
    if len(tokens.prompt) + len(tokens.completion) > max_tokens:
        return "too_long_for_student"
    return student.row(
        prompt=student.prompt(prompt),
        completion=student.completion(reasoning, answer_text),
        reasoning=reasoning,
        answer_text=answer_text,
        role="deliberator" if of else "thinker",
        problem=problem.id,
        run=source.name,
        generation=generation.id,
        cache=cache,
        stratum=of.stratum if of else None,
        model=generation.model,
        prompt_tokens=len(tokens.prompt),
        completion_tokens=len(tokens.completion),
    )


def rl_row(student: Student, source: Source, problem: Problem, one: SetNote, cache: Cache) -> RlRow:
    """A prompt of RL, of a set whose success is known."""
    success = one.success
    assert success.share is not None
    return RlRow(
        prompt=student.prompt(cache.prompt),
        problem=problem.id,
        text=problem.text,
        reference=problem.reference,
        verifier=problem.verifier,
        verifier_args=problem.verifier_args,
        cache=cache.id,
        run=source.name,
        stratum=one.stratum,
        right=one.of.right,
        width=one.of.width,
        success=success.share,
        judged=success.judged,
        measured_on=", ".join(sorted({note.model for note in one.deliberations})),
        prompt_tokens=student.prompt_tokens(cache.prompt),
    )


def trajectory_row(
    source: Source, problem: Problem, note: GenerationNote, trajectory: Trajectory
) -> TrajectoryRow:
    """An attempt in its view."""
    return TrajectoryRow(
        **_fields(trajectory),
        problem=problem.id,
        run=source.name,
        label=note.label,
        tokens=note.tokens,
    )


def problem_row(problem: Problem, meant: ProblemNote) -> ProblemRow:
    """A problem in its view."""
    return ProblemRow(
        **_fields(problem),
        split=meant.split,
        label=meant.label,
        detail=meant.detail,
        runs=meant.runs,
    )


def cache_row(
    source: Source, problem: Problem, one: SetNote, cache: Cache, recut: bool
) -> CacheRow:
    """A candidate set in its view."""
    return CacheRow(
        **_fields(cache),
        problem=problem.id,
        run=source.name,
        drawn=one.cache is None,
        recut=recut,
        stratum=one.stratum,
        right=one.of.right,
        thinkers=list(one.thinkers),
        success=one.success.share,
        judged=one.success.judged,
        sft_label=one.sft_label,
        rl_label=one.rl_label,
    )


def deliberation_row(
    source: Source,
    problem: Problem,
    note: DeliberationNote,
    deliberation: Deliberation,
    cache: Cache,
) -> DeliberationRow:
    """A deliberation in its view, under the id of the cache as it stands there."""
    return DeliberationRow(
        **{**_fields(deliberation), "cache": cache.id},
        problem=problem.id,
        run=source.name,
        label=note.label,
        uses_attempts=note.uses_attempts,
        copied=note.copied,
        tokens=note.tokens,
    )


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}
