"""The bundled weights: small, standard, and able to do what they are for."""

from pathlib import Path

import pytest

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import Problems
from heavydistill.heavy import prompts
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, sample_seed, user_turn
from heavydistill.problems import load
from heavydistill.text.extraction import boxed

MODELS = ["micro", "micro-student"]


def folder(name: str) -> Path:
    return Path(profile_at(name, Endpoint()).model)


def test_both_models_together_are_small():
    files = [file for name in MODELS for file in folder(name).iterdir()]
    assert sum(file.stat().st_size for file in files) < 12_000_000


@pytest.mark.parametrize("name", MODELS)
def test_it_thinks_and_answers_in_the_form_that_verifiers_read(name):
    prompt = prompts.load("thinker", "brief", "en")
    problems = load(Problems(size=12, seed=123))
    requests = [
        Request(
            user_turn(prompts.thinker_prompt(problem.text, prompt)),
            Sampling(max_tokens=192),
            sample_seed(0, problem.id),
        )
        for problem in problems
    ]
    responses = LocalEngine(str(folder(name))).generate(requests)
    assert all(response.finish_reason == "stop" for response in responses)
    assert all(response.reasoning for response in responses)
    assert all(boxed(response.answer_text) is not None for response in responses)
    right = sum(
        boxed(response.answer_text) == problem.reference
        for response, problem in zip(responses, problems, strict=True)
    )
    assert right >= 1
