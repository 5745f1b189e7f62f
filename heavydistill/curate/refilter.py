"""Selects RL prompts for a checkpoint: caches on which it is right sometimes, but not always.

A student needs new prompts as it learns. The checkpoint deliberates D times on each cache that can
be an RL prompt. Caches with both correct and other deliberations become the new set (as in the
second stage of PaCoRe, arXiv 2601.05593). The new folder has ``problems`` unchanged, ``caches``
with the new success rate, ``rl``, a manifest and a card; it gets its final name when it is
complete.

Not covered: sets for SFT, which stay in the folder of the build; the deliberations, which stay in
the journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from heavydistill.chat.student import Student, student_of_sets
from heavydistill.chat.template import Chat, own_template
from heavydistill.config.sets import Redeliberate, RefilterConfig
from heavydistill.curate.candidates import ALWAYS_RIGHT, NEVER_RIGHT, UNMEASURED, success_of
from heavydistill.curate.redeliberation import (
    DeliberationTally,
    RequestEstimate,
    deliberate,
    resolve_choice,
    volume_of,
)
from heavydistill.curate.set_writer import SetFiles, quantiles, rl_row
from heavydistill.errors import ConfigError
from heavydistill.metrics.counts import unanswered_because
from heavydistill.models.contact import ServerProbe
from heavydistill.models.profiles import Profile
from heavydistill.models.registry import profile_at, profile_file, revision_of
from heavydistill.models.resolve import ResolvedRun, located
from heavydistill.schema import Deliberation, from_row
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    Manifest,
    RefilterSummary,
    read_manifest,
    read_rows,
    write_manifest,
)
from heavydistill.store.sets.set_rows import USED, CacheRow, ProblemRow, RlRow
from heavydistill.verifiers import registry

ASKED_ABOUT = (USED, ALWAYS_RIGHT, NEVER_RIGHT, UNMEASURED)
"""Labels of the caches that the checkpoint deliberates on; other caches cannot be prompts."""


@dataclass(frozen=True, slots=True)
class RefilterPlan:
    """A refilter whose configuration and models have been checked; input of ``refilter``."""

    config: RefilterConfig  # Configuration as given by the user
    manifest: Manifest  # Manifest of the sets
    student: Student  # Student of the sets
    problems: dict[str, ProblemRow]  # Problems by id
    run: ResolvedRun  # Resolved run that queries the checkpoint
    volume: RequestEstimate
    warnings: list[str]  # Warnings to print before any request is sent
    contact: ServerProbe | None  # Contact that has queried the server; None if nothing was sent


@dataclass(slots=True)
class RefilterOutcome:
    """Counts of the caches that the checkpoint deliberated on."""

    tally: DeliberationTally
    before: Counter[str] = field(default_factory=Counter)  # Former RL prompts, by stratum
    after: Counter[tuple[str, str]] = field(default_factory=Counter)  # By (stratum, new label)
    rows: Counter[str] = field(default_factory=Counter)  # Rows of ``rl``, by split
    tokens: list[int] = field(default_factory=list)  # Lengths of the ``rl`` prompts in tokens
    undecided: int = 0  # Complete deliberations that are undecided
    unanswered: int = 0  # Complete deliberations without a final answer

    def labelled(self, label: str, stratum: str | None = None) -> int:
        """Return the number of caches with a label, in one stratum or in all."""
        return sum(
            count
            for (each, theirs), count in self.after.items()
            if theirs == label and stratum in (None, each)
        )


def check(config: RefilterConfig, contact: ServerProbe | None = None) -> RefilterPlan:
    """Run all checks that need no request to a model; writes nothing.

    The checkpoint's server is contacted before the student is loaded; without a ``contact`` no
    request is sent. Raises UserError for errors that the user can fix.
    """
    sets, out = Path(config.sets), Path(config.out)
    manifest = read_manifest(sets)
    refuse_taken(out)
    if contact and config.endpoint.is_served:
        endpoint = located(config.endpoint)
        contact.context(profile_at(config.checkpoint, endpoint).model, endpoint)
    template = sets / CHAT_TEMPLATE
    student = student_of_sets(template, manifest.student.name, config.student)
    run = _resolved(config, manifest, student, contact)
    problems = {row["id"]: from_row(ProblemRow, row) for row in read_rows(sets, "problems")}
    volume = volume_of(run, _pairs(sets, problems), section="")
    if not volume.caches:
        raise ConfigError(
            f"{sets} has no cache that can be a prompt of RL",
            "Build sets from more problems, or with another --preset.",
        )
    registry.load_own(config.verify.own)
    kinds = {problem.verifier for problem in problems.values()}
    warnings = [
        f"{lacking}\nUntil then its verdicts are undecided; fix it and give the command again."
        for lacking in registry.unavailable(kinds, config.verify)
    ]
    warnings += _template_warnings(run.deliberator.profile, template, student)
    return RefilterPlan(config, manifest, student, problems, run, volume, warnings, contact)


def _template_warnings(model: Profile, template: Path, student: Student) -> Iterator[str]:
    """Yield a warning if the checkpoint may read prompts in another form than those of the sets."""
    if model.kind == "endpoint" and template.is_file():
        yield f"The server of {model.name} must use the chat template of the sets, {template}."
    elif model.kind == "local" and not _renders_alike(model.model, student):
        copied = f"Copy {template} into its folder"
        fix = copied if template.is_file() else "Use one of that student"
        yield (
            f"{model.name} has another chat template than the sets, which are made for "
            f"{student.name}, so its prompts differ from those of its training.\n{fix}."
        )


def refilter(
    plan: RefilterPlan,
    on_progress: Callable[[DeliberationTally], None] = lambda tally: None,
    write_card: Callable[[Path], None] = lambda folder: None,
) -> RefilterOutcome:
    """Let the checkpoint deliberate on the caches, and write the new folder of sets.

    ``on_progress`` is called after each batch of caches, by one thread at a time; ``write_card``
    writes the model card of the sets into a folder.

    Raises:
        ConfigError: No prompt is left, or another process is writing the folder.
        RunError, StoppedError, TeacherError, KeyboardInterrupt: Raised by ``deliberate``.

        On an error no folder is written; the responses are in the journal.
    """
    sets = Path(plan.config.sets)
    with (
        new_folder(Path(plan.config.out)) as new,
        TemporaryDirectory(prefix="heavydistill-") as rows,
        contextlib.closing(SetFiles(new)) as files,
    ):
        pairs = partial(_pairs, sets, plan.problems)
        written, tally = deliberate(
            plan.run, plan.volume, pairs, Path(rows), on_progress, plan.contact
        )
        outcome = RefilterOutcome(tally)
        shutil.copytree(sets / "problems", new / "problems")
        if (sets / CHAT_TEMPLATE).is_file():
            shutil.copyfile(sets / CHAT_TEMPLATE, new / CHAT_TEMPLATE)
        for cache in _caches(sets):
            if cache.rl_label in ASKED_ABOUT:
                deliberations = written.on(cache.problem, cache.id)
                cache = _measured(plan, cache, deliberations, files, outcome)
            files.writer("caches", "train", CacheRow).write(cache)
        files.close()
        if not outcome.rows:
            raise _nothing_left(plan, outcome)
        write_manifest(_manifest(plan, outcome), new)
        write_card(new)
    return outcome


def _resolved(
    config: RefilterConfig, manifest: Manifest, student: Student, contact: ServerProbe | None
) -> ResolvedRun:
    endpoint, sampling = config.endpoint, config.sampling
    if sampling.max_tokens is None:
        sampling = sampling.model_copy(update={"max_tokens": student.response_tokens})
    if endpoint.is_served and not profile_file(config.checkpoint):  # trained from the student
        known = {
            "tokenizer": endpoint.tokenizer or student.reader.name,
            "context": endpoint.context or student.context,
        }
        endpoint = endpoint.model_copy(update=known)
    choice = Redeliberate(
        teacher=config.checkpoint,
        endpoint=endpoint,
        sampling=sampling,
        d=config.d,
        seed=config.seed,
        journal=config.journal,
        budget=config.budget,
    )
    chosen = config.model_dump(include={"checkpoint", "sampling", "d", "seed"})
    about = [manifest.model_dump(), chosen]
    return resolve_choice(choice, config.verify, "", Path(config.out), about, contact)


def _renders_alike(checkpoint: str, student: Student) -> bool:
    """Return whether a local checkpoint's chat template renders text as the sets' template does."""
    from transformers import AutoTokenizer

    template = own_template(AutoTokenizer.from_pretrained(checkpoint))
    theirs = Chat(student.chat.tokenizer, student.chat.stops, template)
    question = [{"role": "user", "content": "?"}]
    return theirs.render(question, opens=True) == student.chat.render(question, opens=True)


def _caches(sets: Path) -> Iterator[CacheRow]:
    return (from_row(CacheRow, row) for row in read_rows(sets, "caches"))


def _pairs(sets: Path, problems: Mapping[str, ProblemRow]) -> Iterator[tuple[ProblemRow, CacheRow]]:
    """Yield each cache that the checkpoint deliberates on, with its problem."""
    for cache in _caches(sets):
        if cache.rl_label in ASKED_ABOUT:
            yield problems[cache.problem], cache


def _measured(
    plan: RefilterPlan,
    cache: CacheRow,
    deliberations: list[Deliberation],
    files: SetFiles,
    outcome: RefilterOutcome,
) -> CacheRow:
    """Return the cache with its new success rate; write a row of ``rl`` if it is a prompt."""
    outcome.before[cache.stratum] += cache.rl_label == USED
    success = success_of(each.right for each in deliberations)
    cache = dataclasses.replace(
        cache, success=success.share, judged=success.judged, rl_label=success.label
    )
    outcome.after[cache.stratum, success.label] += 1
    for each in deliberations:
        verdict = each.verdict.label if each.verdict else None
        outcome.undecided += each.finish_reason == "stop" and verdict == "undecided"
        outcome.unanswered += unanswered_because(each) is not None
    problem = plan.problems[cache.problem]
    if success.label == USED and problem.split:
        row = rl_row(plan.student, problem, cache, plan.run.deliberator.profile.name)
        files.writer("rl", problem.split, RlRow).write(row)
        outcome.rows[problem.split] += 1
        outcome.tokens.append(row.prompt_tokens)
    return cache


def _manifest(plan: RefilterPlan, outcome: RefilterOutcome) -> Manifest:
    old, deliberator, tally = plan.manifest, plan.run.deliberator, outcome.tally
    model = deliberator.profile
    kept = {name: old.rows[name] for name in ("problems", "caches") if name in old.rows}
    return old.model_copy(
        update={
            "rows": {**kept, "rl": dict(sorted(outcome.rows.items()))},
            "strata": {
                name: stratum.model_copy(update={"rl": outcome.after[name, USED]})
                for name, stratum in old.strata.items()
            },
            "tokens": {"rl": quantiles(outcome.tokens)},
            "guarded": {},
            "unmeasured": outcome.labelled(UNMEASURED),
            "refiltered": RefilterSummary(
                checkpoint=model.name,
                revision=revision_of(model, deliberator.endpoint) if model.kind == "local" else "",
                d=deliberator.samples,
                seed=plan.config.seed,
                caches=tally.caches,
                kept=outcome.labelled(USED),
                **{
                    name: outcome.labelled(name) for name in (ALWAYS_RIGHT, NEVER_RIGHT, UNMEASURED)
                },
                deliberations=tally.usage.requests,
                failed=tally.failed,
                cut_off=tally.cut_off,
                undecided=outcome.undecided,
            ),
        }
    )


def _nothing_left(plan: RefilterPlan, outcome: RefilterOutcome) -> ConfigError:
    never, always, unmeasured = map(outcome.labelled, (NEVER_RIGHT, ALWAYS_RIGHT, UNMEASURED))
    return ConfigError(
        f"No prompt is left for {plan.run.deliberator.profile.name}: of {plan.volume.caches:,} "
        f"caches {never:,} are never right, {always:,} are always right and {unmeasured:,} could "
        "not be measured",
        "If most are never right, train it on sft_deliberator first; if most are always right, "
        "build harder sets, e.g. with --preset heavyskill. A higher --d finds more prompts. "
        "`heavydistill journal stats` says why some could not be measured; if they are cut off, "
        "raise --set sampling.max_tokens.",
    )
