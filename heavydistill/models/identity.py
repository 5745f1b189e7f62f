"""Tells which model a server has behind a name, so that a journal never answers for another one.

A server's name for a model says nothing of its weights: a retrained adapter, or another
quantization, can have the name and address of the old one. The file ``models.jsonl`` of a journal
therefore records each model that a name has stood for, with what it is recognised by
(``http.probe.Evidence``): the contents of the folder that the server's list of models names as
``root``, if this machine can read it, or of an adapter from the Hub that the run itself serves the
commit; a probe; and the address only if there is neither, and never for a server that the run
starts or for several addresses. A server that the run starts is probed once it is up; shards that
start one each (``--ray``) know its files alone. The first model of a name has the number "", and
its responses the keys of journals without this file; later models have the numbers 2, 3 and so on,
which are part of their keys.

A model that a provider serves and a profile describes is known by its name. Not covered: a change
that neither folder nor probe shows, e.g. of the model behind a provider's name; an adapter whose
server still has the old weights in memory counts as a new model, because its folder has changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter, ValidationError

from heavydistill.config.models import Endpoint
from heavydistill.errors import JournalError, TeacherError
from heavydistill.models.contact import ServerProbe
from heavydistill.models.http.probe import Evidence, probe
from heavydistill.models.http.transport import submit
from heavydistill.models.hub_files import commit_of, folder_digest
from heavydistill.models.local.adapter import CONFIG
from heavydistill.models.profiles import Profile, provider_at
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.models.vllm.server import OwnServer
from heavydistill.store import segment

FILE = "models.jsonl"
_CONFIGS = ("config.json", CONFIG)
_MOST_BYTES = 32 * 2**30  # larger folders take minutes to read; the probe tells these models apart
_log = logging.getLogger("heavydistill.models")


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model in a journal: a line of ``models.jsonl``."""

    model: str  # Served name
    id: str  # Number among the models of this name
    at: float  # Time of its first run, in seconds since 1970
    evidence: Evidence  # What it is recognised by


_LINE = TypeAdapter(KnownModel)


def identified(run: ResolvedRun, contact: ServerProbe, saves: bool = False) -> ResolvedRun:
    """Return the run with the number of each served model in its endpoints' ``identities``.

    Args:
        run: Resolved run with a journal, whose servers answer.
        contact: Contact that has listed the servers' models.
        saves: Whether to record models that the journal does not know.

    Raises:
        TeacherError: The model of a priced endpoint is not the one in the journal, and
            ``endpoint.fresh`` is not set; or addresses of an endpoint serve different models.
        JournalError: The file of the journal is damaged.
    """

    def of(*models: ResolvedModel | None) -> tuple[dict[str, Any], dict[str, Evidence]]:
        """Return the changes of the models' endpoint, and what each is recognised by."""
        served = {model.profile.model: model for model in models if model and not model.is_local}
        journal, url = Path(run.config.journal or ""), run.config.endpoint.base_url
        numbers, evidence = {}, {}
        for name, model in served.items():
            if model.profile.is_described and any(map(provider_at, model.endpoint.urls)):
                continue  # known by its name
            server = run.server if model.endpoint.base_url == url else None
            known = _find(model, journal, contact, server, saves)
            numbers[name], evidence[name] = known.id, known.evidence
        return {"identities": numbers, "fresh": False}, evidence

    def seen(
        model: ResolvedModel, changes: dict[str, object], evidence: dict[str, Evidence]
    ) -> ResolvedModel:
        # In a recipe of the user's, a role may have an endpoint of its own.
        endpoint = model.endpoint.model_copy(update=changes)
        known = evidence.get(model.profile.model)
        return dataclasses.replace(model, endpoint=endpoint, evidence=known)

    config, deliberator = run.config, run.deliberator if run.config.rounds else None
    apart, settings = config.thinkers_apart, dict(config.thinkers)
    here = of(*(thinker for thinker in run.thinkers if thinker.name not in apart), deliberator)
    thinkers = tuple(seen(t, *(of(t) if t.name in apart else here)) for t in run.thinkers)
    for thinker in thinkers:
        if thinker.name in apart:
            own = settings[thinker.name]
            settings[thinker.name] = own.model_copy(update={"endpoint": thinker.endpoint})
    reader = seen(run.deliberator, *here)
    run = run.with_endpoint(config.endpoint.model_copy(update=here[0]))
    run = run.with_config(thinkers=settings)
    judge = run.judge
    if judge and config.judge and config.judge.endpoint:
        changes, of_judge = of(judge)
        endpoint = config.judge.endpoint.model_copy(update=changes)
        run = run.with_config(judge=config.judge.model_copy(update={"endpoint": endpoint}))
        judge = seen(judge, changes, of_judge)
    return dataclasses.replace(run, thinkers=thinkers, deliberator=reader, judge=judge)


def refuse_same_model(before: ResolvedModel, after: ResolvedModel) -> None:
    """Raise TeacherError if a server answers for both names with one model.

    Nothing is checked for models in this process, for two names of one checkpoint, and if
    ``identified`` has no probe of both.
    """
    old, new = before.profile.model, after.profile.model
    if old == new or not (before.evidence and after.evidence):
        return
    is_alias = before.evidence.root and before.evidence.root == after.evidence.root
    if not is_alias and before.evidence.is_same_answer(after.evidence):
        weak = (
            ""
            if before.evidence.logprobs
            else " This server tells them apart by one short answer alone, which weights that were "
            "trained a little may repeat: train longer, or serve them with vLLM, whose "
            "prompt_logprobs show any difference."
        )
        raise TeacherError(
            f"{after.endpoint.base_url} answers {new} with the base model {old}: a probe gives the "
            "same for both",
            f"Check that the server has loaded the weights of {new} (vLLM: --enable-lora "
            f"--lora-modules {new}=FOLDER, and no warning about its modules in the log), restart "
            f"it, and repeat the command.{weak}",
        )


def _find(
    model: ResolvedModel, journal: Path, contact: ServerProbe, server: OwnServer | None, saves: bool
) -> KnownModel:
    """The entry of a served model in the journal, with what was seen of it now."""
    profile, endpoint = model.profile, model.endpoint
    now = _seen(profile, endpoint, contact, server)
    match = _match(_known(journal, profile.model), now)
    if not match and now.has_probe:
        now = now.repeated(_seen(profile, endpoint, contact, server))
        match = _match(_known(journal, profile.model), now)
    if match:
        noise = match.evidence.noise
        return dataclasses.replace(match, evidence=dataclasses.replace(now, noise=noise))
    with _locked(journal) if saves else contextlib.nullcontext() as file:
        known = _known(journal, profile.model)
        if match := _match(known, now):  # another run has recorded it by now
            return dataclasses.replace(match, evidence=now)
        number = str(len(known) + 1) if known else ""
        if not (saves and endpoint.identities.get(profile.model) == number):  # said by the check
            _say_new(model, journal, known, now)
        new = KnownModel(profile.model, number, round(time.time(), 3), now)
        if file:
            file.write(json.dumps(dataclasses.asdict(new)).encode() + b"\n")
    return new


def _say_new(model: ResolvedModel, journal: Path, known: list[KnownModel], now: Evidence) -> None:
    """Say what becomes of the journal's responses of a name that has a new model.

    Raises:
        TeacherError: Requesting them again would cost money, and ``endpoint.fresh`` is not set.
    """
    name, price = model.profile.model, model.profile.price
    if not known:
        if segment.has_model(journal, name):
            _log.warning(
                "%s holds responses of %s from before models were recorded; they are used as "
                "responses of the model that is served now. If it is another one, give another "
                "--journal.",
                *(journal, name),
            )
        return
    last = known[-1].evidence
    what = (
        f"{model.endpoint.base_url or 'The new server'} has another model as {name} than {journal}"
    )
    what += f": {last.difference(now)}"
    if price and (price.usd_per_mtok_in or price.usd_per_mtok_out) and not model.endpoint.fresh:
        raise TeacherError(
            what,
            "Serve the earlier model again, or add --fresh (in a build: --set "
            "redeliberate.endpoint.fresh=true): then everything is requested and billed again.",
        )
    _log.warning("%s. Its responses are not used, and all requests are sent again.", what)
    probed = dataclasses.replace(last, folder="", address="")
    if last.folder != now.folder and last.has_probe and not probed.difference(now):
        _log.warning(
            "%s still answers as before, although its folder has changed. If the server has not "
            "been restarted since, stop this run and restart the server first.",
            name,
        )


def _match(known: list[KnownModel], now: Evidence) -> KnownModel | None:
    return next((each for each in reversed(known) if not each.evidence.difference(now)), None)


def _seen(
    profile: Profile, endpoint: Endpoint, contact: ServerProbe, server: OwnServer | None
) -> Evidence:
    """What a model is recognised by now; ``server`` is the one that the run starts, if any.

    Until that has an address, its files are all that is known. Raises TeacherError as
    ``_observed``.
    """
    if not endpoint.urls:
        return _expected(profile.model, server)
    now = _observed(profile, endpoint, contact)
    if not server:
        return now
    files = _expected(profile.model, server)
    return dataclasses.replace(now, folder=files.folder, root=files.root, address="")


def _observed(profile: Profile, endpoint: Endpoint, contact: ServerProbe) -> Evidence:
    """Look once at the model at all addresses; raises ``TeacherError`` if they differ."""
    urls, name = endpoint.urls, profile.model
    seen = [submit(probe(url, profile, endpoint)).result() for url in urls]
    first = seen[0]
    for url, other in zip(urls[1:], seen[1:], strict=True):
        if first.logprobs and other.logprobs and (why := first.difference(other)):
            raise TeacherError(
                f"{urls[0]} and {url} serve different models as {name}: {why}",
                "Serve the same weights at all addresses of --endpoint.",
            )
    if any(other.text != first.text for other in seen):
        first = Evidence()
    entries = contact.listed(name, urls[0], endpoint)
    address = (provider_at(urls[0]) or urls[0].rstrip("/")) if len(urls) == 1 else ""
    root, folder = _root(entries, name), _contents(entries, name)
    return dataclasses.replace(first, folder=folder, root=root, address=address)


def _root(entries: list[dict[str, object]], name: str | None) -> str:
    """The folder or Hub id of a model by the server's list; empty if not stated."""
    root = next((each.get("root") for each in entries if each["id"] == name), None)
    return root if isinstance(root, str) else ""


def _contents(entries: list[dict[str, object]], name: str) -> str:
    """Digest of the folder of a model, and of its base's for an adapter; empty if unreadable."""
    own = _folder(_root(entries, name))
    parent = next((each.get("parent") for each in entries if each["id"] == name), None)
    base = _root(entries, parent) if isinstance(parent, str) else ""
    return _with_base(own, base)


def _expected(name: str, server: OwnServer | None) -> Evidence:
    """What a server that the run starts will serve under a name: its base model, or an adapter."""
    weights = server.weights if server else ""
    if not server or name == server.profile.served_name:
        return Evidence(folder=_folder(weights), root=weights)
    own = _folder(name)
    if not Path(name).is_dir():
        with contextlib.suppress(OSError, ValueError):  # not in the cache, and no Hub
            own = commit_of(name, CONFIG)
    return Evidence(folder=_with_base(own, weights), root=name)


def _with_base(own: str, base: str) -> str:
    """The digest ``own``, together with that of the base, if there is one."""
    if not own or not base:
        return own
    return hashlib.sha256(f"{own} {_folder(base) or base}".encode()).hexdigest()[:16]


def _folder(root: str) -> str:
    """Digest of the checkpoint or adapter in a folder of this machine; empty if there is none."""
    folder = Path(root)
    try:
        if not root or not any((folder / name).is_file() for name in _CONFIGS):
            return ""
        files = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
        if sum(stat.st_size for _, stat in files) > _MOST_BYTES:
            return ""
        seen = tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in files)
        return _digest(folder, seen)
    except (OSError, ValueError):  # not readable, or no path
        return ""


@functools.lru_cache(maxsize=64)
def _digest(folder: Path, seen: tuple[tuple[str, int, int], ...]) -> str:
    """Digest of a folder whose files have these names, sizes and times."""
    return folder_digest(folder)


def _known(journal: Path, name: str) -> list[KnownModel]:
    """The models that a name has stood for, in order; raises ``JournalError`` on a damaged line."""
    path = journal / FILE
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise _unusable(path, error) from error
    lines = data[: data.rfind(b"\n") + 1].splitlines()  # the last one may be torn by a kill
    try:
        lines_read = [_LINE.validate_json(line) for line in lines]
    except ValidationError as error:
        raise JournalError(
            f"{path} is damaged",
            "Restore it from a copy, or give another --journal. Without the file, the journal's "
            "responses count as those of the models that are served now.",
        ) from error
    return [each for each in lines_read if each.model == name]


@contextlib.contextmanager
def _locked(journal: Path) -> Iterator[BinaryIO]:
    """Open the file to add lines, while other processes wait; a torn last line is removed."""
    path = journal / FILE
    try:
        journal.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"{path} cannot be used: {error.strerror}", "Check the disk, or give another --journal."
    )
