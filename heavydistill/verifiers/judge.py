"""Questions to a judge: a model that settles undecided verdicts, in runs that declare one.

A judge is not a verifier. It sees only undecided verdicts, and it compares an answer with the
reference. So it is not asked where a verifier decides by anything else, e.g. by running tests or
by rules that answers other than the reference satisfy. Nor is it asked

- if there is no answer: the generation failed, was cut off, is empty or not text;
- if ``NOT_FOR_A_JUDGE`` lists the reason and ``judge.reasons`` does not: the cause is a fault of
  this machine or of a verifier, or the value is right and only its form is in doubt, which a
  comparison of results cannot settle;
- if the answer has more than ``MOST_BYTES``: an answer is shown whole or not at all.

The judge reads the problem, the reference and the answer that the verifier found, or else the text
after the thinking. All three are quoted in blocks whose headers begin with a fence that is longer
than any run of its character in them, and their control tokens are made harmless. So no text can
end its block, open another one or begin another turn. A text can still address the judge; the
prompt calls it material, and only the votes of ``heavy.judge_votes`` count.

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
# Beginnings of reasons, up to a colon.
NOT_FOR_A_JUDGE = frozenset({"verifier_error", "no_sandbox", "worker_died", "echoed"})


def is_comparable(problem: Problem) -> bool:
    """Whether the verifier compares answers with a reference, as a judge does."""
    try:
        verifier = registry.get(problem.verifier)
    except ProblemsError:
        return False
    is_compared = verifier.needs_reference and not verifier.accepts_others
    return is_compared and bool(problem.reference.strip())


def answer_for_judge(
    problem: Problem, generation: Generation, reasons: Collection[str] | None
) -> str | None:
    """The answer for the judge; None if the verdict stays as it is.

    ``reasons`` are the reasons that a judge settles; None for those that the module describes.
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
    """The prompt of the judge; the same problem and answer give the same prompt.

    ``answer`` comes from ``answer_for_judge``. ``control_tokens`` of the judge's tokenizer, if that
    is known, are made harmless in addition to the common ones of other models.
    """
    names = ("Problem", "Reference answer", "Answer")
    blocks = zip(names, (problem.text.strip(), problem.reference.strip(), answer), strict=True)
    texts = {name: defuse(text, control_tokens)[0] for name, text in blocks}
    fence = fence_for(list(texts.values()))
    parts = [prompt.opening.replace(FENCE_SLOT, fence)]
    for name, text in texts.items():
        parts += [f"{fence} {name}", text]
    return "\n".join([*parts, f"{fence} End of answer", prompt.closing])
