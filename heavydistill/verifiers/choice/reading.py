r"""Finds the options that a piece of a response names by letter or by text: one, several or none.

``plain_text`` first removes typography (Markdown, LaTeX wrappers, full-width letters, runs of
blanks), so that ``**C**``, ``$\text{(C)}$`` and ``Ｃ`` read alike. All repetitions in the patterns
are bounded, so that reading takes time linear in the length of the text.

Letters that are not options: ``A`` and ``I`` before a word are an article and a pronoun; a
lower-case letter counts only at the end or before a punctuation mark; a letter in a formula (``C =
5``, ``C-14``) is not an option.

Not covered: where in the response to look (``claims``).
"""

from __future__ import annotations

import functools
import json
import re
import string
from dataclasses import dataclass

from heavydistill.text.extraction import STRUCK_OUT
from heavydistill.verifiers.normal import normal_form

# ASCII only: Chinese characters next to a letter do not belong to its word.
FLAGS = re.IGNORECASE | re.ASCII
# A single capital letter, with or without brackets.
LETTER = r"(?<![A-Za-z0-9_\\'])[({\[<【「]{0,3}(?-i:([A-Z]))(?![A-Za-z0-9_])[)}\]>】」]{0,3}"


def any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), FLAGS)


# --- How a sentence may continue after a letter: with other letters that are chosen too, or with
# words that say why the letter is chosen, or which letter is not.
_JOINS = re.compile(
    r"(?:[ ,;/&+，；、]|or|and|both|also|either|maybe|possibly|perhaps|then|as well as|along with|"
    r"together with|followed by|options?|choices?|answers?|或者?|和|与|以?及|还是|选项)*",
    FLAGS,
)
_ASIDE = any_of(
    r"\b(?:not|rather than|instead of|unlike|except|neither|over|because|since|as|while|where|"
    r"whereas|which|that|so|given|by|for|due|if|eliminat\w*|rul\w*)\b",
    "n't\\b|不是|而非|因为|由于|所以",
)
_FUNCTION_WORD = (
    r"(?:because|since|as|and|or|but|nor|which|that|is|are|was|has|with|due|given|from|not|rather|"
    r"instead|where|while|whereas|if|unless|per|by|for|in|on|at|so|cannot|does|only)\b"
)
# A letter that begins a clause about another option: "D is too small", "D也正确".
_CLAUSE_FOLLOWS = re.compile(
    r" ?(?!(?:or|and|because|since)\b)[a-z]|项?[均都皆也为是错不有正对]", re.ASCII
)
_ANOTHER_FOLLOWS = any_of(r"[.;!]? ?\n?(?:or|and|also|alternatively|maybe|possibly|perhaps)\b")
_DENIED = any_of(
    r"[ )}\]]{0,4}(?:"
    r"(?:is|was|are|would be|can|could|does|seems|must be)(?: [a-z]+)? ?"
    r"(?:not|n't|wrong|incorrect|false|impossible|invalid|ruled out|eliminated)\b"
    r"|(?:isn't|wasn't|can't|cannot|couldn't)\b|是?错|不对|不正确|不是|有误"
    r"|(?:[,(] ?(?:which (?:is|was) )?|[.!] that(?:'s| is| was) )"
    r"(?:wrong|incorrect|false|not (?:correct|right))\b|[≠❌✗✘])"
)
_CONDITION = any_of(
    r",? (?:only )?(?:if|unless|provided|assuming|when|whenever|"
    r"sometimes|in (?:some|most|that) cases?)\b"
    r"|,? for (?!(?:this|the|these|that|two|three|several|many|a|all)\b)|,? or (?:maybe )?not\b"
)

# --- An option that refers to others: "all of the above", "both A and B".
SPEAKS_OF_OTHERS = any_of(
    r"\b(?:all|none|both|neither|either|any|some|one|two|three|each|most)(?: or more)?"
    r"(?: of)?(?: the)? (?:above|preceding|foregoing|these|those|following|listed|options?|"
    r"choices?|answers?|others?|two|three)\b"
    r"|\b(?:all|none|both|neither) (?:of them|(?:are|is) (?:correct|true|right|wrong|false))"
    r"|\A(?:all|none|both|neither)\.?\Z"
    r"|\b(?:options?|choices?|answers?|alternatives?) \(?[A-Z1-9]\b"
    r"|\b(?:first|last|other) (?:two |three )?(?:options?|choices?|answers?)\b"
    r"|(?-i:\b[A-Z]\)?,? (?:and|or|&|nor) \(?[A-Z]\b)|\([a-z]\),? (?:and|or|&) \([a-z]\)"
    r"|\A(?-i:\(?[A-Z]\)?) (?:only|alone)\b|\b(?:only|both|either|neither) (?-i:\(?[A-Z]\)?)\Z"
    r"|以上|上述|都对|都不对|都是|都不是|[A-Z] ?[和与或及、] ?[A-Z]"
)

# --- Letters and texts.
FEWEST_OPTIONS, MOST_OPTIONS = 2, 26
_LONGEST_TAIL = 300
_MARKS = " .,;:!\n"  # characters that may end an answer

_ALIKE: dict[int, int | str | None] = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_ALIKE |= dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff“”"))
_ALIKE |= dict.fromkeys(map(ord, "\u2028\u2029\x85"), "\n")
_ALIKE |= dict.fromkeys(map(ord, "\u00a0\u3000\u2002\u2003\u2009\u202f\ufe0f✅✓✔☑👉"), " ")
_ALIKE |= {ord("’"): "'", ord("。"): ". "}
_MARKUP = re.compile(
    r"[*_`$\"]|\\[()\[\]]|\\(?:left|right)(?![a-z])|</?(?:b|strong|em|u)>|(?<![^\n])#{1,6} ?"
    r"|\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathsf|mathit|mbox|bf|rm|bm|boldsymbol)"
    r"(?=[ {])"
)
_SPACING = re.compile(r"\\(?:quad|qquad)(?![a-z])|\\[,;:! \\]|[ \t\f\v~]{2,}|[\t\f\v~]", re.ASCII)
_LINE_ENDS = re.compile(r" ?[\r\n][ \r\n]*|<br ?/?>")

_LABEL = re.compile(
    r" ?[({\[]{0,3} ?(?:(?:the )?(?:option|choice|letter|alternative|answer|选项|答案|选择?)"
    r"(?: is| ?:|是|为)? ?)?(?P<opens>[({\[<【「]{0,4}) ?(?P<letter>[A-Za-z])"
    r"(?![A-Za-z0-9_'])(?P<closes>(?: ?[)}\]>】」]{1,4})?)",
    FLAGS,
)
# Text after the letter that shows it to be a quantity, a function or part of a compound.
_FORMULA = re.compile(
    r"['(^_\[{°#%]|!=| (?:plus|minus|times)\b|\.\d| ?(?:-+>|[=+<>≤≥≠≈∪∩×÷·|→⇒\\])"
    r"|[-–][A-Za-z0-9]| ?[-–] ?\d|/(?![A-Z]\b)"
)
_SEPARATOR = re.compile(r"\A ?[.,:;)、]?[ \n]?(?:[-–—] )?")
_ENDS_OR_GOES_ON = re.compile(rf" ?(?:$|[\n.,;:!?，；：、]|[-–—(/&]|{_FUNCTION_WORD})", FLAGS)
_NEXT_IN_LIST = re.compile(r"[^\n]{0,300}\n\(?([A-Z])[).:]")
_OTHER_LETTER = re.compile(LETTER)
_SENTENCE_ENDS = re.compile(r"[.!?]{1,3}(?=[ \n]|$)|[！？\n]")


@dataclass(frozen=True, slots=True)
class Reading:
    """Options that a piece of text names."""

    letters: tuple[str, ...]
    """Sorted letters; empty if no option is recognised. Some may not be letters of options."""
    is_sure: bool
    """False if the text can be read in another way, e.g. as a letter and another option's text."""
    end: int  # Index in the text where reading stopped


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a question, as the problem shows them."""

    letters: str  # Letters of the options, e.g. ``ABCD``.
    texts: tuple[str, ...]  # Texts of the options; empty if they are only in the problem's text
    by_key: dict[str, str]
    """Maps the normal form of an option's text, as written and in lower case, to the letters of the
    options that have it."""

    def by_text(self, text: str) -> str | None:
        """The letter of the only option with this text, ignoring typography; otherwise None."""
        text = text.strip().rstrip(_MARKS)
        if not text or len(text) > self.longest:
            return None
        key = normal_form(text).text
        letters = self.by_key.get(key) or self.by_key.get(_without_case(key), "")
        if letters:
            return letters if len(letters) == 1 else None
        if text[0] in "({[<" and text[-1] in ")}]>":
            return self.by_text(text[1:-1])
        return None

    @property
    def longest(self) -> int:
        """Number of characters above which a text cannot be the text of an option."""
        return 2 * max(map(len, self.texts), default=0) + 20

    @property
    def speak_of_others(self) -> bool:
        """Whether an option may refer to other options: "both A and B", "all of the above"."""
        return any(map(SPEAKS_OF_OTHERS.search, self.texts))


@functools.lru_cache(maxsize=4096)
def options_of(verifier_args: str) -> Options:
    """Read the options from the arguments of a problem.

    Raises:
        ValueError: The arguments are malformed; the message says what ``choice`` needs.
    """
    args = json.loads(verifier_args)
    if not isinstance(args, dict) or args.keys() - {"options", "order", "order_kept"}:
        raise ValueError(
            'verifier_args of choice may contain only "options" and, if these were shuffled, '
            f'"order" and "order_kept", not {verifier_args}'
        )
    shown = args.get("options")
    if isinstance(shown, int) and not isinstance(shown, bool):
        count, texts = shown, []
    elif isinstance(shown, list) and all(isinstance(t, str) and t.strip() for t in shown):
        count, texts = len(shown), [plain_text(text).strip() for text in shown]
    else:
        raise ValueError(
            '"options" in verifier_args must be a list of the texts of the options, or the number '
            f"of options if the problem's text contains them, not {json.dumps(shown)}; a dataset "
            "with a column named options or choices needs no verifier_args"
        )
    if not FEWEST_OPTIONS <= count <= MOST_OPTIONS:
        raise ValueError(f"there are {count} options; give {FEWEST_OPTIONS} to {MOST_OPTIONS}")
    letters = string.ascii_uppercase[:count]
    by_key: dict[str, str] = {}
    for letter, text in zip(letters, texts, strict=False):
        key = normal_form(text.rstrip(_MARKS)).text
        for form in {key, _without_case(key)}:
            by_key[form] = by_key.get(form, "") + letter
    return Options(letters, tuple(texts), by_key)


def _without_case(key: str) -> str:
    # The marker separates these keys from the case-sensitive ones.
    return "\0" + key.casefold()


def plain_text(text: str) -> str:
    """Normalise ``text``: one alphabet, no markup, single blanks and line ends."""
    if not text.isascii():
        text = text.translate(_ALIKE)
    text = _MARKUP.sub("", STRUCK_OUT.sub(" ", text))
    return _LINE_ENDS.sub("\n", _SPACING.sub(" ", text))


def read_alone(text: str, options: Options, *, strict: bool = False) -> Reading:
    """Find the options named in a text that is only an answer, such as the content of a box.

    Args:
        text: Text from ``plain_text``.
        strict: Whether any text after the letter must be the text of that option.
    """
    text = _without_braces(text.strip())
    named, label = options.by_text(text), _LABEL.match(text)
    letter = label["letter"].upper() if label else ""
    if not label or (label["letter"].islower() and letter not in options.letters):
        return _reading(len(text), named)
    rest = _without_braces(text[label.end() :])  # C\text{. Jupiter}
    if not rest.strip(_MARKS):
        return _reading(len(text), letter, named)
    if named:
        return _reading(len(text), named)
    if rest_named := options.by_text(_SEPARATOR.sub("", rest, count=1)):
        return _reading(len(text), letter, rest_named)
    if _FORMULA.match(rest):
        return _reading(len(text))
    others = with_others(text, label.end(), letter, options)
    if others.letters != (letter,):
        return others
    # "C. 42" and "(C) 42"; but "A.M." is a word.
    is_marked = label["closes"] or re.match(r"[.:、](?![A-Za-z])", rest)
    return _reading(len(text), letter if is_marked and not strict else None)


def _without_braces(text: str) -> str:
    return text[1:-1].strip() if text[:1] == "{" and text.find("}") == len(text) - 1 else text


def read_at(text: str, start: int, options: Options) -> Reading | None:
    """Find the options named at ``start``, which follows words such as "the answer is".

    Returns:
        None if the text denies the options, asks about them or makes them conditional.
    """
    limit = min(len(text), start + max(options.longest, _LONGEST_TAIL))
    line_end = text.find("\n", start, limit)
    line_end = limit if line_end < 0 else line_end
    sentence = _SENTENCE_ENDS.search(text, start, line_end)
    sentence_end = sentence.start() if sentence else line_end
    if sentence and set(sentence[0]) & set("?？"):
        return None
    in_line = options.by_text(text[start:line_end])
    named = in_line or options.by_text(text[start:sentence_end])
    named_end = line_end if in_line else sentence_end
    label = _LABEL.match(text, start)
    if not label or not _is_letter(label, text, options):
        if not named:
            return Reading((), True, start)
        return Reading((named,), not _ANOTHER_FOLLOWS.match(text, named_end), named_end)
    letter, end = label["letter"].upper(), label.end()
    rest = _SEPARATOR.sub("", text[end:line_end], count=1)
    if named and rest and (in_line or text[end:sentence_end].strip()):
        return _reading(named_end, named)
    if denied(text, end) or _CONDITION.match(text, end):
        return None
    following = _NEXT_IN_LIST.match(text, end)
    if following and ord(following[1]) == ord(letter) + 1:
        return Reading((letter,), False, end)  # one option per line
    if rest_named := options.by_text(rest):
        return _reading(line_end, letter, rest_named)
    first = _SENTENCE_ENDS.split(rest, maxsplit=1)[0]
    if rest_named := options.by_text(first) or named:
        return _reading(line_end - len(rest) + len(first), letter, rest_named)
    return with_others(text, end, letter, options)


def denied(text: str, end: int) -> bool:
    """Whether the text after a letter denies that the letter is right."""
    return bool(_DENIED.match(text, end))


def _is_letter(label: re.Match[str], text: str, options: Options) -> bool:
    """Whether a letter names an option and is not an article, pronoun, unit or variable."""
    letter, end = label["letter"], label.end()
    if letter.islower() and letter.upper() not in options.letters:
        return False
    if label["closes"] and label["opens"]:
        return True
    if _FORMULA.match(text, end):
        return False
    needs_end = letter.islower() or letter in "AI"
    return bool(label["closes"] or not needs_end or _ENDS_OR_GOES_ON.match(text, end))


def with_others(text: str, end: int, letter: str, options: Options) -> Reading:
    """Read ``letter``, which ends at ``end``, and other letters that the same sentence chooses."""
    begin = end
    own = dict(zip(options.letters, options.texts, strict=False)).get(letter)
    separator = _SEPARATOR.match(text[end : end + 5])
    if own and separator and text.startswith(own, end + separator.end()):
        begin = end + separator.end() + len(own)
    sentence = _SENTENCE_ENDS.search(text, begin, begin + _LONGEST_TAIL)
    limit = sentence.start() if sentence else min(len(text), begin + _LONGEST_TAIL)
    letters, is_sure = {letter}, not _ANOTHER_FOLLOWS.match(text, limit)
    for match in _OTHER_LETTER.finditer(text, begin, limit):
        is_article = match[0] in "AI" and not _ENDS_OR_GOES_ON.match(text, match.end())
        if match[1] not in options.letters or is_article:
            continue
        between = re.sub(r"\\(?:boxed|fbox)|[({\[)}\]:]", " ", text[begin : match.start()])
        is_joined = bool(_JOINS.fullmatch(between))
        if match[1] == letter or (not is_joined and _ASIDE.search(between)):
            break
        letters.add(match[1])
        end = begin = match.end()
        is_sure = is_sure and is_joined and bool(between.strip())
    if len(letters) > 1 and _CLAUSE_FOLLOWS.match(text, end):
        is_sure = False
    return Reading(tuple(sorted(letters)), is_sure, end)


def _reading(end: int, *names: str | None) -> Reading:
    """The result for the letters in ``names``; unsure if they contain several different letters."""
    letters = tuple(sorted({name for name in names if name}))
    return Reading(letters, len(letters) < 2, end)
