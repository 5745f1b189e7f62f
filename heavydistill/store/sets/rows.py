"""The rows of the sets that a build writes, with stable Arrow types.

    problems         every problem, and in which split it is, or why in none
    trajectories     every attempt, and why it is not a row of the thinker
    caches           every candidate set of the runs, and those drawn ones that the mixture would
                     take; and why it is in neither of the deliberator's sets
    deliberations    every deliberation, and why it is no row of the deliberator
    sft_deliberator  prompt: a cache; completion: a deliberation that passed every filter; and
                     plain problems, so that thinking is not unlearned
    sft_thinker      prompt: a problem; completion: an attempt that passed every filter
    rl               prompt: a cache on which some deliberations are right and some are not

The first four are views with labels: nothing is left out, and an empty ``label`` says that the
row is used. Only the last three are split into train and validation, by problem.

``prompt`` and ``completion`` are conversations. The thinking of a completion stands where the
student's chat template takes it from (see ``student``); ``reasoning`` and ``answer_text`` hold
both apart for any other use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heavydistill.schema import Cache, Deliberation, Problem, Stratum, Trajectory

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
USED = ""
"""The label of what is used."""
LABELS: tuple[tuple[str, str], ...] = (
    ("unfinished", "it failed, was cut off or holds no answer text"),
    ("undecided", "it was not judged, or the verifier could not tell if its answer is right"),
    ("not_correct", "the verifier calls its answer incorrect"),
    ("no_final_answer", "it has no final answer in the form that its verifier reads"),
    ("several_final_answers", "it gives different final answers"),
    ("ignores_attempts", "it shows no sign that it worked with the attempts"),
    ("verbatim_copy", "its answer is one of the attempts, word for word"),
    ("leaks_reference", "it knows the reference answer, which nobody showed it"),
    ("other_language", "its thinking or its answer is not in the language of the problem"),
    ("too_long", "it is longer than most of those that pass everything above"),
    ("duplicate", "another one on the problem says the same"),
    ("not_chosen", "it passes, and enough others were taken"),
    ("long_handoff", "its answer text is longer than a hand-off may be"),
    ("contaminated", "its problem stands in a benchmark"),
    ("near_duplicate", "its problem is nearly another one"),
    ("set_not_used", "the mixture does not take its candidate set"),
    ("not_renderable", "it holds what the student takes for a control token or a think tag"),
    ("too_long_for_student", "prompt and response do not fit the student"),
)
"""(Code, what it says of a response), in the order in which they are looked for."""
CODES = frozenset(code for code, _ in LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow(Problem):
    """A problem of a build.

    Attributes:
        id: Content hash of text, reference, verifier and its arguments: the same in every run.
        split: Where its rows are; null if it has none because of ``label``.
        label: ``contaminated``, ``near_duplicate``, or empty.
        detail: The benchmark and how it was found there, or the id of the other problem.
        runs: Where it is, as ``RUN/ID``: the name of a run and its id there.
    """

    split: Split | None
    label: str
    detail: str
    runs: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRow(Trajectory):
    """An attempt; ``label`` says why it is no row of the thinker.

    Attributes:
        tokens: Of the reasoning and the answer text, in the student's tokenizer; -1 where they
            were not counted, because another filter came first.
    """

    problem: str
    run: str
    label: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow(Cache):
    """A candidate set as a prompt.

    Attributes:
        problem: Id of the problem.
        run: Whose pool it is of.
        drawn: Whether it was drawn by the build, rather than made by the run.
        recut: Whether its attempts were cut again, because the run's prompt does not fit.
        stratum: Of the set.
        right: How many of its attempts are correct.
        thinkers: Who wrote its attempts, sorted.
        success: Share of its judged deliberations that are right; null if it has none.
        judged: Deliberations behind that share.
        sft_label: Why it has no row in ``sft_deliberator``, or empty.
        rl_label: Why it has no row in ``rl``, or empty; ``duplicate`` if one of another run that
            shows the same attempts has it.
    """

    problem: str
    run: str
    drawn: bool
    recut: bool
    stratum: Stratum
    right: int
    thinkers: list[str]
    success: float | None
    judged: int
    sft_label: str
    rl_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliberationRow(Deliberation):
    """A deliberation; ``label`` says why it is no row of the deliberator.

    Attributes:
        uses_attempts: Whether it works with the attempts; see ``attention``.
        copied: The share of its answer that is one attempt's; see ``attention``.
        tokens: As of a ``TrajectoryRow``.
    """

    problem: str
    run: str
    label: str
    uses_attempts: bool
    copied: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulMessage(Message):
    """A turn whose thinking the chat template takes from a field of its own."""

    reasoning_content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRow:
    """A row of ``sft_deliberator`` or ``sft_thinker``.

    Attributes:
        prompt: One user turn.
        completion: One assistant turn, for the student's template.
        reasoning: The thinking alone, without blanks around it; may be empty.
        answer_text: What follows it, likewise.
        role: Whose answer it is: ``thinker`` also for plain problems among the deliberator's rows.
        problem: Id of the problem.
        run: Name of the run.
        generation: Id of the trajectory or deliberation.
        cache: Id of the cache; empty for a thinker's.
        stratum: Of the candidate set; null for a thinker's.
        model: Who wrote the completion.
        prompt_tokens: With the student's template and what opens the answer.
        completion_tokens: The rest of the row: the tokens that are learnt.
    """

    prompt: list[Message]
    completion: list[Message]
    reasoning: str
    answer_text: str
    role: Literal["thinker", "deliberator"]
    problem: str
    run: str
    generation: str
    cache: str
    stratum: Stratum | None
    model: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulSftRow(SftRow):
    """A row for a student whose template takes thinking from a field of its own."""

    completion: list[ThoughtfulMessage]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class RlRow:
    """A prompt whose answers a verifier rewards.

    Attributes:
        prompt: One user turn, a cache.
        problem: Id of the problem.
        text: Of the problem; ``reference``, ``verifier`` and ``verifier_args`` judge an answer.
        cache: Id of the cache.
        run: Name of the run.
        stratum: Of the candidate set.
        right: How many of its attempts are correct.
        width: Attempts in it.
        success: Share of its judged deliberations that are right: above 0 and below 1.
        judged: Deliberations behind that share.
        measured_on: Who wrote them.
        prompt_tokens: With the student's template and what opens the answer.
    """

    prompt: list[Message]
    problem: str
    text: str
    reference: str
    verifier: str
    verifier_args: str
    cache: str
    run: str
    stratum: Stratum
    right: int
    width: int
    success: float
    judged: int
    measured_on: str
    prompt_tokens: int
