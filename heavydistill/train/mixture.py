"""Which rows of which sets are learnt by SFT, and how they are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from heavydistill.errors import ConfigError
from heavydistill.store.sets.folder import count_rows, file_of
from heavydistill.train.datasets import Located, locate
from heavydistill.train.sft_config import ROLES, Source


@dataclass(frozen=True, slots=True)
class Found(Located):
    """A source, and what is known of it before its rows are read.

    Attributes:
        source: As it was asked for.
    """

    source: Source

    def file(self, split: str) -> Path | None:
        """The rows of a split; None if it has none."""
        path = file_of(self.folder, f"sft_{self.source.role}", split)
        return path if path.is_file() else None

    def digest(self, split: str) -> str:
        """The SHA-256 of that file, by the manifest."""
        path = file_of(self.folder, f"sft_{self.source.role}", split)
        return self.manifest.files[path.relative_to(self.folder).as_posix()]


def find(sources: Sequence[Source]) -> list[Found]:
    """Find the sets of all sources; those on the Hub are downloaded, without their views.

    Raises:
        ConfigError: There are no such sets, or they have no rows for the role.
    """
    return [_found(source) for source in sources]


def shares(rows: Sequence[int], fractions: Sequence[float | None]) -> list[int]:
    """How many rows each source gives to the mixture.

    As TRL counts (https://huggingface.co/docs/trl/script_utils): fractions are brought to a sum of
    one, and the mixture is as large as it can be without a row that is there twice.

    Args:
        rows: Of each source, at least 1.
        fractions: Of each; all None gives all rows.
    """
    known = [fraction for fraction in fractions if fraction is not None]
    if not known:
        return list(rows)
    parts = [fraction / sum(known) for fraction in known]
    size = min(count / part for count, part in zip(rows, parts, strict=True))
    return [min(count, round(part * size)) for count, part in zip(rows, parts, strict=True)]


def _found(source: Source) -> Found:
    sets = locate(source.path, [f"sft_{source.role}"], source.revision)
    found = Found(**{one.name: getattr(sets, one.name) for one in fields(sets)}, source=source)
    file = found.file("train")
    if file is None or not count_rows(file):
        there = [role for role in ROLES if file_of(found.folder, f"sft_{role}", "train").is_file()]
        has = f"it has rows for a {' and a '.join(there)}" if there else "it has none for any role"
        raise ConfigError(
            f"{source.path} has no rows to train a {source.role}: {has}",
            "Take another role, or build it with other bounds; `heavydistill build` says in its "
            "table what each filter took.",
        )
    return found
