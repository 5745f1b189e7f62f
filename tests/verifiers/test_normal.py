from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_tables import spellings

from heavydistill.verifiers.normal import normal_form, plain_decimal

fractions = st.fractions(max_denominator=10**6) | st.integers(-(10**30), 10**30).map(Fraction)


@given(fractions)
def test_all_spellings_of_a_number_have_one_normal_form_that_is_read_as_it(value):
    forms = {normal_form(text) for text in spellings(value)}
    assert len(forms) == 1
    form = forms.pop()
    assert form.value == value
    assert normal_form(form.text) == form


@given(fractions, fractions)
def test_normal_texts_are_equal_if_and_only_if_the_numbers_are(a, b):
    same = normal_form(spellings(a)[0]).text == normal_form(spellings(b)[1]).text
    assert same == (a == b)


@given(st.text(alphabet="0123456789.,/ -+e{}()$\\½²frac\u2009", max_size=14))
def test_what_is_no_number_never_has_the_text_of_one(text):
    form = normal_form(text)
    if form.value is None:
        again = normal_form(form.text)
        assert again.value is None or again.text != form.text


def test_a_number_of_any_length_has_a_normal_form():
    for digits in ("9" * 5000, "1/" + "9" * 5000, "⑳" * 2500):
        assert normal_form(digits).value is None
    assert normal_form("9" * 1000 + "e999").value is not None


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        *(("1/3", "1/3"), ("1e-3", "0.001"), ("-0.50", "-0.5"), ("1e3", "1000")),
        ("1e-20", f"1/{10**20}"),
    ],
)
def test_numbers_are_spelled_as_short_decimals_where_they_end(text, spelled):
    assert normal_form(text).text == spelled


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7.140", "7.14"), ("1{,}234", "1234"),
        *((text, None) for text in ("2/4", "1e3", "007", "x")),
    ],
)  # fmt: skip
def test_plain_decimal_leaves_alone_what_may_not_be_meant_as_a_number(text, number):
    assert plain_decimal(text) == number
