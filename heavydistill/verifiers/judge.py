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
after the thinking. In our prompt, each of the three is quoted in a block. The block's fence is
longer than any run of the fence character in the text, and control tokens are made harmless. So no
text can end its block, open another block or begin another turn. A text can still address the
judge. Therefore the prompt says that the quoted texts are material and not instructions, and only
the votes counted by ``heavy.judge_votes`` decide.

Not covered: whether the model judges well. Its verdicts carry its name, so that they can be counted
separately. In a prompt of the user's, the user's words set the texts apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from heavydistill.config.models import NEVER_JUDGED, Replies
from heavydistill.errors import ProblemsError, TeacherError
from heavydistill.heavy.judge_votes import Ballot, Vote, judge_name, said_in, shown, verdict_of
from heavydistill.heavy.prompts import Prompt
from heavydistill.heavy.pruning import defuse
from heavydistill.models.request import Response
from heavydistill.schema import Problem, Verdict, content_id
from heavydistill.verifiers import registry
from heavydistill.verifiers.screening import THINKING_ENDS, Candidate, screen

MOST_BYTES = 16_000
FIRST_REPLIES = 8
"""Number of first replies of a judge of which one must hold a verdict."""
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
    problem: Problem, verdict: Verdict | None, text: str, reasons: Collection[str] | None
) -> str | None:
    """The answer in a response to show to the judge; None if the judge is not asked.

    ``text`` is the answer text. ``reasons`` are the undecided reasons for which the judge is asked;
    None for the default described in this module's docstring.
    """
    if verdict is None or verdict.label != "undecided" or not is_comparable(problem):
        return None
    kind = verdict.reason.partition(":")[0]
    named = reasons is not None and (kind in reasons or verdict.reason in reasons)
    by_default = reasons is None and kind not in NOT_FOR_A_JUDGE
    if kind in NEVER_JUDGED or not (named or by_default):
        return None
    screened = screen(problem, text)
    spoken = text.rpartition(THINKING_ENDS)[2]
    answer = (screened.answer if isinstance(screened, Candidate) else spoken).strip()
    return answer if answer and len(answer.encode(errors="replace")) <= MOST_BYTES else None


def question(
    problem: Problem, answer: str, prompt: Prompt, control_tokens: tuple[str, ...] = ()
) -> str:
    """The prompt for the judge; the same problem and answer always give the same prompt.

    ``answer`` comes from ``answer_for_judge``. ``control_tokens`` are those of the judge's
    tokenizer, if known; they are made harmless in addition to the common control tokens.
    """
    given = {"problem": problem.transcript, "reference": problem.reference, "answer": answer}
    texts = {name: defuse(text.strip(), control_tokens)[0] for name, text in given.items()}
    return prompt.filled(fence=prompt.fence(texts.values()), **texts)


@dataclass(frozen=True, slots=True)
class JudgeRules:
    """What a judge is asked about, how it is asked, and what its replies mean."""

    model: str  # Name of the model, for the record
    prompt: Prompt
    replies: Replies
    reasons: Collection[str] | None  # See ``answer_for_judge``
    control_tokens: tuple[str, ...]  # Control tokens of the judge's tokenizer, if known

    @property
    def name(self) -> str:
        """Name of the judge, with the hash of its prompt; that of its ballots."""
        return judge_name(self.model, self.prompt.version)

    def question(self, problem: Problem, verdict: Verdict | None, text: str) -> str | None:
        """The prompt about a response with an undecided verdict; None if the judge is not asked.

        ``text`` is the answer text of the response.
        """
        answer = answer_for_judge(problem, verdict, text, self.reasons)
        return (
            None if answer is None else question(problem, answer, self.prompt, self.control_tokens)
        )

    def vote(self, response: Response) -> Vote:
        answer = said_in(response.answer_text, response.finish_reason, self.replies)
        return Vote(
            said=answer,
            failure=response.failure,
            reply=shown(response.answer_text) if answer == "invalid" else "",
            prompt_tokens=response.prompt_tokens,
            cached_tokens=response.cached_tokens,
            completion_tokens=response.completion_tokens,
        )

    def verdict(
        self, rule: Verdict, asked: str, votes: Sequence[Vote], same_as: str = ""
    ) -> Verdict:
        """The verdict of the votes on the question ``asked``, in place of the verdict ``rule``.

        ``same_as`` is as in ``Ballot``.
        """
        ballot = Ballot(
            by=rule.verifier,
            rule_reason=rule.reason,
            rule_evidence=rule.evidence,
            model=self.model,
            prompt=self.prompt.version,
            asked=question_id(asked),
            same_as=same_as,
            votes=list(votes),
        )
        return verdict_of(rule, ballot)


def question_id(asked: str) -> str:
    return content_id("j", asked)


class FirstReplies:
    """Watches the first replies of a judge, which may have another form than is expected."""

    def __init__(self, rules: JudgeRules) -> None:
        self._rules, self._invalid, self._is_sound = rules, 0, False

    def note(self, responses: Iterable[Response]) -> None:
        """Note responses; those from the journal and failed requests are ignored.

        Raises:
            TeacherError: The first ``FIRST_REPLIES`` replies hold no verdict.
        """
        votes = [self._rules.vote(response) for response in responses if not response.from_journal]
        self._is_sound |= any(vote.is_valid for vote in votes)
        wrong = [vote for vote in votes if vote.said in ("invalid", "truncated")]
        self._invalid += len(wrong)
        if self._is_sound or self._invalid < FIRST_REPLIES or not wrong:
            return
        reply = wrong[-1].reply or "(cut off at judge.sampling.max_tokens)"
        raise TeacherError(
            f"None of the first {self._invalid} replies of the judge {self._rules.model} is a "
            f"verdict of the form {self._rules.replies}. The last one is: {reply}",
            "Give a prompt of your own that asks for this form (prompts.judge), the form of this "
            "model's replies (judge.replies), or another judge, and repeat the command: replies "
            "in the journal are read again without a request.",
        )
