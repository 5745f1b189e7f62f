"""Who wrote what is published, where a model comes from, and what may be done with either.

A model is known by the name that it has in the rows: that of a profile, its Hub id, or the name
that a provider serves it under. A model that no profile names has unknown terms. The licence of
trained weights is that of the base model, as long as all who wrote what was learnt allow that
models are trained on it.

Not covered: the terms of a hosted API beyond what the profile says of its model, and the licence
of problems that come from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.hub.options import PublishOptions
from heavydistill.models.profiles import ProfileFile, Terms, load_profile
from heavydistill.models.registry import shipped
from heavydistill.store.sets.folder import Manifest, RunUsed
from heavydistill.store.training_record import BaseModelUsed, TrainingRecord

_UNNAMED = "(not named)"
HUB_LICENCES = {"MIT": "mit", "Apache-2.0": "apache-2.0"}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FIXES = {
    "restricted": "Leave out the runs of that model, or give --allow-restricted-terms if its maker "
    "permits it to you.",
    "unknown": "Read them, and give --allow-unknown-terms if they allow it; a profile of your own "
    "that states them can be given with --profile FILE.",
}


@dataclass(frozen=True, slots=True)
class Author:
    """A model that wrote something in the sets."""

    name: str  # as in the rows
    roles: tuple[str, ...]  # "thinker", "deliberator" and "judge", sorted
    licence: str  # licence of its weights; empty if not known
    terms: Terms  # whether models may be trained on what it writes


@dataclass(frozen=True, slots=True)
class Licence:
    """The licence of what is published."""

    name: str  # as the Hub writes it; "other" if no single licence is sure to hold
    because: str

    @property
    def hub_name(self) -> str | None:
        """What the Hub wants beside ``other``: where the licence is told."""
        return "see-card" if self.name == "other" else None


def authors_of(manifest: Manifest, profiles: Sequence[Path] = ()) -> list[Author]:
    """Who wrote what is in the sets, sorted by name.

    ``profiles`` are YAML files of the user, which come before those shipped; a ConfigError if one
    of them is no profile.
    """
    return _authors(_written(manifest), _known_models(profiles))


def _known_models(profiles: Sequence[Path] = ()) -> dict[str, ProfileFile]:
    """The profile of each name that a model has anywhere."""
    known: dict[str, ProfileFile] = {}
    for file in (load_profile(path) for path in (*profiles, *shipped().values())):
        setups = file.vllm.gpus.values() if file.vllm else ()
        served = [setup.model for setup in setups if setup and setup.model]
        offered = [offer.model for offer in file.providers.values()]
        for name in (file.name, file.served_name, *offered, *served):
            known.setdefault(name, file)
    return known


def _authors(wrote: Iterable[tuple[str, str]], known: Mapping[str, ProfileFile]) -> list[Author]:
    """These (role, name) as authors, sorted by name."""
    roles: dict[str, set[str]] = {}
    for role, name in wrote:
        roles.setdefault(name, set()).add(role)
    found = []
    for name in sorted(roles):
        profile = known.get(name)
        licence, terms = (profile.licence, profile.terms) if profile else ("", Terms())
        found.append(Author(name, tuple(sorted(roles[name])), licence, terms))
    return found


def check_terms(authors: Sequence[Author], options: PublishOptions) -> None:
    """Refuse to publish what the terms of its authors do not clearly allow.

    Raises:
        PublishError: Names every model concerned, its terms and their source.
    """
    allowed = {"restricted": options.allow_restricted, "unknown": options.allow_unknown}
    for distillation, is_allowed in allowed.items():
        concerned = [
            f"{author.name}: {author.terms.because or 'no profile tells more'} (source: "
            f"{author.terms.source or 'none'})"
            for author in authors
            if author.terms.distillation == distillation
        ]
        if concerned and not is_allowed:
            raise PublishError(
                f"Whether models may be trained on what the sets hold is {distillation}: "
                + "; ".join(concerned),
                _FIXES[distillation],
            )


def licence_of(manifest: Manifest, authors: Sequence[Author]) -> Licence:
    """The licence of the sets, as far as it follows from what is known.

    One is named only where every author's terms allow it, all have the same, and the problems are
    bundled or generated; else it is ``other``, and ``because`` says what stands against it.
    """
    licences = sorted({author.licence or "none that is known" for author in authors})
    sources = problem_sources(manifest)
    elsewhere = [name for name in sources if name != "micro" and not name.startswith("gym:")]
    if obstacle := _unclear_terms(authors):
        return Licence("other", obstacle)
    if len(licences) > 1 or licences[0] not in HUB_LICENCES:
        return Licence("other", f"the licences of the models are: {', '.join(licences)}")
    if elsewhere:
        obstacle = f"problems come from {', '.join(elsewhere)}, under a licence of their own"
        return Licence("other", obstacle)
    because = "it is that of every model that wrote the sets, and their problems were generated"
    return Licence(HUB_LICENCES[licences[0]], because)


def _unclear_terms(authors: Sequence[Author]) -> str:
    """Whose terms do not clearly allow training; empty if all do."""
    names = [author.name for author in authors if author.terms.distillation != "allowed"]
    return f"the terms of {', '.join(names)} are not clearly open" if names else ""


def problem_sources(manifest: Manifest) -> list[str]:
    """Where the problems of the runs come from, sorted; a run that does not say is named."""
    sources = set()
    for run in manifest.runs:
        source = run.config.get("problems", {}).get("source")
        # A run on the pools of another has its problems from there, and never looked at that key.
        is_told = source and not has_others_pools(run)
        sources.add(str(source) if is_told else f"the run {run.name}")
    return sorted(sources)


def has_others_pools(run: RunUsed) -> bool:
    """Whether problems and attempts of a run are those of another one or of an import."""
    return bool(run.config.get("pools_sha256"))


def _written(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """(role, name) of all that wrote what is in the sets; of a role that wrote, at least one."""
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
    """The model that was trained."""

    name: str  # as in the record
    hub: str | None  # id on the Hub; None if it was only a folder
    revision: str | None  # commit on the Hub; None for a folder
    licence: str  # licence of its weights; empty if not known
    profile: str | None  # name of its shipped profile; None if there is none
    parser: str | None  # vLLM's parser of its thinking; None if not known or not needed


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a trained model comes from."""

    base: Base
    authors: list[Author]  # who wrote what it learnt, sorted by name

    @property
    def licence(self) -> Licence:
        """The licence of the weights, as far as it follows from what is known."""
        if obstacle := _unclear_terms(self.authors):
            return Licence("other", obstacle)
        if self.base.licence not in HUB_LICENCES:
            licence = self.base.licence or "none that is known"
            return Licence("other", f"the licence of the base model is {licence}")
        return Licence(
            HUB_LICENCES[self.base.licence],
            "it is that of the base model, and the makers of all models that wrote what it learnt "
            "allow training on it",
        )


def origin_of(record: TrainingRecord, profiles: Sequence[Path] = ()) -> Origin:
    """Where a model comes from; ``profiles`` and errors as in ``authors_of``."""
    known = _known_models(profiles)
    return Origin(_base_of(record.base, known), _authors(_wrote(record), known))


def check_origin(record: TrainingRecord, options: PublishOptions) -> None:
    """Refuse to publish a model unless the licence of its base and the terms of authors allow it.

    Nothing is read that only a finished training has.

    Raises:
        PublishError: Names the models concerned, their terms and the fix.
        ConfigError: One of the profiles is no profile.
    """
    origin = origin_of(record, options.profiles)
    check_terms(origin.authors, options)
    if not (origin.base.licence or options.licence or options.allow_unknown):
        raise PublishError(
            f"The licence of the base model {origin.base.name} is not known: no profile tells it",
            "Read it, and give --license with the one that the trained model has by it, a profile "
            "of your own with --profile FILE, or --allow-unknown-terms.",
        )


def _base_of(used: BaseModelUsed, known: Mapping[str, ProfileFile]) -> Base:
    is_on_hub = bool(_COMMIT.fullmatch(used.revision))
    profile = known.get(used.name)
    # A folder can have the name of a model that is on the Hub, and hold another one.
    if profile and profile.hub and not is_on_hub:
        profile = None
    by_profile = profile.hub if profile and profile.name == used.name else None
    licence = profile.licence if profile else ""
    if not profile and used.training:  # a model of ours has that of the model before it
        licence = _base_of(used.training.base, known).licence
    return Base(
        name=used.name,
        hub=(by_profile or used.name) if is_on_hub else None,
        revision=used.revision if is_on_hub else None,
        licence=licence,
        profile=profile.name if profile and profile.name in shipped() else None,
        parser=profile.thinking.parser if profile else None,
    )


def _wrote(record: TrainingRecord) -> Iterator[tuple[str, str]]:
    """(role, name) of all that wrote or judged rows of the roles that were learnt.

    In GRPO these are the authors of the attempts in the caches. What a base of ours learnt counts
    as well, and stands for what it wrote itself, where its runs say for sure that it was that base:
    a run on the pools of another does not tell whose they are, nor does an import.
    """
    base = record.base
    if base.training:
        yield from _wrote(base.training)
    if record.rl and record.rl.mode != "deliberator":
        return  # of the sets only problems were asked
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
