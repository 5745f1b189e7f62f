"""Real vLLM serves the micro teacher, and everything that a run asks of a server is seen of it.

The server is started by ``models.vllm.server``, as ``--start-vllm`` does.
"""

import dataclasses
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command

from heavydistill.config.models import Endpoint
from heavydistill.config.run import load_config
from heavydistill.errors import TeacherError
from heavydistill.heavy import prompts
from heavydistill.models.contact import ServerProbe
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.request import THINK, Request, Response, user_turn
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.vllm.server import VllmServer, served
from heavydistill.problems import load
from heavydistill.store.traces import read_traces

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher"
CONTEXT = 2048
PROFILE = f"""
name: micro-served
folder: {MICRO}
tokenizer: {MICRO}
context: {CONTEXT}
output: 448
thinker_output: 192
domain: brief
thinking: {{tags: [<think>, </think>], parser: deepseek_r1}}
vllm:
  flags: {{dtype: float32, enforce-eager: "", max-num-seqs: 16, no-enable-chunked-prefill: ""}}
  gpus: {{1: {{max_model_len: {CONTEXT}}}, 2: null, 4: null, 8: null}}
  why_null: one is more than it needs
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("profile") / "mine.yaml"
    file.write_text(PROFILE, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def run(profile: Path) -> ResolvedRun:
    return resolve(load_config(None, {"teacher": str(profile), "endpoint.start_vllm": True}))


@pytest.fixture(scope="module")
def server(run: ResolvedRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    with served(run.server_command(), log) as server:
        (session,) = (mine for mine, parent in sessions() if parent == os.getpid())
        assert sum(mine == session for mine, _ in sessions()) > 3  # not the server alone
        yield server
    assert session not in dict(sessions())


@pytest.fixture(scope="module")
def endpoint(run: ResolvedRun, server: VllmServer) -> Endpoint:
    place = {"start_vllm": False, "base_url": server.url}
    return run.config.endpoint.model_copy(update=place)


@pytest.fixture(scope="module")
def engine(run: ResolvedRun, endpoint: Endpoint) -> Iterator[OpenAIEngine]:
    profile = dataclasses.replace(run.deliberator.profile, think_tags=None)
    # Without tags: thinking that the server left in the text would stay there.
    engine = OpenAIEngine(profile, endpoint)
    yield engine
    engine.close()


def sessions() -> list[tuple[int, int]]:
    """(session, parent) of each process that is not in the session of the tests.

    The engine writes its title over the environment, so a mark there would not be found.
    """
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        found.append((int(fields[3]), int(fields[1])))
    return [one for one in found if one[0] != os.getsid(0)]


def asked(run: ResolvedRun, *seeds: int, text: str = "") -> list[Request]:
    """One request for each seed, for the first bundled problem or for this text."""
    prompt = prompts.load("thinker", "brief", "en")
    text = text or prompts.thinker_prompt(load(run.config.problems)[0].text, prompt)
    return [
        Request(user_turn(text), run.in_stage(THINK).sampling, seed, index)
        for index, seed in enumerate(seeds)
    ]


def plain(server: VllmServer, request: Request, **more: Any) -> dict[str, Any]:
    """What the server answers to it, without a client in between."""
    body = {
        "model": "micro-served",
        "messages": request.messages,
        "max_tokens": request.sampling.max_tokens,
        "seed": request.seed,
        **more,
    }
    url = f"{server.url}/chat/completions"
    headers = {"Content-Type": "application/json"}
    wanted = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(wanted, timeout=120) as answer:
        return dict(json.load(answer))


def texts(responses: list[Response]) -> list[tuple[str, str]]:
    assert [response.error for response in responses] == [None] * len(responses)
    return [(response.reasoning, response.answer_text) for response in responses]


def test_thinking_comes_in_a_field_of_its_own(run, engine):
    (request,) = asked(run, 1)
    (response,) = engine.generate([request])
    assert response.reasoning and response.answer_text
    assert "think>" not in response.reasoning + response.answer_text
    assert response.finish_reason == "stop"
    assert min(response.prompt_tokens, response.completion_tokens) > 0


def test_n_brings_n_choices_and_k_requests_k_samples(run, server, engine):
    (request,) = asked(run, 1)
    choices = plain(server, request, n=4)["choices"]
    assert sorted(choice["index"] for choice in choices) == [0, 1, 2, 3]
    assert len({choice["message"]["reasoning"] for choice in choices}) > 1
    assert len(texts(engine.generate(asked(run, 1, 2, 3, 4)))) == 4


def test_a_seed_repeats_a_text_and_others_differ(run, engine):
    once = texts(engine.generate(asked(run, *range(8))))
    assert texts(engine.generate(asked(run, *range(8)))) == once
    assert len(set(once)) > 1


def test_prompts_that_were_read_already_are_counted(run, engine):
    # Most of the context; no other text begins with it.
    (request,) = asked(run, 1, text="8 " + "1 + 2 + 3 = ? " * 90)
    (before,), (after,) = engine.generate([request]), engine.generate([request])
    assert before.cached_tokens <= 0
    assert after.cached_tokens > 0.5 * after.prompt_tokens


def test_the_server_tells_its_context_before_anything_is_asked(endpoint):
    ServerProbe().require("micro-served", endpoint, CONTEXT)
    with pytest.raises(TeacherError, match=rf"with {CONTEXT} tokens"):
        ServerProbe().require("micro-served", endpoint, CONTEXT + 1)


def test_a_run_asks_it_for_both_stages(server, profile, tmp_path):
    out = tmp_path / "run"
    flags = [f"--teacher={profile}", f"--endpoint={server.url}", f"--out={out}"]
    done = run_command("generate", *flags, "--limit=10", "--k=4", "--d=2")
    assert done.returncode == 0, done.stderr
    traces = list(read_traces(out))
    assert len(traces) == 10
    for trace in traces:
        assert len({t.seed for t in trace.pool}) == 4 and all(t.reasoning for t in trace.pool)
    # It is the model that runs in this process as well, and right on most problems.
    right = [d.is_correct for trace in traces for d in trace.deliberations]
    assert len(right) == 20 and sum(right) > 10
    assert server.failure() is None  # it is well at the end
