"""The figures of a service, as Prometheus reads them."""

import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from fault_server import faulty
from prometheus_client.parser import text_string_to_metric_families
from serving import body_of, is_deliberation, post, serving, stream


def figures(address: str) -> dict[tuple[str, ...], float]:
    """The figures of the service by name and values of the labels, in the labels' order."""
    with urllib.request.urlopen(address.removesuffix("/v1") + "/metrics", timeout=60) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain")
        text = reply.read().decode()
    return {
        (
            each.name.removeprefix("heavydistill_"),
            *(value for _, value in sorted(each.labels.items())),
        ): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_requests_calls_tokens_and_retries_are_counted():
    seen: list[dict[str, Any]] = []

    def plan(body: Any, attempt: int) -> str | None:
        seen.append(body)
        return "broken" if len(seen) == 1 else None

    with faulty(plan=plan) as models, serving(models.base_url) as address:
        used = [post(address, body_of(model=name))[1]["usage"] for name in ("heavy", "vote")]
        stream(address, body_of(model="single"))
        stream(address, body_of(model="single", question="another"))
        before = figures(address)
        models.plan = lambda body, attempt: "broken"
        assert post(address, body_of("third"))[0] == 502
        now = figures(address)
    assert before["requests_total", "heavy", "deliberated"] == 1
    assert before["requests_total", "single", "single"] == 2
    assert sum(v for k, v in before.items() if k[:2] == ("requests_total", "vote")) == 1
    assert before["failed_calls_total", "server", "thinker"] == 1
    deliberator = used[0]["heavy"]["deliberator_tokens"]
    assert before["tokens_total", "completion", "deliberator"] == deliberator > 0
    read = sum(v for k, v in before.items() if k[:2] == ("tokens_total", "prompt"))
    assert read > sum(each["prompt_tokens"] for each in used)  # and those of single
    assert before["asked_again_total", "heavy"] == before["asked_again_total", "vote"] == 1
    assert ("asked_again_total", "single") not in before
    assert before["first_content_seconds_count", "single"] == 2
    assert ("first_content_seconds_count", "heavy") not in before  # it was not streamed
    assert before[("requests_in_progress",)] == 0
    assert not [name for name, *_ in now if name.endswith("_created")]
    assert now["requests_total", "heavy", "failed"] == 1
    assert now["failed_calls_total", "server", "thinker"] == 5


def test_deliberations_that_speak_of_attempts_are_counted():
    with faulty() as models, serving(models.base_url) as address:
        models.text_of = lambda body, index: ("Attempts 1 and 2 agree.", "It is \\boxed{4}.")  # type: ignore[method-assign]
        post(address, body_of())
        models.text_of = lambda body, index: ("so", "As attempt 2 says: \\boxed{4}.")  # type: ignore[method-assign]
        post(address, body_of(heavy={"d": 2}))
        post(address, body_of(model="vote"))
        seen = figures(address)
    assert seen[("deliberations_total",)] == 3
    assert (seen["leaks_total", "answer"], seen["leaks_total", "thinking"]) == (2, 1)


def test_a_client_that_goes_is_counted_as_such():
    with (
        faulty(plan=lambda body, _: "hang" if is_deliberation(body) else None) as models,
        serving(models.base_url) as address,
    ):
        data = b'{"model": "heavy", "messages": [{"role": "user", "content": "?"}]}'
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}/chat/completions", data, headers)
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(request, timeout=1).read()
        latest, seen = time.monotonic() + 10, figures(address)
        while seen[("requests_in_progress",)] and time.monotonic() < latest:
            time.sleep(0.01)
            seen = figures(address)
    assert seen["requests_total", "heavy", "abandoned"] == 1
    assert seen["tokens_total", "completion", "thinker"] > 0  # the attempts had ended


def test_without_the_library_the_address_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with faulty() as models, serving(models.base_url) as address:
        assert post(address, body_of())[0] == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            figures(address)
    assert caught.value.code == 501 and b"heavydistill[serve]" in caught.value.read()
