"""Where a trained model comes from: its base model, whoever wrote what it learnt, and its licence.

The licence of the weights is that of the base model, as long as all who wrote what was learnt allow
that models are trained on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.hub.parcel import Wish
from heavydistill.hub.terms import (
    HUB_LICENCES,
    Author,
    Licence,
    authors,
    check_terms,
    known_models,
    unsure,
    written,
)
from heavydistill.models.profiles import ProfileFile
from heavydistill.models.registry import names
from heavydistill.store.sets.folder import Manifest
from heavydistill.store.training_record import BaseModelUsed, TrainingRecord

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Base:
    """What was trained.

    Attributes:
        name: As the record has it.
        hub: Its id on the Hub; None if it was only a folder.
        revision: Its commit there; None for a folder.
        licence: Of its weights; empty if it is not known.
        profile: The shipped profile of it; None if there is none.
        parser: vLLM's parser of its thinking; None if it is not known, or needs none.
    """

    name: str
    hub: str | None
    revision: str | None
    licence: str
    profile: str | None
    parser: str | None


@dataclass(frozen=True, slots=True)
class Origin:
    """All of it.

    Attributes:
        base: The model that was trained.
        authors: Who wrote what it learnt, sorted by name.
    """

    base: Base
    authors: list[Author]

    def licence(self, chosen: str | None = None) -> Licence:
        """The licence of the weights: that which was chosen, or what is known of it."""
        if chosen:
            return Licence(chosen, "whoever published the model chose it")
        if told := unsure(self.authors):
            return told
        if self.base.licence not in HUB_LICENCES:
            return Licence(
                "other",
                f"the licence of the base model is {self.base.licence or 'none that is known'}",
            )
        return Licence(
            HUB_LICENCES[self.base.licence],
            "it is that of the base model, and the makers of all models that wrote what it learnt "
            "allow training on it",
        )


def origin_of(record: TrainingRecord, profiles: Sequence[Path] = ()) -> Origin:
    """Where a model comes from.

    Args:
        record: Of its training.
        profiles: As of ``known_models``.

    Raises:
        ConfigError: One of ``profiles`` is no profile.
    """
    known = known_models(profiles)
    return Origin(_base_of(record.base, known), authors(_wrote(record), known))


def check_origin(record: TrainingRecord, wish: Wish) -> None:
    """Refuse to publish what the licence of the base and the terms of authors do not clearly allow.

    It needs nothing that only a finished training has.

    Raises:
        PublishError: It names the models concerned, their terms and what mends it.
        ConfigError: One of the profiles is none.
    """
    origin = origin_of(record, wish.profiles)
    check_terms(
        origin.authors, allow_unknown=wish.allow_unknown, allow_restricted=wish.allow_restricted
    )
    if not (origin.base.licence or wish.licence or wish.allow_unknown):
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
    return Base(
        name=used.name,
        hub=(by_profile or used.name) if is_on_hub else None,
        revision=used.revision if is_on_hub else None,
        licence=profile.licence if profile else _licence_before(used, known),
        profile=profile.name if profile and profile.name in names() else None,
        parser=profile.thinking.parser if profile else None,
    )


def _licence_before(used: BaseModelUsed, known: Mapping[str, ProfileFile]) -> str:
    """That of the model which the base was trained from, if the base is a model of ours."""
    return _base_of(used.training.base, known).licence if used.training else ""


def _wrote(record: TrainingRecord) -> Iterator[tuple[str, str]]:
    """(role, name) of all that wrote rows of the roles that were learnt, or judged them.

    Of GRPO those that wrote the attempts in the caches. What a base of ours learnt counts as well,
    and stands for what it wrote itself.
    """
    if record.base.training:
        yield from _wrote(record.base.training)
    if record.rl and record.rl.mode != "deliberator":
        return  # of the sets only problems were asked
    for used in record.sets:
        for role, name in written(used.manifest):
            if role == "deliberator" and (used.role == "thinker" or record.rl):
                continue
            if not _is_base(role, name, used.manifest, record.base):
                yield role, name


def _is_base(role: str, name: str, manifest: Manifest, base: BaseModelUsed) -> bool:
    """Whether whoever wrote in a role is the base, a model of ours, for sure.

    A run on the pools of another does not tell whose they are, nor does an import.
    """
    if not base.training or name != base.name or name in {asked.model for asked in manifest.asked}:
        return False
    models = [run.summary.get(role) or {} for run in manifest.runs]
    revisions = {model.get("revision") for model in models if model.get("name") in (name, None)}
    return revisions == {base.revision}
