"""``heavydistill serve`` as a process: it listens, answers and ends."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_vllm
import marked
import pytest
from command_line import MICRO, run_command, started
from serving import body_of, post

MICRO_QUESTION = "State the final answer to the following arithmetic problem: 12 + 34 - 5 ="


def health(address: str) -> Any:
    url = address.removesuffix("/v1") + "/health"
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def test_the_bundled_models_are_served_by_one_command_until_it_is_told_to_end():
    process = started("serve", "--port", "0", "--k", "3")
    try:
        line = process.stdout.readline()
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/v1", line)
        assert health(address)["status"] == "loading"
        latest = time.monotonic() + 120
        while health(address)["status"] != "ok" and time.monotonic() < latest:
            time.sleep(0.1)
        status, reply, _ = post(address, body_of(MICRO_QUESTION, heavy={"seed": 1}))
        assert (status, reply["heavy"]["path"]) == (200, "deliberated")
        assert reply["usage"]["heavy"]["uncounted_calls"] == 0
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=60)
        assert "The bundled models can only add" in printed
    finally:
        process.kill()
    assert process.returncode == 0 and "Stopping" in printed and "Traceback" not in printed


def test_what_the_user_can_fix_ends_the_command_with_the_fix(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        in_use = run_command("serve", "--port", port)
        gone = run_command(
            *("serve", "--port", "0", "--teacher", "served", "--endpoint"),
            "http://127.0.0.1:9/v1",
        )
    nowhere = run_command("serve", "--host", "0.0.0.0")
    pointless = run_command("serve", "--mcp", "--port", "1", "--host", "::1")
    monkeypatch.setitem(sys.modules, "heavydistill.serve.mcp", None)
    without = run_command("serve", "--mcp")
    for done, said in (
        (in_use, f"127.0.0.1:{port} cannot be listened at: Address already in use"),
        (gone, "Nothing answers at http://127.0.0.1:9/v1"),
        (nowhere, "HEAVYDISTILL_SERVE_KEY is not set"),
        (pointless, "--mcp offers tools at no address, so --host, --port would have no effect"),
        (without, "Install it: pip install 'heavydistill[serve]'"),
    ):
        assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True), done.stderr


_LATEST_S = 120.0


def adapters(folder: Path) -> list[str]:
    """Flags of a service that starts vLLM with two adapters on one base."""
    config = {"peft_type": "LORA", "base_model_name_or_path": MICRO, "r": 8}
    for role in ("thinker", "deliberator"):
        (folder / role).mkdir()
        (folder / role / "adapter_config.json").write_text(json.dumps(config))
    return [f"--thinker={folder}/thinker", f"--deliberator={folder}/deliberator", "--start-vllm"]


@contextlib.contextmanager
def with_vllm(folder: Path, how: str = "") -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The service with a stand-in of vLLM: (process, its address, the mark of all processes)."""
    environment, mark = fake_vllm.install(folder / "bin", gpus=1), uuid.uuid4().hex
    environment |= {marked.MARK: mark, "FAKE_VLLM": how, "http_proxy": "http://127.0.0.1:9"}
    flags = ["--k=3", "--port=0", f"--out={folder}/served", *adapters(folder)]
    process = started("serve", *flags, cwd=folder, env={**os.environ, **environment})
    try:
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())
        assert f"its log is {folder}/served.vllm.log\n" in process.stdout.readline()
        yield process, address, mark
    finally:
        for pid in marked.alive(mark):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_vllm_serves_both_adapters_and_ends_with_the_service(tmp_path, signum):
    with with_vllm(tmp_path) as (process, address, mark):
        assert health(address)["status"] == "loading"
        assert marked.eventually(lambda: health(address)["status"] == "ok", _LATEST_S)
        status, reply, _ = post(address, body_of())
        assert (status, reply["heavy"]["path"]) == (200, "deliberated")
        asked = [request["model"] for request in fake_vllm.asked(tmp_path / "bin")]
        names = f"{tmp_path}/thinker", f"{tmp_path}/deliberator"
        assert asked == [names[0]] * 3 + [names[1]]
        process.send_signal(signum)
        printed, _ = process.communicate(timeout=_LATEST_S)
        assert marked.eventually(lambda: not marked.alive(mark), _LATEST_S), marked.alive(mark)
        assert process.returncode == (0 if signum == signal.SIGTERM else -signum), printed
    assert "--max-loras 2" in (tmp_path / "served.vllm.log").read_text()


def test_the_service_ends_with_a_server_that_breaks(tmp_path):
    with with_vllm(tmp_path, "ends:3") as (process, address, mark):
        assert marked.eventually(lambda: health(address)["status"] == "ok", _LATEST_S)
        with contextlib.suppress(OSError, http.client.HTTPException):  # it is cut off
            post(address, body_of())
        printed, _ = process.communicate(timeout=_LATEST_S)
        assert not marked.alive(mark)
    assert process.returncode == 1 and "Traceback" not in printed
    assert "vLLM was ended by signal 9" in printed and "Start the service again." in printed


def test_a_start_that_fails_is_said_with_its_log(tmp_path):
    with with_vllm(tmp_path, "dies") as (process, _, mark):
        printed, _ = process.communicate(timeout=_LATEST_S)
        assert not marked.alive(mark)
    assert process.returncode == 2 and "Traceback" not in printed
    assert "vLLM ended with code 1 before it was ready. There is too little" in printed
    assert f"{tmp_path}/served.vllm.log" in printed
