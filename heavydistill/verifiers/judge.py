"""Prompts for a judge: a model that decides undecided verdicts, if the run configures one.

A judge is not a verifier. It gets only undecided verdicts, and it compares an answer with the
reference. So it is not asked if the verifier decides in another way, e.g. by running tests, or if
answers other than the reference can be correct. It is also not asked

- if there is no answer: the generation failed, was cut off, is empty or not text;
- if ``NOT_FOR_A_JUDGE`` lists the reason and ``judge.reasons`` does not: the cause is a fault of
  this machine or of a verifier, or the value is right and only its form is in doubt, which a
  comparison of values cannot decide;
- if the answer is longer than ``MOST_BYTES``, because an answer is never shortened.

The judge reads the problem, the reference and the answer that the verifier found, or else the text
after the thinking. Each of the three is quoted in a block. The block's fence is longer than any run
of the fence character in the text, and control tokens are made harmless. So no text can end its
block, open another block or begin another turn. A text can still address the judge. Therefore the
prompt says that the quoted texts are material and not instructions, and only the votes counted by
``heavy.judge_votes`` decide.

Not covered: whether the model judges well. Its verdicts carry its name, so that they can be counted
separately.
"""

from __future__ import annotations

from collections.abc import Collection

from heavydistill.config.models import NEVER_JUDGED
from heavydistill.errors import ProblemsError
from heavydistill.heavy.cache import fence_for
from heavydistill.heavy.prompts import FENCE_SLOT, Prompt
from heavydistill.heavy.pruning import defuse
from heavydistill.schema import Generation, Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.screening import THINKING_ENDS, Candidate, screen_generation

MOST_BYTES = 16_000
# Reasons by their beginning, up to a colon.
NOT_FOR_A_JUDGE = frozenset({"verifier_error", "no_sandbox", "worker_died", "echoed"})


def is_comparable(problem: Problem) -> bool:
    """Whether the problem's verifier compares answers with a reference, as a judge does."""
    try:
        verifier = registry.get(problem.verifier)
    except ProblemsError:
        return False
    is_compared = verifier.needs_reference and not verifier.accepts_others
    return is_compared and bool(problem.reference.strip())


def answer_for_judge(
    problem: Problem, generation: Generation, reasons: Collection[str] | None
) -> str | None:
    """The answer to show to the judge; None if the judge is not asked.

    ``reasons`` are the undecided reasons for which the judge is asked; None for the default
    described in this module's docstring.
    """
    verdict = generation.verdict
    if verdict is None or verdict.label != "undecided" or not is_comparable(problem):
        return None
    kind = verdict.reason.partition(":")[0]
    named = reasons is not None and (kind in reasons or verdict.reason in reasons)
    by_default = reasons is None and kind not in NOT_FOR_A_JUDGE
    if kind in NEVER_JUDGED or not (named or by_default):
        return None
    screened = screen_generation(problem, generation)
    spoken = generation.answer_text.rpartition(THINKING_ENDS)[2]
    answer = (screened.answer if isinstance(screened, Candidate) else spoken).strip()
    return answer if answer and len(answer.encode(errors="replace")) <= MOST_BYTES else None


def question(
    problem: Problem, answer: str, prompt: Prompt, control_tokens: tuple[str, ...] = ()
) -> str:
    """The prompt for the judge; the same problem and answer always give the same prompt.

    ``answer`` comes from ``answer_for_judge``. ``control_tokens`` are those of the judge's
    tokenizer, if known; they are made harmless in addition to the common control tokens.
    """
    names = ("Problem", "Reference answer", "Answer")
    blocks = zip(names, (problem.text.strip(), problem.reference.strip(), answer), strict=True)
    texts = {name: defuse(text, control_tokens)[0] for name, text in blocks}
    fence = fence_for(list(texts.values()))
    parts = [prompt.opening.replace(FENCE_SLOT, fence)]
    for name, text in texts.items():
        parts += [f"{fence} {name}", text]
    return "\n".join([*parts, f"{fence} End of answer", prompt.closing])
