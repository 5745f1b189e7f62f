"""The reward of the set ``rl``: 1 for a right answer, 0 for a wrong one, as its verifier says.

Needs the package heavydistill where the trainer runs. TRL, axolotl and ms-swift call ``reward``,
verl calls ``compute_score``. Both take what they judge by from the columns of the row: the
problem's text, its reference, the name of its verifier and the verifier's arguments.

Where the student's prompt opens the thinking, a response without the closing mark is thinking that
was cut off. Such an answer, as any that the verifier cannot decide on, is neither right nor wrong.
``reward`` gives None for it, from which TRL learns nothing; verl takes numbers alone, so that
``compute_score`` gives 0 and counts it in the metric ``undecided``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from MODULE import Verifying
from MODULE import Problem, Verdict
from MODULE import registry
from MODULE import VerdictPool

# An export writes True where the prompt ends with <think>.
PROMPT_OPENS_THINKING = False
# Verifiers of your own: Verifying(own=["my_verifiers.py"]).
POOL = VerdictPool(Verifying())


def reward(
    completions: Sequence[Any],
    *,
    text: Sequence[str],
    reference: Sequence[str],
    verifier: Sequence[str],
    verifier_args: Sequence[str],
    **others: Any,
) -> list[float | None]:
    """The reward of each completion, which is a text or the messages of a turn."""
    columns = zip(completions, text, reference, verifier, verifier_args, strict=True)
    pairs = [(_problem(*row), _text(completion)) for completion, *row in columns]
    return [_score(judged.verdict) for judged in POOL.judge_all(pairs)]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    **others: Any,
) -> dict[str, float]:
    """The score of one response, and whether it is undecided."""
    known = extra_info["text"], ground_truth, extra_info["verifier"], extra_info["verifier_args"]
    score = _score(POOL.judge(_problem(*known), _text(solution_str)).verdict)
    return {"score": score or 0.0, "acc": score or 0.0, "undecided": float(score is None)}


def _problem(text: str, reference: str, verifier: str, verifier_args: str) -> Problem:
    registry.get(verifier)  # One that is not known here would leave every answer undecided.
    return Problem(
        id="", text=text, reference=reference, verifier=verifier, verifier_args=verifier_args
    )


def _text(completion: Any) -> str:
    """The response, with the mark that opens its thinking."""
    text = completion if isinstance(completion, str) else completion[-1]["content"] or ""
    return f"<think>{text}" if PROMPT_OPENS_THINKING else text


def _score(verdict: Verdict) -> float | None:
    return None if verdict.label == "undecided" else float(verdict.is_correct)
