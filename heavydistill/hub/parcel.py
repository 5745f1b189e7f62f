"""What is sent to the Hub: the files of a folder of sets, checked, and their card.

    README.md                 the card, made for the place where it goes
    manifest.json
    chat_template.jinja       if there is one
    NAME/SPLIT-....parquet    of every set that has rows

Whatever else lies in the folder stays there and is named.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.hub.card import CARD, card
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.hub.terms import authors_of, check_terms
from heavydistill.sets.folder import CHAT_TEMPLATE, MANIFEST, SETS, files_of, hashes
from heavydistill.sets.manifest import Manifest, read_manifest
from heavydistill.storage import TRACES_FOLDER, writing

_COPY = ".dry-run"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants published, and how.

    Attributes:
        repo_id: ``ORG/NAME``.
        revision: Branch; None for the main one.
        private: Whether nobody else may see it.
        licence: Of the sets, as the Hub writes it; None derives it.
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
        files: Path in the repository, to a file here or, of the card, its content.
        kept_back: Names in the folder that are not sent.
        manifest: Of the folder.
    """

    files: dict[str, Path | bytes]
    kept_back: list[str]
    manifest: Manifest

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def pack(folder: Path, wish: Wish) -> Parcel:
    """Check everything that can be checked here, and make the card; changes and asks nothing.

    Raises:
        PublishError: The name of the repository or licence is malformed, the folder holds no sets
            or others than its manifest says, the terms do not allow it, or a key stands in it.
        ConfigError: The manifest is of another version, or a profile is none.
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
    if (folder / TRACES_FOLDER).is_dir() and not (folder / MANIFEST).is_file():
        raise PublishError(
            f"{folder} is a run, and what is published are sets",
            f"Build them with `heavydistill build {folder} --out FOLDER`: every problem, attempt, "
            "candidate set and deliberation of the run is in them too.",
        )
    manifest = read_manifest(folder)
    _check_files(folder, manifest)
    check_terms(
        authors_of(manifest, wish.profiles),
        allow_unknown=wish.allow_unknown,
        allow_restricted=wish.allow_restricted,
    )
    text = card(
        manifest,
        folder,
        wish.repo_id,
        revision=wish.revision,
        licence=wish.licence,
        profiles=wish.profiles,
    )
    files: dict[str, Path | bytes] = {
        CARD: text.encode(),
        MANIFEST: folder / MANIFEST,
        **files_of(folder),
    }
    refuse_secrets(files, known_secrets(manifest))
    return Parcel(files, _kept_back(folder, files), manifest)


def is_of_sets(path: str) -> bool:
    """Whether a file of a repository is one that sets can have; the card and others are not."""
    name, _, file = path.rpartition("/")
    return path == CHAT_TEMPLATE or (name in SETS and file.endswith(".parquet"))


def copy(parcel: Parcel, folder: Path) -> Path:
    """Write what would be sent into a folder beside that of the sets; an earlier copy is replaced.

    Returns:
        The folder.

    Raises:
        PublishError: Something else has its name.
        RunError: The disk is full or fails.
    """
    folder = folder.resolve()
    target = folder.with_name(folder.name + _COPY)
    ours = {*SETS, CARD, MANIFEST, CHAT_TEMPLATE}
    if target.exists() and not (target.is_dir() and ours.issuperset(os.listdir(target))):
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


def _check_name(repo_id: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    fix = "Give ORG/NAME, of letters, digits, '-', '_' and '.', e.g. --to my-org/heavy-traces."
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise PublishError(f"{repo_id!r} is no name of a dataset: {error}", fix) from error
    if "/" not in repo_id:
        raise PublishError(f"{repo_id!r} does not say whose dataset it is", fix)


def _check_files(folder: Path, manifest: Manifest) -> None:
    there = hashes(folder)
    if not any(name.endswith(".parquet") for name in there):
        raise PublishError(f"{folder} holds no rows of any set", "Build the sets again.")
    if there != manifest.files:
        names = sorted({*there, *manifest.files})
        other = next(name for name in names if there.get(name) != manifest.files.get(name))
        raise PublishError(
            f"{folder / other} is not what {MANIFEST} says: it was changed, added or removed "
            "after the build",
            "Build the sets again.",
        )


def _kept_back(folder: Path, files: dict[str, Path | bytes]) -> list[str]:
    """Names at the top of the folder, and files in the folders of sets, that are not sent."""
    sent = {*files, *(name.partition("/")[0] for name in files)}
    left = [path.name for path in folder.iterdir() if path.name not in sent]
    for name in SETS:
        inside = (path.relative_to(folder).as_posix() for path in (folder / name).glob("*"))
        left += [path for path in inside if path not in files and name not in left]
    return sorted(left)
