"""What is sent of a folder of sets.

    README.md                 the card, made for the place where it goes
    manifest.json
    chat_template.jinja       if there is one
    NAME/SPLIT-....parquet    of every set that has rows

Whatever else lies in the folder stays there and is named.
"""

from __future__ import annotations

from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.hub.card import card
from heavydistill.hub.notes import CARD
from heavydistill.hub.parcel import Parcel, Wish, check_wish, kept_back, refuse_links
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.hub.terms import authors_of, check_terms
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    SETS,
    Manifest,
    files_of,
    hashes,
    read_manifest,
)


def pack_sets(folder: Path, wish: Wish) -> Parcel:
    """Check everything that can be checked here, and make the card; changes and asks nothing.

    Raises:
        PublishError: The name of the repository or licence is malformed, the folder holds other
            sets than its manifest says, a link leads out of it, the terms do not allow it, or a
            key stands in it.
        ConfigError: There is no manifest or one of another version, or a profile is none.
    """
    check_wish(wish)
    refuse_links(folder, MANIFEST, _is_of_sets)
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
    refuse_secrets(
        files,
        known_secrets(manifest.model_dump()),
        "leave out the problem or run that has it and build the sets again",
    )
    return Parcel(
        kind="dataset",
        files=files,
        kept_back=kept_back(folder, files),
        message=f"Sets of heavydistill {manifest.heavydistill}",
        mark=MANIFEST,
        is_of_kind=_is_of_sets,
    )


def _is_of_sets(path: str) -> bool:
    name, _, file = path.rpartition("/")
    return path == CHAT_TEMPLATE or (name in SETS and file.endswith(".parquet"))


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
