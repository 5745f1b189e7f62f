"""Cuts attempts to a token budget without losing their final answers.

Modes:
    answer_only: The answer text. If it exceeds its share, its end is kept, which contains the
        answer.
    answer_clipped: The answer text. If it exceeds its share, its beginning and the sentence of the
        final answer are kept.
    head_tail: The answer text. If it exceeds its share, its beginning and its end are kept.
    think_clipped: The reasoning, a blank line, the answer text. If these exceed their share, the
        beginning of the reasoning is removed; if the answer text alone exceeds the share, it is cut
        as in answer_only.
    A plug-in gets the attempt with its reasoning and the share, first of all tokens.

Code that the attempt ran and its outputs stand before the answer text (``executed_cells``). They
are cut before anything else: the middle of long outputs, then all outputs, then the code of the
first cells. The record of the cut says so, e.g. ``answer_only, outputs cut``.

A line with an ellipsis replaces removed text between two kept parts. ``water_fill`` divides the
budget into shares. The final answer is the last occurrence of ``extracted`` in the answer text,
preferably in a box. If there is none, it is the text from the last box to the end of its line, or
else the last line, at most 64 tokens. The sentence with the answer is kept if it fits the share.
The answer itself is always kept: ``prune`` may exceed its budget to keep it, and ``cache`` then
checks the total.

Before counting, control tokens are made harmless by a space after their first character; all other
text stays unchanged. Not covered: control tokens of a single character, which cannot be split;
summaries of attempts by a model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, TypeVar

from heavydistill import plugins
from heavydistill.heavy.executed_cells import ExecutedCell, cells_of, fenced_block, shown
from heavydistill.schema import CacheItem, Generation

_ELLIPSIS = "\n...\n"
_LEAST_OUTPUT = 8  # tokens, below which nothing of an output is shown
# Maximum tokens of the line that is used if the answer is not found in the text.
_MOST_TOKENS_OF_A_LINE = 64
_HEAD_SHARE = {"answer_only": 0.0, "answer_clipped": 1.0, "head_tail": 0.5, "think_clipped": 0.0}
# Control tokens by which the chat templates of common model families mark turns and thinking.
_CONTROL_SHAPES = "|".join(
    (
        r"<[|｜][\w▁./:-]{2,}[|｜]>",  # Qwen, Llama 3, DeepSeek, Phi, gpt-oss, Cohere
        r"</?think>",
        r"</?s>|<</?SYS>>|<(?:bos|eos|pad|unk|mask)>",  # Llama 2 and others
        r"\[/?(?:INST|SYSTEM_PROMPT|THINK|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)"
        r"|MODEL_SETTINGS)\]",  # Mistral
        r"<(?:start|end)_of_turn>",  # Gemma 3
        # Gemma 4
        r"<\|(?:turn|channel|think|tool(?:_call|_response)?|image|audio|video)>",
        r"<(?:turn|channel|think|tool(?:_call|_response)?|image|audio|video)\|>|<\|\"\|>",
        r"\[[gs]MASK\]|<[se]op>",  # GLM
        r"<[A-Z]+_TOKEN>",  # Cohere
        r"</?seed:[a-z_:]+>",  # Seed-OSS
        r"</?role>",  # Ling
        r"\[\|(?:system|user|assistant|tool|endofturn)\|\]",  # EXAONE
        r"\]~!?b[\[\]]|\[e~\[",  # MiniMax
    )
)
_BOX = re.compile(r"\\f?boxed\s*\{")
_SENTENCE_STARTS_AFTER = re.compile(r"[.!?]\s|[。！？\n]")
_SENTENCE_ENDS = re.compile(r"[.!?](?=\s)|[。！？]|(?=\n)|\Z")

_Span = tuple[int, int]
_T = TypeVar("_T")


class Reader(Protocol):
    """Counts tokens as the model that reads a cache does, or an upper bound, and cuts texts."""

    control_tokens: tuple[str, ...]  # Strings that the model reads as control tokens, not as text

    @property
    def name(self) -> str:
        """Name of the tokenizer or estimate used for the counts so far."""

    def count(self, text: str) -> int:
        """Number of tokens of ``text``."""

    def head(self, text: str, tokens: int) -> str:
        """A prefix of ``text`` with at most ``tokens`` tokens, and close to that number."""

    def tail(self, text: str, tokens: int) -> str:
        """A suffix of ``text`` with at most ``tokens`` tokens, and close to that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A generation prepared for cutting; spans are (start, end) in ``answer_text``."""

    generation: str  # Id of the generation
    mode: str  # Pruning mode
    reasoning: str  # Thinking that may be included; empty in shipped modes but ``think_clipped``
    answer_text: str
    sentence: _Span  # Span of the sentence with the final answer
    final: _Span  # Span of the final answer, within ``sentence``
    text: str  # Uncut text: all that a cache may show of the attempt
    tokens: int  # Number of tokens of the uncut text
    least_tokens: int  # Number of tokens of the final answer, at most ``tokens``
    defused: int  # Number of control tokens that were made harmless in the uncut text
    cells: Sequence[ExecutedCell] = ()  # Code that it ran, with outputs; empty for a plug-in's mode


def defuse(text: str, control_tokens: tuple[str, ...]) -> tuple[str, int]:
    """Make control tokens in a text harmless; returns (changed text, number of changed tokens).

    The control tokens of common model families are included: the reader's may be unknown, and
    another model may read the text later.
    """
    pattern, total = _control_pattern(control_tokens), 0
    while True:
        # Repeated, because an inserted space may create a control token that contains a space.
        text, count = pattern.subn(_break, text)
        if not count:
            return text, total
        total += count


def prepare(generation: Generation, mode: str, reader: Reader) -> Attempt:
    """Analyse a usable generation once, so that it can be cut to different shares."""
    answer_text, defused = defuse(generation.answer_text, reader.control_tokens)
    extracted, _ = defuse(generation.extracted or "", reader.control_tokens)
    reasoning = ""
    if mode == "think_clipped" or mode not in _HEAD_SHARE:
        reasoning, more = defuse(generation.reasoning.strip(), reader.control_tokens)
        defused += more
    sentence, final = _final_spans(answer_text, extracted.strip(), reader)
    cells, more = _harmless(cells_of(generation) if mode in _HEAD_SHARE else [], reader)
    defused += more
    text = _joined_parts(reasoning, shown(cells), answer_text)
    tokens = reader.count(text)
    attempt = Attempt(
        generation=generation.id,
        mode=mode,
        reasoning=reasoning,
        answer_text=answer_text,
        sentence=sentence,
        final=final,
        text=text,
        tokens=tokens,
        least_tokens=min(tokens, reader.count(answer_text[slice(*final)])),
        defused=defused,
        cells=cells,
    )
    if mode in _HEAD_SHARE:
        return attempt
    text = _cut(attempt, tokens, reader)
    return replace(attempt, text=text, tokens=reader.count(text))


def prune(attempts: Sequence[Attempt], budget: int, reader: Reader) -> list[tuple[str, CacheItem]]:
    """Cut attempts to a token budget; returns (text, record of the cut) for each.

    The sum of the token counts of the texts, each counted alone, is at most ``budget``. If the
    final answers alone exceed the budget, each text is just its final answer.
    """
    needs = [attempt.tokens for attempt in attempts]
    shares = water_fill(needs, budget, [attempt.least_tokens for attempt in attempts])
    pruned = []
    for attempt, share in zip(attempts, shares, strict=True):
        whole = attempt.tokens <= share
        text, cut = (attempt.text, "") if whole else _fitted(attempt, share, reader)
        item = CacheItem(
            generation=attempt.generation,
            mode=", ".join(filter(None, (attempt.mode, cut))),
            tokens_before=attempt.tokens,
            tokens_after=attempt.tokens if whole else reader.count(text),
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            defused=attempt.defused,
        )
        pruned.append((text, item))
    return pruned


def water_fill(needs: Sequence[int], budget: int, least: Sequence[int] = ()) -> list[int]:
    """Divide a budget: small needs are met in full, and the rest is divided evenly.

    Each share is at most its need and at least its ``least`` (empty: 0 for all); shares below their
    need differ by at most 1. The sum is ``budget``, or the sum of ``needs`` if that is smaller, or
    the sum of ``least`` if that is larger.
    """
    least = least or [0] * len(needs)

    def at(level: int) -> list[int]:
        return [min(need, max(low, level)) for need, low in zip(needs, least, strict=True)]

    level, too_high = 0, max(needs, default=0) + 1
    while too_high - level > 1:
        middle = (level + too_high) // 2
        if sum(at(middle)) <= budget:
            level = middle
        else:
            too_high = middle
    shares, next_shares = at(level), at(level + 1)
    rest = budget - sum(shares)
    for position, (share, next_share) in enumerate(zip(shares, next_shares, strict=True)):
        if rest > 0 and next_share > share:
            shares[position] = next_share
            rest -= 1
    return shares


def fit(build: Callable[[int], _T], count: Callable[[_T], int], room: int, limit: int) -> _T:
    """Build a text for ``room`` tokens; reduce ``room`` until the text has at most ``limit``
    tokens.

    The token count of a joined text differs from the sum of its parts, so ``room`` is reduced by
    the measured excess, in growing steps. If nothing fits, ``build(0)`` is returned.
    """
    extra = 0
    while True:
        built = build(room)
        excess = count(built) - limit
        if excess <= 0 or room == 0:
            return built
        room, extra = max(0, room - excess - extra), 2 * extra + 1


def _harmless(cells: Sequence[ExecutedCell], reader: Reader) -> tuple[list[ExecutedCell], int]:
    """(cells whose control tokens are harmless, number of changed tokens)."""
    texts = [
        defuse(text, reader.control_tokens) for cell in cells for text in (cell.code, cell.output)
    ]
    harmless = [text for text, _ in texts]
    pairs = zip(harmless[::2], harmless[1::2], strict=True)
    return [ExecutedCell(*pair) for pair in pairs], sum(count for _, count in texts)


def mode_of(item: CacheItem) -> str:
    """The pruning mode of a record, without what was cut."""
    return item.mode.partition(",")[0]


def _shorter(cells: Sequence[ExecutedCell], reader: Reader) -> Iterator[tuple[str, str]]:
    """Yield ever shorter forms of the blocks, each with what was cut."""
    tokens = [reader.count(cell.output) for cell in cells]
    most = max(tokens, default=0) // 2
    while most >= _LEAST_OUTPUT:
        cut = [
            cell
            if count <= most
            else ExecutedCell(cell.code, _without_middle(cell.output, most, reader))
            for cell, count in zip(cells, tokens, strict=True)
        ]
        yield shown(cut), "outputs cut"
        most //= 2
    yield shown([ExecutedCell(cell.code, _ELLIPSIS.strip()) for cell in cells]), "outputs cut"
    for first in range(1, len(cells) + 1):
        blocks = [fenced_block("python", cell.code) for cell in cells[first:]]
        yield "\n".join([_ELLIPSIS.strip(), *blocks]), "code cut"


def _without_middle(text: str, tokens: int, reader: Reader) -> str:
    half = tokens // 2
    return f"{reader.head(text, half)}{_ELLIPSIS}{reader.tail(text, half)}"


def _fitted(attempt: Attempt, share: int, reader: Reader) -> tuple[str, str]:
    """(the attempt in at most ``share`` tokens, what was cut of its cells)."""
    what = ""
    for cells, what in _shorter(attempt.cells, reader) if attempt.cells else ():
        text = _joined_parts(attempt.reasoning, cells, attempt.answer_text)
        if reader.count(text) <= share:
            return text, what
    return _cut(attempt, share, reader), what


def _cut(attempt: Attempt, share: int, reader: Reader) -> str:
    """Cut an attempt to at most ``share`` tokens; its final answer must fit into ``share``."""
    answer = attempt.answer_text
    if attempt.mode not in _HEAD_SHARE:
        own, final = plugins.get("pruning", attempt.mode), answer[slice(*attempt.final)]
        text = own(attempt, share, reader)
        text = defuse(text, reader.control_tokens)[0] if isinstance(text, str) else ""
        if final in text and reader.count(text) <= share:
            return text
        raise own.fault(f"did not return {share} tokens at most, with the answer {final[:80]!r}")
    left = share - reader.count(answer) if attempt.reasoning else -1
    if left >= 0:

        def with_reasoning(room: int) -> str:
            return _joined_parts(reader.tail(attempt.reasoning, room), answer)

        return fit(with_reasoning, reader.count, left, share)
    head_share = _HEAD_SHARE[attempt.mode]
    sentence_fits = reader.count(answer[slice(*attempt.sentence)]) <= share
    kept = attempt.sentence if sentence_fits else attempt.final

    def around_kept(room: int) -> str:
        of_head = int(room * head_share)
        head_ends = len(reader.head(answer, of_head))
        tail_starts = len(answer) - len(reader.tail(answer, room - of_head))
        return _joined(answer, [(0, head_ends), kept, (tail_starts, len(answer))])

    return fit(around_kept, reader.count, share, share)


def _joined(text: str, spans: Sequence[_Span]) -> str:
    """The union of the spans; a gap longer than the ellipsis line is replaced by that line."""
    joined, reached = "", 0
    for start, end in sorted(spans):
        if start == end:
            continue
        if joined:
            gap = text[reached:start]
            joined += gap if len(gap) <= len(_ELLIPSIS) else _ELLIPSIS
        joined += text[max(start, reached) : end]
        reached = max(reached, end)
    return joined


def _joined_parts(*parts: str) -> str:
    return "\n\n".join([*filter(None, parts[:-1]), parts[-1]])


def _final_spans(text: str, extracted: str, reader: Reader) -> tuple[_Span, _Span]:
    """(span of the sentence with the final answer, span of the final answer) in ``text``."""
    final = _last_occurrence(text, extracted) if extracted else None
    if final:
        starts = [m.end() for m in _SENTENCE_STARTS_AFTER.finditer(text, 0, final[0])]
        ends = _SENTENCE_ENDS.search(text, final[1])
        return (starts[-1] if starts else 0, ends.end() if ends else len(text)), final
    lines = [m.span() for m in re.finditer(r"[^\n]+", text) if m.group().strip()]
    if not lines:
        return (0, 0), (0, 0)
    boxes = [m.start() for m in _BOX.finditer(text)]
    if boxes:
        start, end = next(line for line in lines if line[0] <= boxes[-1] < line[1])
        box = reader.head(text[boxes[-1] : end], _MOST_TOKENS_OF_A_LINE)
        return (start, end), (boxes[-1], boxes[-1] + len(box))
    start, end = lines[-1]
    return (start, end), (end - len(reader.tail(text[start:end], _MOST_TOKENS_OF_A_LINE)), end)


def _last_occurrence(text: str, extracted: str) -> _Span | None:
    """The last occurrence in a box, else as a whole word, else anywhere; None if there is none."""
    exact = re.escape(extracted)
    for pattern in (rf"{_BOX.pattern}\s*{exact}\s*\}}", rf"(?<!\w){exact}(?!\w)", exact):
        spans = [m.span() for m in re.finditer(pattern, text)]
        if spans:
            return spans[-1]
    return None


def control_token_in(text: str) -> str:
    """Return the first control token of common model families in a text; empty if there is none."""
    match = _control_pattern(()).search(text)
    return match.group() if match else ""


@cache
def _control_pattern(control_tokens: tuple[str, ...]) -> re.Pattern[str]:
    breakable = [token for token in control_tokens if len(token.strip()) > 1]
    longest_first = sorted(breakable, key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, longest_first), _CONTROL_SHAPES]))


def _break(match: re.Match[str]) -> str:
    token = match.group()
    after_first = len(token) - len(token.lstrip()) + 1
    return f"{token[:after_first]} {token[after_first:]}"
