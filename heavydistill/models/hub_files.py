"""Finds files of a model in a folder, in the Hub's cache, or on the Hub.

If the Hub does not answer, libraries retry for half a minute or more. So a single request tests it
first. If there is no answer, this process works offline: it uses the cache and immediately reports
other files as missing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import re
from pathlib import Path

from heavydistill.config.files import sha256_of
from heavydistill.errors import TeacherError, did_you_mean

_TIMEOUT_S = 10.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_CHECKPOINT_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".jinja"}
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
_log = logging.getLogger("heavydistill.models")


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a Hub repository."""
    return _HUB_ID.fullmatch(name) is not None


def file_in(model: str, file: str, revision: str | None = None) -> Path:
    """Path of a file in a folder or in a repository on the Hub.

    Raises:
        OSError, ValueError: The file does not exist, or the Hub cannot be reached.
    """
    if Path(model).is_dir():
        path = Path(model) / file
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there")
        return path
    if not is_hub_id(model):
        raise FileNotFoundError(f"there is no folder {model}")
    from huggingface_hub import hf_hub_download

    obstacle()
    return Path(hf_hub_download(model, file, revision=revision))


def commit_of(model: str, file: str, revision: str | None = None) -> str:
    """The commit of a Hub repository that ``file_in`` gives ``file`` from; raises its errors."""
    return file_in(model, file, revision).parent.name  # the path contains snapshots/COMMIT


def parameters_in(folder: Path) -> int:
    """Number of weights in the safetensors files of a model's folder; 0 if they cannot be read."""
    total = 0
    try:
        for file in folder.glob("model*.safetensors"):
            with file.open("rb") as opened:
                header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
            shapes = (each["shape"] for name, each in header.items() if name != "__metadata__")
            total += sum(map(math.prod, shapes))
    except (OSError, ValueError, LookupError, TypeError, MemoryError, OverflowError):
        return 0
    return total


def folder_digest(folder: Path) -> str:
    """Digest of the files of a checkpoint or adapter in a folder. Raises OSError."""
    digest = hashlib.sha256()
    files = (path for path in folder.iterdir() if path.suffix in _CHECKPOINT_SUFFIXES)
    for path in sorted(filter(Path.is_file, files)):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()[:16]


@functools.cache
def obstacle() -> str:
    """Return why the Hub cannot be used; empty if it answers.

    Sends at most one request per process, and none in offline mode. If there is no answer, this
    process stays offline.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        return f"{next(filter(os.environ.get, names), names[0])} is set"
    try:
        get_session().head(constants.ENDPOINT, timeout=_TIMEOUT_S)
    except Exception as error:  # the Hub's HTTP library raises its own exceptions
        constants.HF_HUB_OFFLINE = True
        hindrance = f"{constants.ENDPOINT} does not answer ({error or type(error).__name__})"
        _log.warning("%s, so models and tokenizers are taken from the Hub's cache.", hindrance)
        return hindrance
    return ""


def unloadable(kind: str, name: str, error: Exception, folder: str) -> TeacherError:
    """The error for a model that cannot be loaded; ``folder`` says what folder may be given."""
    return TeacherError(
        f"The {kind} {name!r} cannot be loaded: {why_missing(name, error)}",
        f"{similar_folder(name)}{remedy(folder, name)}",
    )


def similar_folder(name: str) -> str:
    """Return a question with the folder beside ``name`` whose name is most similar, then a blank.

    Empty if ``name`` is a folder or no folder beside it is similar.
    """
    path = Path(name)
    try:
        beside = [other.name for other in path.parent.iterdir() if other.is_dir()]
    except OSError:
        beside = []
    near = "" if path.is_dir() else did_you_mean(path.name, beside)
    return near and near.replace("mean ", f"mean {name[: len(name) - len(path.name)]}")


def why_missing(model: str, error: Exception) -> str:
    """Short reason why a file of a model cannot be loaded."""
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    if not Path(model).is_dir() and not is_hub_id(model):
        return f"there is no folder {model}"
    is_offline = isinstance(error, LocalEntryNotFoundError | OfflineModeIsEnabled)
    if is_offline and (hindrance := obstacle()):
        return f"there is no such folder, the Hub's cache does not have it, and {hindrance}"
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"


def remedy(instead: str, name: str = "") -> str:
    """The fix to show if a model cannot be loaded from the Hub; ``instead`` is an alternative.

    ``name`` is the given name; if it cannot be a Hub id, the fix does not mention the Hub.
    """
    if name and not is_hub_id(name):
        return f"Give {instead}, or a Hub id ORG/NAME."
    if obstacle():
        return (
            f"Give {instead}, or connect to the Hub (unset HF_HUB_OFFLINE and "
            "TRANSFORMERS_OFFLINE; HTTPS_PROXY names a proxy, HF_ENDPOINT a mirror)."
        )
    return f"Give {instead}, or another Hub id; a private or gated one needs HF_TOKEN."


def has_chat_template(folder: Path) -> bool:
    """Whether a tokenizer in a folder has a chat template, without loading it."""
    if any((folder / name).exists() for name in _TEMPLATES):
        return True
    return bool(json_in(folder / "tokenizer_config.json").get("chat_template"))


def json_in(file: Path) -> dict[str, object]:
    """The JSON object in a file; empty if the file cannot be read or holds no object."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}
