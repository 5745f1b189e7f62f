"""Every family of reasoning-gym: its right answers, and answers that only look right."""

import functools
import json
import re

import pytest
from judging import judged
from text_tables import texts

from heavydistill.config.run import Problems
from heavydistill.problems import load
from heavydistill.schema import Problem
from heavydistill.verifiers.procedural.verifier import Procedural, Spec, dataset, entry, refusal

pytest.importorskip("reasoning_gym")


@functools.cache
def problems(family: str, size: int, seed: int, settings: str = "{}") -> list[Problem]:
    chosen = json.loads(settings)
    gym = {family: chosen} if chosen else {}
    return load(Problems(source=f"gym:{family}", size=size, seed=seed, gym=gym))


def label(problem: Problem, answer: str) -> str:
    return judged(problem, f"So \\boxed{{{answer}}}").label


# Families with several right answers, or whose answer read backwards may be right.
SEVERAL_RIGHT = {
    "countdown", "kakurasu", "n_queens", "palindrome_generation", "prime_factorization", "puzzle24",
    "quantum_lock", "shortest_path", "sokoban",
}  # fmt: skip
# Some of its problems have an empty answer and are refused.
FEW = {"ab": 3}
# Its reference is the integral itself, which is no answer.
WITHOUT_WORKED_ANSWER = {"intermediate_integration"}


def accepted() -> list[str]:
    from reasoning_gym.factory import DATASETS

    return [family for family in sorted(DATASETS) if not refusal(family)]


# No answer, more than one, or one with something that takes it back.
NOT_ANSWERS = texts("""
    asdf  ¦  nan  ¦  {right} or 5  ¦  {right} or {other}  ¦  {other} or {right}  ¦  {right} {right}
    {right}⏎{right}  ¦  {right}, {right}  ¦  {right}, {other}  ¦  {right}; {other}
    {right} = {other}  ¦  {right}, junk  ¦  junk {right}  ¦  not {right}  ¦  {right} is wrong
    either {right} or not  ¦  [{right}]x
""")


def not_answers(right: str, other: str) -> list[str]:
    # Over 1 it is the same number.
    fraction = f"{right}/{other if other != '1' else '2'}"
    return ["", fraction, *(text.format(right=right, other=other) for text in NOT_ANSWERS)]


def check(family: str, size: int, seed: int) -> None:
    made = problems(family, size, seed)
    for number, problem in enumerate(made):
        right, other = problem.reference, made[number - 1].reference
        if family not in WITHOUT_WORKED_ANSWER:
            assert label(problem, right) == "correct", right
        assert Procedural().check_reference(problem) is None
        for text in not_answers(right, other):
            assert label(problem, text) != "correct", text
        if family not in SEVERAL_RIGHT | WITHOUT_WORKED_ANSWER:
            for text in (other, right[::-1]):
                same = text.lower() == right.lower()
                assert same or label(problem, text) != "correct", text


@pytest.mark.parametrize("family", accepted())
def test_a_right_answer_is_correct_and_no_hedged_or_broken_one(family):
    check(family, size=FEW.get(family, 5), seed=50)


@pytest.mark.slow
@pytest.mark.parametrize("family", accepted())
def test_the_same_holds_over_many_problems(family):
    check(family, size=FEW.get(family, 25), seed=1000)


# The same answer as a model may write it: family and the answer made of the right one.
SAME = [
    ("arc_1d", lambda r: f"[{r}]".replace(" ", ", ")),
    ("rearc", lambda r: f"[[{r}]]".replace(" ", ",").replace("\n", "],[")),
    ("countdown", lambda r: f"\\({r}\\)"),
    ("dice", lambda r: "\\frac{{{}}}{{{}}}".format(*r.split("/"))),
    ("prime_factorization", lambda r: r.replace("×", "\\times")),
    ("quantum_lock", lambda r: f"\\text{{{r}}}".replace("→", "}\\rightarrow\\text{")),
    ("rotate_matrix", lambda r: f"[[{r}]]".replace(" ", ", ").replace("\n", "],\n[")),
    ("rotate_matrix", lambda r: f"[[{r}]]".replace("\n", "]\n [")),
    (
        "binary_matrix",
        lambda r: (
            "\\begin{pmatrix}" + r.replace(" ", "&").replace("\n", "\\\\\n") + "\\end{pmatrix}"
        ),
    ),
    ("n_queens", lambda r: str([line.split() for line in r.split("\n")])),
    ("n_queens", lambda r: r.replace("_", "\\_").replace("\n", " \\\\ ")),
    ("spiral_matrix", lambda r: str(r.split())), ("string_insertion", lambda r: str(list(r))),
    ("string_insertion", lambda r: f"\\texttt{{{r}}}"), ("ab", lambda r: r.replace("#", "\\#")),
    ("simple_equations", lambda r: f"x = {r}"), ("course_schedule", lambda r: f"\\text{{{r}}}."),
    ("countdown", lambda r: r.replace("*", "\\times ")),
    ("puzzle24", lambda r: f"${r.replace('*', '×')}$"),
    ("number_sorting", lambda r: r.replace("'", '"')),
    ("number_filtering", lambda r: r.replace("'", "")),
    ("knights_knaves", lambda r: r.replace(", and", "\n").rstrip(".")),
    ("word_sorting", lambda r: r.replace(", ", ",")),
    ("sudoku", lambda r: r.replace("\n", "\\\\ ")),
    ("futoshiki", lambda r: re.sub(r"[^0-9\n]", " ", r)),
    ("jugs", lambda r: r.replace("->", "→").replace('"', "'")),
    ("tower_of_hanoi", lambda r: r.replace("\n", ".\n\n")),
    ("shortest_path", lambda r: r.replace(" ", ", ")),
    ("game_of_life", lambda r: r.replace(",", ", ")),
    ("power_function", lambda r: "{} \\times 10^{{{}}}".format(*f"{float(r):.2e}".split("e"))),
    ("simple_integration", lambda r: r.replace("**", "^").replace("*", "")),
    ("acre", str.upper), ("calendar_arithmetic", str.lower), ("course_schedule", str.lower),
    ("game_of_life_halting", str.lower), ("mahjong_puzzle", str.lower), ("syllogism", str.lower),
    ("gsm_symbolic", lambda r: f"\\${r}.00"),
    ("complex_arithmetic", lambda r: f"({r.replace('.0', '').replace(' ', '')})"),
    ("simple_geometry", lambda r: f"{r}^\\circ"),
    (
        "tower_of_hanoi",
        lambda r: (
            "\\begin{aligned}"
            + "\\\\[4pt] ".join(f"&\\text{{{line}}}" for line in r.split("\n"))
            + "\\end{aligned}"
        ),
    ),
    (
        "mini_sudoku",
        lambda r: (
            "\\left[\\begin{array}{|c|c|}\\hline "
            + r.replace(" ", " & ").replace("\n", " \\\\ \\hline ")
            + " \\\\ \\hline\\end{array}\\right]"
        ),
    ),
    ("sentence_reordering", lambda r: "\\text{" + r.replace(" ", "}\\ \\text{") + "}"),
    ("simple_integration", lambda r: "F(x) = " + r.replace("*", "\\, ", 1)),
]  # fmt: skip


@pytest.mark.parametrize(("family", "written"), SAME)
def test_the_same_answer_in_another_notation_is_correct(family, written):
    problem = problems(family, 2, 7)[1]
    assert label(problem, written(problem.reference)) == "correct"


def test_equal_lists_are_extracted_alike():
    problem = problems("number_sorting", 1, 0)[0]
    texts = (problem.reference, problem.reference.replace("'", '"'), f"${problem.reference}$")
    assert len({judged(problem, f"\\boxed{{{text}}}").extracted for text in texts}) == 1


def test_a_survo_with_two_solutions_takes_either():
    problem = problems("survo", 60, 1)[10]
    other = problem.reference.replace("2 8 5 3 18\n2 9 1 7 19", "2 8 1 7 18\n2 9 5 3 19")
    assert other != problem.reference
    assert label(problem, problem.reference) == label(problem, other) == "correct"


def test_numbers_given_are_used_as_they_are_given():
    problem = problems("countdown", 1, 0, json.dumps({"min_value": 2, "max_value": 9}))[0]
    used = entry(Spec.from_args(problem.verifier_args))["metadata"]["numbers"]
    assert label(problem, "+".join(map(str, used[:-1]))) == "incorrect"
    assert label(problem, f"{problem.reference} + 0*1") == "incorrect"
    assert label(problem, f"{used[0]}.{used[1]}" + "".join(f"*{n}" for n in used[2:])) != "correct"
    assert label(problem, f"{problem.reference}/0") == "incorrect"


def test_making_decimals_leaves_the_precision_of_the_process_alone():
    import decimal

    before = decimal.getcontext().prec
    dataset.cache_clear()
    entry.cache_clear()
    problems.cache_clear()
    problem = problems("decimal_arithmetic", 1, 0, json.dumps({"precision": 6}))[0]
    assert label(problem, problem.reference) == "correct"
    assert decimal.getcontext().prec == before


# What stands around an answer and says nothing.
AROUND = ["{}。", "${}$", "\\text{{{}}}"]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    "family", ["countdown", "gcd", "jugs", "rotate_matrix", "syllogism", "time_intervals"]
)
def test_marks_around_an_answer_say_nothing(family, around):
    problem = problems(family, 1, 60)[0]
    assert label(problem, around.format(problem.reference)) == "correct"


@pytest.mark.parametrize("family", ["gcd", "spell_backward", "syllogism"])
def test_an_answer_in_quotes_is_the_answer(family):
    problem = problems(family, 1, 60)[0]
    assert label(problem, f'"{problem.reference}"') == "correct"
    assert label(problem, f'"{problem.reference}", "{problem.reference}"') == "incorrect"
    assert label(problem, f"[{problem.reference}") == "incorrect"


def test_wide_characters_are_those_of_chinese_text():
    wide = {code: code + 0xFEE0 for code in range(ord("!"), ord("~"))}
    for family in ("countdown", "cryptarithm", "polynomial_equations", "sudoku", "word_sorting"):
        problem = problems(family, 1, 60)[0]
        assert label(problem, problem.reference.translate(wide)) == "correct", family


def test_a_sentence_keeps_its_period():
    problem = problems("sentence_reordering", 1, 50)[0]
    assert problem.reference.endswith(".")
    assert label(problem, f"$\\text{{{problem.reference}}}$") == "correct"


@pytest.mark.parametrize(
    ("family", "unit"), [("gsm_symbolic", "dollars"), ("lcm", "apples"), ("maze", "steps")]
)
def test_the_right_number_with_words_is_undecided_and_another_incorrect(family, unit):
    problem = problems(family, 1, 5)[0]
    verdict = judged(problem, f"\\boxed{{{problem.reference} \\text{{ {unit}}}}}")
    assert (verdict.label, verdict.reason) == ("undecided", "with_words")
    assert label(problem, f"{problem.reference}1 {unit}") == "incorrect"


PROBABLE = ["\\frac{15}{64}", "P(X = 2) = 15/64 \\approx 0.234", "23.4375\\%", "0.2344", "15/2^6"]
IMPROBABLE = ["0.2345", "0.235", "15/64 = 0.3", "15/64 or 1/2", "5/64", "1/0", "0", "1"]
ROOTS = ["t = -1.6011, t = 0, t = 1.6011", "\\{-1.6011, 0, 1.6011\\}"]


@pytest.mark.parametrize(
    ("family", "place", "reference", "right", "undecided", "wrong"),
    [
        # The base below a number is the one asked for.
        ("base_conversion", (1, 3), "243", ["243_{10}", "(243)_10"], [], ["243_{11}", "2_{10}"]),
        # A probability is exact or rightly rounded.
        ("coin_flip", (1, 3), "0.234375", PROBABLE, ["0.234"], IMPROBABLE),
        # Roots may have names.
        ("polynomial_equations", (2, 50), "-1.6011, 0.0, 1.6011", ROOTS, [], []),
        # The usual reading of a power of a negative number is undecided.
        (
            *("power_function", (12, 3), "1.7574418454559584e-22"),
            *(["1.76e-22"], ["-1.76e-22"], ["-1.78e-22"]),
        ),
        ("power_function", (12, 3), "-527.9038", [], [], ["5.28e+02"]),
        # Fewer digits than asked for are undecided where they are right.
        (
            *("decimal_arithmetic", (3, 3), "0.990748031496"),
            *(["0.990748031497"], ["0.990748", "0.99"], ["0.990749"]),
        ),
    ],
)
def test_what_a_family_takes_for_its_answer(family, place, reference, right, undecided, wrong):
    (problem,) = [p for p in problems(family, *place) if p.reference == reference]
    assert {label(problem, text) for text in right} <= {"correct"}
    assert {label(problem, text) for text in undecided} <= {"undecided"}
    assert {label(problem, text) for text in wrong} <= {"incorrect"}


def test_a_product_of_large_complex_numbers_is_exact():
    chosen = {"min_real": 10**8 - 9, "max_real": 10**8, "min_imag": 10**8 - 9, "max_imag": 10**8}
    chosen |= {"operations": ["*"], "operations_weights": [1.0]}
    for problem in problems("complex_arithmetic", 5, 0, json.dumps(chosen)):
        metadata = entry(Spec.from_args(problem.verifier_args))["metadata"]
        (a, b), (c, d) = (map(int, metadata[key]) for key in ("num1", "num2"))
        assert label(problem, f"{a * c - b * d} + {a * d + b * c}i") == "correct"
        assert label(problem, f"{a * c - b * d} + {a * d + b * c + 9}i") == "incorrect"


def test_a_coordinate_may_be_an_exact_fraction():
    problem = problems("advanced_geometry", 1, 51, json.dumps({"task_types": ["orthocenter"]}))[0]
    x, y = entry(Spec.from_args(problem.verifier_args))["metadata"]["ortho"]
    assert "/" in x + y
    assert label(problem, f"({x}, {y})") == "correct"
    assert label(problem, f"({y}, {x})") == "incorrect"


def shifted(right: str, by: float) -> str:
    return str([str(float(number) + by) for number in json.loads(right.replace("'", '"'))])


# Wrong or hedged answers to which reasoning-gym itself gives 1.0: family, settings, the answer
# made of the right one and of the metadata.
FOOLED = [
    ("advanced_geometry", {"task_types": ["orthocenter"]}, lambda r, m: f"{r}, (1, 2)"),
    (
        "advanced_geometry",
        {"task_types": ["angle_measure"]},
        lambda r, m: str(
            float(r[:-1]) + (0.004 if m["angle_ABC_degrees"] < float(r[:-1]) else -0.004)
        ),
    ),
    ("coin_flip", {}, lambda r, m: str(float(r) + 0.0001)),
    ("complex_arithmetic", {}, lambda r, m: "nan"),
    ("game_of_life_halting", {}, lambda r, m: "asdf"),
    ("gsm_symbolic", {}, lambda r, m: f"{r} or 5"),
    ("chain_sum", {"min_digits": 3}, lambda r, m: re.sub("(?<=[0-9])(?=[0-9])", ",", r)),
    ("cryptarithm", {}, lambda r, m: f"{r[0]}=7,{r}"),
    ("decimal_arithmetic", {}, lambda r, m: str(float(r) + 0.0004)),
    ("figlet_font", {"min_word_len": 11, "max_word_len": 12}, lambda r, m: r[:-1] + "Q"),
    ("fraction_simplification", {"styles": ["latex_frac"]}, lambda r, m: f"{r} or 5"),
    ("game_of_life", {}, lambda r, m: f"{r[:-1]},[1,1,1]]"),
    ("jugs", {}, lambda r, m: r.replace('fill A"', 'fill A or B"', 1)),
    ("kakurasu", {}, lambda r, m: f"{r} or not"),
    ("knights_knaves", {}, lambda r, m: f"It is false that {r}"),
    ("letter_jumble", {"min_words": 4, "max_words": 4}, lambda r, m: f"{r} or else"),
    (
        "number_format",
        {"max_delta": 0.0101},
        lambda r, m: str(next(c for c in m["candidates"] if c != m["solution"])),
    ),
    ("number_sorting", {}, lambda r, m: shifted(r, 0.4)),
    ("number_sorting", {}, lambda r, m: shifted(r, float("nan"))),
    (
        "palindrome_partitioning",
        {},
        lambda r, m: json.dumps([*json.loads(r)[1:], "".join(json.loads(r)[0])]),
    ),
    ("polynomial_equations", {}, lambda r, m: f"{r}, or 5 apples"),
    ("pool_matrix", {}, lambda r, m: re.sub(r"9(\.0)?", "9.05", r)),
    ("puzzle24", {}, lambda r, m: "6*4*1*1"), ("quantum_lock", {}, lambda r, m: f"{r} or not"),
    ("sokoban", {}, lambda r, m: f"MOVE {r} or not"), ("survo", {}, lambda r, m: f"{r} or not"),
    ("time_intervals", {"task_types": ["date"]}, lambda r, m: f"{r} or 7 days"),
    ("time_intervals", {"task_types": ["datetime"]}, lambda r, m: f"{r}, or 4 days, 01:00"),
    ("tower_of_hanoi", {}, lambda r, m: r.replace("Move disk", "NeverMove disk")),
    ("word_sorting", {}, lambda r, m: f"{r}, junk"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "chosen", "wrong"), FOOLED)
def test_an_answer_that_fools_reasoning_gym_is_incorrect(family, chosen, wrong):
    problem = problems(family, 1, 0, json.dumps(chosen))[0]
    spec = Spec.from_args(problem.verifier_args)
    answer = wrong(problem.reference, entry(spec)["metadata"])
    made = dataset(spec.family, spec.seed, spec.size, spec.settings)
    assert made.score_answer(answer, entry(spec)) == 1, "reasoning-gym is no longer fooled"
    assert label(problem, answer) == "incorrect"
