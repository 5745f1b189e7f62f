from __future__ import annotations

import pytest
from samples import trajectory

from heavydistill.errors import ProblemsError
from heavydistill.schema import Problem, Trajectory
from heavydistill.verifiers import registry


def answered(answer_text: str, finish_reason: str = "stop") -> Trajectory:
    error = "refused" if finish_reason == "error" else None
    return trajectory(answer_text=answer_text, finish_reason=finish_reason, error=error)


def problem(verifier: str = "exact", verifier_args: str = "{}") -> Problem:
    return Problem(id="p", text="?", reference="18", verifier=verifier, verifier_args=verifier_args)


@pytest.mark.parametrize(
    ("generation", "label", "reason"),
    [
        (answered(r"\boxed{18}"), "correct", "equal"),
        (answered(r"\boxed{18}", "error"), "undecided", "error"),
        (answered(r"\boxed{18}", "length"), "undecided", "truncated"),
        (answered(" \n"), "incorrect", "no_answer"),
        (answered("18"), "incorrect", "no_answer"),
    ],
)
def test_a_verdict_follows_from_what_became_of_the_generation(generation, label, reason):
    verdict = registry.verdict_of(problem(), generation)
    assert (verdict.label, verdict.reason) == (label, reason)
    assert verdict.verifier == "exact@1"


def test_an_exception_of_a_verifier_is_undecided():
    verdict = registry.verdict_of(problem(verifier_args='{"maker": 1}'), answered("18"))
    assert (verdict.label, verdict.reason) == ("undecided", "verifier_error:ValueError")


def test_a_verifier_that_does_not_exist_is_undecided_in_a_run_and_an_error_before_it():
    verdict = registry.verdict_of(problem(verifier="exakt"), answered("18"))
    assert (verdict.label, verdict.reason) == ("undecided", "unknown_verifier")
    with pytest.raises(ProblemsError, match="Name one of: exact, procedural"):
        registry.get("exakt")


def test_every_verifier_is_found_by_its_name():
    assert [registry.get(name).name for name in registry.names()] == registry.names()
