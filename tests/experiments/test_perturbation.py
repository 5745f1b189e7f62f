"""What stands in garbled attempts: the same form, other values, and nothing of a right answer."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.experiments.perturbation import (
    box_alone,
    final_box,
    garble,
    garble_attempts,
    plant,
    without_boxes,
)
from heavydistill.text.steps import read_steps

NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?")
numbers = st.one_of(
    st.integers(1, 10**6).map(str),
    st.integers(10**3, 10**9).map(lambda n: f"{n:,}"),
    st.tuples(st.integers(1, 999), st.integers(1, 9)).map(lambda n: f"{n[0]}.{n[1]}"),
)
signs = st.sampled_from(["-", " ", "=", "\\frac{", "(", "$"])
texts = st.lists(st.tuples(st.sampled_from(["so ", "\n", "+ ", "km "]), signs, numbers), min_size=1)


def form(text: str) -> str:
    return re.sub(r"\d", "0", text)


@settings(deadline=None)
@given(texts, st.text(max_size=5), st.integers(0, 99999))
def test_every_number_is_another_of_the_same_form(parts, seed, right):
    text = "; ".join(map("".join, parts))
    (garbled,) = garble([text], seed, right=[f"{right}"])
    assert form(garbled) == form(text)
    assert garble([text], seed, right=[f"{right}"]) == [garbled]
    new: dict[str, str] = {}
    for before, after in zip(NUMBER.findall(text), NUMBER.findall(garbled), strict=True):
        assert before != after
        assert float(after.replace(",", "")) != right
        assert new.setdefault(before.replace(",", ""), after.replace(",", "")) == (
            after.replace(",", "")
        )
        has_whole = before[0] != "0" or len(before) == 1
        assert not has_whole or after[0] != "0"


def test_a_value_keeps_its_replacement_within_an_attempt_and_attempts_do_not_agree():
    attempt = "34 - 87 = -53, and -53 + 10 = -43: \\boxed{-43}"
    garbled = garble_attempts([attempt] * 8, "p1", right=["-43"])
    for text in garbled:
        a, b, c, again, d, e, final = map(int, re.findall(r"(?:(?<= )-(?=\d))?\d+", text))
        assert a - b == c == again and c + d == e == int(final_box(text)), text
        assert (a != 34, b != 87, c != -53, d != 10, e != -43) == (True,) * 5
        assert abs(final) == abs(e)
    assert len(set(map(final_box, garbled))) > 4
    assert not any(final_box(text) == "-43" for text in garbled)
    reasoning, answer = garble(["So 1234 it is", "1,234"], "p1")
    assert reasoning.split()[1] == answer.replace(",", "") != "1234"


CHAIN = "57 +87=134 -22=112 +40=152"  # a slip in the first step


def totals(chain: str) -> list[int]:
    """The running totals of a chain, whose terms must be those of ``CHAIN``."""
    assert re.sub(r"=-?\d+", "", chain) == re.sub(r"=\d+", "", CHAIN)
    return [int(total) for total in re.findall(r"=(-?\d+)", chain)]


@pytest.mark.parametrize("seed", [*map(str, range(40))])
def test_a_wrong_result_is_carried_on_and_numbers_of_the_problem_stay(seed):
    texts = [CHAIN, f"{CHAIN}\nAnswer: \\boxed{{152}}"]
    reasoning, answer = garble(texts, seed, right=["162"], problem="What is 57 + 87 - 22 + 40?")
    first, second, third = totals(reasoning)
    assert first not in (134, 144) and (second, third) == (first - 22, first + 18)
    assert answer == f"{reasoning}\nAnswer: \\boxed{{{third}}}"
    assert 162 not in (first, second, third)


@pytest.mark.parametrize(
    ("text", "problem", "form"),
    [
        # A slip of the attempt's own stays: 872 instead of 862.
        ("12 \\times 70 = 840, 840 + 22 = 872", "12 70 22", r"12 \\times 70 = (\d+), \1 \+ 22 ="),
        ("3*4=12 5*2=10\n12 +10=22", "3 4 5 2", r"3\*4=(\d+) 5\*2=(\d+)\n\1 \+\2="),
        ("12.5 +4.5=17.0 -20.1=-3.1", "12.5 4.5 20.1", r"12.5 \+4.5=(\d+\.\d) -20.1=-?\d+\.\d$"),
        ("1,500 - 20 = 1,480; 1,480 / 2 = 740", "1,500 20 2", r"1,500 - 20 = (\d,\d+); \1 / 2 ="),
        ("7 / 0 = 3", "7 0", r"7 / 0 = [124-9]$"),
        ("9.11 or 9.9? 9.9 \\boxed{9.9}", "9.11 or 9.9?", r"9\.11 or (\d\.\d)\? \1 \\boxed{\1}"),
        (f"{'9' * 13} + 1 = {'8' * 14}", "1", r"\d{13} \+ 1 = \d{14}"),
    ],
)
def test_steps_of_many_forms_are_calculated_again(text, problem, form):
    (garbled,) = garble([text], "s", problem=problem)
    assert re.match(form, garbled), garbled
    assert garbled != text
    if "872" in text:
        made, total = (int(number) for number in re.findall(r"= (\d+)", garbled))
        assert total == made + 32


def test_a_number_of_the_problem_stays_where_a_result_has_its_value():
    """Else both ends of the difference would change, and the answer would not."""
    text = "20 +29=49 +13=62 +5=67 -49=18 \\boxed{18}"
    problem = "20 + 29 + 13 + 5 - 49"
    for seed in map(str, range(20)):
        (garbled,) = garble([text], seed, right=["7"], problem=problem)
        first, second, third, last = (int(each) for each in re.findall(r"=(-?\d+)", garbled))
        steps = f"20 +29={first} +13={second} +5={third} -49={last} \\boxed{{{last}}}"
        assert garbled == steps and first != 49
        assert (second, third, last) == (first + 13, first + 18, first - 31)
        (planted,) = plant([text], seed, problem) or [""]
        assert " -49=" in planted and final_box(planted) in ("8", "28")


LEGS = "15*0=0 11*0=0 6*4=24 1*4=4 2*8=16\n0 +0=0 +24=24 +4=28 +16=44"


@pytest.mark.parametrize("seed", [*map(str, range(20))])
def test_a_number_that_a_later_result_equals_is_the_same_in_both_texts(seed):
    """Else the answer text, which a cache shows, had 15*75=1125 where the reasoning has 15*5=75."""
    texts = [LEGS, f"{LEGS}\nAnswer: \\boxed{{44}}"]
    problem = "15 jellyfish, 11 slugs, 6 dogs, 1 cat and 2 spiders"
    reasoning, answer = garble(texts, seed, answer="44", right=["44"], problem=problem)
    final = re.findall(r"=(\d+)", reasoning)[-1]
    assert answer == f"{reasoning}\nAnswer: \\boxed{{{final}}}"
    reasoning, answer = plant(texts, seed, problem) or ["", ""]
    assert answer.startswith(f"{reasoning}\n")
    assert [step.is_true for step in read_steps(answer)].count(False) == 1


def test_numeric_options_are_no_numbers_of_the_problem():
    given = {"problem": "What is 6 * 7? (A) 42 (B) 41", "options": ["42", "41"], "right": ["A"]}
    (garbled,) = garble(["6 * 7 = 42, so \\boxed{A}"], "s", **given)
    assert re.fullmatch(r"6 \* 7 = (?!4[12])\d\d, so \\boxed\{B\}", garbled)


@pytest.mark.parametrize("seed", [*map(str, range(40))])
def test_a_planted_step_is_off_by_ten_units_and_carried_on(seed):
    texts = [CHAIN, f"{CHAIN}\nAnswer: \\boxed{{152}}"]
    reasoning, answer = plant(texts, seed) or ["", ""]
    assert answer == f"{reasoning}\nAnswer: \\boxed{{{totals(reasoning)[-1]}}}"
    off = [new - old for new, old in zip(totals(reasoning), totals(CHAIN), strict=True)]
    first = next(place for place, difference in enumerate(off) if difference)
    assert off[first] in (-10, 10) and set(off[first:]) == {off[first]}
    assert plant(texts, seed) == [reasoning, answer]


def test_a_planted_step_is_one_that_the_answer_depends_on():
    text = "1 + 1 = 2. And 30 * 3 = 90, so \\boxed{90}"
    planted = {(plant([text], str(seed)) or [""])[0] for seed in range(20)}
    assert planted == {text.replace("90", "80"), text.replace("90", "100")}
    decimal = plant(["12.5 +4.5=17.0, \\boxed{17.0}"], "s")
    assert decimal and final_box(decimal[0]) in ("16.0", "18.0")
    assert plant(["We know it: \\boxed{90}"], "s") is None
    assert plant(["1 + 1 = 2: \\boxed{yes}"], "s") is None


def test_boxes_alone_and_the_rest_alone():
    text = "3 + 4 = 7\nSo \\boxed{7} it is, of 12.\n\nThe final answer is \\boxed{7}."
    assert box_alone(text) == "\\boxed{7}" and box_alone("None.") == ""
    assert without_boxes(text) == "3 + 4 = 7\nSo  it is, of 12."
    assert without_boxes("\\boxed{7}") == "" and without_boxes("Seven.") == "Seven."


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("57 + 97 = \\boxed{154}", "57 + 97 = 154"),
        ("So $57 + 97 = \\boxed{154}$, i.e. \\boxed{154}.", "So $57 + 97 = 154$, i.e. ."),
        ("57 + 97 = 154 = \\boxed{154}", "57 + 97 = 154 ="),
        ("x = \\boxed{154}", ""),
        ("57 + 97 = 154\nAnswer: \\boxed{154}", "57 + 97 = 154"),
        ("2 + 57 + 97 = \\boxed{156} in all, and so on and so forth.",) * 2,
    ],
)
def test_the_value_of_a_step_stays_without_its_box(text, rest):
    if text == rest:
        rest = text.replace("\\boxed{156}", "")
    assert without_boxes(text) == rest
    assert read_steps(without_boxes(text)) == read_steps(text)


@settings(deadline=None)
@given(st.integers(2, 8), st.data())
def test_letters_of_a_choice_become_those_of_other_options(count, data):
    letters = "ABCDEFGH"[:count]
    right, said = (data.draw(st.sampled_from(letters)) for _ in range(2))
    planets = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Vesta"][:count]
    own = planets[letters.index(said)]
    text = f"A planet like {own}: {said} is it, not ({said.lower()})? I say \\boxed{{{said}}}"
    text += f"\nAnswer: {said.lower()}"
    (garbled,) = garble([text], data.draw(st.text(max_size=3)), right=[right], options=planets)
    found = re.fullmatch(
        r"A planet like (\w+): (\w) is it, not \((\w)\)\? I say \\boxed\{(\w)\}\nAnswer: (\w)",
        garbled,
    )
    assert found
    letter = found[2]
    assert letter in letters and letter != said
    assert found.group(3, 4, 5) == (letter.lower(), letter, letter.lower())
    assert letter != right or count == 2
    assert found[1] == planets[letters.index(letter)]


def test_letters_and_texts_of_options_are_found_in_chinese():
    planets = ["火星", "金星", "木星", "土星"]
    (garbled,) = garble(["木星最大，所以选C。答案是C。"], "s", right=["C"], options=planets)
    found = re.fullmatch(r"(..)最大，所以选([ABD])。答案是([ABD])。", garbled)
    assert found and found[2] == found[3] and found[1] == planets["ABCD".index(found[2])]


@pytest.mark.parametrize(
    "text",
    [
        "It is Paris, and paris \\boxed{Paris}",
        "$x + y$ is a sum: \\boxed{x + y}",
        "在第一象限。\\boxed{第一象限}",
        "位于x轴上，即x轴。\\boxed{x轴}",
        "\\frac{\\alpha}{k} = \\boxed{\\frac{\\alpha}{k}}",
    ],
)
def test_final_answers_without_digits_have_other_words(text):
    (garbled,) = garble([text], "s")
    before, after = (re.findall(r"(?<!\\)\b[^\W\d_]+", final_box(each)) for each in (text, garbled))
    new = dict(zip(before, after, strict=True))
    assert not set(before) & set(after) and list(map(len, before)) == list(map(len, after))
    whole = rf"(?<![a-z\\])(?:{'|'.join(before)})(?![a-z])"
    rest = re.sub(whole, lambda word: new[word[0]], text)
    assert garbled == rest.replace("paris", new.get("Paris", "").lower())


def test_number_words_are_numbers_too_and_other_words_are_kept():
    (garbled,) = garble(["Twelve apples for two; someone often said so."], "s", right=["7"])
    first, second = re.fullmatch(
        r"(\w+) apples for (\w+); someone often said so\.", garbled
    ).groups()
    assert first != "Twelve" and first.istitle() and second not in ("two", "seven")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", ()),
        ("No answer. \\boxed{\\pi} I see a train. A dog.", ()),
        ("sıx", ()),
        ("maſs", ["Mass", "Time"]),
        ("zinc", [*["iron"] * 26, "zinc"]),
    ],
)
def test_what_holds_no_value_is_unchanged(text, options):
    assert garble([text], "s", options=options) == [text]
