"""The rows of the training sets that a build writes, with stable Arrow types.

    problems         every problem with its split, or the reason why it is in no split
    trajectories     every attempt, with the reason if it is not a row of the thinker
    caches           every candidate set of the runs, and those drawn by the build that the mixture
                     would use, with the reason if it is in neither of the deliberator's sets
    deliberations    every deliberation, with the reason if it is not a row of the deliberator
    sft_deliberator  prompt: a cache; completion: a deliberation that passed every filter; and
                     plain problems, so that the student keeps its thinking
    sft_thinker      prompt: a problem; completion: an attempt that passed every filter
    rl               prompt: a cache on which some deliberations are right and some are wrong

``also`` adds sets in which wrong responses are used too. Their right sides are rows of the SFT set
of the same role, and the sets of the deliberator have plain problems, as its rows for SFT have:

    preferences_ROLE prompt, and a right and a wrong completion (``PairRow``)
    unpaired_ROLE    prompt, and a completion that is right or wrong (``LabelledRow``)
    critiques        prompt: a problem and one attempt; completion: what is true of the attempt

The first four are views: they contain everything, with an empty ``label`` for used rows. All others
are split into train and validation, by problem.

``prompt`` and ``completion`` are conversations. The thinking in a completion is placed where the
student's chat template expects it (see ``chat.student``); ``reasoning`` and ``answer_text`` also
hold the two parts separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from heavydistill import plugins
from heavydistill.config.prompts import Wording
from heavydistill.schema import Cache, Deliberation, Problem, Stratum, Trajectory

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
USED = ""
"""Label of rows that are used for training."""
LABELS: tuple[tuple[str, str], ...] = (
    ("unfinished", "it failed, was cut off or holds no answer text"),
    ("undecided", "it was not judged, or the verifier could not tell if its answer is right"),
    ("not_correct", "the verifier calls its answer incorrect"),
    ("no_final_answer", "it has no final answer in the form that its verifier reads"),
    ("several_final_answers", "it gives different final answers"),
    ("ignores_attempts", "it shows no sign that it worked with the attempts"),
    ("false_claims", "it calls an attempt right or wrong against its verdict or its own answer"),
    ("verbatim_copy", "its answer is one of the attempts, word for word"),
    ("leaks_attempts", "its answer speaks of the attempts, which a user never sees"),
    ("leaks_reference", "it mentions a reference answer, which it was not shown"),
    ("other_language", "its thinking or its answer is not in the language of the problem"),
    ("too_long", "it is longer than most responses that pass the checks above"),
    ("duplicate", "another response to the problem says the same"),
    ("not_chosen", "it passes, but enough others were chosen"),
    ("long_handoff", "its answer text exceeds the limit of a hand-off"),
    (
        "with_tools",
        "turns before its problem have parts of tools or thinking, not text alone",
    ),
    ("contaminated", "its problem is in a benchmark"),
    ("near_duplicate", "its problem is nearly the same as another one"),
    ("set_not_used", "the mixture does not use its candidate set"),
    ("not_renderable", "it has text that the student reads as a control token or think tag"),
    ("too_long_for_student", "prompt and response do not fit the student"),
)
"""(code, meaning for a response) of each filter, in the order in which they apply."""
CODES = frozenset(code for code, _ in LABELS)
plugins.ship("filter", (*dict(LABELS), "used"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRow(Problem):
    """A row of the set ``problems``; a problem's id is a hash of its content, equal in all runs."""

    split: Split | None  # split of its rows; null if ``label`` says why there is none
    label: str  # ``with_tools``, ``contaminated``, ``near_duplicate``, or empty
    detail: str  # benchmark and kind of match, or the id of the other problem
    runs: list[str]  # where it occurs, as ``RUN/ID``: name of a run and its id there


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRow(Trajectory):
    """A row of the set ``trajectories``: an attempt, and why it is not trained on, if it is not."""

    problem: str  # id of the problem
    run: str  # name of the run
    label: str  # why it is not a row of the thinker; empty if it is one
    tokens: int
    """Tokens of reasoning and answer text in the student's tokenizer; -1 if not counted, because an
    earlier filter excluded it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAttempt:
    """What claims about an attempt in a cache are checked against."""

    answer: str  # its final answer; empty if the verifier found none
    right: bool | None  # whether it is right; null if it is undecided or was not judged


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRow(Cache):
    """A row of the set ``caches``: a candidate set of attempts, and the prompt that shows them."""

    problem: str  # id of the problem
    run: str  # name of the run that sampled the attempts
    drawn: bool  # whether the build drew the set; false if the run did
    recut: bool  # whether its attempts were pruned again, because the run's prompt was too long
    stratum: Stratum  # stratum of the candidate set
    right: int  # number of correct attempts
    thinkers: list[str]  # models that wrote the attempts, sorted
    success: float | None  # share of its judged deliberations that are right; null if it has none
    judged: int  # number of judged deliberations
    sft_label: str  # why it has no row in ``sft_deliberator``; empty if it has one
    rl_label: str
    """Why the cache has no row in ``rl``; empty if it has one. ``duplicate`` if a cache of another
    run with the same attempts has a row."""
    attempts: list[ShownAttempt]  # in the order of the cache
    wording: Wording = "full"  # instructions around the attempts; see ``wordings``


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliberationRow(Deliberation):
    """A row of the set ``deliberations``: an answer, and why it is not trained on, if it is not."""

    problem: str  # id of the problem
    run: str  # name of the run
    label: str  # why it is not a row of the deliberator; empty if it is one
    uses_attempts: bool  # whether it refers to the attempts; see ``filters.labels``
    copied: float  # maximum share of its answer copied from one attempt; see ``filters.labels``
    false_claims: int  # number of claims that are false by the verdicts or by its own answer
    leaks_attempts: bool  # whether its answer, without the thinking, speaks of the attempts
    tokens: int  # see ``TrajectoryRow``


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A turn of a conversation."""

    role: str  # ``user`` or ``assistant``; of the first turn of a prompt, ``system`` too
    content: str  # text of the turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulMessage(Message):
    """A turn whose chat template takes the thinking from a separate field."""

    reasoning_content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRow:
    """A row of ``sft_deliberator`` or ``sft_thinker``."""

    prompt: list[Message]  # user turn, after the turns before it if the problem has any
    completion: list[Message]  # one assistant turn, for the student's template
    reasoning: str  # thinking alone, without surrounding blanks; may be empty
    answer_text: str  # text after the thinking, without surrounding blanks
    role: Literal["thinker", "deliberator", "critic"]
    """Role that the row trains; plain problems among the deliberator's rows have ``thinker``, and
    critiques have ``critic``."""
    problem: str  # id of the problem
    run: str  # name of the run
    generation: str  # id of the trajectory or deliberation
    cache: str  # id of the cache; empty for a thinker's row
    stratum: Stratum | None  # stratum of the candidate set; null for a thinker's row
    model: str  # model that wrote the completion
    prompt_tokens: int  # tokens before the answer, with the student's template
    completion_tokens: int  # all other tokens of the row, on which the loss is computed
    wording: Wording | None = None  # that of the cache; null for a thinker's row


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulSftRow(SftRow):
    """A row for a student whose template takes the thinking from a separate field."""

    completion: list[ThoughtfulMessage]  # type: ignore[assignment]


Kind = Literal["right", "wrong", "false_claim"]
"""Right (of a deliberation: also without a false claim), wrong, or right with a false claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRow(SftRow):
    """A row of ``unpaired_ROLE`` or ``critiques``."""

    label: bool  # whether the completion is right; of a critique, whether the attempt is
    kind: Kind  # right, wrong, or right with a false claim about an attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulLabelledRow(LabelledRow):
    """A row for a student whose template takes the thinking from a separate field."""

    completion: list[ThoughtfulMessage]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """A row of ``preferences_ROLE``: two completions of one prompt."""

    prompt: list[Message]  # as in the SFT set of the role
    chosen: list[Message]  # one assistant turn, for the student's template, as the next one
    rejected: list[Message]  # the other turn
    kind: Kind  # what is rejected: a wrong response, or a right one with a false claim
    length_ratio: float  # tokens of ``chosen`` for each token of ``rejected``
    role: Literal["thinker", "deliberator"]  # see ``SftRow``
    problem: str  # id of the problem
    run: str  # name of the run
    generation: str  # id of the chosen trajectory or deliberation
    rejected_generation: str  # id of the rejected one
    cache: str  # id of the cache; empty for a thinker's row
    stratum: Stratum | None  # stratum of the candidate set; null for a thinker's row
    model: str  # model that wrote the chosen completion
    prompt_tokens: int  # tokens before the answer, with the student's template
    completion_tokens: int  # all other tokens of the longer completion
    wording: Wording | None = None  # see ``SftRow``


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtfulPairRow(PairRow):
    """A row for a student whose template takes the thinking from a separate field."""

    chosen: list[ThoughtfulMessage]  # type: ignore[assignment]
    rejected: list[ThoughtfulMessage]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class RlRow:
    """A prompt for RL; a verifier rewards the answers."""

    prompt: list[Message]  # user turn that holds a cache, after the turns before it
    problem: str  # id of the problem
    text: str  # text of the problem
    reference: str  # reference answer
    verifier: str  # name of the verifier
    verifier_args: str  # arguments of the verifier, as a JSON object
    cache: str  # id of the cache
    run: str  # name of the run
    stratum: Stratum  # stratum of the candidate set
    right: int  # number of correct attempts
    width: int  # number of attempts
    success: float  # share of its judged deliberations that are right: above 0 and below 1
    judged: int  # number of judged deliberations
    attempts: list[ShownAttempt]  # the attempts in the order of the cache
    measured_on: str  # model that wrote the judged deliberations
    prompt_tokens: int  # tokens before the answer, with the student's template
    wording: Wording = "full"  # that of the cache
