"""What stands in garbled attempts: the same form, other values, and nothing of a right answer."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.experiments.perturbation import final_box, garble, garble_attempts

NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?")
numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.integers(10**3, 10**9).map(lambda n: f"{n:,}"),
    st.tuples(st.integers(0, 999), st.integers(0, 99)).map(lambda n: f"{n[0]}.{n[1]}"),
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
        a, b, c, again, d, e, final = NUMBER.findall(text)
        assert c == again and e == final == final_box(text).strip("-")
        assert len({a, b, c, d, e}) == 5
    assert len(set(map(final_box, garbled))) > 4
    assert "-43" not in "".join(garbled)
    reasoning, answer = garble(["So 1234 it is", "1,234"], "p1")
    assert reasoning.split()[1] == answer.replace(",", "") != "1234"


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
