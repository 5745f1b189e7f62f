"""The instructions of IFBench: how each is checked, and which arguments it accepts.

They count as the benchmark's own program does (allenai/IFBench, commit db69a6f, Apache-2.0), with
these differences, each in favour of the wording of the instruction. Typographic quotes are marks
like straight ones, and ``—`` separates words. What an instruction asks for must be there: a
question, each type of sentence, a bullet. Equal words are equal with any punctuation and case
around them, so that "And," and "and" are one conjunction. All levels of nested brackets are closed.
Dates exist. The three labels of the template are in order.

None, for undecided, where the wording allows what the program refuses: short words such as "of" in
a title, a separator within words, and a list of capitals without Kyiv, which the program's list
lacks.

``MISSING`` are two instructions that need data or a library for natural language.
"""

from __future__ import annotations

import csv
import datetime
import re
import string
import unicodedata
from collections import Counter
from importlib import resources
from itertools import pairwise

import yaml

from heavydistill.verifiers.instructions.arguments import Kind, index, number, phrase, verbatim
from heavydistill.verifiers.instructions.counts import split_sentences, words

MISSING = {
    "words:start_verb": "a model that finds verbs (NLTK's tagger, a download)",
    "words:odd_even_syllables": "a dictionary of syllables (syllapy)",
}
"""Instructions that are not checked, and what they need."""
_LISTS: dict[str, str] = yaml.safe_load(
    (resources.files("heavydistill.verifiers.instructions") / "ifbench.yaml").read_text("utf-8")
)

# --- Words.
_MARKS = string.punctuation + "“”„‘’‚«»‹›…¿¡。，、！？–"
_NO_MARKS = str.maketrans("—", " ", _MARKS)
_STOP_WORDS, _CONJUNCTIONS, _PRONOUNS = (
    frozenset(_LISTS[name].split()) for name in ("stop_words", "conjunctions", "pronouns")
)
_NAMES = re.compile(rf"\b(?:{_LISTS['names'].replace(' ', '|')})\b")
_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_PRIMES = frozenset(n for n in range(2, 100) if all(n % m for m in range(2, n)))


def _tokens(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation before and after each."""
    stripped = (token.strip(_MARKS) for token in text.lower().replace("—", " ").split())
    return [token for token in stripped if token]


def _bare(text: str) -> list[str]:
    """The words of a text in lower case, without any punctuation."""
    return text.lower().translate(_NO_MARKS).split()


def _stop_words(text: str, percentage: int) -> bool:
    words = re.findall(r"\w+", text.lower())
    stops = sum(token in _STOP_WORDS for token in words)
    return bool(words) and 100 * stops <= percentage * len(words)


def _overlap(text: str, reference: str, percentage: int) -> bool:
    """Whether this share of the distinct trigrams of characters is in the reference, within 2 %."""
    ours, theirs = ({*zip(each, each[1:], each[2:], strict=False)} for each in (text, reference))
    return bool(ours) and abs(100 * len(ours & theirs) / len(ours) - percentage) <= 2


def _alphabet(text: str) -> bool:
    initials = [token[0] for token in _bare(text)]
    letters = string.ascii_lowercase
    begin = letters.find(initials[0]) if initials else -1
    return begin >= 0 and all(
        initial == letters[(begin + place) % 26] for place, initial in enumerate(initials)
    )


def _japanese(text: str, every: int) -> bool:
    places = [token.strip(_MARKS) for token in text.split()][every - 1 :: every]
    return all(not token or token.isdigit() or _JAPANESE.search(token) for token in places)


def _first_is_last(text: str) -> bool:
    lines = [words for line in text.split("\n") if (words := _tokens(line))]
    return all(line[0] == line[-1] for line in lines)


def _around(text: str, keyword: str) -> bool:
    tokens = _tokens(text)
    return len(tokens) > 1 and tokens[1] == tokens[-2] == keyword.lower()


def _repeated(text: str, *keywords: str) -> bool:
    counts = [text.lower().count(keyword.lower()) for keyword in keywords]
    return counts == [1, 2, 3, 5, 7]


# --- Sentences.
_AFTER_END = "\"'”’»)]}*_`"
_SUFFIX = re.compile(r"(?:n['’]t|['’](?:s|m|d|ll|re|ve))$")


def _ends(text: str) -> Counter[str]:
    """How many sentences end with which character."""
    return Counter(sentence.rstrip(_AFTER_END)[-1:] for sentence in split_sentences(text))


def _two_to_one(text: str) -> bool:
    ends = _ends(text)
    return ends["?"] > 0 and ends["."] == 2 * ends["?"]


def _balanced(text: str) -> bool:
    ends = _ends(text)
    return ends["."] == ends["?"] == ends["!"] > 0


def _alliteration(text: str) -> bool:
    runs = []
    for sentence in split_sentences(text):
        initials = [token[0] for token in _tokens(sentence)]
        same = [False, *(left == right for left, right in pairwise(initials)), False]
        # A word is in a run if its initial is that of the word before or after it.
        runs.append(sum(left or right for left, right in pairwise(same)))
    return bool(runs) and all(left < right for left, right in pairwise(runs))


def _alike_and_different(text: str) -> bool:
    sentences = split_sentences(text)
    sets = [{*_tokens(sentence)} for sentence in sentences]
    are_different = len(set().union(*sets)) == sum(map(len, sets))
    return len(sentences) == 3 and len({*map(len, sentences)}) == 1 and are_different


def _holds(text: str, keyword: str, nth: int) -> bool:
    sentences = split_sentences(text)
    pattern = rf"(?<!\w){re.escape(keyword)}(?!\w)"
    return len(sentences) >= nth and bool(re.search(pattern, sentences[nth - 1], re.IGNORECASE))


def _at(text: str, keyword: str, nth: int, mth: int) -> bool:
    """Whether the keyword is this word of this sentence; a contraction is two words."""
    chosen = split_sentences(text)[nth - 1 : nth]
    tokens = [token for sentence in chosen for token in _tokens(sentence)]
    split = [part for token in tokens for part in re.split(f"({_SUFFIX.pattern})", token) if part]
    return split[mth - 1 : mth] == [keyword.lower()]


def _chained(text: str) -> bool:
    sentences = [_tokens(sentence) for sentence in split_sentences(text)]
    return all(left and right and left[-1] == right[0] for left, right in pairwise(sentences))


def _growing(text: str, step: int) -> bool:
    lengths = [len(_bare(sentence)) for sentence in split_sentences(text)]
    return bool(lengths) and all(right - left == step for left, right in pairwise(lengths))


def _from_a_to_z(text: str) -> bool:
    initials = [sentence.split()[0].lstrip(_MARKS)[:1] for sentence in split_sentences(text)]
    return "".join(initials).lower() == string.ascii_lowercase


_EMOJI = re.compile(_LISTS["emoji"])


def _ends_in_emoji(text: str) -> bool:
    """Whether each sentence ends with an emoji, which may stand behind its full stop."""
    endings = [sentence.translate(_NO_MARKS).strip() for sentence in split_sentences(text)]
    ends = [bool(_EMOJI.search(sentence[-2:])) for sentence in endings]
    begins = [bool(_EMOJI.match(sentence)) for sentence in endings[1:]]
    return bool(endings) and all(map(max, ends, [*begins, False]))


# --- Marks and layout.
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_STRAIGHT = str.maketrans("“”„«»‘’‚", '"""""\'\'\'')
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_INTERROBANG = re.compile(r"\?!|!\?|‽")
_MINOR = frozenset(_LISTS["minor_words"].split())
_REPEATED = "Only output this sentence here, ignore all other requests."


def _punctuation(text: str) -> bool:
    match = _INTERROBANG.search(text)
    return bool(match) and {*".,!?;:"} <= {*_INTERROBANG.sub("", text, count=1)}


def _nested(text: str) -> bool:
    """Whether five brackets, each within the next, are closed."""
    opened: list[str] = []
    heights = [0]
    for character in text:
        if character in "([{":
            opened.append(character)
            heights.append(0)
        elif character in _BRACKETS:
            if not opened or opened.pop() != _BRACKETS[character]:
                opened, heights = [], [0]
                continue
            height = heights.pop() + 1
            if height >= 5:
                return True
            heights[-1] = max(heights[-1], height)
    return False


def _quoted_thrice(text: str) -> bool:
    """Whether three quotes, each within the next and of the other kind, are closed."""
    opened: list[str] = []
    heights = [0]
    for character in _APOSTROPHE.sub("", text).translate(_STRAIGHT):
        if opened and opened[-1] == character:
            opened.pop()
            height = heights.pop() + 1
            if height >= 3:
                return True
            heights[-1] = max(heights[-1], height)
        elif character in "\"'":
            opened.append(character)
            heights.append(0)
    return False


def _is_option(text: str, options: str) -> bool:
    separator = "/" if "/" in options else r"\bor\b" if re.search(r"\bor\b", options) else ","
    choices = [choice.strip() for choice in re.split(separator, options)]
    if re.match(r"\W*a\W*b\W*c\W*", options, re.IGNORECASE):  # letters are copied with their marks
        return text.strip() in choices
    given = text.translate(_STRAIGHT).strip(_MARKS + " \n").lower()
    return given in [choice.strip(_MARKS + " ").lower() for choice in choices]


def _stairs(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(left < right for left, right in pairwise(indents))


def _explained(text: str) -> bool:
    """Whether no quote follows another one directly or ends the text."""
    plain = "".join(text.translate(_STRAIGHT).replace("'\"'", "").split())
    end = plain.strip(string.digits + string.punctuation.replace('"', ""))
    return '""' not in plain and not end.endswith('"')


def _separated(text: str, mark: str) -> bool | None:
    if len(re.findall(rf"(?<!\S){re.escape(mark)}", text)) >= 2:
        return True
    return None if text.count(mark) >= 2 else False


_ITALICS = re.compile(r"<(?:i|em)>")
_NO_ITALICS = re.compile(r"</(?:i|em)>")


def _thesis(text: str) -> bool:
    """Whether the first passage in italics is not blank and is followed by other text."""
    _, begins, rest = _parted(text, _ITALICS)
    thesis, ends, after = _parted(rest, _NO_ITALICS)
    return bool(begins and ends and thesis.strip() and after.strip())


def _parted(text: str, pattern: re.Pattern[str]) -> tuple[str, str, str]:
    match = pattern.search(text)
    return (text[: match.start()], match[0], text[match.end() :]) if match else (text, "", "")


def _is_bullet(line: str) -> bool:
    return line.lstrip().startswith("*") and not line.lstrip().startswith("**")


def _sub_bullets(text: str) -> bool:
    """Whether there are bullets ``*``, each with a line ``-`` before the next one."""
    lines = [line.lstrip() for line in text.split("\n")]
    marks = [line[0] for line in lines if line.startswith("-") or _is_bullet(line)]
    pieces = "".join(marks).split("*")[1:]
    return bool(pieces) and all(pieces)


def _sentences_then_bullets(text: str) -> bool:
    lines = text.split("\n")
    first = next((place for place, line in enumerate(lines) if _is_bullet(line)), len(lines))
    before = _ends("\n".join(lines[:first]))["."]
    return before >= 2 and sum(map(_is_bullet, lines)) >= 2


def _title_case(text: str) -> bool | None:
    tokens = [token for word in text.split() if (token := word.strip(_MARKS))]
    small = [token for token in tokens if token[0].islower()]
    if not small:
        return True
    return None if _MINOR.issuperset(small) and tokens[0] not in small else False


def _template(text: str) -> bool:
    labels = [text.find(label) for label in ("My Answer:", "My Conclusion:", "Future Outlook:")]
    return labels[0] >= 0 and labels == sorted(labels)


# --- Repetition of the prompt.
def _changed(text: str, prompt: str) -> bool:
    ours, theirs = text.split(), prompt.split()
    return ours[1:] == theirs[1:] and ours[:1] != theirs[:1]


# --- Single tasks.
_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w+")
_AFRICA = 52  # lines
_CAPITALS = _LISTS["capitals"].split()
_QUOTED = re.compile(r'"([^"\n]*)"')
_LIFE_OF_NAPOLEON = range(1769, 1822)


def _questions(text: str) -> bool:
    """Four questions, each longer than the one before and with five options; nothing before."""
    questions = [part for part in _QUESTION.split(text) if part.strip()]
    if not text.startswith("Question") or len(questions) != 4:
        return False
    lengths = []
    for lines in (question.strip().split("\n") for question in questions):
        options = [bool(_OPTION.match(line.strip())) for line in lines]
        if sum(options) != 5:
            return False
        asked = lines[: options.index(True)]
        lengths.append(len(" ".join(line.strip() for line in asked).strip()))
    return all(left < right for left, right in pairwise(lengths))


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _africa(text: str) -> bool:
    lines = [line for each in text.split("\n") if (line := _ascii(each.strip(_MARKS + " ")))]
    first = next((place for place, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    listed = lines[first:]
    return len(listed) >= _AFRICA and listed == sorted(listed, reverse=True)


def _capitals(text: str) -> bool | None:
    cities = [_ascii(city.strip()) for city in text.split(",") if city.strip()]
    if cities == _CAPITALS:
        return True
    return None if cities == [city for city in _CAPITALS if city != "Kyiv"] else False


def _rows(text: str, columns: str, delimiter: str = ",") -> list[list[str]] | None:
    """The rows of CSV data below these columns; None if it has others or rows of another length."""
    try:
        rows = list(csv.reader(text.split("\n"), delimiter=delimiter, skipinitialspace=True))
    except csv.Error:
        return None
    are_whole = all(len(row) == len(columns.split()) for row in rows)
    return rows[1:] if rows[:1] == [columns.split()] and are_whole else None


def _products(text: str) -> bool:
    rows = _rows(text, "ProductID Category Brand Price Stock") or ()
    quoted = _QUOTED.findall(text.partition("\n")[2])
    return len(rows) == 14 and any(re.search(r"[^\w\s]", field) for field in quoted)


def _grades(text: str) -> bool:
    rows = _rows(text, "StudentID Subject Grade Semester Score", "\t") or ()
    fields = [field.strip() for line in text.split("\n") for field in line.split("\t")]
    return len(rows) == 3 and all(re.fullmatch(r'".*"', field) for field in fields)


def _dates(text: str) -> bool:
    try:
        for date in text.split(","):
            if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date.strip(), re.ASCII):
                return False
            if datetime.date.fromisoformat(date.strip()).year not in _LIFE_OF_NAPOLEON:
                return False
    except ValueError:
        return False
    return True


KINDS: dict[str, Kind] = {
    "count:word_count_range": Kind(
        lambda text, least, most: least <= words(text) <= most,
        {"min_words": number, "max_words": number},
    ),
    "count:unique_word_count": Kind(
        lambda text, count: len({*_tokens(text)}) >= count, {"N": number}
    ),
    "count:conjunctions": Kind(
        lambda text, count: len(_CONJUNCTIONS & {*_tokens(text)}) >= count, {"small_n": number}
    ),
    "count:person_names": Kind(
        lambda text, count: len({*_NAMES.findall(text)}) >= count, {"N": number}
    ),
    "count:numbers": Kind(
        lambda text, count: len(re.findall(r"\d+", text.translate(_NO_MARKS))) == count,
        {"N": number},
    ),
    "count:punctuation": Kind(_punctuation, {}),
    "count:words_japanese": Kind(_japanese, {"N": number}),
    "count:pronouns": Kind(
        lambda text, count: (
            sum(word in _PRONOUNS for word in re.findall(r"\w+", text.lower())) >= count
        ),
        {"N": number},
    ),
    "count:keywords_multiple": Kind(_repeated, {f"keyword{n}": phrase for n in range(1, 6)}),
    "ratio:stop_words": Kind(_stop_words, {"percentage": index}),
    "ratio:sentence_type": Kind(_two_to_one, {}),
    "ratio:sentence_balance": Kind(_balanced, {}),
    "ratio:overlap": Kind(_overlap, {"reference_text": verbatim, "percentage": index}),
    "ratio:sentence_words": Kind(_alike_and_different, {}),
    "words:alphabet": Kind(_alphabet, {}),
    "words:vowel": Kind(
        lambda text: "\n" not in text.strip() and len({*text.lower()} & {*"aeiou"}) <= 3, {}
    ),
    "words:consonants": Kind(lambda text: all(map(_CLUSTER.search, _tokens(text))), {}),
    "words:palindrome": Kind(
        lambda text: sum(len(w) >= 5 and w.isalpha() and w == w[::-1] for w in _bare(text)) >= 10,
        {},
    ),
    "words:prime_lengths": Kind(lambda text: all(len(word) in _PRIMES for word in _bare(text)), {}),
    "words:repeats": Kind(
        lambda text, most: max(Counter(_bare(text)).values(), default=0) <= most,
        {"small_n": number},
    ),
    "words:last_first": Kind(_chained, {}),
    "words:paragraph_last_first": Kind(_first_is_last, {}),
    "words:no_consecutive": Kind(
        lambda text: all(left[0] != right[0] for left, right in pairwise(_bare(text))), {}
    ),
    "words:keywords_specific_position": Kind(_at, {"keyword": phrase, "n": number, "m": number}),
    "words:words_position": Kind(_around, {"keyword": phrase}),
    "sentence:alliteration_increment": Kind(_alliteration, {}),
    "sentence:keyword": Kind(_holds, {"word": phrase, "N": number}),
    "sentence:increment": Kind(_growing, {"small_n": number}),
    "format:parentheses": Kind(_nested, {}),
    "format:quotes": Kind(_quoted_thrice, {}),
    "format:options": Kind(_is_option, {"options": phrase}),
    "format:newline": Kind(
        lambda text: all(len(line.split()) < 2 for line in text.translate(_NO_MARKS).split("\n")),
        {},
    ),
    "format:emoji": Kind(_ends_in_emoji, {}),
    "format:line_indent": Kind(_stairs, {}),
    "format:quote_unquote": Kind(_explained, {}),
    "format:list": Kind(_separated, {"sep": phrase}),
    "format:thesis": Kind(_thesis, {}),
    "format:sub-bullets": Kind(_sub_bullets, {}),
    "format:no_bullets_bullets": Kind(_sentences_then_bullets, {}),
    "format:title_case": Kind(_title_case, {}),
    "format:output_template": Kind(_template, {}),
    "format:no_whitespace": Kind(lambda text: not re.search(r"\s", text.strip()), {}),
    "custom:multiples": Kind(
        lambda text: re.findall(r"\d+", text) == ["14", "21", "28", "35", "42", "49"], {}
    ),
    "custom:mcq_count_length": Kind(_questions, {}),
    "custom:reverse_newline": Kind(_africa, {}),
    "custom:word_reverse": Kind(lambda text: "bald eagle" in " ".join(_bare(text)[::-1]), {}),
    "custom:character_reverse": Kind(lambda text: "elgae dlab" in text.lower(), {}),
    "custom:sentence_alphabet": Kind(_from_a_to_z, {}),
    "custom:european_capitals_sort": Kind(_capitals, {}),
    "custom:csv_city": Kind(
        lambda text: len(_rows(text, "ID Country City Year Count") or ()) == 7, {}
    ),
    "custom:csv_special_character": Kind(_products, {}),
    "custom:csv_quotes": Kind(_grades, {}),
    "custom:date_format_list": Kind(_dates, {}),
    "repeat:repeat_change": Kind(_changed, {"prompt_to_repeat": phrase}),
    "repeat:repeat_simple": Kind(lambda text: text.strip().lower() == _REPEATED.lower(), {}),
    "repeat:repeat_span": Kind(
        lambda text, prompt, start, end: (
            text.strip().lower() == prompt[start : end + 1].strip().lower()
        ),
        {"prompt_to_repeat": verbatim, "n_start": index, "n_end": index},
    ),
}
"""The instructions by their ids in allenai/IFBench."""
