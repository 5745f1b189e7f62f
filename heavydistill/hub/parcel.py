"""What is sent to the Hub as one repository, and that no link or key goes with it.

A key is what an environment variable holds whose name says so (``..._API_KEY``, ``..._TOKEN``,
``..._SECRET``, ``..._PASSWORD``, with or without a number), one that a provider or a configuration
names, and the token for the Hub, wherever it is kept. Its value is looked for in everything before
it leaves; in weights, only their header is text.

Not covered: values of fewer than eight characters, which are stand-ins for servers that want no
key, and keys that this process cannot see.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heavydistill.errors import PublishError
from heavydistill.models.profiles import PROVIDERS
from heavydistill.store.traces import writing

CARD = "README.md"

_COPY = ".dry-run"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_KEY_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)S?(?:_?\d+)?$", re.IGNORECASE
)
_FEWEST_CHARACTERS = 8
_KEY_FIELD = "api_key_env"


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What the user wants published, and how."""

    repo_id: str  # ORG/NAME
    revision: str | None = None  # branch; None for the main one
    private: bool = False
    licence: str | None = (
        None  # licence of what is published, as the Hub writes it; None derives it
    )
    profiles: Sequence[Path] = ()  # YAML files with profiles of models that are not shipped
    allow_unknown: bool = False  # publish although the terms of a model are unknown
    allow_restricted: bool = False  # publish although the terms of a model are restricted


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent."""

    kind: Literal["dataset", "model"]
    files: dict[str, Path | bytes]  # path in the repository, to a file here or its content
    kept_back: list[str]  # names in the folder that are not sent
    message: str  # of the commit
    mark: str  # the file by which a repository is known to hold such a parcel
    is_of_kind: Callable[[str], bool]  # whether such a parcel can have a path, beside card and mark

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def check_options(options: PublishOptions) -> None:
    """Raise a PublishError if the name of the repository, branch or licence is malformed."""
    _check_name(options.repo_id)
    if options.licence is not None and not _LICENCE.fullmatch(options.licence):
        raise PublishError(
            f"{options.licence!r} is no licence as the Hub writes it",
            "Give its id in small letters, e.g. --license cc-by-4.0, or other.",
        )
    if options.revision is not None and not options.revision.strip():
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


def known_secrets(*trees: dict[str, Any]) -> dict[str, str]:
    """The keys that this process can see: where each is kept, to its value.

    Args:
        trees: Manifests, records and configurations, which may name variables.
    """
    from huggingface_hub import get_token

    names = {name for name in os.environ if _KEY_NAME.search(name)}
    names |= {provider.key_env for provider in PROVIDERS.values()}
    names |= {name for tree in trees for name in _named(tree)}
    found = {name: os.environ.get(name, "") for name in sorted(names)}
    found["the token for the Hub"] = get_token() or ""
    return {
        name: value.strip()
        for name, value in found.items()
        if len(value.strip()) >= _FEWEST_CHARACTERS
    }


def refuse_secrets(
    files: Mapping[str, Path | bytes], secrets: Mapping[str, str], mend: str
) -> None:
    """Look for the keys in files that are about to be sent.

    Args:
        files: Path in the repository, to a file here or its content.
        secrets: Result of ``known_secrets``.
        mend: How a key is removed from files other than the card.

    Raises:
        PublishError: Names the file, row or line, and the variable, not the value.
    """
    for name, source in files.items():
        hits = (
            _in_rows(source, secrets)
            if isinstance(source, Path) and source.suffix == ".parquet"
            else _in_text(_text(source), secrets)
        )
        if hit := next(hits, None):
            variable, place = hit
            raise PublishError(
                f"The value of {variable} stands in {name}, {place}; nothing was sent",
                "Revoke that key if others may have seen it. Take it out of the Notes in the card, "
                f"or {mend}.",
            )


def _named(tree: Any) -> Iterator[str]:
    """The variables that a configuration says its keys are in."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if key == _KEY_FIELD and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from _named(value)


def _text(source: Path | bytes) -> bytes:
    """What is text in a file: of weights, what is told of them before they begin."""
    if isinstance(source, bytes):
        return source
    if source.suffix != ".safetensors":
        return source.read_bytes()
    with source.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def _in_text(content: bytes, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(variable, line) of each key in a text."""
    for variable, value in secrets.items():
        before, found, _ = content.partition(value.encode())
        if found:
            line = before.count(b"\n") + 1
            yield variable, f"line {line}"


def _in_rows(path: Path, secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(variable, row and column) of each key in a parquet file, a row group in memory at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        first = 1
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            for name, column in zip(group.column_names, group.columns, strict=True):
                for variable in _suspects(column, secrets):
                    for row, cell in enumerate(column.to_pylist(), first):
                        if any(secrets[variable] in text for text in _texts(cell)):
                            yield variable, f"row {row}, column {name}"
            first += group.num_rows


def _suspects(column: Any, secrets: Mapping[str, str]) -> list[str]:
    """The variables whose values are in the memory of a column, where its texts lie in a row."""
    buffers = [buffer for chunk in column.chunks for buffer in chunk.buffers() if buffer]
    memory = [buffer.to_pybytes() for buffer in buffers]
    return [name for name, value in secrets.items() if any(value.encode() in m for m in memory)]


def _texts(cell: Any) -> Iterator[str]:
    if isinstance(cell, str):
        yield cell
    elif isinstance(cell, dict | list):
        for part in cell.values() if isinstance(cell, dict) else cell:
            yield from _texts(part)
