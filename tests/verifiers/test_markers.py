"""A marker is proposed from the answers alone, and only where it gives answers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from generations import problem, trajectory

from heavydistill.config.run import Verifying
from heavydistill.schema import Trace
from heavydistill.text.extraction import candidate_markers, reference_answer
from heavydistill.verifiers import markers
from heavydistill.verifiers.markers import CommonMarker, shared_marker
from heavydistill.verifiers.pool import VerdictPool


def judged(texts: Sequence[str], verifier: str = "math", **changed: Any) -> list[Trace]:
    """Traces of two answers to 1 + n each, judged."""
    made = []
    with VerdictPool() as pool:
        for n, pair in enumerate(zip(texts[::2], texts[1::2], strict=True)):
            asked = problem(f"What is 1 + {n}?", verifier, reference=str(1 + n), **changed)
            asked = dataclasses.replace(asked, id=f"p{n}")
            verdicts = [pool.judge(asked, text).verdict for text in pair]
            answers = [
                dataclasses.replace(trajectory(text, id=f"t{i}"), verdict=verdict)
                for i, (text, verdict) in enumerate(zip(pair, verdicts, strict=True))
            ]
            made.append(Trace(problem=asked, pool=answers))
    return made


def found(texts: Sequence[str], given: dict[str, Any] | None = None, **changed: Any) -> Any:
    given = given or {}
    return shared_marker(judged(texts, args=given, **changed), given, Verifying())


def ending(form: str) -> list[str]:
    """Answers to ten problems, the first of each right, that end in a form."""
    return [f"One and {n} more.\n" + form.format(1 + n + off) for n in range(10) for off in (0, 3)]


@pytest.mark.parametrize(
    ("form", "marker"),
    [
        ("A: {}", "A:"), ("#### {}", "####"), ("Answer: {}", "Answer:"),
        ("**Final answer:** {}", "Final answer:"), ("The answer is {}.", "The answer is"),
        ("The final answer is ${}$.", "The final answer is"), ("答案：{}", "答案："),
    ],
)  # fmt: skip
def test_usual_markers_are_found_with_what_they_give(form, marker):
    assert found(ending(form)) == CommonMarker(marker, 20, 20, 20, 20, 10)


def test_wordings_in_front_of_a_marker_may_differ():
    forms = ("So the answer is {}.", "Thus, the answer is {}.", "The answer is {}.")
    texts = [text for form in forms for text in ending(form)[:6]]
    assert found(texts).marker == "answer is"


@pytest.mark.parametrize(
    "texts",
    [
        ending(r"It is \boxed{{{}}}."), ending("I am not sure.\nNote: please check this."),
        ending("We add them all up, which gives ten or so"),
        ending("A: {}")[:8] + ending("I add them up.")[:12], [],
    ],
    ids=["boxes", "no answers behind it", "no marker", "not most of them", "nothing"],
)  # fmt: skip
def test_nothing_is_proposed_where_there_is_no_such_marker(texts):
    assert found(texts) is None


def test_only_what_the_configuration_can_change_counts():
    traces = judged(ending("A: {}"), args={"marker": "####"})
    assert shared_marker(traces, {}, Verifying()) is None
    options = judged(ending("{}"), "choice", args={"options": ["x", "y"]})
    assert shared_marker(options, {"options": ["x", "y"]}, Verifying()) is None


def test_no_more_are_read_and_judged_than_it_takes(monkeypatch):
    monkeypatch.setattr(markers, "MOST_READ", 12)
    monkeypatch.setattr(markers, "MOST_JUDGED", 4)
    shared = found(ending("A: {}"))
    assert (shared.of, shared.count, shared.judged) == (12, 12, 4)


def test_a_long_line_or_one_without_a_value_has_no_marker():
    assert candidate_markers("Answer: " + "7 " * 500) == set()
    assert candidate_markers("") == candidate_markers("Done.") == set()
    assert candidate_markers("- **A:** 18\n\n---") == {"A:"}


@pytest.mark.parametrize(
    ("last", "example"), [("A: 18", "A:"), ("#### 18", "####"), ("So it is 18.", "####")]
)
def test_a_reference_of_several_lines_is_told_its_own_marker(last, example):
    with pytest.raises(ValueError, match="several lines") as refused:
        reference_answer(f"9 * 2 = 18\n{last}", None)
    assert str(refused.value).endswith(f'{{"marker": "{example}"}}')
