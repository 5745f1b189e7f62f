"""The reference page of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import typer
from fields import NAMES, table

from heavydistill.cli.verbs import app

_HELP = ("help", "help_all")
_MANY = 15
"""A command that has more flags in common with `generate` refers to it."""


def commands() -> str:
    """A section for each command, in the order of `heavydistill --help`."""
    group = typer.main.get_command(app)
    return "\n\n".join(_sections("heavydistill", group, group.get_command(None, "generate")))


# Commands and parameters are those of the click that typer brings along, whose types are private.
def _sections(path: str, command: Any, generate: Any) -> Iterator[str]:
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from _sections(f"{path} {name}", command.get_command(None, name), generate)
        return
    needed = [each for each in command.params if _is_argument(each) or each.required]
    usage = " ".join([path, *map(_usage, needed), "[OPTIONS]"])
    yield f"## {path.partition(' ')[2]}\n\n```text\n{usage}\n```"
    yield _text(inspect.cleandoc(command.help or ""))
    rows, others = _rows(command), _rows(generate)
    if command.name != generate.name and len(rows.keys() & others) > _MANY:
        *most, last = [f"`{flag}`" for flag in others if flag not in rows] or [""]
        missing = (
            f" but for {', '.join(most)} and {last}" if most else f" but for {last}" * bool(last)
        )
        rows = {flag: row for flag, row in rows.items() if flag not in others}
        yield f"It has the flags of [generate](#generate){missing}{', and these:' if rows else '.'}"
    if command.name in ("sft", "grpo", "distill"):
        yield f"Its flags are the keys of [a training](configuration.md#{command.name})."
    elif rows:
        yield table(("Argument or flag", "Type", "Meaning"), rows.values())


def _rows(command: Any) -> dict[str, tuple[str, str, str]]:
    """The rows of the table of a command, by flag or name of the argument."""
    if hasattr(command.callback, "reads_words"):
        options = command.callback.more_help()["Options"]
        parts = [(*flag.partition(" ")[::2], text) for flag, text in options]
        return {flag: (f"`{flag}`", _words(value), _text(text)) for flag, value, text in parts}
    return {each.opts[0]: _row(each) for each in command.params if each.name not in _HELP}


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _word(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.strip("_").upper())


def _usage(parameter: Any) -> str:
    word = _word(parameter)
    if not _is_argument(parameter):
        return f"{parameter.opts[0]} {word}"
    word = f"{word}..." if parameter.nargs == -1 else word
    return word if parameter.required else f"[{word}]"


def _row(parameter: Any) -> tuple[str, str, str]:
    names = [*parameter.opts, *parameter.secondary_opts]
    if _is_argument(parameter):
        names = [_word(parameter)]
    help_text = parameter.help or ""
    if isinstance(default := parameter.default, str | int) and not isinstance(default, bool):
        help_text += f" [default: {default}]"
    return ", ".join(f"`{name}`" for name in names), _type(parameter), _text(help_text)


def _type(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return "switch"
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if words := get_args(kind):
        return ", ".join(f"`{word}`" for word in words)
    return NAMES.get(kind) or kind.__name__.lower()


def _words(value: str) -> str:
    """The value of a flag as help shows it."""
    if "|" in value and value.islower():
        return ", ".join(f"`{word}`" for word in value.split("|"))
    return {"": "switch", "TEXT": "string", "N": "integer"}.get(value, value)


def _text(text: str) -> str:
    """A help text as Markdown: flags outside of code would have their dashes joined to one."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [
        re.sub(r"(?<![\w-])--[a-z][\w-]*( [A-Z]+\b| [\w.]+=[\w.]+)?", r"`\g<0>`", part)
        for part in parts[::2]
    ]
    return "".join(parts)
