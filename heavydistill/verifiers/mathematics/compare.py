r"""Compares two shapes, kind by kind, and finds one text for equal ones.

Verdicts beside those of ``equality``, by reason:

    incorrect  hedged        several values for a reference of one
    incorrect  unit_missing  no unit, where ``units`` is ``required``
    undecided  needs_units   units that do not convert, or one that would have to be known
    undecided  unknown_unit  a word after a number that the problem does not mention
    undecided  number_word   a word after a number that makes another number of it: ``5 fifths``
    undecided  needs_percent a percent sign on one side alone, without the argument ``percent``
    undecided  ambiguous_commas  ``0,5`` or ``1,234`` beside a list: one number or several?
    undecided  brackets      the same values in other brackets, or without
    undecided  not_a_value   an equation with more than a name on its left
    undecided  several_values  several values of different names, or of which not all are compared
    undecided  other_equation, not_reduced, words, other_kind  equal or not cannot be told
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy

from heavydistill.verifiers.mathematics import relations, sets, units
from heavydistill.verifiers.mathematics.arguments import Arguments, Percent
from heavydistill.verifiers.mathematics.equality import Outcome, compare_formulas, value_of
from heavydistill.verifiers.mathematics.formula import Unread, read
from heavydistill.verifiers.mathematics.numbers import DIFFERENT, EQUAL
from heavydistill.verifiers.mathematics.shape import (
    Based,
    Brackets,
    ClockTime,
    Formula,
    Many,
    Matrix,
    Measure,
    Ratio,
    Relation,
    Shape,
    Unclear,
    Union,
    Without,
    Words,
)
from heavydistill.verifiers.mathematics.tokens import Tokens, stripped
from heavydistill.verifiers.normal import normal_form

OTHER_KIND: Outcome = ("undecided", "other_kind")


# --- Whether a reference can be judged against: what is wrong with it, and what to do.
MOST_WORDS = 3
_SET_NAME = re.compile(r"\\emptyset|\\mathbb\{?[A-Z]\}?")

_WHY = {
    "ellipsis": "it holds an ellipsis",
    "set_builder": "it describes a set by a condition",
    "hedged": "it leaves open which answer is meant",
    "doubtful": "it leaves open which answer is meant",
    "several_signs": "it holds several plus-minus signs",
    "too_complex": "it is too long or too large, or holds a sum, an integral or a limit",
    "two_readings": "it can be read in two ways (write fractions as \\frac, arguments in brackets)",
    "two_numbers": "it holds two numbers without an operator",
    "no_answer": "a part of it is empty",
    "sentence": f"it is a text of more than {MOST_WORDS} words",
}


def fault(reference: Shape) -> str | None:
    """What makes a reference unfit, as a message; None if it is fit."""
    for part in _parts(reference):
        reason = _reason(part)
        if reason:
            why = _WHY.get(reason, "it holds notation that is not understood")
            return (
                f"no answer can be compared with the reference: {why}; rewrite it, leave the row "
                "out, or name another verifier"
            )
    return None


def _reason(part: Shape) -> str | None:
    if isinstance(part, Unclear):
        return part.reason
    if isinstance(part, Words):
        return "sentence" if len(part.text.split()) > MOST_WORDS else None
    if isinstance(part, Formula) and not _SET_NAME.fullmatch("".join(part.tokens)):
        if normal_form("".join(part.tokens)).value is not None:
            return None
        try:
            read(part.tokens)
        except Unread as unread:
            return str(unread)
    return None


def _parts(shape: Shape) -> Iterator[Shape]:
    """The shapes that hold no others, in their order."""
    if isinstance(shape, Many | Brackets | Union):
        inner: tuple[Shape, ...] = shape.items
    elif isinstance(shape, Relation):
        # The name on the left may be any notation.
        inner = shape.parts[1:] if shape.signs[0] in ("=", r"\in") else shape.parts
    elif isinstance(shape, Ratio):
        inner = shape.parts
    elif isinstance(shape, Without):
        inner = (shape.whole, shape.hole)
    elif isinstance(shape, Matrix):
        inner = tuple(cell for row in shape.rows for cell in row)
    elif isinstance(shape, Measure):
        inner = (shape.value,)
    else:
        yield shape
        return
    for item in inner:
        yield from _parts(item)


_SPOKEN_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy "
    "eighty ninety hundred thousand million infinity infinite infinitely undefined half third "
    "quarter"
)
_NUMBER_WORDS = frozenset(_SPOKEN_NUMBERS.split())
# Short words that are no products of letters, and words that may answer one question alike.
_SHORT_WORDS = frozenset(("yes", "no", "odd"))
_ALIKE = (frozenset(("yes", "true")), frozenset(("no", "false", "none", "never")))


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """What holds for a whole problem.

    Attributes:
        arguments: Those of the problem.
        text: The problem's text.
    """

    arguments: Arguments
    text: str

    def outcome(self, given: Shape, wanted: Shape) -> Outcome:
        """The outcome for an answer and a reference."""
        if isinstance(wanted, Unclear):
            return "undecided", wanted.reason
        if isinstance(given, Unclear):
            is_hedged = given.reason == "hedged" and not isinstance(wanted, Many)
            return "incorrect" if is_hedged else "undecided", given.reason
        if given == wanted:
            return EQUAL
        given, wanted = relations.spread(given), relations.spread(wanted)
        if isinstance(wanted, Many) and _holds_one(wanted):
            return self.outcome(given, wanted.items[0])
        if isinstance(given, Many) and _holds_one(given):
            return self.outcome(given.items[0], wanted)
        if _sets_meet(given, wanted):
            outcome = sets.compare_sets(given, wanted)
            both = isinstance(given, Relation) and isinstance(wanted, Relation)
            if outcome[0] != "undecided" or not both:
                return outcome
        if isinstance(given, Many) or isinstance(wanted, Many):
            return self._many(given, wanted)
        if isinstance(given, Relation) or isinstance(wanted, Relation):
            return relations.compare_relations(given, wanted, self.outcome)
        if isinstance(given, Measure) or isinstance(wanted, Measure):
            return compare_measures(given, wanted, self.arguments, self.text)
        return self._single(given, wanted)

    def _many(self, given: Shape, wanted: Shape) -> Outcome:
        if _may_be_one_number(given, wanted) or _may_be_one_number(wanted, given):
            return "undecided", "ambiguous_commas"
        if not isinstance(wanted, Many):
            assert isinstance(given, Many)
            return self._hedged(given, wanted)
        items: Sequence[Shape] = _flat(wanted)
        if not isinstance(given, Many):
            return self._too_few(given, items)
        answers: Sequence[Shape] = _flat(given)
        if relations.have_same_names(answers, items):
            by_name = {relations.name_of(answer): answer for answer in answers}
            return self._in_order([by_name[relations.name_of(item)] for item in items], items)
        answers, items = relations.without_common_names(answers, items)
        if self.arguments.ordered:
            return self._in_order(answers, items)
        return self._in_any_order(answers, items)

    def _hedged(self, given: Many, wanted: Shape) -> Outcome:
        """Several values for one: right only if they are all the same."""
        if isinstance(wanted, Brackets):
            return self._brackets(self._in_order(given.items, wanted.items))
        if not all(isinstance(item, Formula | Measure | Relation) for item in given.items):
            return "undecided", "several_values"
        outcomes = [self.outcome(item, wanted) for item in given.items]
        if all(outcome == EQUAL for outcome in outcomes):
            return EQUAL
        names = {relations.name_of(item) for item in given.items}
        is_condition = isinstance(wanted, Relation) and relations.name_of(wanted) is None
        if len(names) > 1 or is_condition or not isinstance(wanted, Formula | Measure | Relation):
            return "undecided", "several_values"
        return "incorrect", "hedged"

    def _too_few(self, given: Shape, items: Sequence[Shape]) -> Outcome:
        if isinstance(given, Brackets):
            return self._brackets(self._in_order(given.items, items))
        if isinstance(given, Formula) and not all(
            isinstance(item, Formula | Measure | Relation) for item in items
        ):
            return OTHER_KIND
        return DIFFERENT if isinstance(given, Formula | Measure) else OTHER_KIND

    def _brackets(self, outcome: Outcome) -> Outcome:
        return ("undecided", "brackets") if outcome == EQUAL else outcome

    def _in_order(self, given: Sequence[Shape], wanted: Sequence[Shape]) -> Outcome:
        if len(given) != len(wanted):
            return DIFFERENT
        outcomes = [self.outcome(*pair) for pair in zip(given, wanted, strict=True)]
        wrong = [outcome for outcome in outcomes if outcome[0] == "incorrect"]
        unclear = [outcome for outcome in outcomes if outcome[0] == "undecided"]
        return (wrong or unclear or [EQUAL])[0]

    def _in_any_order(self, given: Sequence[Shape], wanted: Sequence[Shape]) -> Outcome:
        left = list(given)
        unclear: Outcome | None = None
        missing = False
        for item in wanted:
            outcomes = [self.outcome(answer, item) for answer in left]
            if EQUAL in outcomes:
                del left[outcomes.index(EQUAL)]
                continue
            missing = True
            unclear = unclear or next((o for o in outcomes if o[0] == "undecided"), None)
        if not missing and not left:
            return EQUAL
        if not missing:
            # {1, 1, 2} is {1, 2}, but as a list it has a value too many.
            repeated = all(EQUAL in [self.outcome(a, item) for item in wanted] for a in left)
            return ("undecided", "several_values") if repeated else DIFFERENT
        return unclear or DIFFERENT

    def _single(self, given: Shape, wanted: Shape) -> Outcome:
        if isinstance(given, Brackets) and isinstance(wanted, Brackets):
            return self._rows(given, wanted)
        if isinstance(given, Words | Formula) and isinstance(wanted, Words | Formula):
            return _texts(given, wanted)
        if isinstance(given, Matrix) and isinstance(wanted, Matrix):
            return self._matrices(given, wanted)
        if isinstance(given, Matrix | Brackets) and isinstance(wanted, Matrix | Brackets):
            return self._brackets(self._in_order(_cells(given), _cells(wanted)))
        if isinstance(given, Ratio) and isinstance(wanted, Ratio):
            return self._ratios(given, wanted)
        if isinstance(given, Based) and isinstance(wanted, Based):
            same = _value(given) is not None and _value(given) == _value(wanted)
            return ("undecided", "not_reduced") if same else DIFFERENT
        if isinstance(given, ClockTime) and isinstance(wanted, ClockTime):
            return DIFFERENT
        return OTHER_KIND

    def _rows(self, given: Brackets, wanted: Brackets) -> Outcome:
        outcome = self._in_order(given.items, wanted.items)
        if outcome != EQUAL or (given.opens, given.closes) == (wanted.opens, wanted.closes):
            return outcome
        if given.must_be_interval or wanted.must_be_interval:
            return DIFFERENT
        return "undecided", "brackets"

    def _matrices(self, given: Matrix, wanted: Matrix) -> Outcome:
        sizes = [(len(matrix.rows), len(matrix.rows[0])) for matrix in (given, wanted)]
        outcome = self._in_order(_cells(given), _cells(wanted))
        bars = [matrix.kind.lower() == "vmatrix" for matrix in (given, wanted)]
        if bars[0] != bars[1]:
            return "undecided", "brackets"
        if sizes[0] == sizes[1]:
            return outcome
        is_line = all(1 in size for size in sizes)
        return self._brackets(outcome) if is_line else DIFFERENT

    def _ratios(self, given: Ratio, wanted: Ratio) -> Outcome:
        outcome = self._in_order(given.parts, wanted.parts)
        if outcome != DIFFERENT or len(given.parts) != len(wanted.parts):
            return outcome
        numbers = [_values(ratio.parts) for ratio in (given, wanted)]
        if not all(numbers) or not all(all(values) for values in numbers):
            return "undecided", "not_reduced"
        scales = {one / other for one, other in zip(*numbers, strict=True)}
        return ("undecided", "not_reduced") if len(scales) == 1 else DIFFERENT


def _sets_meet(given: Shape, wanted: Shape) -> bool:
    """Whether both can be read as sets of numbers, and one can be nothing else."""
    if not (sets.is_set(given) or sets.is_set(wanted)):
        return False
    others = [shape for shape in (given, wanted) if not sets.is_set(shape)]
    return all(isinstance(other, Brackets | Many) for other in others)


def _may_be_one_number(many: Shape, other: Shape) -> bool:
    """Whether commas decide if a list and a number are the same: ``0,5`` and ``100,200``."""
    if not isinstance(many, Many) or not isinstance(other, Formula):
        return False
    if "," in other.tokens[0]:
        return True
    readings = many.readings_as_number
    return any(compare_formulas((text,), other.tokens) == EQUAL for text in readings)


def _flat(many: Many) -> list[Shape]:
    """The items, with those of lists inside; ``1, ±2`` and ``x = 1, x = ±2`` have three."""
    found: list[Shape] = []
    for item in many.items:
        value = relations.spread(item)
        if not isinstance(value, Many) or value.joined == "braces":
            found.append(item)
        elif isinstance(item, Relation):
            found.extend(Relation((item.parts[0], part), item.signs) for part in value.items)
        else:
            found.extend(value.items)
    return found


def _holds_one(many: Many) -> bool:
    """Whether it is as good as its only item; a set of a set is not."""
    return len(many.items) == 1 and not isinstance(many.items[0], Many)


def _cells(shape: Matrix | Brackets) -> Sequence[Shape]:
    if isinstance(shape, Brackets):
        return shape.items
    return [cell for row in shape.rows for cell in row]


def _values(parts: Sequence[Shape]) -> list[Fraction]:
    formulas = [normal_form("".join(p.tokens)).value for p in parts if isinstance(p, Formula)]
    values = [value for value in formulas if value is not None]
    return values if len(values) == len(parts) else []


def _value(based: Based) -> int | None:
    try:
        return int(based.digits, based.base) if 2 <= based.base <= 36 else None
    except ValueError:
        return None


def _texts(given: Words | Formula, wanted: Words | Formula) -> Outcome:
    if isinstance(given, Words) and isinstance(wanted, Words):
        return _words(given, wanted)
    for one, other in ((given, wanted), (wanted, given)):
        if isinstance(one, Words) and isinstance(other, Formula):
            if one.may_be_product:
                product = (one.text,)
                pair = (product, other.tokens) if one is given else (other.tokens, product)
                return compare_formulas(*pair)
            is_number = normal_form("".join(other.tokens)).value is not None
            spoken = set(re.findall(r"[a-z]+", one.text.lower()))
            return DIFFERENT if is_number and not spoken & _NUMBER_WORDS else ("undecided", "words")
    assert isinstance(given, Formula) and isinstance(wanted, Formula)
    letters = ["".join(formula.tokens) for formula in (given, wanted)]
    if all(re.fullmatch("[A-H]", letter) for letter in letters) and letters[0] != letters[1]:
        return DIFFERENT
    return compare_formulas(given.tokens, wanted.tokens)


def _words(given: Words, wanted: Words) -> Outcome:
    texts = [" ".join(words.text.lower().split()).rstrip(".") for words in (given, wanted)]
    if texts[0] == texts[1]:
        is_word = len(texts[0]) > 3 or texts[0] in _SHORT_WORDS
        same_case = given.text == wanted.text or is_word
        return EQUAL if same_case else ("undecided", "words")
    if given.may_be_product and wanted.may_be_product and sorted(texts[0]) == sorted(texts[1]):
        return "undecided", "words"
    single = all(re.fullmatch(r"[^\W\d_]+", text) for text in texts)
    related = texts[0].startswith(texts[1][:3]) or texts[1].startswith(texts[0][:3])
    related = related or any(alike.issuperset(texts) for alike in _ALIKE)
    return DIFFERENT if single and not related else ("undecided", "words")


# --- Values with units, percent signs and currencies (``units`` says which are known).
# Where percents are asked for, a reference of 50 is 50 of them.
_ASKS_PERCENT = re.compile(r"\b(?:what|which|as an?) (?:\w+ ){0,2}percent", re.IGNORECASE)
_NEEDS_UNITS: Outcome = ("undecided", "needs_units")


def compare_measures(given: Shape, wanted: Shape, arguments: Arguments, text: str) -> Outcome:
    """The outcome where one side at least is a ``Measure``; ``text`` is that of the problem."""
    given, wanted = _with_unit_of(given, wanted), _with_unit_of(wanted, given)
    for shape in (given, wanted):
        unit = shape.unit if isinstance(shape, Measure) else ""
        if units.known(unit) is None and any(map(units.counts, unit.split())):
            return "undecided", "number_word"
    if isinstance(given, Measure) and isinstance(wanted, Measure):
        return _both(given, wanted)
    if isinstance(given, Measure) and isinstance(wanted, Formula):
        return _one(given, given.value, wanted, arguments, text)
    if isinstance(given, Formula) and isinstance(wanted, Measure):
        outcome = _one(wanted, given, wanted.value, arguments, text)
        missing = arguments.units == "required" and units.known(wanted.unit) != units.known("%")
        return ("incorrect", "unit_missing") if outcome == EQUAL and missing else outcome
    return "undecided", "other_kind"


def _with_unit_of(shape: Shape, other: Shape) -> Shape:
    """``12 m/s`` as a value with a unit, if the other one is in exactly that unit."""
    if not (isinstance(shape, Formula) and isinstance(other, Measure)):
        return shape
    for at in range(1, len(shape.tokens)):
        ends_value = shape.tokens[at - 1][-1].isdigit() or shape.tokens[at - 1] in ("}", ")", " ")
        if ends_value and "".join(shape.tokens[at:]).strip() == other.unit:
            return Measure(Formula(stripped(shape.tokens[:at])), other.unit)
    return shape


def _both(given: Measure, wanted: Measure) -> Outcome:
    first, second = units.known(given.unit), units.known(wanted.unit)
    if _singular(given.unit) == _singular(wanted.unit):
        return compare_formulas(given.value.tokens, wanted.value.tokens)
    if first is None or second is None or first.kind != second.kind:
        return _NEEDS_UNITS
    return compare_formulas(
        given.value.tokens, _scaled(wanted.value.tokens, second.size / first.size)
    )


def _one(
    measure: Measure, given: Formula, wanted: Formula, arguments: Arguments, text: str
) -> Outcome:
    """The outcome for two values of which only ``measure`` has a unit."""
    outcome = compare_formulas(given.tokens, wanted.tokens)
    unit = units.known(measure.unit)
    if unit is None:
        is_noun = units.is_counted_noun(measure.unit, text)
        return outcome if is_noun else ("undecided", "unknown_unit")
    if unit.kind == "percent":
        percent = arguments.percent or ("number" if _ASKS_PERCENT.search(text) else None)
        return _percent(measure, given, wanted, percent, outcome)
    if outcome != DIFFERENT:
        # 5 cm for a reference of 5 where the problem speaks of metres.
        other = measure.value is given and units.is_named_otherwise(unit, text)
        return _NEEDS_UNITS if other else outcome
    # 500 cm for a reference of 5 may be meant in metres.
    for size in units.sizes(unit.kind):
        scale = size / unit.size
        if compare_formulas(given.tokens, _scaled(wanted.tokens, scale)) == EQUAL or (
            compare_formulas(given.tokens, _scaled(wanted.tokens, 1 / scale)) == EQUAL
        ):
            return _NEEDS_UNITS
    if unit.kind in ("angle", "radian") and _are_same_angle(given, wanted):
        return _NEEDS_UNITS
    return DIFFERENT


def _percent(
    measure: Measure, given: Formula, wanted: Formula, percent: Percent | None, outcome: Outcome
) -> Outcome:
    hundredth = Fraction(1, 100)
    if measure.value is given:
        fraction = compare_formulas(_scaled(given.tokens, hundredth), wanted.tokens)
    else:
        fraction = compare_formulas(given.tokens, _scaled(wanted.tokens, hundredth))
    if percent == "number":
        return outcome
    if percent == "fraction":
        return fraction
    return DIFFERENT if outcome == fraction == DIFFERENT else ("undecided", "needs_percent")


def _are_same_angle(given: Formula, wanted: Formula) -> bool:
    """Whether one value in degrees is the other one in radians."""
    for degrees, radians in ((given.tokens, wanted.tokens), (wanted.tokens, given.tokens)):
        scaled = (*_scaled(degrees, Fraction(1, 180)), r"\cdot", r"\pi")
        if compare_formulas(scaled, radians) == EQUAL:
            return True
    return False


def _scaled(tokens: Tokens, scale: Fraction) -> Tokens:
    if scale == 1:
        return tokens
    factor = ("{", str(scale.numerator), "}", "{", str(scale.denominator), "}")
    return ("(", *tokens, ")", r"\cdot", r"\frac", *factor)


def _singular(unit: str) -> str:
    """A unit without its plural; in symbols, case and a final s count: MW and mW, m and ms."""
    spelled = unit.rstrip(".")
    return spelled.lower().removesuffix("s") if len(spelled) > 3 else spelled


# --- One text for equal answers, so that votes on them fall together.
LONGEST = 500


def canonical(shape: Shape, written: str) -> str:
    """The text of an answer; that of its spelling, ``written``, where there is no better one.

    Of a formula it is the value as SymPy writes it, of several values their sorted texts, of a
    measure its value without the unit. Answers that are equal only after a proof may still have
    two texts.
    """
    try:
        text = _text(relations.spread(shape))
    except Unread:
        return written
    return text if len(text) <= LONGEST else written


def _text(shape: Shape) -> str:
    if isinstance(shape, Formula):
        if all(len(token) == 1 and token.isalpha() for token in shape.tokens):
            return "".join(shape.tokens)
        return normal_form(_written(value_of(shape.tokens))).text
    if isinstance(shape, Many):
        return ", ".join(sorted(map(_text, shape.items)))
    if isinstance(shape, Brackets):
        return f"{shape.opens}{', '.join(map(_text, shape.items))}{shape.closes}"
    if isinstance(shape, Measure):
        # Most answers to a problem have the same unit, and some leave it out.
        return _text(shape.value)
    if isinstance(shape, Words):
        return shape.text.lower()
    is_assignment = isinstance(shape, Relation) and shape.signs == ("=",)
    if is_assignment and isinstance(shape, Relation) and relations.name_of(shape):
        return _text(shape.parts[1])
    raise Unread("other_kind")


def _written(value: sympy.Expr) -> str:
    return str(value).replace("**", "^").replace(" ", "")
