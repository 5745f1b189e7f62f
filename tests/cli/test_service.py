"""``heavydistill serve`` as a process: it listens, answers and ends."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from typing import Any

from command_line import run_command, started
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
    finally:
        process.kill()
    assert process.returncode == 0 and "Stopping" in printed and "Traceback" not in printed


def test_what_the_user_can_fix_ends_the_command_with_the_fix():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        in_use = run_command("serve", "--port", port)
        gone = run_command(
            *("serve", "--port", "0", "--teacher", "served", "--endpoint"),
            "http://127.0.0.1:9/v1",
        )
    nowhere = run_command("serve", "--host", "0.0.0.0")
    for done, said in (
        (in_use, f"127.0.0.1:{port} cannot be listened at: Address already in use"),
        (gone, "Nothing answers at http://127.0.0.1:9/v1"),
        (nowhere, "HEAVYDISTILL_SERVE_KEY is not set"),
    ):
        assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True), done.stderr


def test_no_help_lists_the_command_and_its_own_help_does_work():
    assert "serve " not in run_command("--help").stdout.replace("served", "")
    help = run_command("serve", "--help-all").stdout
    assert "--deliberator" in help and "max_body_bytes" in help
