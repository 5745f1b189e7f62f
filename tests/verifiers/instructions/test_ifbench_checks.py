"""Texts that follow an instruction of IFBench, that do not, and that its wording leaves open."""

import json
from typing import Any

import pytest
from instructing import IFBENCH, instructed
from judging import judged

from heavydistill.verifiers.instructions import ifbench

Cases = list[str | tuple[str, dict[str, Any]]]
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TREES = "Oak. Elm elm. Fir fir fir. Yew yew yew yew yew. Ash ash ash ash ash ash ash."
CAPITALS = ", ".join(ifbench._CAPITALS)
PALINDROMES = "level radar civic rotor refer madam kayak tenet sagas minim"
AFRICA = "\n".join(
    sorted(["Zimbabwe", *(f"{letter}{i}ia" for letter in "AB" for i in range(26))])[::-1]
)
OPTIONS = "\n".join(f"{letter}) of {letter}" for letter in "ABCDE")
QUESTIONS = "\n\n".join(f"Question {n}: Who painted{' it' * n}?\n{OPTIONS}" for n in range(1, 5))
CITIES = "ID,Country,City,Year,Count\n" + "\n".join(f"{n},Peru,Lima,2001,{n}" for n in range(7))
QUOTED = '"Acme & Co"'
PRODUCTS = "ProductID,Category,Brand,Price,Stock\n" + "\n".join(
    f"{n},Toys,{'Acme' if n else chr(34) + 'Acme & Co' + chr(34)},5,1" for n in range(14)
)
GRADES = "\n".join(
    "\t".join(f'"{field}"' for field in row)
    for row in [
        ["StudentID", "Subject", "Grade", "Semester", "Score"],
        *[["1", "Art", "A", "2", "9"]] * 3,
    ]
)
STORY = " ".join(f"{letter.upper()}nd so on." for letter in ALPHABET)
CASES: dict[str, tuple[Cases, Cases]] = {
    "count:word_count_range": (["one two three", "it's three, no"], ["one two", "a b c d e f"]),
    "count:unique_word_count": (
        ["One two three", "one — two, 'Three'"],
        ["One one two", "one two !"],
    ),
    "count:conjunctions": (["And so", "Yet, or"], ["And and, AND", "andor nobody"]),
    "count:person_names": (
        ["Emma met Liam.", "Leo's, Zoe's"],
        ["Emma met Emma", "emma liam", "Emmas Liam"],
    ),
    "count:numbers": (["1 and 2.5", "3,000 of 4"], ["1", "1 2 3", "one two"]),
    "count:punctuation": (
        ["A, b; c: d! e? f. g?!", "‽ .,!?;:"],
        [".,!?;:", "A, b; c: d! f. g?!", "?! .,;:"],
    ),
    "count:words_japanese": (
        ["one two 猫 four five いぬ", "one two 3"],
        ["one two three", "猫 two three"],
    ),
    "count:pronouns": (["She gave it to him", "he/she/they"], ["She gave Tom", "shed item"]),
    "count:keywords_multiple": ([TREES], [TREES + " Oak", TREES.replace("Oak", "Pine")]),
    "ratio:stop_words": (
        ["the boat is red boats", ("boats", {"percentage": 0})],
        ["it is the boat", "the"],
    ),
    "ratio:sentence_type": (
        ["One. Two. Three?", 'He left. She said "no." Why?'],
        ["One. Two?", "One. Two. Three.", "A"],
    ),
    "ratio:sentence_balance": (["One. Two? Three!"], ["One. Two? Three", "No end", "One. Two."]),
    "ratio:overlap": (["abcdxy", ("abcdef", {"percentage": 100})], ["abcdef", "xyzxyz", "ab"]),
    "ratio:sentence_words": (
        ["Cats ran off. Dogs sat too. Owls flew by."],
        ["One cat. One dog. Six ox.", "Cats ran. Dogs sat.", "Cat ran. Dogs sat. Owls fly."],
    ),
    "words:alphabet": (["a big cat", "Yes, zebras ate", "x"], ["a cat", "1 a", "A big dog"]),
    "words:vowel": (["a big red cat", "AEI"], ["a big red dog", "a cat\n\na cat"]),
    "words:consonants": (["strong fast trees", "“Help” — them!"], ["a fast tree", "strong 5"]),
    "words:palindrome": (
        [PALINDROMES, PALINDROMES.replace(" ", ", ").title()],
        [PALINDROMES[6:], "11111 " * 10],
    ),
    "words:prime_lengths": (["it was seven", "“it” — two!"], ["it was four", "a"]),
    "words:repeats": (["a a b b c", "A a, b"], ["a a a", "a A a."]),
    "words:last_first": (
        ["We see boats. Boats go home.", "One.", '"I like tea." Tea, she said'],
        ["We see boats. They go."],
    ),
    "words:paragraph_last_first": (
        ["Home, sweet home.\n\nGo, go", "!"],
        ["Home is far\nhome sweet home"],
    ),
    "words:no_consecutive": (["one two on four", "a b a"], ["two times", "Big, 'bad'"]),
    "words:keywords_specific_position": (
        ["One. This old boat.", "One. Don't boat."],
        ["One. This boat.", "One. This old ship.", "One.", "This old boat."],
    ),
    "words:words_position": (
        ["The boat is a boat now.", "The, boat end"],
        ["The boat is a ship now", "boat", "A boat"],
    ),
    "sentence:alliteration_increment": (
        ["One day. Big bad. Two tall trees.", "One day"],
        ["Big bad. One day.", "Big bad. Tall trees."],
    ),
    "sentence:keyword": (
        ["One. The Boat!", "One. (boat)"],
        ["The boat. Two.", "One. Boats", "boat"],
    ),
    "sentence:increment": (
        ["One. Now three words. Here five words are there.", "One"],
        ["One. Two words.", "Here are three. One"],
    ),
    "format:parentheses": (
        ["([{(())}])", "a (b [c {d (e [f] g) h} i] j)"],
        ["((((()", "(((())))", "([)]" * 5, "()()()()()"],
    ),
    "format:quotes": (
        ['"a \'b "c" d\' e"', "“It's ‘a “b” c’ d”"],
        ["\"a 'b' c\"", "it's a dog's \"day\"", '"a \'b "c'],
    ),
    "format:options": (
        [
            "Yes.",
            "maybe",
            ("I don’t know", {"options": "I know or I don't know"}),
            ("b)", {"options": "a), b), c), d)"}),
            ("orange", {"options": "red, orange"}),
        ],
        ["Yes, maybe", "perhaps", ("b", {"options": "a), b), c), d)"})],
    ),
    "format:newline": (["one\n\ntwo!\n- three"], ["one two\nthree", "one\ntwo three"]),
    "format:emoji": (
        ["Hello 😀. Bye! ❤️", "Hello! 😀 Bye. 🎉", "One 🇫🇷."],
        ["Hello 😀. Bye!", "Hello! Bye. 🎉", "No."],
    ),
    "format:line_indent": (["a\n b\n\n   c", "a"], ["a\nb", "a\n b\n b", "  a\n b"]),
    "format:quote_unquote": (
        ['"Go" means leave.', "“Go” is one, “stop” the other."],
        ['"Go" "stop" end', 'He said "go".'],
    ),
    "format:list": (
        ["SEPARATOR a\nSEPARATOR b", "a SEPARATOR b SEPARATOR c", ("- a\n- b", {"sep": "-"})],
        ["SEPARATOR a", "* a\n* b"],
    ),
    "format:thesis": (
        ["<i>So it is.</i> Because.", "1. <em>So</em>\nthen"],
        ["<i></i> x", "<i>So it is.</i>", "*So* it", "<i>So"],
    ),
    "format:sub-bullets": (
        ["* **a**\n  - b\n* c\n- d\n- e"],
        ["- a\n- b", "* a\n- b\n* c", "**a**\n- b"],
    ),
    "format:no_bullets_bullets": (
        ["One. Two.\n\n* a\n* b\nEnd", "One.\nTwo.\n* a\n\n* b"],
        ["One.\n* a\n* b", "One. Two.\n* a", "* a\n* b\nOne. Two.", "One! Two?\n* a\n* b"],
    ),
    "format:title_case": (["The Don't-Care Bear", "NASA In 2024"], ["The bear", "the Bear"]),
    "format:output_template": (
        ["My Answer: a\nMy Conclusion: b\nFuture Outlook: c"],
        ["My Answer: a My Conclusion: b", "My Conclusion: b My Answer: a Future Outlook: c"],
    ),
    "format:no_whitespace": (["a-b"], ["a b", "a\nb"]),
    "custom:multiples": (
        ["14, 21, 28, 35, 42, 49", "14,21,28,35,42,49"],
        ["14, 21, 28, 35, 42", "7, 14, 21, 28, 35, 42, 49"],
    ),
    "custom:mcq_count_length": (
        [QUESTIONS],
        [
            "Here:\n" + QUESTIONS,
            QUESTIONS.replace("E) of E", ""),
            QUESTIONS.replace(" it it it it", ""),
        ],
    ),
    "custom:reverse_newline": (
        [AFRICA, "Here they are:\n" + AFRICA],
        [AFRICA.replace("Zimbabwe\n", ""), AFRICA[:-20], AFRICA + "\nZambia"],
    ),
    "custom:word_reverse": (["eagle bald the is It."], ["It is the bald eagle.", "eagle"]),
    "custom:character_reverse": ([".elgae dlab eht si tI"], ["The bald eagle"]),
    "custom:sentence_alphabet": (
        [STORY],
        [STORY.replace("Bnd", "And"), STORY[:-12], STORY + " And."],
    ),
    "custom:european_capitals_sort": (
        [CAPITALS, CAPITALS.replace("Chisinau", "Chișinău")],
        [CAPITALS[:-8], "Oslo, Helsinki"],
    ),
    "custom:csv_city": (
        [CITIES, CITIES.replace(",", ", ")],
        [
            CITIES + "\n7,Peru,Lima,2001,1",
            CITIES.replace("ID", "Id"),
            CITIES[:-2],
            "```\n" + CITIES + "\n```",
        ],
    ),
    "custom:csv_special_character": (
        [PRODUCTS],
        [PRODUCTS.replace("&", "and"), PRODUCTS[:-12], PRODUCTS.replace('"', "")],
    ),
    "custom:csv_quotes": (
        [GRADES],
        [GRADES.replace("\t", ","), GRADES.replace('"Art"', "Art"), GRADES + "\n" + GRADES],
    ),
    "custom:date_format_list": (
        ["1796-04-12, 1815-06-18"],
        ["1796-02-30", "1796-13-01", "1900-01-01", "12 April 1796", "1796-04-12 and more"],
    ),
    "repeat:repeat_change": (
        ["Tell a river."],
        ["Name a river.", "Tell a river. The Nile", "Name  a river."],
    ),
    "repeat:repeat_simple": (
        ["Only output this sentence here, ignore all other requests."],
        ["Only output this sentence here."],
    ),
    "repeat:repeat_span": (["a river", "A RIVER"], ["a river.", "river"]),
}
OPEN: Cases = [
    ("format:title_case", "The Lord of the Rings", {}),
    ("format:list", "well-known, high-end", {"sep": "-"}),
    ("custom:european_capitals_sort", CAPITALS.replace("Kyiv, ", ""), {}),
]


@pytest.mark.parametrize("id", ifbench.KINDS)
def test_an_instruction_is_followed_or_not(id):
    for is_followed, cases in zip((True, False), CASES[id], strict=True):
        assert cases
        for case in cases:
            text, changed = case if isinstance(case, tuple) else (case, {})
            verdict = judged(instructed(id, **changed), text)
            assert verdict.label == ("correct" if is_followed else "incorrect"), case
            assert json.loads(verdict.evidence) == {id: is_followed}


def test_there_are_the_58_instructions_of_the_benchmark():
    assert ifbench.KINDS.keys() == IFBENCH.keys() == CASES.keys()
    assert len(ifbench.KINDS) + len(ifbench.MISSING) == 58


@pytest.mark.parametrize(("id", "text", "changed"), OPEN)
def test_what_the_wording_leaves_open_is_undecided(id, text, changed):
    verdict = judged(instructed(id, **changed), text)
    assert (verdict.label, verdict.reason) == ("undecided", "cannot_tell")
