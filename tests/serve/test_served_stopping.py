"""Requests with k ``auto``: they get as many attempts as the measured rule needs, and say so."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import messages
import numpy as np
import pytest
from fault_server import FaultServer, faulty
from serving import QUESTION, body_of, is_deliberation, post, service_of, serving, stream, texts_of
from test_service_metrics import figures

from heavydistill.config.models import Sampling
from heavydistill.config.versioned import write_versioned
from heavydistill.heavy.prompts import load
from heavydistill.metrics.experiments.stopping import (
    ADAPTIVE,
    StoppingRow,
    sampling_of,
    stopping_report,
)
from heavydistill.serve.app import Site
from heavydistill.store.traces import read_traces
from heavydistill.verifiers import registry

AUTO = {"k": "auto", "seed": 1}
EXACT = f"exact@{registry.get('exact').version}"
LONG = "What is 3 + 4? Think twice."
MEASURED = {
    "thinker": ["served"],
    "deliberator": ["served"],
    "prompts": [load(role, "general", "en").version for role in ("thinker", "deliberator")],
    "verifiers": [EXACT],
    "rounds": ["1"],
}
RIGHT, TOKENS = 0, 2


def rule_file(
    folder: Path, problems: int = 1400, k: int = 4, values: Any = None, **measured: list[str]
) -> str:
    """A rule for K attempts: stop at 2, and one attempt at questions as long as ``QUESTION``."""
    same = np.ones((2 * k + 1, 5)) if values is None else values
    rows = [StoppingRow(f"p{number}", k, len(QUESTION), same) for number in range(problems)]
    report = stopping_report(rows, MEASURED | measured)
    write_versioned(report, folder / ADAPTIVE)
    return str(folder / ADAPTIVE)


def keys_of(rule: str | None, **keys: Any) -> dict[str, Any]:
    return {"serve__stopping": rule, "serve__verifier": "exact", **keys}


def by_rule(models: FaultServer, rule: str, **keys: Any) -> Any:
    """A service that stops by a rule; its address."""
    return serving(models.base_url, **keys_of(rule, **keys))


def saying(*answers: str) -> Callable[[Any, int], tuple[str, str]]:
    """Texts of a server: attempts answer in this order, again and again; deliberations say 9."""
    seeds: list[int] = []

    def text_of(body: Any, index: int) -> tuple[str, str]:
        if is_deliberation(body):
            return "so", r"It is \boxed{9}."
        seeds.append(body["seed"])
        answer = answers[(len(seeds) - 1) % len(answers)]
        return "so", rf"It is \boxed{{{answer}}}."

    return text_of


@pytest.fixture
def models() -> Iterator[FaultServer]:
    with faulty() as server:
        yield server


@pytest.fixture
def address(models, tmp_path) -> Iterator[str]:
    file = rule_file(tmp_path)
    with by_rule(models, file, serve__out=f"{tmp_path}/out") as at:
        yield at


def test_attempts_that_agree_are_the_answer_and_no_others_are_asked_for(models, address, tmp_path):
    models.text_of = saying("7")  # type: ignore[method-assign]
    events = stream(address, body_of(heavy=AUTO))
    assert len(models.asked) == 2
    reasoning, content = texts_of(events)
    assert content == r"It is \boxed{7}." and "Attempt 2 of 4 finished: 7" in reasoning
    heavy = events[-1]["heavy"]
    assert (heavy["path"], heavy["because"]) == ("voted", "the first 2 attempts agree")
    assert (heavy["stopped_at"], heavy["k"]) == (2, 4) and len(heavy["members"]) == 2
    assert heavy["vote"] == {"answer": "7", "votes": 2, "of": 2}
    assert post(address, body_of(heavy=AUTO))[1]["heavy"]["path"] == "voted"
    assert figures(address)["auto_answers_total", "2"] == 2
    assert figures(address)["requests_total", "heavy", "voted"] == 2
    assert {row.status for row in read_traces(tmp_path / "out")} == {"stopped_at: 2"}


def test_otherwise_the_others_follow_and_are_deliberated_on(models, address, tmp_path):
    models.text_of = saying("7", "8")  # type: ignore[method-assign]
    events = stream(address, body_of(heavy=AUTO))
    reasoning, content = texts_of(events)
    assert "Asking for 2 more attempts.\n" in reasoning and content == r"It is \boxed{9}."
    heavy = events[-1]["heavy"]
    assert (heavy["path"], heavy["stopped_at"]) == ("deliberated", None) and "because" not in heavy
    assert figures(address)["auto_answers_total", "0"] == 1
    assert {row.status for row in read_traces(tmp_path / "out")} == {"ok"}


@pytest.mark.parametrize(("seed", "stopped_at"), [(0, None), (5, 2)])
def test_the_requests_are_those_of_a_fixed_k_byte_for_byte(models, address, seed, stopped_at):
    heavy = post(address, body_of(heavy={"k": "auto", "seed": seed}))[1]["heavy"]
    asked = {*map(json.dumps, models.asked)}
    del models.requests[:]
    fixed = post(address, body_of(heavy={"k": 4, "seed": seed}))[1]["heavy"]
    whole = {*map(json.dumps, models.asked)}
    assert heavy["stopped_at"] == stopped_at and "stopped_at" not in fixed
    assert asked <= whole and (len(asked), len(whole)) == (stopped_at or 5, 5)


def test_an_attempt_that_fails_agrees_with_none(models, address):
    models.text_of = saying("7")  # type: ignore[method-assign]
    models.plan = lambda body, attempt: "broken" if len(models.asked) == 1 else None
    heavy = post(address, body_of(heavy=AUTO))[1]["heavy"]
    assert (heavy["path"], heavy["stopped_at"], len(heavy["members"])) == ("deliberated", None, 5)


def test_a_first_attempt_that_is_slow_for_ever_leaves_time_for_the_others(models, address):
    models.text_of = saying("7")  # type: ignore[method-assign]
    models.plan = lambda body, attempt: "hang" if len(models.asked) == 1 else None
    begun = time.monotonic()
    heavy = post(address, body_of(heavy={**AUTO, "deadline_s": 4.0}))[1]["heavy"]
    assert time.monotonic() - begun > 0.9
    assert (heavy["path"], heavy["stopped_at"], len(heavy["members"])) == ("deliberated", None, 5)
    (lost,) = (each for each in heavy["members"] if each["failure"])
    assert (lost["failure"], lost["error"]) == ("interrupted", "1 attempts were usable before it.")


def test_the_grace_begins_anew_with_the_others(models, tmp_path):
    models.text_of = saying("7", "8")  # type: ignore[method-assign]
    models.plan = lambda body, attempt: "slow stream" if len(models.asked) > 2 else None
    with by_rule(models, rule_file(tmp_path), serve__grace_s=1.0) as at:
        heavy = post(at, body_of(heavy=AUTO))[1]["heavy"]
    assert (heavy["path"], len(heavy["members"])) == ("deliberated", 5)
    assert not [each for each in heavy["members"] if each["failure"]]


def test_with_the_gate_short_questions_get_one_attempt(models, tmp_path):
    models.text_of = saying("7")  # type: ignore[method-assign]
    file = rule_file(tmp_path)
    with by_rule(models, file, serve__gate=True) as address:
        heavy = post(address, body_of(heavy=AUTO))[1]["heavy"]
        assert (heavy["path"], heavy["stopped_at"], len(models.asked)) == ("single", 1, 1)
        assert heavy["because"] == "the question has at most 14 characters"
        assert post(address, body_of(LONG, heavy=AUTO))[1]["heavy"]["stopped_at"] == 2
        del models.requests[:]
        models.plan = lambda body, attempt: "broken" if len(models.asked) == 1 else None
        heavy = post(address, body_of(heavy=AUTO))[1]["heavy"]
        assert (heavy["path"], heavy["stopped_at"]) == ("deliberated", None)
        assert figures(address)["auto_answers_total", "1"] == 1


def test_the_end_of_a_service_says_how_often_it_stopped(models, tmp_path):
    service = service_of(models.base_url, **keys_of(rule_file(tmp_path)))
    with contextlib.closing(service), Site(service).listening() as address:
        service.load()
        for answers in (["7", "8"], ["7"], ["7"]):
            models.text_of = saying(*answers)  # type: ignore[method-assign]
            post(address, body_of(heavy=AUTO))
        assert [*service.figures.lines()] == [
            "heavy: 3 answered, 2 asked again",
            "Of 1 deliberations, 0 speak of attempts in their answer, 0 in their thinking",
            "k auto: 3 answered, stopped early: 2 after 2 attempt(s)",
        ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": "vote"}, "for the model heavy"),
        ({"model": "single"}, "for the model heavy"),
        ({"response_format": {"type": "json_object"}}, "without a deliberation"),
    ],
)
def test_requests_that_cannot_stop_early_are_refused(models, address, more, said):
    status, reply, _ = post(address, body_of(heavy=AUTO) | more)
    assert (status, reply["error"]["param"]) == (400, "heavy.k")
    assert said in reply["error"]["message"] and not models.asked


def test_without_a_rule_auto_is_refused_by_name(models):
    with serving(models.base_url) as address:
        status, reply, _ = post(address, body_of(heavy=AUTO))
        assert (status, reply["error"]["param"]) == (400, "heavy.k")
        assert "serve.stopping" in reply["error"]["message"]
        status, reply, _ = post(address, body_of(heavy={"k": "Auto"}))
        assert (status, reply["error"]["param"]) == (400, "heavy.k")
    assert not models.asked


@pytest.mark.parametrize(
    ("measured", "keys", "differs"),
    [
        ({"thinker": ["other"]}, {}, "thinker other, served served"),
        ({"deliberator": ["a", "b"]}, {}, "deliberator a and b, served served"),
        ({"rounds": ["2"]}, {}, "rounds 2, served 1"),
        ({"verifiers": ["exact@0"]}, {}, "verifiers exact@0, served exact@"),
        ({}, {"serve__verifier": None}, f"verifiers {EXACT}, served text"),
        ({}, {"think__k": 8}, "K 4, served 8"),
        ({}, {"domain": "brief"}, "prompts "),
        ({"prompts": []}, {}, "prompts none, served "),
    ],
)
def test_a_rule_of_other_models_prompts_or_verifiers_is_refused(
    models, tmp_path, measured, keys, differs
):
    file = rule_file(tmp_path, **measured)
    with messages.raises("stopping_of_others", file=file) as caught:
        _open(models, file, **keys)
    assert differs in str(caught.value) and str(caught.value).count(", served ") == 1


def test_a_rule_that_was_measured_at_another_sampling_is_refused(models, tmp_path, caplog):
    _open(models, rule_file(tmp_path))
    assert "does not say how its thinker sampled" in caplog.text
    at = {"think__sampling__temperature": 0.6, "think__sampling__max_tokens": 300}
    values = {"temperature": 0.6, "top_p": 0.95, "top_k": 0, "min_p": 0, "max_tokens": 300}
    name, measured = sampling_of("thinker", Sampling(**values))
    file = rule_file(tmp_path, **{name: sorted(measured)})
    _open(models, file, **at)
    with messages.raises("stopping_of_others", file=file) as caught:
        _open(models, file, **at | {"think__sampling__temperature": 0.7})
    assert "thinker_sampling temperature 0.6, served temperature 0.7. " in str(caught.value)


def test_a_judge_behind_the_verdicts_is_no_other_verifier(models, tmp_path):
    _open(models, rule_file(tmp_path, verifiers=[f"judge:m@1 after {EXACT}"]))


def test_a_file_that_confirms_no_rule_is_refused_with_its_reason(models, tmp_path):
    few = rule_file(tmp_path, problems=40)
    with messages.raises("stopping_not_confirmed", file=few, why="none loses at most 0.5 points"):
        _open(models, few)
    with messages.raises("gate_not_confirmed", file=few):
        _open(models, few, serve__gate=True)
    costly = np.ones((9, 5))
    costly[:4, TOKENS], costly[-1, RIGHT] = 0.5, 0.9
    beaten = rule_file(tmp_path, values=costly)
    with messages.raises("stopping_not_confirmed", file=beaten, why="the vote of 4 is better"):
        _open(models, beaten)


def test_a_gate_alone_is_a_rule(models, tmp_path):
    models.text_of = saying("7")  # type: ignore[method-assign]
    wrong = np.ones((9, 5))
    wrong[5:8, RIGHT] = 0.5  # of the rules that stop at 2 or more
    file = rule_file(tmp_path, values=wrong)
    with by_rule(models, file, serve__gate=True) as address:
        assert post(address, body_of(heavy=AUTO))[1]["heavy"]["stopped_at"] == 1
        assert post(address, body_of(LONG, heavy=AUTO))[1]["heavy"]["path"] == "deliberated"


def test_files_that_are_no_rule_are_refused(models, tmp_path):
    with messages.raises("no_stopping_file", folder=tmp_path):
        _open(models, str(tmp_path / ADAPTIVE))
    with messages.raises("gate_alone"):
        _open(models, None, serve__gate=True)


def _open(models: FaultServer, rule: str | None, **keys: Any) -> None:
    with serving(models.base_url, **keys_of(rule, **keys)):
        pass
