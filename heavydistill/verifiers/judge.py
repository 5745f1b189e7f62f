"""What a judge is asked: a model's opinion on what rules leave undecided, where a run declares one.

A judge is no verifier: nothing but an undecided verdict of a verifier is put to it, and it compares
an answer with the reference, so it is not asked where a verifier decides by anything else, e.g. by
running tests or by rules that other answers than the reference fulfil. It is not asked either

- where no answer was given: the generation failed, was cut off, is empty or no text;
- where ``NOT_FOR_A_JUDGE`` names the reason, unless ``judge.reasons`` names it too: then a fault
  of this machine or of a verifier left the verdict open, and not the rules, or the value is right
  and only its form in doubt, which a judge who compares results does not see;
- where the answer has more than ``MOST_BYTES``: an answer is shown whole or not at all.

It reads the problem, the reference and the answer as the verifier found it, or the text after the
thinking where it found none. All three are quoted in blocks whose headers begin with a fence that
is longer than any run of its character in them, with their control tokens made harmless, so no text
can end its block, open another or take another turn. A text can still speak to the judge; the
wording says that it is material, and only the votes of ``heavy.judge_votes`` come of it.

Not covered: whether the model judges well. Its verdicts carry its name, so they can be counted
apart.
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
# What a reason begins with, up to a colon.
NOT_FOR_A_JUDGE = frozenset({"verifier_error", "no_sandbox", "worker_died", "echoed"})


def is_comparable(problem: Problem) -> bool:
    """Whether answers are compared with a reference, which a judge can do as well."""
    try:
        verifier = registry.get(problem.verifier)
    except ProblemsError:
        return False
    is_compared = verifier.needs_reference and not verifier.accepts_others
    return is_compared and bool(problem.reference.strip())


def answer_for_judge(
    problem: Problem, generation: Generation, reasons: Collection[str] | None
) -> str | None:
    """The answer that is put to a judge; None if its verdict stays as it is.

    ``reasons`` are those about which a judge is asked; None for all that the module names.
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
    """What the judge reads, the same for the same problem and answer (of ``answer_for_judge``).

    The ``control_tokens`` of the judge's tokenizer, if that is known, are made harmless beside the
    common ones of other models.
    """
    names = ("Problem", "Reference answer", "Answer")
    blocks = zip(names, (problem.text.strip(), problem.reference.strip(), answer), strict=True)
    texts = {name: defuse(text, control_tokens)[0] for name, text in blocks}
    fence = fence_for(list(texts.values()))
    parts = [prompt.opening.replace(FENCE_SLOT, fence)]
    for name, text in texts.items():
        parts += [f"{fence} {name}", text]
    return "\n".join([*parts, f"{fence} End of answer", prompt.closing])
