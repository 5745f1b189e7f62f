"""The reward of the set ``rl``: the problem's verifier gives 1 for a correct answer, otherwise 0.

The trainer's environment needs the package heavydistill. TRL, axolotl and ms-swift call ``reward``;
verl calls ``compute_score``. Both judge by the columns of the row: the problem's text, its
reference, the name of its verifier and the verifier's arguments.

If the student's prompt opens the thinking, a response without the closing mark is thinking that was
cut off. Such a response has no reward, and neither has an undecided one: ``reward`` returns None,
which TRL leaves out of the loss. verl accepts only numbers, so ``compute_score`` returns 0 and
counts the response in the metric ``undecided``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem, Verdict
from heavydistill.verifiers import registry
from heavydistill.verifiers.pool import VerdictPool

# An export writes True if the prompt ends with <think>.
PROMPT_OPENS_THINKING = False
# To add your own verifiers: Verifying(own=["my_verifiers.py"]).
POOL = VerdictPool(Verifying())


def reward(
    completions: Sequence[object],
    *,
    text: Sequence[str],
    reference: Sequence[str],
    verifier: Sequence[str],
    verifier_args: Sequence[str],
    **others: object,
) -> list[float | None]:
    """Return the reward of each completion; a completion is a text or a list of messages."""
    columns = zip(completions, text, reference, verifier, verifier_args, strict=True)
    pairs = [(_problem(*row), _text(completion)) for completion, *row in columns]
    return [_score(judged.verdict) for judged in POOL.judge_all(pairs)]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, str],
    **others: object,
) -> dict[str, float]:
    """Return the score of one response, and whether its verdict is undecided."""
    known = extra_info["text"], ground_truth, extra_info["verifier"], extra_info["verifier_args"]
    score = _score(POOL.judge(_problem(*known), _text(solution_str)).verdict)
    return {"score": score or 0.0, "acc": score or 0.0, "undecided": float(score is None)}


def _problem(text: str, reference: str, verifier: str, verifier_args: str) -> Problem:
    registry.get(verifier)  # fail now: an unknown verifier would leave every answer undecided
    return Problem(
        id="", text=text, reference=reference, verifier=verifier, verifier_args=verifier_args
    )


def _text(completion: Any) -> str:
    """Return the text of a response, including the mark that opens its thinking."""
    text = completion if isinstance(completion, str) else completion[-1]["content"] or ""
    return f"<think>{text}" if PROMPT_OPENS_THINKING else text


def _score(verdict: Verdict) -> float | None:
    return None if verdict.label == "undecided" else float(verdict.is_correct)
