"""What a piece of a response names: the letter of an option, its text, several options, or none.

``plain_text`` takes typography away first (Markdown, LaTeX wrappers, full-width letters, runs of
blanks), so that ``**C**``, ``$\\text{(C)}$`` and ``Ｃ`` read alike. All patterns repeat at most a
fixed number of times, so that reading costs no more than the length of the text. The words with
which a response claims, denies, doubts and corrects an option, English and Chinese, stand here too;
``LETTER`` is a capital that stands alone, its brackets with it.

Guards: ``A`` and ``I`` before a word are an article and a pronoun; a lower-case letter counts only
where nothing but an end or a mark follows; a letter in a formula (``C = 5``, ``C-14``) is none.

Not covered: where in a response to look (``claims``).
"""

from __future__ import annotations

import functools
import json
import re
import string
from dataclasses import dataclass

from heavydistill.verifiers.normal import normal_form

# ASCII alone: Chinese characters next to a letter are no part of its word.
FLAGS = re.IGNORECASE | re.ASCII

LETTER = r"(?<![A-Za-z0-9_\\'])[({\[<【「]{0,3}(?-i:([A-Z]))(?![A-Za-z0-9_])[)}\]>】」]{0,3}"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), FLAGS)


# --- What a letter or an option's text follows: "the answer is", "Answer:", "I choose", 答案是.
QUALITIES_BEFORE = re.compile(
    r"(?:\b(?:single|only|most|very|final|correct|right|best|appropriate|likely|true|chosen|"
    r"selected|actual) ){1,4}\Z",
    FLAGS,
)
OWN = re.compile(r"\b(?:my|our) \Z", FLAGS)
_NOUN = (
    r"(?P<noun>(?:final)?answer|ans|option|choice|letter)\b(?:(?<=ans)\.)?"
    r"(?: ?(?:option|choice|letter)\b)?(?: (?:to|for|of) (?:this|the) (?:question|problem|task))?"
    r"(?: (?:among|from|out of) (?:all )?(?:the |these )?(?:given |provided |available )?"
    r"(?:options|choices)(?: given| provided)?)?"
)
_IS = (
    r" ?(?:is|would(?: therefore| thus| then)? be|should be|must be|has to be|will be|remains|"
    r"turns out to be|seems to be|appears to be)"
)
_SURELY = (
    r"(?: (?:therefore|thus|hence|then|indeed|clearly|definitely|certainly|obviously|simply|still|"
    r"now|again|probably|likely|most likely|in fact|either|both|i think|i believe)){0,2}"
)
ANCHOR = _any(
    rf"\b{_NOUN}(?:(?P<link>{_IS}{_SURELY}(?: ?:)?\n?)"
    r"|(?P<colon> ?(?:[:=→⇒]|->|=>|[-–—](?= ))[ \n]?)|(?P<line>\n))",
    r"\bfinal ?answer(?P<heading> )(?=[({\[]{0,2}[A-Z]\b)",
    r"\b(?:I|we)(?:'d|'ll| would| will| therefore| thus| shall)?"
    r"(?P<choose> (?:choose|select|pick|chose|answer|go with|opt for|vote for))\b ?:?",
    r"\blet(?:'s| us) (?P<go>choose|select|pick|answer|go with)\b ?:?",
    r"(?P<zh>(?:答案|(?:正确|最终|最佳)的?选项|选项)(?:应该|应当|应|就|只能)?"
    r"(?:(?:是|为|选择?):?|】?:|】)[ \n]?)",
    r"(?P<short>(?:\A|(?<=[\n.;,，；]))选择?(?:答案|选项)?[: ]?(?=[(]?(?-i:[A-Z])))",
    r"(?P<pick>(?:故|因此|所以|综上,?|认为|应该|应当|应|本题|我)(?:该题|本题|答案)?(?:应该|应)?选择?"
    r"(?:答案|选项)?[: ]?)",
)
# An answer is given, though none of the options.
GIVES_NONE = _any(r" ?(?:none|neither|both|all)\b")

# What may follow a letter that is chosen: "we choose C large enough" is no answer.
CHOSEN_BEFORE = _any(
    r" ?(?:$|[\n.,;:!，；：、)]|[-–—(/&]|(?:because|since|over|rather|instead|not|and|or|but|"
    r"as (?:the|my|our) (?:[a-z]+ ){0,2}(?:answer|option|choice)(?! to (?:e|r)))\b)"
)

# --- What makes of a claim none.
CLAUSE_ENDS = re.compile(r"[.!?;\n；！？]")
CONCLUDES = _any(r"\b(?:so|therefore|thus|hence|consequently)\b", "所以|因此|故")
SUPPOSES = _any(
    r"\b(?:if|unless|suppos\w*|assum\w*|imagine|whether|otherwise|were|had|for example|e\.g)\b",
    r"\b(?:example|format):",
    "假设|如果|假如|若|是否",
)
SAID_OTHERWISE = _any(
    r"\b(?:might|may|could|tempt\w*|mistaken\w*|mistake|wrongly|incorrectly|naive\w*|doubt|"
    r"deny|denies|claim\w*|says|said|thinks|thought|trap|someone|people|students?|not|never|cannot|"
    r"hardly|unlikely|neither|nor|why|false|wrong|initial(?:ly)?|originally|at first)\b",
    r"(?<!\bi )(?<!\bwe )\bwould\b",
    r"\b(?:many|some|others|most|you|they|he|she|one) (?:\w{1,20} )?"
    r"(?:say|think|believe|claim|argue)",
    r"n't\b",
    "[不别勿]|并非|没有|有人|误以为|为什么|为何",
)
OTHER_ANSWER = re.compile(
    r"(?:\b(?:wrong|incorrect|false|tempting|common|previous|other|initial|first|obvious|another|"
    r"second|next|bad|invalid|naive|his|her|their|alternative|possible|expected|worst|eliminated|"
    r"least|example|sample|distractor|decoy|trap|non|runner-up)"
    r"|'s|错误的?)[\s-]*\Z",
    FLAGS,
)
NOT_THIS_BOX = re.compile(
    r"(?:\bnot|n't|\bnever|\bneither|\bnor|\bexcludes?|\beliminates?|\brules? out|\brather than|"
    r"\binstead of|\bexcept|\bwrong|\bincorrect|不是|并非|不选|排除)"
    r"(?: (?:be|option|choice|the|answer|is|equal to|correct)){0,3}[ :'({\[]{0,4}\Z",
    FLAGS,
)
DENIED_AFTER = _any(
    r"[ )}\]]{0,4}(?:"
    r"(?:is|was|are|would be|can|could|does|seems|must be)(?: [a-z]+)? ?"
    r"(?:not|n't|wrong|incorrect|false|impossible|invalid|ruled out|eliminated)\b"
    r"|(?:isn't|wasn't|can't|cannot|couldn't)\b|是?错|不对|不正确|不是|有误"
    r"|[,(] ?(?:which (?:is|was) )?(?:wrong|incorrect|false|not (?:correct|right))\b|[≠❌✗✘])"
)
CONDITION_AFTER = _any(
    r",? (?:only )?(?:if|unless|provided|assuming|when|whenever|"
    r"sometimes|in (?:some|most|that) cases?)\b"
    r"|,? for (?!(?:this|the|these|that|two|three|several|many|a|all)\b)|,? or (?:maybe )?not\b"
)

# --- What takes a claim back.
CORRECTION = _any(
    r"\b(?:wait|actually|hold on|scratch that|correction|oops|hmm|sorry|on second thoughts?|"
    r"on reflection|upon (?:re-?check|review|reflection|closer)\w*|my mistake|"
    r"let me (?:re-?\w+|correct|double[- ]check|check again|fix)|i (?:was|am) (?:wrong|mistaken)|"
    r"i(?: have|'ve)? made an? (?:\w{1,20} )?(?:mistake|error)|i meant?|just kidding|not really|"
    r"never mind|strike that|err?|"
    r"(?P<of_anything>that(?:'s| is| was) (?:wrong|incorrect|not right)))\b",
    r"\bno(?=[,.!:]| ?[-–—])",
    r"等等(?=[,.，!！…我不])",
    r"不对?(?=[,，.!！])",
    "等一下|更正|纠正|我错了|搞错了|重新(?:检查|考虑|计算|审视)|其实|实际上|抱歉",
)
OPENS_CLAUSE = re.compile(
    r"(?:\A|[\n.!?;:,(}\])>\-–—！？；，…]) ?(?:(?:but|oh|and|so|ah|well|hmm|no),? ){0,2}\Z", FLAGS
)

# --- What disputes a claim: its letter is not the answer, or another is so too.
DENIALS = _any(
    rf"{LETTER} (?:is|was)(?: not|n't) (?:the |a )?(?:correct |right )?(?:answer|option|choice)\b",
    rf"{LETTER} is (?:the )?(?:wrong|incorrect) (?:answer|option|choice)\b",
    r"\b(?:answer|option|choice) (?:is not|isn't|cannot be|can't be|is never) (?:option )?"
    + LETTER,
    rf"不(?:是|能选|选){LETTER}",
)
RIVALS = _any(
    rf"\b(?:could|might|may|can) (?:also|just as well|equally) be (?:option )?{LETTER}",
    rf"{LETTER} (?:is|are|would be|could be|might be|may be) (?:also|equally|just as) (?:a |the )?"
    r"(?:correct|right|acceptable|possible|valid|plausible|good|answer)",
    r"(?:(?<=\n)|(?<=[.] )|(?<=, ))(?:or|alternatively|possibly|maybe|perhaps|also),? "
    rf"(?:it is )?(?:option )?{LETTER}(?=[ .,!\n]|\Z)(?! [a-z])",
    rf"{LETTER} (?:could|might|may)(?: also)? be (?:the )?(?:correct|right|valid|answer)",
    r"\b(?:it is|it's|it must be|it should be) (?:option |actually |really )?"
    rf"{LETTER}(?=[.,!\n]|\Z)",
    rf"(?<=\n){LETTER}(?=\n|\Z)",
    rf"\bboth {LETTER} and {LETTER} (?:are|could be|would be|seem) "
    r"(?:correct|right|acceptable|possible)",
)

# --- How letters in one sentence belong together.
JOINS = re.compile(
    r"(?:[ ,;/&+，；、]|or|and|both|also|either|maybe|possibly|perhaps|probably|else|even|plus|"
    r"as well as|along with|together with|followed by|then|"
    r"options?|choices?|answers?|或者?|和|与|以?及|还是|选项)+",
    FLAGS,
)
OR = _any(r"\bor\b|/|或|还是")
EXCLUDES = _any(
    r"\b(?:not|rather than|instead of|unlike|except|neither|over)\b", r"n't\b", "不是|而非"
)
GIVES_REASONS = _any(
    r"\b(?:because|since|as|while|where|whereas|which|that|so|given|by|for|due|if|eliminat\w*|"
    r"rul\w*)\b",
    "因为|由于|所以",
)
WAVERS = _any(
    r"\b(?:or|wait|actually|maybe|perhaps|possibly|alternatively|sorry|no(?=[,.])|could|might|"
    r"may)\b",
    r"\bbut(?: also| maybe)? ?[({\[]*\Z",
    "或|也",
)
# What follows a letter that opens a clause of its own: "B is", "B and C are".
NEW_CLAUSE = _any(
    r"(?:,? (?:and |or )?(?-i:[A-Z])\b,?){0,5} ?"
    r"(?!(?:or|and|because|since|as|which|together)\b|both\b(?! (?:also |are )?(?:fail|wrong|false"
    r"|incorrect|too|not)\b))(?-i:[a-z])",
    r"(?:[,，、和与及] ?(?-i:[A-Z])){0,5} ?(?:两?选?项)?(?:均|都|皆|也)?[为是]?"
    r"(?:错|不|有误|正确|对)",
)
SAYS_WRONG = _any(
    r"\b(?:not|wrong|incorrect|false|fails?|cannot|invalid|out|impossible|eliminated|neither|nor|"
    r"mistakes?|distractors?|misconceptions?|irrelevant|unrelated|"
    r"too (?!also|right|correct)[a-z]+)\b",
    r"n't\b",
    "[错不]|有误",
)
SAYS_RIGHT = _any(
    r"\b(?:also|too(?=[.,!\n]|\Z)|correct|right|possible|valid|acceptable|as well)\b", "正确|也"
)
FUNCTION_WORD = (
    r"(?:because|since|as|and|or|but|nor|which|that|is|are|was|has|with|due|given|from|not|rather|"
    r"instead|where|while|whereas|if|unless|per|by|for|in|on|at|so|cannot|does|only)\b"
)

# --- An option that means others by their place: "all of the above", "both A and B".
SPEAKS_OF_OTHERS = _any(
    r"\b(?:all|none|both|neither|either|any|some|one|two|three|each|most)(?: or more)?"
    r"(?: of)?(?: the)? (?:above|preceding|foregoing|these|those|following|listed|options?|"
    r"choices?|answers?|others?|two|three)\b"
    r"|\b(?:all|none|both|neither) (?:of them|(?:are|is) (?:correct|true|right|wrong|false))"
    r"|\A(?:all|none|both|neither)\.?\Z"
    r"|\b(?:options?|choices?|answers?|alternatives?) \(?[A-Z1-9]\b"
    r"|\b(?:first|last|other) (?:two |three )?(?:options?|choices?|answers?)\b"
    r"|(?-i:\b[A-Z]\)?,? (?:and|or|&|nor) \(?[A-Z]\b)|\([a-z]\),? (?:and|or|&) \([a-z]\)"
    r"|\A(?-i:\(?[A-Z]\)?) (?:only|alone)\b|\b(?:only|both|either|neither) (?-i:\(?[A-Z]\)?)\Z"
    r"|以上|上述|都对|都不对|都是|都不是|[A-Z] ?[和与或及、] ?[A-Z]",
)


# --- What a piece of text names.
FEWEST_OPTIONS, MOST_OPTIONS = 2, 26
_LONGEST_TAIL = 300
_MARKS = " .,;:!\n"  # that may close an answer

_ALIKE: dict[int, int | str | None] = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_ALIKE |= {0x24B6 + n: f"({chr(65 + n)})" for n in range(26)}  # circled capitals
_ALIKE |= dict.fromkeys(map(ord, "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))
_ALIKE |= {ord(mark): "\n" for mark in "\u2028\u2029\x85"}
_ALIKE |= {ord(mark): " " for mark in "\u00a0\u3000\u2002\u2003\u2009\u202f"}
_ALIKE |= dict.fromkeys(map(ord, "\ufe0f✅✓✔☑👉"), " ")
_ALIKE |= {ord("’"): "'", ord("。"): ".", ord("“"): "", ord("”"): ""}
_STRUCK_OUT = re.compile(r"~~[^~\n]{1,200}~~")
_MARKUP = re.compile(
    r"[*_`$\"]|\\[()\[\]]|\\(?:left|right)(?![a-z])|</?(?:b|strong|em|u)>|(?<![^\n])#{1,6} ?"
    r"|\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathsf|mathit|mbox|bf|rm|bm|boldsymbol)"
    r"(?=[ {])"
)
_SPACING = re.compile(r"\\(?:quad|qquad)(?![a-z])|\\[,;:! \\]|[ \t\f\v~]{2,}|[\t\f\v~]", re.ASCII)
_LINE_ENDS = re.compile(r" ?[\r\n][ \r\n]*|<br ?/?>")

_CALLED = (
    r"(?:(?:the )?(?:option|choice|letter|alternative|answer|选项|答案|选择?)(?: is| ?:|是|为)? ?)?"
)
_LABEL = re.compile(
    rf" ?[({{\[]{{0,3}} ?{_CALLED}(?P<opens>[({{\[<【「]{{0,4}}(?P<quote>')?) ?(?P<letter>[A-Za-z])"
    r"(?![A-Za-z0-9_])(?P<closes>(?: ?[)}\]>】」]{1,4})?(?(quote)(?:'(?![A-Za-z]))?|(?!')))",
    FLAGS,
)
# After the letter: it is a quantity, a function, part of a compound.
_SEPARATOR = re.compile(r"\A ?[.,:;)、]?[ \n]?(?:[-–—] )?")
_FORMULA = re.compile(
    r"['(^_\[{°#%]|!=| (?:plus|minus|times)\b|\.\d| ?(?:-+>|[=+<>≤≥≠≈∪∩×÷·|→⇒\\])"
    r"|[-–][A-Za-z0-9]| ?[-–] ?\d|/(?![A-Z]\b)"
)
_ENDS_OR_GOES_ON = re.compile(rf" ?(?:$|[\n.,;:!?，；：、]|[-–—(/&]|{FUNCTION_WORD})", FLAGS)

_MARKED_LETTER = re.compile(r"[ \n,;]\(?([A-Z])[).:](?= [^ \n])")
_OWN_LETTER = re.compile(r" ?\(([A-Z])\)\Z")
_OTHERS_FOLLOW = re.compile(
    r"[.;!] ?(?:or|and|also|alternatively|maybe|possibly|perhaps)\b|\n(?:or|and)\b", FLAGS
)
_OTHER_LETTER = re.compile(LETTER)
_WORDS = re.compile(r"[^\W_]+")
_SAME_WORDS = 4  # of an option's text, from its first one on
_BOX = re.compile(r"\\(?:boxed|fbox)|[)}\]]")
_SENTENCE_ENDS = re.compile(r"[.!?](?=[ \n]|$)|[！？\n]")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a piece of text names.

    Attributes:
        letters: Sorted; none where it names no option that can be told. One may be out of range.
        is_sure: False where it could be read in another way: a letter with another option's
            text, or another letter that may belong to another sentence.
        end: Where in the text what was read ends.
    """

    letters: tuple[str, ...]
    is_sure: bool
    end: int


@dataclass(frozen=True, slots=True)
class Options:
    """The options as shown.

    Attributes:
        letters: Those that name an option, ``ABCD``.
        texts: Of each; empty where they stand in the problem's text alone.
        by_key: Normal form, and the same without regard to case, to the letters of the options
            that have it.
    """

    letters: str
    texts: tuple[str, ...]
    by_key: dict[str, str]

    def by_text(self, text: str) -> str | None:
        """The letter of the one option whose text this is but for typography."""
        text = text.strip().rstrip(_MARKS)
        if not text or len(text) > self.longest:
            return None
        key = normal_form(text).text
        for form in (key, _without_case(key)):
            letters = self.by_key.get(form, "")
            if letters:
                return letters if len(letters) == 1 else None
        # "Jupiter (B)"
        if (own := _OWN_LETTER.search(text)) and self.by_text(text[: own.start()]) == own[1]:
            return own[1]
        if text[0] in "({[<" and text[-1] in ")}]>":
            return self.by_text(text[1:-1])
        return None

    def begins_here(self, letter: str, text: str) -> bool:
        """Whether ``text`` goes on with the first words of an option's text."""
        own, here = (
            _WORDS.findall(each.casefold())[:_SAME_WORDS]
            for each in (self.text_of(letter), text[: self.longest])
        )
        return bool(own) and here[: len(own)] == own

    def text_of(self, letter: str) -> str:
        """Empty for a letter out of range, and where the texts are not known."""
        place = self.letters.find(letter)
        return self.texts[place] if 0 <= place < len(self.texts) else ""

    @property
    def longest(self) -> int:
        """Most characters of a text that may be that of an option."""
        return 2 * max(map(len, self.texts), default=0) + 20

    @property
    def speak_of_others(self) -> bool:
        """Whether one may mean several others: "both A and B", "all of the above"."""
        return any(map(SPEAKS_OF_OTHERS.search, self.texts))

    def mentions(self, letter: str) -> bool:
        """Whether the letter stands as a word of its own in an option."""
        return any(re.search(rf"(?<![A-Za-z0-9]){letter}(?![A-Za-z0-9])", t) for t in self.texts)


@functools.lru_cache(maxsize=4096)
def options_of(verifier_args: str) -> Options:
    """The options in the arguments of a problem.

    Raises:
        ValueError: They are not what ``choice`` takes; the message says what they are to be.
    """
    args = json.loads(verifier_args)
    if not isinstance(args, dict) or args.keys() - {"options", "order", "order_kept"}:
        raise ValueError(
            'verifier_args of choice hold "options" and, where they were shuffled, "order" and '
            f'"order_kept", not {verifier_args}'
        )
    shown = args.get("options")
    if isinstance(shown, int) and not isinstance(shown, bool):
        count, texts = shown, []
    elif isinstance(shown, list) and all(isinstance(t, str) and t.strip() for t in shown):
        count, texts = len(shown), [plain_text(text).strip() for text in shown]
    else:
        raise ValueError(
            '"options" in verifier_args takes the texts of the options as they are shown, or how '
            f"many there are if they stand in the problem, not {json.dumps(shown)}; a dataset with "
            "a column options or choices needs no verifier_args"
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
    # The mark keeps these apart from keys in which case counts.
    return "\0" + key.casefold()


def plain_text(text: str) -> str:
    """``text`` in one alphabet, without markup, with single blanks and line ends."""
    if not text.isascii():
        text = text.translate(_ALIKE)
    text = _MARKUP.sub("", _STRUCK_OUT.sub(" ", text))
    return _LINE_ENDS.sub("\n", _SPACING.sub(" ", text))


def read_alone(text: str, options: Options, *, strict: bool = False) -> Reading:
    """What a text names that is nothing but an answer, such as the content of a box.

    Args:
        text: From ``plain_text``.
        options: Those of the problem.
        strict: What follows the letter must be the text of that option.
    """
    text = text.strip()
    if text[:1] == "{" and text.find("}") == len(text) - 1:
        text = text[1:-1].strip()
    end = len(text)
    named = options.by_text(text)
    label = _LABEL.match(text)
    letter = label["letter"].upper() if label else ""
    if not label or (label["letter"].islower() and letter not in options.letters):
        return _reading(named, end)
    rest = text[label.end() :]
    if rest[:1] == "{" and rest.find("}") == len(rest) - 1:
        rest = rest[1:-1]  # C\text{. Jupiter}
    if not rest.strip(" .,;:!\n"):
        return _reading(letter, end, named)
    if named:
        return _reading(named, end)
    rest_named = options.by_text(_SEPARATOR.sub("", rest, count=1))
    if rest_named:
        return _reading(letter, end, rest_named)
    if _FORMULA.match(rest):
        return _reading(None, end)
    others = _others(text, label.end(), end, letter, options)
    if others.letters != (letter,):
        return others
    # "C. 42" and "(C) 42"; but "A.M." is a word.
    marked = label["closes"] or re.match(r"[.:、](?![A-Za-z])", rest)
    if strict or not marked:
        return _reading(None, end)
    return _reading(letter, end)


def read_at(text: str, start: int, options: Options) -> Reading | None:
    """What the words from ``start`` on name, after words such as "the answer is".

    Returns:
        None if they are denied, asked or meant for a case alone, so that nothing is claimed.
    """
    line_end = text.find("\n", start, start + max(options.longest, _LONGEST_TAIL))
    if line_end < 0:
        line_end = min(len(text), start + max(options.longest, _LONGEST_TAIL))
    sentence = _SENTENCE_ENDS.search(text, start, line_end)
    sentence_end = sentence.start() if sentence else line_end
    if sentence and sentence[0] in "?？":
        return None
    in_line = options.by_text(text[start:line_end])
    named = in_line or options.by_text(text[start:sentence_end])
    label = _LABEL.match(text, start)
    if not label or not _is_letter(label, text, options):
        is_sure = not _OTHERS_FOLLOW.match(text, sentence_end)
        return Reading((named,), is_sure, sentence_end) if named else Reading((), True, start)
    letter, end = label["letter"].upper(), label.end()
    rest = _SEPARATOR.sub("", text[end:line_end], count=1)
    rest_named = options.by_text(rest) or options.by_text(_SENTENCE_ENDS.split(rest, 1)[0])
    if named and rest and (in_line or text[end:sentence_end].strip()):
        return _reading(named, sentence_end)
    if denied(text, end) or CONDITION_AFTER.match(text, end):
        return None
    if _lists_options(text, end, line_end, letter):
        return Reading((letter,), False, end)
    if rest_named or named:
        return _reading(letter, end, rest_named or named)
    return with_others(text, end, letter, options)


def denied(text: str, end: int) -> bool:
    """Whether what follows a letter says that it is wrong."""
    return bool(DENIED_AFTER.match(text, end))


def with_others(text: str, end: int, letter: str, options: Options) -> Reading:
    """The letter that ends at ``end``, with those that its sentence names beside it."""
    tail = end
    while tail < len(text) and text[tail] in " .,:":
        tail += 1
    sentence = _SENTENCE_ENDS.search(text, tail, tail + _LONGEST_TAIL)
    limit = sentence.start() if sentence else min(len(text), tail + _LONGEST_TAIL)
    return _others(text, end, limit, letter, options)


def _lists_options(text: str, end: int, line_end: int, letter: str) -> bool:
    """Whether the label opens a list of the options: ``A) 5 B) 6``, or one below the other."""
    if text[end - 1] not in ")." and text[end : end + 1] not in (".", ":"):
        return False
    for match in _MARKED_LETTER.finditer(text, end, min(line_end + 6, end + _LONGEST_TAIL)):
        if match.start() > end and not _is_list(text[end : match.start()].strip(" (")):
            return ord(match[1]) == ord(letter) + 1
    return False


def _is_letter(label: re.Match[str], text: str, options: Options) -> bool:
    """Whether it is the letter of an option and no article, pronoun, unit or variable."""
    end = label.end()
    if label["letter"].islower() and label["letter"].upper() not in options.letters:
        return False
    if label["closes"] and label["opens"]:
        return True
    if _FORMULA.match(text, end):
        return False
    if label["closes"]:
        return True
    letter: str = label["letter"]
    return letter in string.ascii_uppercase.translate({65: None, 73: None}) or bool(
        _ENDS_OR_GOES_ON.match(text, end)
    )


def _others(text: str, start: int, limit: int, letter: str, options: Options) -> Reading:
    """``letter`` and the other letters that what follows joins to it."""
    letters, is_sure, end, excluding = {letter}, True, start, False
    last = start
    for match in _OTHER_LETTER.finditer(text, start, limit):
        if match[1] not in options.letters or _is_article(match, text):
            continue
        gap = text[last : match.start()]
        between = _BOX.sub(" ", gap).lstrip(" .:").strip(" ({[")
        is_next_sentence = "." in gap and not between
        last = match.end()
        own = options.text_of(letter)
        if own and between.startswith(own):
            between = between[len(own) :].strip(" .,({[")
        joined = _is_list(between)
        if match[1] == letter or (is_next_sentence and "\\" in gap):
            break
        if not joined and GIVES_REASONS.search(between):
            break
        excluding = bool(EXCLUDES.search(between)) or (excluding and joined)
        if excluding:
            continue
        after = text[match.end() : match.end() + 60]
        if joined:
            if (is_next_sentence or not OR.search(between)) and NEW_CLAUSE.match(after):
                if SAYS_WRONG.search(after) or (is_next_sentence and not SAYS_RIGHT.search(after)):
                    break
                is_sure = is_sure and bool(SAYS_RIGHT.search(after))
            elif not between:
                is_sure = False
        elif WAVERS.search(between):
            is_sure = False
        else:
            break
        letters.add(match[1])
        end = match.end()
    return Reading(tuple(sorted(letters)), is_sure, end)


def _is_list(between: str) -> bool:
    return not between or bool(JOINS.fullmatch(between))


def _is_article(match: re.Match[str], text: str) -> bool:
    alone = match[0] == match[1] and match[1] in "AI"
    following = text[match.end() : match.end() + 20]
    return alone and bool(re.match(rf" (?!{FUNCTION_WORD})[A-Za-z]{{2}}", following, FLAGS))


def _reading(letter: str | None, end: int, other: str | None = None) -> Reading:
    """One letter, and whether something else was named with it."""
    letters = tuple(sorted({name for name in (letter, other) if name}))
    return Reading(letters, len(letters) < 2, end)
