r"""Cuts a final answer into tokens and finds its brackets.

A token is a LaTeX command, a number, a word of letters, ``\text{...}``, ``\begin{...}``, a blank
or a single character. Unicode variants, ``\left``, ``\displaystyle``, fonts and thousands marks
are gone. Everything here is linear in the length of the text and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from heavydistill.verifiers.normal import plain

# --- The signs and names that ``formula`` reads. Our name for a function, and that of SymPy:
FUNCTIONS = {
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "cot": "cot",
    "sec": "sec",
    "csc": "csc",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "ln": "log",
    "log": "log",
    "exp": "exp",
}
ANGLE_FUNCTIONS = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
INVERSES = {"sin": "asin", "cos": "acos", "tan": "atan"}
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu "
    "nu xi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi "
    "Sigma Phi Psi Omega ell hbar"
)
GREEK = frozenset(_GREEK_NAMES.split())
_HEAVY_NAMES = r"\sum \prod \int \iint \oint \lim \limsup \liminf \bigcup \bigcap \sup \inf"
HEAVY = frozenset(_HEAVY_NAMES.split())
_NO_PRODUCT_NAMES = (
    "is as at an or and mod for gcd lcm max min in of to by if no th st nd rd per not the all "
    "any are was has det tr"
)
NO_PRODUCT = frozenset(_NO_PRODUCT_NAMES.split())
LETTERS_OF_FUNCTIONS = frozenset("fghFGHPQ")
ACCENTS = frozenset(
    (r"\vec", r"\hat", r"\bar", r"\dot", r"\ddot", r"\tilde", r"\overline", r"\overrightarrow")
)
DEGREES = (("^", "{", r"\degree", "}"), ("^", r"\degree"), (r"\degree",))
NUMBER = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+")
TIMES = frozenset((r"\cdot", r"\times", "*"))
OVER = frozenset(("/", r"\div"))
PAIRS = {"(": ")", "[": "]", "{": "}"}
END = ""
_OPENING = frozenset(
    ("(", "[", "{", r"\lfloor", r"\lceil", r"\frac", r"\sqrt", r"\surd", r"\binom", r"\infty")
)


def starts_factor(token: str) -> bool:
    """Whether a factor can begin with a token, bars aside."""
    is_function = token.lstrip("\\") in FUNCTIONS
    return token in _OPENING or token in ACCENTS or is_function or continues_argument(token)


def continues_argument(token: str) -> bool:
    """Whether a token belongs to a function's argument without brackets: ``2x`` in ``sin 2x``."""
    is_greek = token.startswith("\\") and (token[1:] in GREEK or token == r"\pi")
    is_name = token.isalpha() and token not in FUNCTIONS
    return is_greek or is_name or bool(NUMBER.fullmatch(token))


Tokens = tuple[str, ...]

# --- Tokens.
_SYMBOLS = str.maketrans(
    {
        "×": r"\times ",
        "⋅": r"\cdot ",
        "·": r"\cdot ",
        "∙": r"\cdot ",
        "∗": "*",
        "÷": r"\div ",
        "√": r"\surd ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "±": r"\pm ",
        "∓": r"\mp ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "ℝ": r"\mathbb{R}",
        "ℤ": r"\mathbb{Z}",
        "∖": r"\setminus ",
        "…": r"\ldots ",
        "⌊": r"\lfloor ",
        "⌋": r"\rfloor ",
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "\u2032": "'",
        "\u00b0": r"\degree ",
        "\u00ba": r"\degree ",
        "\uff0c": ",",
        "\u3001": ",",
        "\u2061": "",
        "\u2062": r"\cdot ",
    }
)
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_FONT = re.compile(
    r"\\(?:mathbf|mathit|boldsymbol|bm|mathsf|textstyle|displaystyle|scriptstyle|large|Large|huge"
    r"|mathstrut|limits|nolimits|Big|big|Bigg|bigg|Bigl|Bigr|bigl|bigr|biggl|biggr|Biggl|Biggr"
    r"|left|right|middle)(?![a-zA-Z])\.?"
)
_ROW_END = re.compile(r"\\\\(?:\s*\[-?[0-9.]+(?:pt|em|ex|mm|cm|in)\])?")
_NESTED_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])")
_TEXT = re.compile(
    r"\\(?:text[a-z]{0,2}|mathrm|mathtt|mbox|hbox|operatorname\*?|rm)\s*\{([^{}]*)\}"
)
# A formula inside an answer, as in "$1$, $2$"; "$4 and $5" are two amounts of money.
_DOLLARS = re.compile(r"(?<!\\)\$(?=[^\s$])([^$]*[^\s$\\])\$(?!\d)")
# Units that are no names: \ \Omega, \mu\mathrm{m}.
_UNITS = (
    (
        re.compile(r"(?:\\[ ,;:]|~|(?<=\d) )\s*\\Omega(?![a-zA-Z])|\\(?:mathrm|text)\{\\Omega\}"),
        "ohm",
    ),
    (re.compile(r"\\mu\s*\\(?:mathrm|text|rm)\s*\{\s*m\s*\}|\\(?:mathrm|text)\{\\mu\s*m\}"), "μm"),
)
_REWRITTEN = (
    (re.compile(r"\\mathbb\s*([A-Z])"), r"\\mathbb{\1}"),
    (re.compile(r"\\(?:text)?color\s*\{[a-zA-Z]+\}"), ""),
    (re.compile(r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}"), r"\\binom{\1}{\2}"),
    # v^2_0 is v_0^2.
    (re.compile(r"\^(\w|\{[^{}]*\})_(\w|\{[^{}]*\})"), r"_\2^\1"),
)
_RENAMED = {
    r"\dbinom": r"\binom",
    r"\tbinom": r"\binom",
    r"\leq": r"\le",
    r"\leqslant": r"\le",
    r"\geq": r"\ge",
    r"\geqslant": r"\ge",
    r"\lt": "<",
    r"\gt": ">",
    r"\neq": r"\ne",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\lbrack": "[",
    r"\rbrack": "]",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\vert": "|",
    r"\langle": "(",
    r"\rangle": ")",
    r"\varnothing": r"\emptyset",
    r"\dots": r"\ldots",
    r"\cdots": r"\ldots",
    r"\dotsc": r"\ldots",
    r"\vdots": r"\ldots",
    r"\land": r"\wedge",
    r"\lor": r"\vee",
    r"\backslash": r"\setminus",
    r"\smallsetminus": r"\setminus",
    r"\implies": r"\Rightarrow",
    r"\circ": r"\degree",
    r"\ast": "*",
    r"\lg": r"\log",
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
    r"""An answer as LaTeX without typography; row ends ``\\`` become ``\cr``."""
    text = _DOLLARS.sub(r"\1", answer)
    for notation, unit in _UNITS:
        text = notation.sub(rf"\\text{{{unit}}}", text)
    text = _RAISED.sub(lambda raised: f"^{{{plain(raised[0]).replace('^', '')}}}", text)
    text = text.translate(_SYMBOLS)
    text = _ROW_END.sub(r"\\cr ", text)
    text = plain(_NESTED_BOX.sub("", _FONT.sub("", text))).translate(_SYMBOLS)
    text = plain(_TEXT.sub(lambda match: _as_text(match[1]), text))
    for notation, usual in _REWRITTEN:
        text = notation.sub(usual, text)
    return _REPEATING.sub(_as_fraction, text)


def _as_fraction(decimal: re.Match[str]) -> str:
    r"""``0.1\overline{6}`` as the fraction that it is."""
    whole, fixed, period = decimal[1] or "0", decimal[2], decimal[3]
    nines = "9" * len(period) + "0" * len(fixed)
    digits = int(whole + fixed + period) - int(whole + fixed)
    return rf"(\frac{{{digits}}}{{{nines}}})"


def _as_text(content: str) -> str:
    inner = " ".join(content.split())
    if not inner:
        return " "
    if inner in ("e", "i"):
        return inner
    if re.fullmatch(r"[0-9.,/+-]+", inner):
        return f" {inner} "
    return rf"\text{{{inner}}}"


def tokens_of(text: str) -> Tokens:
    """The tokens of a ``cleaned`` answer, blanks included."""
    found: list[str] = []
    depth = 0
    at = 0
    while at < len(text):
        grouped = _THOUSANDS.match(text, at) if depth == 0 else None
        match = grouped or _TOKEN.match(text, at)
        assert match is not None  # the last alternative takes any character
        token = match[0]
        at = match.end()
        token = _RENAMED.get(token, token)
        if token in _SPACES or token.isspace():
            token = " "
        if token in ("(", "[", r"\{"):
            depth += 1
        elif token in (")", "]", r"\}"):
            depth = max(0, depth - 1)
        if not (token == " " and found and found[-1] == " "):
            found.append(token)
    return tuple(found)


def stripped(tokens: Sequence[str]) -> Tokens:
    """Tokens without blanks at the ends and without braces around the whole."""
    first, last = 0, len(tokens)
    while True:
        while first < last and tokens[first] == " ":
            first += 1
        while first < last and tokens[last - 1] == " ":
            last -= 1
        inner = tokens[first:last]
        if not (inner and inner[0] == "{" and closing(inner, 0) == len(inner) - 1):
            return tuple(inner)
        first, last = first + 1, last - 1


def closing(tokens: Sequence[str], opening: int) -> int | None:
    """Where the bracket at ``opening`` is closed, whatever the kinds of the two brackets."""
    for at, depth in depths(tokens[opening:]):
        if at and depth == 0:
            return opening + at
    return None


def depths(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each position with how many brackets are open after it; environments count as brackets."""
    depth = 0
    for at, token in enumerate(tokens):
        if token in _OPENS or token.startswith(r"\begin"):
            depth += 1
        elif token in _CLOSES or token.startswith(r"\end"):
            depth -= 1
        yield at, depth


def split(tokens: Sequence[str], separators: frozenset[str]) -> tuple[list[Tokens], list[str]]:
    """The parts between separators outside all brackets, and those separators."""
    parts: list[Tokens] = []
    between: list[str] = []
    start = 0
    before = 0
    for at, depth in depths(tokens):
        if depth == 0 and before == 0 and tokens[at] in separators:
            parts.append(stripped(tokens[start:at]))
            between.append(tokens[at])
            start = at + 1
        before = depth
    parts.append(stripped(tokens[start:]))
    return parts, between


def deepest(text: str) -> int:
    """Most brackets of any kind open at once, backslashes or not."""
    depth = most = 0
    for bracket in re.finditer(r"[({\[]|[)}\]]", text):
        depth += 1 if bracket[0] in "({[" else -1
        most = max(most, depth)
    return most
