"""What the package says to its user, each text once: ``messages.yaml``.

A test names a message and the values that it is about; the wording stands in the table alone, so
that another wording is a change of one line:

    with messages.raises("not_parquet", file=path): ...          # class, text and fix
    assert messages.is_in(printed, "no_answer_read")             # a line that is printed
    assert messages.is_in(errors, "out_not_empty", out=folder)   # an error that was printed
    (["--k=1"], message("below_least", key="--k", least=2))        # a case of a table

A line of the table: ``name: [class, text, fix]``. The class is one of ``heavydistill.errors`` or of
Python, or ``Line`` for what is printed and raises nothing. Texts are parts of the message, and
the fix may be left out. ``{field}`` stands for a value, of the test or any; how lines are folded
does not matter. Cases of one test whose texts stand nowhere else are a table too, and stay there.
``tests/test_message_table.py`` checks that each line is used and that no test copies its text.
"""

import builtins
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from heavydistill import errors


@dataclass(frozen=True)
class Message:
    kind: str
    text: str
    fix: str = ""

    @property
    def error(self) -> type[BaseException]:
        return getattr(errors, self.kind, None) or getattr(builtins, self.kind)


def table() -> dict[str, Message]:
    rooms = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    named = [(name, Message(*line)) for room in rooms.values() for name, line in room.items()]
    assert len(named) == len(dict(named)), "two messages have one name"
    return dict(named)


MESSAGES = table()


@contextmanager
def raises(name: str, /, **fields: object) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """The block raises an error of the message's class, and of no subclass, with its texts."""
    __tracebackhide__ = True
    with pytest.raises(MESSAGES[name].error) as caught:
        yield caught
    assert caught.type is MESSAGES[name].error
    assert is_in(str(caught.value), name, **fields), f"{name} is not: {caught.value}"


def is_in(said: str, name: str, /, **fields: object) -> bool:
    """Whether a text contains the message: its text and, somewhere after it, its fix."""
    parts = [part for part in (MESSAGES[name].text, MESSAGES[name].fix) if part]
    assert fields.keys() <= set(re.findall(r"\{(\w+)\}", "".join(parts))), name
    patterns = [_pattern(part, fields) for part in parts]
    return bool(re.search(".*?".join(patterns), said, re.DOTALL))


def message(name: str, /, **fields: object) -> str:
    """The text of a message with all of its fields, for tables of cases; without its fix."""
    return MESSAGES[name].text.format_map(fields)


def _pattern(part: str, fields: dict[str, object]) -> str:
    """Blanks match every fold of a line, also that of a command, which ends with a backslash.

    A field that the test does not give is short, and anything at an end: pages are large.
    """
    pieces = re.split(r"\{(\w+)\}", part)
    found = ""
    for place, text in enumerate(pieces):
        if place % 2 and text not in fields:
            is_inside = "".join(pieces[:place]) and "".join(pieces[place + 1 :])
            found += ".{0,500}?" if is_inside else ""
        else:
            words = (str(fields[text]) if place % 2 else text).split(" ")
            found += r"[\s\\]+".join(map(re.escape, words))
    return found
