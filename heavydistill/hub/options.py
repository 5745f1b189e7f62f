"""What the user wants published, and how."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from heavydistill.errors import PublishError


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class PublishOptions:
    """The options of an upload, and their flags."""

    repo_id: str
    """Dataset or model on the Hub, ORG/NAME."""
    revision: str | None = None
    """Branch, made if it is missing (default: main)."""
    private: bool = False
    """Make a private repository."""
    licence: str | None = None
    """Licence of what is published, e.g. cc-by-4.0 (default: the models', or other)."""
    profiles: list[Path] = Field(default_factory=list)
    """Profile of your own, of a model that it comes from; may be repeated."""
    allow_unknown: bool = False
    """Publish although a model's terms on training with what it writes are unknown."""
    allow_restricted: bool = False
    """Publish although a model's maker restricts it."""

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
