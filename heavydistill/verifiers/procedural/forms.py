"""The forms of procedural answers: what a text must look like to be an answer at all.

A reader takes an answer in ``plain_notation`` and gives what it says, the same for every way of
writing it, or None if the text is not of that form: more than one answer, words around it, parts
that are missing. None never means "not understood, perhaps right".

Not covered: whether the answer is right (``families``).
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|tt|sf)?|math(?:rm|bf|tt|it|sf)|boldsymbol|bm|mbox) ?\{([^{}]*)\}"
)
_MATRIX = re.compile(
    r"(?:\\left ?[\[(|] ?)?\\begin ?\{([bBpvV]?matrix|smallmatrix|array|aligned|gathered)\}"
    r"(?:\{[clr| ]*\})?(.*)\\end ?\{\1\}(?: ?\\right ?[\])|])?",
    re.DOTALL,
)
_FRACTION = re.compile(r"(-?) ?\\[dt]?frac ?\{ ?([0-9]+) ?\} ?\{ ?([0-9]+) ?\}")
_POWER_OF_TEN = re.compile(r"([0-9]) ?[×·*] ?10 ?(?:\^|\*\*) ?\{? ?([+-]?[0-9]+) ?\}?$")
_MACROS = {
    "times": "×",
    "cdot": "·",
    "rightarrow": "→",
    "longrightarrow": "→",
    "to": "→",
    "degree": "°",
    "lbrack": "[",
    "rbrack": "]",
    "left": "",
    "right": "",
    "quad": " ",
    "qquad": " ",
    "newline": "\n",
    "hline": "",
    "displaystyle": "",
    "approx": "≈",
}
_LINE_END = re.compile(r"\\\\(?: ?\[[0-9.]+ ?(?:pt|em|ex|mm)\])? ?\n?")
_MACRO = re.compile(r"\\([A-Za-z]+) ?")
_ESCAPED = re.compile(r"\\([#$%&_{}])")
# Wide characters, as in Chinese text, and characters that are not seen.
_SIGNS: dict[int, int | str | None] = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
_SIGNS |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-")
_SIGNS |= dict.fromkeys(map(ord, "\u00a0\u3000"), " ")
_SIGNS |= dict.fromkeys(map(ord, "\u200b\u2060\ufeff"))
_SIGNS |= {ord("。"): ".", ord("、"): ","}
_NAMED = re.compile(r"[A-Za-z](?:_\{?[0-9A-Za-z]\}?)?(?:\([A-Za-z]\))? ?= ?([^=]+)")
_FENCE = re.compile(r"```(?:[A-Za-z]*\n)?([^`]+)```")
_MARKS = (
    ("$$", "$$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    *((mark, mark) for mark in ("$", "**", "`", '"', "'")),
)


def plain_notation(text: str) -> str:
    """``text`` without LaTeX, marks and typographic variants; blanks become one space.

    Line ends stay; a period at the end goes.
    """
    text = re.sub(r"[^\S\n]+", " ", without_period(text))
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        text = matrix[2].replace("&", " ")
    text = _LINE_END.sub("\n", text)
    text = _TEXT.sub(r"\1", _TEXT.sub(r"\1", text))
    fraction = _FRACTION.fullmatch(text)
    if fraction:
        return f"{fraction[1]}{fraction[2]}/{fraction[3]}"
    text = re.sub(r"\^ ?(?:\{ ?\\circ ?\}|\\circ)", "°", text)
    text = _MACRO.sub(lambda macro: _MACROS.get(macro[1], macro[0]), text)
    text = re.sub(r"\\[,;: !]|~", " ", _ESCAPED.sub(r"\1", text)).replace("{,}", ",")
    text = _POWER_OF_TEN.sub(r"\1e\2", text)
    return re.sub(r" +", " ", re.sub(r" *\n *", "\n", text)).strip()


def without_name(text: str) -> str:
    """``text`` without a name and an equals sign before it: ``71`` of ``h = 71``, ``x_1 = 71``."""
    named = _NAMED.fullmatch(text)
    return named[1].strip() if named else text


def without_period(text: str) -> str:
    """``unwrapped`` without the period of a sentence."""
    text = unwrapped(text)
    if text.endswith(".") and not text.endswith(".."):
        text = unwrapped(text[:-1])
    return text


def unwrapped(text: str) -> str:
    r"""``text`` without what is around the whole of it, in narrow characters.

    That is quotes, marks of mathematics, code or markdown (``$``, ``\(``, fences, ``**``) and a
    macro that only sets the type (``\text{...}``, ``\displaystyle``).
    """
    text = text.translate(_SIGNS).strip()
    while True:
        inner = _inside(text).strip().removeprefix(r"\displaystyle ")
        if inner == text or not inner:
            return text
        text = inner


def _inside(text: str) -> str:
    whole = _TEXT.fullmatch(text) or _FENCE.fullmatch(text)
    if whole:
        return whole[1]
    for opens, closes in _MARKS:
        inner = text[len(opens) : -len(closes)]
        if text == f"{opens}{inner}{closes}" and opens not in inner.replace(r"\$", ""):
            return inner
    return text


MOST_DIGITS = 400

_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
)
_CELL_ENDS = re.compile(r" ?, ?| ")
_MOVE_OF_DISK = re.compile(
    r"move disk ([0-9]{1,4}) from peg ([0-9]{1,4}) to peg ([0-9]{1,4})\.?", re.IGNORECASE
)
_MOVE_OF_WATER = re.compile(r"(fill|empty) [A-Z]|pour [A-Z] ?(->|→) ?[A-Z]")
_ROLE = re.compile(r"([\w'-]+)(?: is|:)?(?: an?)? ([a-z]+)")
_CLOCK = r"[0-9]{1,4}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{3})?)?"
_DAYS = r"(-?[0-9]{1,6})"


def number(text: str) -> Decimal | None:
    """One decimal number: ``-1,234.50``, ``1.23e+4``; commas part thousands and nothing else."""
    if len(text) > MOST_DIGITS or not _NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def matrix(text: str) -> list[list[str]] | None:
    """The cells of a table: lines, or a list of lists as in JSON, Python or numpy.

    Cells are parted by blanks or commas; quotes around them are taken away.
    """
    if text.startswith("["):
        if not text.endswith("]"):
            return None
        flat = re.sub(r"\s+", " ", text).replace("[ ", "[").replace(" ]", "]").removesuffix("]")
        inner = flat[1:]
        if inner.startswith("[") and inner.endswith("]"):
            inner = inner[1:-1]
        lines = re.split(r"\] ?,? ?\[", inner)
    else:
        lines = [line for line in text.split("\n") if line]
    rows = [[_unquoted(cell) for cell in _cells(line)] for line in lines]
    if any(not cell or re.search(r"""[\[\]'"]""", cell) for row in rows for cell in row):
        return None
    return rows


def numbers(text: str) -> list[list[Decimal]] | None:
    """A ``matrix`` of decimal numbers."""
    rows = matrix(text)
    if rows is None or any(
        len(cell) > MOST_DIGITS or not re.fullmatch(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?", cell)
        for row in rows
        for cell in row
    ):
        return None
    return [[Decimal(cell) for cell in row] for row in rows]


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",")]


def letters(text: str) -> str | None:
    """A word, or the list of its letters."""
    rows = matrix(text) if text.startswith("[") else [[text]]
    return "".join(rows[0]) if rows and len(rows) == 1 else None


def complex_number(text: str) -> tuple[Decimal, Decimal] | None:
    """Real and imaginary part of ``3 - 4i``; each stands there once or not at all."""
    plain = text.replace(" ", "")
    if plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1]
    terms = re.findall(r"[+-]?(?:[eE][+-]|[^+-])+", plain)
    parts: dict[bool, Decimal] = {}
    for term in terms:
        imaginary = term[-1] in "ij"
        digits = term[:-1].removesuffix("*") if imaginary else term
        value = number(f"{digits}1" if digits in ("", "+", "-") else digits)
        if value is None or imaginary in parts:
            return None
        parts[imaginary] = value
    if not terms or "".join(terms) != plain:
        return None
    return parts.get(False, Decimal(0)), parts.get(True, Decimal(0))


def amount(text: str) -> Decimal | None:
    """A number with or without a sign of currency or percent."""
    return number(re.sub(r"^([+-]?)[$€£¥] ?", r"\1", text).removesuffix("%").strip())


def fraction(text: str) -> tuple[int, int] | None:
    """Numerator and denominator, as they are written."""
    match = re.fullmatch(r"([0-9]{1,30}) ?/ ?([0-9]{1,30})", text)
    return (int(match[1]), int(match[2])) if match else None


def factors(text: str) -> list[int] | None:
    """Factors in ascending order; ``3^5`` is five of them."""
    found: list[int] = []
    for part in re.split("[×*·]", text):
        match = re.fullmatch(r"([0-9]{1,30})(?: ?(?:\^|\*\*) ?\{?([0-9]{1,2})\}?)?", part.strip())
        if not match:
            return None
        found += [int(match[1])] * int(match[2] or 1)
    return sorted(found)


def roles(text: str) -> dict[str, str] | None:
    """Who is what: ``Ada is a knight, and Alan is a knave``; every name once, in lower case."""
    found: dict[str, str] = {}
    for clause in re.split(r",? and |[,;\n]", text.lower().removesuffix(".")):
        match = _ROLE.fullmatch(clause.strip().removeprefix("and "))
        if not match or match[1] in found:
            return None
        found[match[1]] = match[2]
    return found


def letter_digits(text: str) -> str | None:
    """``A=1,B=2``: every letter once."""
    pairs = re.split(r"[,;\s]+", re.sub(r" ?= ?", "=", text))
    if not all(re.fullmatch("[A-Z]=[0-9]", pair) for pair in pairs):
        return None
    return ",".join(pairs) if len({pair[0] for pair in pairs}) == len(pairs) else None


def buttons(text: str) -> str | None:
    """Buttons in the order in which they are pressed."""
    pressed = re.sub(r"→|->|[,\s]", "", text.upper())
    return " → ".join(pressed) if re.fullmatch("[A-C]+", pressed) else None


def directions(text: str) -> str | None:
    """``left up``, or ``infeasible``."""
    steps = re.split(r" ?(?:→|->|,|\s) ?", text.lower())
    known = all(step in ("left", "right", "up", "down") for step in steps)
    return " ".join(steps) if known or steps == ["infeasible"] else None


def pushes(text: str) -> str | None:
    """``LDUR``, or ``L D U R``; two words would be two answers."""
    moves = text.upper()
    return moves.replace(" ", "") if re.fullmatch("[LDUR]+|[LDUR](?: [LDUR])*", moves) else None


def moves_of_disks(text: str) -> list[tuple[int, int, int]] | None:
    """``Move disk 1 from Peg 1 to Peg 3``, a line each: disk and pegs."""
    lines = [_MOVE_OF_DISK.fullmatch(line.strip()) for line in text.split("\n") if line.strip()]
    moves = [(int(move[1]), int(move[2]), int(move[3])) for move in lines if move]
    return moves if len(moves) == len(lines) else None


def moves_of_water(text: str) -> str | None:
    """A list of ``fill A``, ``empty B`` and ``pour A->B`` as JSON."""
    moves = json_value(text)
    if not isinstance(moves, list) or not all(
        isinstance(move, str) and _MOVE_OF_WATER.fullmatch(move) for move in moves
    ):
        return None
    return json.dumps([re.sub(r" ?(->|→) ?", "->", move) for move in moves])


def lists_of_words(text: str) -> str | None:
    """A list of lists of words as JSON."""
    lists = json_value(text)
    if not isinstance(lists, list) or not all(
        isinstance(inner, list) and all(isinstance(word, str) for word in inner) for inner in lists
    ):
        return None
    return json.dumps(lists)


def duration(text: str, form: str) -> str | None:
    """A time in one of reasoning-gym's forms: ``HH:MM``, ``D days`` or ``D days, HH:MM``."""
    if not form.startswith("D"):
        return text if re.fullmatch(_CLOCK, text) else None
    if "," not in form:
        match = re.fullmatch(f"{_DAYS}(?: days?)?", text)
        return f"{match[1]} days" if match else None
    match = re.fullmatch(f"{_DAYS} days?,? ({_CLOCK})", text)
    return f"{match[1]} days, {match[2]}" if match else None


def json_value(text: str) -> Any:
    """The JSON in the text, also with the quotes of Python; None if it is none."""
    for spelling in (text, text.replace("'", '"')):
        try:
            return json.loads(spelling)
        except (ValueError, RecursionError):
            continue
    return None


def _cells(line: str) -> list[str]:
    line = re.sub(r"\s+", " ", line).strip().removesuffix(",")
    return _CELL_ENDS.split(line) if line else []


def _unquoted(cell: str) -> str:
    for quote in ("'", '"'):
        if len(cell) > 1 and cell.startswith(quote) and cell.endswith(quote):
            return cell[1:-1]
    return cell
