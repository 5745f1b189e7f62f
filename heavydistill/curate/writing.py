"""The second pass over the traces: the rows of what was chosen, and the views of all there was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heavydistill.curate.builder import Build
from heavydistill.curate.candidates import generator
from heavydistill.curate.choosing import ProblemNote
from heavydistill.curate.filters.diversity import most_different
from heavydistill.curate.notes import SetNote, TraceNote
from heavydistill.curate.prompts import in_sets
from heavydistill.curate.redeliberation.sets import Answers
from heavydistill.curate.rows import (
    cache_row,
    deliberation_row,
    problem_row,
    rl_row,
    sft_row,
    trajectory_row,
)
from heavydistill.curate.sources import Source
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Trace, Trajectory
from heavydistill.store.sets.folder import Writer, file_of, rows_of
from heavydistill.store.sets.rows import CODES, SPLITS, SftRow, Split

_VIEW_SPLIT: Split = "train"


class SetWriter:
    """Writes the files of all sets.

    Args:
        build: Of which everything is chosen.
        folder: Where they go.
        answers: Gives the deliberations that the build asked for; None if it did not.

    Attributes:
        counts: Rows of each set by split; of each view by label.
        lengths: Tokens of the rows of each set.
        unfit: Drawn sets that the student's context does not hold.
        cut_again: Prompts that were.
        plain: Plain problems among the rows of the deliberator.
        behind: What stands behind the rows: names of each ``thinker`` and ``deliberator``, versions
            of ``prompts`` and ``verifiers``.
    """

    def __init__(self, build: Build, folder: Path, answers: Answers | None) -> None:
        self._build, self._folder, self._answers = build, folder, answers
        self._writers: dict[tuple[str, Split], Writer] = {}
        self._taken: Counter[str] = Counter()
        self._problems_written: set[str] = set()
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.lengths: dict[str, list[int]] = defaultdict(list)
        self.unfit = 0
        self.cut_again = 0
        self.plain = 0
        self.behind: dict[str, set[str]] = defaultdict(set)

    def write(self, source: Source, trace: Trace, note: TraceNote) -> None:
        """The rows of a trace."""
        meant = self._build.problems[note.problem]
        problem = in_sets(trace.problem, note.problem)
        if note.problem not in self._problems_written:
            self._problems_written.add(note.problem)
            self._view("problems", meant.label, problem_row(problem, meant))
        self._write_trajectories(source, problem, trace.pool, note, meant)
        by_id: dict[str, Generation] = {t.id: t for t in trace.pool}
        by_id.update((d.id, d) for d in trace.deliberations)
        caches = {cache.id: cache for cache in trace.caches}
        for one in note.sets:
            shown = [by_id[member] for member in one.of.members]
            cache = (
                caches[one.cache] if one.cache else self._drawn(source, problem, one, trace.pool)
            )
            if cache is None:
                continue
            there = [d for d in trace.deliberations if d.cache == cache.id and one.cache]
            if one.asked and self._answers:
                there += self._answers(source.name, problem, cache)
            self._write_set(source, problem, meant, one, cache, shown, there)

    def finish(self) -> None:
        """Add the plain problems, and close the files."""
        thinker = {split: self._writers.pop(("sft_thinker", split), None) for split in SPLITS}
        for split, writer in thinker.items():
            if writer:
                writer.close()
                self._write_retention(split, writer.rows)
        for writer in self._writers.values():
            writer.close()

    def _write_trajectories(
        self,
        source: Source,
        problem: Problem,
        pool: Sequence[Trajectory],
        note: TraceNote,
        meant: ProblemNote,
    ) -> None:
        passed = [n for n, attempt in enumerate(note.trajectories) if not attempt.label]
        if passed:
            texts = [f"{pool[n].reasoning}\n{pool[n].answer_text}" for n in passed]
            order = most_different(texts, generator(self._build.config.seed, "thinker", problem.id))
            prompt, version = self._build.prompter.thinker(source, problem)
            for n in (passed[position] for position in order):
                attempt = note.trajectories[n]
                if self._taken[problem.id] == self._build.config.thinker.per_problem:
                    attempt.label = "not_chosen"
                    continue
                row = self._sft(source, problem, prompt, pool[n])
                if isinstance(row, str):
                    attempt.label = row
                    continue
                self._taken[problem.id] += 1
                self.behind["prompts"].add(version)
                self._row("sft_thinker", meant, row, row.prompt_tokens + row.completion_tokens)
        for trajectory, attempt in zip(pool, note.trajectories, strict=True):
            self._is_behind("thinker", trajectory)
            self._view(
                "trajectories", attempt.label, trajectory_row(source, problem, attempt, trajectory)
            )

    def _drawn(
        self, source: Source, problem: Problem, one: SetNote, pool: Sequence[Trajectory]
    ) -> Cache | None:
        """The cache of a drawn set that is used for anything; None if it is not, or cannot be."""
        if not one.wanted:
            return None
        cache = self._build.prompter.drawn(source, problem, one.of, pool)
        if cache is None:
            self.unfit += 1
            one.sft_label = one.rl_label = "too_long_for_student"
        return cache

    def _write_set(
        self,
        source: Source,
        problem: Problem,
        meant: ProblemNote,
        one: SetNote,
        cache: Cache,
        shown: Sequence[Generation],
        there: Sequence[Deliberation],
    ) -> None:
        chosen = {note.id for note in one.usable} if not one.sft_label else set()
        readable = self._readable(source, problem, one, cache, shown)
        if readable is None:
            one.sft_label = one.sft_label or "too_long_for_student"
            one.rl_label = one.rl_label or "too_long_for_student"
        elif readable is not cache:
            self.cut_again += 1
        read = readable or cache
        notes = {note.id: note for note in one.deliberations}
        kept, failed = 0, ""
        for deliberation in there if not one.sft_label else ():
            if deliberation.id in chosen:
                row = self._sft(source, problem, read.prompt, deliberation, cache=read.id, of=one)
                if isinstance(row, str):
                    notes[deliberation.id].label = failed = row
                    continue
                kept += 1
                tokens = row.prompt_tokens + row.completion_tokens
                self._row("sft_deliberator", meant, row, tokens)
        if not kept:
            one.sft_label = one.sft_label or failed
        if not one.rl_label:
            asked = rl_row(self._build.student, source, problem, one, read)
            self._row("rl", meant, asked, asked.prompt_tokens)
        self.behind["prompts"].add(read.prompt_version)
        for deliberation in there:
            self._is_behind("deliberator", deliberation)
            note = notes[deliberation.id]
            if one.sft_label:
                same = one.sft_label if one.sft_label in CODES else "set_not_used"
                note.label = note.label or same
            view = deliberation_row(source, problem, note, deliberation, read)
            self._view("deliberations", note.label, view)
        self._view(
            "caches", one.sft_label, cache_row(source, problem, one, read, read is not cache)
        )

    def _readable(
        self,
        source: Source,
        problem: Problem,
        one: SetNote,
        cache: Cache,
        shown: Sequence[Generation],
    ) -> Cache | None:
        """The cache cut for what it is used for; as it is if that is nothing.

        It is cut for the longest of its deliberations that it can be cut for; what needs a
        shorter prompt than there is of these attempts does without it.
        """
        prompter = self._build.prompter
        limits = []
        if not one.sft_label:
            limits += [prompter.max_tokens - d.tokens - TEMPLATE_TOKENS for d in one.usable]
        if not one.rl_label:
            limits.append(prompter.budget_tokens + TEMPLATE_TOKENS)
        for limit in sorted({limit for limit in limits if limit > 0}):
            if readable := prompter.readable(source, problem, cache, shown, limit):
                if limit > prompter.budget_tokens + TEMPLATE_TOKENS:
                    one.rl_label = one.rl_label or "too_long_for_student"
                return readable
        return None if limits else cache

    def _sft(
        self, source: Source, problem: Problem, prompt: str, generation: Generation, **of: Any
    ) -> SftRow | str:
        """A row to learn from, or the label of what keeps it from being one."""
        most = self._build.prompter.max_tokens
        return sft_row(self._build.student, most, source, problem, prompt, generation, **of)

    def _is_behind(self, role: str, generation: Generation) -> None:
        """Note who wrote a row of a view and what judged it, used or not: all of it is kept."""
        self.behind[role].add(generation.model)
        if generation.verdict:
            self.behind["verifiers"].add(generation.verdict.verifier)

    def _write_retention(self, split: Split, there: int) -> None:
        """Copy as many of the thinker's rows as make their share of the deliberator's."""
        own = self._writers.get(("sft_deliberator", split))
        share = self._build.config.retention
        wanted = min(there, round(share / (1 - share) * own.rows)) if own else 0
        rng = generator(self._build.config.seed, "retention", split)
        chosen = set(rng.sample(range(there), wanted))
        for number, row in enumerate(rows_of(file_of(self._folder, "sft_thinker", split))):
            if own and number in chosen:
                own.copy(row)
                self.plain += 1
                self.counts["sft_deliberator"][split] += 1
                tokens = row["prompt_tokens"] + row["completion_tokens"]
                self.lengths["sft_deliberator"].append(tokens)

    def _view(self, name: str, label: str, row: Any) -> None:
        self.counts[name][label or "used"] += 1
        self._writer(name, _VIEW_SPLIT, type(row)).write(row)

    def _row(self, name: str, meant: ProblemNote, row: Any, tokens: int) -> None:
        assert meant.split is not None  # problems that are left out have no rows
        self.counts[name][meant.split] += 1
        self.lengths[name].append(tokens)
        self._writer(name, meant.split, type(row)).write(row)

    def _writer(self, name: str, split: Split, kind: type) -> Writer:
        if (name, split) not in self._writers:
            self._writers[name, split] = Writer(file_of(self._folder, name, split), kind)
        return self._writers[name, split]
