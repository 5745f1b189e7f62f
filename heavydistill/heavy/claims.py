"""Reads what a deliberation says of each attempt: that it is right, or that it is wrong.

``read_claims`` splits the texts into sentences, finds the attempts that are named (numbers, lists,
ranges, ordinals, "all but", "the others") and the answers that they gave, and reads clear words on
them. Questions, conditions, hedges, plans, quotes, and words on a step or a formula are no claims.
A word without a subject ("Correct.", "so it is wrong") belongs to the attempt that the passage is
about; the last one in the passage counts. Of several claims on one attempt, the last counts.
tests/heavy/claims/README.md has the rules, and ``claim_patterns`` the vocabulary.

Measured on 100 deliberations in each file of tests/heavy/claims; n is the number of claims made:

    file     kind    language   n     precision   recall
    seen     micro   en         400   1.000       1.000
    seen     prose   en         129   1.000       0.985
    seen     prose   zh          83   1.000       0.976
    unseen   micro   en         400   1.000       1.000
    unseen   prose   en          75   0.920       0.575
    unseen   prose   zh          62   1.000       0.747

The prose of both languages in ``unseen``: n = 137, precision 0.956, recall 0.645. English alone
misses the targets of 0.95 and 0.6. Expect the figures of ``unseen`` on other texts: the vocabulary
was extended until it fitted ``seen``. ``unseen`` was measured three times in that work, as counts.

Not covered: attempts named by letters or by bare numbers; claims that only a later sentence makes
clear; most named errors without a judgement; sentences of more than ``LONGEST_SENTENCE``
characters; answers of more than 40 characters; other languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from heavydistill.heavy import claim_patterns as p
from heavydistill.heavy.mentions import plain
from heavydistill.schema import Claim

LONGEST_SENTENCE = 1500


def read_claims(reasoning_text: str, answer_text: str, attempts: Sequence[str]) -> list[Claim]:
    """The claims on the attempts of a cache, by attempt, at most one for each.

    ``attempts`` are the final answers in the order of the cache.
    """
    reader = _Reader(attempts)
    for text in (reasoning_text, answer_text):
        reader.read(text)
    return [
        Claim(attempt=attempt, says="right" if is_right else "wrong", quote=quote)
        for attempt, (is_right, quote) in sorted(reader.claims.items())
    ]


class _Ref(NamedTuple):
    """Words that name attempts."""

    kind: str
    numbers: frozenset[int]
    size: int | None  # "all three": the number of attempts that is said
    start: int


class _Said(NamedTuple):
    """Attempts that a judgement is of."""

    numbers: frozenset[int]
    is_turned: bool = False  # "none of them is right"
    is_exact: bool = False  # "only", "all but": the opposite holds of the other attempts


@dataclass
class _Sentence:
    text: str  # With names of attempts as «i», and their answers as ‹k›
    quote: str
    refs: list[_Ref]
    begins: bool  # A paragraph
    is_line: bool  # The whole of a line
    is_row: bool  # Of a table


class _Reader:
    """Reads the texts of one deliberation, in order."""

    def __init__(self, attempts: Sequence[str]) -> None:
        self.claims: dict[int, tuple[bool, str]] = {}
        self._all = frozenset(range(1, len(attempts) + 1))
        written = [p.FRACTION.sub(r"\1/\2", plain(a)).strip(" $\n") for a in attempts]
        self._answers = list(dict.fromkeys(a for a in written if 0 < len(a) <= 40))
        self._gives = {
            i: self._answers.index(a) for i, a in enumerate(written, 1) if a in self._answers
        }
        known = sorted(enumerate(self._answers), key=lambda each: -len(each[1]))
        either = "|".join(
            f"(?P<v{k}>{re.escape(a)}{p.AFTER_LETTER if re.fullmatch('[A-Z]', a) else ''})"
            for k, a in known
        )
        self._value = re.compile(
            rf"(?<![a-zA-Z\d_.«‹/^√])\$?(?:{either})\$?(?![a-zA-Z\d»›^/]|[.,]\d|%)"
        )
        self._givers: dict[int, set[int]] = {}  # Of an answer: attempts that the text says gave it
        self._undo: dict[int, tuple[bool, str] | None] = {}
        self._paragraph: frozenset[int] = frozenset()  # Attempts that it named so far
        self._last_text = self._undo_quote = ""
        self._last_word: bool | None = None  # Of the last claim in the sentence before
        self._pending: tuple[frozenset[int], bool, str, int] | None = None
        self._focus: frozenset[int] = frozenset()  # Attempts that the passage is about
        self._is_heading = False  # Whether a heading named them
        self._read = 0  # Sentences of the passage

    def _start_block(self, numbers: frozenset[int] = frozenset(), is_heading: bool = False) -> None:
        """Begin a passage on some attempts; the last bare word of the passage before it counts."""
        pending = self._pending
        if pending and (not pending[1] or self._read - pending[3] < 2):
            self._record(_Said(pending[0]), pending[1], pending[2])
        self._pending = None
        self._focus, self._is_heading, self._read = numbers, is_heading, 0

    def _record(self, said: _Said, is_right: bool, quote: str) -> None:
        is_right ^= said.is_turned
        news = dict.fromkeys(said.numbers, is_right)
        if said.is_exact and said.numbers:
            news |= dict.fromkeys(self._all - said.numbers, not is_right)
        if quote != self._undo_quote:
            self._undo = {}
        self._undo = {number: self.claims.get(number) for number in news} | self._undo
        self._undo_quote = quote
        self.claims |= {number: (word, quote[:300]) for number, word in news.items()}

    def read(self, text: str) -> None:
        sentences = list(self._sentences(text))
        self._find_givers(sentences)
        header: list[str] = []
        before: _Sentence | None = None
        for s in sentences:
            if s.begins:
                self._paragraph = frozenset()
            if s.begins:
                is_title = s.is_line and not s.refs and p.TITLE.match(s.text)
                is_kept = self._is_heading and not is_title
                self._start_block(self._focus if is_kept else frozenset(), is_kept)
            if s.is_row:
                header = self._row(s, header)
            else:
                header = []
                self._sentence(s, before)
                self._last_text = s.text
            before = s
        self._start_block()

    def _sentences(self, text: str) -> Iterator[_Sentence]:
        written = (
            plain(p.FENCE.sub("", text))
            .translate(p.SIGNS)
            .replace("e.g.", "e g ")
            .replace("i.e.", "i e ")
        )
        masked = p.QUOTED.sub(self._masked, written)
        patterns = p.STRONG if p.NUMBERED.search(masked) else p.ANY
        offset, begins = 0, True
        for line in masked.split("\n"):
            speaks = re.search(p.WORDS["strong"], line, re.I)
            here = (
                patterns
                if speaks
                and re.search(rf"(?:{p.WORDS['strong']})(?:s\b(?! [\d#])|[：:])", line, re.I)
                else [each for each in patterns if each[0] != "bare"]
            )
            is_row = line.count("|") > 1
            if not line.lstrip().startswith(">"):
                start = 0
                for end in [len(line)] if is_row else [m.end() for m in p.END.finditer(line)]:
                    piece = line[start:end].strip()
                    if 0 < len(piece) <= LONGEST_SENTENCE:
                        quote = written[offset + start : offset + end].strip()
                        yield _Sentence(
                            *self._named(piece, here, quote),
                            begins,
                            piece == line.strip(),
                            is_row,
                        )
                        begins = False
                    start = end
            begins = begins or not line.strip()
            offset += len(line) + 1

    def _masked(self, quoted: re.Match[str]) -> str:
        inside = quoted[0][1:-1]
        return quoted[0] if inside in self._answers else f'"{"_" * len(inside)}"'

    def _named(
        self, text: str, patterns: list[tuple[str, re.Pattern[str]]], quote: str
    ) -> tuple[str, str, list[_Ref]]:
        refs: list[_Ref] = []

        def name(kind: str, match: re.Match[str]) -> str:
            groups = match.groupdict()
            count = next((v for k, v in groups.items() if "count" in k and v), None)
            number = None if count is None else p.value(count)
            if kind == "own":
                return "mine"
            if kind == "first" and number:
                is_last = groups["last"] or groups["last2"]
                numbers = sorted(self._all)[-number:] if is_last else sorted(self._all)[:number]
                refs.append(_Ref("listed", frozenset(numbers), None, 0))
            else:
                listed = next((v for k, v in groups.items() if "listed" in k and v), "")
                words = match[0].lower()
                if kind in ("all", "none") and words.endswith((" them", " ones")):
                    kind = f"{kind} of them"
                elif words.startswith("they"):
                    kind = "these"
                elif words.startswith(("both", "两者", "二者")):
                    kind = "both"
                number = 1 if groups.get("single") is not None else number
                refs.append(_Ref(kind, p.numbers(listed), number, 0))
            return f"«{len(refs) - 1}»"

        text = p.FRACTION.sub(r"\1/\2", text)
        for kind, pattern in patterns:
            text = pattern.sub(partial(name, kind), text)
        if self._answers:
            text = self._value.sub(lambda m: f"‹{(m.lastgroup or 'v0')[1:]}›", text)
        return text, quote, refs

    def _find_givers(self, sentences: list[_Sentence]) -> None:
        """Note which attempts the text says gave which answer."""
        focus: frozenset[int] = frozenset()
        for s in sentences:
            named = [
                self._all - r.numbers if r.kind == "except" else r.numbers
                for r in s.refs
                if r.numbers
            ]
            focus = frozenset().union(*named) if named else frozenset() if s.begins else focus
            if arrow := re.match(r"^\W*(\d{1,2}) ?(?:→|->|=>|:) ?‹", s.text):
                focus = frozenset({int(arrow[1])})
            values = {int(v) for v in re.findall(r"‹(\d+)›", s.text)}
            for number in focus & self._gives.keys():
                if self._gives[number] in values:
                    self._givers.setdefault(self._gives[number], set()).add(number)

    def _resolved(self, s: _Sentence, before: _Sentence | None) -> list[_Said]:
        """The attempts of each name in a sentence."""
        result: list[_Said] = []
        for ref in s.refs:
            earlier = frozenset[int]().union(*(r.numbers for r in result))
            around = [earlier, self._focus, self._paragraph]
            if ref.kind in ("listed", "ordinal", "bare", "only"):
                said = _Said(ref.numbers & self._all, False, ref.kind == "only")
            elif ref.kind == "except":
                said = _Said(self._all - ref.numbers, False, True)
            elif ref.kind == "rest":
                if not earlier:
                    last = [r.numbers for r in before.refs] if before else []
                    earlier = frozenset(self.claims).union(*last)
                rest = self._all - earlier if earlier else earlier
                said = _Said(rest if ref.size in (None, len(rest)) else frozenset())
            elif ref.kind.endswith("of them"):
                near = s.quote + (before.quote if before else "")
                speaks = p.PLURAL.search(near) and ref.size in (None, len(self._all))
                fits = [g for g in around if len(g) == ref.size or (not ref.size and len(g) > 1)]
                numbers = self._all if speaks else fits[0] if fits else frozenset()
                said = _Said(numbers, ref.kind.startswith("none"))
            elif ref.kind in ("all", "none") and ref.size in (None, len(self._all)):
                said = _Said(self._all, ref.kind == "none")
            elif ref.kind == "both" and ref.size is None and len(self._all) == 2:
                said = _Said(self._all)
            else:
                wanted = 2 if ref.kind == "both" and not ref.size else ref.size
                fits = [g for g in around if len(g) == wanted or (wanted is None and len(g) > 1)]
                said = _Said(fits[0] if fits else frozenset(), ref.kind == "none")
            result.append(said)
        self._paragraph |= frozenset().union(*(r.numbers for r in result))
        return result

    def _row(self, s: _Sentence, header: list[str]) -> list[str]:
        """Read a row of a table; return the cells of its header."""
        cells = [cell.strip() for cell in s.text.strip().strip("|").split("|")]
        said = self._resolved(s, None)
        if not header:
            header = cells
        numbers: frozenset[int] = frozenset()
        for title, cell in zip(header, cells, strict=False):
            if (ref := re.fullmatch(r"\W*«(\d+)»\W*", cell)) and not numbers:
                numbers = said[int(ref[1])].numbers
            elif re.fullmatch(r"#?\d{1,2}", cell) and p.NUMBER_TITLE.search(title) and not numbers:
                numbers = frozenset({int(cell.strip("#"))}) & self._all
        for title, cell in reversed(list(zip(header, cells, strict=False))):
            word = _word(cell)
            if word is None and p.VERDICT_TITLE.search(title):
                word = {"yes": True, "no": False, "是": True, "否": False}.get(cell.lower())
            if numbers and word is not None and not p.STEP_TITLE.search(title):
                self._record(_Said(numbers), word, s.quote)
                break
        return header

    def _sentence(self, s: _Sentence, before: _Sentence | None) -> None:
        text, said = s.text, self._resolved(s, before)
        if p.RETRACTED.search(text):
            self._take_back(frozenset().union(*(r.numbers for r in said)))
        if p.DOUBT.search(text) and before and self._undo_quote == before.quote:
            self._take_back(frozenset())
        text = p.NEITHER.sub(lambda m: self._neither(m, said), text)
        while (pair := p.PAIR.search(text)) and len(said) < 99:
            said.append(_Said(said[int(pair[1])].numbers | said[int(pair[2])].numbers))
            text = f"{text[: pair.start()]}«{len(said) - 1}»{text[pair.end() :]}"
        text = p.WITH.sub(lambda m: self._with(m, said), text)
        label = p.LABEL.match(text)
        subject = next(
            (m for m in re.finditer(r"«(\d+)»", text) if not p.COMPARED.search(text[: m.start()])),
            None,
        )
        if subject:
            rest = text[subject.end() :].strip(" *:.)-")
            is_heading = s.is_line and (not rest if label else s.begins and not p.STOP.search(text))
            self._start_block(said[int(subject[1])].numbers, is_heading)
        for m in p.MARKED.finditer(text):
            self._record(said[int(m["a"] or m["b"])], p.MARKS[m["mark"] or m["first"]], s.quote)
        for m in p.SAME_ERROR.finditer(text):
            other = said[int(m[1] or m[2] or m[3])].numbers
            if other and all(n in self.claims and not self.claims[n][0] for n in other):
                self._record(_Said(self._focus), False, s.quote)
        self._read += 1
        if text.endswith(("?", "？")) or (before and _opens_case(before.text, text)):
            return
        (self._read_zh if p.HAN.search(text) else self._read_en)(s, text, said)

    def _with(self, match: re.Match[str], said: list[_Said]) -> str:
        givers = frozenset(self._givers.get(int(match["k"]), ()))
        count = match["count"] and p.value(match["count"])
        said.append(_Said(givers if count in (None, "", len(givers)) else frozenset()))
        return f"«{len(said) - 1}»"

    @staticmethod
    def _neither(match: re.Match[str], said: list[_Said]) -> str:
        numbers = said[int(match[1])].numbers | said[int(match[2] or match[1])].numbers
        said.append(_Said(numbers, True))
        return f"«{len(said) - 1}»"

    def _take_back(self, numbers: frozenset[int]) -> None:
        """Remove the claims on attempts, or what the last claim changed."""
        self._pending = None
        if numbers & self.claims.keys():
            self._undo = dict.fromkeys(numbers)
        for number, old in self._undo.items():
            self.claims.pop(number, None)
            if old:
                self.claims[number] = old
        self._undo = {}

    def _who(self, name: str, text: str, start: int, said: list[_Said]) -> _Said | None:
        """The attempts of a name or of an answer that is the subject at a place."""
        if name[0] == "«":
            prefix = text[max(0, start - 60) : start]
            is_of = p.OF.search(prefix)
            return None if is_of and not p.WHOLE_OF.search(prefix) else said[int(name[1:-1])]
        if name[0] != "‹":
            return _Said(self._focus)
        if not p.VALUE_BEGINS.search(text[max(0, start - 30) : start]):
            return None
        value = int(name[1:-1])
        mine = {n for n in self._focus if self._gives.get(n) == value}
        return _Said(frozenset(self._givers.get(value, set()) | mine))

    def _read_en(self, s: _Sentence, text: str, said: list[_Said]) -> None:
        events: list[tuple[int, _Said, bool]] = []
        last_word, self._last_word = self._last_word, None
        if not p.JUDGES.search(text):
            return
        row = p.ROW.match(text)
        if row and _is_clear(text, *_place(row)):
            self._record(
                said[int(row["who"][1:-1])], bool(row["right"]) ^ bool(row["not"]), s.quote
            )
            self._focus = frozenset()
        for pattern in (p.NAMED, p.TERSE, p.OBJECT, p.NOTHING, p.RULED_OUT, p.LISTED):
            for m in pattern.finditer(text):
                at = 0 if pattern in (p.NOTHING, p.OBJECT, p.RULED_OUT) else m.start("who")
                who = self._who(m["who"], text, at, said)
                fixed = {p.NOTHING: True, p.RULED_OUT: False}
                word = fixed[pattern] if pattern in fixed else _polarity(m)
                if who and word is not None and _is_clear(text, *_place(m)):
                    tail = text[_place(m)[1] :]
                    if word and (
                        p.BUT if p.SOFT.fullmatch(m.groupdict().get("right") or "") else p.ONLY
                    ).match(tail):
                        continue
                    if m.groupdict().get("own") and not self._gives_it(who, m["own"]):
                        continue
                    exact = bool(m.groupdict().get("only")) or who.is_exact
                    events.append((m.start(), who._replace(is_exact=exact), word))
        for m in p.ORIGIN.finditer(text):
            if self._gives_it(_Said(self._focus), m["own"]) and _is_clear(text, *_place(m)):
                events.append((m.start(), _Said(self._focus), False))
        for m in p.SAME.finditer(text):
            past = [e for e in events if e[0] < m.start()]
            who = said[int((m["who"] or re.findall(r"«\d+»", m["else"])[0])[1:-1])]
            word = past[-1][2] ^ past[-1][1].is_turned if past else last_word
            if word is not None and _is_clear(text, past[-1][0] if past else 0, m.end()):
                events.append((m.start(), who, word ^ bool(m["else"])))
        for _, who, word in sorted(events, key=lambda each: each[0]):
            self._record(who, word, s.quote)
            self._last_word = word ^ who.is_turned
            if who.numbers & self._focus:
                self._pending = None
        if not events and (core := p.CORE.search(text)) and s.refs and not row:
            self._drop_contested(text, bool(core[1]), said[: len(s.refs)])
        if self._focus:
            self._read_focus(s, text, bool(events))

    def _drop_contested(self, text: str, is_right: bool, said: list[_Said]) -> None:
        """Remove claims on the attempts that an unread sentence judges in the other way."""
        if any(pattern.search(text) for pattern in (p.HEDGE, p.CONDITION, p.PART)):
            return
        for number in frozenset().union(*(each.numbers for each in said)):
            if number in self.claims and self.claims[number][0] != is_right:
                del self.claims[number]

    def _gives_it(self, who: _Said, text: str) -> bool:
        values = {int(v) for v in re.findall(r"‹(\d+)›", text)}
        return bool(who.numbers) and all(self._gives.get(n) in values for n in who.numbers)

    def _read_focus(self, s: _Sentence, text: str, has_claims: bool) -> None:
        """Read words on the attempts that the passage is about: "so it is wrong", "Correct."."""
        label = p.LABEL.match(text)
        for m in (*p.PLAIN.finditer(text), *p.BARE.finditer(text)):
            word, subject = _polarity(m), (m.groupdict().get("subject") or "").lower()
            if word is None or not _is_clear(text, *_place(m)):
                continue
            is_predicate = bool(
                label and not subject and m.re is p.PLAIN and text[label.end("who") :][:1] == " "
            )
            if (
                p.PART.search(text[: m.start()])
                and not is_predicate
                and " " not in subject
                and not m.groupdict().get("found")
            ):
                continue
            is_many = subject in ("they", "these", "those", "both") or subject.startswith(
                ("their", "these ")
            )
            if subject and is_many != (len(self._focus) > 1) and subject != "which":
                continue
            value = re.search(r"‹(\d+)›\)?,? ?$", text[: m.start("subject")]) if subject else None
            if subject == "which" and not (value and self._gives_it(_Said(self._focus), value[0])):
                continue
            if (
                subject in ("this", "that")
                and word
                and not self._gives_it(_Said(self._focus), self._last_text + text[: m.start()])
            ):
                continue
            if m.groupdict().get("subject") and word and p.BUT.match(text[_place(m)[1] :]):
                continue
            soft = next((m[g] for g in ("right", "wrong") if m[g]), "") or ""
            if subject in ("it", "this", "that") and p.SOFT.fullmatch(soft):
                continue
            if not subject and (has_claims or p.OTHER_SUBJECT.match(text)):
                continue
            if ((word and subject in ("", "it")) or subject in ("this", "that")) and self._is_sum(
                text[: m.start()] or self._last_text
            ):
                continue
            self._pending = (self._focus, word, s.quote, self._read)
        if (mark := p.LAST_MARK.search(text)) and not p.PART.search(text):
            if self._is_sum(text[: mark.start(1)] or self._last_text):
                return
            self._pending = (self._focus, p.MARKS[mark[1]], s.quote, self._read)

    def _is_sum(self, before: str) -> bool:
        """Whether a text ends in a number that is not the answer of the attempts in view."""
        last = before.rstrip(" ,.:;(—–→✓$。，：")
        value = re.search(r"‹\d+›$", last)
        return not self._gives_it(_Said(self._focus), value[0]) if value else last[-1:].isdigit()

    def _read_zh(self, s: _Sentence, text: str, said: list[_Said]) -> None:
        if p.ZH_CONDITION.search(text):
            return
        origin = p.ZH_ORIGIN.search(text)
        if (
            origin
            and self._gives_it(_Said(self._focus), origin["own"])
            and not p.ZH_HEDGE.search(text)
        ):
            self._pending = (self._focus, False, s.quote, self._read)
        clauses = [c.strip() for c in p.ZH_CLAUSE.split(text) if c.strip(" 。*")]
        previous = ""
        for i, clause in enumerate(clauses):
            refs = re.findall(r"«(\d+)»", clause)
            if refs:
                self._start_block(said[int(refs[0])].numbers, self._is_heading)
                self._read = 1
            m = p.ZH_CLAIM.fullmatch(clause) or p.ZH_LISTED.fullmatch(clause)
            if m and not p.ZH_HEDGE.search(clause):
                word = bool(m["right"]) ^ bool(m.groupdict().get("not"))
                if m["who"]:
                    who = self._who(m["who"], "", 0, said)
                    if who:
                        self._record(who, word, s.quote)
                        self._pending = None
                elif (
                    self._focus
                    and (not p.ZH_PART.search(previous) or re.search("答案|结果|‹", clause))
                    and not self._is_nod(clause, i, clauses)
                    and not (word and self._is_sum(previous))
                ):
                    self._pending = (self._focus, word, s.quote, self._read)
            previous = clause
        if self._focus and (mark := p.LAST_MARK.search(text)):
            self._pending = (self._focus, p.MARKS[mark[1]], s.quote, self._read)

    @staticmethod
    def _is_nod(clause: str, place: int, clauses: list[str]) -> bool:
        """Whether a word is one that the writer says to itself: "对，", "没错。"."""
        return clause.strip("。！! ") in (
            "对",
            "没错",
            "没有错",
            "不对",
            "错",
            "没有问题",
            "没问题",
        ) and (place == 0 or place < len(clauses) - 1)


def _word(cell: str) -> bool | None:
    """The judgement at the start of a cell of a table."""
    if p.HAN.search(cell):
        m = p.ZH_CLAIM.match(cell)
        return None if not m or p.ZH_HEDGE.search(cell) else bool(m["right"]) ^ bool(m["not"])
    if mark := p.MARK.match(cell):
        return p.MARKS[mark[0]]
    m = p.BARE.match(re.split(r"[(,:;.—–]| - ", cell)[0])
    return None if not m or p.HEDGE.search(cell) else _polarity(m)


def _polarity(m: re.Match[str]) -> bool | None:
    """Whether the words of a match say right; None if they say neither."""
    g = m.groupdict()
    is_not = bool(g.get("not")) ^ bool(g.get("cannot"))
    if g.get("answer") is not None:
        return False if is_not else None
    if g.get("fails") or g.get("does") or g.get("own") or g.get("found"):
        return not (g.get("fails") or g.get("bad"))
    return bool(g["right"]) ^ is_not


def _place(m: re.Match[str]) -> tuple[int, int]:
    """Where the subject of a judgement starts, and where its word ends."""
    spans = [m.span(name) for name, words in m.groupdict().items() if words is not None]
    return min(spans)[0], max(end for _, end in spans)


def _is_clear(text: str, start: int, end: int) -> bool:
    """Whether no hedge, condition or plan qualifies the words at a place."""
    begin = max((m.end() for m in p.CLAUSE.finditer(text, 0, start)), default=0)
    after = p.CLAUSE.split(text[end:], maxsplit=1)[0]
    return not (
        p.HEDGE.search(text[begin:end])
        or p.CONDITION.search(text[:end])
        or p.CONDITION.search(after)
        or p.HEDGE.search(after)
    )


def _opens_case(before: str, text: str) -> bool:
    """Whether a sentence goes on with a case that the sentence before it supposes."""
    supposes = (
        before.endswith(("?", "？")) or p.CONDITION.search(before) or p.ZH_CONDITION.search(before)
    )
    return bool(
        supposes
        and re.match(r"\W*(?:so )?(?:then|in (?:that|this|which) case)\b|那么?", text, re.I)
    )
