"""Finds the program in a response.

Candidates are the blocks fenced as Python (``python``, ``py3``, ``pypy3``, ``python3.11``), or, if
there are none, the blocks without a language. A block fenced as plain text (``plaintext``,
``code``) is one of these if it defines a function that the tests call, or reads standard input. The
program is the candidate that defines most of these functions, or that reads standard input if the
tests call none; of equal candidates, the last. An earlier block may be a draft, so it is prepended
only if it defines or imports names that the program uses but does not define. A fence may follow
words on its line; an unclosed block ends with the text.

If there are no fences, the text is the program if it begins like one; before a fence that only
closes, as after an opening one in the prompt, that part of the text is. What follows such a fence
is no program. If the problem has a prompt
that the program completes (HumanEval), a text that does not define the function is appended to the
prompt as its completion. If the text defines the function, only the part of the prompt before that
function is prepended.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection

_OPENS = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+(?:\{\.)?([^\s`~{}]*+)[^`]*+")
_CLOSES = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[^\w`~]*+")
_OPENS_INSIDE = re.compile(r"^```[a-z]", re.M)
_DEEPER = 4  # columns; a fence indented by this much is part of a string in the program
# Also with a version or a file name, such as ``python3.11`` and ``python:main.py``.
_PYTHON = re.compile(r"(?:i?python|py|pypy)(?![a-z2]).*")
_PLAIN = ("code", "plain", "plaintext", "text", "txt")
_BEHIND = tuple(f"```{language}" for language in ("python", "py", "python3", "py3", "pypy3"))
_BEGINS = re.compile(
    r"(?:def|class|async|import|from|@|#|if __name__|\"\"\"|''')"
    r"|[\w, ]+=[ ]*(?:int|float|list|map|input|sys|open)[(.]"
)
# Tells a program from prose on either side of a single fence.
_IS_CODE = re.compile(
    r"(?:\s|#[^\n]*\n)*+"
    r"(?:(?:def|class|async|import|from|if|for|while|with|try|return)\b|@|\"\"\"|'''|[\w.]+\("
    r"|[\w., \[\]]+(?::[^=\n]*)?=[^=])"
)
_READS = re.compile(r"\binput\b|\bstdin\b|\bopen\(0|\bread\(0")
_FUTURE = re.compile(r"^from __future__ import .*\n", re.M)

_CALLED = re.compile(
    r"(?<![\w.])([^\W\d]\w*)(?=[(\[]|\.\w)|^[ \t]*(?:@|class \w+\()([^\W\d]\w*)", re.M
)
_DEFINED = re.compile(r"^([ \t]*)(?:class +(\w+)|(?:async +)?def +(\w+)(?: *\(([^()]*)\))?)", re.M)
_IMPORTED = re.compile(r"^([ \t]*)(?:from +[\w.]+ +)?import +([^#\n]*)", re.M)
_SET = re.compile(r"(?<![\w.])([^\W\d]\w*)(?: *:[^=:\n]*)? *=(?!=)")
_WORD = re.compile(r"[^\W\d]\w*")


def program_in(text: str, names: Collection[str], prompt: str) -> str | None:
    """The program in an answer; None if there is none.

    ``names`` are the names that the tests call; ``prompt`` is the code to complete. Both may be
    empty.
    """
    blocks = _blocks(text)
    if codes := _codes(blocks, names):
        fits = _fits(codes, names)
        last = max(range(len(codes)), key=lambda index: (fits[index], index))
        return _completed(_with_parts(codes[: last + 1]), names, prompt)
    # An unfenced text may begin like a program, or continue the prompt.
    goes_on = prompt and (not prompt.endswith("\n") or text.lstrip("\n")[:1].isspace())
    is_program = not blocks and (goes_on or _BEGINS.match(text.lstrip()))
    return _completed(text, names, prompt) if is_program else None


def programs_in(text: str, names: Collection[str]) -> list[str]:
    """The blocks of an answer that could be its program, in order; empty if there is none.

    ``program_in`` uses the last one. Blocks with example calls or with parts of the program are
    excluded.
    """
    codes = _codes(_blocks(text), names)
    fits = _fits(codes, names)
    return [code for code, fit in zip(codes, fits, strict=True) if fit == max(fits)]


def _codes(blocks: list[tuple[str, str]], names: Collection[str]) -> list[str]:
    if codes := [code for language, code in blocks if _PYTHON.fullmatch(language)]:
        return codes
    plain = [(language, code) for language, code in blocks if language in ("", *_PLAIN)]
    fits = _fits([code for _, code in plain], names)
    return [code for (language, code), fit in zip(plain, fits, strict=True) if fit or not language]


def _fits(codes: list[str], names: Collection[str]) -> list[int]:
    """For each block: the number of called functions it defines, or 1 if it reads the input."""
    return [_defined(code, names) if names else bool(_READS.search(code)) for code in codes]


def _with_parts(codes: list[str]) -> str:
    """The last block, preceded by the earlier blocks that define names it uses but lacks."""
    program = codes[-1]
    missing = _called(program) - _bound(program)
    for code in reversed(codes[:-1]):
        if missing & _bound(code, at_the_top=True):
            program = f"{code}\n{program}"
            missing = (missing | _called(code)) - _bound(code)
    return program


def _called(code: str) -> set[str]:
    return {word for pair in _CALLED.findall(code) for word in pair if word}


def _bound(code: str, *, at_the_top: bool = False) -> set[str]:
    """Names that the code defines, imports or assigns; ``at_the_top``: only top-level functions,
    classes and imports."""
    names: set[str] = set()
    for indent, kind, function, parameters in _DEFINED.findall(code):
        if not (at_the_top and indent):
            names.add(kind or function)
        if not at_the_top:
            names.update(_WORD.findall(parameters))
    for indent, imported in _IMPORTED.findall(code):
        if not (at_the_top and indent):
            names.update(
                part.split()[-1].split(".")[0] for part in imported.split(",") if part.split()
            )
    return names if at_the_top else names.union(_SET.findall(code))


def _blocks(text: str) -> list[tuple[str, str]]:
    """(language, code) of each fenced block."""
    blocks, is_open = _fenced(text)
    is_odd = is_open or (blocks and _OPENS_INSIDE.search(blocks[0][1]))
    if is_odd and not blocks[0][0] and _IS_CODE.match(text):
        blocks, _ = _fenced(f"```python\n{text}")  # the first fence closes
    elif is_open and not blocks[-1][0] and not _IS_CODE.match(blocks[-1][1]):
        blocks.pop()
    return blocks


def _fenced(text: str) -> tuple[list[tuple[str, str]], bool]:
    """(language, code) of each block from an opening fence on, and whether the last is open."""
    blocks: list[tuple[str, list[str]]] = []
    fence, indent = "", ""
    # ``splitlines`` would also split at other characters, which a string may contain.
    for line in text.replace("\r\n", "\n").split("\n"):
        is_fence = line.lstrip(" \t")[:3] in ("```", "~~~")
        if fence:
            closes = _CLOSES.fullmatch(line) if is_fence else None
            room = len(indent.expandtabs(4)) + _DEEPER
            if closes and closes[2].startswith(fence) and len(closes[1].expandtabs(4)) < room:
                fence = ""
            else:
                blocks[-1][1].append(f"{line.removeprefix(indent)}\n")
        elif is_fence and (opens := _OPENS.fullmatch(line)):
            indent, fence = opens[1], opens[2]
            blocks.append((opens[3].lower(), []))
        elif line.rstrip().lower().endswith(_BEHIND):
            indent, fence = "", "```"
            blocks.append(("python", []))
    return [(language, "".join(lines)) for language, lines in blocks], bool(fence)


def _defined(code: str, names: Collection[str]) -> int:
    return sum(_definition(name).search(code) is not None for name in names)


def _definition(name: str) -> re.Pattern[str]:
    word = re.escape(name)
    return re.compile(
        rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{word}\b|^{word}[ \t]*[:=]", re.M
    )


def _completed(code: str, names: Collection[str], prompt: str) -> str:
    if not prompt:
        return textwrap.dedent(code) if code[:1].isspace() else code
    if _defined(code, names) and not _indented(code):
        head = _definition(next(iter(names))).search(prompt)
        # ``__future__`` imports have to come first.
        first = "".join(_FUTURE.findall(code))
        return first + (prompt[: head.start()] if head else "") + _FUTURE.sub("", code)
    if prompt.endswith("\n") and not _indented(code):
        code = textwrap.indent(code, "    ")
    return prompt + code


def _indented(code: str) -> bool:
    """Whether the first non-blank line is indented."""
    return code.lstrip("\r\n")[:1].isspace()
