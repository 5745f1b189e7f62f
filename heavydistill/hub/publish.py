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
from heavydistill.hub.weights import ADAPTER_CONFIG, WEIGHTS, is_adapter, weights_of
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    SETS,
    Manifest,
    files_of,
    hashes,
    read_manifest,
)
from heavydistill.store.traces import TRACES_FOLDER, writing
from heavydistill.store.training_record import RECORD, TrainingRecord, read_record

if TYPE_CHECKING:
    from huggingface_hub import HfApi


_AGAIN = "Repeat the same command: what has arrived is not sent again."
_UNREACHABLE = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_OVERTAKEN = {409, 412}
_BUSY = 429
_COPY = ".dry-run"
_CHECKPOINT = re.compile(r"checkpoint-\d+")
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
_MARKS = {"dataset": MANIFEST, "model": RECORD}
_OTHERS = (*_FULL_CONFIGS, ADAPTER_CONFIG, *_TOKENIZER, FIGURES)
_NAMES = {
    "dataset": re.compile(rf"({'|'.join(SETS)})/[^/]+\.parquet|{re.escape(CHAT_TEMPLATE)}"),
    "model": re.compile(rf"{WEIGHTS}|{'|'.join(map(re.escape, _OTHERS))}"),
}

Kind = Literal["dataset", "model"]


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent."""

    kind: Kind
    files: dict[str, Path | bytes]  # path in the repository, to a file here or its content
    kept_back: list[str]  # names in the folder that are not sent
    message: str  # of the commit

    @property
    def mark(self) -> str:
        """The file by which a repository is known to hold such a parcel."""
        return _MARKS[self.kind]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def can_hold(kind: Kind, path: str) -> bool:
    """Whether a parcel of this kind can have a file at this path, beside its card and mark."""
    return bool(_NAMES[kind].fullmatch(path))


def pack(folder: Path, options: PublishOptions) -> Parcel:
    """What is sent of a folder of sets or of a trained model; changes and asks nothing.

    Raises:
        PublishError: The folder is neither, or both; a name or licence is malformed; sets are
            others than the manifest says; a training has not ended, or its weights or what loads
            them are missing or not whole; a link leads out of the folder, the terms do not allow
            it, or a key stands in a text.
        ConfigError: The manifest or the record is of another version, or a profile is none.
    """
    options.check()
    is_sets, is_model = ((folder / name).is_file() for name in (MANIFEST, RECORD))
    if is_sets and is_model:
        raise PublishError(
            f"{folder} holds sets ({MANIFEST}) and a trained model ({RECORD})",
            "Move one of them to a folder of its own.",
        )
    if not (is_sets or is_model):
        raise _neither(folder)
    kind: Kind = "dataset" if is_sets else "model"
    _refuse_links(folder, kind)
    files, message = (_of_sets if is_sets else _of_model)(folder, options)
    # A folder of which nothing is sent goes by its name.
    opened = {name.partition("/")[0] for name in files if "/" in name}
    left = [path for path in folder.iterdir() if path.name not in opened]
    left += [path for name in opened for path in (folder / name).iterdir()]
    names = sorted(path.relative_to(folder).as_posix() for path in left)
    return Parcel(kind, files, [name for name in names if name not in files], message)


def _of_sets(folder: Path, options: PublishOptions) -> tuple[dict[str, Path | bytes], str]:
    """The files of sets, which were checked, and the message of the commit."""
    manifest = read_manifest(folder)
    _check_set_files(folder, manifest)
    check_terms(authors_of(manifest, options.profiles), options)
    files: dict[str, Path | bytes] = {
        CARD: dataset_card(manifest, folder, options).encode(),
        MANIFEST: folder / MANIFEST,
        **files_of(folder),
    }
    mend = "leave out the problem or run that has it and build the sets again"
    refuse_secrets(files, known_secrets(manifest.model_dump()), mend)
    return files, f"Sets of heavydistill {manifest.heavydistill}"


def _check_set_files(folder: Path, manifest: Manifest) -> None:
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


def _of_model(folder: Path, options: PublishOptions) -> tuple[dict[str, Path | bytes], str]:
    """The files of a model, which were checked, and the message of the commit."""
    record = read_record(folder)
    if record.result is None:
        raise PublishError(
            f"The training in {folder} has not ended",
            "Wait for its end, or let it go on from its last checkpoint.",
        )
    weights, adapts = weights_of(folder), is_adapter(folder)
    configs = (ADAPTER_CONFIG,) if adapts else _FULL_CONFIGS
    there = [name for name in (*configs, *_TOKENIZER, FIGURES) if (folder / name).is_file()]
    for name in (configs[0], _TOKENIZER_CONFIG):
        if name not in there:
            raise PublishError(
                f"{folder} lacks {name}, without which nobody can load the model",
                "Train again, or put back the file.",
            )
    check_origin(record, options)
    files: dict[str, Path | bytes] = {
        CARD: model_card(record, folder, options).encode(),
        RECORD: folder / RECORD,
        **{name: folder / name for name in (*weights, *there)},
    }
    if adapts:
        base, config = origin_of(record, options.profiles).base, folder / ADAPTER_CONFIG
        try:
            tree = json.loads(config.read_bytes())
            tree |= {"base_model_name_or_path": base.hub or base.name, "revision": base.revision}
        except (ValueError, TypeError) as error:
            raise PublishError(f"{config} is no configuration", "Train again.") from error
        files[ADAPTER_CONFIG] = f"{json.dumps(tree, indent=2, ensure_ascii=False)}\n".encode()
    comparison = comparison_in(folder)
    secrets = known_secrets(record.model_dump(), comparison.config if comparison else {})
    refuse_secrets(files, secrets, "train again without it")
    return files, f"Model of heavydistill {record.heavydistill}"


def _neither(folder: Path) -> PublishError:
    if (folder / TRACES_FOLDER).is_dir():
        return PublishError(
            f"{folder} is a run, and what is published are sets and trained models",
            f"Build sets with `heavydistill build {folder} --out FOLDER`: every problem, attempt, "
            "candidate set and deliberation of the run is in them too.",
        )
    if _CHECKPOINT.fullmatch(folder.resolve().name):
        return PublishError(
            f"{folder} is a checkpoint in the middle of a training",
            f"Give the folder of the trained model, {folder.resolve().parent}.",
        )
    return PublishError(
        f"{folder} holds no sets and no trained model: there is neither {MANIFEST} nor {RECORD}",
        "Give the folder that `heavydistill build --out FOLDER` wrote, or the output folder of "
        "scripts/sft.py.",
    )


def _refuse_links(folder: Path, kind: Kind) -> None:
    """Refuse to send what a link leads to outside of the folder, and links that lead nowhere.

    Links within the folder are followed. A snapshot in the Hub's cache consists of links to the
    blobs of the same repository, which belong to it.
    """
    root = folder.resolve()
    homes = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    for top in sorted(folder.iterdir()):
        for path in sorted(top.iterdir()) if top.is_dir() else [top]:
            name = path.relative_to(folder).as_posix()
            is_sent = name in (CARD, _MARKS[kind]) or can_hold(kind, name)
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
    files = (path for path in target.rglob("*") if not path.is_dir())
    names = (path.relative_to(target).as_posix() for path in files)
    if target.exists() and not (
        target.is_dir() and all(n in (CARD, parcel.mark) or can_hold(parcel.kind, n) for n in names)
    ):
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
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    token = _token()
    repo_id, kind = options.repo_id, parcel.kind
    api = HfApi(token=token)
    with _talking(repo_id, token):
        is_private = _open(api, options, kind)
        ask = api.dataset_info if kind == "dataset" else api.model_info
        before = ask(repo_id, revision=options.revision)
        there = [file.rfilename for file in before.siblings or []]
        # Files of an earlier parcel that this one has not; none if something else is there.
        old = sorted(
            name
            for name in (there if parcel.mark in there else [])
            if can_hold(kind, name) and name not in parcel.files
        )
        done = api.create_commit(
            repo_id,
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
        url=f"{api.endpoint}/{'datasets/' * (kind == 'dataset')}{repo_id}"
        + (f"/tree/{options.revision}" if options.revision else ""),
        commit=done.oid,
        is_new=done.oid != before.sha,
        is_private=is_private,
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
    from huggingface_hub import HfApi

    options.check()
    try:
        check_origin(record, options)
    except PublishError as error:
        later = f"`heavydistill publish {folder} --to {options.repo_id}`"
        fix = f"Train without push_to_hub, and publish afterwards: {later} has flags for that."
        raise PublishError(error.what, fix) from error
    token = _token()
    api = HfApi(token=token)
    with _talking(options.repo_id, token):
        _open(api, options, "model")
        # What is there already is "made" by whoever may read it.
        api.auth_check(options.repo_id, repo_type="model", write=True)


def publish_trained(folder: Path, options: PublishOptions) -> PublishResult:
    """Pack and publish a model right after its training; an error says how to do it later."""
    try:
        return publish(pack(folder, options), options)
    except HeavydistillError as error:
        again = f"`heavydistill publish {folder} --to {options.repo_id}`"
        fix = f"The model is in {folder}; once that is mended, send it with {again}."
        raise type(error)(error.what, fix) from error


def _open(api: HfApi, options: PublishOptions, kind: str) -> bool:
    """Make the repository and the branch, if they are missing; whether it is private."""
    repo_id = options.repo_id
    api.create_repo(repo_id, repo_type=kind, private=options.private or None, exist_ok=True)
    is_private = bool(api.repo_info(repo_id, repo_type=kind).private)
    if options.private and not is_private:
        raise PublishError(
            f"{repo_id} is there already and is public",
            "Make it private in its settings on the Hub, give another --to, or leave out "
            "--private.",
        )
    if options.revision:
        api.create_branch(repo_id, branch=options.revision, repo_type=kind, exist_ok=True)
    return is_private


def _token() -> str:
    """The token, once it is clear that asking is of use."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise PublishError(
            "HF_HUB_OFFLINE is set, so the Hub cannot be asked",
            "Unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE, or look at what would be sent with "
            "--dry-run.",
        )
    if not constants.ENDPOINT.startswith(("http://", "https://")):
        raise PublishError(
            "HF_ENDPOINT is no address", "Set it to e.g. https://huggingface.co, or unset it."
        )
    if urlsplit(constants.ENDPOINT).username is not None:
        raise PublishError(
            "HF_ENDPOINT has a user or a password in it, and addresses are printed",
            "Leave out what stands before the @; the token is sent in a header.",
        )
    token = get_token()
    if not token:
        raise PublishError(
            "There is no token for the Hub",
            "Set HF_TOKEN to one with the right to write (from the settings of your account), or "
            "log in with `hf auth login`.",
        )
    return token


@contextlib.contextmanager
def _talking(repo_id: str, token: str) -> Iterator[None]:
    """Say what to do about whatever goes wrong with the Hub while this lasts."""
    try:
        yield
    except PublishError:
        raise
    # httpx, hf_xet and huggingface_hub raise their own kinds, which have no common base.
    except Exception as error:
        raise _explained(error, repo_id, token) from error


def _explained(error: BaseException, repo_id: str, token: str) -> HeavydistillError:
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    hub = urlsplit(constants.ENDPOINT).hostname or "the Hub"
    # On one line, without the token and without signed addresses.
    plain = re.sub(r"\?\S+", "", " ".join(str(error).split())).replace(token, "[HF_TOKEN]")
    said = plain or type(error).__name__
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    answered = next((cause for cause in chain if isinstance(cause, HfHubHTTPError)), None)
    if answered is None:
        if any(
            isinstance(cause, socket.gaierror)
            or (isinstance(cause, OSError) and cause.errno in _UNREACHABLE)
            for cause in chain
        ):
            return PublishError(
                f"{hub} cannot be reached: {said}",
                "Check the connection and HF_ENDPOINT, and repeat the same command.",
            )
        return RunError(f"The upload to {repo_id} was broken off: {said}", _AGAIN)
    status = answered.response.status_code
    if status == 401:
        return PublishError(
            f"{hub} does not accept the token (401)",
            "Set HF_TOKEN to a valid one, or log in with `hf auth login`.",
        )
    if status == 403:
        return PublishError(
            f"The token may not write to {repo_id} (403: {said})",
            "Take a token with the right to write there, or another --to.",
        )
    if status in _OVERTAKEN:
        what = f"{repo_id} was changed by somebody else during the upload ({status})"
        return RunError(what, _AGAIN)
    if status == _BUSY or status >= 500:
        return RunError(f"{hub} broke off the upload to {repo_id} ({status}: {said})", _AGAIN)
    return PublishError(
        f"{hub} does not take the upload to {repo_id} ({status}: {said})",
        "Mend what it names, and repeat the same command.",
    )
