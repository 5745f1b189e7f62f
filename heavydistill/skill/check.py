"""Checks the folder of a skill, which is untrusted text until it is verified.

A skill is refused if it breaks the specification (``frontmatter``), if it holds something that
instructions must not hold (``instructions``) or a file of another kind, if it does not fit its
``SHA256SUMS``, or if its metadata name heavydistill and it differs from what the installed version
exports. Otherwise it has a level:

    unverified  nothing shows where its texts come from
    declared    each file has its hash, and the texts are those of the installed version
    tested      declared, and it has evals and the figures of a run with each of its wordings

Hashes show damage, not who wrote the folder: whoever changes a file can change its hash.

Not covered: signatures, which tools of their own check; whether the skill helps.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import heavydistill
from heavydistill.config.prompts import NO_PROMPTS, OwnPrompts
from heavydistill.errors import ConfigError
from heavydistill.skill.evals import EVALS, RUN, faults_of_evals, measured_wordings
from heavydistill.skill.export import SUMS
from heavydistill.skill.frontmatter import SKILL, Refusal, read_frontmatter
from heavydistill.skill.instructions import forbidden
from heavydistill.skill.texts import VERSION_KEY, skill_texts, wordings_in

Level = Literal["unverified", "declared", "tested"]

_MOST_FILES, _MOST_BYTES = 200, 1_000_000
_SIGNATURES = {"skill.oms.sig", f"{SUMS}.sigstore.json"}
_KINDS = re.compile(
    r"(?:\w[\w.-]*/)?\w[\w.-]*\.md|evals/\w[\w.-]*\.json|LICENSE(?:\.txt)?|"
    + "|".join(map(re.escape, (SUMS, *_SIGNATURES)))
)
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)")
_AGAIN = "Remove the folder and get it again: from its author, or by heavydistill skill export DIR"
_AUTHORS = f"{_AGAIN}. If it has prompts of its author, give them: --prompt ROLE=FILE"


@dataclass(frozen=True, slots=True)
class SkillReport:
    """What the check of a skill found."""

    name: str  # name of the folder
    files: int  # number of files
    refusals: list[Refusal]  # why it is refused, by file and line; empty if it is not
    level: Level  # ``unverified`` if it is refused
    missing: list[str]  # what the next level needs


def check_skill(folder: Path, own: OwnPrompts = NO_PROMPTS) -> SkillReport:
    """Check the skill in a folder.

    Args:
        folder: Folder of the skill, with its ``SKILL.md``.
        own: The prompts of its author, which are compared in place of ours.

    Raises:
        ConfigError: The folder holds no skill.
    """
    if not (folder / SKILL).is_file():
        near = [folder.parent / SKILL, *sorted(folder.glob(f"*/{SKILL}"))]
        one = next((path.parent for path in near if path.is_file()), None)
        why = f"it has no file {SKILL}" if folder.is_dir() else "there is no such folder"
        skill = one or "the one that heavydistill skill export DIR printed"
        fix = f"Give the folder of one skill, e.g. {skill}."
        raise ConfigError(f"{folder} is not a skill: {why}", fix)
    name = Path(os.path.abspath(folder)).name
    files, refusals = _read(folder)
    texts, metadata = dict[str, str](), dict[str, str]()
    for path, data in files.items():
        try:
            texts[path] = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            refusals.append(Refusal(path, line, "it is not UTF-8", "Save it as UTF-8."))
    if SKILL in texts:
        metadata, faults = read_frontmatter(texts[SKILL], name)
        refusals += faults
    for path, text in texts.items():
        refusals += forbidden(path, text, files)
    if EVALS in texts:
        refusals += faults_of_evals(texts[EVALS], name, files)
    if SUMS in texts:
        refusals += _faults_of_sums(texts[SUMS], files)
    refusals += _differences(texts, metadata, own)
    refusals = sorted({*refusals})
    level, missing = ("unverified", []) if refusals else _level(texts, wordings_in(metadata))
    return SkillReport(name, len(files), refusals, level, missing)


def _read(folder: Path) -> tuple[dict[str, bytes], list[Refusal]]:
    """Return the files that can be checked, by path, and a refusal for each that cannot."""
    files, refusals = dict[str, bytes](), list[Refusal]()
    remove = "Remove it; a skill of instructions holds Markdown, evals/*.json and its hashes."

    def refuse(path: str, what: str, fix: str = remove) -> None:
        refusals.append(Refusal(path, 1, what, fix))

    def refuse_folder(error: OSError) -> None:
        refuse(os.path.relpath(error.filename, folder), f"a folder that cannot be read: {error}")

    for place, folders, names in os.walk(folder, onerror=refuse_folder):
        for each in sorted([*names, *folders]):
            path = Path(place, each)
            relative, state = path.relative_to(folder).as_posix(), path.lstat()
            if stat.S_ISLNK(state.st_mode):
                refuse(relative, f"a link to {os.readlink(path)}")
            elif each in folders:
                continue
            elif not stat.S_ISREG(state.st_mode) or not _KINDS.fullmatch(relative):
                refuse(relative, "a file of a kind that instructions do not need")
            elif relative.lower() == SKILL.lower() and relative != SKILL:
                refuse(relative, f"a second {SKILL}, which some clients would load")
            elif state.st_size > _MOST_BYTES:
                refuse(relative, f"a file of more than {_MOST_BYTES:,} bytes")
            elif len(files) == _MOST_FILES:
                refuse(relative, f"more than {_MOST_FILES} files")
                return files, refusals
            else:
                if state.st_mode & 0o111:
                    fix = f"Remove that permission: chmod -x {relative}"
                    refuse(relative, "a file that can be executed", fix)
                try:
                    files[relative] = path.read_bytes()
                except OSError as error:
                    refuse(relative, f"a file that cannot be read: {error.strerror}")
    return files, refusals


def _faults_of_sums(text: str, files: Mapping[str, bytes]) -> Iterator[Refusal]:
    listed = set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        parts = _SUM.fullmatch(line)
        if not parts or parts[2] in listed:
            what = "no line `HASH  PATH`, or a path that is listed twice"
            yield Refusal(SUMS, number, what, _AGAIN)
            continue
        digits, path = parts.groups()
        listed.add(path)
        if path not in files:
            yield Refusal(SUMS, number, f"{path} is listed, and is no file of the skill", _AGAIN)
        elif hashlib.sha256(files[path]).hexdigest() != digits:
            yield Refusal(SUMS, number, f"{path} was changed: its hash is another one", _AGAIN)
    for path in files.keys() - listed - {SUMS, *_SIGNATURES}:
        yield Refusal(path, 1, f"the file is not listed in {SUMS}", _AGAIN)


def _differences(
    texts: Mapping[str, str], metadata: Mapping[str, str], own: OwnPrompts
) -> Iterator[Refusal]:
    """Yield where the skill differs from what the installed version exports."""
    installed, version = heavydistill.__version__, metadata.get(VERSION_KEY, "")
    if VERSION_KEY not in metadata and not wordings_in(metadata):
        return
    pairs = [name.split(".")[1:] for name in wordings_in(metadata)]
    try:
        domains, languages = (list(dict.fromkeys(part)) for part in zip(*pairs, strict=True))
        expected = skill_texts(domains, languages, version, own)
    except (ConfigError, ValueError):
        what = f"the metadata name wordings that heavydistill {installed} does not have"
        yield Refusal(SKILL, 1, what, _AUTHORS)
        return
    for path, text in expected.items():
        if path not in texts:
            yield Refusal(path, 1, "the file is missing", _AGAIN)
        elif texts[path] != text:
            pairs_of_lines = zip_longest(texts[path].split("\n"), text.split("\n"))
            line = next(n for n, (ours, theirs) in enumerate(pairs_of_lines, 1) if ours != theirs)
            what = f"it differs from what heavydistill {installed} exports (this is of {version!r})"
            yield Refusal(path, line, what, _AUTHORS)
    for path in texts.keys() - expected.keys() - {SUMS, EVALS, RUN, *_SIGNATURES}:
        yield Refusal(path, 1, "the file is no part of the export", _AGAIN)


def _level(texts: Mapping[str, str], wordings: Mapping[str, str]) -> tuple[Level, list[str]]:
    """Return the level of a skill without refusals, and what it lacks for the next one."""
    lacks = []
    if SUMS not in texts:
        lacks.append(f"{SUMS} with the hash of each file")
    if not wordings:
        lacks.append("metadata with the version and the wordings of heavydistill")
    if lacks:
        return "unverified", lacks
    if EVALS not in texts or RUN not in texts:
        return "declared", [f"{EVALS} and {RUN}: heavydistill skill export DIR --evals RUN"]
    used = {str(version).partition("@")[2] for version in measured_wordings(texts[RUN])}
    if unused := [name for name, digits in wordings.items() if digits not in used]:
        what = f"evals and figures of a run with these wordings: {', '.join(unused)}"
        fix = "export the wordings of the run: --domain DOMAINS --language LANGUAGES"
        return "declared", [f"{what}; or {fix}"]
    return "tested", []
