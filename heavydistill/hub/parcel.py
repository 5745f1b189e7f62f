"""What is sent to the Hub as one repository: files that were checked, and their card."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heavydistill.errors import PublishError
from heavydistill.hub.notes import CARD
from heavydistill.store.traces import writing

_COPY = ".dry-run"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants published, and how.

    Attributes:
        repo_id: ``ORG/NAME``.
        revision: Branch; None for the main one.
        private: Whether nobody else may see it.
        licence: Of what is published, as the Hub writes it; None derives it.
        profiles: YAML files with profiles of models that heavydistill does not know.
        allow_unknown: Publish although the terms of a model are unknown.
        allow_restricted: Publish although the terms of a model are restricted.
    """

    repo_id: str
    revision: str | None = None
    private: bool = False
    licence: str | None = None
    profiles: Sequence[Path] = ()
    allow_unknown: bool = False
    allow_restricted: bool = False


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent.

    Attributes:
        kind: Of the repository.
        files: Path in the repository, to a file here or its content.
        kept_back: Names in the folder that are not sent.
        message: Of the commit.
        mark: The file by which a repository is known to hold such a parcel.
        is_of_kind: Whether a path is one that such a parcel can have, beside card and mark.
    """

    kind: Literal["dataset", "model"]
    files: dict[str, Path | bytes]
    kept_back: list[str]
    message: str
    mark: str
    is_of_kind: Callable[[str], bool]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def check_wish(wish: Wish) -> None:
    """Refuse names that the Hub cannot have.

    Raises:
        PublishError: The name of the repository, branch or licence is malformed.
    """
    _check_name(wish.repo_id)
    if wish.licence is not None and not _LICENCE.fullmatch(wish.licence):
        raise PublishError(
            f"{wish.licence!r} is no licence as the Hub writes it",
            "Give its id in small letters, e.g. --license cc-by-4.0, or other.",
        )
    if wish.revision is not None and not wish.revision.strip():
        raise PublishError(
            "The name of the branch is empty", "Give --revision BRANCH, or leave it out for main."
        )


def kept_back(folder: Path, files: Mapping[str, Path | bytes]) -> list[str]:
    """What of a folder is not among these files; a folder of which nothing is goes by its name."""
    tops = {name.partition("/")[0] for name in files}
    left = [path for path in folder.iterdir() if path.name not in tops]
    opened = {name.partition("/")[0] for name in files if "/" in name}
    left += [path for name in opened for path in (folder / name).iterdir()]
    names = (path.relative_to(folder).as_posix() for path in left)
    return sorted(name for name in names if name not in files)


def refuse_links(folder: Path, mark: str, is_of_kind: Callable[[str], bool]) -> None:
    """Refuse to send what a link leads to outside of the folder, and links that lead nowhere.

    Links within the folder are followed. A snapshot in the Hub's cache consists of links to the
    blobs of the same repository, which belong to it.

    Args:
        folder: Folder that is published.
        mark: Name of the file by which such a parcel is known.
        is_of_kind: Whether a path is one that such a parcel can have.

    Raises:
        PublishError: There is such a link; it is named.
    """
    root = folder.resolve()
    homes = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    for top in sorted(folder.iterdir()):
        for path in sorted(top.iterdir()) if top.is_dir() else [top]:
            name = path.relative_to(folder).as_posix()
            is_sent = name in (CARD, mark) or is_of_kind(name)
            link, real = (top if top.is_symlink() else path), Path(os.path.realpath(path))
            if (is_sent or path == top) and not real.exists():
                raise PublishError(
                    f"{link} is a link to {os.readlink(link)}, which is not there",
                    f"Put back what it leads to, or remove it: `rm {shlex.quote(str(link))}`.",
                )
            if is_sent and not any(real.is_relative_to(home) for home in homes):
                place, source = (shlex.quote(str(p)) for p in (link, os.path.realpath(link)))
                raise PublishError(
                    f"{link} is a link that leads out of the folder, to {source}; nothing was sent",
                    "If that is to be published, put a copy in place of the link: "
                    f"`rm {place} && cp -r {source} {place}`. If not, remove the link.",
                )


def copy(parcel: Parcel, folder: Path) -> Path:
    """Write what would be sent into a folder beside its own; an earlier copy is replaced.

    Returns:
        The folder.

    Raises:
        PublishError: Something else has its name.
        RunError: The disk is full or fails.
    """
    folder = folder.resolve()
    target = folder.with_name(folder.name + _COPY)
    if target.exists() and not _is_copy(target, parcel):
        raise PublishError(
            f"{target} is in the way of the copy that shows what would be sent",
            "Give it another name, or remove it.",
        )
    with writing(target):
        if target.exists():
            shutil.rmtree(target)
        for name, source in parcel.files.items():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, place)
            else:
                place.write_bytes(source)
    return target


def _is_copy(target: Path, parcel: Parcel) -> bool:
    """Whether all that is in it is what an earlier call can have written."""
    files = (path for path in target.rglob("*") if not path.is_dir())
    names = (path.relative_to(target).as_posix() for path in files)
    return target.is_dir() and all(
        name in (CARD, parcel.mark) or parcel.is_of_kind(name) for name in names
    )


def _check_name(repo_id: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    fix = "Give ORG/NAME, of letters, digits, '-', '_' and '.', e.g. --to my-org/heavy-traces."
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise PublishError(f"{repo_id!r} is no name on the Hub: {error}", fix) from error
    if "/" not in repo_id:
        raise PublishError(f"{repo_id!r} does not say whose it is", fix)
