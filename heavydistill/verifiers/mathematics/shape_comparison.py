"""Compares two shapes by their kinds, and writes equal shapes as the same text.

Verdicts in addition to those of ``formula_equality``, by reason:

    incorrect  hedged            several values for a reference with one
    undecided  needs_units       units that do not convert, or an unknown one
    undecided  unknown_unit      a word after a number that the problem does not mention
    undecided  number_word       a word that changes the number before it: ``5 fifths``
    undecided  needs_percent     a percent sign on one side only, without a request for percents
    undecided  ambiguous_commas  ``0,5`` or ``1,234`` compared with a list: one number or several
    undecided  brackets          the same values in other brackets, or without brackets
    undecided  not_a_value       an equation whose left side is not just a name
    undecided  several_values    values of different names, or not all values can be compared
    undecided  other_equation, not_reduced, words, other_kind    equality is unknown
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from heavydistill.verifiers.mathematics import relations, sets, units
from heavydistill.verifiers.mathematics.formula import FormulaParseError, longest_bits
from heavydistill.verifiers.mathematics.formula_equality import (
    compare_formulas,
    compare_values,
    value_of,
)
from heavydistill.verifiers.mathematics.shape import (
    CLOCK,
    AmbiguousAnswer,
    Brackets,
    Formula,
    Matrix,
    Measure,
    Ratio,
    Relation,
    Shape,
    ValueSet,
    Words,
    loose_measure,
)
from heavydistill.verifiers.mathematics.tokens import Tokens, tokens_of
from heavydistill.verifiers.normal import DIFFERENT, EQUAL, Outcome, normal_form

OTHER_KIND: Outcome = ("undecided", "other_kind")
_BRACKETS: Outcome = ("undecided", "brackets")
_NEEDS_UNITS: Outcome = ("undecided", "needs_units")
_NOT_REDUCED: Outcome = ("undecided", "not_reduced")
_SEVERAL_VALUES: Outcome = ("undecided", "several_values")
_WORDS: Outcome = ("undecided", "words")

# --- Comparison by kind.
# Words for numbers.
_NUMBER_WORDS = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty"
    r"|hundred|thousand|\w*illion|infinite?(?:ly|y)?|undefined|half|third|quarter)\b"
)
# Short words that are not products of letters, and words that may be synonyms of an answer.
_SHORT_WORDS = frozenset(("yes", "no", "odd"))
_ALIKE = (frozenset(("yes", "true")), frozenset(("no", "false", "none", "never")))
_ASKS_PERCENT = re.compile(r"\b(?:what|which|as an?) (?:\w+ ){0,2}percent", re.IGNORECASE)
# A number with a base as its index: 120_3. F_{12} is a name, and AB_1 may be one.
BASED = re.compile(r"\(?(?:\\text\{)?([0-9A-F]{2,}|[0-9])\}?\)?_\{?([0-9]{1,2})\}?")


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """Compares answers to one problem, given the problem's text."""

    text: str

    def outcome(self, given: Shape, wanted: Shape) -> Outcome:
        """Compare an answer with a reference."""
        if isinstance(wanted, AmbiguousAnswer):
            return "undecided", wanted.reason
        if isinstance(given, AmbiguousAnswer):
            is_hedged = given.reason == "hedged" and not isinstance(wanted, ValueSet)
            return "incorrect" if is_hedged else "undecided", given.reason
        if given == wanted:
            return EQUAL
        if (named := self._by_names(given, wanted)) is not None:
            return named
        given, wanted = _only(relations.spread(given)), _only(relations.spread(wanted))
        if (grouped := _grouped(given, wanted)) is not None:
            return grouped
        if _are_sets(given, wanted):
            outcome = self._sets(given, wanted)
            both = isinstance(given, Relation) and isinstance(wanted, Relation)
            if outcome[0] != "undecided" or not both:
                return outcome
        if isinstance(given, ValueSet) or isinstance(wanted, ValueSet):
            return self._many(given, wanted)
        if isinstance(given, Relation) or isinstance(wanted, Relation):
            return relations.compare_relations(given, wanted, self.outcome)
        given = self._with_letters(given, wanted)
        if isinstance(given, Measure) or isinstance(wanted, Measure):
            return self._measures(given, wanted)
        return self._single(given, wanted)

    def _by_names(self, given: Shape, wanted: Shape) -> Outcome | None:
        """Compare ``x = 3, y = -4`` with ``(x, y) = (3, -4)`` or with ``(3, -4)``; None if these
        are other shapes, or if the problem leaves the order of the names open."""
        first, second = relations.assigned(given), relations.assigned(wanted)
        if first and second and first.keys() == second.keys():
            outcome = self._in_order([first[name] for name in second], [*second.values()])
            return EQUAL if outcome == EQUAL else None
        names, other = (first, wanted) if isinstance(given, ValueSet) else (second, given)
        is_named = isinstance(given, ValueSet) or isinstance(wanted, ValueSet)
        is_tuple = isinstance(other, Brackets) and other.opens + other.closes == "()"
        if not (names and is_named and is_tuple and isinstance(other, Brackets)):
            return None
        order = relations.order_of(names, self.text)
        values = [names[name] for name in order or names]
        pair = (values, other.items) if names is first else (other.items, values)
        return self._in_order(*pair) if order else _in_brackets(self._in_any_order(*pair))

    def _sets(self, given: Shape, wanted: Shape) -> Outcome:
        try:
            parts, others = sets.parts_of(given), sets.parts_of(wanted)
        except FormulaParseError as unread:
            return "undecided", str(unread)
        if len(parts) != len(others):
            return OTHER_KIND
        outcome = self._in_any_order(parts, others)
        names = {sets.variable_of(shape) for shape in (given, wanted)} - {None}
        return ("undecided", "other_names") if outcome == EQUAL and len(names) > 1 else outcome

    def _many(self, given: Shape, wanted: Shape) -> Outcome:
        if _may_be_one_number(given, wanted) or _may_be_one_number(wanted, given):
            return "undecided", "ambiguous_commas"
        if not isinstance(wanted, ValueSet):
            return self._hedged(_flat(given), wanted)
        items = _flat(wanted)
        if isinstance(given, Brackets):
            return _in_brackets(self._in_order(given.items, items))
        if not isinstance(given, ValueSet):
            is_plain = all(isinstance(item, Formula | Measure | Relation) for item in items)
            is_one = isinstance(given, Measure) or (isinstance(given, Formula) and is_plain)
            return DIFFERENT if is_one else OTHER_KIND
        answers = _flat(given)
        in_order = self._in_order(answers, items)
        if in_order == EQUAL:
            return in_order
        outcome = self._in_any_order(answers, items)
        # "2, 1" does not assign values to names, as x = 1, y = 2 does.
        names = {relations.name_of(item) for item in items} - {None}
        says_which = len(names) < 2 or any(map(relations.name_of, answers))
        return outcome if outcome != EQUAL or says_which else _SEVERAL_VALUES

    def _hedged(self, given: Sequence[Shape], wanted: Shape) -> Outcome:
        """Several values for a reference with one: correct only if all equal the reference."""
        value = wanted.parts[-1] if isinstance(wanted, Relation) else wanted
        if isinstance(value, Brackets):
            return _in_brackets(self._in_order(given, value.items))
        if not all(isinstance(item, Formula | Measure | Relation) for item in (*given, wanted)):
            return _SEVERAL_VALUES
        if all(self.outcome(item, wanted) == EQUAL for item in given):
            return EQUAL
        is_condition = isinstance(wanted, Relation) and relations.name_of(wanted) is None
        is_one = len({relations.name_of(item) for item in given}) == 1
        return _SEVERAL_VALUES if is_condition or not is_one else ("incorrect", "hedged")

    def _in_order(self, given: Sequence[Shape], wanted: Sequence[Shape]) -> Outcome:
        if len(given) != len(wanted):
            return DIFFERENT
        outcomes = [self.outcome(*pair) for pair in zip(given, wanted, strict=True)]
        outcomes.sort(key=lambda outcome: ("incorrect", "undecided", "correct").index(outcome[0]))
        return outcomes[0] if outcomes else EQUAL

    def _in_any_order(self, given: Sequence[Shape], wanted: Sequence[Shape]) -> Outcome:
        left = list(given)
        missing: list[Outcome] = []
        for item in wanted:
            outcomes = [self.outcome(answer, item) for answer in left]
            if EQUAL in outcomes:
                del left[outcomes.index(EQUAL)]
            else:
                missing += [*(each for each in outcomes if each[0] == "undecided"), DIFFERENT][:1]
        if missing:
            return next((outcome for outcome in missing if outcome != DIFFERENT), DIFFERENT)
        # {1, 1, 2} equals {1, 2} as a set, but has an additional value as a list.
        repeated = all(EQUAL in [self.outcome(a, item) for item in wanted] for a in left)
        return EQUAL if not left else _SEVERAL_VALUES if repeated else DIFFERENT

    def _single(self, given: Shape, wanted: Shape) -> Outcome:
        rows, others = _as_matrix(given), _as_matrix(wanted)
        if rows and others:
            outcome = self._in_order(rows.items, others.items)
            # A column vector may be written as a row.
            return outcome if rows.width == others.width else _in_brackets(outcome)
        match given, wanted:
            case Brackets(), Brackets():
                outcome = self._in_order(given.items, wanted.items)
                if (given.opens, given.closes) == (wanted.opens, wanted.closes):
                    return outcome
                if given.must_be_interval or wanted.must_be_interval:
                    return DIFFERENT if outcome == EQUAL else outcome
                return _in_brackets(outcome)
            case (Words(), Words()):
                return _words(given, wanted)
            case (Formula(), Formula()):
                return _formulas(given, wanted, self.text)
            case (Words() as words, Formula() as formula) | (
                Formula() as formula,
                Words() as words,
            ):
                if words.may_be_product:
                    return compare_formulas((words.text,), formula.tokens)
                says_number = _NUMBER_WORDS.search(words.text.lower())
                return DIFFERENT if number_in(formula) is not None and not says_number else _WORDS
            case (Matrix() | Brackets(), Matrix() | Brackets()):
                return _in_brackets(self._in_order(given.items, wanted.items))
            case Ratio(), Ratio():
                outcome = self._in_order(given.items, wanted.items)
                return outcome if outcome != DIFFERENT else self._quotients(given, wanted)
            case Formula(), Ratio(items=(Formula(tokens=top), Formula(tokens=bottom))):
                is_fraction = {"/", r"\frac"} & {*given.tokens}
                quotient = (r"\frac", "{", *top, "}", "{", *bottom, "}")
                return compare_formulas(given.tokens, quotient) if is_fraction else OTHER_KIND
        return OTHER_KIND

    def _quotients(self, given: Ratio, wanted: Ratio) -> Outcome:
        """Compare two ratios with other numbers: ``6:8`` and ``4:3`` may stand for ``3:4``."""
        first = given.items[0]
        for items in (wanted.items, wanted.items[::-1]):
            if len(items) != len(given.items):
                return DIFFERENT
            products = [
                (_product(other, items[0]), _product(first, item))
                for other, item in zip(given.items, items, strict=True)
            ]
            if all(self.outcome(*pair) != DIFFERENT for pair in products):
                return _NOT_REDUCED
        return DIFFERENT

    # --- Values with units, percent signs and currencies (``units`` says which are known).

    def _measures(self, given: Shape, wanted: Shape) -> Outcome:
        """Compare two shapes of which at least one is a ``Measure``."""
        for shape in (given, wanted):
            unit = shape.unit if isinstance(shape, Measure) else ""
            if units.known(unit) is None and any(map(units.counts, unit.split())):
                return "undecided", "number_word"
        if isinstance(given, Measure) and isinstance(wanted, Measure):
            if units.singular(given.unit) == units.singular(wanted.unit):
                return compare_formulas(given.value.tokens, wanted.value.tokens)
            readings = units.readings(given.unit), units.readings(wanted.unit)
            pairs = list(itertools.product(*readings))
            for first, second in pairs:
                if first.converts_to(second):
                    scaled = _scaled(wanted.value.tokens, second.size / first.size)
                    return compare_formulas(given.value.tokens, scaled)
            is_other = pairs and all(first.is_other_than(second) for first, second in pairs)
            return DIFFERENT if is_other else _NEEDS_UNITS
        if isinstance(given, Measure) and isinstance(wanted, Formula):
            return self._one_measure(given, given.value.tokens, wanted.tokens)
        if isinstance(given, Formula) and isinstance(wanted, Measure):
            return self._one_measure(wanted, given.tokens, wanted.value.tokens)
        return OTHER_KIND

    def _one_measure(self, measure: Measure, given: Tokens, wanted: Tokens) -> Outcome:
        """Compare two values of which only ``measure`` has a unit."""
        outcome = compare_formulas(given, wanted)
        unit = units.known(measure.unit)
        if unit is None:
            is_noun = units.is_counted_noun(measure.unit, self.text)
            return outcome if is_noun else ("undecided", "unknown_unit")
        is_given = measure.value.tokens is given
        if unit.kind == "percent":
            # If the problem asks for percent, a reference of 50 means 50 percent.
            if _ASKS_PERCENT.search(self.text):
                return outcome
            percent, other = (given, wanted) if is_given else (wanted, given)
            fraction = compare_formulas(_scaled(percent, Fraction(1, 100)), other)
            is_neither = outcome == fraction == DIFFERENT
            return DIFFERENT if is_neither else ("undecided", "needs_percent")
        if outcome != DIFFERENT:
            # 5 cm does not match a reference of 5 if the problem asks for metres.
            is_other = is_given and not units.fits(measure.unit, self.text)
            return _NEEDS_UNITS if is_other else outcome
        # 500 cm may match a reference of 5 if metres are meant; degrees may match radians.
        scales = {size / unit.size for size in units.sizes(unit)}
        scales |= {1 / scale for scale in scales}
        if any(compare_formulas(given, _scaled(wanted, scale)) == EQUAL for scale in scales):
            return _NEEDS_UNITS
        is_angle = unit.kind == "angle" and r"\pi" in (*given, *wanted)
        return _NEEDS_UNITS if is_angle else DIFFERENT

    def _with_letters(self, given: Shape, wanted: Shape) -> Shape:
        """``given``, as a measure if its letters can only be a unit that is mentioned."""
        if not isinstance(given, Formula) or number_in(given) is not None:
            return given
        loose = (
            loose_measure(given) if isinstance(wanted, Measure) or _is_constant(wanted) else None
        )
        if loose is None:
            return given
        expected = {*units.named(self.text), *units.asked(self.text)[0]}
        if isinstance(wanted, Measure):
            expected |= {*units.readings(wanted.unit)}
        kinds = {unit.kind for unit in expected}
        return loose if any(unit.kind in kinds for unit in units.readings(loose.unit)) else given


def _is_constant(shape: Shape) -> bool:
    try:
        return isinstance(shape, Formula) and value_of(shape.tokens).is_number
    except FormulaParseError:
        return False


def _as_matrix(shape: Shape) -> Matrix | None:
    """A matrix that is no determinant, also as rows in brackets: ``[[1, 2], [3, 4]]``."""
    if not isinstance(shape, Brackets):
        return shape if isinstance(shape, Matrix) and not shape.is_determinant else None
    rows = [row for row in shape.items if isinstance(row, Brackets) and row.opens == shape.opens]
    widths = {len(row.items) for row in rows if row.closes == shape.closes}
    if len(rows) < len(shape.items) or len(widths) != 1 or any(r.must_be_interval for r in rows):
        return None
    cells = tuple(cell for row in rows for cell in row.items)
    return Matrix(cells, widths.pop(), is_determinant=False)


def _in_brackets(outcome: Outcome) -> Outcome:
    return _BRACKETS if outcome == EQUAL else outcome


def _only(shape: Shape) -> Shape:
    """The only item of a collection; other shapes, and sets that contain a set, are unchanged."""
    is_one = isinstance(shape, ValueSet) and len(shape.items) == 1
    if is_one and isinstance(shape, ValueSet) and not isinstance(shape.items[0], ValueSet):
        return relations.spread(shape.items[0])
    return shape


def _are_sets(given: Shape, wanted: Shape) -> bool:
    """Whether both can be read as sets of numbers, and at least one has no other reading.

    False for two shapes in brackets, which are compared as brackets.
    """
    both_brackets = isinstance(given, Brackets) and isinstance(wanted, Brackets)
    if both_brackets or not (sets.is_set(given) or sets.is_set(wanted)):
        return False
    return all(
        sets.is_set(shape) or isinstance(shape, Brackets | ValueSet) for shape in (given, wanted)
    )


# Numbers with other marks than 1,234.5: European, spaced, Swiss and Indian groups.
_GROUPED = re.compile(
    r"-?(?:[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+|[0-9]{1,3}(?:\.[0-9]{3}){2,}"
    r"|[0-9]{1,3}(?: [0-9]{3})+(?:[.,][0-9]+)?|[0-9]{1,3}(?:'[0-9]{3})+(?:\.[0-9]+)?"
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]+)?)"
)
_DECIMAL_COMMA = re.compile(r"-?[0-9]+,[0-9]+")


def _grouped(given: Shape, wanted: Shape) -> Outcome | None:
    """Compare numbers of which one has marks other than in 1,234.5; None for other shapes.

    The reference decides whether commas can separate values: ``0,5`` is one number only beside one.
    """
    texts = [_written(shape) for shape in (given, wanted)]
    marked = [bool(_GROUPED.fullmatch(text)) for text in texts]
    if not (marked[1] or number_in(wanted) is not None):
        return None
    has_comma = number_in(given) is None and bool(_DECIMAL_COMMA.fullmatch(texts[0]))
    if not (marked[0] or has_comma or (marked[1] and number_in(given) is not None)):
        return None
    numbers = map(_unmarked, texts, (marked[0] or has_comma, marked[1]))
    outcome = compare_formulas(*map(tokens_of, numbers))
    return None if has_comma and outcome == DIFFERENT else outcome


def _written(shape: Shape) -> str:
    """A number as written, also if its marks split it into several values."""
    if isinstance(shape, ValueSet) and shape.joined == "tight":
        return ",".join(map(_written, shape.items))
    return shape.text if isinstance(shape, Formula) else "?"


def _unmarked(text: str, is_marked: bool) -> str:
    if not is_marked:
        return text
    is_european = bool(re.fullmatch(r"[^,]*,[0-9]+", text)) or text.count(".") > 1
    text = text.replace(".", "").replace(",", ".") if is_european else text.replace(",", "")
    return text.replace(" ", "").replace("'", "")


def _may_be_one_number(many: Shape, other: Shape) -> bool:
    """Whether the meaning of commas matters: ``0,5`` and ``100,200`` may be one number."""
    if not (isinstance(many, ValueSet) and isinstance(other, Formula)):
        return False
    texts = [item.text if isinstance(item, Formula) else "?" for item in many.items]
    readings = {"".join(texts), ".".join(texts)} if many.joined in ("comma", "tight") else set()
    value = number_in(other)
    is_reading = value is not None and any(normal_form(text).value == value for text in readings)
    return is_reading or "," in other.tokens[0]


def _flat(many: Shape) -> Sequence[Shape]:
    """The items, with inner lists expanded; ``1, ±2`` and ``x = 1, x = ±2`` have three items."""
    shapes: list[Shape] = []
    for item in many.items if isinstance(many, ValueSet) else ():
        value = relations.spread(item)
        if not isinstance(value, ValueSet) or value.joined == "braces":
            shapes.append(item)
        elif isinstance(item, Relation):
            shapes.extend(Relation((item.parts[0], part), item.signs) for part in value.items)
        else:
            shapes.extend(value.items)
    return shapes


def number_in(shape: Shape) -> Fraction | None:
    """The value of a plain number; None for other shapes."""
    return normal_form(shape.text).value if isinstance(shape, Formula) else None


def _product(one: Shape, other: Shape) -> Shape:
    if isinstance(one, Formula) and isinstance(other, Formula):
        return Formula(("(", *one.tokens, ")", "(", *other.tokens, ")"))
    return AmbiguousAnswer("other_kind")


def _formulas(given: Formula, wanted: Formula, problem: str) -> Outcome:
    first, second = (BASED.fullmatch(shape.text.replace(" ", "")) for shape in (given, wanted))
    if first and second:
        digits = [match[1].lstrip("0") for match in (first, second)]
        if digits[0] == digits[1] and first[2] == second[2]:
            return EQUAL
        return DIFFERENT if first[2] == second[2] else _NOT_REDUCED
    if (based := first or second) and (plain := given if second else wanted).text.isalnum():
        is_asked = re.search(rf"\b{_base_names(based[2])}(?![0-9])", problem, re.IGNORECASE)
        is_same = based[1].lstrip("0") == plain.text.lstrip("0")
        return EQUAL if is_asked and is_same else _NOT_REDUCED
    if all(re.fullmatch("[A-H]", shape.text) for shape in (given, wanted)):
        return DIFFERENT
    outcome = compare_formulas(given.tokens, wanted.tokens)
    is_named = outcome == ("undecided", "other_names")
    return _by_constants(given, wanted, problem) if is_named else outcome


def _base_names(base: str) -> str:
    name = {"2": "binary", "8": "octal", "16": "hexadecimal"}.get(base)
    return rf"(?:base[-\s$\\{{]*{base}{f'|{name}' if name else ''})"


def _by_constants(given: Formula, wanted: Formula, problem: str) -> Outcome:
    """Compare antiderivatives whose constants have other names: ``x^2 + C`` and ``x^2 + K``."""
    other_names: Outcome = ("undecided", "other_names")
    try:
        values = value_of(given.tokens), value_of(wanted.tokens)
    except FormulaParseError:
        return other_names
    constants: list[sympy.Symbol] = []
    for value, other in (values, values[::-1]):
        own = value.free_symbols - other.free_symbols
        constants += [name for name in own if re.fullmatch("[cCkK](?:_.)?", str(name))][:1]
        if len(own) != 1 or (value - sum(constants[-1:])).free_symbols & own:
            return other_names
    # A letter of the problem is no arbitrary constant.
    letters = "|".join(re.escape(str(name)) for name in constants)
    if re.search(rf"(?<![a-zA-Z\\])(?:{letters})(?![a-zA-Z])", problem):
        return other_names
    return compare_values(values[0].subs(constants[0], constants[1]), values[1])


def _words(given: Words, wanted: Words) -> Outcome:
    first, second = (" ".join(words.text.lower().split()).rstrip(".") for words in (given, wanted))
    if CLOCK.fullmatch(first) and CLOCK.fullmatch(second):
        return EQUAL if first == second else DIFFERENT
    if first == second:
        is_word = len(first) > 3 or first in _SHORT_WORDS
        return EQUAL if is_word or given.text == wanted.text else _WORDS
    if given.may_be_product and wanted.may_be_product and sorted(first) == sorted(second):
        return _WORDS
    single = all(re.fullmatch(r"[^\W\d_]+", text) for text in (first, second))
    related = first.startswith(second[:3]) or second.startswith(first[:3])
    related = related or any(alike >= {first, second} for alike in _ALIKE)
    return DIFFERENT if single and not related else _WORDS


def _scaled(tokens: Tokens, scale: Fraction) -> Tokens:
    if scale == 1:
        return tokens
    factor = ("{", str(scale.numerator), "}", "{", str(scale.denominator), "}")
    return ("(", *tokens, ")", r"\cdot", r"\frac", *factor)


# --- Canonical text: equal answers get the same text, so that their votes count together.
LONGEST = 500
# Python refuses to print integers of more than 4,300 digits.
LONGEST_BITS = 4 * LONGEST


def canonical(shape: Shape, written: str) -> str:
    """The canonical text of an answer; the normal form of ``written`` if there is no better one.

    A formula becomes its value as SymPy writes it, several values become their sorted texts, and a
    measure becomes its value without the unit, and a number too long to print becomes a digest.
    Answers whose equality needs a proof may get different texts.
    """
    try:
        text = _text(relations.spread(shape))
    except FormulaParseError:
        return written
    return text if len(text) <= LONGEST else written


def _digest(value: sympy.Expr) -> str:
    """A short text of a number too long to print."""
    if not value.is_Rational:
        raise FormulaParseError("too_complex")
    return hashlib.sha256(f"{int(value.p):x}/{int(value.q):x}".encode()).hexdigest()[:32]


def _text(shape: Shape) -> str:
    match shape:
        case Formula(tokens=tokens):
            letters = all(len(token) == 1 and token.isalpha() for token in tokens)
            if letters or BASED.fullmatch(shape.text):
                return shape.text
            value = value_of(tokens)
            if longest_bits(value) > LONGEST_BITS:
                return _digest(value)
            return normal_form(str(value).replace("**", "^").replace(" ", "")).text
        case ValueSet(items=items):
            return ", ".join(sorted(map(_text, items)))
        case Brackets(opens=opens, items=items, closes=closes):
            return f"{opens}{', '.join(map(_text, items))}{closes}"
        case Measure(value=value):
            # Most answers to a problem have the same unit, and some have none.
            return _text(value)
        case Words(text=text):
            return text.lower()
        case Relation(parts=(_, value), signs=("=",)) if relations.name_of(shape):
            return _text(value)
    raise FormulaParseError("other_kind")
