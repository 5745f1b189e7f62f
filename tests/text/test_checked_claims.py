"""Claims, checked against the verdicts of their attempts and the deliberation's own answer."""

from typing import Any

import pytest
from generations import cache, deliberation, item, problem, trajectory

from heavydistill.schema import Claim, Label, Trace, Verdict
from heavydistill.text.checked_claims import (
    attempts_by_cache,
    checked_claims,
    claims_of,
    is_same_answer,
    with_claims,
)

LABELS: dict[str, Label] = {"+": "correct", "-": "incorrect", "?": "undecided"}


def verdict(said: str) -> Verdict | None:
    """Of an answer with a sign for its label, such as "5+"; only a sign is no answer."""
    extracted = said[:-1] or None
    return Verdict(label=LABELS[said[-1]], reason="said", extracted=extracted, verifier="exact@1")


def attempts(*said: str) -> list[Any]:
    return [trajectory("", id=f"t{n}", verdict=verdict(each)) for n, each in enumerate(said)]


def claim(attempt: int, says: Any) -> Claim:
    return Claim(attempt=attempt, says=says, quote="")


@pytest.mark.parametrize(
    ("own", "attempt", "says", "is_true", "is_contradiction"),
    [
        ("5+", "5+", "right", True, False),
        ("5+", "5+", "wrong", False, True),
        ("5+", "6-", "wrong", True, False),
        ("5+", "6-", "right", False, True),
        ("6-", "6-", "right", False, False),
        ("6-", "6-", "wrong", True, True),
        ("6-", "5+", "wrong", False, False),
        ("6-", "7-", "right", False, True),
        ("5+", "6?", "right", None, True),
        ("5+", "6?", "wrong", None, False),
        ("5+", "5?", "wrong", None, True),
        ("5+", "?", "wrong", None, False),
        ("+", "5+", "wrong", False, False),
        ("5+", "-", "right", False, False),
        ("2,3+", "3,2+", "wrong", False, True),  # the verifier accepts both
        ("2,3+", "3,2+", "right", True, False),
    ],
)
def test_a_claim_is_true_by_the_verdict_and_contradicts_by_the_answer(
    own, attempt, says, is_true, is_contradiction
):
    said = deliberation("", verdict=verdict(own), claims=[claim(1, says)])
    (checked,) = checked_claims(said, attempts(attempt))
    assert (checked.is_true, checked.is_contradiction) == (is_true, is_contradiction)
    assert checked.is_false == (is_true is False or is_contradiction)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a = 1\nprint(a)-", "print(1)-", None),
        ("a = 1\nprint(a)?", "print(1)+", None),
        ("a = 1\nprint(a)-", "print(1)+", False),
        ("a = 1\nprint(a)+", "print(1)+", True),
        ("a = 1\nprint(a)-", "a = 1\nprint(a)-", True),
    ],
)
def test_texts_of_several_lines_may_differ_and_mean_the_same(one, other, same):
    pair = attempts(one, other)
    assert is_same_answer(*pair) is same and is_same_answer(*reversed(pair)) is same


def test_an_attempt_that_was_not_judged_makes_no_claim_true_or_false():
    said = deliberation("", claims=[claim(1, "right")])
    (checked,) = checked_claims(said, [trajectory("5", verdict=None)])
    assert checked.is_true is None and not checked.is_false


def test_claims_are_numbered_by_the_order_of_the_cache():
    pool = attempts("5+", "6-", "7-")
    said = deliberation("Attempt 1 is wrong and attempt 2 is right. \\boxed{5}")
    caches = [cache(item("t2"), item("t0"))]
    (read,) = with_claims(Trace(problem=problem(), pool=pool, caches=caches, deliberations=[said]))
    assert [(each.attempt, each.says) for each in read.claims or ()] == [(1, "wrong"), (2, "right")]
    assert "attempt 2 is right" in (read.claims or ())[1].quote
    checked = checked_claims(read, [pool[2], pool[0]])
    assert [(each.attempt.id, each.is_true) for each in checked] == [("t2", True), ("t0", True)]


def test_a_cache_whose_attempts_are_not_all_in_the_trace_is_left_out():
    shown = attempts("5+", "6-")
    caches = [cache(item(each.id), id=f"of {each.id}") for each in shown]
    trace = Trace(problem=problem(), pool=shown[:1], caches=caches)
    assert attempts_by_cache(trace) == {"of t0": shown[:1]}


def test_stored_claims_are_not_read_again_and_unfinished_texts_make_none():
    pool = attempts("5+", "6-")
    says = "Attempt 1 is right. \\boxed{5}"
    assert claims_of(deliberation(says, claims=[]), pool) == []
    assert len(claims_of(deliberation(says), pool)) == 1
    for cut in ({"finish_reason": "length"}, {"finish_reason": "error", "error": "timeout"}):
        assert claims_of(deliberation(says, **cut), pool) == []
