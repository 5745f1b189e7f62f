"""Turns a row with options into a lettered question with shuffled options.

Options are a list, ``{"text": [...], "label": [...]}`` or ``{"A": ..., "B": ...}``; ``["A) 5", "B)
6"]`` is a list of 5 and 6. They are shown as ``A) ...`` below the text. The order is random,
determined by the seed and the problem's id, because the order in the dataset may reveal the right
option. All trajectories of a problem see the same order, because votes compare letters and a cache
shows several attempts.

A reference names an option by the first of these forms that applies:

    its label       if the options have labels, exactly as written there
    a number        the index in the list, from 0; if the options are numbers, possibly the option
                    with this value
    a letter        ``C``, ``c``, ``(C)``, ``C.``: the position in the list; also before the
                    option's text, ``C. 42``
    its text        differences in blanks are ignored

A reference that could mean different options by these forms is unfit.

Options that refer to other options ("all of the above", "both A and B") and options that the text
already lists keep the order of the dataset; the arguments of the verifier record this.

Not covered: several right options; letters that the question itself mentions; 1-based numbers,
which look like 0-based ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from string import ascii_uppercase
from typing import Any, NamedTuple

from heavydistill.errors import ProblemsError
from heavydistill.schema import Problem
from heavydistill.verifiers.choice.reading import FEWEST_OPTIONS, MOST_OPTIONS, SPEAKS_OF_OTHERS

_LETTER = re.compile(r"\(?([A-Za-z])[).]?")
_MARK = "[).:、）．：]"
_OWN_LABEL = re.compile(rf"[(（]?(?P<letter>[A-Za-z]){_MARK}\s*(?P<text>\S.*)", re.DOTALL)
_CHINESE = re.compile("[\u4e00-\u9fff]")
_ASKS = "Answer with the letter of the right option."
_ASKS_IN_CHINESE = "请用正确选项的字母作答。"


class UnfitOptions(ProblemsError):
    """The options or the reference cannot be used; ``what`` ends with the fix."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "Correct the row or leave it out.")


class Lettered(NamedTuple):
    """A question with lettered options, as a model sees it."""

    text: str  # Text that a model reads
    reference: str  # Letter of the right option
    verifier_args: str
    """Arguments of the verifier ``choice``: ``options`` as shown; ``order``, the index of each
    option in the dataset, from 0; ``order_kept`` if the dataset's order had to be kept."""


def lettered(
    text: str, options: object, reference: Any, problem_id: str, seed: int, keep_order: bool
) -> Lettered:
    """Shuffle and letter the options of a question; ``problem_id`` and ``seed`` determine the
    order.

    ``options`` and ``reference`` are the values of the row's columns. Raises UnfitOptions.
    """
    labels, raw = _read(options)
    shown = _checked(_without_labels(raw))
    right = _right(reference, labels, raw, shown)
    flat = _flat(text)
    is_listed = all(
        re.search(rf"{letter}{_MARK} ?{re.escape(_flat(option))}(?!\w)", flat)
        for letter, option in zip(ascii_uppercase, shown, strict=False)
    )
    must_keep = is_listed or any(map(SPEAKS_OF_OTHERS.search, shown))
    order = list(range(len(shown)))
    if not (must_keep or keep_order):
        order.sort(
            key=lambda place: hashlib.sha256(f"{seed}\0{place}\0{problem_id}".encode()).digest()
        )
    arguments: dict[str, Any] = {"options": [shown[place] for place in order], "order": order}
    if must_keep:
        arguments["order_kept"] = True
    if not is_listed:
        pairs = zip(ascii_uppercase, arguments["options"], strict=False)
        lines = [f"{letter}) {option}" for letter, option in pairs]
        asks = _ASKS_IN_CHINESE if _CHINESE.search(text) else _ASKS
        text = "\n".join([text.strip(), "", *lines, "", asks])
    args = json.dumps(arguments, ensure_ascii=False)
    return Lettered(text, ascii_uppercase[order.index(right)], args)


def orders_kept(problems: Iterable[Problem]) -> int:
    """Number of problems whose options had to keep the order of the dataset."""
    return sum(
        problem.verifier == "choice" and "order_kept" in json.loads(problem.verifier_args)
        for problem in problems
    )


def _read(options: object) -> tuple[list[str], list[object]]:
    """Split options into (labels, options); the labels are empty if there are none."""
    if isinstance(options, list):
        return [], options
    if not isinstance(options, dict):
        raise UnfitOptions(
            f"the options are {type(options).__name__}, not a list; write a list of texts, "
            '{"label": [...], "text": [...]} or {"A": ..., "B": ...}'
        )
    if options.keys() != {"label", "text"}:
        given = {str(label): text for label, text in options.items() if text is not None}
        return [*given], [*given.values()]
    labels, texts = options["label"], options["text"]
    if isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts):
        return [str(label) for label in labels], texts
    raise UnfitOptions("label and text of the options are not two lists of the same length")


def _without_labels(options: list[object]) -> list[object]:
    """Remove letters: ``["A) 5", "B) 6"]`` becomes ``["5", "6"]``; other lists are unchanged."""
    texts = []
    for letter, option in zip(ascii_uppercase, options, strict=False):
        own = _OWN_LABEL.fullmatch(option.strip()) if isinstance(option, str) else None
        if not own or own["letter"].upper() != letter:
            return options
        texts.append(own["text"])
    return texts or options


def _as_text(option: object) -> str | None:
    """Convert an option to text; None if it is neither text nor a number."""
    if isinstance(option, str):
        return option.strip()
    if isinstance(option, int | float | Decimal) and not isinstance(option, bool):
        return str(option)
    return None


def _checked(options: list[object]) -> list[str]:
    """Convert the options to texts; raises UnfitOptions if any are empty or equal."""
    if not FEWEST_OPTIONS <= len(options) <= MOST_OPTIONS:
        raise UnfitOptions(
            f"there are {len(options)} options; give {FEWEST_OPTIONS} to {MOST_OPTIONS}"
        )
    seen: dict[str, int] = {}
    texts = []
    for number, option in enumerate(options, 1):
        text = _as_text(option)
        if text is None:
            raise UnfitOptions(
                f"option {number} is neither text nor a number; write it as a string"
            )
        if not text:
            raise UnfitOptions(f"option {number} is empty; fill it in or take it out")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UnfitOptions(f"option {number} holds half a character (a lone surrogate)")
        if (other := seen.setdefault(_flat(text), number)) != number:
            raise UnfitOptions(f"options {other} and {number} are the same: {text[:80]!r}")
        texts.append(text)
    return texts


def _right(reference: object, labels: list[str], raw: list[object], texts: list[str]) -> int:
    """Index, from 0, of the option that the reference names."""
    name = _as_text(reference)
    if not name:
        raise UnfitOptions(
            f"the reference {reference!r} names no option; write a letter or an option's text"
        )
    if labels.count(name) == 1:
        return labels.index(name)
    places = set()
    if isinstance(reference, str):
        places |= {place for place, text in enumerate(texts) if _flat(text) == _flat(name)}
        letter, own = _LETTER.fullmatch(name), _OWN_LABEL.fullmatch(name)
        if letter and not labels:
            places.add(ascii_uppercase.index(letter[1].upper()))
        if own and not labels:
            place = ascii_uppercase.index(own["letter"].upper())
            places |= {place} if own["text"] in texts[place : place + 1] else set()
    else:
        given = [None if isinstance(option, str) else option for option in raw]
        places |= {place for place, option in enumerate(given) if option == reference}
        if isinstance(reference, int) and not labels:
            places.add(reference)
    places = {place for place in places if 0 <= place < len(texts)}
    if len(places) == 1:
        return places.pop()
    if places:
        meant = " or ".join(repr(texts[place][:80]) for place in sorted(places))
        raise UnfitOptions(
            f"the reference {name[:80]!r} can mean the option {meant}; write the option's text"
        )
    known = "a letter, a number counted from 0 (not as text)"
    if labels:
        known = f"one of the labels {', '.join(labels)}"
    raise UnfitOptions(
        f"the reference {name[:80]!r} names none of the {len(texts)} options; write {known} or "
        "an option's text"
    )


def _flat(text: str) -> str:
    return " ".join(text.split())
