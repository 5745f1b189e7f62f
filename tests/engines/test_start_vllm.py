"""``--start-vllm`` as a user gives it, with the real vLLM: checkpoints, adapters, kills."""

import json
import os
import re
import shutil
import signal
import time
import urllib.request
from pathlib import Path

import pytest
from adapters import write_adapter
from command_line import MICRO, records_of, run_command, started
from marked import eventually
from real_vllm import engines_of
from serving import body_of, stream, texts_of

from heavydistill.config.models import Sampling
from heavydistill.heavy import prompts
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.request import Request, user_turn
from heavydistill.store.traces import read_traces

TEACHER = Path(MICRO)
LENGTHS = ["--set=think.sampling.max_tokens=192", "--set=deliberate.sampling.max_tokens=448"]
SMALL = ["--set=domain=brief", "--k=2", "--d=1", *LENGTHS, "--start-vllm"]


def greedy(model: Path, texts: list[str]) -> list[str]:
    """What a model in this process writes."""
    engine = LocalEngine(str(model), think_tags=None)
    sampling = Sampling(temperature=0.0, max_tokens=192)
    requests = [Request(user_turn(text), sampling, seed=0) for text in texts]
    return [response.answer_text for response in engine.generate(requests)]


def test_adapters_of_both_roles_are_served_on_one_base(tmp_path):
    thinker = write_adapter(tmp_path / "thinker", TEACHER, strength=0.006)
    deliberator = write_adapter(tmp_path / "deliberator", TEACHER, strength=0.001, r=4)
    for adapter in (thinker, deliberator):  # as a student's, whose template was mended
        file = adapter / "chat_template.jinja"
        file.write_text("{# trained #}" + file.read_text())
    done = run_command(
        *("generate", f"--thinker={thinker}", f"--deliberator={deliberator}", *SMALL),
        *(f"--out={tmp_path / 'run'}", "--limit=6", "--set=think.sampling.temperature=0"),
    )
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "run.vllm.log").read_text().splitlines()[0]
    assert f"serve {TEACHER} " in words and "--max-lora-rank 8 " in words
    assert f"--chat-template {thinker}/chat_template.jinja " in words
    traces = list(read_traces(tmp_path / "run"))
    assert len(traces) == 6
    # Each adapter was probed, and the server does not answer with the base for both.
    lines = (tmp_path / "journal" / "models.jsonl").read_text().splitlines()
    probes = {known["model"]: known["evidence"]["logprobs"] for known in map(json.loads, lines)}
    assert set(probes) == {str(thinker), str(deliberator)}
    first, second = probes.values()
    assert len(first) == len(second) == 39 and first != second
    # Equal to the same adapter in this process, until rounding decides, and not to the base.
    wording = prompts.load("thinker", "brief", "en")
    texts = [prompts.thinker_prompt(trace.problem.text, wording) for trace in traces]
    assert [trace.pool[0].model for trace in traces] == ["thinker"] * 6
    served = [trace.pool[0].reasoning + trace.pool[0].answer_text for trace in traces]

    def alike(model: Path) -> int:
        return sum(
            own.replace("<think>", "").strip()[:20] == text.strip()[:20]
            for own, text in zip(greedy(model, texts), served, strict=True)
        )

    assert alike(thinker) >= 5 and alike(TEACHER) <= 3


def test_a_killed_engine_ends_the_run_and_the_same_command_goes_on(tmp_path):
    out, journal = tmp_path / "run", tmp_path / "journal"
    words = ["generate", f"--teacher={MICRO}", *SMALL, f"--out={out}", "--k=8", "--limit=24"]
    words += ["--set=endpoint.concurrency=8"]
    process = started(*words)
    latest = time.monotonic() + 400
    while len(records_of(journal) if journal.exists() else ()) < 20:
        assert process.poll() is None and time.monotonic() < latest
        time.sleep(0.1)
    engines = engines_of(process.pid)
    assert engines
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 1 and "in the middle of the run" in printed
    assert not list_alive(engines)
    before = len(records_of(journal))
    assert before < 24 * 9
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    asked = [record.key for record in records_of(journal)]
    assert len(asked) == len(set(asked)) == 24 * 9


def list_alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_model_that_does_not_load_is_said_with_the_log(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MICRO, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "hidden_size": 256}))
    done = run_command("generate", f"--teacher={model}", *SMALL, f"--out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "before it was ready" in done.stderr and f"{tmp_path}/run.vllm.log" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_adapter_that_vllm_cannot_serve_is_said_with_a_way(tmp_path):
    adapter = write_adapter(tmp_path / "adapter", TEACHER, use_dora=True)
    done = run_command("generate", f"--teacher={adapter}", *SMALL, f"--out={tmp_path / 'run'}")
    assert done.returncode == 2
    assert "heavydistill merge" in done.stderr


@pytest.mark.slow
def test_a_service_answers_with_both_adapters_and_its_engine_ends_with_it(tmp_path):
    thinker = write_adapter(tmp_path / "thinker", TEACHER, strength=0.001)
    deliberator = write_adapter(tmp_path / "deliberator", TEACHER, strength=0.001, r=4)
    roles = f"--thinker={thinker}", f"--deliberator={deliberator}"
    words = [word for word in SMALL if word != "--d=1"]
    process = started("serve", *roles, *words, "--port=0", cwd=tmp_path)
    try:
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())

        def is_ready() -> bool:
            assert process.poll() is None, process.communicate()[0]
            try:
                url = address.removesuffix("/v1") + "/health"
                return bool(urllib.request.urlopen(url, timeout=30).status == 200)
            except OSError:
                return False

        assert eventually(is_ready, 400)
        events = stream(address, body_of("What is 12 + 34 - 5?"))
        (end,) = (event for event in events if isinstance(event, dict) and "heavy" in event)
        assert end["heavy"]["path"] == "deliberated", end
        reasoning, content = texts_of(events)
        assert reasoning and content, events
        engines = engines_of(process.pid)
        assert engines
    finally:
        process.kill()
        process.communicate()
    assert eventually(lambda: not list_alive(engines), 60)
