"""What a run shows of its server, said without asking it anything."""

from __future__ import annotations

from typing import Any

from summaries import summary

from heavydistill.cli.remarks import FIRST_TRAJECTORIES, remarks, thinking_remark
from heavydistill.config.run import load_config
from heavydistill.models.resolve import ResolvedRun, resolve

URL = "http://localhost:1/v1"


def config(teacher: str = "some-model", **keys: Any) -> ResolvedRun:
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    given = {"teacher": teacher, "endpoint.base_url": URL, "endpoint.capabilities": {}, **dotted}
    return resolve(load_config(overrides=given))


def test_a_teacher_without_a_profile_that_never_thinks_is_reported_with_the_fix():
    (line,) = remarks(summary(thoughts=0), config())
    assert "No response of some-model held thinking" in line
    assert "answers without reasoning" in line
    assert "--reasoning-parser" in line and "heavydistill doctor" in line


def test_there_is_no_remark_where_thinking_came_or_a_profile_knows():
    assert remarks(summary(thoughts=1), config()) == []
    assert remarks(summary(thoughts=0), config("deepseek-v3.2", endpoint__tokenizer="x")) == []


def test_a_checkpoint_without_a_profile_gets_advice_of_its_own():
    local = load_config(overrides={"teacher": "heavydistill/micro/teacher"})
    (line,) = remarks(summary(thoughts=0), resolve(local))
    assert "held thinking" in line and "profile" in line and "vLLM" not in line


def test_while_a_run_goes_on_the_remark_waits_for_some_trajectories():
    assert thinking_remark(config(), FIRST_TRAJECTORIES - 1, 0) == ""
    assert thinking_remark(config(), FIRST_TRAJECTORIES, 1) == ""
    assert "held thinking" in thinking_remark(config(), FIRST_TRAJECTORIES, 0)


def test_pools_of_one_text_are_reported_unless_the_temperature_is_zero():
    (line,) = remarks(summary(thoughts=9, same_texts=30), config())
    assert "In 30 of" in line and "the same text" in line and "cache of responses" in line
    cold = config(think__sampling={"temperature": 0.0})
    assert remarks(summary(thoughts=9, same_texts=30), cold) == []
