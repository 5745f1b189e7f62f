"""Publishes a folder of sets, the traces of a run, or a trained model as one commit on the Hub.

Files sent for sets:

    README.md                 the card, with the address of the repository
    manifest.json
    chat_template.jinja       if there is one
    NAME/SPLIT-....parquet    for every set that has rows

Files sent for a run:

    README.md                 the card
    summary.json              the figures of the run
    configuration.json        its configuration without folders and addresses; not for an import
    traces/train-....parquet  its traces, with the names of models in place of their folders

Files sent for a model:

    README.md                  the card
    training.json              the record of the training
    model.safetensors          or its shards and their index, with config.json and
                               generation_config.json; or
    adapter_model.safetensors  with adapter_config.json, which names the base model by its id on the
                               Hub instead of a local folder
    tokenizer.json, ...        the files of the tokenizer, and the chat template
    evaluation/                the figures before and after training, and of controls, if there
                               are any: evaluation.json and controls.json

Other files in the folder are not sent, and their names are printed. Links that lead out of the
folder and texts with a key are refused.

The parent of the commit is the state of the branch when the upload began. If the upload fails, the
branch is unchanged; the same command continues it without sending again what has arrived, and makes
no commit if nothing differs. The commit deletes files of an earlier publication of the same kind
that are not sent any more, and no others. huggingface_hub reads ``HF_TOKEN``, ``HF_ENDPOINT`` and
``HF_HUB_OFFLINE``.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from heavydistill.config.yaml import as_section
from heavydistill.errors import HeavydistillError, PublishError, RunError
from heavydistill.hub.cards import CARD
from heavydistill.hub.dataset_card import dataset_card
from heavydistill.hub.model_card import CONTROL_FIGURES, FIGURES, comparison_in, model_card
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.run_traces import SUMMARY, prepare
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.hub.terms import authors_of, check_origin, check_terms, origin_of
from heavydistill.hub.traces_card import traces_card
from heavydistill.hub.weights import ADAPTER_CONFIG, WEIGHTS, adapter_config, weights_of
from heavydistill.models.local.architecture import PROCESSOR
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    SETS,
    files_of,
    hashes,
    read_manifest,
)
from heavydistill.store.traces import TRACES_FOLDER, writing
from heavydistill.store.training_record import RECORD, TrainingRecord, read_record

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import DatasetInfo, ModelInfo


_AGAIN = "Repeat the same command: what has arrived is not sent again."
# 409 and 412: another commit came first; 429: the Hub is busy. Statuses from 500 on are temporary
# too.
_TEMPORARY = {409, 412, 429}
_UNREACHABLE = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_FIXES = {
    401: "Set HF_TOKEN to a valid token, or log in with `hf auth login`.",
    403: "Use a token with write access to that repository, or another --to.",
}
_COPY, _COPY_MARK = ".dry-run", ".heavydistill-dry-run"
_FULL_CONFIGS = ("config.json", "generation_config.json", *PROCESSOR)
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TOKENIZER = (
    *("tokenizer.json", _TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", CHAT_TEMPLATE),
)

Kind = Literal["sets", "traces", "model"]
Files = dict[str, Path | bytes]
"""Paths in the repository, each with a local file or its content."""

_MARKS: dict[Kind, str] = {"sets": MANIFEST, "traces": SUMMARY, "model": RECORD}
"""The file by which a folder or repository is recognized."""
_CONFIGURATION = "configuration.json"
_ROWS = rf"({'|'.join(SETS)})/[^/]+\.parquet"
_OF_RUNS = (CARD, SUMMARY, _CONFIGURATION)
_OF_SETS = (CARD, MANIFEST, CHAT_TEMPLATE)
_MEASURED = (FIGURES, CONTROL_FIGURES)
_OF_MODELS = (CARD, RECORD, *_FULL_CONFIGS, ADAPTER_CONFIG, *_TOKENIZER, *_MEASURED)
_PATHS: dict[Kind, re.Pattern[str]] = {
    "sets": re.compile("|".join([_ROWS, *map(re.escape, _OF_SETS)])),
    "traces": re.compile("|".join([rf"{TRACES_FOLDER}/[^/]+\.parquet", *map(re.escape, _OF_RUNS)])),
    "model": re.compile("|".join([WEIGHTS, *map(re.escape, _OF_MODELS)])),
}
"""Patterns of the paths that a published file can have."""


@dataclass(frozen=True, slots=True)
class PublishBundle:
    """The files to send."""

    kind: Kind
    files: Files
    kept_back: list[str]  # names of files in the folder that are not sent
    message: str  # message of the commit
    held: TemporaryDirectory[str] | None = None  # folder of files written for the upload

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of each file in bytes, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def pack(folder: Path, options: PublishOptions) -> PublishBundle:
    """Collect and check the files of sets, a run or a trained model; writes nothing next to them.

    Raises:
        PublishError: The folder has not exactly one of sets, a run and a model; the repository name
            is malformed; the sets do not match their manifest; the training has not ended, or files
            needed to load the model are missing or incomplete; a link leads out of the folder; the
            models' terms forbid it; or a text contains a key.
        ConfigError: The manifest or record has another version, or a profile cannot be read.
    """
    options.check()
    kinds = [kind for kind, mark in _MARKS.items() if (folder / mark).is_file()]
    if len(kinds) != 1:
        raise PublishError(
            f"{folder} must hold sets, with {MANIFEST}, a run, with {SUMMARY}, or a trained model, "
            f"with {RECORD}",
            "Give the folder that `heavydistill build --out FOLDER` or `heavydistill generate "
            "--out FOLDER` wrote, or the output folder of `heavydistill sft`.",
        )
    (kind,) = kinds
    _refuse_links(folder, kind)
    held = TemporaryDirectory(prefix="heavydistill-") if kind == "traces" else None
    if held:
        files, message = _of_run(folder, Path(held.name), options)
    else:
        files, message = (_of_sets if kind == "sets" else _of_model)(folder, options)
    # A subfolder from which no file is sent is listed by its name only.
    opened = {name.partition("/")[0] for name in files if "/" in name}
    left = [path for path in folder.iterdir() if path.name not in opened]
    left += [path for name in opened for path in (folder / name).iterdir()]
    names = sorted(path.relative_to(folder).as_posix() for path in left)
    return PublishBundle(kind, files, [name for name in names if name not in files], message, held)


def _of_sets(folder: Path, options: PublishOptions) -> tuple[Files, str]:
    """Return the checked files of sets, and the message of the commit."""
    manifest = read_manifest(folder)
    digests = hashes(folder)
    names = sorted({*digests, *manifest.files})
    if other := [name for name in names if digests.get(name) != manifest.files.get(name)]:
        raise PublishError(
            f"{folder / other[0]} does not match {MANIFEST}: it was changed, added or removed "
            "after the build",
            "Build the sets again.",
        )
    check_terms(authors_of(manifest, options.profiles), options)
    files: Files = {
        CARD: dataset_card(manifest, folder, options).encode(),
        MANIFEST: folder / MANIFEST,
        **files_of(folder),
    }
    fix = "leave out the problem or run that contains it and build the sets again"
    refuse_secrets(files, known_secrets(manifest.model_dump()), fix, options.allow_key_shapes)
    return files, f"Sets of heavydistill {manifest.heavydistill}"


def _of_run(folder: Path, into: Path, options: PublishOptions) -> tuple[Files, str]:
    """Return the checked files of a run, whose traces are written into a folder, and the message.

    The terms are checked with the authors that the rows name.
    """
    run_traces, rows = prepare(folder, into)
    check_terms(authors_of(run_traces, options.profiles), options)
    files: Files = {
        CARD: traces_card(run_traces, folder, options).encode(),
        SUMMARY: folder / SUMMARY,
    }
    config = run_traces.runs[0].config
    if config:
        files[_CONFIGURATION] = f"{json.dumps(config, indent=2, ensure_ascii=False)}\n".encode()
    files[rows.relative_to(into).as_posix()] = rows
    fix = "leave out the problem that contains it and generate the traces again"
    refuse_secrets(files, known_secrets(config), fix, options.allow_key_shapes)
    return files, f"Traces of heavydistill {run_traces.heavydistill}".rstrip()


def _of_model(folder: Path, options: PublishOptions) -> tuple[Files, str]:
    """Return the checked files of a model, and the message of the commit."""
    record = read_record(folder)
    if record.result is None:
        raise PublishError(
            f"The training in {folder} has not ended",
            "Wait until it ends, or repeat its command to continue from the last checkpoint.",
        )
    weights, adapter = weights_of(folder), adapter_config(folder)
    configs = _FULL_CONFIGS if adapter is None else (ADAPTER_CONFIG,)
    present = [name for name in (*configs, *_TOKENIZER, *_MEASURED) if (folder / name).is_file()]
    for name in (configs[0], _TOKENIZER_CONFIG):
        if name not in present:
            raise PublishError(
                f"{folder} lacks {name}, without which the model cannot be loaded",
                "Put the file back, or train again.",
            )
    check_origin(record, options)
    files: Files = {
        CARD: model_card(record, folder, options).encode(),
        RECORD: folder / RECORD,
        **{name: folder / name for name in (*weights, *present)},
    }
    if adapter is not None:
        base = origin_of(record, options.profiles).base
        adapter |= {"base_model_name_or_path": base.hub or base.name, "revision": base.revision}
        files[ADAPTER_CONFIG] = f"{json.dumps(adapter, indent=2, ensure_ascii=False)}\n".encode()
    comparison = comparison_in(folder)
    secrets = known_secrets(record.model_dump(), comparison.config if comparison else {})
    refuse_secrets(files, secrets, "train again without it", options.allow_key_shapes)
    return files, f"Model of heavydistill {record.heavydistill}"


def _repo_type(kind: Kind) -> str:
    return "model" if kind == "model" else "dataset"


def _refuse_links(folder: Path, kind: Kind) -> None:
    """Refuse links that are broken or lead out of the folder, if their target would be sent.

    Links within the folder are followed. A snapshot in the Hub's cache consists of links to the
    blobs of the same repository; these count as part of the folder.
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
                f"{link} is a link to {source}, which is outside the folder or missing",
                "To publish its target, replace the link by a copy: "
                f"`rm {place} && cp -r {source} {place}`. Otherwise remove the link.",
            )


def copy(parcel: PublishBundle, folder: Path) -> Path:
    """Write the files into the folder NAME.dry-run next to ``folder``; an earlier copy is replaced.

    Returns:
        The folder NAME.dry-run.

    Raises:
        PublishError: NAME.dry-run exists and was not made by this function, or has other files.
        RunError: The disk is full or fails.
    """
    folder = folder.resolve()
    target = folder.with_name(folder.name + _COPY)
    mark = target / _COPY_MARK
    names = (path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    others = [name for name in names if not _PATHS[parcel.kind].fullmatch(name)]
    if target.exists() and others != [_COPY_MARK]:
        raise PublishError(
            f"{target} exists and is not a copy that --dry-run made",
            "Rename or remove it: the copy of what would be sent is written there.",
        )
    with writing(target):
        if target.exists():
            shutil.rmtree(target)
        target.mkdir()
        mark.write_text("heavydistill publish --dry-run replaces this folder.\n")
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

    url: str  # address of the repository or of the branch
    commit: str  # id of the commit
    is_new: bool  # whether a commit was made; False if nothing differed
    is_private: bool  # whether the repository is private
    deleted: list[str]  # files of an earlier publication that the commit deleted


def deletions(parcel: PublishBundle, options: PublishOptions) -> list[str]:
    """Return the files on the Hub that the commit would delete; changes nothing on the Hub.

    Raises:
        PublishError: The Hub cannot be reached or refuses to answer.
        RunError: The Hub or the connection failed.
    """
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    with _connected(options) as api:
        ask = api.model_info if parcel.kind == "model" else api.dataset_info
        for branch in dict.fromkeys((options.revision, None)):  # a new branch starts from main
            with contextlib.suppress(RepositoryNotFoundError, RevisionNotFoundError):
                return _outdated(ask(options.repo_id, revision=branch), parcel)
    return []


def _outdated(there: DatasetInfo | ModelInfo, parcel: PublishBundle) -> list[str]:
    """Return files of an earlier publication of this kind that are no longer sent."""
    names = sorted(file.rfilename for file in there.siblings or [])
    if _MARKS[parcel.kind] not in names:
        return []
    known = _PATHS[parcel.kind].fullmatch
    return [name for name in names if known(name) and name not in parcel.files]


def publish(folder: str | Path, options: PublishOptions | Mapping[str, object]) -> PublishResult:
    """Publish the folder of sets, a run or a trained model as one commit on the Hub.

    ``options`` may be a mapping, e.g. ``{"repo_id": "org/name", "private": True}``.

    Raises:
        UserError: ``pack`` refuses the folder, or the Hub refuses the upload.
        RunError: The Hub or the connection failed; nothing is changed.
    """
    options = as_section(PublishOptions, options)
    return send(pack(Path(folder), options), options)


def send(parcel: PublishBundle, options: PublishOptions) -> PublishResult:
    """Send the files as one commit.

    Raises:
        PublishError: There is no token or it has no write access, the Hub cannot be reached or
            refuses the upload, or the repository is public although ``private`` is set. Nothing is
            changed, except that the repository or branch may have been created.
        RunError: The Hub or the connection failed; nothing is changed.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    kind = parcel.kind
    with _connected(options) as api:
        before = _open(api, options, kind)
        old = _outdated(before, parcel)
        done = api.create_commit(
            options.repo_id,
            [
                *(CommitOperationAdd(name, source) for name, source in parcel.files.items()),
                *(CommitOperationDelete(name) for name in old),
            ],
            commit_message=parcel.message,
            repo_type=_repo_type(kind),
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
    """Check, before a training, that its model can be published, and create the repository.

    Call this before training starts, so that a missing permission does not surface at the end.

    Args:
        record: Record of the training, without a result.
        folder: Folder where the model will be.
        options: Options of the upload.

    Raises:
        PublishError: The name, licence or terms forbid it; or an error of ``publish``.
        RunError: As in ``publish``.
    """
    options.check()
    try:
        check_origin(record, options)
    except PublishError as error:
        later = _command(folder, options)
        fix = f"Train without push_to_hub and publish afterwards, where flags allow it: {later}."
        raise PublishError(error.what, fix) from error
    with _connected(options) as api:
        _open(api, options, "model")
        # `create_repo` succeeds on an existing repository even with read access only.
        api.auth_check(options.repo_id, repo_type="model", write=True)


def publish_trained(folder: Path, options: PublishOptions) -> PublishResult:
    """Pack and publish a model right after its training; errors name the command for a retry."""
    try:
        return publish(folder, options)
    except HeavydistillError as error:
        # The fix of a RunError is to repeat the same command, which would train again.
        first = f"{error.fix} " if isinstance(error, PublishError) else ""
        again = f"The model is in {folder}; send it with {_command(folder, options)}."
        raise type(error)(error.what, first + again) from error


def _command(folder: Path, options: PublishOptions) -> str:
    words = ["heavydistill", "publish", str(folder), "--to", options.repo_id]
    for flag, value in (("--revision", options.revision), ("--license", options.licence)):
        words += [flag, value] if value else []
    return f"`{shlex.join([*words, *(['--private'] if options.private else [])])}`"


def _open(api: HfApi, options: PublishOptions, kind: Kind) -> DatasetInfo | ModelInfo:
    """Create the repository and branch if they are missing; return the branch's content."""
    repo_id, branch, repo_type = options.repo_id, options.revision, _repo_type(kind)
    api.create_repo(repo_id, repo_type=repo_type, private=options.private or None, exist_ok=True)
    if options.private and not api.repo_info(repo_id, repo_type=repo_type).private:
        raise PublishError(
            f"{repo_id} exists and is public",
            "Make it private in its settings on the Hub, give another --to, or leave out "
            "--private.",
        )
    if branch is not None:
        api.create_branch(repo_id, branch=branch, repo_type=repo_type, exist_ok=True)
    ask = api.model_info if kind == "model" else api.dataset_info
    return ask(repo_id, revision=branch)


@contextlib.contextmanager
def _connected(options: PublishOptions) -> Iterator[HfApi]:
    """Yield a client of the Hub; errors raised within the block become errors with a fix."""
    from huggingface_hub import HfApi, constants, get_token

    endpoint = urlsplit(constants.ENDPOINT)
    if not endpoint.hostname or endpoint.username is not None:
        raise PublishError(
            "HF_ENDPOINT is not an address, or contains a user or a password",
            "Set it to e.g. https://huggingface.co, or unset it; the token is sent in a header.",
        )
    token = get_token()
    if not token:
        raise PublishError(
            "There is no token for the Hub",
            "Set HF_TOKEN to a token with write access (from the settings of your account), or log "
            "in with `hf auth login`.",
        )
    try:
        yield HfApi(token=token)
    except PublishError:
        raise
    # The errors of httpx, hf_xet and huggingface_hub share no base class.
    except Exception as error:
        # On one line, without the token and without signatures in URLs.
        plain = re.sub(r"\?\S+", "", " ".join(str(error).split())).replace(token, "[HF_TOKEN]")
        message = plain or type(error).__name__
        raise _explained(error, message, endpoint.hostname, options.repo_id) from error


def _explained(error: Exception, said: str, hub: str, repo_id: str) -> HeavydistillError:
    """Return our error, with a fix, for an error of the Hub or the connection."""
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
    statuses = [cause.response.status_code for cause in chain if isinstance(cause, HfHubHTTPError)]
    if statuses and 400 <= statuses[0] < 500 and statuses[0] not in _TEMPORARY:
        fix = _FIXES.get(statuses[0], "Fix what the Hub names, and repeat the same command.")
        return PublishError(f"{hub} refuses {repo_id}: {said}", fix)
    is_broken = any(
        isinstance(cause, ConnectionError | TimeoutError)
        or type(cause).__module__.partition(".")[0] in ("httpx", "httpcore")
        for cause in chain
    )
    if statuses or is_broken:
        return RunError(f"The upload to {repo_id} was interrupted: {said}", _AGAIN)
    return RunError(
        f"The upload to {repo_id} failed in huggingface_hub with {type(error).__name__}: {said}",
        "Nothing was published. Fix what the message names before you repeat the command; if you "
        "can fix nothing, try another version: `pip install -U huggingface_hub`.",
    )
