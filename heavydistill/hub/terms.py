"""Who wrote what is in the sets, and what may be done with it.

A model is known by the name that it has in the rows: that of a profile, its Hub id, or the name
that a provider serves it under. A model that no profile names has unknown terms.

Not covered: the terms of a hosted API beyond what the profile says of its model, and the licence
of problems that come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.models.profiles import ProfileFile, Terms, load_profile
from heavydistill.models.registry import shipped
from heavydistill.store.sets.folder import Manifest, RunUsed

_UNNAMED = "(not named)"
HUB_LICENCES = {"MIT": "mit", "Apache-2.0": "apache-2.0"}


@dataclass(frozen=True, slots=True)
class Author:
    """A model that wrote something in the sets.

    Attributes:
        name: As the rows have it.
        roles: Of ``thinker``, ``deliberator`` and ``judge``, sorted.
        licence: Of its weights; empty if it is not known.
        terms: Whether models may be trained on what it writes.
    """

    name: str
    roles: tuple[str, ...]
    licence: str
    terms: Terms


@dataclass(frozen=True, slots=True)
class Licence:
    """The licence of the sets.

    Attributes:
        name: As the Hub writes it; ``other`` if no one licence is sure to hold.
        because: Why.
    """

    name: str
    because: str


def authors_of(manifest: Manifest, profiles: Sequence[Path] = ()) -> list[Author]:
    """Who wrote what is in the sets, sorted by name.

    Args:
        manifest: Of the sets.
        profiles: As of ``known_models``.

    Raises:
        ConfigError: One of the files is no profile.
    """
    return authors(written(manifest), known_models(profiles))


def known_models(profiles: Sequence[Path] = ()) -> dict[str, ProfileFile]:
    """The profile of each name that a model has anywhere.

    Args:
        profiles: YAML files with profiles of one's own; they are asked before those shipped.

    Raises:
        ConfigError: One of the files is no profile.
    """
    files = [load_profile(path) for path in (*profiles, *shipped().values())]
    known: dict[str, ProfileFile] = {}
    for file in files:
        for name in _names(file):
            known.setdefault(name, file)
    return known


def authors(wrote: Iterable[tuple[str, str]], known: Mapping[str, ProfileFile]) -> list[Author]:
    """These (role, name) as authors, sorted by name."""
    roles: dict[str, list[str]] = {}
    for role, name in wrote:
        roles.setdefault(name, []).append(role)
    found = []
    for name in sorted(roles):
        profile = known.get(name)
        licence, terms = (profile.licence, profile.terms) if profile else ("", Terms())
        found.append(Author(name, tuple(sorted(set(roles[name]))), licence, terms))
    return found


def check_terms(
    authors: Sequence[Author], *, allow_unknown: bool = False, allow_restricted: bool = False
) -> None:
    """Refuse to publish what the terms of its authors do not clearly allow.

    Raises:
        PublishError: It names every model concerned, its terms and their source.
    """
    for distillation, allowed, flag, mend in (
        (
            "restricted",
            allow_restricted,
            "--allow-restricted-terms",
            "Leave out the runs of that model, or give {flag} if its maker permits it to you.",
        ),
        (
            "unknown",
            allow_unknown,
            "--allow-unknown-terms",
            "Read them, and give {flag} if they allow it; a profile of your own that states them "
            "can be given with --profile FILE.",
        ),
    ):
        those = [author for author in authors if author.terms.distillation == distillation]
        if those and not allowed:
            raise PublishError(
                f"Whether models may be trained on what the sets hold is {distillation}: "
                + "; ".join(map(_told, those)),
                mend.format(flag=flag),
            )


def licence_of(manifest: Manifest, authors: Sequence[Author]) -> Licence:
    """The licence of the sets, as far as it follows from what is known."""
    licences = sorted({author.licence or "none that is known" for author in authors})
    elsewhere = [source for source in problem_sources(manifest) if not _is_own(source)]
    if told := unsure(authors):
        return told
    if len(licences) > 1 or licences[0] not in HUB_LICENCES:
        return Licence("other", f"the licences of the models are: {', '.join(licences)}")
    if elsewhere:
        return Licence(
            "other", f"problems come from {', '.join(elsewhere)}, under a licence of their own"
        )
    return Licence(
        HUB_LICENCES[licences[0]],
        "it is that of every model that wrote the sets, and their problems were generated",
    )


def unsure(authors: Sequence[Author]) -> Licence | None:
    """No licence for sure, where the terms of an author do not clearly allow it."""
    names = [author.name for author in authors if author.terms.distillation != "allowed"]
    return (
        Licence("other", f"the terms of {', '.join(names)} are not clearly open") if names else None
    )


def problem_sources(manifest: Manifest) -> list[str]:
    """Where the problems of the runs come from, sorted; a run that does not say is named."""
    return sorted(set(map(_source, manifest.runs)))


def has_others_pools(run: RunUsed) -> bool:
    """Whether problems and attempts of a run are those of another one or of an import."""
    return bool(run.config.get("pools_sha256"))


def _source(run: RunUsed) -> str:
    source = run.config.get("problems", {}).get("source")
    # A run on the pools of another has its problems from there, and never looked at that key.
    return str(source) if source and not has_others_pools(run) else f"the run {run.name}"


def written(manifest: Manifest) -> Iterator[tuple[str, str]]:
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


def _names(file: ProfileFile) -> Iterator[str]:
    yield file.name
    yield file.served_name
    yield from (offer.model for offer in file.providers.values())
    setups = file.vllm.gpus.values() if file.vllm else ()
    yield from (setup.model for setup in setups if setup and setup.model)


def _is_own(source: str) -> bool:
    return source == "micro" or source.startswith("gym:")


def _told(author: Author) -> str:
    terms = author.terms
    if not terms.because and not terms.source:
        return f"{author.name} (no profile tells its terms)"
    said = terms.because or "no reason is given"
    return f"{author.name}: {said} (source: {terms.source or 'none'})"
