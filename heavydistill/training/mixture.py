"""Where the rows are: folders of sets on this machine or on the Hub, and how they are mixed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import ConfigError
from heavydistill.sets.folder import CHAT_TEMPLATE, MANIFEST, count_rows, file_of
from heavydistill.sets.manifest import Manifest, read_manifest
from heavydistill.training.arguments import ROLES, Source

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Found:
    """A source, and what is known of it before its rows are read.

    Attributes:
        source: As it was asked for.
        folder: Of the sets, on this machine.
        name: Of the folder, or the id on the Hub.
        revision: The commit on the Hub; empty for a folder.
        manifest: Of the folder.
        template: The chat template beside the sets; empty if there is none.
    """

    source: Source
    folder: Path
    name: str
    revision: str
    manifest: Manifest
    template: str

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
    folder, revision = Path(source.path), ""
    if folder.is_dir():
        if source.revision is not None:
            raise ConfigError(
                f"{source.path} is a folder, which has no revision", "Leave out its revision."
            )
        name = folder.resolve().name
    else:
        folder, name = _downloaded(source), source.path
        revision = folder.name  # snapshots/COMMIT
    manifest = read_manifest(folder)
    template = folder / CHAT_TEMPLATE
    text = template.read_bytes().decode() if template.is_file() else ""
    found = Found(source, folder, name, revision, manifest, text)
    file = found.file("train")
    if file is None or not count_rows(file):
        there = [role for role in ROLES if file_of(folder, f"sft_{role}", "train").is_file()]
        has = f"it has rows for a {' and a '.join(there)}" if there else "it has none for any role"
        raise ConfigError(
            f"{source.path} has no rows to train a {source.role}: {has}",
            "Take another role, or build it with other bounds; `heavydistill build` says in its "
            "table what each filter took.",
        )
    return found


def _downloaded(source: Source) -> Path:
    from huggingface_hub import snapshot_download

    fix = "Give a folder that `heavydistill build --out FOLDER` wrote, or its id on the Hub."
    if not _HUB_ID.fullmatch(source.path):
        raise ConfigError(f"There is no folder {source.path}", fix)
    try:
        return Path(
            snapshot_download(
                source.path,
                repo_type="dataset",
                revision=source.revision,
                allow_patterns=[MANIFEST, CHAT_TEMPLATE, f"sft_{source.role}/*"],
            )
        )
    except Exception as error:  # not there, no network, no right: the library has no common base
        raise ConfigError(
            f"There is no folder {source.path}, and the Hub does not give such a dataset: {error}",
            f"{fix} A private one needs HF_TOKEN.",
        ) from error
