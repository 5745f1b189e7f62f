"""Texts that follow an instruction of IFEval or IFBench, that do not, and that leave it open."""

import json
from typing import Any

import pytest
from instructing import ALL, instructed
from judging import judged

from heavydistill.verifiers.instructions import ifbench
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
    f"{n},Toys,{'Acme' if n else QUOTED},5,1" for n in range(14)
)
GRADES = "\n".join(
    "\t".join(f'"{field}"' for field in row)
    for row in [
        ["StudentID", "Subject", "Grade", "Semester", "Score"],
        *[["1", "Art", "A", "2", "9"]] * 3,
    ]
)
STORY = " ".join(f"{letter.upper()}nd so on." for letter in ALPHABET)
# Texts that follow an instruction and that do not, with arguments other than those of ``ALL``.
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
    # IFBench

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
        ["Yes.", "maybe", ("I don’t know", {"options": "I know or I don't know"}),
         ("b)", {"options": "a), b), c), d)"}), ("orange", {"options": "red, orange"})],
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
        ["Here:\n" + QUESTIONS, QUESTIONS.replace("E) of E", ""),
         QUESTIONS.replace(" it it it it", "")],
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
        [CITIES + "\n7,Peru,Lima,2001,1", CITIES.replace("ID", "Id"), CITIES[:-2],
         "```\n" + CITIES + "\n```"],
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
}  # fmt: skip


@pytest.mark.parametrize("id", KINDS | ifbench.KINDS)
def test_an_instruction_is_followed_or_not(id):
    for is_followed, cases in zip((True, False), CASES[id], strict=True):
        assert cases
        for case in cases:
            text, changed = case if isinstance(case, tuple) else (case, {})
            verdict = judged(instructed(id, **changed), text)
            assert verdict.label == ("correct" if is_followed else "incorrect"), case
            assert json.loads(verdict.evidence) == {id: is_followed}


def test_there_are_the_instructions_of_the_benchmarks():
    assert len(KINDS) == 25 and len(ifbench.KINDS) + len(ifbench.MISSING) == 58
    assert (KINDS | ifbench.KINDS).keys() == ALL.keys() == CASES.keys()


def test_what_no_rule_can_tell_is_neither_followed_nor_not():
    nested = judged(instructed("detectable_format:json_format"), "[" * 100_000 + "]" * 100_000)
    assert (nested.label, nested.reason) == ("undecided", "cannot_tell")
    assert json.loads(nested.evidence) == {"detectable_format:json_format": None}
    assert judged(instructed("language:response_language"), "42 + 1").label == "undecided"


OPEN: Cases = [
    ("format:title_case", "The Lord of the Rings", {}),
    ("format:list", "well-known, high-end", {"sep": "-"}),
    ("custom:european_capitals_sort", CAPITALS.replace("Kyiv, ", ""), {}),
]


@pytest.mark.parametrize(("id", "text", "changed"), OPEN)
def test_what_the_wording_leaves_open_is_undecided(id, text, changed):
    verdict = judged(instructed(id, **changed), text)
    assert (verdict.label, verdict.reason) == ("undecided", "cannot_tell")


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
