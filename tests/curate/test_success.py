"""When a cache is a prompt of RL."""

import pytest
from samples import trajectory

from heavydistill.curate.candidates import Success, is_right, success_of
from heavydistill.schema import Verdict


def deliberations(verdicts: str) -> list:
    """One for each letter: right, wrong, undecided, or not judged at all."""
    labels = {"r": "correct", "w": "incorrect", "u": "undecided"}
    return [
        trajectory(
            verdict=None
            if letter == "-"
            else Verdict(label=labels[letter], reason="x", extracted=None, verifier="v@1")
        )
        for letter in verdicts
    ]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("rw", Success(0.5, 2, "")),
        ("rrrw", Success(0.75, 4, "")),
        ("rr", Success(1.0, 2, "always_right")),
        ("ww", Success(0.0, 2, "never_right")),
        ("rwuu--", Success(0.5, 2, "")),
        ("wwuu", Success(0.0, 2, "never_right")),
        ("ruuu", Success(1.0, 1, "unmeasured")),
        ("uu-", Success(None, 0, "unmeasured")),
        ("", Success(None, 0, "unmeasured")),
    ],
)
def test_a_prompt_is_right_sometimes_and_undecided_tells_nothing(verdicts, expected):
    assert success_of(map(is_right, deliberations(verdicts))) == expected
