"""Folders of sets on this machine or on the Hub, as a build or a refilter wrote them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import ConfigError
from heavydistill.models.hub_files import obstacle
from heavydistill.store.sets.folder import CHAT_TEMPLATE, MANIFEST, Manifest, file_of, read_manifest
from heavydistill.store.sets.rows import SPLITS

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Located:
    """A folder of sets, and what is known of it before its rows are read.

    Attributes:
        folder: On this machine.
        name: Of the folder, or the id on the Hub.
        revision: The commit on the Hub; empty for a folder.
        manifest: Of the folder.
        template: The chat template beside the sets; empty if there is none.
    """

    folder: Path
    name: str
    revision: str
    manifest: Manifest
    template: str


def locate(path: str, names: Sequence[str], revision: str | None = None) -> Located:
    """Find a folder of sets; one on the Hub is downloaded, without what is not read.

    Args:
        path: The folder, or its id on the Hub.
        names: Of the sets and views that are read.
        revision: Branch, tag or commit on the Hub.

    Raises:
        ConfigError: There are no such sets, or files that are read are not those of the build.
    """
    folder = Path(path)
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(
                f"{path} is a folder, which has no revision", "Leave out its revision."
            )
        found, commit = folder.resolve().name, ""
    else:
        folder, found = _downloaded(path, names, revision), path
        commit = folder.name  # snapshots/COMMIT
    manifest = read_manifest(folder)
    _check_files(folder, names, manifest)
    template = folder / CHAT_TEMPLATE
    text = template.read_bytes().decode() if template.is_file() else ""
    return Located(folder, found, commit, manifest, text)


def _check_files(folder: Path, names: Sequence[str], manifest: Manifest) -> None:
    """What is read is what was built: the record has its manifest, and a cache is kept by it."""
    files = [file_of(folder, name, split) for name in names for split in SPLITS]
    for path in (*files, folder / CHAT_TEMPLATE):
        wanted = manifest.files.get(path.relative_to(folder).as_posix())
        if wanted != (_digest(path) if path.is_file() else None):
            raise ConfigError(
                f"{path} is not what {MANIFEST} says: it was changed, added or removed after the "
                "build, or not downloaded",
                "Build the sets again; those of the Hub are downloaded when it can be reached.",
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _downloaded(path: str, names: Sequence[str], revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    fix = "Give a folder that `heavydistill build --out FOLDER` wrote, or its id on the Hub."
    if not _HUB_ID.fullmatch(path):
        raise ConfigError(f"There is no folder {path}", fix)
    obstacle()
    try:
        return Path(
            snapshot_download(
                path,
                repo_type="dataset",
                revision=revision,
                allow_patterns=[MANIFEST, CHAT_TEMPLATE, *(f"{name}/*" for name in names)],
            )
        )
    except Exception as error:  # not there, no network, no right: the library has no common base
        told = obstacle() or error
        raise ConfigError(
            f"There is no folder {path}, and the Hub does not give such a dataset: {told}",
            f"{fix} A private one needs HF_TOKEN.",
        ) from error
