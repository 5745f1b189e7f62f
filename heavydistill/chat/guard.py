"""Checks that thinking, answer and end of a row are among the tokens with a loss.

A chat template can delete the thinking, wrap it twice, or render a prompt differently when an
answer follows. The loss does not show this. The guard examines the tokens of a row:

    unrendered          the template does not accept the row
    prompt_lost         the prompt's text is not in the tokens that the student reads
    prompt_not_prefix   the prompt alone has other tokens than at the start of the row
    reasoning_lost      the thinking is not learnt, or not before the answer
    answer_lost         the answer is not learnt
    doubled             thinking or answer occurs twice
    tags_doubled        there is more than one pair of think tags
    tags_lost           no tags, or only one of a pair, separate the thinking from the answer
    no_eos              no token that ends the response is learnt
    stops_early         the response ends before the answer does
    control_token       prompt, thinking or answer has a text that the tokenizer reads as a control
                        token
    too_long            the row has more tokens than fit

Rows are dataclasses of ``store.sets.set_rows``, or dicts read from parquet. Both completions of a
pair are examined. Not covered: the quality of a row; responses of several turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heavydistill.chat.template import Chat
from heavydistill.errors import ConfigError
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.store.sets.set_rows import SftRow

_SHOWN = 60
_NAMED = 5
_LEAST_DOUBLED = 16  # Characters; shorter texts may occur twice by chance


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that the guard found in a row."""

    code: str  # Code of the fault; see the module docstring
    detail: str  # Description of what would be lost
    problem: str
    generation: str

    def __str__(self) -> str:
        row = f"problem {self.problem}, generation {self.generation}"
        return f"{row}: {self.code}: {self.detail}"


def demand_whole(faults: Sequence[Fault], rows: int, where: str) -> None:
    """Raise ConfigError if there are faults; the message names the first ones.

    ``rows`` is the number of rows that were checked, ``where`` is the name of their set.
    """
    if not faults:
        return
    of_row: dict[tuple[str, str], Fault] = {}
    for fault in faults:
        of_row.setdefault((fault.problem, fault.generation), fault)
    first = list(map(str, of_row.values()))[:_NAMED]
    counts = Counter(fault.code for fault in faults)
    listed = ", ".join(f"{count:,} {code}" for code, count in counts.most_common())
    raise ConfigError(
        f"{where}: {len(of_row):,} of {rows:,} rows lose or change tokens in training ({listed})",
        "Build the sets for this student and its template, with a max_tokens that no row exceeds, "
        "or give a template that loses nothing with --chat-template FILE. The first:"
        + "".join(f"\n  {fault}" for fault in first),
    )


def guard(chat: Chat, rows: Iterable[SftRow | Mapping[str, Any]], max_tokens: int) -> list[Fault]:
    """Return the faults of rows rendered by ``chat``, in the order of the rows."""
    sides = (side for row in rows for side in sides_of(row))
    return [fault for side in sides for fault in Inspection(chat, side, max_tokens).faults()]


def sides_of(row: SftRow | Mapping[str, Any]) -> list[SftRow | Mapping[str, Any]]:
    """Return a row for each completion of a pair, read from parquet; other rows as they are."""
    if isinstance(row, SftRow) or "chosen" not in row:
        return [row]
    sides: list[SftRow | Mapping[str, Any]] = []
    for side, generation in (("chosen", "generation"), ("rejected", "rejected_generation")):
        (turn,) = row[side]
        thinking, _, answer = turn["content"].rpartition(COMMON_TAGS[1])
        sides.append(
            {
                **row,
                "completion": row[side],
                "reasoning": turn.get("reasoning_content") or thinking.removeprefix(COMMON_TAGS[0]),
                "answer_text": answer,
                "generation": row[generation],
            }
        )
    return sides


class Inspection:
    """A row and its tokens, which are computed once, in the way of TRL."""

    def __init__(
        self, chat: Chat, row: SftRow | Mapping[str, Any], max_tokens: int | None = None
    ) -> None:
        from heavydistill.schema import to_row

        fields = row if isinstance(row, Mapping) else to_row(row)
        self._chat, self._row, self._max_tokens = chat, fields, max_tokens
        self.tokens = chat.tokens(fields["prompt"], fields["completion"])
        self._reasoning = str(fields["reasoning"]).strip()
        self._answer = str(fields["answer_text"]).strip()

    def faults(self) -> list[Fault]:
        problem, generation = str(self._row["problem"]), str(self._row["generation"])
        return [Fault(code, detail, problem, generation) for code, detail in self._found_wrong()]

    def _found_wrong(self) -> Iterable[tuple[str, str]]:
        try:
            asked = self._chat.render(self._row["prompt"], opens=True)
            whole = self._chat.render([*self._row["prompt"], *self._row["completion"]])
        except ValueError as error:
            yield "unrendered", str(error)
            return
        for message in self._row["prompt"]:
            if message["content"].strip() not in asked:
                yield "prompt_lost", f"{_shown(message['content'])} is not in the prompt"
        if self.tokens.fault:
            yield "prompt_not_prefix", self.tokens.fault
        count = len(self.tokens.prompt) + len(self.tokens.completion)
        if self._max_tokens is not None and count > self._max_tokens:
            yield "too_long", f"it has {count:,} tokens, and {self._max_tokens:,} fit"
        text = self._chat.decode(self.tokens.completion)
        yield from self._texts(text)
        yield from self._tags(asked, whole)
        yield from self._end(text)
        texts = [self._reasoning, self._answer, *(m["content"] for m in self._row["prompt"])]
        if control := self._chat.control_token("\n".join(texts)):
            yield "control_token", f"its text holds {control}"

    def _texts(self, text: str) -> Iterable[tuple[str, str]]:
        """Yield faults unless thinking and answer have a loss once each, in this order."""
        at, answer = self._found(self._answer, text, last=True)
        if at < 0:
            yield "answer_lost", self._where(self._answer)
            at = len(text)
        before, after = text[:at], text[at + len(answer) :]
        start, reasoning = self._found(self._reasoning, before)
        if start < 0:
            yield "reasoning_lost", self._where(self._reasoning)
            return
        rest = before[:start] + before[start + len(reasoning) :] + after
        for name, part in (("thinking", reasoning), ("answer", answer)):
            if len(part) >= _LEAST_DOUBLED and part in rest:
                yield "doubled", f"the {name} is there twice: {_shown(part)}"

    def _found(self, part: str, text: str, last: bool = False) -> tuple[int, str]:
        """Return (position, spelling) of a part in a text; the position is -1 if it is missing.

        A tokenizer may change the spelling of a text, e.g. by composing letters.
        """
        find = text.rfind if last else text.find
        at = find(part)
        if at < 0:
            part = self._chat.decode(self._chat.ids(part)).strip()
            at = find(part)
        return at, part

    def _where(self, part: str) -> str:
        all_of_it = self._chat.decode([*self.tokens.prompt, *self.tokens.completion])
        is_in_row = self._found(part, all_of_it)[0] >= 0
        how = "is in the row and not learnt there" if is_in_row else "is not in the row"
        return f"{_shown(part)} {how}"

    def _tags(self, asked: str, whole: str) -> Iterable[tuple[str, str]]:
        """Yield faults unless at most one pair of tags separates thinking and answer."""
        turn = whole[len(asked) - len(self._chat.opener) :]
        opens, closes = map(turn.count, COMMON_TAGS)
        counted = f"it has {opens} {COMMON_TAGS[0]} and {closes} {COMMON_TAGS[1]}"
        own = [tag for tag in COMMON_TAGS if tag in self._reasoning or tag in self._answer]
        if own:
            yield "tags_doubled", f"{own[0]} stands in the text itself, so {counted}"
        elif max(opens, closes) > 1:
            yield "tags_doubled", counted
        elif opens != closes:
            yield "tags_lost", counted
        elif self._reasoning:
            at = turn.rfind(self._answer)
            # Split at the first occurrence, because a short thinking such as ">" also occurs in the
            # tags.
            between = turn[:at].split(self._reasoning, 1)[-1] if at >= 0 else COMMON_TAGS[1]
            if not between.strip() or (closes and COMMON_TAGS[1] not in between):
                yield "tags_lost", f"between thinking and answer is nothing but {between!r}"

    def _end(self, text: str) -> Iterable[tuple[str, str]]:
        """Yield faults unless a token with a loss ends the response, after the whole answer."""
        learnt = self.tokens.completion
        stop = next((at for at, token in enumerate(learnt) if token in self._chat.stops), None)
        if stop is None:
            names = ", ".join(sorted(self._chat.decode([token]) for token in self._chat.stops))
            yield "no_eos", f"it ends in {text[-20:]!r}, and generation stops at {names} alone"
        elif self._found(self._answer, self._chat.decode(learnt[:stop]), last=True)[0] < 0:
            yield "stops_early", f"it stops before {_shown(self._chat.decode(learnt[stop:]))}"


def _shown(text: str) -> str:
    """Return the beginning and the end of a text, for a message."""
    text = text.strip()
    if len(text) > _SHOWN:
        text = f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"
    return repr(text)
