"""The forms of procedural answers: readers that accept a text only if it is a single answer.

A reader gets an answer in ``plain_notation`` and returns its content, which is the same for every
notation. It raises ``NotInForm`` for several answers, additional words or missing parts, but never
for an answer that may be right.

Not covered: whether the answer is right (``families``).
"""

from __future__ import annotations

import contextlib
import json
import re
from decimal import Decimal

from heavydistill.verifiers.normal import unwrapped

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
    **{"times": "×", "cdot": "·", "degree": "°", "approx": "≈", "lbrack": "[", "rbrack": "]"},
    **dict.fromkeys(("rightarrow", "longrightarrow", "to"), "→"),
    **dict.fromkeys(("left", "right", "hline", "displaystyle"), ""),
    **{"quad": " ", "qquad": " ", "newline": "\n"},
}
_LINE_END = re.compile(r"\\\\(?: ?\[[0-9.]+ ?(?:pt|em|ex|mm)\])? ?\n?")
_MACRO = re.compile(r"\\([A-Za-z]+) ?")
_ESCAPED = re.compile(r"\\([#$%&_{}])")
# Wide characters, as in Chinese text, and invisible characters.
_SIGNS: dict[int, int | str | None] = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
_SIGNS |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-")
_SIGNS |= dict.fromkeys(map(ord, "\u00a0\u3000"), " ")
_SIGNS |= dict.fromkeys(map(ord, "\u200b\u2060\ufeff"))
_SIGNS |= {ord("。"): ".", ord("、"): ","}
_NAMED = re.compile(r"[A-Za-z](?:_\{?[0-9A-Za-z]\}?)?(?:\([A-Za-z]\))? ?= ?([^=]+)")
_QUOTED = re.compile(r"""(["'])([^"']+)\1""")


def plain_notation(text: str) -> str:
    """``text`` without LaTeX, markup and typographic variants; runs of blanks become one space.

    Line ends are kept; a final period is removed.
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
    """``text`` without a leading name and equals sign: ``71`` for ``h = 71``, ``x_1 = 71``."""
    named = _NAMED.fullmatch(text)
    return named[1].strip() if named else text


def without_period(text: str) -> str:
    """``text`` in narrow characters, without markup, surrounding quotes and a final period."""
    text = unwrapped(text.translate(_SIGNS).strip())
    quoted = _QUOTED.fullmatch(text)
    return unwrapped(quoted[2]) if quoted else text


MOST_DIGITS = 400

_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
)
_MOVE_OF_DISK = re.compile(
    r"move disk ([0-9]{1,4}) from peg ([1-9][0-9]{0,3}) to peg ([1-9][0-9]{0,3})\.?", re.IGNORECASE
)
_CLOCK = r"[0-9]{1,4}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{3})?)?"


class NotInForm(ValueError):
    """The text is not a single answer in the form that the problem asks for."""


def _whole(pattern: str | re.Pattern[str], text: str) -> re.Match[str]:
    """Match the whole text; raises ``NotInForm`` if it does not match."""
    match = re.fullmatch(pattern, text)
    if not match:
        raise NotInForm
    return match


def number(text: str) -> Decimal:
    """Read one decimal number such as ``-1,234.50`` or ``1.23e+4``; commas separate thousands."""
    if len(text) > MOST_DIGITS:
        raise NotInForm
    return Decimal(_whole(_NUMBER, text)[0].replace(",", ""))


def number_alone(text: str) -> str:
    """Read one decimal number and return it as text without thousands separators."""
    return str(number(text))


def matrix(text: str) -> list[list[str]]:
    """Read the cells of a table: lines, or a list of lists as in JSON, Python or numpy.

    Cells are separated by blanks or commas; quotes around them are removed.
    """
    if text.startswith("["):
        flat = re.sub(r"\s+", " ", text).replace("[ ", "[").replace(" ]", "]")
        inner = _whole(r"\[(.*)\]", flat)[1]
        if inner.startswith("[") and inner.endswith("]"):
            inner = inner[1:-1]
        lines = re.split(r"\] ?,? ?\[", inner)
    else:
        lines = [line for line in text.split("\n") if line]
    rows = []
    for line in lines:
        cells = re.sub(r"\s+", " ", line).strip().removesuffix(",")
        parts = re.split(r" ?, ?| ", cells) if cells else []
        rows.append([re.sub(r"""^(['"])(.*)\1$""", r"\2", cell) for cell in parts])
    if any(not cell or re.search(r"""[\[\]'"]""", cell) for row in rows for cell in row):
        raise NotInForm
    return rows


def numbers(text: str) -> list[list[Decimal]]:
    """Read a ``matrix`` of decimal numbers."""
    return [list(map(_cell, cells)) for cells in matrix(text)]


def row(text: str) -> list[Decimal]:
    """Read the numbers of one line or list."""
    return list(map(_cell, _only_row(text)))


def _cell(text: str) -> Decimal:
    return Decimal(_whole(r"[+-]?(?:0|[1-9][0-9]{0,399})(?:\.[0-9]{0,399})?", text)[0])


def _only_row(text: str) -> list[str]:
    rows = matrix(text)
    if len(rows) != 1:
        raise NotInForm
    return rows[0]


def binary_grid(text: str) -> str:
    """Read a ``matrix`` of zeros and ones and return it as lines."""
    return _whole(r"[01](?:[ \n][01])*", "\n".join(map(" ".join, matrix(text))))[0]


def futoshiki_grid(text: str) -> list[list[str]]:
    """Read the digits of each line that has digits; the signs between cells are ignored."""
    _whole(r"[0-9\s<>∧∨^v,|\[\]]*", text)
    rows = [re.findall("[0-9]", line) for line in text.replace("],", "]\n").split("\n")]
    return [row for row in rows if row]


def words(text: str) -> list[str]:
    """Read a list separated by commas."""
    return [word.strip() for word in text.split(",")]


def letters(text: str) -> str:
    """Read a word, or the list of its letters."""
    return "".join(_only_row(text)) if text.startswith("[") else text


def complex_number(text: str) -> tuple[Decimal, Decimal]:
    """Read the real and imaginary part of ``3 - 4i``; each may occur once."""
    plain = re.sub(r"^\((.*)\)$", r"\1", text.replace(" ", ""))
    terms = re.findall(r"[+-]?(?:[eE][+-]|[^+-])+", plain)
    parts: dict[bool, Decimal] = {}
    for term in terms:
        imaginary = term[-1] in "ij"
        digits = term[:-1].removesuffix("*") if imaginary else term
        if imaginary in parts:
            raise NotInForm
        parts[imaginary] = number(f"{digits}1" if digits in ("", "+", "-") else digits)
    if not terms or "".join(terms) != plain:
        raise NotInForm
    return parts.get(False, Decimal(0)), parts.get(True, Decimal(0))


def amount(text: str) -> Decimal:
    """Read a number with or without a currency, percent or degree sign."""
    return number(re.sub(r"^([+-]?)[$€£¥] ?| ?(?:%|°|degrees?)$", r"\1", text))


def fraction(text: str) -> str:
    """Read a fraction and return its numerator and denominator as written."""
    match = _whole(r"0*([0-9]{1,30}) ?/ ?0*([0-9]{1,30})", text)
    return f"{match[1]}/{match[2]}"


def factors(text: str) -> list[int]:
    """Read factors and return them in ascending order; ``3^5`` is five factors."""
    primes: list[int] = []
    for part in re.split("[×*·]", text):
        match = _whole(r"([0-9]{1,30})(?: ?(?:\^|\*\*) ?\{?([0-9]{1,2})\}?)?", part.strip())
        primes += [int(match[1])] * int(match[2] or 1)
    return sorted(primes)


def roles(text: str) -> list[str]:
    """Read roles such as ``Ada is a knight, and Alan is a knave``; each name once, lower case."""
    names: dict[str, str] = {}
    for clause in re.split(r",? and |[,;\n]", text.lower().removesuffix(".")):
        bare = clause.strip().removeprefix("and ")
        name, role = _whole(r"([\w'-]+)(?: is|:)?(?: an?)? ([a-z]+)", bare).groups()
        if name in names:
            raise NotInForm
        names[name] = role
    return sorted(f"{name}: {role}" for name, role in names.items())


def letter_digits(text: str) -> str:
    """Read assignments such as ``A=1,B=2``; each letter once."""
    pairs = re.split(r"[,;\s]+", re.sub(r" ?= ?", "=", text))
    if len({_whole("([A-Z])=[0-9]", pair)[1] for pair in pairs}) < len(pairs):
        raise NotInForm
    return ",".join(pairs)


def buttons(text: str) -> str:
    """Read the buttons in the order in which they are pressed."""
    return " → ".join(_whole("[A-C]+", re.sub(r"→|->|[,\s]", "", text.upper()))[0])


def directions(text: str) -> str:
    """Read directions such as ``left up``, or ``infeasible``."""
    steps = " ".join(re.split(r" ?(?:→|->|,|\s) ?", text.lower()))
    step = "(?:left|right|up|down)"
    return _whole(f"{step}(?: {step})*|infeasible", steps)[0]


def pushes(text: str) -> str:
    """Read moves such as ``LDUR`` or ``L D U R``; two words would be two answers."""
    return _whole("[LDUR]+|[LDUR](?: [LDUR])*", text.upper())[0].replace(" ", "")


def moves_of_disks(text: str) -> list[tuple[int, int, int]]:
    """Read lines such as ``Move disk 1 from Peg 1 to Peg 3`` as (disk, peg, peg)."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    moves = [_whole(_MOVE_OF_DISK, line) for line in lines]
    return [(int(move[1]), int(move[2]), int(move[3])) for move in moves]


def moves_of_water(text: str) -> str:
    """Read a list of ``fill A``, ``empty B`` and ``pour A->B`` and return it as JSON."""
    pattern = r"(?:fill|empty) [A-Z]|pour [A-Z] ?(?:->|→) ?[A-Z]"
    moves = [_whole(pattern, move)[0] for move in _texts(_json(text))]
    return json.dumps([re.sub(r" ?(->|→) ?", "->", move) for move in moves])


def lists_of_words(text: str) -> str:
    """Read a list of lists of words and return it as JSON."""
    lists = _json(text)
    if not isinstance(lists, list):
        raise NotInForm
    return json.dumps([_texts(words) for words in lists])


def duration(text: str, form: str) -> str:
    """Read a time in a form of reasoning-gym: ``HH:MM``, ``D days`` or ``D days, HH:MM``."""
    if not form.startswith("D"):
        return _whole(_CLOCK, text)[0]
    days = "(-?[0-9]{1,6})"
    if "," not in form:
        return f"{_whole(f'{days}(?: days?)?', text)[1]} days"
    match = _whole(f"{days} days?,? ({_CLOCK})", text)
    return f"{match[1]} days, {match[2]}"


def _json(text: str) -> object:
    """Parse JSON, also with Python's quotes; None for other texts."""
    for spelling in (text, text.replace("'", '"')):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(spelling)
    return None


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise NotInForm
    return value
