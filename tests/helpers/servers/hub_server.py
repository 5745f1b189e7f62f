"""A stand-in of the Hub's API: real HTTP on the loopback, for uploads and downloads.

It keeps repositories of datasets and models in memory: branches of commits, each with all of its
files. Parquet files and weights go through the protocol of large files, others into the commit, as
on the Hub. A commit is there as a whole or not at all.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from huggingface_hub import constants
from huggingface_hub.utils import close_session
from loopback import Handler, listening

TOKEN = "hf_TokenOfTheStandIn1234"
ORG = "org"
DROP = -1
"""A fault that is no answer: the connection is closed."""
LARGE = (".parquet", ".safetensors")
LICENCES = {"mit", "apache-2.0", "cc-by-4.0", "other"}


@dataclass
class Commit:
    """A state of a branch."""

    sha: str
    files: dict[str, bytes]


@dataclass
class Repo:
    """A dataset or model: its branches, newest commit last."""

    private: bool
    branches: dict[str, list[Commit]]
    kind: str = "dataset"


@dataclass
class HubServer:
    """What a test sees of it, and sets before it asks."""

    url: str = ""
    plan: Callable[[str, str], int | None] = lambda method, path: None  # a status, ``DROP``, None
    repos: dict[str, Repo] = field(default_factory=dict)  # by ``ORG/NAME``
    large: dict[str, bytes] = field(default_factory=dict)  # sent as large files, by SHA-256
    requests: list[tuple[str, str]] = field(default_factory=list)  # methods and paths, in order
    received: list[str] = field(default_factory=list)  # what was sent to it: paths and SHA-256
    lock: threading.Lock = field(default_factory=threading.Lock)
    _commits: int = 0

    def files(self, repo_id: str, branch: str = "main") -> dict[str, bytes]:
        """What is there now, but for the file that every repository begins with."""
        files = self.repos[repo_id].branches[branch][-1].files
        return {path: content for path, content in files.items() if path != ".gitattributes"}

    def card(self, repo_id: str, branch: str = "main") -> str:
        return self.files(repo_id, branch)["README.md"].decode()

    def add(
        self,
        repo_id: str,
        files: dict[str, bytes] | None = None,
        private: bool = False,
        kind: str = "dataset",
    ) -> None:
        """A repository that is there before the test."""
        first = Commit(self.new_sha(), {".gitattributes": b"", **(files or {})})
        self.repos[repo_id] = Repo(private, {"main": [first]}, kind)

    def commits(self, repo_id: str, branch: str = "main") -> int:
        return len(self.repos[repo_id].branches[branch]) - 1

    def new_sha(self) -> str:
        self._commits += 1
        return hashlib.sha1(str(self._commits).encode()).hexdigest()


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def _handler(hub: HubServer) -> type[Handler]:
    class HubHandler(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        do_HEAD = do_POST = do_PUT = do_GET

        def _answer(self) -> None:
            raw = urlsplit(self.path).path
            path = unquote(raw)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with hub.lock:
                hub.requests.append((self.command, path))
                fault = hub.plan(self.command, path)
                if fault == DROP:
                    self.close_connection = True
                    self.connection.close()
                    return
                try:
                    if fault:
                        raise Refused(fault, f"planned {fault}")
                    self._route(raw, content)
                except Refused as refused:
                    headers = {"X-Error-Message": refused.message}
                    if refused.code:
                        headers["X-Error-Code"] = refused.code
                    self.send_json(refused.status, {"error": refused.message}, headers)

        def _route(self, path: str, content: bytes) -> None:
            for method, pattern, act in ROUTES:
                if self.command in method and (match := re.fullmatch(pattern, path)):
                    named = match.groupdict().items()
                    act(self, content, **{name: unquote(value) for name, value in named})
                    return
            raise Refused(404, f"no such address: {self.command} {path}")

        # What a client needs to write.

        def create(self, content: bytes) -> None:
            asked = json.loads(content)
            self._must_know()
            repo_id = f"{asked['organization']}/{asked['name']}"
            if asked["organization"] != ORG:
                raise Refused(403, f"You don't have the rights to create anything under {repo_id}")
            known = repo_id in hub.repos
            kind = asked.get("type", "model")
            if not known:
                hub.add(repo_id, private=asked.get("visibility") == "private", kind=kind)
            url = f"{hub.url}/{'datasets/' * (kind == 'dataset')}{repo_id}"
            self.send_json(409 if known else 200, {"url": url, "error": "exists"})

        def access(self, content: bytes, repo: str) -> None:
            self._repo(repo, writing=True)
            self.send_json(200, {})

        def branch(self, content: bytes, repo: str, name: str) -> None:
            branches = self._repo(repo, writing=True).branches
            if name in branches:
                raise Refused(409, "Reference already exists")
            if not re.fullmatch(r"[^\s~^:]+", name):
                raise Refused(400, f"Invalid reference name {name}")
            branches[name] = [branches["main"][-1]]
            self.send_json(200, {})

        def validate(self, content: bytes) -> None:
            text = json.loads(content)["content"]
            data = yaml.safe_load(text.split("---\n")[1])
            errors = []
            if data.get("license") not in LICENCES:
                errors = [{"message": '"license" must be one of the known ones'}]
            if data.get("license") == "other" and not data.get("license_name"):
                errors += [{"message": '"license_name" is required'}]
            self.send_json(400 if errors else 200, {"errors": errors, "warnings": []})

        def preupload(self, content: bytes, repo: str, rev: str) -> None:
            there = self._commit(repo, rev, writing=True).files
            answers = []
            for file in json.loads(content)["files"]:
                path = file["path"]
                mode = "lfs" if path.endswith(LARGE) else "regular"
                oid = _oid(mode, there[path]) if path in there else None
                answers.append(
                    {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid}
                )
            self.send_json(200, {"files": answers})

        def batch(self, content: bytes, repo: str) -> None:
            self._repo(repo, writing=True)
            objects = []
            for wanted in json.loads(content)["objects"]:
                oid = wanted["oid"]
                actions = {} if oid in hub.large else {"upload": {"href": f"{hub.url}/put/{oid}"}}
                objects.append(wanted | ({"actions": actions} if actions else {}))
            self.send_json(200, {"transfer": "basic", "objects": objects})

        def put(self, content: bytes, oid: str) -> None:
            if hashlib.sha256(content).hexdigest() != oid:
                raise Refused(400, "the content has another hash")
            hub.large[oid] = content
            hub.received.append(oid)
            self.send(200, b"", "text/plain")

        def commit(self, content: bytes, repo: str, rev: str) -> None:
            head = self._commit(repo, rev, writing=True)
            files, names = dict(head.files), []
            for line in content.splitlines():
                item = json.loads(line)
                value = item["value"]
                match item["key"]:
                    case "header":
                        if value.get("parentCommit", head.sha) != head.sha:
                            raise Refused(412, "A commit has happened since")
                    case "file":
                        files[value["path"]] = base64.b64decode(value["content"])
                        names.append(value["path"])
                    case "lfsFile":
                        files[value["path"]] = hub.large[value["oid"]]
                    case "deletedFile":
                        del files[value["path"]]
                    case key:
                        raise Refused(400, f"unknown operation {key}")
            made = Commit(hub.new_sha(), files)
            hub.repos[repo].branches[rev].append(made)
            hub.received += names
            prefix = "datasets/" * (hub.repos[repo].kind == "dataset")
            url = f"{hub.url}/{prefix}{repo}/commit/{made.sha}"
            self.send_json(200, {"commitUrl": url, "commitOid": made.sha, "success": True})

        # What a client needs to read.

        def info(self, content: bytes, repo: str, rev: str = "main") -> None:
            found = self._commit(repo, rev)
            files = [{"rfilename": path} for path in sorted(found.files)]
            told = {"id": repo, "sha": found.sha, "private": hub.repos[repo].private, "tags": []}
            self.send_json(200, {**told, "siblings": files})

        def tree(self, content: bytes, repo: str, rev: str, path: str = "") -> None:
            inside = f"{path}/" if path else ""
            files = self._commit(repo, rev).files
            under = {name.removeprefix(inside): name for name in files if name.startswith(inside)}
            deep = "recursive=true" in self.path.lower()
            if path and not under:
                raise Refused(404, f"{path} does not exist", "EntryNotFound")
            entries = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(files[name]),
                    "oid": _oid("", files[name]),
                }
                for below, name in under.items()
                if deep or "/" not in below
            ]
            for folder in sorted({below.partition("/")[0] for below in under if "/" in below}):
                entries.append({"type": "directory", "path": inside + folder, "oid": "0" * 40})
            self.send_json(200, entries)

        def resolve(self, content: bytes, repo: str, rev: str, path: str) -> None:
            found = self._commit(repo, rev)
            if path not in found.files:
                raise Refused(404, f"{path} does not exist", "EntryNotFound")
            data = found.files[path]
            headers = {"X-Repo-Commit": found.sha, "ETag": f'"{_oid("", data)}"'}
            self.send(200, data, "application/octet-stream", headers)

        def _must_know(self) -> None:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Invalid credentials in Authorization header")

        def _repo(self, repo: str, writing: bool = False) -> Repo:
            if writing or (repo in hub.repos and hub.repos[repo].private):
                self._must_know()
            if repo not in hub.repos:
                raise Refused(404, "Repository not found", "RepoNotFound")
            if writing and not repo.startswith(f"{ORG}/"):
                raise Refused(403, "You have no right to write here")
            return hub.repos[repo]

        def _commit(self, repo: str, rev: str, writing: bool = False) -> Commit:
            branches = self._repo(repo, writing).branches
            if rev in branches:
                return branches[rev][-1]
            every = {commit.sha: commit for commits in branches.values() for commit in commits}
            if rev not in every:
                raise Refused(404, f"Invalid rev id: {rev}", "RevisionNotFound")
            return every[rev]

    repo, rev = r"(?P<repo>[^/]+/[^/]+)", r"(?P<rev>[^/]+)"
    api, plain = f"/api/(?:datasets|models)/{repo}", f"/(?:datasets/)?{repo}"
    ROUTES: list[tuple[str, str, Callable[..., None]]] = [
        ("POST", "/api/repos/create", HubHandler.create),
        ("POST", "/api/validate-yaml", HubHandler.validate),
        ("POST", f"{api}/branch/(?P<name>.*)", HubHandler.branch),
        ("POST", f"{api}/preupload/{rev}", HubHandler.preupload),
        ("GET", f"{api}/auth-check/write", HubHandler.access),
        ("POST", rf"{plain}\.git/info/lfs/objects/batch", HubHandler.batch),
        ("PUT", "/put/(?P<oid>[0-9a-f]+)", HubHandler.put),
        ("POST", f"{api}/commit/{rev}", HubHandler.commit),
        ("GET", f"{api}/revision/{rev}", HubHandler.info),
        ("GET", f"{api}/tree/{rev}", HubHandler.tree),
        ("GET", f"{api}/tree/{rev}/(?P<path>.+)", HubHandler.tree),
        ("GET", api, HubHandler.info),
        ("GET HEAD", f"{plain}/resolve/{rev}/(?P<path>.+)", HubHandler.resolve),
    ]
    return HubHandler


def _oid(mode: str, content: bytes) -> str:
    """As git names a file, or the protocol of large files does."""
    if mode == "lfs":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextlib.contextmanager
def serving(patch: pytest.MonkeyPatch | None = None) -> Iterator[HubServer]:
    """The stand-in, while the block runs; with ``patch`` this process knows no other Hub."""
    hub = HubServer()
    with listening(_handler(hub)) as url:
        hub.url = url.removesuffix("/v1")
        if patch:
            known = {"ENDPOINT": hub.url, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
            for name, value in known.items():
                patch.setattr(constants, name, value)
            patch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
        yield hub
        close_session()
