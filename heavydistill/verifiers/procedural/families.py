r"""Judges answers to the families of reasoning-gym.

reasoning-gym's scorers are meant for rewards: some execute the text, and many give 1.0 to an answer
with additional text. So ``_JUDGES`` assigns one of three ways to each family:

    own scorer   a function in this module, because reasoning-gym would run the text as code, or
                 gives 1.0 to wrong answers
    by form      the answer must have the form that the problem asks for (``forms``); its content
                 is then scored by reasoning-gym
    default      all other families: reasoning-gym's scorer compares whole texts

Verdicts, by reason:

    correct    scored           reasoning-gym's score is exactly 1, or the own scorer accepts it
    incorrect  scored_below_1   the right form, but a wrong answer
    incorrect  not_in_form      not a single answer of the form that the problem asks for
    undecided  unsafe_answer    a formula that ``formulas`` does not read
    undecided  fewer_digits     a right decimal with fewer digits than the problem asks for
    undecided  ambiguous_sign   right if ``-2^4`` is -16, which reasoning-gym reads as 16
    undecided  with_words       the right number, followed by words that are not a known unit
    undecided  too_complex      a formula that is too large
    undecided  needs_symbolic   an antiderivative that agrees at all points, without a proof

The notation does not matter, even where reasoning-gym deducts points for it: a list of lists for
lines, ``\frac{1}{2}`` for ``1/2``.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from heavydistill.verifiers.base import Decision
from heavydistill.verifiers.mathematics.formula import FormulaParseError
from heavydistill.verifiers.normal import normal_form, plain_decimal
from heavydistill.verifiers.procedural import forms
from heavydistill.verifiers.procedural.forms import (
    NotInForm,
    plain_notation,
    without_name,
    without_period,
)
from heavydistill.verifiers.procedural.formulas import judge_antiderivative, rational

# Minimum number of significant digits of a probability that is not exact.
LEAST_DIGITS = 4
_COMMANDS = r"\\[dt]?frac(?=\{)|\\(?:times|cdot|div|left|right)(?![a-zA-Z])"
_ARITHMETIC = re.compile(rf"(?:[-+/()\[\]{{}}0-9×·÷\u2212\s]|\*(?!\*)|{_COMMANDS})+")


@dataclass(frozen=True, slots=True)
class GymAnswer:
    """An answer to a problem of reasoning-gym, with the problem and its dataset."""

    dataset: Any
    item: dict[str, Any]  # problem, as the dataset returns it
    text: str  # text that a model wrote

    @property
    def plain(self) -> str:
        """The answer in plain notation, without a name before it."""
        return without_name(plain_notation(self.text))

    def scored(self, said: str) -> Decision:
        """Decide by reasoning-gym's own scorer, applied to the content ``said`` of the answer."""
        return decision(self.dataset.score_answer(said, self.item) == 1, said)


Judge = Callable[[GymAnswer], Decision]
"""Function that decides on an answer; raises ``NotInForm`` if a text is not an answer."""


def judge(family: str, dataset: object, item: dict[str, Any], text: str) -> Decision:
    """Decide on an answer to a problem of a family that ``verifier.refusal`` does not refuse.

    Raises whatever reasoning-gym raises for the answer.
    """
    try:
        judged = _JUDGES.get(family, _as_it_is)(GymAnswer(dataset, item, text))
    except NotInForm:
        judged = Decision("incorrect", "not_in_form", text)
    wanted = plain_decimal(item["answer"])
    if judged.label == "incorrect" and wanted:
        form = normal_form(plain_notation(text))
        number = re.match(r"[^\w.+-]*([+-]?[0-9.,]*[0-9])", form.text)
        if form.is_measure and number and plain_decimal(number[1]) == wanted:
            return Decision("undecided", "with_words", judged.extracted)
    return judged


def decision(right: bool, extracted: str) -> Decision:
    if right:
        return Decision("correct", "scored", extracted)
    return Decision("incorrect", "scored_below_1", extracted)


def shown(said: object) -> str:
    """Format the content that was read from an answer; equal answers give equal texts."""
    match said:
        case [list(), *_]:
            return "\n".join(map(shown, said))
        case list():
            return " ".join(map(shown, said))
        case Decimal():
            digits = f"{said:f}"
            return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return str(said)


# --- Ways to judge that several families use.


def _as_it_is(answer: GymAnswer) -> Decision:
    plain = plain_notation(answer.text)
    bare = plain if "=" in answer.item["answer"] else without_name(plain)
    spellings = [answer.text, plain, bare]
    if re.search(r"\.\W*$", answer.text):
        spellings.append(f"{plain}.")
    with contextlib.suppress(NotInForm):
        if plain.startswith("["):
            spellings.append("\n".join(map(" ".join, forms.matrix(plain))))
    decisions = (answer.scored(spelling) for spelling in dict.fromkeys(spellings))
    return next((each for each in decisions if each.label == "correct"), decision(False, bare))


def _by_form(form: Callable[[str], str]) -> Judge:
    """A judge that gives the content read by ``form`` to reasoning-gym's scorer."""
    return lambda answer: answer.scored(form(answer.plain))


def _by_value(read: Callable[[str], object]) -> Judge:
    """A judge that compares what ``read`` finds in the answer and in the reference."""

    def judge_value(answer: GymAnswer) -> Decision:
        value = read(answer.plain)
        return decision(value == read(plain_notation(answer.item["answer"])), shown(value))

    return judge_value


def _are_near(said: Sequence[Any], wanted: Sequence[Any], most: Any) -> bool:
    """Whether both have equally many numbers, and each pair differs by at most ``most``."""
    return len(said) == len(wanted) and all(
        abs(Fraction(one) - Fraction(other)) <= Fraction(most)
        for one, other in zip(said, wanted, strict=True)
    )


# --- Scorers of single families.


def _advanced_geometry(answer: GymAnswer) -> Decision:
    """Accepts the reference, or the exact value with at least the three required decimals."""
    given, metadata = _coordinates(answer.plain), answer.item["metadata"]
    keys = ("angle_ABC_degrees", "incircle_radius_approx")
    exact = metadata.get("orthocenter_approx") or [metadata[key] for key in keys if key in metadata]
    is_printed = given == _coordinates(answer.item["answer"])
    return decision(is_printed or _are_near(given, exact, "0.0005000001"), shown(given))


def _coordinates(text: str) -> list[Fraction]:
    bare = re.sub(r"^\((.*)\)$", r"\1", text)
    values = [normal_form(re.sub("°$| degrees?$", "", part)).value for part in bare.split(",")]
    if None in values:
        raise NotInForm
    return [value for value in values if value is not None]


def _antiderivative(answer: GymAnswer) -> Decision:
    metadata = answer.item["metadata"]
    formula = without_name(without_period(answer.text))
    label, reason = judge_antiderivative(formula, metadata["integrand"], metadata["variable"])
    return Decision(label, reason, answer.text)


def _base_conversion(answer: GymAnswer) -> Decision:
    """Accepts the digits, with or without the base as a subscript."""
    base = answer.item["metadata"]["target_base"]
    pattern = rf"\(?(-?[0-9A-Za-z]+)\)?_ ?(?:{base}|\{{ ?{base} ?\}})"
    based = re.fullmatch(pattern, answer.plain)
    return answer.scored(based[1] if based else answer.plain)


def _coin_flip(answer: GymAnswer) -> Decision:
    """Accepts the exact probability in any notation, or a decimal with at least four right digits.

    ``15/64 = 0.234`` is one answer if both parts are right.
    """
    metadata = answer.item["metadata"]["rational"]
    exact = Fraction(metadata["numerator"], metadata["denominator"])
    name = r"^[A-Za-z]{1,2}(?: ?\([^()]*\))? ?[=≈]"
    text = re.sub(name, "", plain_notation(answer.text))
    accuracies = [_accuracy(part, exact) for part in re.split("[=≈]", text)]
    if 0 in accuracies:
        return decision(False, answer.text)
    if max(accuracies) < LEAST_DIGITS:
        return Decision("undecided", "fewer_digits", answer.text)
    return decision(True, shown(Decimal(exact.numerator) / exact.denominator))


def _accuracy(text: str, exact: Fraction) -> int:
    """The number of significant digits if all are right, otherwise 0."""
    digits = text.strip().removesuffix("%").strip()
    percent = text.strip().endswith("%")
    try:
        value = normal_form(digits).value
        value = rational(digits) if value is None else value
    except FormulaParseError as error:
        raise NotInForm from error
    if value is None:
        raise NotInForm
    wanted = exact * 100 if percent else exact
    if value == wanted:
        return LEAST_DIGITS
    try:
        _, digits_given, exponent = forms.number(digits).as_tuple()
    except NotInForm:
        return 0
    # 1 and 0 claim an exact value and are not roundings.
    rounded = percent or int(exponent) < 0
    return (
        len(digits_given)
        if rounded and abs(value - wanted) <= Fraction(10) ** int(exponent) / 2
        else 0
    )


def _complex_arithmetic(answer: GymAnswer) -> Decision:
    given, metadata = forms.complex_number(answer.plain), answer.item["metadata"]
    wanted = [tuple(map(Decimal, metadata["result"]))]
    if metadata["operation"] == "*":
        # The reference is computed with floats, which round large products.
        (a, b), (c, d) = (map(int, metadata[key]) for key in ("num1", "num2"))
        wanted.append((Decimal(a * c - b * d), Decimal(a * d + b * c)))
    return decision(given in wanted, " ".join(map(shown, given)))


def _power_function(answer: GymAnswer) -> Decision:
    """``-2.5^4`` is undecided: reasoning-gym reads (-2.5)^4, but the usual reading is -(2.5^4)."""
    value, metadata = forms.number(answer.plain), answer.item["metadata"]
    negated = metadata["base"] < 0 and metadata["exponent"] % 2 == 0
    if negated and answer.scored(str(-value)).label == "correct":
        return Decision("undecided", "ambiguous_sign", str(value))
    return answer.scored(str(value))


def _arithmetic(answer: GymAnswer) -> Decision:
    """Accepts a formula that uses each given number once and equals the target (or 24)."""
    metadata, text = answer.item["metadata"], without_period(answer.text)
    if sorted(map(int, re.findall("[0-9]{1,20}", text))) != sorted(metadata["numbers"]):
        return decision(False, answer.text)
    if not _ARITHMETIC.fullmatch(text):
        return Decision("undecided", "unsafe_answer", answer.text)
    try:
        return decision(rational(text) == metadata.get("target", 24), answer.text)
    except FormulaParseError as error:
        return Decision("undecided", str(error), answer.text)


def _decimal_arithmetic(answer: GymAnswer) -> Decision:
    """Accepts a value within one unit of the last required digit of the reference or exact value.

    The reference is rounded after every operation, so it may differ from the exact value. Fewer
    digits, correctly rounded, are undecided, because the problem asks for "a maximum" of digits.
    """
    value, item = forms.number(answer.plain), answer.item
    exact = rational(item["question"].strip().splitlines()[-1].removesuffix("= ?"))
    assert exact is not None
    for wanted in (Fraction(item["answer"]), exact):
        leading = Decimal(wanted.numerator) / Decimal(wanted.denominator)
        unit = Fraction(10) ** (leading.adjusted() - answer.dataset.config.precision + 1)
        if abs(Fraction(value) - wanted) <= unit:
            return decision(True, str(value))
    places = -int(value.as_tuple().exponent)
    if places > 0 and abs(Fraction(value) - exact) <= Fraction(1, 2 * 10**places):
        return Decision("undecided", "fewer_digits", str(value))
    return decision(False, str(value))


def _number_format(answer: GymAnswer) -> Decision:
    """Accepts a number that is nearer to the required candidate than to the other candidates."""
    value, metadata = forms.number(answer.plain), answer.item["metadata"]
    distances = {c: abs(Fraction(value) - Fraction(c)) for c in metadata["candidates"]}
    nearest = min(distances, key=lambda candidate: distances[candidate])
    right = nearest == metadata["solution"] and distances[nearest] < Fraction(1, 100)
    return decision(right, str(value))


def _n_queens(answer: GymAnswer) -> Decision:
    board = "\n".join(map(" ".join, forms.matrix(answer.plain)))
    return decision(board in answer.item["metadata"]["valid_answers"], board)


def _polynomial_equations(answer: GymAnswer) -> Decision:
    """Accepts all roots, each within one unit of the fourth decimal, as the reference is
    rounded."""
    plain = plain_notation(answer.text)
    if plain.startswith("{") and plain.endswith("}"):
        plain = plain[1:-1]
    roots = sorted(forms.number(without_name(root)) for root in forms.words(without_name(plain)))
    wanted = sorted(map(Decimal, forms.words(answer.item["answer"])))
    return decision(_are_near(roots, wanted, "0.0001"), shown(roots))


def _pool_matrix(answer: GymAnswer) -> Decision:
    """Accepts a matrix whose elements are right to two decimals, rounded up or down."""
    rows, wanted = forms.numbers(answer.plain), answer.item["metadata"]["solution"]
    right = len(rows) == len(wanted) and all(
        _are_near(row, values, 0.005 + 1e-9) for row, values in zip(rows, wanted, strict=True)
    )
    return decision(right, shown(rows))


def _survo(answer: GymAnswer) -> Decision:
    """Accepts any numbers with the required sums; one puzzle in sixty has two solutions."""
    rows, metadata = forms.numbers(answer.plain), answer.item["metadata"]
    puzzle = metadata["puzzle"]
    if [len(row) for row in rows] != [len(row) for row in puzzle]:
        return decision(False, shown(rows))
    cells = list(zip(itertools.chain(*puzzle), itertools.chain(*rows), strict=True))
    right = (
        all(given in (0, filled) for given, filled in cells)
        and sorted(filled for given, filled in cells if given == 0)
        == sorted(metadata["candidate_numbers"])
        and all(sum(line[:-1]) == line[-1] for line in [*rows, *zip(*rows, strict=True)])
    )
    return decision(right, shown(rows))


def _tower_of_hanoi(answer: GymAnswer) -> Decision:
    moves = forms.moves_of_disks(answer.plain)
    # reasoning-gym prints a message for a peg that does not exist.
    pegs = answer.item["metadata"]["num_pegs"]
    if any(max(ends) > pegs for _, *ends in moves):
        raise NotInForm
    return answer.scored("\n".join(f"Move disk {d} from Peg {a} to Peg {b}" for d, a, b in moves))


def _time_intervals(answer: GymAnswer) -> Decision:
    form = answer.item["metadata"]["expected_format"]
    return answer.scored(forms.duration(answer.plain, form))


_OWN: dict[str, Judge] = {
    "advanced_geometry": _advanced_geometry,
    "base_conversion": _base_conversion,
    "coin_flip": _coin_flip,
    "complex_arithmetic": _complex_arithmetic,
    "countdown": _arithmetic,
    "decimal_arithmetic": _decimal_arithmetic,
    "intermediate_integration": _antiderivative,
    "n_queens": _n_queens,
    "number_format": _number_format,
    "polynomial_equations": _polynomial_equations,
    "pool_matrix": _pool_matrix,
    "power_function": _power_function,
    "puzzle24": _arithmetic,
    "simple_integration": _antiderivative,
    "survo": _survo,
    "time_intervals": _time_intervals,
    "tower_of_hanoi": _tower_of_hanoi,
}
_FORMS: dict[str, Callable[[str], str]] = {
    "chain_sum products": forms.number_alone,
    "cryptarithm": forms.letter_digits,
    "group_anagrams palindrome_partitioning": forms.lists_of_words,
    "jugs": forms.moves_of_water,
    "kakurasu": forms.binary_grid,
    "quantum_lock": forms.buttons,
    "shortest_path": forms.directions,
    "sokoban": forms.pushes,
}
_VALUES: dict[str, Callable[[str], object]] = {
    "acre calendar_arithmetic course_schedule game_of_life_halting": str.lower,
    "mahjong_puzzle syllogism": str.lower,
    "binary_matrix game_of_life manipulate_matrix mini_sudoku rotate_matrix sudoku": forms.numbers,
    "figlet_font": lambda text: re.sub(r"\s", "", text).lower(),
    "fraction_simplification": forms.fraction,
    "futoshiki": forms.futoshiki_grid,
    "gsm_symbolic simple_geometry": forms.amount,
    "knights_knaves": forms.roles,
    "letter_jumble": lambda text: text.lower().split(),
    "number_filtering number_sorting spiral_matrix": forms.row,
    "prime_factorization": forms.factors,
    "string_insertion": forms.letters,
    "word_sequence_reversal word_sorting": forms.words,
}


def _judges() -> dict[str, Judge]:
    judges = dict(_OWN)
    for families, form in _FORMS.items():
        judges |= dict.fromkeys(families.split(), _by_form(form))
    for families, read in _VALUES.items():
        judges |= dict.fromkeys(families.split(), _by_value(read))
    return judges


_JUDGES = _judges()
