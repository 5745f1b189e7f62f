"""The LLM adapter by itself, over real HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, completion, serving

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import load_config
from heavydistill.heavy import prompts
from heavydistill.models.request import THINK, sample_seed, user_turn
from heavydistill.run.estimate import estimate
from heavydistill.run.generate import Plan, check
from heavydistill.run.llm import HeavyLLM

MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")
PROFILE = f"name: ours\nhub: org/ours\ntokenizer: {MICRO}\ncontext: 4096\n"
PROMPT = user_turn("What is 1 + 1?")


def asked(
    server: FakeServer,
    teacher: str,
    folder: Path,
    prompt: list[dict[str, str]] = PROMPT,
    sampling: Sampling = Sampling(max_tokens=64),
) -> list[dict[str, Any]]:
    """Three samples of one prompt, with a journal in the folder."""
    llm = HeavyLLM(
        teacher=teacher,
        sampling=sampling,
        endpoint=Endpoint(base_url=server.base_url, reasoning="optional"),
        journal=str(folder / "journal"),
    )
    llm.load()
    try:
        return llm.generate([prompt], num_generations=3)
    finally:
        llm.unload()


@pytest.mark.parametrize(
    "way", ["mine.yaml", "./mine.yaml", "sub/../mine.yaml", "{here}/mine.yaml"]
)
def test_nothing_is_paid_twice_however_the_file_of_a_profile_is_named(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "mine.yaml").write_text(PROFILE)
    with serving(lambda body: completion(f"seed {body['seed']}")) as server:
        first = asked(server, "mine.yaml", tmp_path)
        again = asked(server, way.format(here=tmp_path), tmp_path)
        assert len(server.requests) == 3
    assert again[0]["generations"] == first[0]["generations"]
    assert again[0]["seed"] == first[0]["seed"]


def test_a_plan_knows_what_was_asked_under_another_name_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(PROFILE)
    (tmp_path / "problems.jsonl").write_text('{"id": "p", "text": "1 + 1?", "reference": "2"}\n')
    with serving(lambda body: completion("\\boxed{2}")) as server:

        def plan(teacher: str) -> Plan:
            keys = {
                "teacher": teacher,
                "endpoint.base_url": server.base_url,
                "problems.source": "problems.jsonl",
                "journal": "journal",
            }
            return check(load_config(None, keys))

        first = plan("mine.yaml")
        wording = prompts.load("thinker", first.config.domain or "general", "en")
        prompt = user_turn(prompts.thinker_prompt(first.problems[0].text, wording))
        asked(server, "mine.yaml", tmp_path, prompt, first.run.in_stage(THINK).sampling)
    for teacher in ("mine.yaml", "./mine.yaml", str(tmp_path / "mine.yaml")):
        assert estimate(plan(teacher)).stages[0].in_journal.low == 3


@pytest.mark.parametrize("teacher", ["qwen3-8b", "glm-4.6", "served"])
def test_a_name_as_it_is_typed_gives_the_seeds_that_it_gave_before(tmp_path, teacher):
    # Journals of earlier versions have these seeds.
    with serving(lambda body: completion("2")) as server:
        asked(server, teacher, tmp_path)
        seeds = {body["seed"] for body in server.requests}
    assert seeds == {sample_seed(0, teacher, PROMPT, index) for index in range(3)}
