"""Which prompts leave room for a response in the model's context; none is ever cut.

With ``too_long: leave_out`` those that do not are counted as ``too_long``, and one that is left is
enough; else all have to. Of an episode it is both prompts: that of the thinkers, and that of the
deliberator, in whose cache are at least the frames of the attempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from heavydistill.config.run import RunConfig
from heavydistill.errors import ConfigError
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.train.base_model import Base
from heavydistill.train.grpo.config import JOINT, LEAVE_OUT, Asked
from heavydistill.train.grpo.episodes import Episodes

TOO_LONG = "too_long"
_Row = dict[str, Any]


def context_of(asked: Asked, base: Base) -> int:
    """Most tokens of a prompt and a response together."""
    return min(base.context, _server(asked) or base.context)


def episodes_of(asked: Asked, base: Base, run: RunConfig) -> Episodes:
    """What plays the episodes of a training, or makes caches as they have them."""
    most = asked.trl.max_completion_length
    return Episodes(run, base.chat, ReaderTokenizer(base.path), context_of(asked, base), most)


def with_room(
    asked: Asked, base: Base, run: RunConfig | None, rows: list[_Row], left_out: Counter[str]
) -> tuple[list[_Row], list[int]]:
    """The prompts that fit, and their tokens.

    Args:
        asked: The training.
        base: The model.
        run: How problems are asked; None where the prompts are caches.
        rows: With ``prompt``; for episodes also with the fields of a problem.
        left_out: What is left out is counted there.

    Raises:
        ConfigError: One does not fit and is not to be left out, or none does; the message says
            what would do.
    """
    lengths = [_tokens(base, row) for row in rows]
    leaves_out = asked.rl.too_long == LEAVE_OUT
    if asked.mode == JOINT:
        assert run, "episodes are of a run"
        fits = _of_episodes(episodes_of(asked, base, run), rows, lengths, leaves_out)
    else:
        response = asked.trl.max_completion_length
        room = context_of(asked, base) - response
        fits = [tokens <= room for tokens in lengths]
        if leaves_out and not any(fits):
            raise ConfigError(
                f"max_completion_length: no prompt leaves room for {response:,} tokens of a "
                f"response in {room + response:,}; the shortest has {min(lengths):,}",
                "Give a smaller one.",
            )
        if not leaves_out:
            check_room(lengths, response, base.context, _server(asked))
    kept = [at for at, is_fit in enumerate(fits) if is_fit]
    if lost := len(rows) - len(kept):
        left_out[TOO_LONG] += lost
    return [rows[at] for at in kept], [lengths[at] for at in kept]


def _of_episodes(
    episodes: Episodes, rows: Sequence[_Row], lengths: Sequence[int], leaves_out: bool
) -> list[bool]:
    lacks = [episodes.lack_of_room(row) for row in rows]
    found = [at for at, lack in enumerate(lacks) if lack]
    if found and (not leaves_out or len(found) == len(rows)):
        # What would do for the longest prompt would do for all.
        lack = lacks[max(found, key=lambda at: lengths[at])]
        assert lack
        what, fix = lack
        if len(found) < len(rows):
            fix = f"leave out what is longer with --too_long {LEAVE_OUT}, or {fix}"
        many = f"{len(found):,} of {len(rows):,} problems"
        raise ConfigError(f"{what} ({many})", f"{fix[0].upper()}{fix[1:]}.")
    return [lack is None for lack in lacks]


def check_room(lengths: Sequence[int], response: int, context: int, server: int | None) -> None:
    """See to it that the longest prompt and a response fit.

    Args:
        lengths: Tokens of the prompts.
        response: ``max_completion_length``.
        context: Of the model.
        server: ``vllm_max_model_length``.

    Raises:
        ConfigError: They do not.
    """
    longest = max(lengths)
    if longest + response > context:
        many = sum(length + response > context for length in lengths)
        fixes = []
        if longest < context:
            fixes.append(f"give --max_completion_length {context - longest}")
        if many < len(lengths):
            fixes.append("leave out what is longer with --too_long leave_out")
        if not fixes:
            fixes.append(
                "take a model that reads more or shorter prompts; caches are cut to fit by "
                f"`heavydistill build --set max_tokens={context}`"
            )
        fix = ", or ".join(fixes)
        raise ConfigError(
            f"max_completion_length: {many:,} of {len(lengths):,} prompts and {response:,} tokens "
            f"of a response do not fit the {context:,} of the model; the longest prompt has "
            f"{longest:,}",
            f"{fix[0].upper()}{fix[1:]}.",
        )
    if server is not None and longest + response > server:
        raise ConfigError(
            f"vllm_max_model_length: {server:,} tokens do not hold the longest prompt, "
            f"{longest:,}, and a response of {response:,}",
            f"Give --vllm_max_model_length {longest + response}.",
        )


def _server(asked: Asked) -> int | None:
    return asked.trl.vllm_max_model_length if asked.trl.use_vllm else None


def _tokens(base: Base, row: _Row) -> int:
    try:
        return base.chat.prompt_tokens(row["prompt"])
    except ValueError as error:
        raise ConfigError(
            f"The prompt of problem {row['problem']} cannot be rendered: {error}",
            "Give a chat template that takes it, with --chat_template_path FILE.",
        ) from error
