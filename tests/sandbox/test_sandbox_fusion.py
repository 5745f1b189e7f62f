"""SandboxFusion's client against a server that speaks its format, and against what goes wrong."""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback import Handler, listening

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, Sandbox, SandboxResult, open_sandbox, sandbox_fusion

LIMITS = Limits(5, 20, 256, 10_000)
Answer = Callable[[Handler], None]
pytestmark = pytest.mark.usefixtures("nothing_left")


@contextmanager
def _server(answer: Answer) -> Iterator[Sandbox]:
    class Server(Handler):
        def do_GET(self) -> None:
            self.send(200 if self.path == "/v1/ping" else 404, b'"pong"', "application/json")

        def do_POST(self) -> None:
            answer(self)

    with listening(Server) as url:
        yield open_sandbox(Sandboxing(backend="sandbox_fusion", url=url.removesuffix("/v1")))


def _run(answer: Answer, limits: Limits = LIMITS) -> SandboxResult:
    with _server(answer) as place:
        return place.run({"main.py": "print(1)"}, limits)


def _saying(payload: Any, status: int = 200) -> Answer:
    return lambda handler: handler.body() and handler.send_json(status, payload)


def _result(**result: Any) -> dict[str, Any]:
    done = {"status": "Finished", "return_code": 0, "stdout": "", "stderr": "", **result}
    return {"status": "Success", "message": "", "compile_result": None, "run_result": done}


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Sandbox]:
    """A server that runs what it is sent, as SandboxFusion does without isolation."""

    def answer(handler: Handler) -> None:
        asked = handler.body()
        assert handler.path == "/run_code" and asked["language"] == "python"
        for name, text in asked["files"].items():
            (tmp_path / name).write_bytes(base64.b64decode(text))
        (tmp_path / "sent.py").write_text(asked["code"])
        result = _result()
        try:
            done = subprocess.run(
                [sys.executable, "-S", "sent.py"],
                cwd=tmp_path,
                input=asked["stdin"].encode(),
                capture_output=True,
                timeout=asked["run_timeout"],
            )
            result["run_result"] |= {
                "return_code": done.returncode,
                "stdout": done.stdout.decode("utf-8", "replace"),
                "stderr": done.stderr.decode("utf-8", "replace"),
            }
            result["status"] = "Failed" if done.returncode else "Success"
        except subprocess.TimeoutExpired:
            result["status"], result["run_result"]["status"] = "Failed", "TimeLimitExceeded"
        handler.send_json(200, result)

    with _server(answer) as place:
        yield place


def test_a_program_runs_with_its_files(real):
    program = """
import sys
print(open("data.txt").read(), __name__, sys.argv)
print("é", file=sys.stderr)
sys.exit(3)
"""
    result = real.run({"main.py": program, "data.txt": "日本"}, LIMITS)
    assert (result.ended, result.exit_code) == ("exit", 3)
    assert result.stdout.decode() == "日本 __main__ ['main.py']\n"
    assert result.stderr.decode() == "é\n"


@pytest.mark.parametrize(
    ("program", "ended", "exit_code"),
    [
        ("while True: pass", "cpu", -1), ("import time; time.sleep(60)", "wall", -1),
        ("import os; os.abort()", "signal", 6), ("x = bytearray(400 << 20)", "exit", 1),
        ("print('x' * 20_000)", "output", -1),
    ],
)  # fmt: skip
def test_limits_hold_on_the_other_side(real, program, ended, exit_code):
    wall_s = 4 if ended == "wall" else 60
    result = real.run({"main.py": program}, Limits(1, wall_s, 256, 10_000))
    assert (result.ended, result.exit_code) == (ended, exit_code)
    assert len(result.stdout) <= 10_000


def test_it_is_there_when_it_answers():
    with _server(_saying({})) as place:
        assert place.unavailable() is None
    reason = place.unavailable()
    assert reason is not None and "verify.sandbox.url" in reason
    result = place.run({"main.py": ""}, LIMITS)
    assert result.ended == "unavailable" and b"Connection" in result.stderr


def _hang(handler: Handler) -> None:
    handler.body()
    time.sleep(1.5)


def _disconnect(handler: Handler) -> None:
    handler.body()
    handler.close_connection = True
    handler.connection.close()


def _half(handler: Handler) -> None:
    handler.body()
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"status":')
    handler.close_connection = True


def _flood(handler: Handler) -> None:
    handler.body()
    handler.send(200, b'"' + b"x" * (20 << 20), "application/json")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_saying({"detail": "oops"}, 500), "500"), (_saying({"detail": "busy"}, 429), "429"),
        (_saying({"detail": "no such field"}, 422), "422"), (_hang, "Timeout"),
        (_disconnect, "Connection"), (_half, "Chunked|Incomplete|Connection"),
        (_flood, "more than"), (lambda handler: handler.send(200, b"<html>", "text/html"), "JSON"),
        (lambda handler: handler.send(200, b"\xff\xfe", "application/json"), "Error"),
        (_saying(None), "None"), (_saying([1]), "1"), (_saying({}), "None"),
        (_saying({"status": "Success", "run_result": None}), "SandboxFusion"),
        (_saying({"status": "SandboxError", "message": "overlay is full"}), "overlay is full"),
        (_saying({**_result(), "status": "SandboxError", "message": "gone"}), "gone"),
        (_saying(_result(status="Error")), "status Error"),
        (_saying(_result(return_code=None)), "code None"),
        (_saying(_result(return_code="0")), "code 0"),
        (_saying(_result(return_code=True)), "code True"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_no_run(answer, said, monkeypatch):
    monkeypatch.setattr(sandbox_fusion, "_QUEUE_S", 0.5)
    result = _run(answer, Limits(0.2, 0.3, 256, 10_000))
    assert result.ended == "unavailable"
    assert result.stdout == b""
    assert any(word in result.stderr.decode() for word in said.split("|")), result.stderr


@pytest.mark.parametrize(
    ("result", "ended", "exit_code"),
    [
        ({"return_code": 0}, "exit", 0), ({"return_code": 1}, "exit", 1),
        ({"return_code": -11}, "signal", 11), ({"return_code": 139}, "signal", 11),
        ({"return_code": -24}, "cpu", -1), ({"return_code": 152}, "cpu", -1),
        ({"status": "TimeLimitExceeded", "return_code": None}, "wall", -1),
        ({"stdout": "x" * 10_001}, "output", -1), ({"stdout": None, "stderr": None}, "exit", 0),
    ],
)  # fmt: skip
def test_ends_are_read(result, ended, exit_code):
    ran = _run(_saying(_result(**result)))
    assert (ran.ended, ran.exit_code) == (ended, exit_code)


def test_what_the_server_may_have_cut_does_not_count():
    cut = _run(_saying(_result(stdout="x" * (1 << 20))), Limits(1, 1, 256, 8 << 20))
    assert cut.ended == "output"


def test_what_is_sent_is_what_the_server_takes():
    sent: list[dict[str, Any]] = []

    def answer(handler: Handler) -> None:
        sent.append(handler.body())
        handler.send_json(200, _result())

    _run(answer)
    assert sent[0].keys() == {"language", "code", "files", "stdin", "run_timeout"}
    assert (sent[0]["stdin"], sent[0]["run_timeout"]) == ("", 20)
    assert base64.b64decode(sent[0]["files"]["main.py"]) == b"print(1)"
    assert json.dumps(sent[0])
