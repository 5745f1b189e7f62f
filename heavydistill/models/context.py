"""How many tokens of prompt and response together a model takes, and who says so.

What the user set holds, then what doctor saw, then the context of the run in the folder that goes
on, unless the server has come to take less; then the smaller of what the server says of the model
and what its profile says, then what the checkpoint beside the tokenizer was made for. If none of
them is known, ``ASSUMED`` tokens are assumed, and it is said that they are. What is known of the
checkpoint alone and what is assumed yield to a configuration that asks for more: a server may take
more than a checkpoint was made for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heavydistill.config.models import Endpoint
from heavydistill.models.contact import Contact
from heavydistill.models.profiles import Profile
from heavydistill.models.tokenizer import SERVER

ASSUMED = 8192
"""Tokens that are assumed of a model whose context nobody says: few servers take less."""
_SMALLEST = 256

Source = Literal[
    "set", "doctor", "saved", "server", "profile", "tokenizer", "shared", "configured", "assumed"
]
_SAID: dict[Source, str] = {
    "set": "as endpoint.context is set",
    "doctor": "as doctor saw",
    "saved": "as the run in the folder has it",
    "server": "as the server says",
    "profile": "by the profile",
    "tokenizer": "by the config.json beside its tokenizer",
    "shared": "as another model at its endpoint takes no more",
    "configured": "assumed, as the configuration asks for them",
    "assumed": "assumed",
}
SET_IT = "set what the server takes with --set endpoint.context=N"


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a served model."""

    model: str  # Name of its profile
    tokens: int  # Most tokens of prompt and response together
    source: Source  # Where the number is from

    @property
    def is_known(self) -> bool:
        return self.source not in ("assumed", "configured")

    @property
    def why(self) -> str:
        """Who says so, in words that follow the number."""
        return _SAID[self.source]

    def __str__(self) -> str:
        if self.is_known:
            return f"Context of {self.model}: {self.tokens:,} tokens, {self.why}"
        return f"Context of {self.model}: unknown, {self.tokens:,} tokens are {self.why}; {SET_IT}"


def contexts_of(
    given: Endpoint,
    seen: Endpoint,
    profiles: Sequence[Profile],
    contact: Contact | None,
    needed: int = 0,
    saved: int | None = None,
) -> list[Context]:
    """The context of each served model.

    Args:
        given: Where they are served, as the user gave it.
        seen: The same with what doctor saw (``capabilities.obeyed``).
        profiles: Profiles of the models there, found with ``seen``.
        contact: Asks the server; None sends nothing.
        needed: Tokens that a prompt and its response have in a configuration that sets its limits.
        saved: The context of the run in the folder that this one may go on with.

    Raises:
        TeacherError: As of ``Contact.context``.
    """
    contexts = []
    for profile in profiles:
        said = contact.context(profile.model, seen) if contact else None
        contexts.append(_decided(given, seen, profile, said, needed, saved))
    return contexts


def held(endpoint: Endpoint, contexts: list[Context]) -> tuple[Endpoint, list[Context]]:
    """(the endpoint with the smallest of these contexts, the contexts with which its models are
    asked then); both as they are if the profiles say them all."""
    if all(context.source in ("set", "profile") for context in contexts):
        return endpoint, contexts
    least = min(context.tokens for context in contexts)
    shared = [
        each if each.tokens == least else Context(each.model, least, "shared") for each in contexts
    ]
    return endpoint.model_copy(update={"context": least}), shared


def _decided(
    given: Endpoint,
    seen: Endpoint,
    profile: Profile,
    said: int | None,
    needed: int,
    saved: int | None,
) -> Context:
    if given.context:
        return Context(profile.name, given.context, "set")
    if seen.context:
        return Context(profile.name, seen.context, "doctor")
    if saved and (said is None or said >= saved):
        return Context(profile.name, saved, "saved")
    if profile.context_is_known:
        if said and said < profile.context:
            return Context(profile.name, said, "server")
        return Context(profile.name, profile.context, "profile")
    if said:
        return Context(profile.name, said, "server")
    made_for = None if profile.tokenizer == SERVER else _positions(Path(profile.tokenizer))
    if needed > (made_for or ASSUMED):
        return Context(profile.name, needed, "configured")
    if made_for:
        return Context(profile.name, made_for, "tokenizer")
    return Context(profile.name, ASSUMED, "assumed")


def positions_in(config: Mapping[str, Any]) -> int | None:
    """The positions that a checkpoint was made for, by its ``config.json``; None without them.

    A model that reads images too has them in the part for its text.
    """
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        if type(positions := part.get("max_position_embeddings")) is int:
            return positions
    return None


def _positions(folder: Path) -> int | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    positions = positions_in(config) if isinstance(config, dict) else None
    return positions if positions and positions >= _SMALLEST else None
