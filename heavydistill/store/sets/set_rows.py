"""The rows of the sets that a build writes, with stable Arrow types.

    problems         every problem with its split, or the reason why it has none
    trajectories     every attempt, or the reason why it is not a row of the thinker
    caches           every candidate set of the runs, and the drawn ones that the mixture would
                     use, with the reason if it is in neither of the deliberator's sets
    deliberations    every deliberation, or the reason why it is not a row of the deliberator
    sft_deliberator  prompt: a cache; completion: a deliberation that passed every filter; and
                     plain problems, so that the student keeps its thinking
    sft_thinker      prompt: a problem; completion: an attempt that passed every filter
    rl               prompt: a cache on which some deliberations are right and some are wrong

The first four are views: they contain everything, with an empty ``label`` for used rows. Only the
last three are split into train and validation, by problem.

``prompt`` and ``completion`` are conversations. The thinking of a completion is at the place where
the student's chat template expects it (see ``chat.student``); ``reasoning`` and ``answer_text``
hold the two parts for other uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heavydistill.schema import Cache, Deliberation, Problem, Stratum, Trajectory

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
USED = ""
"""Label of used rows."""
LABELS: tuple[tuple[str, str], ...] = (
    ("unfinished", "it failed, was cut off or holds no answer text"),
    ("undecided", "it was not judged, or the verifier could not tell if its answer is right"),
    ("not_correct", "the verifier calls its answer incorrect"),
    ("no_final_answer", "it has no final answer in the form that its verifier reads"),
    ("several_final_answers", "it gives different final answers"),
    ("ignores_attempts", "it shows no sign that it worked with the attempts"),
    ("verbatim_copy", "its answer is one of the attempts, word for word"),
    ("leaks_reference", "it mentions a reference answer, which it was not shown"),
    ("other_language", "its thinking or its answer is not in the language of the problem"),
    ("too_long", "it is longer than most responses that pass the checks above"),
    ("duplicate", "another response to the problem says the same"),
    ("not_chosen", "it passes, but enough others were chosen"),
    ("long_handoff", "its answer text exceeds the limit of a hand-off"),
    ("contaminated", "its problem is in a benchmark"),
    ("near_duplicate", "its problem is nearly the same as another one"),
    ("set_not_used", "the mixture does not use its candidate set"),
    ("not_renderable", "it has text that the student reads as a control token or think tag"),
    ("too_long_for_student", "prompt and response do not fit the student"),
)
"""(Code, meaning for a response), in the order of the filters."""
CODES = frozenset(code for code, _ in LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow(Problem):
    """Problem of a build; its id is a hash of its content, the same in every run."""

    split: Split | None  # split of its rows; null if it has none because of ``label``
    label: str  # ``contaminated``, ``near_duplicate``, or empty
    detail: str  # benchmark and how it was found there, or the id of the other problem
    runs: list[str]  # occurrences as ``RUN/ID``: the name of a run and its id there


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRow(Trajectory):
    """Trajectory of a build."""

    problem: str  # id of the problem
    run: str  # name of the run
    label: str  # reason why it is not a row of the thinker, or empty
    tokens: int
    """Tokens of reasoning and answer text in the student's tokenizer; -1 if another filter came
    first, so that they were not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow(Cache):
    """Candidate set and its prompt."""

    problem: str  # id of the problem
    run: str  # name of the run that the pool is from
    drawn: bool  # whether the build drew it, rather than the run
    recut: bool  # whether its attempts were cut again, because the run's prompt does not fit
    stratum: Stratum  # stratum of the candidate set
    right: int  # number of correct attempts
    thinkers: list[str]  # models that wrote the attempts, sorted
    success: float | None  # share of its judged deliberations that are right; null if it has none
    judged: int  # number of judged deliberations
    sft_label: str  # reason why it has no row in ``sft_deliberator``, or empty
    rl_label: str
    """Reason why it has no row in ``rl``, or empty; ``duplicate`` if a set of another run with the
    same attempts has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliberationRow(Deliberation):
    """Deliberation of a build."""

    problem: str  # id of the problem
    run: str  # name of the run
    label: str  # reason why it is not a row of the deliberator, or empty
    uses_attempts: bool  # whether it works with the attempts; see ``filters.labels``
    copied: float  # largest share of its answer that comes from one attempt; see ``filters.labels``
    tokens: int  # see ``TrajectoryRow``


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A turn of a conversation."""

    role: str  # ``user`` or ``assistant``
    content: str  # text of the turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulMessage(Message):
    """A turn whose thinking the chat template takes from a field of its own."""

    reasoning_content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRow:
    """A row of ``sft_deliberator`` or ``sft_thinker``."""

    prompt: list[Message]  # one user turn
    completion: list[Message]  # one assistant turn, for the student's template
    reasoning: str  # thinking alone, without surrounding blanks; may be empty
    answer_text: str  # text after the thinking, without surrounding blanks
    role: Literal["thinker", "deliberator"]
    """Role of the answer: ``thinker`` also for plain problems among the deliberator's rows."""
    problem: str  # id of the problem
    run: str  # name of the run
    generation: str  # id of the trajectory or deliberation
    cache: str  # id of the cache; empty for a thinker's row
    stratum: Stratum | None  # stratum of the candidate set; null for a thinker's row
    model: str  # model that wrote the completion
    prompt_tokens: int  # tokens with the student's template, up to where the answer begins
    completion_tokens: int  # all other tokens of the row: those that are learnt


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulSftRow(SftRow):
    """A row for a student whose template takes thinking from a field of its own."""

    completion: list[ThoughtfulMessage]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class RlRow:
    """A prompt whose answers a verifier rewards."""

    prompt: list[Message]  # one user turn, a cache
    problem: str  # id of the problem
    text: str  # text of the problem
    reference: str  # reference answer
    verifier: str  # name of the verifier
    verifier_args: str  # its arguments, as a JSON object
    cache: str  # id of the cache
    run: str  # name of the run
    stratum: Stratum  # stratum of the candidate set
    right: int  # number of correct attempts
    width: int  # number of attempts
    success: float  # share of its judged deliberations that are right: above 0 and below 1
    judged: int  # number of judged deliberations
    measured_on: str  # model that wrote those deliberations
    prompt_tokens: int  # tokens with the student's template, up to where the answer begins
