"""What the user wants published, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import PublishError


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """The options of an upload."""

    repo_id: str  # ORG/NAME
    revision: str | None = None  # branch; None for the main one
    private: bool = False
    licence: str | None = None  # id in small letters, as the Hub writes it; None derives it
    profiles: Sequence[Path] = ()  # YAML files with profiles of models that are not shipped
    allow_unknown: bool = False  # publish although the terms of a model are unknown
    allow_restricted: bool = False  # publish although the terms of a model are restricted

    def check(self) -> None:
        """Raise a PublishError if the name of the repository is malformed."""
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(self.repo_id)
            if "/" not in self.repo_id:
                raise ValueError("it does not say whose it is")
        except ValueError as error:
            raise PublishError(
                f"{self.repo_id!r} is no name on the Hub: {error}",
                "Give ORG/NAME, of letters, digits, '-', '_' and '.', e.g. --to "
                "my-org/heavy-traces.",
            ) from error


IN_FOLDER = PublishOptions(repo_id="")
"""For a card that stays in its folder."""
