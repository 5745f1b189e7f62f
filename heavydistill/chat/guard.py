"""Whether what is to be learnt is among the tokens that are learnt.

A chat template can delete the thinking, wrap it twice, or render a prompt in another way once an
answer follows; a trainer can cut a row's end, or learn from the wrong place on. None of this is
seen in a loss. The guard looks at the tokens themselves:

    unrendered          the template does not take the row
    prompt_lost         the prompt's text is not in the tokens that the student reads
    prompt_not_prefix   the prompt alone has other tokens than at the start of the row
    starts_late         learning begins behind what opens the answer
    starts_early        learning begins before that
    cut                 tokens are missing at the end
    other_tokens        the tokens are not those of the row
    reasoning_lost      the thinking is not learnt, or not before the answer
    answer_lost         the answer is not learnt
    doubled             one of them is there twice
    tags_doubled        there is more than one pair of think tags
    tags_lost           nothing, or half a pair, parts the thinking from the answer
    no_eos              no token is learnt that ends the response
    stops_early         the response ends before the answer does
    control_token       thinking or answer holds what the tokenizer takes for a control token
    too_long            there are more tokens than fit

Rows are dataclasses of ``store.sets.set_rows`` or dicts as read from parquet. Not covered: whether
a row is worth learning, and several turns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heavydistill.chat.template import TAGS, Chat
from heavydistill.errors import ConfigError
from heavydistill.store.sets.set_rows import SftRow

NOT_LEARNT = -100
"""The label of a token that is not learnt, in PyTorch and TRL."""

_SHOWN = 60
_NAMED = 5
_LEAST_DOUBLED = 16  # characters; less is said twice by chance


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a row."""

    code: str
    """See the module."""
    detail: str
    """What is lost, in words."""
    problem: str
    generation: str

    def __str__(self) -> str:
        row = f"problem {self.problem}, generation {self.generation}"
        return f"{row}: {self.code}: {self.detail}"


@dataclass(frozen=True, slots=True)
class TokenizedRow:
    """A row in a trainer's hands: as many labels as ids, ``NOT_LEARNT`` where none is learnt."""

    ids: Sequence[int]
    labels: Sequence[int]

    @property
    def learnt(self) -> list[int]:
        """The ids that are learnt."""
        return [
            token for token, label in zip(self.ids, self.labels, strict=True) if label != NOT_LEARNT
        ]

    @property
    def start(self) -> int:
        """Where learning begins."""
        labels = enumerate(self.labels)
        return next((at for at, label in labels if label != NOT_LEARNT), len(self.ids))


def demand_whole(faults: Sequence[Fault], rows: int, where: str) -> None:
    """Refuse so many rows if there are faults in them; ``where`` says whose rows they are.

    Raises:
        ConfigError: There are; it names the first ones.
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
        f"{where}: {len(of_row):,} of {rows:,} rows would not be learnt as they stand "
        f"({listed}). The first: {'; '.join(first)}",
        "Build the sets for this student and its template, with no smaller max_tokens; "
        "--chat-template FILE gives a template that keeps what it loses.",
    )


def guard(
    chat: Chat,
    rows: Iterable[SftRow | Mapping[str, Any]],
    max_tokens: int,
    seen: Iterable[TokenizedRow] | None = None,
) -> list[Fault]:
    """What is wrong with rows that are learnt with ``chat``, in their order.

    ``seen`` are the same rows as a trainer prepared them (default: as TRL would).
    """
    prepared = itertools.repeat(None) if seen is None else seen
    pairs = zip(rows, prepared, strict=seen is not None)
    looked_at = (Inspection(chat, row, max_tokens, given) for row, given in pairs)
    return [fault for inspection in looked_at for fault in inspection.faults()]


class Inspection:
    """A row, what its template makes of it, and what is learnt; tokenized once.

    ``seen`` is the row as a trainer prepared it (default: as TRL would).
    """

    def __init__(
        self,
        chat: Chat,
        row: SftRow | Mapping[str, Any],
        max_tokens: int | None = None,
        seen: TokenizedRow | None = None,
    ) -> None:
        from heavydistill.schema import to_row

        fields = row if isinstance(row, Mapping) else to_row(row)
        self._chat, self._row, self._max_tokens = chat, fields, max_tokens
        self._wanted = chat.tokens(fields["prompt"], fields["completion"])
        prompt, completion = self._wanted.prompt, self._wanted.completion
        labels = [*[NOT_LEARNT] * len(prompt), *completion]
        self.seen = seen or TokenizedRow([*prompt, *completion], labels)
        self._reasoning = str(fields["reasoning"]).strip()
        self._answer = str(fields["answer_text"]).strip()

    def faults(self) -> list[Fault]:
        """What is wrong with it."""
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
        if self._wanted.fault:
            yield "prompt_not_prefix", self._wanted.fault
        yield from self._placed()
        text = self._chat.decode(self.seen.learnt)
        yield from self._texts(text)
        yield from self._tags(asked, whole)
        yield from self._end(text)
        if control := self._chat.control_token(f"{self._reasoning}\n{self._answer}"):
            yield "control_token", f"its text holds {control}"

    def _placed(self) -> Iterable[tuple[str, str]]:
        """Whether the tokens are the row's, and learning begins with the answer."""
        seen, wanted = self.seen, [*self._wanted.prompt, *self._wanted.completion]
        ids, start, right = list(seen.ids), seen.start, len(self._wanted.prompt)
        if start > right:
            lost = self._shown_ids(ids[right:start])
            yield "starts_late", f"{start - right:,} tokens of the answer are not learnt: {lost}"
        if start < right:
            more = self._shown_ids(ids[start:right])
            yield "starts_early", f"{right - start:,} tokens of the prompt are learnt: {more}"
        if len(ids) < len(wanted) and ids == wanted[: len(ids)]:
            lost = self._shown_ids(wanted[len(ids) :])
            yield "cut", f"{len(wanted) - len(ids):,} tokens are cut off the end: {lost}"
        elif ids != wanted:
            yield "other_tokens", f"its {len(ids):,} tokens are not the {len(wanted):,} of its text"
        if self._max_tokens is not None and len(ids) > self._max_tokens:
            yield "too_long", f"it has {len(ids):,} tokens, and {self._max_tokens:,} fit"

    def _shown_ids(self, ids: Sequence[int]) -> str:
        return _shown(self._chat.decode(ids))

    def _texts(self, text: str) -> Iterable[tuple[str, str]]:
        """Whether thinking and answer are learnt, once each, in this order."""
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
        """Where a part is and how it reads there; -1 if nowhere.

        A tokenizer may write a text in another way, such as with composed letters.
        """
        find = text.rfind if last else text.find
        at = find(part)
        if at < 0:
            part = self._chat.decode(self._chat.ids(part)).strip()
            at = find(part)
        return at, part

    def _where(self, part: str) -> str:
        all_of_it = self._chat.decode(self.seen.ids)
        there = self._found(part, all_of_it)[0] >= 0
        how = "is in the row and not learnt there" if there else "is not in the row"
        return f"{_shown(part)} {how}"

    def _tags(self, asked: str, whole: str) -> Iterable[tuple[str, str]]:
        """Whether the turn holds one pair of tags at most, and something parts its two parts."""
        turn = whole[len(asked) - len(self._chat.opener) :]
        opens, closes = map(turn.count, TAGS)
        counted = f"it has {opens} {TAGS[0]} and {closes} {TAGS[1]}"
        own = [tag for tag in TAGS if tag in self._reasoning or tag in self._answer]
        if own:
            yield "tags_doubled", f"{own[0]} stands in the text itself, so {counted}"
        elif max(opens, closes) > 1:
            yield "tags_doubled", counted
        elif opens != closes:
            yield "tags_lost", counted
        elif self._reasoning:
            at = turn.rfind(self._answer)
            # The first one, for a short thinking such as ">" stands in the marks behind it too.
            between = turn[:at].split(self._reasoning, 1)[-1] if at >= 0 else TAGS[1]
            if not between.strip() or (closes and TAGS[1] not in between):
                yield "tags_lost", f"between thinking and answer is nothing but {between!r}"

    def _end(self, text: str) -> Iterable[tuple[str, str]]:
        """Whether a token is learnt that ends the response, and not before the answer is over."""
        start = len(self._wanted.prompt)
        learnt = TokenizedRow(self.seen.ids[start:], self.seen.labels[start:]).learnt
        stop = next((at for at, token in enumerate(learnt) if token in self._chat.stops), None)
        if stop is None:
            names = ", ".join(sorted(self._chat.decode([token]) for token in self._chat.stops))
            yield "no_eos", f"it ends in {text[-20:]!r}, and generation stops at {names} alone"
        elif self._found(self._answer, self._chat.decode(learnt[:stop]), last=True)[0] < 0:
            yield "stops_early", f"it stops before {self._shown_ids(learnt[stop:])}"


def _shown(text: str) -> str:
    """A text in a message: its start and its end."""
    text = text.strip()
    if len(text) > _SHOWN:
        text = f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"
    return repr(text)
