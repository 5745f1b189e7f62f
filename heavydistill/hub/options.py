"""What the user wants published, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import PublishError

_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """The options of an upload."""

    repo_id: str  # ORG/NAME
    revision: str | None = None  # branch; None for the main one
    private: bool = False
    licence: str | None = None  # licence as the Hub writes it; None derives it
    profiles: Sequence[Path] = ()  # YAML files with profiles of models that are not shipped
    allow_unknown: bool = False  # publish although the terms of a model are unknown
    allow_restricted: bool = False  # publish although the terms of a model are restricted

    def check(self) -> None:
        """Raise a PublishError if the name of the repository, branch or licence is malformed."""
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        fix = "Give ORG/NAME, of letters, digits, '-', '_' and '.', e.g. --to my-org/heavy-traces."
        try:
            validate_repo_id(self.repo_id)
        except HFValidationError as error:
            raise PublishError(f"{self.repo_id!r} is no name on the Hub: {error}", fix) from error
        if "/" not in self.repo_id:
            raise PublishError(f"{self.repo_id!r} does not say whose it is", fix)
        if self.licence is not None and not _LICENCE.fullmatch(self.licence):
            raise PublishError(
                f"{self.licence!r} is no licence as the Hub writes it",
                "Give its id in small letters, e.g. --license cc-by-4.0, or other.",
            )
        if self.revision is not None and not self.revision.strip():
            raise PublishError(
                "The name of the branch is empty",
                "Give --revision BRANCH, or leave it out for main.",
            )


IN_FOLDER = PublishOptions(repo_id="")
"""For a card that stays in its folder."""
