"""Steps of arithmetic in texts: which are read, which are none, and the time of hostile texts."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.text.steps import first_false_step, number, read_steps


def told(text: str) -> list[str]:
    """Each step as text, a false one with a star."""
    return [
        f"{step.operands[0]}{step.operation}{step.operands[1]}={step.value}"
        + "*" * (not step.is_true)
        for step in read_steps(text)
    ]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("57 +87=144 -22=122", ["57+87=144", "144-22=122"]),
        ("4*3=12 5*2=11\n12 +11=23\n\\boxed{23}", ["3*4=12", "2*5=11*", "11+12=23"]),
        ("-5 +3=-2 -4=-6", ["-5+3=-2", "-2-4=-6"]),
        ("1.5 +2.5=4.0, and 1,000 + 5 = 1,005.", ["3/2+5/2=4", "5+1000=1005"]),
        ("$17 \\times 25 = \\boxed{425}$", ["17*25=425"]),
        (
            "12 ÷ 5 = 2.4; 10 / 3 = 3.33; 10 / 3 = 3.34",
            ["12/5=12/5", "10/3=333/100", "10/3=167/50*"],
        ),
        ("20.80+9.90=30.700000000000003", ["99/10+104/5=30700000000000003/1000000000000000"]),
        ("- 17 + 25 = 42\n* 42 + (-3) = 39", ["17+25=42", "-3+42=39"]),
        ("**Step 1:** 3 + 4 = 7\n2) 7 − 3 = 4", ["3+4=7", "7-3=4"]),
        ("Attempt 2: 57 + 87 = 134, wrong\n57 + 87 = 144", ["57+87=144"]),
        ("2 + 3 = 6 - 1 = 5", ["2+3=6*", "6-1=5"]),
        *(
            (text, [])
            for text in ("2 * 5 + 3 = 13", "2 + 3 + 4 = 9", "2 + 3 = 6 - 1", "2^3 + 4 = 12")
        ),
        *(
            (text, [])
            for text in (
                "x - 5 + 3 = 1",
                "(2+3) * 5 + 3 = 28",
                "180(5-2) = 540",
                "3 + 4 = 2x",
                "5 / 0 = 3",
            )
        ),
        *((text, []) for text in ("3 + 4 = 50%", "1.2.3 + 4 = 5", "3 + 4 = 7/2", "", "no step")),
    ],
)
def test_steps_are_read_and_what_is_none_is_passed_over(text, steps):
    assert told(text) == steps


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("57 +87=134 -22=111, 1 + 1 = 3", "57 + 87 = 134"),
        (r"4*3=12, $17 \times 25 = \boxed{1,425}$", "17 * 25 = 1,425"),
        ("2 + 3 = 5", ""),
        ("no step", ""),
    ],
)
def test_the_first_false_step_is_told_as_it_is_written(text, step):
    assert first_false_step(text) == step


NUMBERS = st.integers(-999, 999)


@given(
    terms=st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 99)), min_size=1), first=NUMBERS
)
def test_a_chain_is_read_as_its_steps(first, terms):
    total, chain = first, str(first)
    for sign, term in terms:
        total += term if sign == "+" else -term
        chain += f" {sign}{term}={total}"
    steps = read_steps(chain)
    assert len(steps) == len(terms) and all(step.is_true for step in steps)
    assert steps[-1].value == total == number(str(total))


def test_a_number_is_the_whole_text():
    assert number("-1,024.5") == Fraction(-2049, 2)
    assert [number(text) for text in ("", "x", "12 cm", "1/2", "1" * 30)] == [None] * 5


@pytest.mark.parametrize(
    "text",
    [
        *("1+" * 50_000, "1 + 1 = " * 12_000, "1" * 100_000, "1,111" * 20_000, " " * 100_000),
        *("1 + (" * 20_000, "attempt " * 12_000, "\n" * 100_000, "- \n" * 33_000, "1.1" * 33_000),
        *("1 + 1 =" + " " * 100_000, "1 +1=1 " * 14_000, "*" * 100_000, "$1" * 50_000),
    ],
)
def test_a_hostile_text_takes_no_longer_than_its_length(text):
    began = time.process_time()
    read_steps(text)
    assert time.process_time() - began < 2
