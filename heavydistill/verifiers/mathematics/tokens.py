r"""Splits a final answer into tokens and finds its brackets.

A token is a LaTeX command, a number, a word of letters, ``\text{...}``, ``\begin{...}``, a blank
or a single character. Unicode variants, ``\left``, ``\displaystyle``, fonts and thousands marks
are removed. Everything here takes linear time and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from heavydistill.verifiers.normal import plain

Tokens = tuple[str, ...]

_SAME_NAMES = "sin cos tan cot sec csc sinh cosh tanh log exp"
FUNCTIONS = {name: name for name in _SAME_NAMES.split()} | {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "ln": "log",
}
"""Maps the names of supported functions to their names in SymPy."""


def _pairs(table: str) -> dict[str, str]:
    words = table.split()
    return dict(zip(words[::2], words[1::2], strict=True))


# Maps Unicode characters to the LaTeX commands as which they are read.
_SIGNS = _pairs("""
    × times  ⋅ cdot  · cdot  ∙ cdot  \u2062 cdot  ÷ div  √ surd  π pi  ∞ infty  ≤ le  ≥ ge  ≠ ne
    ≈ approx  ± pm  ∓ mp  ∪ cup  ∩ cap  ∈ in  ∅ emptyset  ∖ setminus  … ldots
    ⌊ lfloor  ⌋ rfloor  ⌈ lceil  ⌉ rceil  ° degree  º degree
""")
_OTHER_SIGNS = {"ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "\u2061": ""} | _pairs("∗ * ′ ' ， , 、 ,")
_SYMBOLS = str.maketrans({sign: rf"\{name} " for sign, name in _SIGNS.items()} | _OTHER_SIGNS)
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_FONT = re.compile(
    r"\\(?:mathbf|mathit|boldsymbol|bm|mathsf|(?:text|display|script)style|large|Large|huge"
    r"|mathstrut|limits|nolimits|[bB]igg?[lr]?|left|right|middle)(?![a-zA-Z])\.?"
)
_ROW_END = re.compile(r"\\\\(?:\s*\[-?[0-9.]+(?:pt|em|ex|mm|cm|in)\])?")
_NESTED_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_TEXT = re.compile(
    r"\\(?:text[a-z]{0,2}|mathrm|mathtt|mbox|hbox|operatorname\*?|rm)\s*\{((?:[^{}]|\{-?[0-9]\})*)\}"
)
# A formula inside an answer, as in "$1$, $2$"; "$4 and $5" are two amounts of money.
_DOLLARS = re.compile(r"(?<!\\)\$(?=[^\s$])([^$]*[^\s$\\])\$(?!\d)")
_REWRITTEN = (
    (re.compile(r"\\mathbb\s*([A-Z])"), r"\\mathbb{\1}"),
    (re.compile(r"\\(?:text)?color\s*\{[a-zA-Z]+\}"), ""),
    (re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    (re.compile(r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}"), r"\\frac{\1}{\2}"),
    (re.compile(r"(?<=[0-9])\s*x\s*(?=10\s*\^)"), r"\\cdot "),
    # v^2_0 equals v_0^2.
    (re.compile(r"\^(\w|\{[^{}]*\})_(\w|\{[^{}]*\})"), r"_\2^\1"),
)
# Commands that have the same meaning.
_COMMANDS = _pairs("""
    dbinom binom  tbinom binom  leq le  leqslant le  geq ge  geqslant ge  neq ne  lg log
    varnothing emptyset  dots ldots  cdots ldots  dotsc ldots  vdots ldots  land wedge  lor vee
    backslash setminus  smallsetminus setminus  implies Rightarrow  circ degree  lbrace {  rbrace }
""")
_PLAIN = _pairs("lt < gt > lbrack [ rbrack ] lvert | rvert | vert | langle ( rangle ) ast *")
_RENAMED = {rf"\{name}": rf"\{usual}" for name, usual in _COMMANDS.items()} | {
    rf"\{name}": sign for name, sign in _PLAIN.items()
}
_SPACES = frozenset((r"\quad", r"\qquad", r"\hspace", r"\phantom", r"\enspace", r"\thinspace"))
_REPEATING = re.compile(
    r"(?<![0-9.,])([0-9]*)\.([0-9]{0,20})\\(?:overline|bar)\s*\{([0-9]{1,20})\}(?![0-9])"
)
_TOKEN = re.compile(
    r"\\(?:begin|end)\s*\{[a-zA-Z]+\*?\}|\\text\{[^{}]*\}|\\mathbb\s*\{?[A-Z]\}?"
    r"|\\(?:[a-zA-Z]+|[^a-zA-Z])|[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[a-zA-Z]+|\s+|\.\.\.|[<>!]=|.",
    re.DOTALL,
)
_THOUSANDS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9]|,[0-9])")
_OPENS = frozenset(("(", "[", r"\{", "{", r"\lfloor", r"\lceil"))
_CLOSES = frozenset((")", "]", r"\}", "}", r"\rfloor", r"\rceil"))


def cleaned(answer: str) -> str:
    r"""Normalise an answer to plain LaTeX without typography; row ends ``\\`` become ``\cr``."""
    text = _DOLLARS.sub(r"\1", answer)
    text = _RAISED.sub(lambda raised: f"^{{{plain(raised[0]).replace('^', '')}}}", text)
    text = text.translate(_SYMBOLS)
    text = _ROW_END.sub(r"\\cr ", text)
    text = plain(_NESTED_BOX.sub("", _FONT.sub("", text))).translate(_SYMBOLS)
    text = plain(_TEXT.sub(lambda match: _as_text(match[1]), text))
    for notation, usual in _REWRITTEN:
        text = notation.sub(usual, text)
    return _REPEATING.sub(_as_fraction, text)


def _as_fraction(decimal: re.Match[str]) -> str:
    r"""A repeating decimal such as ``0.1\overline{6}`` as a fraction."""
    whole, fixed, period = decimal[1] or "0", decimal[2], decimal[3]
    nines = "9" * len(period) + "0" * len(fixed)
    digits = int(whole + fixed + period) - int(whole + fixed)
    return rf"(\frac{{{digits}}}{{{nines}}})"


def _as_text(content: str) -> str:
    inner = " ".join(content.replace("{", "").replace("}", "").split())
    if inner in ("e", "i"):
        return inner
    return f" {inner} " if re.fullmatch(r"[0-9.,/+-]*", inner) else rf"\text{{{inner}}}"


def tokens_of(text: str) -> Tokens:
    """Split a ``cleaned`` answer into tokens; blanks are tokens too."""
    tokens: list[str] = []
    depth = at = 0
    while at < len(text):
        match = (_THOUSANDS.match(text, at) if depth == 0 else None) or _TOKEN.match(text, at)
        assert match is not None  # the last alternative matches any character
        at = match.end()
        token = _RENAMED.get(match[0], match[0])
        if token in _SPACES or token.isspace():
            token = " "
        if token in ("(", "[", r"\{"):
            depth += 1
        elif token in (")", "]", r"\}"):
            depth = max(0, depth - 1)
        if not (token == " " and tokens and tokens[-1] == " "):
            tokens.append(token)
    return tuple(tokens)


def stripped(tokens: Sequence[str]) -> Tokens:
    """The tokens without blanks at both ends and without braces around all of them."""
    inner = tuple(tokens)
    while True:
        if inner[:1] == (" ",):
            inner = inner[1:]
        if inner[-1:] == (" ",):
            inner = inner[:-1]
        if not (inner[:1] == ("{",) and closing(inner, 0) == len(inner) - 1):
            return inner
        inner = inner[1:-1]


def closing(tokens: Sequence[str], opening: int) -> int | None:
    """The index of the bracket, of any kind, that closes the bracket at ``opening``, or None."""
    for at, depth in depths(tokens[opening:]):
        if at and depth == 0:
            return opening + at
    return None


def depths(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (position, number of open brackets after it); environments count as brackets."""
    depth = 0
    for at, token in enumerate(tokens):
        if token in _OPENS or token.startswith(r"\begin"):
            depth += 1
        elif token in _CLOSES or token.startswith(r"\end"):
            depth -= 1
        yield at, depth


def split(tokens: Sequence[str], separators: frozenset[str]) -> tuple[list[Tokens], list[str]]:
    """Split at separators outside all brackets; returns (the parts, the separators)."""
    parts: list[Tokens] = []
    between: list[str] = []
    start = 0
    for at, depth in depths(tokens):
        if depth == 0 and tokens[at] in separators:
            parts.append(stripped(tokens[start:at]))
            between.append(tokens[at])
            start = at + 1
    parts.append(stripped(tokens[start:]))
    return parts, between


def deepest(text: str) -> int:
    """Maximum nesting depth of brackets of any kind, with or without backslashes."""
    depth = most = 0
    for bracket in re.finditer(r"[({\[]|[)}\]]", text):
        depth += 1 if bracket[0] in "({[" else -1
        most = max(most, depth)
    return most
