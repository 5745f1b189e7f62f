r"""Normal forms of final answers, without differences of typography.

``normal_form`` removes only typography (Unicode variants, ``$``, ``\left``, thin spaces, a closing
period) and reads plain numbers exactly: integers, decimals, ``1e3``, ``1,234``, ``1/2``,
``\frac{1}{2}``, mixed numbers. Equal numbers get the same text, so that their votes count together.

Some texts are never read as numbers, because a wrong answer could then pass as correct: ``0,5`` and
``1 234`` (ambiguous marks), ``10²`` (a power, not 102), and lists such as ``1, 234``.

Not covered: units, currencies and percent, symbolic equality, sets and intervals.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from heavydistill.schema import Label

LONGEST_DECIMAL_PLACES = 12
# Python refuses to convert integers of more than 4,300 digits.
LONGEST_NUMBER = 2000

_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))
_ALIKE = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-") | {"\u2044": "/"})
_MATH_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_TEXT_MACRO = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")

_INTEGER = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)"
_DECIMAL = re.compile(
    rf"(?P<sign>[+-]?)\s*(?P<digits>{_INTEGER}(?:\.[0-9]+)?|\.[0-9]+)(?P<power>[eE][+-]?[0-9]{{1,3}})?"
)
_SLASH = rf"(?P<top>{_INTEGER})\s*/\s*(?P<bottom>{_INTEGER})"
_OPERAND = rf"\s*(?:\{{\s*(?P<%s>[+-]?\s*{_INTEGER})\s*\}}|(?P<%s_digit>[0-9]))"
_FRAC = rf"\\frac{_OPERAND % ('over', 'over')}{_OPERAND % ('under', 'under')}"
_FRACTION = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<whole>{_INTEGER})(?:\s+(?=[0-9])|\s*(?=\\)))?(?:{_SLASH}|{_FRAC})"
)
# A number that may be preceded by a currency sign and followed by words or a mark.
_MEASURE = re.compile(
    rf"(?P<currency>[$€£¥₹]\s*)?[+-]?\s*(?:{_INTEGER}(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?P<unit>\s*(?:[%°]|[^\W\d_])[^\d\\^_{}=+*,;:()]*)?"
)
_STRUCTURE = re.compile(
    r"[\\^_{}=,;:()\[\]/*%$°·]|\.\.|[0-9][^\W\d_]|[^\W\d_][0-9]|[0-9] [0-9]"
    r"|[0-9]\s*-|-\s*[0-9]|\b[^\W\d_]\s*-|-\s*[^\W\d_]\b"
)


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A final answer without its typography.

    Attributes:
        text: The same text for equal answers; for a number, its shortest common notation.
        value: Value of a plain number; None for anything else.
    """

    text: str
    value: Fraction | None

    @property
    def is_measure(self) -> bool:
        """Whether the answer is a number with a unit, a currency or percent."""
        match = _MEASURE.fullmatch(self.text) if self.value is None else None
        return bool(match and (match["currency"] or match["unit"]))

    @property
    def has_structure(self) -> bool:
        """Whether the answer is more than a number or words: LaTeX, operators, lists, brackets.

        Invisible operators count too (U+2062 is a multiplication sign).
        """
        if self.value is not None:
            return False
        return bool(_STRUCTURE.search(self.text)) or any(
            unicodedata.category(character) in ("Sm", "Cf") for character in self.text
        )


def normal_form(text: str) -> NormalForm:
    """The normal form of a final answer. Accepts any text; never raises."""
    spelled = plain(text)
    value = _value(spelled)
    if value is not None:
        return NormalForm(_spelled(value), value)
    spelled = re.sub(r"\s*([{}()\[\],;^_=*/])\s*", r"\1", spelled)
    return NormalForm(re.sub(r" ([+-]) ", r"\1", spelled), None)


def plain_decimal(text: str) -> str | None:
    """The normal form of a number written as a decimal; None for anything else.

    Fractions, powers of ten and leading zeros are excluded, because the notation matters if the
    answer is not meant as a plain number (``2/4`` to be simplified, ``1e3`` in base 16, ``007``).
    """
    match = _DECIMAL.fullmatch(plain(text))
    if not match or match["power"] or re.match("0[0-9]", match["digits"]):
        return None
    return normal_form(text).text


def without_text_macro(text: str) -> str:
    r"""``text`` without a ``\text{...}`` that encloses all of it."""
    match = _TEXT_MACRO.fullmatch(text.strip())
    return match[1].strip() if match else text.strip()


def _one_alphabet(text: str) -> str:
    """Normalise to NFKC with ASCII digits and signs; keeps superscripts, subscripts, fractions."""
    if text.isascii():
        return text
    parts: list[str] = []
    for character in text.translate(_INVISIBLE):
        kind = unicodedata.decomposition(character).partition(">")[0]
        # NFKC alone turns 10² into 102 and 1½ into 11/2.
        if kind == "<fraction" and parts and parts[-1][-1:].isdigit():
            parts.append(" ")
        parts.append({"<super": "^", "<sub": "_"}.get(kind, ""))
        digit = unicodedata.decimal(character, None)
        is_plain_digit = digit is not None and kind not in ("<super", "<sub")
        parts.append(str(digit) if is_plain_digit else unicodedata.normalize("NFKC", character))
    return "".join(parts).translate(_ALIKE)


def plain(text: str) -> str:
    """``text`` in plain typography, with single spaces."""
    text = unwrapped(_one_alphabet(text))
    text = re.sub(r"\\[dtc]frac(?![a-zA-Z])", r"\\frac", text)
    text = re.sub(r"\\(?:left|right)(?![a-zA-Z])", "", text).replace("{,}", ",")
    text = re.sub(r"(?<=[0-9])\\,(?=[0-9]{3}(?![0-9]))", ",", text)
    text = re.sub(r"(?<=[0-9],)\\!\s*(?=[0-9]{3}(?![0-9]))", "", text).replace(r"\!", "")
    text = re.sub(r"\\[,;: ]|~", " ", text).replace(r"\$", "$").replace(r"\%", "%")
    return re.sub(r"\s+", " ", text).strip()


def unwrapped(text: str) -> str:
    """``text`` without surrounding blanks, math delimiters, a text macro, and a final period."""
    while True:
        inner = without_text_macro(text)
        if inner.endswith((".", "。")) and not inner.endswith(".."):
            inner = inner[:-1]
        for opens, closes in _MATH_DELIMITERS:
            body = inner[len(opens) : -len(closes)]
            if inner == f"{opens}{body}{closes}" and body and opens not in body.replace(r"\$", ""):
                inner = body
                break
        if inner == text:
            return text
        text = inner


def _value(text: str) -> Fraction | None:
    if len(text) > LONGEST_NUMBER:
        return None
    match = _DECIMAL.fullmatch(text)
    if match:
        digits = match["digits"].replace(",", "")
        return Fraction(f"{match['sign']}{digits}{match['power'] or ''}")
    match = _FRACTION.fullmatch(text)
    if not match:
        return None
    top = _integer(match["top"] or match["over"] or match["over_digit"])
    bottom = _integer(match["bottom"] or match["under"] or match["under_digit"])
    if bottom == 0:
        return None
    value = Fraction(top, bottom)
    if match["whole"]:
        if not 0 < value < 1:
            return None
        value += _integer(match["whole"])
    return -value if match["sign"] == "-" else value


def _integer(digits: str) -> int:
    return int(re.sub(r"[,\s]", "", digits))


def _spelled(value: Fraction) -> str:
    """The value as an integer, a decimal of at most ``LONGEST_DECIMAL_PLACES`` places, or
    ``n/d``."""
    scaled = value * 10**LONGEST_DECIMAL_PLACES
    if value.denominator == 1 or scaled.denominator != 1:
        return str(value)
    digits = str(abs(scaled.numerator)).zfill(LONGEST_DECIMAL_PLACES + 1)
    whole, places = digits[:-LONGEST_DECIMAL_PLACES], digits[-LONGEST_DECIMAL_PLACES:]
    return f"{'-' if value < 0 else ''}{whole}.{places.rstrip('0')}"


# --- Comparison of plain numbers: 0.333 is not 1/3. If a decimal equals the other value rounded to
# its number of places, or differs only by floating-point noise, the outcome is undecided, because
# only the problem's text says whether rounding was asked for.
FEWEST_DIGITS = 2
_ENDS_IN_ZEROS = re.compile(r"-?[1-9][0-9]{1,300}?0+")
NOISE = Fraction(1, 10**6)
Outcome = tuple[Label, str]
EQUAL: Outcome = ("correct", "equal")
DIFFERENT: Outcome = ("incorrect", "different")
ROUNDED: Outcome = ("undecided", "rounded")


def compare_numbers(given: str, wanted: str, values: tuple[Fraction, Fraction]) -> Outcome:
    """Compare two plain numbers, given as written and, in ``values``, exactly."""
    if values[0] == values[1]:
        return EQUAL
    is_near = is_rounded(given, values[1]) or is_rounded(wanted, values[0])
    return ROUNDED if is_near else DIFFERENT


def is_rounded(written: str, exact: Fraction) -> bool:
    """Whether the decimal ``written`` is ``exact`` rounded or truncated, apart from float noise.

    An integer is one only if it ends in zeros, and ``exact`` is no integer: 6630 for 6630.65.
    """
    whole, point, places = plain(written).replace(",", "").partition(".")
    if _ENDS_IN_ZEROS.fullmatch(whole) and not point and exact.denominator != 1:
        zeros = len(whole) - len(whole.rstrip("0"))
        return abs(int(whole) - exact) <= Fraction(10**zeros, 2)
    if not point or not places.isdigit() or not whole.lstrip("+- ").isdigit():
        return False
    value = Fraction(f"{whole.replace(' ', '') or '0'}.{places}")
    if len(f"{whole}{places}".lstrip("+- 0")) < FEWEST_DIGITS:
        return False
    off = abs(value - exact)
    place = Fraction(1, 10 ** len(places))
    is_cut = off < place and abs(value) < abs(exact) and value * exact > 0
    return off <= place / 2 or is_cut or off <= NOISE * abs(exact)
