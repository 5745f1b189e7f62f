"""What goes wrong below the service, and with its clients: each fault is typed, none lasts."""

import concurrent.futures
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import openai
import pytest
from fault_server import FaultServer, faulty
from serving import body_of, is_deliberation, post, serving, stream, texts_of

from heavydistill.models.request import DEPTH_HEADER
from heavydistill.serve import app
from heavydistill.serve.episode import ServedEpisode


@contextlib.contextmanager
def faults(plan: Any, **keys: Any) -> Iterator[tuple[FaultServer, str]]:
    """A server of models with this plan, and the service."""
    with faulty(plan=plan) as models, serving(models.base_url, **keys) as address:
        yield models, address


def index_of(models: FaultServer, body: dict[str, Any]) -> int:
    """The number of an attempt in the order of its arrival."""
    arrived = [each["seed"] for each in models.asked if not is_deliberation(each)]
    return list(dict.fromkeys(arrived)).index(body["seed"])


def failures(reply: Any) -> list[str]:
    heavy = reply.get("heavy") or reply["error"]["heavy"]
    return [each["failure"] for each in heavy["members"] if each["failure"]]


@pytest.mark.parametrize(
    ("fault", "failure"),
    [("busy", "overloaded"), ("broken", "server"), ("cut", "cut_off"), ("refused", "rejected")],
)
def test_attempts_that_fail_are_typed_and_the_others_are_deliberated_on(fault, failure):
    held: list[FaultServer] = []

    def plan(body: Any, attempt: int) -> str | None:
        fails = not is_deliberation(body) and index_of(held[0], body) < 2
        return fault if fails else None

    with faults(plan) as (models, address):
        held.append(models)
        status, reply, _ = post(address, body_of())
    assert (status, reply["heavy"]["path"]) == (200, "deliberated")
    assert failures(reply) == [failure, failure]
    assert "Deliberating on 2 attempts." in reply["choices"][0]["message"]["reasoning"]
    assert reply["usage"]["heavy"]["uncounted_calls"] == 2


def test_an_attempt_that_is_slow_for_ever_costs_the_grace_and_is_cancelled():
    held: list[FaultServer] = []

    def plan(body: Any, attempt: int) -> str | None:
        return "hang" if not is_deliberation(body) and index_of(held[0], body) == 0 else None

    with faults(plan, serve__grace_s=0.2) as (models, address):
        held.append(models)
        begun = time.monotonic()
        status, reply, _ = post(address, body_of())
        assert time.monotonic() - begun < 10
        assert (status, reply["heavy"]["path"]) == (200, "deliberated")
        assert failures(reply) == ["interrupted"]
        assert _is_idle(models)


def test_without_a_grace_stragglers_are_awaited_for_half_of_the_deadline():
    held: list[FaultServer] = []

    def plan(body: Any, attempt: int) -> str | None:
        return "hang" if not is_deliberation(body) and index_of(held[0], body) == 0 else None

    with faults(plan) as (models, address):
        held.append(models)
        begun = time.monotonic()
        _, reply, _ = post(address, body_of(heavy={"deadline_s": 3.0}))
    assert 1.4 < time.monotonic() - begun < 3
    assert (reply["heavy"]["path"], failures(reply)) == ("deliberated", ["interrupted"])


@pytest.mark.parametrize(
    ("fault", "status", "failure"),
    [("busy", 503, "overloaded"), ("broken", 502, "server"), ("hang", 504, "timeout"),
     ("bad key", 502, "rejected"), ("too long", 400, "too_long")],
)  # fmt: skip
def test_if_all_attempts_fail_the_error_says_why(fault, status, failure):
    with faults(lambda body, attempt: fault) as (models, address):
        body = body_of(heavy={"deadline_s": 2.0})
        answered, reply, headers = post(address, body)
        assert (answered, failures(reply)) == (status, [failure] * 4)
        assert "None of 4 attempts is usable" in reply["error"]["message"]
        assert ("Retry-After" in headers) == (status == 503)
        events = stream(address, body)
        assert texts_of(events)[1] == "" and "None of 4" in events[-1]["error"]["message"]
        client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
        extra = {"heavy": body.pop("heavy")}
        streamed = client.chat.completions.create(**body, stream=True, extra_body=extra)
        with pytest.raises(openai.APIError, match="None of 4 attempts"):
            list(streamed)
        assert _is_idle(models)


@pytest.mark.parametrize("fault", ["busy", "broken", "hang", "refused"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_if_the_deliberator_fails_the_vote_answers_and_says_so(fault, is_streamed):
    def plan(body: Any, attempt: int) -> str | None:
        return fault if is_deliberation(body) else None

    with faults(plan, think__k=8) as (models, address):
        body = body_of(heavy={"deadline_s": 2.0, "seed": 1})
        events = stream(address, body) if is_streamed else []
        reply = events[-1] if is_streamed else post(address, body)[1]
        attempts = {each["seed"]: models.text_of(each, 0)[1] for each in models.asked}
    heavy = reply["heavy"]
    assert heavy["path"] == "voted" and heavy["vote"]["votes"] > 1
    assert heavy["because"].startswith("the deliberation failed: ")
    content = texts_of(events)[1] if is_streamed else reply["choices"][0]["message"]["content"]
    assert f"\\boxed{{{heavy['vote']['answer']}}}" in content and content in attempts.values()


def test_too_few_attempts_are_not_deliberated_on():
    held: list[FaultServer] = []

    def plan(body: Any, attempt: int) -> str | None:
        return "broken" if index_of(held[0], body) > 0 else None

    with faults(plan) as (models, address):
        held.append(models)
        status, reply, _ = post(address, body_of(heavy={"min_k": 2}))
    assert (status, reply["heavy"]["path"], reply["heavy"]["vote"]) == (200, "single", "undecided")
    assert reply["heavy"]["because"] == "usable attempts: 1 of 4, and min_k is 2"


def test_a_deliberation_that_breaks_off_after_its_first_word_is_an_error():
    def plan(body: Any, attempt: int) -> str | None:
        return "cut" if is_deliberation(body) else None

    with faults(plan, endpoint__retries=2) as (models, address):
        models.reasoning = "none"
        post(address, body_of(model="single"))  # shows that the model writes no thinking
        del models.requests[:]
        events = stream(address, body_of())
        assert texts_of(events)[1] and "broke off: cut_off" in events[-1]["error"]["message"]
        assert sum(map(is_deliberation, models.asked)) == 1  # not tried again
        status, reply, _ = post(address, body_of())  # nothing was read of an answer in one piece
        assert status == 200 and reply["heavy"]["path"] in ("voted", "single")
        assert "the deliberation failed: cut_off" in reply["heavy"]["because"]
        models.plan = lambda body, attempt: "cut"
        events = stream(address, body_of(model="single"))
        assert texts_of(events)[1] and "broke off: cut_off" in events[-1]["error"]["message"]


def test_a_defect_of_the_service_ends_a_stream_with_an_error(monkeypatch, caplog):
    def broken(self: Any, index: int) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ServedEpisode, "_report", broken)
    with faults(None) as (_, address):
        *_, last = stream(address, body_of())
        assert post(address, body_of())[0] == 500
    assert last["error"]["code"] == "defect" and "a bug" in caplog.text


def test_an_outage_and_malformed_requests_end_nothing():
    fault: list[str | None] = ["starting"]
    with faults(lambda body, attempt: fault[0], endpoint__timeout_s=1.0) as (_, address):
        begun = time.monotonic()
        while time.monotonic() - begun < 2.5:
            # A server that refuses everything is given a pause, in which requests wait.
            assert post(address, body_of(heavy={"deadline_s": 1.0}))[0] in (503, 504)
        fault[0] = "refused"
        for _ in range(3):
            assert post(address, body_of())[0] == 502
        for _ in range(3):
            assert post(address, b'{"model": "heavy", "messages": [')[0] == 400
        fault[0] = None
        status, reply, _ = post(address, body_of())
        assert (status, reply["heavy"]["path"]) == (200, "deliberated")


def test_requests_outlive_a_restart_of_the_models_server():
    with (
        contextlib.ExitStack() as first,
        concurrent.futures.ThreadPoolExecutor(1) as clients,
    ):
        models = first.enter_context(faulty(plan=lambda body, attempt: "hang up"))
        with serving(models.base_url, endpoint__retries=5) as address:
            asked = clients.submit(post, address, body_of())
            assert _wait(lambda: len(models.asked) >= 4)
            first.close()
            with faulty(port=urlsplit(models.base_url).port) as again:
                status, reply, _ = asked.result()
    assert (status, reply["heavy"]["path"], failures(reply)) == (200, "deliberated", [])
    assert len(again.asked) == 5


def test_a_service_that_stops_says_so_to_the_clients_that_wait(caplog):
    with faulty(plan=lambda body, attempt: "hang") as models:
        with (
            concurrent.futures.ThreadPoolExecutor(2) as clients,
            serving(models.base_url) as address,
        ):
            whole = clients.submit(post, address, body_of())
            streamed = clients.submit(stream, address, body_of())
            assert _wait(lambda: models.in_flight == 8)
            begun = time.monotonic()
        assert time.monotonic() - begun < 4
        status, reply, headers = whole.result()
        assert (status, reply["error"]["code"]) == (503, "stopped") and "Retry-After" in headers
        assert streamed.result()[-1]["error"]["code"] == "stopped"
        assert _is_idle(models) and not caplog.records


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_goes_cancels_all_its_calls_at_once(is_streamed, caplog):
    with faults(lambda body, attempt: "hang", think__k=8) as (models, address):
        place = urlsplit(address)
        data = json.dumps({**body_of(), "stream": is_streamed}).encode()
        head = (
            f"POST {place.path}/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(head.encode() + data)
            _wait(lambda: models.in_flight == 8)
        assert _is_idle(models) and not caplog.records
        models.plan = lambda body, attempt: None
        assert post(address, body_of())[0] == 200


def test_requests_of_the_service_say_their_depth_and_such_are_refused():
    with faults(lambda body, attempt: None) as (models, address):
        status, reply, _ = post(address, body_of(), **{DEPTH_HEADER: "1"})
        assert (status, reply["error"]["code"], models.asked) == (508, "recursion", [])


def test_a_service_that_is_its_own_model_refuses_at_once():
    with (
        faults(lambda body, attempt: None) as (_, inner),
        serving(inner, teacher="single") as outer,
    ):
        status, reply, _ = post(outer, body_of())
        assert status == 502 and failures(reply) == ["server"] * 4
        assert "HTTP 508" in reply["error"]["message"]


def _is_idle(models: FaultServer) -> bool:
    """Whether the calls end that are in flight, far sooner than by themselves."""
    return _wait(lambda: models.in_flight == 0)


def _wait(holds: Any) -> bool:
    latest = time.monotonic() + 10
    while not holds() and time.monotonic() < latest:
        time.sleep(0.01)
    return bool(holds())


def test_a_client_that_reads_nothing_does_not_keep_its_place(monkeypatch, caplog):
    monkeypatch.setattr(app, "_LAST_WORDS_S", 0.5)
    long = {"content": "word " * 4_000_000}
    with faults(lambda body, attempt: None) as (models, address):
        models.text_of = lambda body, index: ("", long["content"])  # type: ignore[method-assign]
        place = urlsplit(address)
        body = body_of(model="single", heavy={"deadline_s": 2.0}, stream=True)
        data = json.dumps(body).encode()
        head = (
            f"POST {place.path}/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        with socket.create_connection((place.hostname, place.port)) as client:
            client.sendall(head.encode() + data)
            client.recv(100)
            url = f"http://{place.netloc}/health"
            assert _wait(lambda: json.loads(urlopen(url).read())["requests"] == 0)
