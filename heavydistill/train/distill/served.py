"""A teacher behind a server: whether it can score the student's tokens.

The student's token ids are sent as they are, so before any weights are loaded these are checked:

    server         answers, takes the key and serves the named model
    context        the longest prompt and a response fit
    probabilities  it gives log-probabilities of a prompt's tokens (``models.http.scoring``), of as
                   many likely ones as are learnt from, and of a sequence of the greatest length
    tokenizer      it splits a text and some prompts of the training into the student's ids, which
                   its reply names, and knows the last id of the student's tokenizer

Not covered: the teacher's own chat template, which the server does not apply to token ids, and the
tokens that end its responses; whether it is any better; on resuming, whether the model of this name
is still the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

from heavydistill.config.models import Endpoint
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.contact import ServerProbe
from heavydistill.models.http.probe import TOKEN_IDS
from heavydistill.models.http.scoring import PromptScorer, Scored, TokenScores, most_top
from heavydistill.models.profiles import Profile
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Response
from heavydistill.models.resolve import located
from heavydistill.store.training_record import BaseModelUsed, Launch
from heavydistill.text.words import parts_at
from heavydistill.train.base_model import BaseCheckpoint
from heavydistill.train.distill.options import DistillOptions
from heavydistill.train.launch import is_main
from heavydistill.train.rollouts.data import Prompts

_PROMPTS = 4  # prompts of the training that the server splits
_TEXT = "17 + 25.5 = 42.5?\n\n\tdef f(x):  return x**2  # naïve, 数学, <b>Größe</b> 🙂"
_HERE = "or leave out --teacher_endpoint: the teacher then runs on this machine"


@dataclass(frozen=True, slots=True)
class ServedTeacher:
    """A teacher at an endpoint."""

    profile: Profile
    endpoint: Endpoint
    """Place where it is served; the concurrency is that of one process of the training."""
    used: BaseModelUsed
    """Description of the teacher in the training's record; its weights are not known."""

    @property
    def name(self) -> str:
        return self.used.name

    def __str__(self) -> str:
        return f"The server of the teacher {self.profile.model} at {self.endpoint.base_url}"


def find_served(
    config: DistillOptions, base: BaseCheckpoint, prompts: Prompts, launch: Launch
) -> ServedTeacher:
    """Find the served teacher that ``config`` names, and ask its server, except in a dry run.

    Raises:
        ConfigError: The server does not give what the training needs.
        TeacherError: The server does not answer, refuses the key or does not serve the model.
    """
    assert config.teacher_server, "the teacher is served"
    endpoint = located(config.teacher_server)
    profile = profile_at(str(config.teacher_model_name_or_path), endpoint)
    share = max(1, endpoint.concurrency // launch.processes)
    used = BaseModelUsed(name=profile.name, revision="", template_sha256=base.chat.sha256)
    teacher = ServedTeacher(profile, endpoint.model_copy(update={"concurrency": share}), used)
    if is_main() and not config.dry_run:
        tokens = prompts.longest_of_teacher(base) + int(config.max_completion_length or 0)
        _check_context(teacher, tokens)
        scorer = PromptScorer(profile, teacher.endpoint)
        try:
            _check_scores(teacher, scorer, tokens, config.top_k_of_teacher)
            _check_tokenizer(teacher, scorer, base, prompts)
        finally:
            scorer.close()
    return teacher


def _check_context(teacher: ServedTeacher, tokens: int) -> None:
    """Check server, key, model and context; ``tokens`` are those of the longest sequence."""
    try:
        stated = ServerProbe().context(teacher.profile.model, teacher.endpoint)
    except TeacherError as error:  # whose fix names the flags of a run
        fix = error.fix.replace("--set endpoint.", "the key teacher_endpoint.")
        raise TeacherError(error.what, fix.replace("--endpoint", "--teacher_endpoint")) from error
    context, needed = teacher.endpoint.context or stated, tokens + 1
    if context and context < needed:
        raise ConfigError(
            f"{teacher} reads {context:,} tokens, but the longest prompt and a response have "
            f"{needed:,}, with one that the server writes",
            f"Start it with --max-model-len {needed}, or give a smaller --max_completion_length or "
            "sets with a smaller max_tokens.",
        )


def _check_scores(teacher: ServedTeacher, scorer: PromptScorer, tokens: int, top: int) -> None:
    def why_not(sequence: list[int], top: int = 0) -> str | None:
        (found,) = scorer.scores([Scored(sequence)], top)
        return found.error if isinstance(found, Response) else None

    if why := why_not(TOKEN_IDS):
        raise ConfigError(
            f"{teacher} gives no log-probabilities of the tokens of a prompt: {why}",
            f"Serve the teacher with `vllm serve MODEL`, {_HERE}. `heavydistill doctor` says what "
            "a server gives.",
        )
    if top and (why := why_not(TOKEN_IDS, top)):
        raise ConfigError(
            f"{teacher} does not give the {top} likeliest tokens of each place: {why}",
            f"Start vLLM with --max-logprobs {top}, or give --teacher_top_k "
            f"{most_top(why) or 'N'}.",
        )
    whole = (TOKEN_IDS * (tokens // len(TOKEN_IDS) + 1))[:tokens]
    if why := why_not(whole, top):
        raise ConfigError(
            f"{teacher} does not score {tokens:,} tokens, those of the longest prompt and a "
            f"response: {why}",
            "Start it with more memory or a larger --max-model-len, give a longer timeout_s in "
            "teacher_endpoint, or a smaller --max_completion_length.",
        )


def _check_tokenizer(
    teacher: ServedTeacher, scorer: PromptScorer, base: BaseCheckpoint, prompts: Prompts
) -> None:
    rows = prompts.train.select(range(min(_PROMPTS, len(prompts.train))))["prompt"]
    texts = [_TEXT, *(base.chat.render(prompt, opens=True) for prompt in rows)]
    asked = [*map(Scored, texts), Scored([*TOKEN_IDS, len(base.tokenizer) - 1])]
    *split, last = (scorer.scores([each])[0] for each in asked)
    parted = next(filter(None, map(_parting, map(base.chat.ids, texts), split)), "")
    if isinstance(last, Response):
        parted = parted or f"it does not know the last id: {last.error}"
    if parted:
        raise ConfigError(
            f"The tokenizers of {base.name} and of the teacher {teacher.profile.model} differ, and "
            f"their distributions cannot be compared: {parted}",
            "Give a teacher of the student's family, whose tokenizer is the same.",
        )


def _parting(mine: list[int], found: TokenScores | Response) -> str:
    """Return how a server splits a text otherwise than into the ids ``mine``; empty if it does not.

    The reply does not name the first id. Some servers put another one before a text.
    """
    if isinstance(found, Response):
        return f"it does not split a text: {found.error}"
    theirs = [token for token, _ in found.tokens]
    if theirs in (mine[1:], mine):
        return ""
    at = parts_at(mine[1:], theirs)
    return f"from the ids of the same text, {mine[1:][at : at + 3]} and {theirs[at : at + 3]}"
