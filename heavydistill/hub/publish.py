"""The upload: a parcel becomes one commit of a repository on the Hub, or nothing of it is there.

The commit is made on what the branch held when the upload began. If it fails, or is broken off at
any time before, the branch is as it was, and the same command does what is left: content that the
Hub has already is not sent again, and if all of it is there no commit is made. Files of an earlier
parcel of its kind that this one has not are deleted by it; others are left alone.

``HF_TOKEN``, ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE`` mean what they mean to huggingface_hub, which
does the talking and asks again where it is worth it.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from heavydistill.errors import HeavydistillError, PublishError, RunError
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.parcel import Parcel, can_hold, pack
from heavydistill.hub.terms import check_origin
from heavydistill.store.training_record import TrainingRecord

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_AGAIN = "Repeat the same command: what has arrived is not sent again."
_UNREACHABLE = {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
_OVERTAKEN = {409, 412}
_BUSY = 429


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


def _explained(error: Exception, repo_id: str, token: str) -> HeavydistillError:
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    hub = urlsplit(constants.ENDPOINT).hostname or "the Hub"
    # On one line, without the token and without signed addresses.
    plain = re.sub(r"\?\S+", "", " ".join(str(error).split())).replace(token, "[HF_TOKEN]")
    said = plain or type(error).__name__
    chain = list(_causes(error))
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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
