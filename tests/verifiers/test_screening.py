import messages
import pytest
from judging import judged
from samples import trajectory

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem, Trajectory
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool
from heavydistill.verifiers.screening import Candidate, decide, screen_generation


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
        (answered(" \n"), "undecided", "empty"), (answered("18"), "incorrect", "no_answer"),
    ],
)  # fmt: skip
def test_a_verdict_follows_from_what_became_of_the_generation(generation, label, reason):
    screened = screen_generation(problem(), generation)
    verdict = decide(screened) if isinstance(screened, Candidate) else screened
    assert (verdict.label, verdict.reason) == (label, reason)
    assert verdict.verifier == "exact@2"
    with VerdictPool(Verifying()) as pool:
        assert pool.submit_generation(problem(), generation).result().verdict == verdict


@pytest.mark.parametrize(
    ("text", "label", "reason"),
    [
        (r"<think>maybe \boxed{7}</think>so \boxed{18}", "correct", "equal"),
        (r"maybe \boxed{18}</think>so \boxed{7}", "incorrect", "different"),
        (r"<think>surely \boxed{18}", "undecided", "open_thinking"),
        (r"<think>a</think>\boxed{18}<think>or", "undecided", "open_thinking"),
        (r"<think>surely \boxed{18}</think> ", "undecided", "empty"),
        ("\\boxed{18}\ud800", "undecided", "not_text"), (b"\\boxed{18}", "undecided", "not_text"),
    ],
)  # fmt: skip
def test_what_follows_the_thinking_is_judged_if_it_is_text(text, label, reason):
    verdict = judged(problem(), text)
    assert (verdict.label, verdict.reason) == (label, reason)


def test_a_verifier_that_breaks_or_does_not_exist_leaves_it_undecided():
    broken = judged(problem(verifier_args='{"maker": 1}'), "18")
    unknown = judged(problem(verifier="exakt"), "18")
    assert broken.label == unknown.label == "undecided"
    assert (broken.reason, unknown.reason) == ("verifier_error:ValueError", "unknown_verifier")
    assert (broken.verifier, unknown.verifier) == ("exact@2", "exakt@unknown")
    with messages.raises("no_verifier", verifier="exakt", nearest="exact") as raised:
        registry.get("exakt")
    assert ", ".join(registry.names()) in str(raised.value)
