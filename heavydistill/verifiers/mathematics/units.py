"""Units of measurement, and nouns that are counted.

``_KNOWN`` lists the known units; two units of the same kind are converted exactly. Words that
change the number before them (``million``, ``fifths``, ``squared``) are never units.

A unit divided by another (``m/s^2``, ``miles per hour``) is known if both are.

Not covered: products of units, unlisted prefixes, and conversion of temperatures, whose scales
differ by an offset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its kind, and its size as a multiple of the first unit of that kind."""

    kind: str
    size: Fraction


# Kind, size, names of each unit.
_ROWS = (
    ("length", "1", "m meter meters metre metres 米"),
    ("length", "1000", "km kilometer kilometers kilometre kilometres 千米 公里"),
    ("length", "1/10", "dm decimeter decimeters 分米"),
    ("length", "1/100", "cm centimeter centimeters centimetre centimetres 厘米"),
    ("length", "1/1000", "mm millimeter millimeters millimetre millimetres 毫米"),
    ("length", "1/1000000", "μm micron microns micrometer micrometers"),
    ("length", "254/10000", "in inch inches"),
    ("length", "3048/10000", "ft foot feet"),
    ("length", "9144/10000", "yd yard yards"),
    ("length", "1609344/1000", "mi mile miles"),
    ("mass", "1", "g gram grams 克"),
    ("mass", "1000", "kg kgs kilogram kilograms 千克 公斤"),
    ("mass", "1/1000", "mg milligram milligrams"),
    ("mass", "1000000", "t ton tons tonne tonnes 吨"),
    ("pound", "1", "lb lbs pound pounds"),
    ("pound", "1/16", "oz ounce ounces"),
    ("time", "1", "s sec secs second seconds 秒"),
    ("time", "60", "min mins minute minutes 分钟"),
    ("time", "3600", "h hr hrs hour hours 小时"),
    ("time", "86400", "d day days 天"),
    ("time", "604800", "week weeks"),
    ("month", "1", "month months"),
    ("month", "12", "yr yrs year years"),
    ("volume", "1", "l liter liters litre litres 升"),
    ("volume", "1/1000", "ml milliliter milliliters millilitre millilitres 毫升"),
    ("gallon", "1", "gal gallon gallons"),
    ("gallon", "1/4", "quart quarts"),
    ("length/time", "1", "mps"),
    ("length/time", "1000/3600", "kmh kph"),
    ("length/time", "1609344/3600000", "mph"),
    ("angle", "1", "° deg degree degrees 度"),
    ("radian", "1", "rad radian radians"),
    ("percent", "1", "% percent percents percentage"),
    ("celsius", "1", "°c"),
    ("fahrenheit", "1", "°f"),
    ("dollar", "1", "$ usd dollar dollars"),
    ("dollar", "1/100", "¢ cent cents"),
    ("euro", "1", "€ eur euro euros"),
    ("british pound", "1", "£ gbp"),
    ("yen", "1", "¥ yen jpy yuan rmb 元 块钱"),
    ("rupee", "1", "₹ rs rupee rupees"),
    ("unit", "1", "unit units"),
    ("counted", "1", "个 只 条 张 本 名 人 位 支 枝 棵 件 种 次 辆 头 匹 朵 颗 箱 盒 袋 套 间"),
    ("force", "1", "n newton newtons"),
    ("energy", "1", "j joule joules"),
    ("energy", "1000", "kj kilojoule kilojoules"),
    ("power", "1", "w watt watts"),
    ("power", "1000", "kw kilowatt kilowatts"),
    ("voltage", "1", "v volt volts"),
)

_RAISED = frozenset(("length", "time", "unit"))


def _table() -> dict[str, Unit]:
    table = {
        name: Unit(kind, Fraction(size)) for kind, size, names in _ROWS for name in names.split()
    }
    for power, mark, words in ((2, "²", "square sq 平方"), (3, "³", "cubic cu 立方")):
        for name, unit in [row for row in table.items() if row[1].kind in _RAISED]:
            raised = Unit(f"{unit.kind}^{power}", unit.size**power)
            prefixes = (word if word[0] > "z" else f"{word} " for word in words.split())
            names = [f"{name}^{power}", name + mark, *(prefix + name for prefix in prefixes)]
            table |= dict.fromkeys(names, raised)
    return table


_KNOWN = _table()
# Units whose case matters: MG is not mg, and M is not m.
_CAPITALS = frozenset(("N", "J", "W", "V", "L", "kJ", "kW", "mL", "°C", "°F"))
_ONLY_CAPITAL = frozenset("njwv")
CURRENCIES = frozenset("$€£¥₹¢")

# Words that change the number before them.
_COUNTING = re.compile(
    r"(?:\w*(?:ths?|rds|hundred|thousand|illion|illions|hundreds|thousands|teen|ty)|half|halves"
    r"|third|quarters?|fifth|dozens?|scores?|gross|pairs?|couples?|trios?|lakhs?|crores?|squared?"
    r"|cubed?|factorial|times?|plus|minus|over|under|more|less|fewer|than|negative|root|sqrt|pi"
    r"|remainder|modulo|mod|of|to|or|and|not|by|with|without|power|twice|double|triple|per|point"
    r"|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|base|if|when|for|at"
    r"|least|most|about|maybe|possibly|perhaps|probably|is|are|wrong|incorrect|either|neither"
    r"|bits?|bytes?|exactly|approximately|mega|kilo|k|bn|mn|e|i|x|y|z)",
    re.IGNORECASE,
)
# Words that look like those above but do not change the number before them.
_NO_COUNTING = frozenset(["months", "month", "depths", "cloths", "moths", "baths", "paths"])
_PER = re.compile(r"\s*/\s*|\s+per\s+")
# A unit in LaTeX: \mathrm{~km} / \mathrm{s}, ^\circ, \%.
_SPACE = r"(?:[\s~]|\\[,;:! ])"
_TYPESET = re.compile(
    rf"{_SPACE}*(?:(?P<mark>\\?%|\^?\s*\{{?\s*\\(?:circ|degree)(?![a-zA-Z])\s*\}}?|°)"
    rf"|(?:(?:{_SPACE}|/|\\cdot)*\\(?:text[a-z]{{0,2}}|mathrm|mbox)\s*\{{[^{{}}$]*\}}"
    r"(?:\^\s*(?:[23]|\{[123]\}))?)+)"
)
_SPOKEN = re.compile(r"((?:(?:square|cubic|sq|cu|per) )?[a-zA-Z]{1,11}(?:/[a-z]{1,4})?)(?![\w^/-])")
# Quotients of units that a problem may name: metres per second, m/s.
_NAMED_PER = re.compile(r"[a-zA-Z]+(?:\^[23])?(?: per |/)[a-zA-Z]+(?:\^[23])?")


def known(name: str) -> Unit | None:
    """The unit with this English name or symbol; None if it is unknown."""
    parts = [_undivided(part) for part in _PER.split(name.strip())]
    if len(parts) == 1:
        return parts[0]
    above, below = parts[0], parts[1]
    if len(parts) > 2 or above is None or below is None:
        return None
    return Unit(f"{above.kind}/{below.kind}", above.size / below.size)


def _undivided(name: str) -> Unit | None:
    spelled = re.sub(r"\.?\s+", " ", name.strip().rstrip("."))
    is_short = len(spelled) <= 3 and spelled != spelled.lower()
    if spelled in _ONLY_CAPITAL or (is_short and spelled not in _CAPITALS):
        return None
    return _KNOWN.get(spelled.lower())


def typeset(text: str) -> tuple[str, int]:
    """(unit, end index) of a known LaTeX unit at the beginning of ``text``; ("", 0) if none."""
    match = _TYPESET.match(text)
    if not match:
        return "", 0
    if match["mark"]:
        return r"\%" if "%" in match["mark"] else r"^\circ", match.end()
    name = re.sub(r"\\(?:text[a-z]{0,2}|mathrm|mbox)(?![a-zA-Z])|[{}]", "", match[0])
    name = " ".join(re.sub(r"\\[,;:! ]|~|\\cdot", " ", name).split())
    return (rf" \text{{{name}}}", match.end()) if known(name) else ("", 0)


def spoken(text: str) -> str:
    """A known unit at the beginning of prose, as LaTeX; empty if there is none."""
    match = _SPOKEN.match(text)
    if not match:
        # Chinese has no blanks, and its counting words do not change the value.
        runs = (text[:length].strip() for length in range(4, 0, -1) if not text[:1].isascii())
        name = next((run for run in runs if (unit := known(run)) and unit.kind != "counted"), "")
    elif match[1].lower() in ("percent", "pct"):
        return r"\%"
    else:
        # "in", "a" and similar words are rarely units.
        is_short = len(match[1]) <= 2 and not re.match(r"\s*(?:[.,;)\n]|$)", text[match.end() :])
        first = match[1].partition(" ")[0]
        name = match[1] if known(match[1]) and not is_short else first if first != match[1] else ""
    return rf" \text{{{name}}}" if known(name) else ""


def counts(word: str) -> bool:
    """Whether a word after a number changes the number's value, as "million" does."""
    lowered = word.lower()
    return lowered not in _NO_COUNTING and _COUNTING.fullmatch(lowered) is not None


def is_counted_noun(words: str, problem: str) -> bool:
    """Whether the words after a number only name what is counted: the problem contains them too."""
    if not re.fullmatch(r"[a-z]{3,}(?: [a-z]{3,}){0,2}", words.lower()):
        return False
    parts = words.lower().split()
    stems = {word.removesuffix("s") for word in re.findall(r"[a-z]+", problem.lower())}
    return not any(map(counts, parts)) and {part.removesuffix("s") for part in parts} <= stems


def sizes(kind: str) -> frozenset[Fraction]:
    """The sizes of all units of one kind."""
    above, _, below = kind.partition("/")
    found = {unit.size for unit in _KNOWN.values() if unit.kind == above}
    if below:
        found = {size / divisor for size in found for divisor in sizes(below)}
    return frozenset(found)


def is_named_otherwise(unit: Unit, problem: str) -> bool:
    """Whether the problem uses units of the same kind, but not this unit."""
    names = re.findall(r"[a-z]{2,}|[$€£¥₹¢]", problem.lower()) + _NAMED_PER.findall(problem)
    named = [known(name) for name in names if name != "in"]
    alike = [other for other in named if other is not None and other.kind == unit.kind]
    return bool(alike) and unit not in alike
