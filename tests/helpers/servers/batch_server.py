"""An OpenAI-compatible server with files and batches, beside the completions of ``fault_server``.

A batch is answered when it is asked for: as ``ends`` says, then as ``completed``. Every answer is
counted by its request, so that a test sees what was billed twice. A call in ``stalls`` has its
effect and gets no reply, so that a client can be killed at that moment.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fake_clock import rest
from fault_server import ERRORS, FaultServer, _Handler
from loopback import listening


@dataclass
class BatchServer(FaultServer):
    """What a test sees of it, and sets before."""

    ends: list[str] = field(default_factory=list)
    """How the next batches end: completed, expired, cancelled, failed, open, or ``faults``."""
    stalls: set[str] = field(default_factory=set)  # such as "POST files"
    loses: set[str] = field(default_factory=set)  # calls that have an effect and HTTP 500, once
    lacks: bool = False  # whether it has no batches
    most_lines: int = 50_000
    calls_made: list[str] = field(default_factory=list)
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # name and content, by id
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    billed: Counter[str] = field(default_factory=Counter)  # answers in batches, by request

    def stalled(self, call: str) -> bool:
        """Whether a call was made that gets no reply."""
        return call in self.stalls and call in self.calls_made


@contextlib.contextmanager
def batch_serving(**settings: Any) -> Iterator[BatchServer]:
    """Serve until the block ends."""
    server = BatchServer(**settings)

    class _OfThis(_BatchHandler):
        fault_server = server

    with listening(_OfThis) as server.base_url:
        yield server


class _BatchHandler(_Handler):
    fault_server: BatchServer

    def do_GET(self) -> None:
        self._route(super().do_GET)

    def do_POST(self) -> None:
        self._route(super().do_POST)

    def do_DELETE(self) -> None:
        self._route(lambda: self.send_json(404, {}))

    def _route(self, otherwise: Any) -> None:
        url, server = urlsplit(self.path), self.fault_server
        what, *of = url.path.removeprefix("/v1/").split("/")
        if what not in ("files", "batches") or not self._knows_key():
            return otherwise()
        if server.lacks:
            return self.send_json(404, {"error": {"message": "Not Found"}})
        is_list = self.command == "GET" and not of
        call = f"{self.command} {what}{'/content' if of[1:] else '?' if is_list else ''}"
        with server.lock:
            status, reply = self._done(call, of, parse_qs(url.query))
            server.calls_made.append(call)
        if call in server.stalls:
            return rest(self.connection, 60)
        if call in server.loses:
            server.loses.discard(call)
            return self.send_json(500, {"error": {"message": "lost"}})
        if isinstance(reply, bytes):
            return self.send(status, reply, "application/octet-stream")
        return self.send_json(status, reply)

    def _done(self, call: str, of: list[str], query: Any) -> tuple[int, Any]:
        server = self.fault_server
        kept: Any = server.files if call.split()[1].startswith("files") else server.batches
        if of and of[0] not in kept:
            return 404, {"error": {"message": f"No such object: {of[0]}"}}
        if call == "POST files":
            return 200, {"id": self._store(*_upload(self))}
        if call == "POST batches":
            return self._create(self.body())
        if call == "GET files/content":
            return 200, server.files[of[0]][1]
        if call == "DELETE files":
            del server.files[of[0]]
            return 200, {"deleted": True}
        if of:
            return 200, self._answered(server.batches[of[0]])
        named = [{"id": id, "filename": name} for id, (name, _) in server.files.items()]
        listed = named if kept is server.files else [*server.batches.values()]
        listed = listed[::-1]
        first = next((n + 1 for n, e in enumerate(listed) if e["id"] in query.get("after", ())), 0)
        page = listed[first : first + 2]  # small, so that clients turn pages
        return 200, {"data": page, "has_more": first + 2 < len(listed)}

    def _store(self, name: str, data: bytes) -> str:
        id = f"file-{len(self.fault_server.calls_made)}-{name}"
        self.fault_server.files[id] = name, data
        return id

    def _create(self, asked: Any) -> tuple[int, Any]:
        server, file = self.fault_server, self.fault_server.files.get(asked["input_file_id"])
        if not file or asked["completion_window"] != "24h":
            return 400, {"error": {"message": "no such file or window"}}
        batch = {**asked, "id": f"batch_{len(server.batches)}", "status": "validating"}
        batch["end"] = server.ends.pop(0) if server.ends else "completed"
        if batch["end"] == "failed" or file[1].count(b"\n") > server.most_lines:
            error = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}
            batch |= {"status": "failed", "errors": {"data": [error]}}
        server.batches[batch["id"]] = batch
        return 200, batch

    def _answered(self, batch: dict[str, Any]) -> dict[str, Any]:
        if batch["status"] == "validating" and batch["end"] != "open":
            end = batch["end"]
            asked = self.fault_server.files[batch["input_file_id"]][1].splitlines()
            lines = [json.loads(line) for line in asked]
            done = lines if end in ("completed", "faults") else lines[: len(lines) // 2]
            output = [self._line(each) for each in done]
            errors = [each for each in output if each["response"]["status_code"] != 200]
            output = [each for each in output if each not in errors]
            code = {"code": f"batch_{end}", "message": "not executed in time"}
            for each in lines[len(done) :]:
                errors.append({"custom_id": each["custom_id"], "response": None, "error": code})
            if end == "faults":
                output = [*output[1:], output[1], {"custom_id": "foreign"}, "torn"]
            files = {"output": output[::-1], "error": errors}
            for kind, of_kind in files.items():
                if of_kind:
                    data = "".join(f"{json.dumps(each)}\n" for each in of_kind).encode()
                    batch[f"{kind}_file_id"] = self._store(kind, data)
            batch["status"] = "completed" if end == "faults" else end
            batch["request_counts"] = {"completed": len(output), "failed": len(errors)}
        return batch

    def _line(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The line of the output for one of the input."""
        server, body, key = self.fault_server, asked["body"], asked["custom_id"]
        attempt = server._attempts[key]
        server._attempts[key] += 1
        if fault := server.plan(body, attempt):
            status, _, message = ERRORS[fault]
            response = {"status_code": status, "body": {"error": {"message": message}}}
        else:
            assert "stream" not in body and asked["url"] == "/v1/chat/completions"
            server.billed[key] += 1
            texts = self._texts(body)
            whole = {"id": "r", "choices": self._choices(body, texts, server.reasoning)}
            response = {"status_code": 200, "body": whole | self._usage(body, texts)}
        return {"custom_id": key, "response": response, "error": None}


def _upload(handler: _BatchHandler) -> tuple[str, bytes]:
    """Name and content of the file in a form."""
    form = handler.rfile.read(int(handler.headers["Content-Length"]))
    boundary = b"\r\n--" + handler.headers["Content-Type"].partition("boundary=")[2].encode()
    head, _, rest = form.partition(b'name="file"')[2].partition(b"\r\n\r\n")
    name = head.partition(b'filename="')[2].partition(b'"')[0].decode()
    return name, rest.partition(boundary)[0]
