"""Answers of the service as clients read them: the openai library, and plain HTTP."""

import asyncio
import contextlib
import json
import time
import urllib.request

import openai
import pytest
from command_line import MICRO
from fault_server import faulty
from serving import QUESTION, body_of, is_deliberation, post, service_of, serving, stream, texts_of
from trainings import trained_deliberator

from heavydistill.heavy.prompts import load
from heavydistill.serve import replies

MESSAGES = [{"role": "user", "content": QUESTION}]
SEEDED = {"heavy": {"seed": 1}}


def test_the_openai_library_reads_an_answer_and_its_stream(client, models):
    del models.requests[:]
    whole = client.chat.completions.create(model="heavy", messages=MESSAGES, extra_body=SEEDED)
    (choice,), heavy = whole.choices, whole.model_extra["heavy"]
    (body,) = filter(is_deliberation, models.asked)
    assert choice.finish_reason == "stop"
    assert choice.message.content == models.text_of(body, 0)[1]
    assert heavy["path"] == "deliberated" and len(heavy["members"]) == 5
    assert whole.usage.completion_tokens == sum(m["completion_tokens"] for m in heavy["members"])
    assert whole.usage.prompt_tokens == sum(m["prompt_tokens"] for m in heavy["members"])
    chunks = [
        *client.chat.completions.create(
            model="heavy",
            messages=MESSAGES,
            extra_body=SEEDED,
            stream=True,
            stream_options={"include_usage": True},
        )
    ]
    first, *rest, end, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(each.choices[0].delta.content or "" for each in rest) == choice.message.content
    thoughts = [each.choices[0].delta.model_extra for each in rest]
    read = "".join(each.get("reasoning", "") for each in thoughts)
    assert read == "".join(each.get("reasoning_content", "") for each in thoughts)
    assert sorted(read.splitlines()) == sorted(choice.message.model_extra["reasoning"].splitlines())
    assert end.choices[0].finish_reason == "stop"
    assert end.model_extra["heavy"]["seed"] == 1
    assert usage.choices == [] and usage.usage == whole.usage


def test_a_user_is_told_that_one_model_has_both_roles(models):
    with faulty() as other:
        apart = {"base_url": other.base_url, "tokenizer": MICRO, "context": 4096}
        for place, is_told in ((None, True), (apart, False)):
            service = service_of(models.base_url, serve__deliberator_endpoint=place)
            with contextlib.closing(service):
                service.load()
                told = " ".join(service.notes())
            assert ("served has both roles" in told) is is_told


def test_a_vote_without_two_equal_answers_says_so(models):
    with faulty() as server, serving(server.base_url) as address:
        server.text_of = lambda body, index: ("", rf"\boxed{{{body['seed']}}}")  # type: ignore[method-assign]
        heavy = post(address, body_of(model="vote"))[1]["heavy"]
    assert (heavy["path"], heavy["because"]) == ("single", "no two attempts agree")


def test_the_asynchronous_client_reads_several_choices(address, models):
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=address, api_key="none") as client:
            texts = ["", ""]
            asked = client.chat.completions.create(
                model="heavy", messages=MESSAGES, n=2, stream=True, extra_body=SEEDED
            )
            async for chunk in await asked:
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
            return texts

    del models.requests[:]
    texts = asyncio.run(ask())
    bodies = filter(is_deliberation, models.asked)
    assert sorted(texts) == sorted(models.text_of(body, 0)[1] for body in bodies)


def test_baselines_are_models(client, models):
    listed = list(client.models.list())
    assert [each.id for each in listed] == ["heavy", "vote", "single"]
    assert client.models.retrieve("vote") == listed[1]
    with pytest.raises(openai.NotFoundError, match="Ask heavy, vote, single"):
        client.models.retrieve("gpt-4")
    for name, calls in (("vote", 4), ("single", 1)):
        del models.requests[:]
        whole = client.chat.completions.create(model=name, messages=MESSAGES, extra_body=SEEDED)
        attempts = [models.text_of(body, 0)[1] for body in models.asked]
        assert len(attempts) == calls
        answers = [each["answer"] for each in whole.model_extra["heavy"]["members"]]
        most = max(map(answers.count, answers))
        expected = next(
            a for a, b in zip(answers, answers, strict=True) if answers.count(b) == most
        )
        assert expected in whole.choices[0].message.content
        path = "voted" if most > 1 else "single"
        assert whole.model_extra["heavy"]["path"] == path


@pytest.mark.parametrize(("expose", "shown"), [("none", 0), ("summary", 1), ("full", 2)])
def test_the_reasoning_shows_as_much_as_is_asked_for(address, models, expose, shown):
    del models.requests[:]
    events = stream(address, body_of(heavy={"seed": 2, "expose": expose}))
    reasoning, content = texts_of(events)
    (last,) = filter(is_deliberation, models.asked)
    thought, text = models.text_of(last, 0)
    assert content == text and (thought in reasoning) == (shown > 0)
    attempts = [models.text_of(each, 0)[1] for each in models.asked if not is_deliberation(each)]
    assert all((each in reasoning) == (shown == 2) for each in attempts)
    assert ("Deliberating on 4 attempts." in reasoning) == (shown > 0)
    members = events[-1]["heavy"]["members"]
    assert all(("answer" in each) == (shown > 0) for each in members)


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"metadata": {"task": "title_generation"}}, "metadata names a task"),
        ({"max_tokens": 20}, "at most 20 tokens are asked for"),
        ({"messages": [{"role": "user", "content": "### Task:\nGive a title."}]}, "### Task:"),
    ],
)
def test_what_a_front_end_asks_beside_the_conversation_is_one_attempt(
    address, models, more, because
):
    del models.requests[:]
    status, reply, _ = post(address, body_of(**more))
    assert status == 200 and len(models.asked) == 1
    assert (reply["heavy"]["path"], reply["model"]) == ("single", "single")
    assert because in reply["heavy"]["because"]


def test_a_short_answer_to_a_request_with_parameters_of_the_service_is_deliberated(address):
    _, reply, _ = post(address, body_of(max_tokens=20, heavy={"k": 2}))
    assert (reply["heavy"]["path"], len(reply["heavy"]["members"])) == ("deliberated", 3)


def test_parameters_reach_the_deliberator_alone(address, models):
    del models.requests[:]
    body = body_of(max_tokens=100, temperature=0.3, top_p=0.5, heavy={"k": 3, "deadline_s": 60})
    assert post(address, body)[0] == 200
    own = [each for each in models.asked if is_deliberation(each)]
    assert [(e["max_tokens"], e["temperature"], e["top_p"]) for e in own] == [(100, 0.3, 0.5)]
    others = [each for each in models.asked if not is_deliberation(each)]
    assert len(others) == 3
    assert all((e["temperature"], e["top_p"]) == (1.0, 0.95) for e in others)


def test_a_response_format_reaches_the_answer_alone_and_nothing_takes_its_place(models):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    body = body_of(response_format=form, max_tokens=20, heavy={"seed": 1})
    with serving(models.base_url, deliberate__rounds=2) as address:
        del models.requests[:]
        assert post(address, body)[1]["heavy"]["path"] == "deliberated"
        sent = [each.get("response_format") for each in models.asked]
        assert sent == [None] * 5 + [form]
        models.plan = lambda body, attempt: "refused" if "response_format" in body else None
        status, reply, _ = post(address, body)
        models.plan = lambda body, attempt: None
    assert (status, reply["error"]["code"]) == (502, "no_deliberation")
    assert "the deliberation failed: rejected" in reply["error"]["message"]
    here = {"deliberator": "micro", "serve__deliberator_endpoint": {}, "domain": "brief"}
    with serving(models.base_url, **here) as address:
        status, reply, _ = post(address, body)
    assert (status, reply["error"]["param"]) == (400, "response_format")


def test_an_equal_seed_is_an_equal_request_and_none_is_a_new_one(address, models):
    asked = []
    for heavy in ({"seed": 7}, {"seed": 7}, {}):
        del models.requests[:]
        _, reply, _ = post(address, body_of(heavy=heavy))
        asked.append(sorted(map(json.dumps, models.asked)))
    assert asked[0] == asked[1] != asked[2]
    del models.requests[:]
    post(address, body_of(seed=reply["heavy"]["seed"]))
    assert sorted(map(json.dumps, models.asked)) == asked[2]


def test_a_silent_connection_is_kept_alive(models, address, monkeypatch):
    monkeypatch.setattr(replies, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(models, "seconds", 0.3)
    events = stream(address, body_of())
    assert events.count(": keep-alive") >= 4
    data = json.dumps(body_of()).encode()
    asked = urllib.request.Request(
        f"{address}/chat/completions", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as reply:
        text = reply.read().decode()
    assert text.startswith("\n\n\n") and json.loads(text)["heavy"]["path"] == "deliberated"
    patient = openai.OpenAI(base_url=address, api_key="none", timeout=0.25, max_retries=0)
    assert patient.chat.completions.create(model="heavy", messages=MESSAGES).choices


def test_the_answer_begins_before_it_is_whole(models):
    with serving(models.base_url, think__k=2) as address:
        asked = urllib.request.Request(
            f"{address}/chat/completions",
            json.dumps({**body_of(), "stream": True}).encode(),
            {"Content-Type": "application/json"},
        )
        models.plan = lambda body, attempt: "slow stream" if is_deliberation(body) else None
        begun, seen = time.monotonic(), dict[str, float]()
        with urllib.request.urlopen(asked, timeout=60) as reply:
            for line in reply:
                for name in ("role", "reasoning", "content", 'finish_reason": "stop'):
                    if f'"{name}"' in line.decode():
                        seen.setdefault(name, time.monotonic() - begun)
        models.plan = lambda body, attempt: None
    assert seen["role"] < 0.5
    assert seen['finish_reason": "stop'] - seen["reasoning"] > 1.5


def test_each_role_may_have_an_endpoint_of_its_own_or_run_in_this_process(models):
    with faulty() as others:
        apart = {"base_url": others.base_url, "context": 2048, "tokenizer": MICRO}
        with serving(models.base_url, serve__deliberator_endpoint=apart) as address:
            del models.requests[:]
            _, reply, _ = post(address, body_of())
            assert [is_deliberation(each) for each in models.asked] == [False] * 4
            assert [is_deliberation(each) for each in others.asked] == [True]
            status, reply, _ = post(address, body_of(heavy={"budget_tokens": 1500}))
            assert status == 400 and "holds 960 tokens" in reply["error"]["message"]
    here = {"deliberator": "micro", "serve__deliberator_endpoint": {}, "domain": "brief"}
    with serving(models.base_url, **here) as address:
        _, reply, _ = post(address, body_of(heavy={"seed": 3}))
    members = reply["heavy"]["members"]
    assert [each["model"] for each in members] == ["served"] * 4 + ["micro"]
    assert reply["heavy"]["path"] == "deliberated"


def test_a_trained_model_that_has_learnt_other_prompts_is_warned_of(tmp_path, models, caplog):
    learnt = load("deliberator", "brief", "en").version
    student = trained_deliberator(tmp_path / "student", [learnt])
    here = {"deliberator": str(student), "serve__deliberator_endpoint": {}}
    for domain, is_warned in (("general", True), ("brief", False)):
        caplog.clear()
        with serving(models.base_url, **here, domain=domain):
            warned = f"trained on {learnt}" in caplog.text and "--set domain=brief" in caplog.text
            assert warned == is_warned
