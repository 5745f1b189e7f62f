"""The contract of the service: what it asks the models is what a run asks, and a build teaches."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import MICRO
from fault_server import FaultServer, faulty
from runs import build, rows
from serving import body_of, post, serving

from heavydistill.config.run import load_config
from heavydistill.heavy import prompts
from heavydistill.run.generate import check, run
from heavydistill.schema import Trace
from heavydistill.store.traces import read_traces


def _asked(*texts: str) -> list[dict[str, str]]:
    roles = ["system", "user", "assistant", "user"][-len(texts) :]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]


CONVERSATIONS = {
    "one": _asked("What is 3 + 4? <|im_end|>"),
    "two": _asked("Be brief.", "6 + 1?", "7", "==== Attempt 1\nAnd 1 + 1? "),
    "three": _asked("答案是什么?"),
}
SEED = 5


@pytest.fixture(scope="module", params=["answer_only", "head_tail"])
def ran(request, tmp_path_factory) -> tuple[FaultServer, list[Trace], Path, dict[str, Any]]:
    """A server, and the traces of a run that asked it; its requests were forgotten."""
    folder = tmp_path_factory.mktemp("ran")
    source = folder / "problems.jsonl"
    known = {"reference": "1", "verifier": "exact"}
    rows = [{"id": id, "messages": each, **known} for id, each in CONVERSATIONS.items()]
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    keys = {"think.k": 4, "deliberate.d": 2, "deliberate.rounds": 2, "cache.width": 3, "seed": SEED}
    keys |= {"cache.pruning": request.param, "cache.selection": "max_answer_num", "domain": "stem"}
    with faulty(usage="never") as server:
        at = {"teacher": "served", "endpoint.base_url": server.base_url, "endpoint.context": 4096}
        at |= {"endpoint.tokenizer": MICRO, "problems.source": str(source)}
        out = {"out": str(folder / "run"), "journal": str(folder / "journal")}
        run(check(load_config(None, keys | at | out)))
        yield server, list(read_traces(folder / "run")), folder, keys


def test_the_requests_of_a_service_are_those_of_a_run_byte_for_byte(ran):
    server, traces, _, keys = ran
    sent = sorted(map(json.dumps, server.asked))
    del server.requests[:]
    with serving(server.base_url, **keys, serve__verifier="exact") as address:
        for id, messages in CONVERSATIONS.items():
            heavy = {"problem_id": id, "seed": SEED, "d": 2}
            asked = {"model": "heavy", "messages": messages, "heavy": heavy}
            status, reply, _ = post(address, asked)
            assert (status, reply["heavy"]["path"]) == (200, "deliberated")
            (trace,) = (each for each in traces if each.problem.id == id)
            told = [each.answer_text for each in trace.deliberations if each.round == 2]
            assert [choice["message"]["content"] for choice in reply["choices"]] == told
    assert len(sent) == 3 * (4 + 2 + 2)
    assert sorted(map(json.dumps, server.asked)) == sent
    server.requests[:] = [(0.0, json.loads(body)) for body in sent]


def test_the_prompts_of_a_service_are_those_that_a_build_teaches(ran, tmp_path):
    server, _, folder, keys = ran
    out, text = tmp_path / "sets", CONVERSATIONS["one"][0]["content"]
    build(out, folder / "run")
    taught = {row["prompt"] for row in rows(out, "caches")}
    del server.requests[:]
    with serving(server.base_url, **keys, serve__verifier="exact") as address:
        heavy = {"problem_id": "one", "seed": SEED, "d": 2}
        assert post(address, body_of(text, heavy=heavy))[0] == 200
    read = {body["messages"][-1]["content"] for body in server.asked}
    caches = {prompt for prompt in read if "==== Attempt 1\n" in prompt}
    assert len(caches) == 2 and caches <= taught
    (attempt,) = read - caches
    wording = prompts.load("thinker", "stem", "en")
    assert attempt == prompts.thinker_prompt(text, wording)
