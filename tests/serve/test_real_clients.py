"""The service as clients read it that others wrote: LiteLLM, inspect_ai's command, curl.

They are in an environment of their own: bash scripts/install_clients.sh.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fault_server import faulty
from serving import QUESTION, body_of, post, serving

PROGRAMS = Path(__file__).parents[2] / ".venv-clients" / "bin"
CLIENTS = Path(__file__).parent / "clients"
MICRO_QUESTION = "State the final answer to the following arithmetic problem: 12 + 34 - 5 ="
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}}
SEEDED = {"heavy": {"seed": 1}}
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}

pytestmark = pytest.mark.slow


def output_of(program: str, *words: object, **environment: str) -> str:
    """What a client prints; skips the test if it is not installed."""
    path = shutil.which(program) if program == "curl" else str(PROGRAMS / program)
    if not path or not Path(path).exists():
        pytest.skip(f"no {program}: bash scripts/install_clients.sh")
    done = subprocess.run(
        [path, *map(str, words)],
        cwd=CLIENTS,  # inspect takes relative paths alone
        env={**os.environ, **OFFLINE, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def litellm_reads(*words: str) -> Any:
    return json.loads(output_of("python", "litellm_asks.py", *words).splitlines()[-1])


def test_litellm_reads_whole_and_streamed_answers():
    with serving(None, think__k=3) as address:
        read = litellm_reads(address, MICRO_QUESTION)
        (choice,) = (reply := post(address, body_of(MICRO_QUESTION, **SEEDED))[1])["choices"]
    tokens = [reply["usage"][f"{kind}_tokens"] for kind in ("prompt", "completion")]
    for each in read.values():
        assert (each["content"], each["end"]) == (choice["message"]["content"], "stop")
        assert each["tokens"] == tokens
        assert "Deliberating on 3 attempts." in each["reasoning"]


def test_litellm_calls_tools_and_sends_their_results():
    with faulty(calls=[CALL]) as models, serving(models.base_url) as address:
        read = litellm_reads(address, QUESTION, "tools")
    for calls in (read["calls"], read["streamed_calls"]):
        (call,) = calls
        assert {name: call[name] for name in CALL} == CALL
    assert read["end"] == "tool_calls"
    assert "boxed" in read["whole"]["content"] and "boxed" in read["streamed"]["content"]


@pytest.mark.parametrize("stream", ["false", "true"])
def test_inspect_evaluates_the_bundled_pair(tmp_path, stream):
    with serving(None, think__k=3) as address:
        output_of(
            *("inspect", "eval", "sums.py", "--model", "openai-api/heavydistill/heavy"),
            *("--log-dir", tmp_path, "--log-format", "json", "--display", "plain"),
            *("-M", f"stream={stream}", "--no-fail-on-error"),
            HEAVYDISTILL_API_KEY="none",
            HEAVYDISTILL_BASE_URL=address,
        )
    (file,) = tmp_path.glob("*.json")
    log = json.loads(file.read_text())
    assert (log["status"], len(log["samples"])) == ("success", 3)
    for sample in log["samples"]:
        assert sample.get("error") is None
        choice = sample["output"]["choices"][0]
        assert choice["stop_reason"] == "stop" and "boxed" in json.dumps(choice["message"])
        assert sample["output"]["usage"]["total_tokens"] > 0
        assert "Deliberating on 3 attempts." in json.dumps(choice["message"]["content"])


def test_curl_reads_an_answer_and_its_stream():
    with serving(None, think__k=3) as address:
        asked = body_of(MICRO_QUESTION, **SEEDED)
        words = ("-sSN", f"{address}/chat/completions", "-H", "Content-Type: application/json")
        whole = json.loads(output_of("curl", *words, "-d", json.dumps(asked)))
        lines = output_of("curl", *words, "-d", json.dumps({**asked, "stream": True})).splitlines()
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events[-1] == "[DONE]"
    deltas = [each["delta"] for e in events[:-1] for each in json.loads(e)["choices"]]
    written = "".join(delta.get("content") or "" for delta in deltas)
    assert written == whole["choices"][0]["message"]["content"]
