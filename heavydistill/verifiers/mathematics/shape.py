"""The kinds of final answers.

``shape_of`` splits an answer from the outside in: lists, unions, relations, brackets, matrices,
ratios, units. What remains is a single formula (``Formula``), which the module ``formula`` parses.
An ambiguous notation becomes ``AmbiguousAnswer``.

Not covered, hence ``AmbiguousAnswer``: sets described by more than one inequality, other set
differences, ellipses, several plus-minus signs, sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from heavydistill.verifiers.mathematics import units
from heavydistill.verifiers.mathematics.tokens import (
    FUNCTIONS,
    Tokens,
    cleaned,
    closing,
    depths,
    split,
    stripped,
    tokens_of,
)


@dataclass(frozen=True, slots=True, eq=False)
class AmbiguousAnswer:
    """An answer that cannot be split, with the reason of the undecided verdict."""

    reason: str


@dataclass(frozen=True, slots=True)
class Formula:
    """A single value or expression."""

    tokens: Tokens

    @property
    def text(self) -> str:
        return "".join(self.tokens)


@dataclass(frozen=True, slots=True)
class Words:
    """Text as written; records whether it could also be a product of variables."""

    text: str
    may_be_product: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """A value with a unit, as written."""

    value: Formula
    unit: str


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Several values without an order: ``1, 2``, ``{1, 2}``, ``1 or 2``, ``±1``."""

    items: tuple[Shape, ...]
    joined: Literal["comma", "tight", "or", "and", "braces", "sign"]


@dataclass(frozen=True, slots=True)
class Brackets:
    """Values in brackets other than braces: a tuple, a vector or an interval."""

    opens: str
    items: tuple[Shape, ...]
    closes: str

    @property
    def must_be_interval(self) -> bool:
        """Whether the brackets can only be an interval: half-open, or with an infinite end."""
        ends = [item.tokens[-1:] for item in self.items if isinstance(item, Formula)]
        is_half_open = self.opens + self.closes in ("(]", "[)")
        return len(self.items) == 2 and (is_half_open or (r"\infty",) in ends)


@dataclass(frozen=True, slots=True)
class Relation:
    """Formulas joined by relation signs: an equation, an inequality or a chain."""

    parts: tuple[Shape, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    r"""Sets joined by ``\cup``."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Without:
    r"""The real numbers but for some: ``\mathbb{R} \setminus \{0, 1\}``."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Cells of a matrix, row by row."""

    items: tuple[Shape, ...]
    width: int
    is_determinant: bool


@dataclass(frozen=True, slots=True)
class Ratio:
    """``a:b`` or ``a:b:c``."""

    items: tuple[Shape, ...]


Shape = (
    AmbiguousAnswer
    | Formula
    | Words
    | Measure
    | ValueSet
    | Brackets
    | Relation
    | Union
    | Without
    | Matrix
    | Ratio
)


MOST_PARTS = 40
_OR = frozenset(("or", r"\text{or}", r"\vee", r"\text{ or }"))
_AND = frozenset(("and", r"\text{and}", r"\wedge", "&"))
_COMMAS = frozenset((",", ";"))
_SPELLED = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne"}
_RELATIONS = frozenset(("=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx", *_SPELLED))
_DOUBTS = re.compile(
    r"(?:^|[^a-z])(?:maybe|perhaps|possibly|probably|either|guess|unsure)(?![a-z])"
)
_ELLIPSES = frozenset((r"\ldots", "...", ".."))
_UNREAD = frozenset((r"\mid", r"\colon", r"\to", r"\mapsto", r"\equiv", r"\sim", r"\forall", "&"))
_PART = re.compile(r"(\d+(?:\.\d+)?) ?([^\W\d_]+|°)")
_IN_PARTS = re.compile(rf"{_PART.pattern}(?:(?: and|,(?: and)?)? ?{_PART.pattern}){{1,2}}")
CLOCK = re.compile(r"(1[0-2]|0?[1-9]) ?: ?([0-5][0-9]) ?([ap])\.? ?m\.?")
_SUCH_THAT = frozenset(("|", ":", r"\mid", r"\colon"))
_NOT_UNDERSTOOD = AmbiguousAnswer("not_understood")


def shape_of(answer: str) -> Shape:
    """The shape of a final answer; callers must bound its length and depth. Never raises."""
    text = cleaned(answer)
    if _DOUBTS.search(text.lower()):
        several = len(set(re.findall(r"[0-9.]*[0-9]", text))) > 1
        return AmbiguousAnswer("hedged" if several else "doubtful")
    tokens = stripped(tokens_of(text))
    if _ELLIPSES & set(tokens):
        return AmbiguousAnswer("ellipsis")
    return AmbiguousAnswer("too_complex") if len(tokens) > MOST_PARTS * 25 else _shape(tokens)


def _shape(tokens: Tokens) -> Shape:
    tokens = stripped(tokens)
    if not tokens:
        return AmbiguousAnswer("no_answer")
    for take in (
        _clock,
        _compound,
        _words,
        _many,
        _union,
        _relation,
        _bracketed,
        _matrix,
        _ratio,
        _signs,
    ):
        shape = take(tokens)
        if shape is not None:
            return shape
    return _measure(tokens)


def _shapes(parts: list[Tokens]) -> tuple[Shape, ...]:
    return tuple(map(_shape, parts))


def _clock(tokens: Tokens) -> Shape | None:
    """A time of day with a.m. or p.m., as words."""
    text = "".join(token[6:-1] if token.startswith(r"\text{") else token for token in tokens)
    match = CLOCK.fullmatch(text.lower())
    return Words(f"{int(match[1])}:{match[2]} {match[3]}m") if match else None


def _words(tokens: Tokens) -> Shape | None:
    """The shape of plain text. A single letter is a formula; ``xy`` may be a product or points."""
    set_as_text = [token for token in tokens if token.startswith(r"\text{")]
    words = [token for token in tokens if token.isalpha()]
    if len(set_as_text) + len(words) + sum(map(tokens.count, " -'.")) < len(tokens):
        return None
    spoken = [token[6:-1].strip() if token in set_as_text else token for token in tokens]
    text = " ".join("".join(spoken).split())
    if len(tokens) == 1 and len(text) == 1 and text.isalpha():
        return Formula((text,))
    if set_as_text:
        # \text{1, 2 and 3} contains values; \text{none} does not.
        inner = {*tokens_of(text)}
        is_list = inner & {*_OR, *_AND, ","} or any(token[0].isdigit() for token in inner)
        if is_list:
            return None if len(tokens) > 1 else _NOT_UNDERSTOOD
        return Words(text)
    is_name = {"-", ".", *_OR, *_AND} & {*tokens} or max(map(len, words), default=0) < 2
    return None if is_name else Words(text, len(words) == 1 and len(words[0]) <= 3)


def _many(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, _OR | _AND | _COMMAS)
    if not between:
        return None
    if parts[-1] == () and between[-1] in _COMMAS:
        parts, between = parts[:-1], between[:-1]
    # In "1, 2, and 3" the comma before the word leaves an empty part.
    kept = [part for part in parts if part]
    if not kept or len(parts) - len(kept) > sum(sign in _OR | _AND for sign in between):
        return _NOT_UNDERSTOOD
    if len(kept) > MOST_PARTS:
        return AmbiguousAnswer("too_complex")
    if len(kept) == 1:
        return _shape(kept[0])
    if _OR & {*between}:
        return ValueSet(_shapes(kept), "or")
    if _AND & {*between}:
        return ValueSet(_shapes(kept), "and")
    commas = (at for at, token in enumerate(tokens) if token == ",")
    is_tight = ";" not in between and not any(" " in tokens[at - 1 : at + 2] for at in commas)
    return ValueSet(_shapes(kept), "tight" if is_tight else "comma")


def _union(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, frozenset((r"\cup", r"\setminus")))
    if r"\setminus" not in between:
        return Union(_shapes(parts)) if between else None
    removed = _shape(parts[-1])
    is_read = len(parts) == 2 and parts[0] == (r"\mathbb{R}",) and isinstance(removed, ValueSet)
    if not is_read or not isinstance(removed, ValueSet) or removed.joined != "braces":
        return _NOT_UNDERSTOOD
    return Without(removed.items)


def _relation(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, _RELATIONS)
    if not between:
        return None
    if not all(parts) or any(split(part, _UNREAD)[1] for part in parts):
        return _NOT_UNDERSTOOD
    if len(parts) > MOST_PARTS:
        return AmbiguousAnswer("too_complex")
    return Relation(_shapes(parts), tuple(_SPELLED.get(sign, sign) for sign in between))


def _bracketed(tokens: Tokens) -> Shape | None:
    opens, closes = tokens[0], tokens[-1]
    if opens not in ("(", "[", r"\{") or closes not in (")", "]", r"\}"):
        return None
    if closing(tokens, 0) != len(tokens) - 1:
        return None
    inner = stripped(tokens[1:-1])
    if (opens == r"\{") != (closes == r"\}"):
        return _NOT_UNDERSTOOD
    if opens == r"\{":
        return _braces(inner)
    parts, between = split(inner, _COMMAS)
    if opens + closes == "[]" and ";" in between and (matrix := _rows(inner)):
        return matrix
    if not between:
        return _shape(inner) if (opens, closes) in (("(", ")"), ("[", "]")) else None
    if not all(parts) or len(parts) > MOST_PARTS:
        return _NOT_UNDERSTOOD
    return Brackets(opens, _shapes(parts), closes)


def _rows(inner: Tokens) -> Matrix | None:
    """The matrix ``[0 -1; 1 0]``, whose rows end with semicolons; None if it has no columns."""
    rows = [_cells(row) for row in split(inner, frozenset(";"))[0]]
    cells = [cell for row in rows for cell in row]
    if len({*map(len, rows)}) > 1 or len(rows[0]) < 2 or len(cells) > MOST_PARTS or not all(cells):
        return None
    return Matrix(_shapes(cells), len(rows[0]), is_determinant=False)


def _cells(row: Tokens) -> list[Tokens]:
    """The cells of a row, between commas or blanks; the blanks in ``a - b`` separate nothing."""
    cells, commas = split(row, frozenset(","))
    if commas:
        return cells
    signs = ("+", "-", r"\cdot", r"\times", "/", "=")
    marked = [
        ","
        if token == " " and row[at - 1] not in signs and row[at + 1 : at + 3][-1:] != (" ",)
        else token
        for at, token in enumerate(row)
    ]
    return split(marked, frozenset(","))[0]


def _braces(inner: Tokens) -> Shape:
    if _UNREAD & {*inner} or ":" in inner or inner.count("|") % 2:
        return _such_that(inner)
    if not inner:
        return Formula((r"\emptyset",))
    parts, _ = split(inner, _COMMAS)
    is_read = all(parts) and len(parts) <= MOST_PARTS
    return ValueSet(_shapes(parts), "braces") if is_read else _NOT_UNDERSTOOD


def _such_that(inner: Tokens) -> Shape:
    r"""The condition in ``x \mid x > 2`` if it is a single inequality."""
    parts, bars = split(inner, _SUCH_THAT)
    condition = _shape(parts[1]) if len(bars) == 1 else None
    is_inequality = (
        isinstance(condition, Relation)
        and Formula(parts[0]) in condition.parts
        and not {"=", r"\in", r"\approx"} & {*condition.signs}
    )
    return condition if condition and is_inequality else AmbiguousAnswer("set_builder")


def _matrix(tokens: Tokens) -> Shape | None:
    begin = re.fullmatch(r"\\begin\s*\{(\w*matrix|array|smallmatrix)\*?\}", tokens[0])
    if not begin or closing(tokens, 0) != len(tokens) - 1:
        is_part = any(token.startswith(r"\begin") for token in tokens)
        return _NOT_UNDERSTOOD if is_part else None
    inner = tokens[1:-1]
    if begin[1] == "array" and inner[:1] == ("{",):
        inner = inner[(closing(inner, 0) or -1) + 1 :]
    lines = [line for line in split(inner, frozenset((r"\cr",)))[0] if line]
    rows = [split(line, frozenset("&"))[0] for line in lines]
    cells = [cell for row in rows for cell in row]
    if len({len(row) for row in rows}) != 1 or len(cells) > MOST_PARTS:
        return _NOT_UNDERSTOOD
    return Matrix(_shapes(cells), len(rows[0]), begin[1].lower() == "vmatrix")


def _ratio(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, frozenset(":"))
    if not between:
        return None
    is_read = all(parts) and len(parts) <= MOST_PARTS
    return Ratio(_shapes(parts)) if is_read else _NOT_UNDERSTOOD


def _signs(tokens: Tokens) -> Shape | None:
    places = [at for at, token in enumerate(tokens) if token in (r"\pm", r"\mp")]
    if not places:
        return None
    if len(places) > 1 or tokens[places[0]] == r"\mp":
        return AmbiguousAnswer("several_signs")
    at = places[0]
    chosen = ((*tokens[:at], sign, *tokens[at + 1 :]) for sign in "+-")
    return ValueSet(tuple(_measure(stripped(part)) for part in chosen), "sign")


def _measure(tokens: Tokens) -> Shape:
    """Split a value from the unit before or after it; a formula if there is no unit."""
    sign, rest = (tokens[:1], tokens[1:]) if tokens[0] == "-" else ((), tokens)
    if rest and rest[0] in units.CURRENCIES:
        value = stripped((*sign, *rest[1:]))
        return Measure(Formula(value), rest[0]) if value else AmbiguousAnswer("no_answer")
    start = _unit_start(tokens)
    if not start:
        return Formula(tokens)
    return Measure(Formula(stripped(tokens[:start])), units.name_of("".join(tokens[start:])))


def _unit_start(tokens: Tokens) -> int | None:
    """The index at which the unit after a value begins; None if there is no unit."""
    for at, depth in depths(tokens):
        token = tokens[at]
        if depth or at == 0:
            continue
        if token.startswith(r"\text{") or token == "%" or token in units.CURRENCIES:
            return at
        if token == r"\degree" or tokens[at : at + 4] == ("^", "{", r"\degree", "}"):
            # In \sin 30^\circ the degree sign belongs to the angle, not to the sine.
            start = at - 1 if tokens[at - 1] == "^" else at
            has_function = any(token.lstrip("\\") in FUNCTIONS for token in tokens[:start])
            return None if has_function else start
        if token == r"\mu" and any(next.startswith(r"\text{") for next in tokens[at + 1 : at + 3]):
            return at
        # Letters after a number can be a unit; letters after x cannot.
        last = stripped(tokens[:at])[-1:]
        if token.isalpha() and last and (last[0][-1].isdigit() or last[0] in ("}", ")")):
            is_long = len(token) > 2 or token in units.BARE
            is_foreign = not token.isascii() and units.known(units.name_of("".join(tokens[at:])))
            if is_long or is_foreign:
                return at
    return None


def loose_measure(formula: Formula) -> Measure | None:
    """A value before a known unit of any letters, as in ``9.8 m s^{-2}``; None if there is none."""
    tokens = formula.tokens
    for at in range(1, len(tokens)):
        if tokens[at].isalpha() or tokens[at] in (r"\Omega", r"\mu", r"\AA"):
            name = units.name_of("".join(tokens[at:]))
            value = stripped(tokens[:at])
            is_value = bool(value) and (value[-1][-1].isdigit() or value[-1] in ("}", ")"))
            return Measure(Formula(value), name) if is_value and units.known(name) else None
    return None


def _compound(tokens: Tokens) -> Shape | None:
    """A value in a unit and its parts, such as ``1 h 30 min``, in the smallest of the units."""
    text = units.name_of("".join(tokens))
    if not _IN_PARTS.fullmatch(text):
        return None
    total, last = Fraction(0), None
    for number, name in _PART.findall(text):
        unit, value = units.known(name), Fraction(number)
        if unit is None or (
            last and not (unit.converts_to(last) and value * unit.size < last.size)
        ):
            return None
        # 5 km 3 m may be two values.
        if last and unit.kind != "money" and set(str(last.size / unit.size)) <= {"1", "0"}:
            return None
        total, last = total + value * unit.size, unit
    assert last is not None
    value, smallest = total / last.size, _PART.findall(text)[-1][1]
    return Measure(Formula(tokens_of(str(value))), smallest)
