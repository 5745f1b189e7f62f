"""The verifier ``instructions``: whether a response follows every instruction of its problem.

``verifier_args`` name the instructions:

    {"instruction_id_list": ["keywords:existence", "punctuation:no_comma"],
     "kwargs": [{"keywords": ["river"]}, {}],
     "mode": "strict"}

The lists are as in google/IFEval and allenai/IFBench_test: one object of arguments for each id, in
which null means absent; a list may also be given as JSON text, as in argilla/ifeval-like-data. Ids
may begin with ``en:``.
``mode`` is ``strict`` by default. In mode ``loose`` an instruction also counts as followed if the
response follows it without its first line, its last line or both, or any of these without
asterisks, so that an introduction such as "Sure, here it is:" and bold type are tolerated. The
score is the share of followed instructions; the evidence lists for each whether it is followed
(null: unknown). The prompt itself is not read, and there is no reference.

Verdicts, by reason:

    correct    followed      every instruction is followed
    incorrect  not_followed  at least one is not followed
    undecided  cannot_tell   at least one cannot be determined, and the others are followed
    undecided  too_long      the response has more than ``MOST_CHARACTERS``

Not covered: whether the response answers the prompt; other instructions; two of IFBench's
(``ifbench.MISSING``).
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from functools import lru_cache
from importlib import metadata
from typing import Any

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.text import languages
from heavydistill.verifiers.base import Decision, Verifier
from heavydistill.verifiers.instructions import checks, ifbench

KINDS = checks.KINDS | ifbench.KINDS

MOST_CHARACTERS = 200_000
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)++")
COLUMNS = ("instruction_id_list", "kwargs")
MODES = ("strict", "loose")


class Instructions(Verifier):
    """The verifier ``instructions``, described in this module's docstring."""

    name = "instructions"
    version = f"3-langdetect-{metadata.version('langdetect')}"
    argument_columns = COLUMNS
    needs_reference = False
    # The prompt wordings of other domains ask for a box, which the instructions may forbid.
    domain = "general"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        if len(text) > MOST_CHARACTERS:
            return Decision("undecided", "too_long")
        # Blanks before the first line may be part of the layout.
        return _BLANK_LINES.sub("", text.replace("\r\n", "\n")).rstrip()

    def decide(self, problem: Problem, candidate: str) -> Decision:
        demands, is_loose = _demands(problem.verifier_args)
        texts = variants(candidate) if is_loose else [candidate]
        met: dict[str, bool | None] = {}
        for id, values in demands:
            name, count = id, 1
            while name in met:
                count += 1
                name = f"{id} ({count})"
            met[name] = _is_met_by_any(id, values, texts)
        evidence = json.dumps(met)
        score = sum(map(bool, met.values())) / len(met)
        if all(met.values()):
            return Decision("correct", "followed", score=score, evidence=evidence)
        if False in met.values():
            return Decision("incorrect", "not_followed", score=score, evidence=evidence)
        return Decision("undecided", "cannot_tell", score=score, evidence=evidence)

    def prepare(self, config: Verifying) -> None:
        languages.factory()

    def check_reference(self, problem: Problem) -> str | None:
        try:
            _demands(problem.verifier_args)
        except ValueError as error:
            return str(error)
        return None


def variants(text: str) -> list[str]:
    """The variants of ``text``; in loose mode, one of them must follow the instruction.

    At most eight, none blank: with or without the first line, the last line and asterisks.
    """
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    plain = [part.replace("*", "") for part in cut]
    return [part for part in dict.fromkeys(cut + plain) if part.strip()]


def _is_met_by_any(id: str, values: list[Any], texts: list[str]) -> bool | None:
    unsure = False
    for text in texts:
        met = KINDS[id].check(text, *values)
        if met:
            return True
        unsure = unsure or met is None
    return None if unsure else False


@lru_cache(maxsize=256)
def _demands(verifier_args: str) -> tuple[list[tuple[str, list[object]]], bool]:
    """Read ``verifier_args``: (id, arguments) of each instruction, and whether the mode is loose.

    Raises:
        ValueError: The arguments are malformed; the message names the fault and the fix.
    """
    args = json.loads(verifier_args)
    if not isinstance(args, dict) or not {*COLUMNS} <= args.keys() <= {*COLUMNS, "mode"}:
        raise ValueError(
            'verifier_args of instructions take "instruction_id_list", "kwargs" and, if wanted, '
            f'"mode", not {verifier_args}'
        )
    ids, kwargs, mode = args["instruction_id_list"], args["kwargs"], args.get("mode")
    if not isinstance(ids, list) or not ids:
        raise ValueError(f"instruction_id_list takes a list with at least one id, not {ids!r}")
    if isinstance(kwargs, str):
        with contextlib.suppress(ValueError, RecursionError):  # other text is rejected below
            kwargs = json.loads(kwargs)
    if not isinstance(kwargs, list) or len(kwargs) != len(ids):
        raise ValueError(
            f"kwargs takes a list of {len(ids)} objects, one for each id in instruction_id_list, "
            f"not {kwargs!r}"
        )
    if mode is not None and mode not in MODES:
        raise ValueError(f'"mode" takes {" or ".join(MODES)}, not {mode!r}')
    return list(map(_demand, ids, kwargs)), mode == "loose"


def _demand(id: Any, given: object) -> tuple[str, list[object]]:
    plain = id.removeprefix("en:") if isinstance(id, str) else ""
    if needed := ifbench.MISSING.get(plain):
        raise ValueError(
            f"instruction_id_list: {plain} is not checked, because that needs {needed}; leave the "
            "row out"
        )
    if plain not in KINDS:
        near = difflib.get_close_matches(plain, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(KINDS)}"
        raise ValueError(f"instruction_id_list: there is no instruction {id!r}; {hint}")
    if given is not None and not isinstance(given, dict):
        raise ValueError(f"kwargs of {plain} takes an object, not {given!r}")
    present = {name: value for name, value in (given or {}).items() if value is not None}
    readers = KINDS[plain].arguments
    takes = ", ".join(readers) or "no arguments"
    for name in sorted(present.keys() ^ readers.keys()):
        fault = f"{name} is missing" if name in readers else f"there is no {name!r}"
        raise ValueError(f"kwargs of {plain}: {fault}; it takes {takes}")
    values: dict[str, Any] = {}
    for name, read in readers.items():
        try:
            values[name] = read(present[name])
        except ValueError as error:
            raise ValueError(
                f"kwargs of {plain}: {name} takes {error}, not {present[name]!r}"
            ) from None
    if "nth_paragraph" in values and values["nth_paragraph"] > values["num_paragraphs"]:
        raise ValueError(f"kwargs of {plain}: nth_paragraph is above num_paragraphs; lower it")
    if values.get("min_words", 0) > values.get("max_words", 0):
        raise ValueError(f"kwargs of {plain}: min_words is above max_words; lower it")
    return plain, list(values.values())
