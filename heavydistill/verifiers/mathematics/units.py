"""Units of measurement, by pint, and nouns that are counted.

pint knows the units and their sizes. ``_ROWS`` adds what it lacks: currencies, percent, counting
words, and units that do not convert to others of their kind (degrees, months, tons), each with a
scale of its own. Words that change the number before them (``million``, ``squared``) are no units.

Products, quotients and powers are known if their parts are: ``kg m/s^2``, ``cm^{-1}``, ``square
feet``, ``J/(mol K)``, ``miles per hour``.

Not covered: conversion of temperatures, whose scales differ by an offset, and of calendar months.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: what it measures, its size, and its scale if others of its kind do not convert."""

    kind: str
    size: Fraction
    scale: str = ""

    def converts_to(self, other: Unit) -> bool:
        return (self.kind, self.scale) == (other.kind, other.scale)

    def answers(self, asked: Unit) -> bool:
        """Whether a value in this unit answers a question for ``asked``; ``30°`` is a temperature
        too, and things may be counted in any word."""
        is_degree = self.scale == "degree" and asked.kind == "kelvin"
        return self == asked or is_degree or "any" in self.kind

    def is_other_than(self, other: Unit) -> bool:
        """Whether the two measure different things."""
        return self.kind != other.kind and "any" not in self.kind + other.kind


# Kind, scale, size, names of the units that pint lacks or reads in another way.
_ROWS = (
    ("angle", "degree", "1", "° deg degree degrees 度"),
    ("angle", "degree", "1/60", "arcmin arcminute arcminutes"),
    ("angle", "degree", "1/3600", "arcsec arcsecond arcseconds"),
    ("angle", "radian", "1", "rad radian radians"),
    ("percent", "", "1", "% percent percents percentage"),
    ("kelvin", "celsius", "1", "°c celsius"),
    ("kelvin", "fahrenheit", "1", "°f fahrenheit"),
    ("money", "dollar", "1", "$ usd dollar dollars"),
    ("money", "dollar", "1/100", "¢ cent cents"),
    ("money", "euro", "1", "€ eur euro euros"),
    ("money", "british pound", "1", "£ gbp"),
    ("money", "yen", "1", "¥ yen jpy yuan rmb 元 块钱"),
    ("money", "rupee", "1", "₹ rs rupee rupees"),
    ("gram", "ton", "1", "ton tons"),
    ("second", "calendar", "1", "month months"),
    ("second", "calendar", "12", "yr yrs year years"),
    ("any", "", "1", "unit units"),
    ("any", "", "1", "个 只 条 张 本 名 人 位 支 枝 棵 件 种 次 辆 头 匹 朵 颗 箱 盒 袋 套 间"),
)
_OWN = {
    name: Unit(kind, Fraction(size), scale)
    for kind, scale, size, names in _ROWS
    for name in names.split()
}
CURRENCIES = frozenset("$€£¥₹¢")


def _pairs(table: str) -> dict[str, str]:
    words = table.split()
    return dict(zip(words[::2], words[1::2], strict=True))


# Names as pint has them.
_PINTS = _pairs("""
    米 m  千米 km  公里 km  分米 dm  厘米 cm  毫米 mm  克 g  千克 kg  公斤 kg  吨 t  秒 s  分钟 min
    小时 hour  天 day  升 L  毫升 mL  kgs kg  kmh kph  AU astronomical_unit  mole mole  hr hour
""")
# Second meanings of names.
_ALSO = _pairs("pound £  pounds £  C °C  F °F  lb lbf  lbs lbf  ounce floz  ounces floz  oz floz")
# What pint reads as units, but is usually a word or a variable.
_WORD_LIST = """
    alpha are as at bag bar barn bat beta bit bp bus byte candle cat cd century chain circle cl
    count cp cs cup cycle darcy den dot dr eon fat fifth fur gamma gill gon grad grade gray hand
    has hat hbar jig kat knot lambda li link lm lx mas mat mho mil nit number oat octave octet
    particle pat peck pel perch pi pixel pm point pole pond px quad quarter rat rd rod rpm
    revolution rps section sft shake shot sigma slug st stone strain th toe turn zeta
"""
_WORDS = frozenset(_WORD_LIST.split())
_LETTERS = frozenset("ACFHJKLNSTVWdghlmstuΩÅ")
_SPOKEN_LETTERS = frozenset("gmsJLNVW")
_PREFIXED = re.compile(
    r"(?:[cfkmnpµμGMT]|d(?=[mLl])|h(?=Pa))(?:m|g|s|A|K|mol|mole|Hz|N|Pa|J|W|C|V|F|Ω|ohm|S|Wb|T|H|L"
    r"|l|eV|pc|cal|bar|Wh|G|Da|Bq|Gy|Sv)|(?:femto|pico|nano|micro|milli|centi|deci|kilo|mega|giga"
    r"|tera)[a-z]{3,}"
)
# Two letters that are a unit after a number, and no product of variables.
BARE = frozenset(
    ("cm", "km", "dm", "mm", "ft", "yd", "mi", "kg", "mg", "lb", "oz", "hr", "ml", "mL", "eV", "kJ")
)
_SHORT_PLURALS = frozenset(("lbs", "hrs", "yds"))
# Units whose values are compared with a reference without a unit.
_COMMON = (
    "m cm mm km inch ft yd mile g kg mg lb oz s min hour day week L mL gallon quart J kJ eV cal "
    "kcal N kN Pa kPa atm W kW V mV m/s km/h km/s mph ft/s nm μm Å g/mol kg/mol"
)

# Words that change the number before them.
_COUNTING = re.compile(
    r"(?:\w*(?:ths?|hundred|thousand|illion|illions|hundreds|thousands|teen|ty)|half|halves"
    r"|thirds?|quarters?|fifth|dozens?|scores?|gross|pairs?|couples?|trios?|lakhs?|crores?|squared?"
    r"|cubed?|factorial|times?|plus|minus|over|under|more|less|fewer|than|negative|root|sqrt|pi"
    r"|remainder|modulo|mod|of|to|or|and|not|by|with|without|power|twice|double|triple|per|point"
    r"|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|base|if|when|for|at"
    r"|least|most|about|maybe|possibly|perhaps|probably|is|are|wrong|incorrect|either|neither"
    r"|bits?|bytes?|exactly|approximately|mega|kilo|k|bn|mn|e|i|x|y|z)",
    re.IGNORECASE,
)
# Words that look like those above but do not change the number before them.
_NO_COUNTING = frozenset(["months", "month", "depths", "cloths", "moths", "baths", "paths"])

# --- What a name means.
_LONGEST = 60
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_REWRITTEN = (
    (re.compile(r"[·⋅×*]"), " "),
    (re.compile(r"\s+per\s+"), "/"),
    (re.compile(r"\b(?:square|sq\.?)\s+(\w+)"), r"\1^2"),
    (re.compile(r"\b(?:cubic|cu\.?)\s+(\w+)"), r"\1^3"),
    (re.compile(r"平方(\w+)"), r"\1^2"),
    (re.compile(r"立方(\w+)"), r"\1^3"),
    (re.compile(r"(\w)\s+squared\b"), r"\1^2"),
    (re.compile(r"(\w)\s+cubed\b"), r"\1^3"),
    (re.compile(r"(?:°\s*|\bdeg(?:rees?)?\s+)(c|f)(?:elsius|ahrenheit)?\b", re.IGNORECASE), r"°\1"),
    (re.compile(r"\barc[\s-]+(?=[a-z])"), "arc"),
    (re.compile(r"\b(light|electron|fluid|nautical|astronomical)[\s-]+(?=[a-z])"), r"\1_"),
)
_FACTOR = re.compile(r"([^\d\s^()/]+)(?:\^?\(?(-?[1-6])\)?)?")
_Parts = tuple[Fraction, dict[str, Fraction], str]


@lru_cache(maxsize=4096)
def readings(name: str) -> tuple[Unit, ...]:
    """The units that a name or symbol may mean; empty if it is unknown."""
    spelled = name_of(name).rstrip(".")
    if not 0 < len(spelled) <= _LONGEST:
        return ()
    also = _ALSO.get(spelled) or (_ALSO.get(spelled.lower()) if len(spelled) > 3 else None)
    return tuple(unit for unit in (_known(spelled), also and _known(also)) if unit)


def known(name: str) -> Unit | None:
    """The unit with this name or symbol; None if it is unknown."""
    return next(iter(readings(name)), None)


def _known(spelled: str) -> Unit | None:
    for pattern, usual in _REWRITTEN:
        spelled = pattern.sub(usual, spelled)
    if own := _OWN.get(spelled.lower()):
        return own
    size, kind, scales = Fraction(1), dict[str, Fraction](), set[str]()
    above, *below = spelled.split("/")
    factors = [(factor, 1) for factor in above.split() if factor != "1" or not below]
    factors += [(factor, -1) for part in below for factor in part.strip(" ()").split() or ["?"]]
    for factor, sign in factors:
        match = _FACTOR.fullmatch(factor)
        unit = _simple(match[1]) if match else None
        if match is None or unit is None:
            return None
        power = sign * int(match[2] or 1)
        size *= unit[0] ** power
        for base, exponent in unit[1].items():
            kind[base] = kind.get(base, Fraction(0)) + power * exponent
        scales |= {unit[2]} - {""}
    bases = {base: power for base, power in kind.items() if power}
    if len(bases) > 1 or set(bases.values()) - {1}:
        # An angle in a product has no kind of its own: rad/s is 1/s.
        bases.pop("angle", None)
        scales.discard("radian")
    text = " ".join(
        f"{base}^{power}" if power != 1 else base for base, power in sorted(bases.items())
    )
    return Unit(text, size, " ".join(sorted(scales))) if text else None


def _simple(name: str) -> _Parts | None:
    """Size, base units and scale of a unit that is no product."""
    if own := _OWN.get(name.lower()):
        return own.size, {own.kind: Fraction(1)}, own.scale
    spelled = _PINTS.get(name, name)
    if {spelled.lower(), spelled.lower().removesuffix("s")} & _WORDS or (
        len(spelled) == 1 and spelled not in _LETTERS
    ):
        return None
    return _from_pint(spelled) or (_from_pint(name.lower()) if len(name) > 4 else None)


def _from_pint(name: str) -> _Parts | None:
    for prefix, _, plural in _registry().parse_unit_name(name):
        is_plural = not plural or len(name) > 3 or name in _SHORT_PLURALS
        if is_plural and (not prefix or _PREFIXED.fullmatch(name)):
            size, bases = _registry().get_root_units(name)
            kind = {
                base.replace("radian", "angle"): Fraction(p) for base, p in bases._units.items()
            }
            return Fraction(size), kind, "radian" if set(kind) == {"angle"} else ""
    return None


@cache
def _registry() -> Any:
    # Importing pint and reading its definitions takes most of a second.
    import pint

    return pint.UnitRegistry(non_int_type=Fraction, cache_folder=None)


def sizes(unit: Unit) -> frozenset[Fraction]:
    """The sizes of the common units to which a unit converts."""
    names = [*_COMMON.split(), *_OWN]
    names += [f"{name}^{power}" for name in names[:8] for power in (2, 3)]
    return frozenset(
        other.size for name in names if (other := known(name)) and other.converts_to(unit)
    )


# --- Units in texts.
_SPACE = r"(?:[\s~]|\\[,;:! ])"
_WRAPPED = r"\\(?:text[a-z]{0,2}|mathrm|mbox|operatorname)\s*\{(?:[^{}$]|\{-?[1-6]\})*\}"
_SYMBOL = r"\\(?:mu|Omega|AA|circ|degree|%)(?![a-zA-Z])|\^\s*\{?\s*\\(?:circ|degree)\s*\}?|[°%]"
_POWER = r"\^\s*(?:-?[1-6]|\{\s*-?[1-6]\s*\})"
# A unit in LaTeX: \mathrm{~km} / \mathrm{s}^{2}, ^\circ\text{C}, \%.
_TYPESET = re.compile(
    rf"{_SPACE}*+(?P<unit>(?:\\\(|\$)?(?:(?:{_SPACE}|[/(]|\\cdot|\\times)*+(?:{_WRAPPED}|{_SYMBOL})"
    rf"(?:{_POWER}|\))?)+)(?:{_SPACE}*+(?:\\\)|\$))?"
)
_LATEX = (
    (
        re.compile(
            r"\\frac\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"
        ),
        r"\1/\2",
    ),
    (
        re.compile(
            r"\\(?:text[a-z]{0,2}|mathrm|mbox|operatorname)(?![a-zA-Z])|\\[,;:! ]|~|\\cdot|\\times"
        ),
        " ",
    ),
    # One blank, so that the next pattern takes linear time.
    (re.compile(r"\s+"), " "),
    (re.compile(r"\^?\s?\{?\s?\\(?:circ|degree)(?![a-zA-Z])\s?\}?"), "°"),
    (re.compile(r"\\mu(?![a-zA-Z])[\s{]*"), "μ"),
    (re.compile(r"\\Omega(?![a-zA-Z])"), "Ω"),
    (re.compile(r"\\AA(?![a-zA-Z])|\\mathring\s*\{?A\}?"), "Å"),
    (re.compile(r"\\\(|\\\)|(?<!\\)\$(?=.)|[{}\\]|<sup>|</sup>"), ""),
)
_WORD = r"[a-zA-Zμµ°ΩÅ]{1,14}(?:\^?\{?-?[1-6]\}?|[²³⁻¹]+)?"
_SPOKEN = re.compile(
    rf"(?:(?:square|cubic|sq\.?|cu\.?|per) )?{_WORD}(?:(?: ?[/·] ?| per | (?=[cC]elsius|[fF]ahren))"
    rf"\(?{_WORD}\)?){{0,3}}(?![\w^/-])"
)


def name_of(latex: str) -> str:
    """The name of a unit that is written in LaTeX."""
    for notation, usual in _LATEX:
        latex = notation.sub(usual, latex)
    latex = _SUPERSCRIPTS.sub(lambda raised: "^" + raised[0].translate(_RAISED), latex)
    return " ".join(latex.split())


def typeset(text: str) -> tuple[str, int]:
    """(unit, end index) of a known LaTeX unit at the beginning of ``text``; ("", 0) if none."""
    match = _TYPESET.match(text)
    name = name_of(match["unit"]) if match else ""
    if not match or not known(name):
        return "", 0
    return {"%": r"\%", "°": r"^\circ"}.get(name, rf" \text{{{name}}}"), match.end()


def spoken(text: str) -> str:
    """A known unit at the beginning of prose, as LaTeX; empty if there is none."""
    match = _SPOKEN.match(text)
    if not match:
        # Chinese has no blanks, and its counting words do not change the value.
        runs = (text[:length].strip() for length in range(4, 0, -1) if not text[:1].isascii())
        name = next((run for run in runs if (unit := known(run)) and unit.kind != "any"), "")
        return rf" \text{{{name}}}" if name else ""
    for written in (match[0], re.split(r"[\s/·]", match[0])[0]):
        # "in", "a" and similar words are rarely units, and K may be thousand.
        ends = re.match(r"\s*(?:[.,;)\n]|$)", text[len(written) :])
        is_unit = len(written) > 2 or (ends and (len(written) == 2 or written in _SPOKEN_LETTERS))
        if is_unit and known(name_of(written)):
            is_percent = known(name_of(written)) == _OWN["%"]
            return r"\%" if is_percent else rf" \text{{{name_of(written)}}}"
    return ""


def counts(word: str) -> bool:
    """Whether a word after a number changes the number's value, as "million" does."""
    lowered = word.lower()
    return lowered not in _NO_COUNTING and _COUNTING.fullmatch(lowered) is not None


# --- What a problem asks for.
_IN = re.compile(r"\bin\s+(?:(?:units|terms|a unit) of\s+)?[($\s]*", re.IGNORECASE)
_PHRASE_ENDS = re.compile(
    r"\b(?:of|in|is|are|was|were|do(?:es)?|did|will|would|can|could|has|have|had|must|should|if|that"
    r"|which|who|there|to|for|on|at|and|or|with|from|by|the|s?he|it|they|we|you|each|than)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_MARKS = (".", ",", ";", ":", "?", "!", ")")
_MONEY = re.compile(r"\\\$|[€£¥₹¢]|\$(?=\d[\d,.]*\s+[a-z])")


@lru_cache(maxsize=1024)
def named(problem: str) -> frozenset[Unit]:
    words = name_of(problem).split()
    names = [name_of(match["unit"]) for match in _TYPESET.finditer(" ".join(problem.split()))]
    names += [mark[0].strip("\\") for mark in _MONEY.finditer(problem)]
    units = {unit for name in names for unit in readings(name)}
    return frozenset(units.union(*(_leading(words[at:]) for at in range(len(words)))))


@lru_cache(maxsize=1024)
def asked(problem: str) -> tuple[frozenset[Unit], frozenset[str]]:
    """The units that a problem asks for, and the words for the things that it asks to count."""
    sentences = re.split(r"(?<=[.?!])\s+", problem.strip())
    question = next((each for each in reversed(sentences) if "?" in each), sentences[-1])
    units = _asked_in(question) or _asked_in(problem)
    # An earlier question may count other things, and "how much money" counts none.
    phrases = _counted("how many", question) or _counted("number of", question)
    nouns = {singular(word) for words in phrases for word in words}
    return frozenset(units), frozenset(nouns)


def _asked_in(text: str) -> set[Unit]:
    """The units behind "how many", or else behind the last "in"."""
    phrases = _counted(r"how (?:many|much)|number of", text)
    tails = [[words[at:] for at in range(len(words))] for words in phrases]
    units = {unit for words in tails for unit in next(filter(None, map(_leading, words)), ())}
    for match in [] if units else _IN.finditer(text):
        rest = text[match.end() : match.end() + _LONGEST]
        written = _TYPESET.match(rest)
        candidates = readings(name_of(written["unit"])) if written else ()
        units = {*(candidates or _leading(name_of(rest).split(), _SPOKEN_LETTERS))} or units
    return units


def _counted(words: str, text: str) -> list[list[str]]:
    """The words for a thing behind words such as "how many", without what follows it."""
    phrases = re.findall(rf"\b(?:{words})\s+((?:[a-zA-Z/^-]+\s*){{1,6}})", text, re.IGNORECASE)
    return [_PHRASE_ENDS.sub("", phrase).split() for phrase in phrases]


def _leading(words: list[str], letters: frozenset[str] = frozenset()) -> tuple[Unit, ...]:
    """The unit at the beginning of a list of words, of at most four words of one clause."""
    clause: list[str] = []
    for word in words[:4]:
        clause.append(word.strip(".,;:?!()"))
        if word.endswith(_MARKS):
            break
    if not clause or clause[0].lower() == "in" or (len(clause[0]) < 2 and clause[0] not in letters):
        return ()
    names = (" ".join(clause[:count]) for count in range(len(clause), 0, -1))
    return next(filter(None, map(readings, names)), ())


def singular(word: str) -> str:
    """A word in the singular. Symbols keep their case and a final s: MW and mW, m and ms."""
    spelled = word.rstrip(".")
    return spelled.lower().removesuffix("s") if len(spelled) > 3 else spelled


def is_counted_noun(words: str, problem: str) -> bool:
    """Whether the words after a number only name what is counted: the problem contains them too,
    where it asks for the number of something."""
    if not re.fullmatch(r"[a-z]{3,}(?: [a-z]{3,}){0,2}", words.lower()):
        return False
    parts = words.lower().split()
    if any(map(counts, parts)):
        return False
    nouns = asked(problem)[1]
    stems = {singular(word) for word in re.findall(r"[a-zA-Z]+", problem)}
    return {*map(singular, parts)} <= stems and (not nouns or bool({*map(singular, parts)} & nouns))


def fits(name: str, problem: str) -> bool:
    """Whether a value in this known unit can answer a problem, by the units that the problem asks
    for or, if it asks for none, by those that it names."""
    units, nouns = asked(problem)
    own = readings(name)
    if units:
        return any(unit.answers(other) for unit in own for other in units)
    if nouns:
        is_noun = {*map(singular, name.split())} <= nouns
        return is_noun or any("any" in unit.kind for unit in own)
    alike = [other for other in named(problem) if any(other.kind == unit.kind for unit in own)]
    return not alike or any(unit.answers(other) for unit in own for other in alike)
