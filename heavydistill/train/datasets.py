"""Folders of sets, local or on the Hub, and the row sources of an SFT training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from heavydistill.config.files import sha256_of
from heavydistill.config.yaml import Section
from heavydistill.errors import ConfigError
from heavydistill.models.hub_files import obstacle, similar_folder
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    Manifest,
    count_rows,
    file_of,
    read_manifest,
)
from heavydistill.store.sets.set_rows import SPLITS

ROLES = ("thinker", "deliberator")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_FIX = "Give a folder that `heavydistill build --out FOLDER` wrote, or its id on the Hub."


class SetSource(Section):
    """Rows of one role from one folder of sets."""

    path: str
    """A folder that ``heavydistill build`` wrote, or its id on the Hub."""
    role: Literal["thinker", "deliberator"]
    fraction: float | None = Field(default=None, gt=0, le=1, strict=True)
    """Share of the mixture, as in TRL: shares are scaled to a sum of 1, and no row is repeated.
    None, for all sources, takes all rows."""
    revision: str | None = None
    """Branch, tag or commit on the Hub."""


@dataclass(frozen=True, slots=True)
class SetsFolder:
    """A folder of sets and its manifest; the rows are not read yet."""

    folder: Path  # Local folder
    name: str  # Name of the folder, or id on the Hub
    revision: str  # Commit on the Hub; empty for a local folder
    manifest: Manifest
    template: str  # The chat template in the folder; empty if there is none

    def file(self, role: str, split: str) -> Path | None:
        """Return the SFT file of a role and a split; None if there is none."""
        path = file_of(self.folder, f"sft_{role}", split)
        return path if path.is_file() else None


def locate_source(source: SetSource) -> SetsFolder:
    """Find the sets of a source. Sets on the Hub are downloaded, without their views."""
    sets = locate(source.path, [f"sft_{source.role}"], source.revision)
    file = sets.file(source.role, "train")
    if file is None or not count_rows(file):
        present = [role for role in ROLES if sets.file(role, "train")]
        roles = " and a ".join(present)
        has = f"it has rows for a {roles}" if roles else "it has none for any role"
        raise ConfigError(
            f"{source.path} has no rows to train a {source.role}: {has}",
            "Give another role, or build with other bounds: see the filters that the build prints.",
        )
    return sets


def shares(rows: Sequence[int], fractions: Sequence[float | None]) -> list[int]:
    """Return the number of rows that each source contributes; all rows if no fraction is given.

    As in TRL, fractions are scaled to a sum of 1, and no row is repeated.
    """
    known = [fraction for fraction in fractions if fraction is not None]
    if not known:
        return list(rows)
    parts = [fraction / sum(known) for fraction in known]
    size = min(count / part for count, part in zip(rows, parts, strict=True))
    return [min(count, round(part * size)) for count, part in zip(rows, parts, strict=True)]


def locate(path: str, names: Sequence[str], revision: str | None = None) -> SetsFolder:
    """Find a folder of sets by path or Hub id. From the Hub, only the files ``names`` are
    downloaded.

    Raises:
        ConfigError: There are no such sets, or a file has changed since the build.
    """
    folder = Path(path)
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(
                f"{path} is a folder, which has no revision", "Leave out its revision."
            )
        name, commit = folder.resolve().name, ""
    else:
        folder, name = _downloaded(path, names, revision), path
        commit = folder.name  # the path ends with snapshots/COMMIT
    manifest = read_manifest(folder)
    _check_files(folder, names, manifest)
    template = folder / CHAT_TEMPLATE
    text = template.read_bytes().decode() if template.is_file() else ""
    return SetsFolder(folder, name, commit, manifest, text)


def _check_files(folder: Path, names: Sequence[str], manifest: Manifest) -> None:
    """Raise a ``ConfigError`` if a file differs from the manifest, which is copied to the
    record."""
    files = [file_of(folder, name, split) for name in names for split in SPLITS]
    for path in (*files, folder / CHAT_TEMPLATE):
        built = manifest.files.get(path.relative_to(folder).as_posix())
        if built != (sha256_of(path) if path.is_file() else None):
            raise ConfigError(
                f"{path} differs from {MANIFEST}: it was changed, added or removed after the build",
                "Build the sets again. Sets of the Hub are downloaded again when the Hub can be "
                "reached.",
            )


def require_folder_or_id(path: str) -> None:
    """Raise a ``ConfigError`` if ``path`` is neither a folder nor a possible Hub id."""
    if not (Path(path).is_dir() or _HUB_ID.fullmatch(path)):
        raise ConfigError(f"There is no folder {path}", f"{similar_folder(path)}{_FIX}")


def _downloaded(path: str, names: Sequence[str], revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    require_folder_or_id(path)
    obstacle()
    patterns = [MANIFEST, CHAT_TEMPLATE, *(f"{name}/*" for name in names)]
    try:
        return Path(
            snapshot_download(path, repo_type="dataset", revision=revision, allow_patterns=patterns)
        )
    except Exception as error:  # not found, no network or permission; these share no base class
        reason = obstacle() or error
        raise ConfigError(
            f"There is no folder {path}, and no such dataset on the Hub: {reason}",
            f"{similar_folder(path)}{_FIX} A private one needs HF_TOKEN.",
        ) from error
