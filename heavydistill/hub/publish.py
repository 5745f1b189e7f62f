"""What is sent of a folder of sets or of a trained model, and its upload as one commit on the Hub.

Of sets:

    README.md                 the card, made for the place where it goes
    manifest.json
    chat_template.jinja       if there is one
    NAME/SPLIT-....parquet    of every set that has rows

Of a model:

    README.md                  the card
    training.json              the record of the training
    model.safetensors          or its shards and their index, with config.json and
                               generation_config.json; or
    adapter_model.safetensors  with adapter_config.json, in which the base model has the name that
                               it has on the Hub, and not a folder of this machine
    tokenizer.json, ...        what the tokenizer needs, and the chat template
    evaluation/evaluation.json the figures before and after, if it was evaluated

Whatever else lies in the folder stays there and is named. No link and no key is sent.

The commit is made on what the branch held when the upload began. If it fails, or is broken off at
any time before, the branch is as it was, and the same command does what is left: content that the
Hub has already is not sent again, and if all of it is there no commit is made. Files of an earlier
parcel of its kind that this one has not are deleted by it; others are left alone. ``HF_TOKEN``,
``HF_ENDPOINT`` and ``HF_HUB_OFFLINE`` mean what they mean to huggingface_hub.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from heavydistill.errors import HeavydistillError, PublishError, RunError
from heavydistill.hub.cards import CARD
from heavydistill.hub.dataset_card import dataset_card
from heavydistill.hub.model_card import FIGURES, comparison_in, model_card
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.hub.terms import authors_of, check_origin, check_terms, origin_of
from heavydistill.hub.weights import ADAPTER_CONFIG, WEIGHTS, adapter_config, weights_of
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    SETS,
    files_of,
    hashes,
    read_manifest,
)
from heavydistill.store.traces import writing
from heavydistill.store.training_record import RECORD, TrainingRecord, read_record

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import DatasetInfo, ModelInfo


_AGAIN = "Repeat the same command: what has arrived is not sent again."
# Another commit came first, or the Hub is busy; so are all from 500 on.
_PASSING = {409, 412, 429}
_UNREACHABLE = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_FIXES = {
    401: "Set HF_TOKEN to a valid token, or log in with `hf auth login`.",
    403: "Take a token with the right to write there, or another --to.",
}
_COPY = ".dry-run"
_FULL_CONFIGS = ("config.json", "generation_config.json")
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TOKENIZER = (
    "tokenizer.json",
    _TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    CHAT_TEMPLATE,
)

Kind = Literal["dataset", "model"]
Files = dict[str, Path | bytes]
"""Paths in the repository, each with a file of the folder or the content itself."""

_MARKS: dict[Kind, str] = {"dataset": MANIFEST, "model": RECORD}
"""The file by which a folder or repository is known to hold a parcel of a kind."""
_ROWS = rf"({'|'.join(SETS)})/[^/]+\.parquet"
_OF_SETS = (CARD, MANIFEST, CHAT_TEMPLATE)
_OF_MODELS = (CARD, RECORD, *_FULL_CONFIGS, ADAPTER_CONFIG, *_TOKENIZER, FIGURES)
_PATHS: dict[Kind, re.Pattern[str]] = {
    "dataset": re.compile("|".join([_ROWS, *map(re.escape, _OF_SETS)])),
    "model": re.compile("|".join([WEIGHTS, *map(re.escape, _OF_MODELS)])),
}
"""Expressions of the paths that a file of a parcel can have."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent."""

    kind: Kind
    files: Files
    kept_back: list[str]  # names in the folder that are not sent
    message: str  # of the commit

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def pack(folder: Path, options: PublishOptions) -> Parcel:
    """What is sent of a folder of sets or of a trained model; changes and asks nothing.

    Raises:
        PublishError: The folder is neither, or both; the name is malformed; sets are others than
            the manifest says; a training has not ended, or its weights or what loads them are
            missing or not whole; a link leads out of the folder, the terms do not allow it, or a
            key stands in a text.
        ConfigError: The manifest or the record is of another version, or a profile is none.
    """
    options.check()
    kinds = [kind for kind, mark in _MARKS.items() if (folder / mark).is_file()]
    if len(kinds) != 1:
        raise PublishError(
            f"{folder} must hold sets, with {MANIFEST}, or a trained model, with {RECORD}",
            "Give the folder that `heavydistill build --out FOLDER` wrote, or the output folder of "
            "scripts/sft.py.",
        )
    (kind,) = kinds
    _refuse_links(folder, kind)
    files, message = (_of_sets if kind == "dataset" else _of_model)(folder, options)
    # A folder of which nothing is sent goes by its name.
    opened = {name.partition("/")[0] for name in files if "/" in name}
    left = [path for path in folder.iterdir() if path.name not in opened]
    left += [path for name in opened for path in (folder / name).iterdir()]
    names = sorted(path.relative_to(folder).as_posix() for path in left)
    return Parcel(kind, files, [name for name in names if name not in files], message)


def _of_sets(folder: Path, options: PublishOptions) -> tuple[Files, str]:
    """The files of sets, which were checked, and the message of the commit."""
    manifest = read_manifest(folder)
    there = hashes(folder)
    names = sorted({*there, *manifest.files})
    if other := [name for name in names if there.get(name) != manifest.files.get(name)]:
        raise PublishError(
            f"{folder / other[0]} is not what {MANIFEST} says: it was changed, added or removed "
            "after the build",
            "Build the sets again.",
        )
    check_terms(authors_of(manifest, options.profiles), options)
    files: Files = {
        CARD: dataset_card(manifest, folder, options).encode(),
        MANIFEST: folder / MANIFEST,
        **files_of(folder),
    }
    mend = "leave out the problem or run that has it and build the sets again"
    refuse_secrets(files, known_secrets(manifest.model_dump()), mend)
    return files, f"Sets of heavydistill {manifest.heavydistill}"


def _of_model(folder: Path, options: PublishOptions) -> tuple[Files, str]:
    """The files of a model, which were checked, and the message of the commit."""
    record = read_record(folder)
    if record.result is None:
        raise PublishError(
            f"The training in {folder} has not ended",
            "Wait for its end, or let it go on from its last checkpoint.",
        )
    weights, adapter = weights_of(folder), adapter_config(folder)
    configs = _FULL_CONFIGS if adapter is None else (ADAPTER_CONFIG,)
    there = [name for name in (*configs, *_TOKENIZER, FIGURES) if (folder / name).is_file()]
    for name in (configs[0], _TOKENIZER_CONFIG):
        if name not in there:
            raise PublishError(
                f"{folder} lacks {name}, without which nobody can load the model",
                "Train again, or put back the file.",
            )
    check_origin(record, options)
    files: Files = {
        CARD: model_card(record, folder, options).encode(),
        RECORD: folder / RECORD,
        **{name: folder / name for name in (*weights, *there)},
    }
    if adapter is not None:
        base = origin_of(record, options.profiles).base
        adapter |= {"base_model_name_or_path": base.hub or base.name, "revision": base.revision}
        files[ADAPTER_CONFIG] = f"{json.dumps(adapter, indent=2, ensure_ascii=False)}\n".encode()
    comparison = comparison_in(folder)
    secrets = known_secrets(record.model_dump(), comparison.config if comparison else {})
    refuse_secrets(files, secrets, "train again without it")
    return files, f"Model of heavydistill {record.heavydistill}"


def _refuse_links(folder: Path, kind: Kind) -> None:
    """Refuse to send what a link leads to outside of the folder, and links that lead nowhere.

    Links within the folder are followed. A snapshot in the Hub's cache consists of links to the
    blobs of the same repository, which belong to it.
    """
    root = folder.resolve()
    homes = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        real = Path(os.path.realpath(path))
        is_sent = _PATHS[kind].fullmatch(path.relative_to(folder).as_posix())
        if is_sent and not (real.exists() and any(map(real.is_relative_to, homes))):
            link = path if path.is_symlink() else path.parent
            place, source = (shlex.quote(str(p)) for p in (link, os.path.realpath(link)))
            raise PublishError(
                f"{link} is a link that leads out of the folder, or nowhere: to {source}",
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
    names = (path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    if target.is_file() or not all(map(_PATHS[parcel.kind].fullmatch, names)):
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


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of an upload."""

    url: str  # of the repository, or of the branch
    commit: str  # id
    is_new: bool  # whether a commit was made; if not, everything was there before
    is_private: bool  # whether the repository is private
    deleted: list[str]  # files of an earlier parcel that the commit deleted


def publish(parcel: Parcel, options: PublishOptions) -> PublishResult:
    """Send a parcel.

    Raises:
        PublishError: There is no token, it may not write there, the Hub cannot be reached or does
            not take it, or the repository is public and should be private. Nothing was changed but
            that the repository or branch may now be there.
        RunError: The Hub broke, or the connection did; likewise.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    kind = parcel.kind
    with _talking(options) as api:
        before = _open(api, options, kind)
        there = [file.rfilename for file in before.siblings or []]
        # Files of an earlier parcel that this one has not; none if something else is there.
        old = [
            name
            for name in (sorted(there) if _MARKS[kind] in there else [])
            if _PATHS[kind].fullmatch(name) and name not in parcel.files
        ]
        done = api.create_commit(
            options.repo_id,
            [
                *(CommitOperationAdd(name, source) for name, source in parcel.files.items()),
                *(CommitOperationDelete(name) for name in old),
            ],
            commit_message=parcel.message,
            repo_type=kind,
            revision=options.revision,
            parent_commit=before.sha,
        )
    return PublishResult(
        url=done.repo_url + (f"/tree/{options.revision}" if options.revision else ""),
        commit=done.oid,
        is_new=done.oid != before.sha,
        is_private=bool(before.private),
        deleted=old,
    )


def check_before(record: TrainingRecord, folder: Path, options: PublishOptions) -> None:
    """Find out whether a model can be published, and make its repository.

    Call this before training starts, so that a missing permission does not surface at the end.

    Args:
        record: Record of the training, without a result.
        folder: Folder where the model will be.
        options: How it will be published.

    Raises:
        PublishError: Names, licence or terms do not allow it, or see ``publish``.
        RunError: See ``publish``.
    """
    options.check()
    try:
        check_origin(record, options)
    except PublishError as error:
        later = _command(folder, options)
        fix = f"Train without push_to_hub, and publish afterwards: {later} has flags for that."
        raise PublishError(error.what, fix) from error
    with _talking(options) as api:
        _open(api, options, "model")
        # What is there already is "made" by whoever may read it.
        api.auth_check(options.repo_id, repo_type="model", write=True)


def publish_trained(folder: Path, options: PublishOptions) -> PublishResult:
    """Pack and publish a model right after its training; an error says how to do it later."""
    try:
        return publish(pack(folder, options), options)
    except HeavydistillError as error:
        # "The same command" would train again.
        first = f"{error.fix} " if isinstance(error, PublishError) else ""
        again = f"The model is in {folder}; once that is mended, send it with"
        raise type(error)(error.what, f"{first}{again} {_command(folder, options)}.") from error


def _command(folder: Path, options: PublishOptions) -> str:
    words = ["heavydistill", "publish", str(folder), "--to", options.repo_id]
    for flag, value in (("--revision", options.revision), ("--license", options.licence)):
        words += [flag, value] if value else []
    return f"`{shlex.join([*words, *(['--private'] if options.private else [])])}`"


def _open(api: HfApi, options: PublishOptions, kind: Kind) -> DatasetInfo | ModelInfo:
    """Make the repository and the branch, if they are missing; what the branch holds."""
    repo_id, branch = options.repo_id, options.revision
    api.create_repo(repo_id, repo_type=kind, private=options.private or None, exist_ok=True)
    if options.private and not api.repo_info(repo_id, repo_type=kind).private:
        raise PublishError(
            f"{repo_id} is there already and is public",
            "Make it private in its settings on the Hub, give another --to, or leave out "
            "--private.",
        )
    if branch is not None:
        api.create_branch(repo_id, branch=branch, repo_type=kind, exist_ok=True)
    ask = api.dataset_info if kind == "dataset" else api.model_info
    return ask(repo_id, revision=branch)


@contextlib.contextmanager
def _talking(options: PublishOptions) -> Iterator[HfApi]:
    """The Hub; says what to do about whatever goes wrong with it while this lasts."""
    from huggingface_hub import HfApi, constants, get_token

    endpoint = urlsplit(constants.ENDPOINT)
    if not endpoint.hostname or endpoint.username is not None:
        raise PublishError(
            "HF_ENDPOINT is no address, or has a user or a password in it",
            "Set it to e.g. https://huggingface.co, or unset it; the token is sent in a header.",
        )
    token = get_token()
    if not token:
        raise PublishError(
            "There is no token for the Hub",
            "Set HF_TOKEN to one with the right to write (from the settings of your account), or "
            "log in with `hf auth login`.",
        )
    try:
        yield HfApi(token=token)
    except PublishError:
        raise
    # httpx, hf_xet and huggingface_hub raise their own kinds, which have no common base.
    except Exception as error:
        # On one line, without the token and without signed addresses.
        plain = re.sub(r"\?\S+", "", " ".join(str(error).split())).replace(token, "[HF_TOKEN]")
        said = plain or type(error).__name__
        raise _explained(error, said, endpoint.hostname, options.repo_id) from error


def _explained(error: Exception, said: str, hub: str, repo_id: str) -> HeavydistillError:
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    chain: list[BaseException] = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    is_unreachable = any(
        isinstance(cause, socket.gaierror | OfflineModeIsEnabled)
        or (isinstance(cause, OSError) and cause.errno in _UNREACHABLE)
        for cause in chain
    )
    if is_unreachable:
        return PublishError(
            f"{hub} cannot be reached: {said}",
            "Check the connection and HF_ENDPOINT, and repeat the same command; --dry-run shows "
            "what would be sent.",
        )
    answers = [cause.response.status_code for cause in chain if isinstance(cause, HfHubHTTPError)]
    status = answers[0] if answers else 0
    if not 400 <= status < 500 or status in _PASSING:
        return RunError(f"The upload to {repo_id} was broken off: {said}", _AGAIN)
    fix = _FIXES.get(status, "Mend what it names, and repeat the same command.")
    return PublishError(f"{hub} does not take the upload to {repo_id}: {said}", fix)
