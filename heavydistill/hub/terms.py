"""The authors of published data, the base model of a training, and the licences of both.

A model is identified by its name in the rows: the name of a profile, a Hub id, or the name under
which a provider serves it. The terms of a model without a profile are unknown. Trained weights have
the licence of the base model if the terms of all authors of the training data allow training.

Not covered: terms of a hosted API beyond those in the profile of its model, and the licence of
problems from other sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.config.shipped import shipped
from heavydistill.errors import PublishError
from heavydistill.hub.options import IN_FOLDER, PublishOptions
from heavydistill.hub.run_traces import RunTraces
from heavydistill.models.profiles import ProfileFile, Terms, load_profile
from heavydistill.store.sets.folder import Manifest, RunUsed
from heavydistill.store.training_record import BaseModelUsed, TrainingRecord

_UNNAMED = "(not named)"
_MOST_NAMES = 12
# The family of reasoning-gym whose templates are problems of GSM8K's test split.
_OF_GSM8K = "gsm_symbolic"
HUB_LICENCES = {"MIT": "mit", "Apache-2.0": "apache-2.0"}
# Licences of datasets as the Hub names them, e.g. cc-by-nc-sa-4.0.
_HUB_LICENCE = re.compile(r"(cc-by(-nc)?(-sa|-nd)?-\d\.\d|cc0-1\.0|odc-by|mit|apache-2\.0)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FINDINGS = {
    "restricted": "Training models on these texts is restricted by the terms of",
    "unknown": "The terms for training models on these texts are unknown for",
}
_FIXES = {
    "restricted": "Leave out the runs of that model, or give --allow-restricted-terms if you have "
    "the permission of its maker.",
    "unknown": "Read the terms; give --allow-unknown-terms if they allow it, or state them in a "
    "profile of your own with --profile FILE.",
}


@dataclass(frozen=True, slots=True)
class Author:
    """A model that wrote or judged texts of the sets."""

    name: str  # the model's name in the rows
    roles: tuple[str, ...]  # "thinker", "deliberator", "judge" and "teacher", sorted
    licence: str  # licence of the model's weights; empty if unknown
    terms: Terms  # whether models may be trained on its outputs


@dataclass(frozen=True, slots=True)
class Licence:
    """The licence of a publication."""

    name: str  # the Hub's name; "other" if no single licence clearly applies
    because: str  # the reason, as a sentence

    @property
    def hub_name(self) -> str | None:
        """Return ``license_name``, which the Hub requires for the licence ``other``; else None."""
        return "see-card" if self.name == "other" else None


def authors_of(manifest: Manifest | RunTraces, profiles: Sequence[Path] = ()) -> list[Author]:
    """Return the authors of sets or traces, sorted by name.

    ``profiles`` are YAML files of the user, which override the shipped ones. Raises ConfigError if
    a file is not a profile.
    """
    return _authors(_written(manifest), _known_models(profiles))


def _known_models(profiles: Sequence[Path] = ()) -> dict[str, ProfileFile]:
    """Return the profile of every known name of a model."""
    by_name: dict[str, ProfileFile] = {}
    for file in (load_profile(path) for path in (*profiles, *shipped("configs/teachers").values())):
        setups = file.vllm.gpus.values() if file.vllm else ()
        served = [setup.model for setup in setups if setup and setup.model]
        offered = [offer.model for offer in file.providers.values()]
        for name in (file.name, file.served_name, *offered, *served):
            by_name.setdefault(name, file)
    return by_name


def _authors(wrote: Iterable[tuple[str, str]], known: Mapping[str, ProfileFile]) -> list[Author]:
    """Return the authors with these (role, name) pairs, sorted by name."""
    roles: dict[str, set[str]] = {}
    for role, name in wrote:
        roles.setdefault(name, set()).add(role)
    authors = []
    for name in sorted(roles):
        profile = known.get(name)
        licence, terms = (profile.licence, profile.terms) if profile else ("", Terms())
        authors.append(Author(name, tuple(sorted(roles[name])), licence, terms))
    return authors


def check_terms(authors: Sequence[Author], options: PublishOptions) -> None:
    """Check that the terms of all authors allow publication.

    Raises:
        PublishError: They do not; names every such model, its terms and the source of its terms.
    """
    allowed = {"restricted": options.allow_restricted, "unknown": options.allow_unknown}
    for distillation, is_allowed in allowed.items():
        concerned = [
            f"{author.name}: {author.terms.because or 'it has no profile'}"
            f"{author.terms.source and f' ({author.terms.source})'}"
            for author in authors
            if author.terms.distillation == distillation
        ]
        if concerned and not is_allowed:
            raise PublishError(
                f"{_FINDINGS[distillation]} {'; '.join(concerned)}",
                _FIXES[distillation],
            )


def licence_of(
    manifest: Manifest | RunTraces, authors: Sequence[Author], options: PublishOptions = IN_FOLDER
) -> Licence:
    """Return the licence of sets or traces.

    A licence is named only if every author's terms allow training, all authors have the same
    licence, and the problems are bundled or generated; otherwise the licence is ``other`` with the
    reason. If all runs have imported answers of one licence, it is that licence. A licence in the
    options has precedence; the reason then still names that of imported answers.
    """
    imported = [run.summary.get("licences") or [] for run in manifest.runs]
    names = sorted({name for licences in imported for name in licences})
    answers = f"the licence of imported answers is {', '.join(names)}"
    if options.licence is not None:
        licence = chosen(options.licence)
        return Licence(licence.name, f"{licence.because}; {answers}") if names else licence
    licences = sorted({author.licence or "unknown" for author in authors})
    sources = problem_sources(manifest)
    elsewhere = [name for name in sources if name != "micro" and not name.startswith("gym:")]
    if obstacle := _unclear_terms(authors, options):
        return Licence("other", f"{obstacle}; {answers}" if names else obstacle)
    if names:
        is_one = len(names) == 1 and all(imported) and _HUB_LICENCE.fullmatch(names[0])
        return Licence(names[0] if is_one else "other", answers)
    if len(licences) > 1 or licences[0] not in HUB_LICENCES:
        return Licence("other", f"the licences of the models are: {', '.join(licences)}")
    if elsewhere:
        obstacle = f"problems come from {few(elsewhere)} and have their own licence"
        return Licence("other", obstacle)
    because = "every model that wrote the rows has it, and their problems were generated"
    return Licence(HUB_LICENCES[licences[0]], because)


def chosen(licence: str) -> Licence:
    """Return the licence that the publisher named."""
    return Licence(licence, "chosen by the publisher")


def _unclear_terms(authors: Sequence[Author], options: PublishOptions) -> str:
    """Return what the terms of authors leave open, and what the publisher states; or empty."""
    stated = {
        "unknown": (
            "on training with their outputs are not known",
            ", and the publisher states that they allow it" * options.allow_unknown,
        ),
        "restricted": (
            "restrict training with their outputs",
            ", and the publisher states to have permission" * options.allow_restricted,
        ),
    }
    parts = []
    for distillation, (finding, statement) in stated.items():
        names = [each.name for each in authors if each.terms.distillation == distillation]
        if names:
            parts.append(f"the terms of {', '.join(names)} {finding}{statement}")
    return "; ".join(parts)


def few(names: Sequence[str]) -> str:
    """Return the first names and the number of the others, for a sentence."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} others" if more > 0 else "")


def problem_sources(manifest: Manifest | RunTraces) -> list[str]:
    """Return the sources of the problems, sorted.

    If the rows name none, they are read from the runs; for a run without a source, the result has
    its name.
    """
    if manifest.sources:
        return manifest.sources
    sources = set()
    for run in manifest.runs:
        source = run.config.get("problems", {}).get("source")
        # A run on existing pools takes its problems from them and ignores the key for the source.
        is_known = source and not has_others_pools(run)
        sources.add(str(source) if is_known else f"the run {run.name}")
    return sorted(sources)


def has_others_pools(run: RunUsed) -> bool:
    """Return whether a run took problems and attempts from another run or an import."""
    return bool(run.config.get("pools_sha256"))


def has_test_templates(sources: Iterable[str]) -> bool:
    """Return whether problems were made from templates of GSM8K's test split."""
    return any(name.startswith("gym:") and _OF_GSM8K in name for name in sources)


def _written(manifest: Manifest | RunTraces) -> Iterator[tuple[str, str]]:
    """Yield (role, name) of all authors of the sets, at least one for every role that wrote."""
    asked = [each.model for each in manifest.asked]
    deliberators = [*manifest.models.get("deliberator", []), *asked]
    for name in manifest.models.get("thinker") or [_UNNAMED]:
        yield "thinker", name or _UNNAMED
    for name in deliberators or [_UNNAMED] * any(manifest.deliberations.values()):
        yield "deliberator", name or _UNNAMED
    for run in manifest.runs:
        for name in (run.summary.get("judging") or {}).get("judges", ()):
            yield "judge", name.rpartition("@")[0] or name


@dataclass(frozen=True, slots=True)
class Base:
    """The base model of a training."""

    name: str  # the base model's name in the record
    hub: str | None  # id on the Hub; None for a local folder
    revision: str | None  # commit on the Hub; None for a folder
    licence: str  # licence of the base model's weights; empty if unknown
    profile: str | None  # name of the model's shipped profile; None if there is none
    parser: str | None  # vLLM's reasoning parser for the model; None if unknown or not needed


@dataclass(frozen=True, slots=True)
class Origin:
    """The base model and the data authors of a trained model."""

    base: Base
    authors: list[Author]  # authors of the training data, sorted by name

    def licence(self, options: PublishOptions = IN_FOLDER) -> Licence:
        """Return the licence of the weights; one in the options has precedence."""
        if options.licence is not None:
            return chosen(options.licence)
        if obstacle := _unclear_terms(self.authors, options):
            return Licence("other", obstacle)
        if self.base.licence not in HUB_LICENCES:
            licence = self.base.licence or "unknown"
            return Licence("other", f"the licence of the base model is {licence}")
        return Licence(
            HUB_LICENCES[self.base.licence],
            "it is that of the base model, and the makers of all models that wrote its training "
            "data allow training on their outputs",
        )


def origin_of(record: TrainingRecord, profiles: Sequence[Path] = ()) -> Origin:
    """Return the origin of a trained model; ``profiles`` and errors as in ``authors_of``."""
    known = _known_models(profiles)
    return Origin(_base_of(record.base, known), _authors(_wrote(record), known))


def check_origin(record: TrainingRecord, options: PublishOptions) -> None:
    """Check that the licence of the base model and the terms of authors allow publication.

    Works on the record of an unfinished training too.

    Raises:
        PublishError: They do not; names the models and their terms.
        ConfigError: One of the profiles is not a profile.
    """
    origin = origin_of(record, options.profiles)
    check_terms(origin.authors, options)
    if not (origin.base.licence or options.licence or options.allow_unknown):
        raise PublishError(
            f"The licence of the base model {origin.base.name} is not known: it has no profile",
            "Read its licence, and give the one of the trained model with --license, a profile of "
            "your own with --profile FILE, or --allow-unknown-terms.",
        )


def _base_of(used: BaseModelUsed, known: Mapping[str, ProfileFile]) -> Base:
    is_on_hub = bool(_COMMIT.fullmatch(used.revision))
    profile = known.get(used.name)
    # A local folder can have the name of a model on the Hub but contain another model.
    if profile and profile.hub and not is_on_hub:
        profile = None
    by_profile = profile.hub if profile and profile.name == used.name else None
    licence = profile.licence if profile else ""
    if not profile and used.training:  # a base trained here has its base's licence
        licence = _base_of(used.training.base, known).licence
    return Base(
        name=used.name,
        hub=(by_profile or used.name) if is_on_hub else None,
        revision=used.revision if is_on_hub else None,
        licence=licence,
        profile=profile.name if profile and profile.name in shipped("configs/teachers") else None,
        parser=profile.thinking.parser if profile else None,
    )


def _wrote(record: TrainingRecord) -> Iterator[tuple[str, str]]:
    """Yield (role, name) of all that wrote or judged the training data of the trained roles.

    In GRPO these are the authors of the attempts in the caches, in a distillation also the
    teacher. If the base model or the teacher was trained here, the authors of its training data
    count too. Those of the base replace it as an author in runs that certainly used this base; runs
    on pools of another run or an import do not record this.
    """
    base, teacher = record.base, record.rl.teacher if record.rl else None
    for model in (base, teacher):
        if model and model.training:
            yield from _wrote(model.training)
    if teacher:  # there a judge decides held-out responses alone
        yield "teacher", teacher.name
    elif record.rl and record.rl.judge:
        yield "judge", record.rl.judge.rpartition("@")[0]
    if record.rl and record.rl.mode != "deliberator":
        return  # only the problems of the sets were used
    for used in record.sets:
        for role, name in _written(used.manifest):
            if role == "deliberator" and (used.role == "thinker" or record.rl):
                continue
            models = [run.summary.get(role) or {} for run in used.manifest.runs]
            revisions = {m.get("revision") for m in models if m.get("name") in (name, None)}
            again = {asked.model for asked in used.manifest.asked}
            is_base = name == base.name and name not in again and revisions == {base.revision}
            if not (base.training and is_base):
                yield role, name
