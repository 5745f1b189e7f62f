from __future__ import annotations

import pytest

from heavydistill.verifiers.instructions import checks


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0), ("***", 0), ("no end", 1), ("One.", 1), ("One. Two.", 2),
        ("A heading\n\nThen one sentence.", 1), ("It costs 3.50 at example.com today.", 1),
        ("Mr. Smith met Mrs. Jones vs. Dr. No.", 1), ("J. R. Smith left.", 1),
        ("So did I. They too.", 2), ("He said no. She left.", 2), ("See no. 5 on p. 7.", 1),
        ("It ends in the U.S. They left.", 2), ("The U.S. army left.", 1),
        ("Pens, ink, etc. are here.", 1), ("Well... maybe. Well... No!", 3),
        ("What?! Really!!!", 2), ('"Stop!" she said. "No."', 2),
        ('He said "stop." Then he left.', 2), ("**Bold one.** Next one.", 2),
        ("1. One thing.\n2. Another thing.", 4), ("今天很好。明天也好！", 2),
        ("यह एक है। यह दो है।", 2),
    ],
)  # fmt: skip
def test_sentences_are_counted(text, count):
    assert checks.sentences(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0), ("one two", 2), ("don't, well-known", 4), ("snake_case 3.5", 3), ("... -- !", 0),
    ],
)  # fmt: skip
def test_words_are_counted(text, count):
    assert checks.words(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("NASA's BIG day", 2), ("I'm A fan", 2), ("DON'T STOP", 2), ("the U.S. and the EU", 2),
        ("WELL,DONE--NOW", 3), ("42 ! ... 'x'", 0),
    ],
)  # fmt: skip
def test_words_in_capitals_are_counted(text, count):
    assert checks.capital_words(text) == count


@pytest.mark.parametrize(
    ("text", "count"), [("---", 1), ("a * b", 0), ("*\n*", 2), ("\t- a", 1), ("• a", 0)]
)
def test_bullets_are_lines(text, count):
    assert checks.bullets(text) == count
