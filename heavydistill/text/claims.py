"""Reads what a deliberation says of each attempt: that it is right, or that it is wrong.

``read_claims`` puts signs in the place of words that name attempts and of answers that attempts
gave, splits the texts into clauses, and looks in each for a clear word: "wrong", "passes", ✓.
What is right before that word is its subject. It is a claim if the subject is

    an attempt or several     "attempts 1 and 3 are correct", "the rest fail"
    an answer                 "36 is too large", for the attempts that the text says gave it
    a pronoun, or nothing     "so it is wrong", "Incorrect.", for the attempts of the passage

and no claim if it is anything else ("the formula of attempt 2 is wrong"). Questions, cases,
quotes, hedges and words with a limit ("right about the sign") are passed over. The last word on an
attempt counts, and "scratch that" removes the claims of the sentence before. ``claims.yaml`` has
the words.

Not covered: attempts named by letters; claims that only a later sentence makes clear; errors that
are named without a judgement; other languages than English and Chinese.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

import yaml

from heavydistill.schema import Claim
from heavydistill.text.mentions import CHINESE_NUMBERS, compiled, mentions, plain

LONGEST_ANSWER = 40
LONGEST_SENTENCE = 1500
LONGEST_QUOTE = 300
_LONGEST_CLAUSE = 250

_FENCE = re.compile(r"^```.*?(?:^```|\Z)", re.M | re.S)
_QUOTED = re.compile(r"\"[^\"\n]{2,300}\"|“[^”\n]{1,300}”|「[^」\n]{1,300}」")
_FRACTION = re.compile(r"\\[dt]?frac\{?(\w+)\}?\{?(\w+)\}?")
_END = re.compile(r"[.!?]+[\"')\]]*(?=\s)|[。！？；]+|$")
_STOP = re.compile(r"[.。!！?？；;，,：:]$")
_HAN = re.compile(r"[\u3400-\u9fff]")
_SPELLINGS = str.maketrans("«»‹›−⟶", '""<>-→', "\ufe0f")
# "#4", "Sol 3 → 36", "A3: ...", "- 5 ✗": attempts that ``mentions`` does not know.
_SHORT = re.compile(
    r"(?:#|\b(?:program|programme|query|submission|proposal|version|程序) ?#?)(\d{1,2})(?!\d)"
    r"|(?:(?<=[.:;,] )|(?<=\()|^[^\w\n]*)(?:sol|att|[TAS])\.? ?#?(\d{1,2})\b(?! ?[=+^])",
    re.M | re.I,
)
_ITEM = re.compile(
    r"^[^\w\n]*(\d{1,2})(?:[.:)] ?| )(?:[→:–-] ?)?[\"$]*(?P<after>[^\n]{0,40})", re.M
)
_JUDGED = re.compile(r"[✓✔✅✗✘❌✕]|(?:right|wrong|correct|incorrect)\b", re.I)
_NAME = re.compile(r"«[-=]?([\d+]*)»")
_LABEL = re.compile(
    r"\W*«[\d+]+»(?: ?\([^()]{0,60}\))?\W{0,4}(?:says |gets |gives )?(?:‹\d+›\W{0,3})?"
)
_TITLE = re.compile(r"[\W\d]*(?:the )?«[\d+]+»(?: ?\([^()]{0,60}\))?\W*")
_MARK = re.compile(r"\W*[✓✔✅✗✘❌✕]\W*")
_SUM = re.compile(r"[=≠≈<>→] ?[^\s=，]{0,20}[\d›][^\w«»]*$")
_THEREFORE = re.compile(r"(?:so|hence|thus|therefore|所以|因此|显然|故)(?! far)")
_Language = defaultdict[str, re.Pattern[str]]
_NONE: frozenset[int] = frozenset()
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
_NUMERALS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_COUNTS = {word: i for i, word in enumerate(_NUMERALS, 2)}
_COUNTS |= CHINESE_NUMBERS | {"两": 2} | {str(i): i for i in range(10)}


def read_claims(reasoning_text: str, answer_text: str, attempts: Sequence[str]) -> list[Claim]:
    """Read the claims on the attempts of a cache: at most one for each, sorted by attempt.

    ``attempts`` are the final answers in the order of the cache.
    """
    reader = _Reader(attempts)
    for text in (reasoning_text, answer_text):
        reader.read(text)
    return [
        Claim(attempt=attempt, says="right" if is_right else "wrong", quote=quote)
        for attempt, (is_right, quote) in sorted(reader.claims.items())
    ]


class _Sentence(NamedTuple):
    text: str  # In lower case, with signs for names and answers
    quote: str
    begins: bool  # Whether it begins a paragraph
    starts: bool  # Whether it begins a line
    is_line: bool  # Whether it is the whole of a line


class _Clause(NamedTuple):
    joint: str  # What separates it from the clause before
    text: str
    before: str  # The sentence up to it
    after: str  # The clause after it


class _Reader:
    """Reads the texts of one deliberation, in order."""

    def __init__(self, attempts: Sequence[str]) -> None:
        self.claims: dict[int, tuple[bool, str]] = {}
        self._all = frozenset(range(1, len(attempts) + 1))
        answers = [_written(each).strip(" $\n") for each in attempts]
        self._answers = dict(enumerate(answers, 1))
        known = dict.fromkeys(each for each in answers if 0 < len(each) <= LONGEST_ANSWER)
        self._signs = {answer: f"‹{i}›" for i, answer in enumerate(known)}
        self._gives = {i: self._signs.get(answer, "") for i, answer in enumerate(answers, 1)}
        either = "|".join(map(re.escape, sorted(known, key=len, reverse=True))) or "(?!)"
        self._value = re.compile(
            r"\(([A-Z])\)"
            rf"|(?<![a-zA-Z\d_.+«‹/^√])\$?({either})\$?(?![a-zA-Z\d+»›^/]|[.,]\d|%)"
        )
        self._givers: dict[str, frozenset[int]] = {}  # Attempts that the text says gave an answer
        # Attempts: that the passage is about; that the last name of several means
        self._focus = self._group = _NONE
        self._uses_ordinals = False  # "The second attempt"
        self._singles = _NONE  # Attempts that were named alone
        self._titled = False
        self._last_word: bool | None = None  # Of the last claim in the last sentence
        self._is_end = False  # Whether the next sentence is on something else
        self._last = _Sentence("", "", True, True, True)

    def read(self, text: str) -> None:
        sentences = list(self._sentences(text))
        focus = _NONE
        for each in sentences:
            focus = _numbers(each.text) or (_NONE if each.begins else focus)
            for number in focus:
                if (answer := self._gives[number]) and answer in each.text:
                    self._givers[answer] = self._givers.get(answer, _NONE) | {number}
        header: list[str] = []
        for i, each in enumerate(sentences, 1):
            after = sentences[i] if i < len(sentences) else None
            self._is_end = not after or after.starts or "«" in after.text
            keeps = self._titled and not each.text.startswith("#")
            if each.begins and not keeps:
                self._turn(_NONE)
            elif keeps and not each.begins and self._last.is_line and self._last.begins:
                self._titled = self._last.text.startswith("#")  # Else no title, but a line
            header = self._row(each, header) if each.text.count("|") > 1 else []
            if not header:
                self._sentence(each)
                self._last = each

    def _sentences(self, text: str) -> Iterator[_Sentence]:
        written = _written(_FENCE.sub("", text))
        written = re.sub(r"\b(i\.e|e\.g|[Nn]o)\. (?=[a-z\d])", r"\1 ", written)
        # Two names with only a comma between them may belong to different clauses.
        written = re.sub(r", (?=(?:attempt|thinker|programmer)s? \d)", ",  ", written, flags=re.I)
        masked = _QUOTED.sub(self._masked, written)
        names = sorted(self._names(written, masked))
        self._uses_ordinals |= any(not re.search(r"\d", masked[slice(*span)]) for span, _ in names)
        starts = [start for (start, _), _ in names]
        begins = True
        for line in re.finditer(r"[^\n]+|\n\n", masked):
            if line[0].isspace() or line[0].lstrip().startswith(">"):
                begins = begins or line[0].isspace()
                continue
            is_row = line[0].count("|") > 1
            ends = [m.end() for m in _END.finditer(masked, *line.span())]
            start = line.start()
            for end in ends[-1:] if is_row else ends:
                signs, at = "", start
                inside = slice(bisect_left(starts, start), bisect_left(starts, end))
                for (first, last), numbers in names[inside]:
                    if first >= at:
                        signs, at = f"{signs}{masked[at:first]}{self._name(numbers)}", last
                signs = (signs + masked[at:end]).strip()
                quote = " ".join(written[start:end].split())[:LONGEST_QUOTE]
                if 0 < len(signs) <= LONGEST_SENTENCE:
                    is_line = end - start >= len(line[0].strip())
                    starts_line = start == line.start()
                    yield _Sentence(self._signed(signs), quote, begins, starts_line, is_line)
                    begins = False
                start = end

    def _names(
        self, written: str, masked: str
    ) -> Iterator[tuple[tuple[int, int], tuple[int, ...]]]:
        """Yield (place, attempts) of each name of attempts; ``masked`` has no quotes."""
        yield from ((m.span, m.numbers) for m in mentions(masked, shown=True) if m.kind == "cited")
        yield from ((m.span(), (int(m[m.lastindex or 1]),)) for m in _SHORT.finditer(masked))
        for m in _ITEM.finditer(written):
            answer = self._answers.get(int(m[1]))
            if answer and (m["after"].startswith(answer[:30]) or _JUDGED.match(m["after"])):
                yield m.span(1), (int(m[1]),)

    def _masked(self, quoted: re.Match[str]) -> str:
        inside = quoted[0][1:-1]
        return f" {inside} " if inside in self._signs else "¤" * len(quoted[0])

    def _signed(self, text: str) -> str:
        text = self._value.sub(lambda m: self._signs.get(m[1] or m[2], m[0]), text).lower()
        text = re.sub(" +", " ", text)
        text = text.replace(" ", "") if _HAN.search(text) else text
        return _language(text)["group bare"].sub(partial(self._grouped, "bare"), text)

    def _name(self, numbers: Iterable[int], sign: str = "") -> str:
        return f"«{sign}{'+'.join(map(str, sorted(self._all & set(numbers))))}»"

    def _turn(self, numbers: frozenset[int], titled: bool = False) -> None:
        """Begin a passage on some attempts."""
        self._focus, self._titled = numbers, titled

    def _record(
        self, numbers: frozenset[int], right: bool, quote: str, without: frozenset[int] = _NONE
    ) -> None:
        """Record a claim on some attempts, and its opposite on others."""
        self.claims |= dict.fromkeys(without if numbers else (), (not right, quote))
        self.claims |= dict.fromkeys(numbers, (right, quote))

    def _row(self, s: _Sentence, header: list[str]) -> list[str]:
        """Read a row of a table; return the cells of its header."""
        p, numbers, words = _languages()["en"], _NONE, []
        cells = [cell.strip() for cell in s.text.strip(" |").split("|")]
        written = s.quote.strip(" |").split("|")
        for title, cell, quote in zip(header or cells, cells, written, strict=False):
            if not numbers and _NAME.fullmatch(cell):
                numbers = _numbers(cell)
            elif not numbers and p["column"].search(title):
                numbers = self._all & {*map(int, re.findall(r"^ ?#?(\d+) ?$", quote))}
            first = next((clause.text for clause in _clauses(cell, p)), "")
            is_verdict = header and p["verdicts"].search(title)
            m = _language(cell)["bare"].fullmatch(first)
            if m := m or (is_verdict and p["label"].fullmatch(first)) or None:
                words.append(_says_right(m))
        if len(words) == 1:
            self._record(numbers, words[0], s.quote)
        return header or cells

    def _sentence(self, s: _Sentence) -> None:
        p, text = _language(s.text), re.sub(r"(?<=[\w»›])'(s|re|ve|m|d|ll)\b", r" '\1", s.text)
        if p["retracts"].match(text):
            quote = self._last.quote
            self.claims = {n: claim for n, claim in self.claims.items() if claim[1] != quote}
        if m := p["line"].fullmatch(text):
            self._turn(_numbers(_group(m, "who")))
            others = self._all if "only" in _words(m) else _NONE
            self._record(self._focus, _says_right(m), s.quote, others)
            return
        for kind, pattern in [*p.items()]:
            if kind.startswith("group "):
                text = pattern.sub(partial(self._grouped, kind.removeprefix("group ")), text)
        self._read_clauses(s, text, p)

    def _grouped(self, kind: str, m: re.Match[str]) -> str:
        """The sign of words that name several attempts, or the words if it is not clear which."""
        text, before = m[0], m.string[: m.start()]
        earlier = _numbers(before) | self._of_values(before)
        if not self._is_on_attempts(kind, m.string, earlier):
            return text
        bare = re.findall(r"[a-z]+|[一-龥]|\d", re.sub(r"[«‹][^»›]*[»›]", "", text))
        count = next((n for word in reversed(bare) if (n := _COUNTS.get(word, 0)) > 1), 0)
        count = {"both": 2, "bare": 0}.get(kind, count)
        members = [*self._members(kind, m, earlier, count)]
        numbers = frozenset(members) & self._all
        if len(numbers) != len(members) or (kind == "bare" and members != sorted(members)):
            return text
        if count and len(numbers) != count:
            near = (earlier, self._group, self._all)
            numbers = next((each for each in near if len(each) == count), _NONE)
        if len(numbers) > 1 and kind != "bare":
            self._group = numbers
        sign = {"none": "-", "only": "=", "except": "="}.get(kind, "")
        return self._name(numbers, sign) if numbers else text

    def _is_on_attempts(self, kind: str, text: str, earlier: frozenset[int]) -> bool:
        """Whether words like "the first two" mean attempts, and not e.g. equations."""
        is_part = len(earlier or self._focus) == 1 and not self._uses_ordinals
        if kind in ("ordinals", "ends") and is_part:
            return False  # "Attempt 4 has two lines; the first is right"
        known = earlier | self._group | self._focus | self._singles | self.claims.keys()
        is_named = bool(known or re.search("attempt|thinker|尝试|思考者", text))
        return is_named or kind not in ("ordinals", "ends", "both", "them")

    def _members(
        self, kind: str, m: re.Match[str], earlier: frozenset[int], count: int
    ) -> Iterable[int]:
        """The attempts that words mean; ``count`` is how many they say, or 0."""
        text, named, order = m[0], _numbers(m[0]), sorted(self._all)
        several = next((g for g in (earlier, self._group, self._focus) if len(g) > 1), _NONE)
        if kind == "bare":
            return map(int, re.findall(r"\d+", text))
        if kind in ("gave", "values"):
            return self._of_values(text)
        if kind == "rest":
            last = _numbers(self._last.text)
            seen = (earlier, last if len(last) > 1 else _NONE, self._focus | self.claims.keys())
            rests = [self._all - each for each in (*seen, last, self._singles) if each]
            return next((rest for rest in rests if count in (0, len(rest))), _NONE)
        if kind == "except":
            return self._all - named
        if kind == "ends":
            return order[:count] if m["end"] in ("first", "前") else order[-count:]
        if kind == "ordinals":
            return [i for i, word in enumerate(_ORDINALS, 1) if word in text]
        if kind in ("both", "them"):
            return several
        if kind in ("none", "all") and not named:
            is_them = re.search(r"\b(?:them|these|those|they)\b", text)
            return several if several and is_them else self._all
        return named

    def _of_values(self, text: str) -> frozenset[int]:
        """The attempts that the text says gave the answers in a part of it."""
        values = re.findall(r"‹\d+›", text)
        return frozenset().union(*(self._givers.get(value, _NONE) for value in values))

    def _read_clauses(self, s: _Sentence, text: str, p: _Language) -> None:
        goes_on = p["goes on"].match(text) and p["condition"].search(self._last.text)
        is_open, is_hedged = bool(goes_on) or text.endswith(("?", "？")), False
        last, self._last_word = self._last_word, None
        subject = _NONE  # Attempts that the sentence is about
        for clause in _clauses(text, p):
            if re.search("[;；:：—→]", clause.joint) or p["resets"].match(clause.text):
                is_hedged = False
            if _THEREFORE.match(clause.text) and re.search(r"\bbut\b|但", clause.before):
                is_open = False  # "If n is odd, it is right, but n is even, so it is wrong"
            self._follow(s, text, clause.text, p)
            forms = (p[name].fullmatch(clause.text) for name in ("object", "bare", "label"))
            verdicts = list(p["verdict"].finditer(clause.text))
            m = next(filter(None, forms), verdicts[-1] if verdicts else None)
            left = clause.text[: m.start()] if m else clause.text
            is_open = is_open or bool(p["condition"].search(left))
            is_hedged = is_hedged or bool(p["hedge"].search(clause.text[: m.end()] if m else left))
            if not (is_open or is_hedged or _is_limited(m, clause, p)):
                if m and (word := self._judge(m, clause, subject, s.quote, p)) is not None:
                    last = self._last_word = word
                for name in ("same", "opposite") if last is not None else ():
                    if not m and (f := p[name].fullmatch(clause.text)):
                        numbers = _numbers(f[0]) or self._of_values(f[0]) or subject
                        self._record(numbers, bool(last) == (name == "same"), s.quote)
            named = p["subject"].search(re.sub("».*", "»", clause.text))
            if named and not any(
                p[name].search(clause.text[: named.start()]) for name in ("aside", "compared")
            ):
                subject = _numbers(named["who"]) or subject
            is_open = is_open or bool(p["condition"].search(clause.text))
            is_hedged = is_hedged or bool(p["hedge"].search(clause.text))

    def _follow(self, s: _Sentence, text: str, clause: str, p: _Language) -> None:
        """Begin a passage if a clause names attempts, and not only to compare with them."""
        for name in _NAME.finditer(clause):
            numbers = _numbers(name[0])
            if numbers and not p["aside"].search(clause[: name.start()]):
                is_title = _TITLE.fullmatch(text) or (s.begins and not _STOP.search(text))
                if numbers != self._focus or (s.is_line and is_title):
                    self._turn(numbers, s.is_line and bool(is_title))
                self._group = numbers if len(numbers) > 1 else self._group
                self._singles |= numbers if len(numbers) == 1 else _NONE
                return

    def _judge(
        self, m: re.Match[str], clause: _Clause, subject: frozenset[int], quote: str, p: _Language
    ) -> bool | None:
        """Record what a word says of its subject; return the word, if that is attempts."""
        left, who, numbers = clause.text[: m.start()].strip(" ,"), _group(m, "who"), _NONE
        single = self._focus if len(self._focus) == 1 else _NONE
        if who:
            numbers = _numbers(who) or single
        elif f := p["subject"].search(left):
            before, who = left[: f.start()], f["who"]
            if not (p["compared"].search(before) or (f["of"] and re.search(r"[=\d]", before))):
                numbers = _numbers(who)
        elif f := p["given"].search(left):
            numbers = self._of_values(f["answer"])
        elif f := p["meant"].fullmatch(left):
            if p["what"].fullmatch(f["pronoun"]):
                numbers = self._focus if self._ends_in_answer(clause.before) else _NONE
            elif p["plural"].match(f["pronoun"]):
                numbers = self._focus if len(self._focus) > 1 else self._group
            else:
                numbers = single if f["pronoun"] in ("it", "它") else subject or single
        elif p["clear"].fullmatch(left) and self._is_clear(m, clause, subject, p):
            numbers = subject or self._focus
        right = _says_right(m) ^ who.startswith("«-")
        within = _numbers(clause.before) or self._all  # "Of the first three, only attempt 2"
        is_exact = who.startswith("«=") or "only" in _words(m)
        self._record(numbers, right, quote, within if is_exact else _NONE)
        return right if numbers else None

    def _is_clear(
        self, m: re.Match[str], clause: _Clause, subject: frozenset[int], p: _Language
    ) -> bool:
        """Whether a word without a subject is on the attempts of the passage."""
        before, is_own = clause.before or self._last.text, self._ends_in_answer(clause.before)
        is_label = bool(_LABEL.fullmatch(before))
        if m.re is p["label"] or m[0] in ("right", "对", "不对"):
            return is_label
        if "«" in clause.before and not (subject or _THEREFORE.match(clause.text)):
            return is_label or is_own  # "The formula of attempt 2 gives 0, wrong."
        if m.re is not p["bare"]:
            return bool(not clause.before or subject or is_own or _THEREFORE.match(clause.text))
        if is_label or is_own or (_MARK.fullmatch(m[0]) and clause.before):
            return is_label or is_own
        if (_says_right(m) or clause.before) and _SUM.search(before):
            return False  # "5·3 = 15. Correct."
        return self._is_end if _says_right(m) else not before.endswith(("?", "？"))

    def _ends_in_answer(self, before: str) -> bool:
        """Whether the text before a word ends in the answer of the attempts of the passage."""
        ends = re.findall(r"(‹\d+›)\W*$", before or self._last.text)
        return bool(ends) and {self._gives[number] for number in self._focus} == {*ends}


def _written(text: str) -> str:
    return _FRACTION.sub(r"\1/\2", plain(text.translate(_SPELLINGS)))


def _numbers(text: str) -> frozenset[int]:
    """The attempts that the signs in a text name."""
    return frozenset(int(n) for name in _NAME.finditer(text) for n in re.findall(r"\d+", name[1]))


def _words(m: re.Match[str]) -> set[str]:
    """The names of the groups that matched, without their numbers."""
    return {name.rstrip("123456789") for name, word in m.groupdict().items() if word}


def _group(m: re.Match[str], name: str) -> str:
    return next((w for key, w in m.groupdict().items() if w and key.startswith(name)), "")


def _says_right(m: re.Match[str]) -> bool:
    words = _words(m)
    if words & {"fails", "nots", "does"}:
        return "does" in words
    return ("wrong" in words) == bool(words & {"not", "isnt"})


def _is_limited(m: re.Match[str] | None, clause: _Clause, p: _Language) -> bool:
    """Whether what follows a word limits it: "right about the sign"."""
    if m and "fails" in _words(m):
        return False
    after = (clause.text[m.end() :].strip() if m else "") or clause.after
    kind = "limits right" if m and _says_right(m) else "limits"
    return bool(p["limits"].match(after) or p[kind].match(after))


def _clauses(text: str, p: _Language) -> list[_Clause]:
    breaks = [(0, 0), *(m.span() for m in p["break"].finditer(text)), (len(text), len(text))]
    pieces = [
        (text[start:end], text[end:until].strip(" *.!。！\"'•"), text[:end])
        for (start, end), (until, _) in pairwise(breaks)
    ]
    pieces = [piece for piece in pieces if 0 < len(piece[1]) <= _LONGEST_CLAUSE] + [("", "", "")]
    return [
        _Clause(joint, words, before, after)
        for (joint, words, before), (_, after, _) in pairwise(pieces)
    ]


@cache
def _languages() -> dict[str, _Language]:
    """The patterns of each language; one that it lacks never matches."""
    file = resources.files("heavydistill.text") / "claims.yaml"
    trees = yaml.safe_load(file.read_text(encoding="utf-8"))
    signs = {"name": _NAME.pattern.replace("(", "(?:"), "value": r"‹\d+›"}
    never = re.compile("(?!)")
    return {name: defaultdict(lambda: never, compiled(tree, signs)) for name, tree in trees.items()}


def _language(text: str) -> _Language:
    return _languages()["zh" if _HAN.search(text) else "en"]
