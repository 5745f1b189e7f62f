"""The second pass over the traces: writes the selected rows, and views of all data."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from heavydistill.chat.student import Student
from heavydistill.config.prompts import Wording
from heavydistill.curate.build_state import BuildState, SetOfTrace, SourceRun, TraceNote
from heavydistill.curate.candidates import generator
from heavydistill.curate.contrast import ContrastRows, Responses
from heavydistill.heavy.prompts import thinker_prompt
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import Cache, Deliberation, Generation, Problem, Stratum, Trace
from heavydistill.store.sets.folder import Writer, file_of
from heavydistill.store.sets.set_rows import (
    CODES,
    SPLITS,
    USED,
    CacheRow,
    DeliberationRow,
    PairRow,
    ProblemRow,
    RlRow,
    SftRow,
    ShownAttempt,
    Split,
    TrajectoryRow,
)
from heavydistill.store.traces import rows_in
from heavydistill.text.checked_claims import claims_of
from heavydistill.text.words import most_different

_Kind = TypeVar("_Kind")
Answers = Callable[[str, Problem, Cache], list[Deliberation]]
"""Function of (name of a run, problem, cache) that returns the redeliberation's deliberations."""

_TOO_LONG = "too_long_for_student"
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}


class SetFiles:
    """The files of a folder of sets; each file is created when its first row is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: dict[tuple[str, str], Writer] = {}  # Writers by (set, split)

    def writer(self, name: str, split: str, kind: type) -> Writer:
        """Return the writer of a split, for rows of the dataclass ``kind``."""
        if (name, split) not in self.opened:
            self.opened[name, split] = Writer(file_of(self._folder, name, split), kind)
        return self.opened[name, split]

    def close(self) -> None:
        while self.opened:
            self.opened.popitem()[1].close()


class SetWriter:
    """Writes the files of all sets of a build after the selection.

    ``answers`` returns the deliberations that the build requested; None without redeliberation.
    """

    def __init__(self, build: BuildState, folder: Path, answers: Answers | None) -> None:
        self._build, self._folder, self._answers = build, folder, answers
        self._files = SetFiles(folder)
        self._thinker_rows: Counter[str] = Counter()
        self._problems_written: set[str] = set()
        self.contrast = ContrastRows(build.config.also, self._row)
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        """Numbers of rows: of each set by split, of each view by label."""
        self.lengths: dict[str, list[int]] = defaultdict(list)  # Row lengths of each set, in tokens
        self.unfit = 0  # Number of drawn sets that exceed the student's context
        self.recut = 0  # Number of prompts whose attempts were cut again
        self.plain = 0  # Number of plain problems among the deliberator rows
        self.behind: dict[str, set[str]] = defaultdict(set)
        """Origin of the rows: names of ``thinker`` and ``deliberator`` models, ``sources`` of the
        problems, versions of ``prompts`` (of other wordings by their names) and ``verifiers``."""
        self.worded: dict[str, Counter[str]] = defaultdict(Counter)
        """Numbers of rows of each set by wording."""

    def write(self, source: SourceRun, trace: Trace, note: TraceNote) -> None:
        """Write the rows of a trace; its problem must have the id that is used in the sets."""
        problem = trace.problem
        self.behind["sources"].add(problem.origin)
        if problem.id not in self._problems_written:
            self._problems_written.add(problem.id)
            known = self._build.problems[problem.id]
            self._view(
                "problems",
                ProblemRow,
                problem,
                split=known.split,
                label=known.label,
                detail=known.detail,
                runs=known.runs,
            )
        self._write_thinker_rows(source, trace, note)
        about = {"problem": problem.id, "run": source.name}
        for trajectory, attempt in zip(trace.pool, note.trajectories, strict=True):
            self._is_behind("thinker", trajectory)
            more = {"label": attempt.label, "tokens": attempt.tokens}
            self._view("trajectories", TrajectoryRow, trajectory, **about, **more)
        for each in note.sets:
            if each.cache is None and not each.wanted:
                continue
            of_trace = self._build.with_cache(source, trace, each)
            if of_trace is None:
                self.unfit += 1
                each.sft_label = each.rl_label = _TOO_LONG
                continue
            deliberations = [d for d in trace.deliberations if d.cache == each.cache]
            if each.asked and self._answers:
                deliberations += self._answers(source.name, problem, of_trace.cache)
            self._write_set(of_trace, deliberations)

    def finish(self) -> None:
        """Add the plain problems to the rows of the deliberator, and close the files."""
        for kind, split in itertools.product(("sft", "preferences", "unpaired"), SPLITS):
            if written := self._files.opened.pop((f"{kind}_thinker", split), None):
                written.close()
                self._write_retention(kind, split, written.rows)
        self._files.close()

    def _write_thinker_rows(self, source: SourceRun, trace: Trace, note: TraceNote) -> None:
        problem, config = trace.problem, self._build.config
        student, most = self._build.student, self._build.max_tokens
        pairs = [*zip(trace.pool, note.trajectories, strict=True)]
        passed = [(attempt, known) for attempt, known in pairs if not known.label]
        if not passed:
            return
        texts = [f"{attempt.reasoning}\n{attempt.answer_text}" for attempt, _ in passed]
        wording = self._build.wording("thinker", source, problem)
        prompt = thinker_prompt(problem.text, wording)
        make = partial(sft_row, student, most, problem, run=source.name)
        rows: dict[str, SftRow] = {}
        for place in most_different(texts, generator(config.seed, "thinker", problem.id)):
            attempt, known = passed[place]
            if self._thinker_rows[problem.id] == config.thinker.per_problem:
                known.label = "not_chosen"
                continue
            row = make(prompt, attempt)
            known.label = self._row("sft_thinker", row)
            if isinstance(row, SftRow):
                rows[attempt.id] = row
                self._thinker_rows[problem.id] += 1
                self.behind["prompts"].add(wording.version)
        most_rows, language = config.thinker.per_problem, self._build.language_of(source)
        self.contrast.add(
            Responses("thinker", prompt, problem, pairs, rows, most_rows, make), language
        )

    def _write_set(self, of_trace: SetOfTrace, deliberations: Sequence[Deliberation]) -> None:
        problem, note, cache = of_trace.problem, of_trace.note, of_trace.cache
        about: dict[str, Any] = {"problem": problem.id, "run": of_trace.source.name}
        student, most = self._build.student, self._build.max_tokens
        read = self._readable(of_trace)
        if read is None:
            note.sft_label = note.sft_label or _TOO_LONG
            note.rl_label = note.rl_label or _TOO_LONG
            read = cache
        wording = "full" if read is cache else self._build.level_of(note)
        texts = [[each.sha256 for each in one.items] for one in (cache, read)]
        is_recut = read is not cache and (wording == "full" or texts[0] != texts[1])
        self.recut += is_recut
        self.behind["prompts" if wording == "full" else wording].add(read.prompt_version)
        pairs = [*zip(deliberations, note.deliberations, strict=True)]
        if not note.sft_label:
            chosen = [(each, known) for each, known in pairs if not known.label]
            run, stratum = about["run"], note.stratum
            make = partial(
                sft_row,
                student,
                most,
                problem,
                run=run,
                cache=read.id,
                stratum=stratum,
                wording=wording,
            )
            rows: dict[str, SftRow] = {}
            for each, known in chosen:
                row = make(read.prompt, each)
                known.label = self._row("sft_deliberator", row)
                if isinstance(row, SftRow):
                    rows[each.id] = row
            if not rows:
                note.sft_label = chosen[-1][1].label
            most_rows = self._build.config.filters.per_set
            self.contrast.add(
                Responses("deliberator", read.prompt, problem, pairs, rows, most_rows, make)
            )
        for each, known in pairs:
            self._is_behind("deliberator", each)
            if note.sft_label:
                same = note.sft_label if note.sft_label in CODES else "set_not_used"
                known.label = known.label or same
            self._view(
                "deliberations",
                DeliberationRow,
                replace(each, cache=read.id, claims=claims_of(each, of_trace.shown)),
                label=known.label,
                **known.signs._asdict() if known.signs else {},
                tokens=known.tokens,
                **about,
            )
        written = self._view(
            "caches",
            CacheRow,
            read,
            drawn=note.cache is None,
            recut=is_recut,
            wording=wording,
            stratum=note.stratum,
            right=note.of.right,
            thinkers=list(note.thinkers),
            success=note.success.share,
            judged=note.success.judged,
            sft_label=note.sft_label,
            rl_label=note.rl_label,
            attempts=[
                ShownAttempt(answer=each.extracted or "", right=each.right)
                for each in of_trace.shown
            ],
            **about,
        )
        if not note.rl_label:
            measured_on = ", ".join(sorted({known.model for known in note.deliberations}))
            self._row("rl", rl_row(student, problem, written, measured_on))

    def _readable(self, of_trace: SetOfTrace) -> Cache | None:
        """Return the cache, cut to fit its uses; unchanged if it is not used, None if no cut fits.

        The cut leaves room for the longest deliberation that can fit; longer deliberations are left
        out of the rows.
        """
        build, note = self._build, of_trace.note
        limits = []
        if not note.sft_label:
            limits += [build.max_tokens - d.tokens - TEMPLATE_TOKENS for d in note.usable]
        if not note.rl_label:
            limits.append(build.budget_tokens + TEMPLATE_TOKENS)
        for limit in sorted({limit for limit in limits if limit > 0}):
            if readable := build.readable(of_trace, limit):
                if limit > build.budget_tokens + TEMPLATE_TOKENS:
                    note.rl_label = note.rl_label or _TOO_LONG
                return readable
        return None if limits else of_trace.cache

    def _is_behind(self, role: str, generation: Generation) -> None:
        """Record the author and verifier of a view's row, whether the row is used or not."""
        self.behind[role].add(generation.model)
        if generation.verdict:
            self.behind["verifiers"].add(generation.verdict.verifier)

    def _write_retention(self, kind: str, split: Split, available: int) -> None:
        """Copy rows of the thinker to the deliberator's rows, up to the share ``retention``.

        ``kind`` is the first part of the names of both sets.
        """
        name = f"{kind}_deliberator"
        own = self._files.opened.get((name, split))
        if not own:
            return
        share = self._build.config.retention
        copies = min(available, round(share / (1 - share) * own.rows))
        rng = generator(self._build.config.seed, "retention", split)
        chosen = set(rng.sample(range(available), copies))
        self.plain += len(chosen) if kind == "sft" else 0
        self.counts[name][split] += len(chosen)
        for number, row in enumerate(rows_in(file_of(self._folder, f"{kind}_thinker", split))):
            if number in chosen:
                own.copy(row)
                self.lengths[name].append(row["prompt_tokens"] + row["completion_tokens"])

    def _view(self, name: str, kind: type[_Kind], value: Any, **more: Any) -> _Kind:
        """Write a row of a view, with the fields of ``value`` and ``more``, and return it."""
        row = kind(**{each.name: getattr(value, each.name) for each in fields(value)}, **more)
        self.counts[name][more.get("label") or "used"] += 1
        self._files.writer(name, "train", kind).write(row)
        return row

    def _row(self, name: str, row: SftRow | PairRow | RlRow | str) -> str:
        """Write a row of a set and return ``USED``; if given a label, only return the label."""
        if isinstance(row, str):
            return row
        split = self._build.problems[row.problem].split
        assert split is not None  # excluded problems have no rows
        self.counts[name][split] += 1
        if row.wording:
            self.worded[name][row.wording] += 1
        learnt = 0 if isinstance(row, RlRow) else row.completion_tokens
        self.lengths[name].append(row.prompt_tokens + learnt)
        self._files.writer(name, split, type(row)).write(row)
        return USED


def sft_row(
    student: Student,
    max_tokens: int,
    problem: Problem,
    prompt: str,
    generation: Generation,
    *,
    run: str,
    cache: str = "",
    stratum: Stratum | None = None,
    wording: Wording | None = None,
) -> SftRow | str:
    """Return a row for SFT, or the label that says why there is none.

    ``generation`` is the completion of ``prompt``; ``cache`` is an id. A row of the thinker has
    neither cache nor stratum nor wording.
    """
    history = problem.history
    reasoning, answer_text = generation.reasoning.strip(), generation.answer_text.strip()
    tokens = student.tokens(prompt, reasoning, answer_text, history)
    if tokens.fault:
        return "not_renderable"
    if len(tokens.prompt) + len(tokens.completion) > max_tokens:
        return _TOO_LONG
    return student.row(
        prompt=student.prompt(prompt, history),
        completion=student.completion(reasoning, answer_text),
        reasoning=reasoning,
        answer_text=answer_text,
        role="deliberator" if cache else "thinker",
        problem=problem.id,
        run=run,
        generation=generation.id,
        cache=cache,
        stratum=stratum,
        model=generation.model,
        prompt_tokens=len(tokens.prompt),
        completion_tokens=len(tokens.completion),
        wording=wording,
    )


def rl_row(student: Student, problem: Problem, cache: CacheRow, measured_on: str) -> RlRow:
    """Return an RL prompt; ``measured_on`` names the models whose success rate it stores."""
    assert cache.success is not None
    history = problem.history
    return RlRow(
        prompt=student.prompt(cache.prompt, history),
        problem=problem.id,
        run=cache.run,
        text=problem.text,
        reference=problem.reference,
        verifier=problem.verifier,
        verifier_args=problem.verifier_args,
        cache=cache.id,
        stratum=cache.stratum,
        right=cache.right,
        width=len(cache.items),
        success=cache.success,
        judged=cache.judged,
        attempts=cache.attempts,
        measured_on=measured_on,
        prompt_tokens=student.prompt_tokens(cache.prompt, history),
        wording=cache.wording,
    )


def quantiles(lengths: Sequence[int]) -> dict[str, int]:
    """Return quantiles of the row lengths, by nearest rank; empty if there are no rows."""
    ordered = sorted(lengths)
    ranks = {name: math.ceil(share * len(ordered)) for name, share in _QUANTILES.items()}
    return {name: ordered[rank - 1] for name, rank in ranks.items()} if ordered else {}
