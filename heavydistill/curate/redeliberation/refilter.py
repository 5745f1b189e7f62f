"""Makes the prompts of RL anew for a checkpoint: caches that it gets right sometimes, not always.

What a student learns from changes as it learns. A checkpoint is asked D times about each cache
that can be a prompt of RL, and the caches on which some of its deliberations are right and some
are not become the new set (as in the second stage of PaCoRe, arXiv 2601.05593). The new folder
holds ``problems`` as they were, ``caches`` with the new success, ``rl``, and a manifest that says
what was done, and a card; it appears when all of it is written.

Not covered: sets with rows to imitate, which stay in the folder of the build; the deliberations,
which stay in the journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heavydistill.chat.student import Student, lost_student
from heavydistill.chat.template import Chat, own_template
from heavydistill.config.run import caps_of
from heavydistill.config.sets import Redeliberate, RefilterConfig
from heavydistill.curate.candidates import (
    ALWAYS_RIGHT,
    NEVER_RIGHT,
    UNMEASURED,
    is_right,
    success_of,
)
from heavydistill.curate.manifest import quantiles
from heavydistill.curate.redeliberation.deliberator import (
    DeliberationTally,
    ResolvedDeliberator,
    Volume,
    account_in,
    deliberate,
    deliberator_of,
    journal_of,
    volume_of,
)
from heavydistill.curate.rows import SetFiles, rl_row
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.metrics.counts import unanswered_because
from heavydistill.models.contact import Contact
from heavydistill.models.ledger import Ledger
from heavydistill.models.registry import file_of as profile_file_of
from heavydistill.models.registry import find, revision_of, tariff_of
from heavydistill.models.resolve import located
from heavydistill.schema import Cache, Deliberation, Problem, from_row
from heavydistill.store.atomic import new_folder, refuse_taken
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    Manifest,
    RefilterSummary,
    file_of,
    read_manifest,
    read_rows,
    write_manifest,
)
from heavydistill.store.sets.rows import USED, CacheRow, ProblemRow, RlRow
from heavydistill.verifiers import registry

ASKED_ABOUT = (USED, ALWAYS_RIGHT, NEVER_RIGHT, UNMEASURED)
"""Labels of the caches that it is asked about; all others cannot be prompts of RL."""


@dataclass(frozen=True, slots=True)
class RefilterPlan:
    """A checked refilter."""

    config: RefilterConfig  # as the user gave it
    manifest: Manifest  # of the sets
    student: Student  # of the sets
    problems: dict[str, ProblemRow]  # by id
    deliberator: ResolvedDeliberator  # who is asked
    volume: Volume  # how much
    warnings: list[str]  # what the user should know before anything is asked

    @property
    def sets(self) -> Path:
        return Path(self.config.sets)

    @property
    def out(self) -> Path:
        return Path(self.config.out)

    def pairs(self) -> Iterator[tuple[Problem, Cache]]:
        """Each cache that the checkpoint is asked about, with its problem."""
        return _pairs(self.sets, self.problems)


@dataclass(slots=True)
class RefilterOutcome:
    """What became of the caches that the checkpoint was asked about."""

    tally: DeliberationTally  # what was asked for
    before: Counter[str] = field(default_factory=Counter)  # that were prompts of RL, by stratum
    after: Counter[tuple[str, str]] = field(default_factory=Counter)  # all, by stratum and label
    rows: Counter[str] = field(default_factory=Counter)  # of ``rl``, by split
    tokens: list[int] = field(default_factory=list)  # of the prompts of ``rl``
    undecided: int = 0  # deliberations that ended and are neither right nor wrong
    unanswered: int = 0  # deliberations that ended without a final answer

    def labelled(self, label: str, stratum: str | None = None) -> int:
        """Caches that have a label, of a stratum or of all."""
        return sum(
            count
            for (each, theirs), count in self.after.items()
            if theirs == label and stratum in (None, each)
        )


def check(config: RefilterConfig, contact: Contact | None = None) -> RefilterPlan:
    """Check everything that can be known before a model is asked. Writes nothing.

    Args:
        config: As the user gave it.
        contact: Asks the server of the checkpoint, if there is one, before the student is loaded;
            None sends nothing.

    Raises:
        UserError: Anything that the user can fix.
    """
    sets, out = Path(config.sets), Path(config.out)
    manifest = read_manifest(sets)
    refuse_taken(out)
    if contact:
        _require_server(config, manifest, contact)
    student = _student(manifest, config)
    deliberator = _deliberator(config, manifest, student, contact)
    problems = {row["id"]: from_row(ProblemRow, row) for row in read_rows(sets, "problems")}
    volume = volume_of(deliberator, (cache for _, cache in _pairs(sets, problems)))
    if not volume.caches:
        raise ConfigError(
            f"{sets} has no cache that can be a prompt of RL",
            "Build sets from more problems, or with another preset.",
        )
    warnings = [
        f"{lacking}\nIts verdicts would be undecided; give the command again then."
        for lacking in _unavailable(config, problems.values())
    ]
    warnings += _differences(manifest, config, deliberator, student)
    return RefilterPlan(config, manifest, student, problems, deliberator, volume, warnings)


def refilter(
    plan: RefilterPlan,
    on_progress: Callable[[DeliberationTally], None] = lambda tally: None,
    write_card: Callable[[Path], None] = lambda folder: None,
) -> RefilterOutcome:
    """Ask the checkpoint and write the folder.

    Args:
        plan: From ``check``.
        on_progress: Called after each batch of caches, by one thread at a time.
        write_card: Writes the card of a folder of sets into it.

    Raises:
        ConfigError: No prompt is left, which says why; or the folder is being written by another
            process.
        RunError, StoppedError, TeacherError, KeyboardInterrupt: As ``deliberate``.

        Then nothing is written, and the responses are in the journal.
    """
    with new_folder(plan.out) as new, contextlib.ExitStack() as held:
        rows = Path(held.enter_context(TemporaryDirectory(prefix="heavydistill-")))
        written, tally = deliberate(
            plan.deliberator, plan.volume, plan.config.verify, plan.pairs, rows, on_progress
        )
        outcome = RefilterOutcome(tally)
        _copy(plan.sets, new)
        with contextlib.closing(SetFiles(new)) as files:
            for cache in _caches(plan.sets):
                if cache.rl_label in ASKED_ABOUT:
                    deliberations = written.on(cache.problem, cache.id)
                    cache = _measured(plan, cache, deliberations, files, outcome)
                files.writer("caches", "train", CacheRow).write(cache)
        if not outcome.rows:
            raise _nothing_left(plan, outcome)
        write_manifest(_manifest(plan, outcome), new)
        write_card(new)
    return outcome


def _require_server(config: RefilterConfig, manifest: Manifest, contact: Contact) -> None:
    endpoint = located(config.endpoint)
    model = find(config.checkpoint, endpoint)
    if model.kind == "endpoint":
        journal = journal_of(config, Path(config.out))
        file = account_in(journal, _about(config, manifest))
        most_usd, most_tokens = caps_of(config.budget)
        account = partial(Ledger, file, most_tokens, most_usd) if config.budget else None
        contact.require(model.model, endpoint, account=account, tariff=tariff_of(model))


def _about(config: RefilterConfig, manifest: Manifest) -> list[dict[str, Any]]:
    """What is asked for, as of ``deliberator_of``."""
    chosen = config.model_dump(include={"checkpoint", "sampling", "d", "seed"})
    return [manifest.model_dump(), chosen]


def _deliberator(
    config: RefilterConfig, manifest: Manifest, student: Student, contact: Contact | None
) -> ResolvedDeliberator:
    endpoint, sampling = config.endpoint, config.sampling
    if sampling.max_tokens is None:
        most = {"max_tokens": student.response_tokens}
        sampling = sampling.model_copy(update=most)
    if endpoint.base_url and not profile_file_of(config.checkpoint):  # it is the student's child
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
    return deliberator_of(choice, "", Path(config.out), _about(config, manifest), contact)


def _unavailable(config: RefilterConfig, problems: Iterable[ProblemRow]) -> list[str]:
    """What the verifiers of the problems lack here."""
    registry.load_own(config.verify.own)
    kinds = {problem.verifier for problem in problems}
    if unknown := sorted(kinds - set(registry.names())):
        raise ConfigError(
            f"{config.sets} has problems for the verifier {unknown[0]!r}, which is not known here",
            "Give its file with --set verify.own=[FILE.py].",
        )
    return registry.unavailable(kinds, config.verify)


def _caches(sets: Path) -> Iterator[CacheRow]:
    return (from_row(CacheRow, row) for row in read_rows(sets, "caches"))


def _pairs(sets: Path, problems: Mapping[str, ProblemRow]) -> Iterator[tuple[ProblemRow, CacheRow]]:
    """``RefilterPlan.pairs``. Raises ConfigError for a cache whose problem is in no split."""
    for cache in _caches(sets):
        if cache.rl_label in ASKED_ABOUT:
            problem = problems.get(cache.problem)
            if not problem or not problem.split:
                raise ConfigError(
                    f"{sets}: the cache {cache.id} is of a problem that is in no split",
                    "Build the sets again.",
                )
            yield problem, cache


def _copy(sets: Path, folder: Path) -> None:
    """What stays as it was."""
    problems = file_of(folder, "problems", "train")
    problems.parent.mkdir(parents=True)
    shutil.copyfile(file_of(sets, "problems", "train"), problems)
    if (sets / CHAT_TEMPLATE).is_file():
        shutil.copyfile(sets / CHAT_TEMPLATE, folder / CHAT_TEMPLATE)


def _measured(
    plan: RefilterPlan,
    cache: CacheRow,
    deliberations: list[Deliberation],
    files: SetFiles,
    outcome: RefilterOutcome,
) -> CacheRow:
    """A cache with its new success; writes its row of ``rl`` if it has one now."""
    success = success_of(map(is_right, deliberations))
    outcome.before[cache.stratum] += cache.rl_label == USED
    outcome.after[cache.stratum, success.label] += 1
    outcome.undecided += sum(map(_is_undecided, deliberations))
    outcome.unanswered += sum(unanswered_because(each) is not None for each in deliberations)
    problem = plan.problems[cache.problem]
    if success.label == USED and problem.split:
        row = rl_row(
            plan.student,
            problem,
            cache,
            success,
            run=cache.run,
            stratum=cache.stratum,
            right=cache.right,
            width=len(cache.items),
            measured_on=plan.deliberator.model.name,
        )
        files.writer("rl", problem.split, RlRow).write(row)
        outcome.rows[problem.split] += 1
        outcome.tokens.append(row.prompt_tokens)
    return dataclasses.replace(
        cache, success=success.share, judged=success.judged, rl_label=success.label
    )


def _is_undecided(deliberation: Deliberation) -> bool:
    verdict = deliberation.verdict
    ended = deliberation.finish_reason == "stop"
    return ended and verdict is not None and verdict.label == "undecided"


def _manifest(plan: RefilterPlan, outcome: RefilterOutcome) -> Manifest:
    old, deliberator, tally = plan.manifest, plan.deliberator, outcome.tally
    local = deliberator.model.kind == "local"
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
                checkpoint=deliberator.model.name,
                revision=revision_of(deliberator.model, deliberator.endpoint) if local else "",
                d=deliberator.d,
                seed=plan.config.seed,
                caches=tally.caches,
                kept=outcome.labelled(USED),
                always_right=outcome.labelled(ALWAYS_RIGHT),
                never_right=outcome.labelled(NEVER_RIGHT),
                unmeasured=outcome.labelled(UNMEASURED),
                deliberations=tally.tokens.usage.requests,
                failed=tally.failed,
                cut_off=tally.cut_off,
                undecided=outcome.undecided,
            ),
        }
    )


def _nothing_left(plan: RefilterPlan, outcome: RefilterOutcome) -> ConfigError:
    never, always, unmeasured = map(outcome.labelled, (NEVER_RIGHT, ALWAYS_RIGHT, UNMEASURED))
    label = plan.deliberator.model.name
    if unmeasured >= max(never, always):
        fix = "See why with `heavydistill journal stats`, and raise --set sampling.max_tokens if "
        fix += "they are cut off."
    elif never >= always:
        fix = "Train it on sft_deliberator first, or build from easier problems; a higher --d finds"
        fix += " what is right seldom."
    else:
        fix = "Build harder sets, for instance with --preset heavyskill or from harder problems; a "
        fix += "higher --d finds what is wrong seldom."
    return ConfigError(
        f"No prompt is left for {label}: of {plan.volume.caches:,} caches {never:,} are never "
        f"right, {always:,} are always right and {unmeasured:,} could not be measured",
        fix,
    )


def _student(manifest: Manifest, config: RefilterConfig) -> Student:
    """The student of the sets, or the checkpoint in its place.

    Raises:
        TeacherError: There is none under the name that the configuration gives.
        ConfigError: There is none under the name that the sets give, and the checkpoint has
            another template.
    """
    name = config.student or manifest.student.name
    try:
        return Student(name, _template(config))
    except TeacherError as error:
        if config.student:
            raise
        if Path(config.checkpoint).is_dir():
            child = Student(config.checkpoint)
            if child.template_sha256 == manifest.student.template_sha256:
                return child
        raise lost_student(name, error) from error


def _differences(
    manifest: Manifest, config: RefilterConfig, deliberator: ResolvedDeliberator, student: Student
) -> list[str]:
    """What the user should know: who stands for the student, and which template is another one."""
    warnings = []
    name = config.student or manifest.student.name
    if student.name != name:
        warnings.append(
            f"The student of the sets, {name}, is not found here: {deliberator.model.name} stands "
            "for it, which has its chat template.\nIf it is no child of it, give --student FOLDER."
        )
    return warnings + _other_template(config, deliberator, student)


def _template(config: RefilterConfig) -> Path | None:
    """The template of the sets, if it is not the student's own."""
    file = Path(config.sets) / CHAT_TEMPLATE
    return file if file.is_file() else None


def _other_template(
    config: RefilterConfig, deliberator: ResolvedDeliberator, student: Student
) -> list[str]:
    """What is to be said if the checkpoint is not asked as the sets say, or may not be."""
    mended, name = _template(config), deliberator.model.name
    if deliberator.model.kind == "endpoint":
        if not mended:
            return []
        return [f"The server must ask {name} in the chat template of the sets, {mended}."]
    from transformers import AutoTokenizer

    template = own_template(AutoTokenizer.from_pretrained(deliberator.model.model))
    probe = [{"role": "user", "content": "?"}]
    theirs = Chat(student.chat.tokenizer, student.chat.stops, template)
    if theirs.render(probe, opens=True) == student.chat.render(probe, opens=True):
        return []
    fix = f"Copy {mended} into its folder" if mended else "Take one of that student"
    return [
        f"{name} puts its prompts in another chat template than the one that the sets are made "
        f"for, that of {student.name}, so it is not asked what it was trained on.\n{fix}."
    ]
