"""The reward of a response: the verdict of the problem's verifier on its final answer.

    1      correct
    0      incorrect; for code the share of tests that pass
    0      complete but without exactly one usable final answer: none, several different ones, one
           that is retracted or only repeats the problem, or no boundary after the thinking
    None   cut off, or undecided for any other reason

With a judge, its verdicts replace the undecided ones (``judge``). If it decides nothing, the rule's
reason counts as above, except that a response about which it could not be asked has no reward.

A response with reward None is left out of the loss and of its group's mean. A missing final answer
gets 0, because with None a model would learn to give no answer when it is unsure. Answers that the
verifier cannot parse or compare get None and are counted; inspect them if their share grows.

With a ``format_share`` f, the reward is (1 - f) times the value above, plus f if the format is
right: any thinking is non-empty and closed, and there is one final answer, correct or not.

With a ``claims_share`` w, the reward v of a deliberation becomes

    (1 - w) * v + w * score                if its answer is correct
    (1 - w) * v + w * score * (1 - v)      if it is incorrect or partly correct

where ``score``, from 0 to 1, is that of its claims about the attempts (``claims_score``). With w
below 1/2, no claims lift an incorrect deliberation above a correct one, not even code that passes
nearly all tests. Rewards that are 0 for another reason than an incorrect answer stay 0.

Only the text after the thinking is judged. A response may begin with one pair of think tags. Any
other think tags, and control tokens of the tokenizer, make it malformed, because they could hide
text from readers.

Not covered: whether the reasoning is correct; models that mark their thinking with other tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from heavydistill.chat.template import Chat
from heavydistill.heavy.judge_votes import FAILED as JUDGE_FAILED
from heavydistill.heavy.judge_votes import ballot_of
from heavydistill.metrics.counts import NO_FINAL_ANSWER
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.schema import Claim, Problem, Verdict
from heavydistill.text.claims import read_claims
from heavydistill.train.guards import ALL_RIGHT, ALL_WRONG
from heavydistill.train.rollouts.judge import RolloutJudge
from heavydistill.train.rollouts.problem_rows import PROBLEM_COLUMNS, problem_of
from heavydistill.verifiers.final_answers import final_answers
from heavydistill.verifiers.pool import VerdictPool

# Reasons of undecided verdicts that are the response's fault.
UNANSWERED = {
    *NO_FINAL_ANSWER,
    *("not_text", "no_option", "outside_box", "several_boxes"),
    *("conflict", "unclear", "retracted", "echoed"),
}
_LEAST_REPEATED = 16  # characters; verifiers handle shorter texts
_OF_PARTS = ("code",)  # verifiers with partial scores, which become the reward
_THINKING = re.compile(f"\\s*{COMMON_TAGS[0]}(.*?){COMMON_TAGS[1]}(.*)", re.DOTALL)
METRICS = ("correct", "undecided", "unanswered", "malformed", "several_answers", "cut_off")
"""Kinds of rewards; the share of each kind among the responses is logged as ``verdict/NAME``."""
UNDECIDED = "undecided/"
"""Prefix of metrics: share of the responses that name exactly one final answer and are undecided,
rewarded or not, by the reason of the verdict; ``undecided/all`` is their sum."""
JUDGE_METRICS = ("judge/asked", "judge/failed")
"""Names of metrics: share of the responses about which the judge was asked, and of those among
them without enough replies."""
_ASKED = "judge"  # beginning of the reasons of a judge's verdicts


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward (see the module docstring) and its reason."""

    value: float | None
    kind: str  # One of ``METRICS``; empty for an incorrect or partly correct answer
    reason: str  # Reason given by the verdict; otherwise the kind
    claims: float | None = None  # Score of the claims; None if they have no part in the reward
    is_open: bool = False
    """Whether the response names exactly one final answer, and the verdict is undecided."""

    @property
    def is_right(self) -> bool | None:
        """Return whether the answer is fully correct; None if there is no reward."""
        return None if self.value is None else self.kind == "correct"


MALFORMED = Reward(0.0, "malformed", "malformed")
CUT_OFF = Reward(None, "cut_off", "cut_off")
FAILED = Reward(None, "", "failed")


class VerdictReward:
    """The reward function that TRL calls.

    ``group`` is the number of responses in a group (``group_shares``). ``ends`` has the ids of end
    tokens: a response without one at its end was cut off. With a ``claims_share``, batches have the
    column ``attempts``, with the fields of each ``ShownAttempt`` in the cache. ``judge`` decides
    what the pool leaves undecided; None for no judge.
    """

    __name__ = "verdict"

    def __init__(
        self,
        pool: VerdictPool,
        chat: Chat,
        format_share: float = 0.0,
        group: int = 1,
        claims_share: float = 0.0,
        judge: RolloutJudge | None = None,
    ) -> None:
        self._pool, self._chat, self._share, self._group = pool, chat, format_share, group
        self._claims_share, self._judge = claims_share, judge
        self._open_because: set[str] = set()
        self.ends = chat.stops

    def __call__(
        self,
        *,
        prompts: Sequence[Sequence[Mapping[str, str]]],
        completion_ids: Sequence[Sequence[int]],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[object]], None],
        failed: Sequence[bool] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the reward of each completion; None for no reward.

        Arguments are columns of the batch, and TRL's two logging functions. ``failed`` marks the
        completions whose episode failed, which get no reward.
        """
        from accelerate.utils import gather_object

        names = ("prompt", *PROBLEM_COLUMNS)
        rows = zip(prompts, *(columns[name] for name in PROBLEM_COLUMNS), strict=True)
        problems = [problem_of(dict(zip(names, row, strict=True))) for row in rows]
        written = [self._written(ids) for ids in completion_ids]
        pairs = zip(problems, written, strict=True)
        rewarded = rewards(self._pool, pairs, self._share, self._judge)
        if self._claims_share:
            parts = zip(rewarded, written, columns["attempts"], strict=True)
            rewarded = [with_claims(*each, self._claims_share) for each in parts]
            scores = [reward.claims for reward in rewarded if reward.claims is not None]
            if scores:
                log_metric("claims/score", fmean(scores))
        if failed:
            both = zip(rewarded, failed, strict=True)
            rewarded = [FAILED if is_failed else reward for reward, is_failed in both]
        # A group may be spread over two processes.
        right = gather_object([reward.is_right for reward in rewarded])
        for name, share in group_shares(right, self._group).items():
            log_metric(name, share)
        counts = Counter(reward.kind for reward in rewarded)
        for name in METRICS:
            log_metric(f"verdict/{name}", counts[name] / len(rewarded))
        if self._judge:
            reasons = [reward.reason for reward in rewarded]
            asked = sum(reason.startswith(_ASKED) for reason in reasons)
            asked_and_failed = (asked, reasons.count(JUDGE_FAILED))
            for name, number in zip(JUDGE_METRICS, asked_and_failed, strict=True):
                log_metric(name, number / len(rewarded))
        because = Counter(reward.reason for reward in rewarded if reward.is_open)
        log_metric(f"{UNDECIDED}all", because.total() / len(rewarded))
        # A reason that occurred once is logged from then on, so that its mean is over all steps.
        self._open_because |= because.keys()
        for reason in sorted(self._open_because):
            log_metric(f"{UNDECIDED}{reason}", because[reason] / len(rewarded))
        log_extra("verdict", [reward.reason for reward in rewarded])
        return [reward.value for reward in rewarded]

    def judge(
        self, rows: Sequence[Mapping[str, object]], completion_ids: Sequence[Sequence[int]]
    ) -> list[Reward]:
        """Return the rewards of the responses to rows; token ids include the end token."""
        problems, written = map(problem_of, rows), map(self._written, completion_ids)
        pairs = zip(problems, written, strict=True)
        return rewards(self._pool, pairs, self._share, self._judge)

    def _written(self, ids: Sequence[int]) -> str | Reward:
        """Return the text of a response; or its reward, if that is already known."""
        if not ids or ids[-1] not in self.ends:
            return CUT_OFF
        # Text after an end token in the middle is trained on too, so it is judged.
        end = len(ids)
        while end and ids[end - 1] in self.ends:
            end -= 1
        text = self._chat.decode(ids[:end])
        if self._chat.control_token(text):
            return MALFORMED
        return f"{COMMON_TAGS[0]}{text}" if self._chat.opens_thinking else text


def rewards(
    pool: VerdictPool,
    responses: Iterable[tuple[Problem, str | Reward]],
    format_share: float = 0.0,
    judge: RolloutJudge | None = None,
) -> list[Reward]:
    """Judge responses in parallel, and return their rewards.

    Each response is a problem with either the response's text or, if known, its reward. With a
    ``judge``, all processes must call this together.
    """
    whole = [(problem, _parted(written)) for problem, written in responses]
    to_judge = [(problem, parts[1]) for problem, parts in whole if not isinstance(parts, Reward)]
    verdicts = [judged.verdict for judged in pool.judge_all(to_judge)]
    if judge:
        verdicts = judge.decide(
            [
                (problem, verdict, text)
                for (problem, text), verdict in zip(to_judge, verdicts, strict=True)
            ]
        )
    judged = iter(verdicts)
    return [
        parts
        if isinstance(parts, Reward)
        else _rewarded(problem, *parts, next(judged), format_share)
        for problem, parts in whole
    ]


def _parted(written: str | Reward) -> tuple[str | None, str] | Reward:
    """Split a response into (thinking or None, answer); return a reward if it is malformed."""
    if isinstance(written, Reward):
        return written
    tags = [written.count(tag) for tag in COMMON_TAGS]
    if tags == [0, 0]:
        return None, written
    if tags == [1, 0]:
        return Reward(0.0, "unanswered", "open_thinking")
    match = _THINKING.fullmatch(written)
    if tags != [1, 1] or not match:
        return MALFORMED
    return match[1], match[2]


def _rewarded(
    problem: Problem, thinking: str | None, answer: str, verdict: Verdict, share: float
) -> Reward:
    is_undecided = verdict.label == "undecided"
    answers = final_answers(problem, answer)
    is_open = is_undecided and answers == 1
    if is_undecided and verdict.reason == JUDGE_FAILED:
        return Reward(None, "undecided", verdict.reason, is_open=is_open)
    ballot = ballot_of(verdict) if is_undecided else None
    rule = ballot.rule_reason if ballot else verdict.reason
    is_fault = is_undecided and (rule in UNANSWERED or _repeats(problem, verdict))
    if is_fault or rule in NO_FINAL_ANSWER:
        return Reward(0.0, "unanswered", verdict.reason, is_open=is_open)
    value = float(verdict.is_correct)
    if problem.verifier in _OF_PARTS and verdict.score is not None:
        value = verdict.score
    if (value > 0 or is_undecided) and answers is not None and answers > 1:
        return Reward(0.0, "several_answers", "several_answers")
    if is_undecided:
        return Reward(None, "undecided", verdict.reason, is_open=is_open)
    has_form = (thinking is None or bool(thinking.strip())) and answers in (None, 1)
    kind = "correct" if verdict.is_correct else ""
    return Reward((1 - share) * value + share * has_form, kind, verdict.reason)


def _repeats(problem: Problem, verdict: Verdict) -> bool:
    """Return whether the answer copies a part of the problem too long to be a coincidence."""
    answer = "".join((verdict.extracted or "").split())
    return len(answer) >= _LEAST_REPEATED and answer in "".join(problem.transcript.split())


def with_claims(
    reward: Reward, written: str | Reward, attempts: Sequence[Mapping[str, Any]], share: float
) -> Reward:
    """Return the reward of a deliberation with its share for true claims."""
    parts = _parted(written)
    if isinstance(parts, Reward) or reward.value is None or reward.kind not in ("correct", ""):
        return reward
    claims = read_claims(parts[0] or "", parts[1], [attempt["answer"] for attempt in attempts])
    score = claims_score(claims, [attempt["right"] for attempt in attempts])
    room = 1 if reward.kind == "correct" else 1 - reward.value
    return replace(reward, value=(1 - share) * reward.value + share * score * room, claims=score)


def claims_score(claims: Iterable[Claim], rights: Sequence[bool | None]) -> float:
    """Return the score, from 0 to 1, of a deliberation's claims about the attempts in its cache.

    ``rights`` says of each attempt whether it is right; None if undecided. For each decided attempt
    let t be 1 if the claim about it is true, -1 if it is false, and 0 if there is none. The score
    is (1 + c) / 2 with

        c = (mean of t over the right attempts + mean of t over the wrong ones) / 2

    which is coverage * (2 * balanced accuracy - 1) if both kinds are covered equally. Silence
    earns 1/2, every true claim adds to it, and only the truth about every attempt earns 1. "Wrong"
    of every attempt, or "right", earns 1/2 in any such pool; with a mean over all attempts it would
    pay wherever most are wrong.

    If all decided attempts are right, or all are wrong, a constant claim is the truth. Rewarding it
    would make "wrong" of every attempt pay wherever all-wrong pools outnumber all-right ones. So in
    such a pool c is minus the share of attempts with a false claim: the truth earns what silence
    earns, and false claims earn less.
    """
    says = {claim.attempt: claim.says == "right" for claim in claims}
    means, false = [], 0.0
    for is_right in (True, False):
        said = [says.get(number) for number, each in enumerate(rights, 1) if each is is_right]
        if said:
            false = said.count(not is_right) / len(said)
            means.append(said.count(is_right) / len(said) - false)
    return (1 + (fmean(means) if len(means) == 2 else -false)) / 2


UNCOMPARED = "groups/uncompared"


def group_shares(right: Sequence[bool | None], size: int) -> dict[str, float]:
    """Return the shares of groups without a learning signal, by reason, as logged metrics.

    ``right`` has one value for each answer of all processes, in groups of ``size``: whether it is
    correct, or None for undecided and cut-off answers, which are skipped.

    Returns:
        ``groups/all_right``: share of groups with correct answers and no incorrect ones;
        ``groups/all_wrong``: with incorrect answers and no correct ones;
        ``groups/uncompared``: with fewer than two decided answers.
    """
    if size < 1 or not right or len(right) % size:
        raise ValueError(f"{len(right)} answers cannot be divided into groups of {size}")
    groups = [
        [answer for answer in right[start : start + size] if answer is not None]
        for start in range(0, len(right), size)
    ]
    return {
        ALL_RIGHT: fmean(set(decided) == {True} for decided in groups),
        ALL_WRONG: fmean(set(decided) == {False} for decided in groups),
        UNCOMPARED: fmean(len(decided) < 2 for decided in groups),
    }
