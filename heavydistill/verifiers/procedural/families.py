r"""Whether an answer of a family of reasoning-gym is right.

reasoning-gym's own scores are made for rewards: some execute the text, many give 1.0 to an answer
with something else beside it. So a family is judged in one of three ways, by ``_JUDGES``:

    own scorer   a function here: the family's text would be run as code, or its score is 1.0 for
                 wrong answers
    by form      the answer must have the form that the problem asks for (``forms``); what it
                 says is then scored by reasoning-gym
    as it is     all other families: their scorer compares whole texts

Verdicts, by reason:

    correct    scored           reasoning-gym gives exactly 1, or our own scorer finds it right
    incorrect  scored_below_1   of the form, and not right
    incorrect  not_in_form      not one answer of the form that the problem asks for
    undecided  unsafe_answer    a formula outside of what ``formulas`` reads
    undecided  fewer_digits     a decimal that is right and has fewer digits than asked for
    undecided  ambiguous_sign   right where ``-2^4`` is read as -16, which reasoning-gym does not
    undecided  with_words       the right number, and words after it that are no unit known here
    undecided  too_complex      a formula that is too large
    undecided  needs_symbolic   an antiderivative that agrees everywhere and is not proven

The same values in another notation are the same answer, also where reasoning-gym takes points
off for it: a list of lists for lines, ``\frac{1}{2}`` for ``1/2``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from heavydistill.verifiers.base import Decision
from heavydistill.verifiers.normal import normal_form, plain_decimal
from heavydistill.verifiers.procedural import forms
from heavydistill.verifiers.procedural.forms import (
    plain_notation,
    unwrapped,
    without_name,
    without_period,
)
from heavydistill.verifiers.procedural.formulas import (
    NotAFormula,
    constant,
    judge_antiderivative,
    numbers_in,
    parsed,
)

Judge = Callable[[Any, dict[str, Any], str], Decision]
"""Dataset, item and answer to the decision."""

# Significant digits of a probability that is not exact.
LEAST_DIGITS = 4


def decision(right: bool, extracted: str) -> Decision:
    if right:
        return Decision("correct", "scored", extracted)
    return Decision("incorrect", "scored_below_1", extracted)


def not_in_form(answer: str) -> Decision:
    return Decision("incorrect", "not_in_form", answer)


def shown(said: Any) -> str:
    """What was read as a text: equal for equal answers."""
    match said:
        case dict():
            return ", ".join(f"{key}: {said[key]}" for key in sorted(said))
        case [list(), *_]:
            return "\n".join(shown(row) for row in said)
        case list():
            return " ".join(map(shown, said))
        case tuple():
            return "/".join(map(shown, said))
        case Decimal():
            digits = f"{said:f}"
            return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return str(said)


def advanced_geometry(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """The reference, or the exact value to the three decimals that are asked for or more."""
    plain = without_name(plain_notation(answer))
    metadata = item["metadata"]
    if metadata["task_type"] == "orthocenter":
        exact = [Fraction(part) for part in metadata["ortho"]]
        parts = plain.removeprefix("(").removesuffix(")").split(",")
    else:
        key = {"angle_measure": "angle_ABC_degrees", "incircle_radius": "incircle_radius_approx"}
        exact = [Fraction(metadata[key[metadata["task_type"]]])]
        parts = [re.sub("°$| degrees?$", "", plain)]
    read = [normal_form(part) for part in parts]
    said = [form.value for form in read if form.value is not None]
    if len(said) != len(parts) or len(said) != len(exact):
        return not_in_form(answer)
    printed = [Fraction(part.strip(" ()°")) for part in item["answer"].split(",")]
    right = said == printed or all(
        abs(one - other) <= Fraction("0.0005000001") for one, other in zip(said, exact, strict=True)
    )
    return decision(right, ", ".join(form.text for form in read))


def antiderivative(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    metadata = item["metadata"]
    formula = without_name(without_period(answer))
    label, reason = judge_antiderivative(formula, metadata["integrand"], metadata["variable"])
    return Decision(label, reason, answer)


def base_conversion(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """The digits, with or without the base that is asked for below them."""
    plain = without_name(plain_notation(answer))
    base = item["metadata"]["target_base"]
    based = re.fullmatch(rf"\(?(-?[0-9A-Za-z]+)\)?_ ?(?:{base}|\{{ ?{base} ?\}})", plain)
    said = based[1] if based else plain
    return decision(dataset.score_answer(said, item) == 1, said)


def coin_flip(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """The exact probability in any spelling, or a decimal of four right digits or more.

    ``15/64 = 0.234`` is one answer if both are right.
    """
    rational = item["metadata"]["rational"]
    exact = Fraction(rational["numerator"], rational["denominator"])
    said = re.sub(r"^[A-Za-z]{1,2}(?: ?\([^()]*\))? ?[=≈]", "", plain_notation(answer))
    accuracies = [_accuracy(part, exact) for part in re.split("[=≈]", said)]
    if None in accuracies:
        return not_in_form(answer)
    if 0 in accuracies:
        return decision(False, answer)
    if max(filter(None, accuracies)) < LEAST_DIGITS:
        return Decision("undecided", "fewer_digits", answer)
    return decision(True, shown(Decimal(exact.numerator) / exact.denominator))


def _accuracy(text: str, exact: Fraction) -> int | None:
    """How many digits of a number are those of the exact one; 0 if not all, None if it is none."""
    digits = text.strip().removesuffix("%").strip()
    percent = text.strip().endswith("%")
    try:
        value = normal_form(digits).value
        if value is None:
            value = constant(parsed(digits, powers=True))
    except (NotAFormula, ZeroDivisionError):
        return None
    if value is None:
        return None
    wanted = exact * 100 if percent else exact
    if value == wanted:
        return LEAST_DIGITS
    decimal = forms.number(digits)
    if not decimal:
        return 0
    _, said, exponent = decimal.as_tuple()
    # 1 and 0 are claims of their own, not roundings.
    rounded = percent or int(exponent) < 0
    return len(said) if rounded and abs(value - wanted) <= Fraction(10) ** int(exponent) / 2 else 0


def complex_arithmetic(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    said = forms.complex_number(without_name(plain_notation(answer)))
    if said is None:
        return not_in_form(answer)
    metadata = item["metadata"]
    wanted = [tuple(map(Decimal, metadata["result"]))]
    if metadata["operation"] == "*":
        # The reference is worked out with floats, that round large products.
        (a, b), (c, d) = (map(int, metadata[key]) for key in ("num1", "num2"))
        wanted.append((Decimal(a * c - b * d), Decimal(a * d + b * c)))
    return decision(said in wanted, " ".join(map(shown, said)))


def power_function(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """reasoning-gym takes ``-2.5^4`` for (-2.5)^4; the usual reading, -(2.5^4), is undecided."""
    value = forms.number(without_name(plain_notation(answer)))
    if value is None:
        return not_in_form(answer)
    metadata = item["metadata"]
    negated = metadata["base"] < 0 and metadata["exponent"] % 2 == 0
    if negated and dataset.score_answer(str(-value), item) == 1:
        return Decision("undecided", "ambiguous_sign", str(value))
    return decision(dataset.score_answer(str(value), item) == 1, str(value))


def exact_value(target: Callable[[dict[str, Any]], int]) -> Judge:
    """A formula of the given numbers, each used once, that comes to the target."""

    def judge_formula(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
        metadata = item["metadata"]
        text = without_period(answer)
        written = sorted(map(int, re.findall("[0-9]{1,20}", text)))
        if written != sorted(metadata["numbers"]):
            return Decision("incorrect", "scored_below_1", answer)
        try:
            formula = parsed(text)
            value = constant(formula)
        except NotAFormula as error:
            return Decision("undecided", str(error), answer)
        except ZeroDivisionError:
            return Decision("incorrect", "scored_below_1", answer)
        used = sorted(numbers_in(formula))
        return decision(used == written and value == target(metadata), answer)

    return judge_formula


def decimal_arithmetic(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """Within one unit of the last digit asked for, of the reference or of the exact value.

    The reference rounds after every operation, so that the two may differ. Fewer digits, rightly
    rounded, are undecided: the problem asks for "a maximum" of digits.
    """
    value = forms.number(without_name(plain_notation(answer)))
    if value is None:
        return not_in_form(answer)
    question = item["question"].strip().splitlines()[-1].removesuffix("= ?")
    exact = constant(parsed(question))
    assert exact is not None
    for wanted in (Fraction(item["answer"]), exact):
        leading = Decimal(wanted.numerator) / Decimal(wanted.denominator)
        unit = Fraction(10) ** (leading.adjusted() - dataset.config.precision + 1)
        if abs(Fraction(value) - wanted) <= unit:
            return decision(True, str(value))
    places = -int(value.as_tuple().exponent)
    if places > 0 and abs(Fraction(value) - exact) <= Fraction(1, 2 * 10**places):
        return Decision("undecided", "fewer_digits", str(value))
    return decision(False, str(value))


def number_format(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """The number asked for, and none of the others that are as near to what is written."""
    value = forms.number(plain_notation(answer))
    if value is None:
        return not_in_form(answer)
    wanted = item["metadata"]["solution"]
    distances = {c: abs(Fraction(value) - Fraction(c)) for c in item["metadata"]["candidates"]}
    nearest = min(distances, key=lambda candidate: distances[candidate])
    return decision(nearest == wanted and distances[nearest] < Fraction(1, 100), str(value))


def n_queens(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    rows = forms.matrix(plain_notation(answer))
    if rows is None:
        return not_in_form(answer)
    board = "\n".join(" ".join(row) for row in rows)
    return decision(board in item["metadata"]["valid_answers"], board)


def polynomial_equations(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """All roots, each within a unit of the fourth decimal, to which they are rounded."""
    plain = plain_notation(answer)
    if plain.startswith("{") and plain.endswith("}"):
        plain = plain[1:-1]
    said = [forms.number(without_name(root)) for root in forms.words(without_name(plain))]
    roots = [root for root in said if root is not None]
    if len(roots) < len(said):
        return not_in_form(answer)
    wanted = sorted(map(Decimal, forms.words(item["answer"])))
    right = len(wanted) == len(roots) and all(
        abs(one - other) <= Decimal("0.0001")
        for one, other in zip(sorted(roots), wanted, strict=True)
    )
    return decision(right, shown(sorted(roots)))


def pool_matrix(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """Every element right to two decimals, rounded either way."""
    rows = forms.numbers(plain_notation(answer))
    if rows is None:
        return not_in_form(answer)
    wanted = item["metadata"]["solution"]
    right = [len(row) for row in rows] == [len(row) for row in wanted] and all(
        abs(float(cell) - value) <= 0.005 + 1e-9
        for row, values in zip(rows, wanted, strict=True)
        for cell, value in zip(row, values, strict=True)
    )
    return decision(right, shown(rows))


def survo(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """Any way to fill in the numbers that makes the sums; one puzzle in sixty has two."""
    rows = forms.numbers(plain_notation(answer))
    if rows is None:
        return not_in_form(answer)
    puzzle, numbers = item["metadata"]["puzzle"], item["metadata"]["candidate_numbers"]
    same_shape = [len(row) for row in rows] == [len(row) for row in puzzle]
    cells = [
        (given, filled)
        for given_row, filled_row in zip(puzzle, rows, strict=False)
        for given, filled in zip(given_row, filled_row, strict=False)
    ]
    right = (
        same_shape
        and all(given in (0, filled) for given, filled in cells)
        and sorted(filled for given, filled in cells if given == 0) == sorted(numbers)
        and all(sum(line[:-1]) == line[-1] for line in [*rows, *zip(*rows, strict=True)])
    )
    return decision(right, shown(rows))


def tower_of_hanoi(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    moves = forms.moves_of_disks(plain_notation(answer))
    # reasoning-gym prints a line for a peg that is not there.
    pegs = range(1, item["metadata"]["num_pegs"] + 1)
    if moves is None or any(peg not in pegs for _, *ends in moves for peg in ends):
        return not_in_form(answer)
    said = "\n".join(f"Move disk {d} from Peg {a} to Peg {b}" for d, a, b in moves)
    return decision(dataset.score_answer(said, item) == 1, said)


def time_intervals(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    said = forms.duration(plain_notation(answer), item["metadata"]["expected_format"])
    if said is None:
        return not_in_form(answer)
    return decision(dataset.score_answer(said, item) == 1, said)


def judge(family: str, dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    """The decision on an answer.

    Args:
        family: One that ``verifier.refusal`` lets pass.
        dataset: The reasoning-gym dataset.
        item: The problem, as the dataset gives it.
        answer: What a model wrote; any text.

    Raises:
        Exception: Whatever reasoning-gym raises for the answer.
    """
    judged = _JUDGES.get(family, _as_it_is)(dataset, item, answer)
    wanted = plain_decimal(item["answer"])
    if judged.label == "incorrect" and wanted and _number_before_words(answer) == wanted:
        return Decision("undecided", "with_words", judged.extracted)
    return judged


def _number_before_words(text: str) -> str | None:
    form = normal_form(plain_notation(text))
    number = re.match(r"[^\w.+-]*([+-]?[0-9.,]*[0-9])", form.text)
    return plain_decimal(number[1]) if form.is_measure and number else None


def _as_it_is(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
    plain = plain_notation(answer)
    bare = plain if "=" in item["answer"] else without_name(plain)
    outside = unwrapped(answer)
    spellings = [answer, outside, plain, bare]
    if outside.endswith("."):
        spellings.append(f"{plain}.")
    rows = forms.matrix(plain) if plain.startswith("[") else None
    if rows:
        spellings.append("\n".join(map(" ".join, rows)))
    for spelling in dict.fromkeys(spellings):
        if dataset.score_answer(spelling, item) == 1:
            return decision(True, spelling)
    return decision(False, bare)


def _counted(unit: str) -> Judge:
    """A number with or without the one unit that it can have in this family."""

    def judge_counted(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
        said = re.sub(f"(?<=[0-9]) ?(?:{unit})$", "", without_name(plain_notation(answer)))
        return _as_it_is(dataset, item, said)

    return judge_counted


def _by_form(form: Callable[[str], str | None]) -> Judge:
    """What ``form`` reads is scored by reasoning-gym."""

    def judge_form(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
        said = form(without_name(plain_notation(answer)))
        if said is None:
            return not_in_form(answer)
        return decision(dataset.score_answer(said, item) == 1, said)

    return judge_form


def _by_value(read: Callable[[str], Any]) -> Judge:
    """What ``read`` finds in the answer and in the reference is equal."""

    def judge_value(dataset: Any, item: dict[str, Any], answer: str) -> Decision:
        said = read(without_name(plain_notation(answer)))
        if said is None:
            return not_in_form(answer)
        return decision(said == read(plain_notation(item["answer"])), shown(said))

    return judge_value


def _number(text: str) -> str | None:
    value = forms.number(text)
    return None if value is None else str(value)


def _binary_grid(text: str) -> str | None:
    rows = forms.matrix(text)
    if rows is None or any(cell not in ("0", "1") for row in rows for cell in row):
        return None
    return "\n".join(" ".join(row) for row in rows)


def _row(text: str) -> list[Decimal] | None:
    rows = forms.numbers(text)
    return rows[0] if rows and len(rows) == 1 else None


def _letters_alone(text: str) -> str:
    return re.sub(r"\s", "", text).lower()


def _futoshiki_grid(text: str) -> list[list[str]] | None:
    """The digits of each line that has some; the signs between cells are those of the puzzle."""
    if not re.fullmatch(r"[0-9\s<>∧∨^v,|\[\]]*", text):
        return None
    rows = [re.findall("[0-9]", line) for line in text.replace("],", "]\n").split("\n")]
    return [row for row in rows if row]


_JUDGES: dict[str, Judge] = {
    "acre": _by_value(str.lower),
    "advanced_geometry": advanced_geometry,
    "base_conversion": base_conversion,
    "binary_alternation": _counted("swaps?"),
    "binary_matrix": _by_value(forms.numbers),
    "calendar_arithmetic": _by_value(str.lower),
    "chain_sum": _by_form(_number),
    "coin_flip": coin_flip,
    "complex_arithmetic": complex_arithmetic,
    "count_bits": _counted("ones|bits"),
    "count_primes": _counted("primes?|prime numbers"),
    "countdown": exact_value(lambda metadata: int(metadata["target"])),
    "course_schedule": _by_value(str.lower),
    "cryptarithm": _by_form(forms.letter_digits),
    "decimal_arithmetic": decimal_arithmetic,
    "figlet_font": _by_value(_letters_alone),
    "fraction_simplification": _by_value(forms.fraction),
    "futoshiki": _by_value(_futoshiki_grid),
    "game_of_life": _by_value(forms.numbers),
    "game_of_life_halting": _by_value(str.lower),
    "group_anagrams": _by_form(forms.lists_of_words),
    "gsm_symbolic": _by_value(forms.amount),
    "intermediate_integration": antiderivative,
    "jugs": _by_form(forms.moves_of_water),
    "kakurasu": _by_form(_binary_grid),
    "knights_knaves": _by_value(forms.roles),
    "leg_counting": _counted("legs?"),
    "letter_counting": _counted("times?"),
    "letter_jumble": _by_value(lambda text: text.lower().split()),
    "mahjong_puzzle": _by_value(str.lower),
    "manipulate_matrix": _by_value(forms.numbers),
    "maze": _counted("steps?"),
    "mini_sudoku": _by_value(forms.numbers),
    "n_queens": n_queens,
    "number_filtering": _by_value(_row),
    "number_format": number_format,
    "number_sorting": _by_value(_row),
    "palindrome_partitioning": _by_form(forms.lists_of_words),
    "polynomial_equations": polynomial_equations,
    "pool_matrix": pool_matrix,
    "power_function": power_function,
    "prime_factorization": _by_value(forms.factors),
    "products": _by_form(_number),
    "puzzle24": exact_value(lambda metadata: 24),
    "quantum_lock": _by_form(forms.buttons),
    "rectangle_count": _counted("rectangles?"),
    "rotate_matrix": _by_value(forms.numbers),
    "rotten_oranges": _counted("minutes?"),
    "shortest_path": _by_form(forms.directions),
    "simple_geometry": _counted("°|degrees?"),
    "simple_integration": antiderivative,
    "sokoban": _by_form(forms.pushes),
    "spiral_matrix": _by_value(_row),
    "string_insertion": _by_value(forms.letters),
    "sudoku": _by_value(forms.numbers),
    "survo": survo,
    "syllogism": _by_value(str.lower),
    "time_intervals": time_intervals,
    "tower_of_hanoi": tower_of_hanoi,
    "word_sequence_reversal": _by_value(forms.words),
    "word_sorting": _by_value(forms.words),
}
