"""The options of an upload to the Hub."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from heavydistill.config.yaml import Section
from heavydistill.errors import PublishError


class PublishOptions(Section):
    """The options of an upload; each one is a flag of `heavydistill publish`."""

    repo_id: str
    """Repository on the Hub, ORG/NAME; created if it is missing."""
    revision: str | None = None
    """Branch, created if it is missing (default: main)."""
    private: bool = False
    """Create the repository as private."""
    licence: str | None = None
    """Licence of the published files, e.g. cc-by-4.0 (default: the models' licence, or other)."""
    profiles: list[Path] = Field(default_factory=list)
    """YAML file with the profile of a model that wrote the data; may be repeated."""
    allow_unknown: bool = False
    """Publish although the terms of a model on training with its output are unknown."""
    allow_restricted: bool = False
    """Publish although the terms of a model restrict training with its output."""
    allow_key_shapes: bool = False
    """Publish although a text has the shape of a key, because it is none."""

    def check(self) -> None:
        """Raise a PublishError if the name of the repository is malformed."""
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(self.repo_id)
            if "/" not in self.repo_id:
                raise ValueError("the owner is missing")
        except ValueError as error:
            raise PublishError(
                f"--to {self.repo_id!r} is not the name of a repository: {error}",
                "Give ORG/NAME, with letters, digits, '-', '_' and '.', e.g. --to "
                "my-org/heavy-traces.",
            ) from error


IN_FOLDER = PublishOptions(repo_id="")
"""Options for a card that is not uploaded."""
