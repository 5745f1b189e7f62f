"""Texts from outside, as they may be printed."""

from __future__ import annotations

import pytest

from heavydistill.errors import CONTROL, StoppedError, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://evil\x1b\\link", "alink"),
        ("a\x9d0;one\x9d0;two\x9cb", "a0;oneb"),
        ("a\x1b]0;never ended", "a]0;never ended"),
        ("\x9b2Ja\x85b\x7f", "ab"),
        ("a\rb\x08c", "abc"),
        ("\u202egnp.exe\u2066x\u2069\u200f", "gnp.exex"),
        ("half \ud83d", "half ?"),
        ("line\n\ttab, \u00e9, \u4e2d, \U0001f600", "line\n\ttab, \u00e9, \u4e2d, \U0001f600"),
    ],
)
def test_nothing_is_left_that_acts_on_a_terminal(text, shown):
    assert printable(text) == shown
    assert not CONTROL.search(printable(text))


def test_what_a_message_quotes_is_printable():
    error = StoppedError("No server answers: \x1b[31mEVIL\x1b]0;title\x07 ", "Wait\u202e.")
    assert str(error) == "No server answers: EVIL . Wait."
    assert (error.what, error.fix) == ("No server answers: EVIL ", "Wait.")
