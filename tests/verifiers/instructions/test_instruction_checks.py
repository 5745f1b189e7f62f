import json
from typing import Any

import pytest
from instructing import IFEVAL, instructed
from judging import judged

from heavydistill.verifiers.instructions.checks import KINDS
from heavydistill.verifiers.instructions.counts import (
    bullets,
    capital_words,
    sentences,
    split_sentences,
    words,
)

ENGLISH = "the small boat went down the river and nobody in the village ever saw it again"
GERMAN = "Das kleine Boot fuhr den Fluss hinab, und niemand im Dorf hat es jemals wieder gesehen."
FRENCH = "Le petit chat dort sur le canapé pendant que les enfants jouent dans le jardin du voisin."

# Texts that follow an instruction and that do not, with arguments other than those of ``IFEVAL``.
Cases = list[str | tuple[str, dict[str, Any]]]
CASES: dict[str, tuple[Cases, Cases]] = {
    "keywords:existence": (
        ["A boat on the river", "A BOAT on the River", "Boathouses by the riverside"],
        ["A boat on the lake", ("price: 5.00", {"keywords": ["5+00"]}),
         ("axb", {"keywords": ["a.b"]})],
    ),
    "keywords:frequency": (
        ["Tree by tree", "Streets and trees", ("One tree", {"relation": "less than"}),
         ("(a) (a) a", {"keyword": "(a)"})],
        ["One tree", ("Tree by tree", {"relation": "less than"})],
    ),
    "keywords:forbidden_words": (
        ["Rider of the canyon"],
        ["You CAN walk", "Go, ride!", ("I write C++ daily", {"forbidden_words": ["C++"]}),
         ("这里有一只猫在睡", {"forbidden_words": ["猫"]}),
         ("a # b", {"forbidden_words": ["#"]})],
    ),
    "keywords:letter_frequency": (
        [("Zigzag", {"let_frequency": 3}), ("Zig zag zoo", {"let_relation": "at least"})],
        ["Zig zag zoo", ("#one #two #three", {"letter": "#"})],
    ),
    "language:response_language": ([GERMAN], [FRENCH, (GERMAN, {"language": "zh"})]),
    "length_constraints:number_sentences": (
        ["One. Two! Three?"],
        ["One. Two, three", "Mr. J. Doe met Dr. Roe, e.g. today."],
    ),
    "length_constraints:number_words": (
        ["three short words", ("here are four words", {"relation": "at least"})],
        ["here are four words", "don't go-on"],
    ),
    "length_constraints:number_paragraphs": (
        ["one\n\n***\n\ntwo", "***\none\n***\ntwo\n***"],
        ["one\n\ntwo", "one\n***\n***\ntwo"],
    ),
    "length_constraints:nth_paragraph_first_word": (
        ["a b\n\nWeekend c\n\nd", 'a\n\n"Weekend," he\n\nd', "a\n\n\n\nweekend\n\nb"],
        ["a\n\nweekends c\n\nd", "a\n\nb\n\nweekend", "a\n\nweekend", "a\n\nweekend\n\nb\n\nc"],
    ),
    "detectable_content:number_placeholders": (
        ["[name] and [address]"],
        ["[name] and [address", "[name\nand] [age]"],
    ),
    "detectable_content:postscript": (
        ["Bye\n\nP.S. more", "Bye\np. s. more",
         ("Bye\nP.P.S more", {"postscript_marker": "P.P.S"}),
         ("Bye\nNota: x", {"postscript_marker": "NOTA:"})],
        ["Bye\nPS more", "One more step. S. Roe",
         ("Bye\nP.S. more", {"postscript_marker": "P.P.S"})],
    ),
    "detectable_format:number_bullet_lists": (
        ["Two:\n* one\n  * two", "- one\n- two"],
        ["* one\n* two\n* three", "**one**\n* two"],
    ),
    "detectable_format:constrained_response": (
        ["My answer is maybe.", "Well. My answer is no. Sorry"],
        ["my answer is no", "My answer is no. My answer is yes."],
    ),
    "detectable_format:number_highlighted_sections": (
        ["*one* and *two*", "**one** and *two*"],
        ["*one*", "* * and *one*", "*one\ntwo* *three*"],
    ),
    "detectable_format:multiple_sections": (
        ["Section 1\na\nSection 2\nb", ("a+ 1\na+ 2", {"section_spliter": "a+"})],
        ["Section 1\na\nSection two", "SECTION 1\na\nSECTION 2"],
    ),
    "detectable_format:json_format": (
        ['{"a": [1, 2.5, null]}', '```json\n{"a": 1}\n```', "```\n[]\n```",
         '{"a": ' + "9" * 5000 + "}"],
        ['Here it is:\n{"a": 1}', "{'a': 1}", '{"a": NaN}'],
    ),
    "detectable_format:title": (
        ["<<On rivers>>\nA river", "<<>> <<On rivers>>"],
        ["<On rivers>\nA river", "<< >>", "<<<>>>", "<<On\nrivers>>"],
    ),
    "combination:two_responses": (
        ["one\n******\ntwo", "one\n******\ntwo\n******"],
        ["one\n******\none", "one\n******\ntwo\n******\nthree", "one\n******\n******\ntwo",
         "one"],
    ),
    "combination:repeat_prompt": (
        ["Name a river.\n\nThe Rhine", "NAME A RIVER. The Rhine",
         ("a\nb c", {"prompt_to_repeat": "a\r\nb"})],
        ["Sure: Name a river."],
    ),
    "startend:end_checker": (["Bye. That is all.", '"Bye. THAT IS ALL."'], ["That is all. Bye"]),
    "startend:quotation": (['"Hello"'], ['"Hello', '"', "“Hello”"]),
    "change_case:capital_word_frequency": (
        ["One LOUD word", "LIFE'S short"],
        ["TWO LOUD words", "**A HIGH-END** car"],
    ),
    "change_case:english_capital": ([ENGLISH.upper()], [ENGLISH.capitalize(), FRENCH.upper()]),
    "change_case:english_lowercase": ([ENGLISH], [ENGLISH.capitalize(), FRENCH.lower()]),
    "punctuation:no_comma": (["no comma; none"], ["one, comma", "一，二"]),
}  # fmt: skip


@pytest.mark.parametrize("id", KINDS)
def test_an_instruction_is_followed_or_not(id):
    for is_followed, cases in zip((True, False), CASES[id], strict=True):
        assert cases
        for case in cases:
            text, changed = case if isinstance(case, tuple) else (case, {})
            verdict = judged(instructed(id, **changed), text)
            assert verdict.label == ("correct" if is_followed else "incorrect"), case
            assert json.loads(verdict.evidence) == {id: is_followed}


def test_there_are_the_25_instructions_of_the_benchmark():
    assert len(KINDS) == 25 and KINDS.keys() == IFEVAL.keys() == CASES.keys()


def test_what_no_rule_can_tell_is_neither_followed_nor_not():
    nested = judged(instructed("detectable_format:json_format"), "[" * 100_000 + "]" * 100_000)
    assert (nested.label, nested.reason) == ("undecided", "cannot_tell")
    assert json.loads(nested.evidence) == {"detectable_format:json_format": None}
    assert judged(instructed("language:response_language"), "42 + 1").label == "undecided"


COUNTED = {
    sentences: [
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
    words: [
        ("", 0), ("one two", 2), ("don't, well-known", 4), ("snake_case 3.5", 3), ("... -- !", 0),
    ],
    capital_words: [
        ("NASA's BIG day", 2), ("I'm A fan", 2), ("DON'T STOP", 2), ("the U.S. and the EU", 2),
        ("WELL,DONE--NOW", 3), ("42 ! ... 'x'", 0),
    ],
    bullets: [("---", 1), ("a * b", 0), ("*\n*", 2), ("\t- a", 1), ("• a", 0)],
}  # fmt: skip


@pytest.mark.parametrize("count", COUNTED)
def test_what_is_counted_in_a_text(count):
    assert [(text, count(text)) for text, _ in COUNTED[count]] == COUNTED[count]


def test_sentences_keep_their_blanks_and_the_marks_around_them():
    text = '** One  two. "Three."\n\n- Four!  :-)  ***'
    assert split_sentences(text) == ("** One  two.", '"Three."', "- Four!  :-)  ***")
