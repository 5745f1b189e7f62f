"""Writes the skill as a folder that appears whole or not at all.

``SHA256SUMS`` lists the hash of each other file over its raw bytes, as ``sha256sum`` does. Two
exports with the same arguments are equal to the byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from heavydistill.config.prompts import NO_PROMPTS, OwnPrompts
from heavydistill.errors import ConfigError
from heavydistill.skill.evals import evals_of
from heavydistill.skill.texts import NAME, skill_texts
from heavydistill.store.atomic import new_folder

SUMS = "SHA256SUMS"


def export_skill(
    parent: Path,
    domains: Sequence[str],
    languages: Sequence[str],
    run: Path | None = None,
    own: OwnPrompts = NO_PROMPTS,
) -> Path:
    """Write the skill into the folder ``heavy-thinking`` of ``parent``, and return that folder.

    Args:
        parent: Folder of skills, which is made if it does not exist.
        domains: Domains of the wordings; see ``skill_texts``.
        languages: Languages of the wordings.
        run: Finished run for the evals; None for no evals.
        own: The user's prompts.

    Raises:
        ConfigError: A wording does not exist, the run has no verified problem, or the folder
            exists or cannot be written. Nothing is written then.
        RunError: The disk is full or fails.
    """
    folder = parent / NAME
    if folder.exists():
        raise ConfigError(f"{folder} exists", f"Remove it (rm -r {folder}), or give another DIR.")
    files = skill_texts(domains, languages, own=own) | (evals_of(run) if run else {})
    content = {path: text.encode() for path, text in files.items()}
    content[SUMS] = sums_of(content).encode()
    try:
        with new_folder(folder) as place:
            for path, data in content.items():
                (place / path).parent.mkdir(exist_ok=True)
                (place / path).write_bytes(data)
    except ConfigError as error:
        fix = error.fix.replace("another --out", "another DIR")
        raise ConfigError(error.what.removeprefix("out: "), fix) from error
    return folder


def sums_of(files: Mapping[str, bytes]) -> str:
    """Return the text of ``SHA256SUMS`` for files by path."""
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    return "".join(lines)
