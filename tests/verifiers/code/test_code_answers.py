import pytest
from linear import assert_linear

from heavydistill.verifiers.code.answer import program_in

PROMPT = 'import math\n\ndef helper(): return 1\n\ndef f(x):\n    """Square x."""\n'
F = "def f(x):\n    return 1\n"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\ndef f(x):\n    return 1\n```", F),
        ("```py\ndef f(x):\n    return 1\n```", F),
        ("```Python3\ndef f(x):\n    return 1\n```", F), ("```\ndef f(x):\n    return 1\n```", F),
        ("~~~python\ndef f(x):\n    return 1\n~~~", F),
        ("````python\ndef f(x):\n    return 1\n````", F),
        ("```python title=x\ndef f(x):\n    return 1\n```", F),
        ("1. So:\n   ```python\n   def f(x):\n       return 1\n   ```", F),
        ("```python\ndef f(x):\n    return 1", F),
        ("a\r\n```python\r\ndef f(x):\r\n    return 1\r\n```\r\n", F),
        (f"```python\n{F}```\nRun it:\n```python\nprint(f(2))\n```", F),
        (f"```python\n{F}```\nIt prints\n```\n4\n```", F),
        (f"```python\ndef f(x): pass\n```\nBetter:\n```python\n{F}```", F),
        (f"```python\n{F}```\nor in C:\n```c\nint f(int x);\n```", F),
        (f"```\nf(2) -> 4\n```\n```python\n{F}```", F),
        ("```python\nf = lambda x: 1\n```", "f = lambda x: 1\n"),
        ("```python\nclass f:\n    pass\n```", "class f:\n    pass\n"),
        ("```python\ng = 1\n```", "g = 1\n"), (f"So: ```python\n{F}```\nIt is right.", F),
        (f"代码如下：```python\n{F}```\n解释", F), (f"\\boxed{{```python\n{F}```}}", F),
        (f"```{{.python}}\n{F}```", F),
        ('```python\nX = """\n    ```\n"""\n' + F + "```", 'X = """\n    ```\n"""\n' + F), (F, F),
        ("import math\n" + F, "import math\n" + F), (f"```pypy3\n{F}```", F),
        (f"```python3.11\n{F}```", F), (f"```python:main.py\n{F}```", F), (f"```code\n{F}```", F),
        (f"```plaintext\n{F}```", F), (f"```text\n{F}```", F), (f"```iPython\n{F}```", F),
        (f"```code\n{F}```\nIt prints\n```plaintext\n4\n```", F),
        (f"So: ```pypy3\n{F}```\nIt is right.", F),
        (f"{F}```\nThis sums.", F), (f"# Square.\n{F}```\nThis sums.", "# Square.\n" + F),
        (f"{F}```\nThis sums. Run it:\n```python\nprint(f(2))\n```", F),
        (f"# Solution\nHere it is:\n```\n{F}", F + "\n"),
    ],
)  # fmt: skip
def test_the_program_is_found(text, program):
    assert program_in(text, ["f"], "") == program


@pytest.mark.parametrize(
    "text",
    [
        "I cannot do that.", "The answer is 4.", "```c\nint f;\n```", "``` ```", "use `f(x)`",
        "```text\n4\n```", "```python2\ndef f(x): return 1\n```", "```pycon\n>>> f(2)\n```",
        "```code\nsee above\n```", "It is done.\n```\nThis sums.",
    ],
)  # fmt: skip
def test_prose_and_other_languages_are_no_program(text):
    assert program_in(text, ["f"], "") is None
    assert program_in(text, ["f"], PROMPT) is None


def test_of_a_program_without_names_the_last_python_block_counts():
    text = "```python\nprint(1)\n```\n```python\nprint(2)\n```\nOutput:\n```\n2\n```"
    assert program_in(text, [], "") == "print(2)\n"


READS = "n = int(input())\nprint(n)\n"


@pytest.mark.parametrize("program", [READS, "print(sum(map(int, input().split())))\n"])
def test_what_follows_a_fence_that_only_closes_is_no_program(program):
    assert program_in(f"{program}```\nThis sums.", [], "") == program
    assert program_in("    return 1\n```\nThis sums.", ["f"], PROMPT) == PROMPT + "    return 1\n"


def test_plain_text_without_a_program_is_none():
    assert program_in("It prints:\n```plaintext\n3\n```", [], "") is None
    assert (
        program_in(f"```plaintext\n{READS}```\nIt prints:\n```plaintext\n3\n```", [], "") == READS
    )


@pytest.mark.parametrize(
    "after",
    [
        "```python\nprint(n)\n```", "```python\nfor i in range(n): ...\n```", "```\n3\n```",
        "```bash\npython x.py\n```",
    ],
)  # fmt: skip
def test_of_a_program_that_reads_a_piece_behind_it_is_none(after):
    assert program_in(f"```python\n{READS}```\nThe step is\n{after}", [], "") == READS


@pytest.mark.parametrize(
    ("parts", "taken"),
    [
        (["import math\n", "def f(x):\n    return math.floor(x)\n"], 2),
        (["def g(x):\n    return x\n", "def f(x):\n    return g(x)\n"], 2),
        (["import re as r\n", "def g(x):\n    return r.x\n", "def f(x):\n    return g(x)\n"], 3),
        (["from functools import cache\n", "@cache\ndef f(x):\n    return x\n"], 2),
        (["class A:\n    pass\n", "class f(A):\n    pass\n"], 2),
        (["def f(x):\n    return 0\n", "def f(x):\n    return 1\n"], 1),
        (["import math\nprint(1)\n", "import math\ndef f(x):\n    return math.pi\n"], 1),
        (["def g(x):\n    return x\n", "def f(g):\n    return g(1)\n"], 1),
        (["def g(x):\n    return x\n", "def f(x):\n    return x.g(1)\n"], 1),
        (["def g(x):\n    return x\n", "def f(x):\n    return 1\n"], 1),
        (["if 1:\n    def g(x): return x\n", "def f(x):\n    return g(1)\n"], 1),
    ],
)
def test_earlier_blocks_are_taken_only_for_what_is_missing(parts, taken):
    text = "\n".join(f"```python\n{part}```" for part in parts)
    assert program_in(text, ["f"], "") == "\n".join(parts[-taken:])


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("    return 1\n", PROMPT + "    return 1\n"),
        ("```python\n    return 1\n```", PROMPT + "    return 1\n"),
        ("```python\nreturn 1\n```", PROMPT + "    return 1\n"),
        (f"```python\n{F}```", PROMPT[: PROMPT.index("def f")] + F),
        (F, PROMPT[: PROMPT.index("def f")] + F), ("    pass\n" + F, PROMPT + "    pass\n" + F),
        ("```python\nf = abs\n```", PROMPT[: PROMPT.index("def f")] + "f = abs\n"),
        (
            f"```python\nfrom __future__ import annotations\n{F}```",
            "from __future__ import annotations\n" + PROMPT[: PROMPT.index("def f")] + F,
        ),
    ],
)  # fmt: skip
def test_a_completion_is_put_behind_its_prompt(text, program):
    assert program_in(text, ["f"], PROMPT) == program


PYTHON = "```python\n"
LAST = "\n```\n```python\ndef f():\n    x()\n```"
DRAFT = "```python\ndef x(): y()\n```\n"


@pytest.mark.parametrize(
    ("before", "piece", "after"),
    [
        ("", "```", ""), ("", PYTHON, ""), ("", " ", ""), ("", "\n", ""), ("```", "a", "`"),
        (PYTHON, "a:", LAST), (PYTHON, "def x(", LAST),
        (f"{DRAFT}```python\nz()\n", "a:", "\n```"), (f"{DRAFT}```python\nz()\n", "a ", "\n```"),
        ("", DRAFT, "```python\ndef f():\n    x()\n```"), (PYTHON, "import ", LAST),
        (PYTHON, "class x(", LAST),
    ],
)  # fmt: skip
def test_finding_the_program_takes_linear_time(before, piece, after):
    def text_of(size: int) -> str:
        return before + piece * (size // len(piece)) + after

    assert_linear(lambda text: program_in(text, ["f"], PROMPT), text_of)
    assert_linear(lambda text: program_in(text, [], ""), text_of)
