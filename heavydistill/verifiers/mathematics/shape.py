r"""What kind of answer a final answer is.

``shape_of`` takes an answer apart from the outside in: lists, unions, relations, brackets,
matrices, ratios, units. What is left are single formulas (``Formula``), which ``formula`` reads.
It decides nothing; where a notation has two readings, it says so with ``Unclear``.

Not covered, hence ``Unclear``: sets described by more than an inequality, ellipses, several
plus-minus signs, sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
class Unclear:
    """Not taken apart, and why: the reason of an undecided verdict. It equals nothing else."""

    reason: str


@dataclass(frozen=True, slots=True)
class Formula:
    """One value or expression."""

    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Words:
    """Text as written, and whether all of it could also be a product of variables."""

    text: str
    may_be_product: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """A value with a unit, as it is written."""

    value: Formula
    unit: str


@dataclass(frozen=True, slots=True)
class Many:
    """Several values without an order of their own: ``1, 2``, ``{1, 2}``, ``1 or 2``, ``±1``."""

    items: tuple[Shape, ...]
    joined: Literal["comma", "tight", "or", "and", "braces", "sign"]

    @property
    def readings_as_number(self) -> tuple[str, ...]:
        """The numbers it is if its commas are a decimal comma (``0,5``) or thousands marks."""
        ends = [item.tokens[-1] if isinstance(item, Formula) else "" for item in self.items]
        sign = "-" if isinstance(self.items[0], Formula) and self.items[0].tokens[0] == "-" else ""
        if self.joined not in ("comma", "tight") or not all(end.isdigit() for end in ends):
            return ()
        grouped = all(len(end) == 3 for end in ends[1:])
        decimal = self.joined == "tight" and len(ends) == 2
        return (sign + "".join(ends),) * grouped + (f"{sign}{ends[0]}.{ends[1]}",) * decimal


@dataclass(frozen=True, slots=True)
class Brackets:
    """Values in brackets that are not braces: a tuple, a vector or an interval."""

    opens: str
    items: tuple[Shape, ...]
    closes: str

    @property
    def must_be_interval(self) -> bool:
        """Whether the brackets or an infinite end leave no other reading."""
        ends = [item.tokens[-1:] for item in self.items if isinstance(item, Formula)]
        return len(self.items) == 2 and (
            {self.opens, self.closes} not in ({"(", ")"}, {"[", "]"}) or (r"\infty",) in ends
        )


@dataclass(frozen=True, slots=True)
class Relation:
    """Formulas with relation signs between them: an equation, an inequality, a chain."""

    parts: tuple[Shape, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """Sets joined."""

    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Without:
    """A set without another."""

    whole: Shape
    hole: Shape


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of cells; ``kind`` is the environment."""

    rows: tuple[tuple[Shape, ...], ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """``a:b`` or ``a:b:c``."""

    parts: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Based:
    """Digits in a base: ``120_3``."""

    digits: str
    base: int


@dataclass(frozen=True, slots=True)
class ClockTime:
    """A time of day, as written; ``half`` is ``am``, ``pm`` or nothing."""

    hours: int
    minutes: int
    half: str


Shape = (
    Unclear
    | Formula
    | Words
    | Measure
    | Many
    | Brackets
    | Relation
    | Union
    | Without
    | Matrix
    | Ratio
    | Based
    | ClockTime
)


MOST_PARTS = 40


_OR = frozenset(("or", r"\text{or}", r"\vee", r"\text{ or }"))
_AND = frozenset(("and", r"\text{and}", r"\wedge", "&"))
_RELATIONS = frozenset(
    ("=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx", "<=", ">=", "!=")
)
_SPELLED = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne"}
_DOUBTS = re.compile(
    r"(?:^|[^a-z])(?:maybe|perhaps|possibly|probably|either|guess|unsure)(?![a-z])"
)
_ELLIPSES = frozenset((r"\ldots", "...", ".."))
_UNREAD = frozenset((r"\mid", r"\colon", r"\to", r"\mapsto", r"\equiv", r"\sim", r"\forall", "&"))
_SUCH_THAT = frozenset(("|", ":", r"\mid", r"\colon"))
_CLOCK = re.compile(r"([0-9]{1,2}):([0-5][0-9])\s*(?:\\text\{)?\s*([ap])?\.?\s?(m?)\.?\s*\}?", re.I)
_DIGITS = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+")


def shape_of(answer: str) -> Shape:
    """The shape of a final answer of bounded length and depth (``gate``). Never raises."""
    text = cleaned(answer)
    if _DOUBTS.search(text.lower()):
        several = len(set(re.findall(r"[0-9.]*[0-9]", text))) > 1
        return Unclear("hedged" if several else "doubtful")
    clock = _CLOCK.fullmatch(text)
    if clock and (clock[3] is None) == (not clock[4]) and int(clock[1]) < 25 and clock[3]:
        return ClockTime(int(clock[1]), int(clock[2]), f"{clock[3].lower()}m")
    tokens = stripped(tokens_of(text))
    if _ELLIPSES & set(tokens):
        return Unclear("ellipsis")
    if len(tokens) > MOST_PARTS * 25:
        return Unclear("too_complex")
    return _shape(tokens)


def _shape(tokens: Tokens) -> Shape:
    tokens = stripped(tokens)
    if not tokens:
        return Unclear("no_answer")
    for take in (_words, _many, _sets, _relation, _bracketed, _matrix, _based, _ratio, _signs):
        shape = take(tokens)
        if shape is not None:
            return shape
    return _measure(tokens)


def _words(tokens: Tokens) -> Shape | None:
    """Text alone. A single letter is a formula; ``xy`` may be a product."""
    spoken: list[str] = []
    for token in tokens:
        if token.startswith(r"\text{"):
            spoken.append(token[6:-1].strip())
        elif token.isalpha() or token in (" ", "-", "'", "."):
            spoken.append(token)
        else:
            return None
    plain_words = [token for token in tokens if token.isalpha()]
    if len(tokens) == 1 and len(spoken[0]) == 1 and spoken[0].isalpha():
        return Formula((spoken[0],))
    if any(token.startswith(r"\text{") for token in tokens):
        joined = " ".join("".join(spoken).split())
        inner = tokens_of(joined)
        # \text{1, 2 and 3} holds values; \text{none} does not.
        if any(token[0].isdigit() for token in inner):
            return _shape(inner) if inner != tokens else Unclear("not_understood")
        if set(inner) & (_OR | _AND) or "," in inner:
            return None if len(tokens) > 1 else _many(inner)
        return Words(joined)
    if not any(len(word) > 1 for word in plain_words) or "-" in tokens or "." in tokens:
        return None
    if set(plain_words) & (_OR | _AND):
        return None
    text = " ".join("".join(spoken).split())
    return Words(text, _is_product(plain_words))


def _is_product(words: list[str]) -> bool:
    """Whether bare letters such as ``xy`` or ``AB`` may be a product or points."""
    return len(words) == 1 and len(words[0]) <= 3


def _many(tokens: Tokens) -> Shape | None:
    loose = _OR | _AND | {",", ";"}
    parts, between = split(tokens, loose)
    if not between:
        return None
    if parts[-1] == () and between[-1] in (",", ";"):
        parts, between = parts[:-1], between[:-1]
    # "1, 2, and 3": the comma before the word leaves an empty part.
    kept = [part for part in parts if part]
    empty = len(parts) - len(kept)
    if empty > sum(sign in _OR | _AND for sign in between) or not kept:
        return Unclear("not_understood")
    if len(kept) > MOST_PARTS:
        return Unclear("too_complex")
    if len(kept) == 1:
        return _shape(kept[0])
    signs = set(between)
    joined: Literal["comma", "tight", "or", "and"] = "comma"
    if signs & _OR:
        joined = "or"
    elif signs & _AND:
        joined = "and"
    elif " " not in tokens and signs == {","}:
        joined = "tight"
    return Many(tuple(_shape(part) for part in kept), joined)


def _sets(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, frozenset((r"\cup",)))
    if between:
        return Union(tuple(_shape(part) for part in parts))
    parts, between = split(tokens, frozenset((r"\setminus",)))
    if len(between) == 1:
        return Without(_shape(parts[0]), _shape(parts[1]))
    return Unclear("not_understood") if between else None


def _relation(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, _RELATIONS)
    if not between:
        return None
    if not all(parts):
        return Unclear("not_understood")
    if any(split(part, _UNREAD)[1] for part in parts):
        return Unclear("not_understood")
    if len(parts) > MOST_PARTS:
        return Unclear("too_complex")
    signs = tuple(_SPELLED.get(sign, sign) for sign in between)
    return Relation(tuple(_shape(part) for part in parts), signs)


def _bracketed(tokens: Tokens) -> Shape | None:
    opens, closes = tokens[0], tokens[-1]
    if opens not in ("(", "[", r"\{", "]") or closes not in (")", "]", r"\}", "["):
        return None
    if opens == "]" or closes == "[":
        # ]0,1[ is an open interval; the bracket scan takes it for unbalanced.
        parts, _ = split(tokens[1:-1], frozenset((",", ";")))
        swapped = {"]": "(", "[": ")"}
        if len(parts) == 2 and all(parts):
            ends = swapped.get(opens, opens), swapped.get(closes, closes)
            return Brackets(ends[0], tuple(_shape(part) for part in parts), ends[1])
        return Unclear("not_understood")
    if closing(tokens, 0) != len(tokens) - 1:
        return None
    inner = stripped(tokens[1:-1])
    if opens == r"\{":
        return _braces(inner, closes)
    if closes == r"\}":
        return Unclear("not_understood")
    parts, between = split(inner, frozenset((",", ";")))
    if not between:
        return _shape(inner) if (opens, closes) in (("(", ")"), ("[", "]")) else None
    if not all(parts) or len(parts) > MOST_PARTS:
        return Unclear("not_understood")
    return Brackets(opens, tuple(_shape(part) for part in parts), closes)


def _braces(inner: Tokens, closes: str) -> Shape:
    if closes != r"\}":
        return Unclear("not_understood")
    if _UNREAD & set(inner) or ":" in inner or ("|" in inner and inner.count("|") % 2):
        return _such_that(inner) or Unclear("set_builder")
    if not inner:
        return Formula((r"\emptyset",))
    parts, _ = split(inner, frozenset((",", ";")))
    if not all(parts) or len(parts) > MOST_PARTS:
        return Unclear("not_understood")
    return Many(tuple(_shape(part) for part in parts), "braces")


def _such_that(inner: Tokens) -> Shape | None:
    r"""What ``x \mid x > 2`` says of ``x``, if that is an inequality."""
    bar = next((at for at, token in enumerate(inner) if token in _SUCH_THAT), len(inner))
    name = tuple(token for token in inner[:bar] if token != " ")
    if name[-2:] == (r"\in", r"\mathbb{R}"):
        name = name[:-2]
    condition = _shape(inner[bar + 1 :])
    is_joined = isinstance(condition, Many) and condition.joined in ("or", "and")
    parts = condition.items if is_joined and isinstance(condition, Many) else (condition,)
    is_inequality = all(
        isinstance(part, Relation)
        and not {"=", r"\in", r"\approx"} & {*part.signs}
        and Formula(name) in part.parts
        for part in parts
    )
    return condition if is_inequality else None


def _matrix(tokens: Tokens) -> Shape | None:
    start = next((at for at, token in enumerate(tokens) if token.startswith(r"\begin")), 0)
    begin = re.fullmatch(r"\\begin\s*\{(\w*matrix|array|smallmatrix)\*?\}", tokens[start])
    if not begin or closing(tokens, start) != len(tokens) - 1:
        return None
    if start:
        return _scaled(tokens[:start], _matrix(tokens[start:]))
    inner = tokens[1:-1]
    if begin[1] == "array" and inner[:1] == ("{",):
        end = closing(inner, 0)
        inner = inner[end + 1 :] if end is not None else inner
    lines = [line for line in split(inner, frozenset((r"\cr",)))[0] if line]
    rows = tuple(tuple(_shape(cell) for cell in split(line, frozenset("&"))[0]) for line in lines)
    if not rows or len(rows) * len(rows[0]) > MOST_PARTS or len({len(row) for row in rows}) > 1:
        return Unclear("not_understood")
    return Matrix(rows, begin[1])


def _scaled(scale: Tokens, matrix: Shape | None) -> Shape | None:
    """A matrix times the number before it."""
    if not isinstance(matrix, Matrix) or any(token.isalpha() for token in scale):
        return None
    factor = ("(", *(scale if stripped(scale) != ("-",) else ("-", "1")), ")")
    rows: list[tuple[Shape, ...]] = []
    for row in matrix.rows:
        cells = [cell.tokens for cell in row if isinstance(cell, Formula)]
        if len(cells) < len(row):
            return None
        rows.append(tuple(Formula((*factor, r"\cdot", "(", *cell, ")")) for cell in cells))
    return Matrix(tuple(rows), matrix.kind)


def _based(tokens: Tokens) -> Shape | None:
    text = "".join(tokens).replace(" ", "")
    match = re.fullmatch(
        r"\(?(?:\\text\{)?([0-9A-F]+)\}?\)?_(?:\{?(?:\\text\{)?(?:base)?([0-9]{1,2})\}?\}?)", text
    )
    # F_{12} is a name, and so may AB_1 be.
    is_number = match and (match[1][0].isdigit() or (len(match[1]) > 1 and int(match[2]) > 10))
    return Based(match[1].lstrip("0") or "0", int(match[2])) if match and is_number else None


def _ratio(tokens: Tokens) -> Shape | None:
    parts, between = split(tokens, frozenset(":"))
    if not between:
        return None
    if not all(parts) or len(parts) > MOST_PARTS:
        return Unclear("not_understood")
    return Ratio(tuple(_shape(part) for part in parts))


def _signs(tokens: Tokens) -> Shape | None:
    places = [at for at, token in enumerate(tokens) if token in (r"\pm", r"\mp")]
    if not places:
        return None
    if len(places) > 1 or tokens[places[0]] == r"\mp":
        return Unclear("several_signs")
    at = places[0]
    chosen = ((*tokens[:at], sign, *tokens[at + 1 :]) for sign in "+-")
    return Many(tuple(_measure(stripped(part)) for part in chosen), "sign")


def _measure(tokens: Tokens) -> Shape:
    """A value with a unit before or after it, or a bare formula."""
    if tokens[0] in units.CURRENCIES or tokens[:2] in (("-", "$"), ("-", "€"), ("-", "£")):
        sign, rest = (tokens[:1], tokens[2:]) if tokens[0] == "-" else ((), tokens[1:])
        currency = tokens[1] if sign else tokens[0]
        return Measure(Formula(stripped(sign + rest)), currency) if rest else Unclear("no_answer")
    start = _unit_start(tokens)
    if start is None or start == 0:
        return Formula(tokens)
    unit = _unit_name(tokens[start:])
    return Measure(Formula(stripped(tokens[:start])), unit)


def _unit_start(tokens: Tokens) -> int | None:
    """Where the unit at the end of a value begins; None without a unit."""
    for at, depth in depths(tokens):
        token = tokens[at]
        if depth or at == 0:
            continue
        if token.startswith(r"\text{") or token == "%" or token in units.CURRENCIES:
            return at
        is_raised = token == "^" and tokens[at + 1 : at + 4] == ("{", r"\degree", "}")
        if is_raised or token == r"\degree":
            # In \sin 30^\circ the degrees are the angle's, not those of the sine.
            start = at - 1 if tokens[at - 1] == "^" else at
            return start if _is_plain(tokens[:start]) else None
        if token.isalpha() and _ends_value(tokens[:at]):
            bare = _unit_name(tokens[at:])
            long = len(token) > 1 or not token.isascii()
            if (long and units.known(bare)) or len(token) > 2:
                return at
    return None


def _is_plain(tokens: Tokens) -> bool:
    """Whether a value holds no function, so that a unit after it is that of the whole."""
    letters = {token.lstrip("\\") for token in tokens}
    return not letters & FUNCTIONS.keys()


def _ends_value(tokens: Tokens) -> bool:
    """Whether bare letters after these tokens can be a unit: after a number, not after ``x``."""
    before = stripped(tokens)
    return bool(before) and (bool(_DIGITS.fullmatch(before[-1])) or before[-1] in ("}", ")"))


def _unit_name(tokens: Tokens) -> str:
    text = "".join(
        token[6:-1] if token.startswith(r"\text{") else token
        for token in tokens
        if token not in ("{", "}")
    )
    text = text.replace(r"\degree", "°").replace("^°", "°").replace("\\", "")
    return " ".join(text.split())
