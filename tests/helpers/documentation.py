"""The blocks of code in README.md and docs/: where they are, what they need, how they are parsed.

The lines before a block may be comments: ``<!-- given: runs/micro -->`` names what a test puts into
the folder, ``<!-- not run: gpu -->`` why the block is not run; then its commands are parsed.
"""

import argparse
import contextlib
import re
import runpy
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from pydantic import BaseModel

from heavydistill.cli.verbs import app
from heavydistill.config.run import RunConfig, parse_assignment
from heavydistill.config.serve import ServeConfig
from heavydistill.config.sets import BuildConfig, ImportConfig, RefilterConfig
from heavydistill.config.yaml import section_in

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if not path.is_relative_to(ROOT / "docs" / "skills")  # the exported skill
    ),
]

_BLOCK = re.compile(
    r"(?P<comments>(?:^ *<!-- .* -->\n)*)"
    r"^(?P<indent> *)```(?P<language>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```$",
    re.MULTILINE,
)
_COMMENT = re.compile(r"<!-- (.*?): (.*?) -->")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*)\n(?:.*\n)*?\s*\2$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*")
_FILE = re.compile(r"(?:--[\w-]+=)?((?:benchmarks|configs|data|docs|pipelines|scripts)/\S+)")
_VARIABLE = re.compile(r"[A-Z_]+=.*")
_CODE = re.compile(r"`([^`\n]+)`")
_SAVED = re.compile(r"# (\w+\.py)\n")
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_SECTIONS: dict[str, type[BaseModel]] = {
    **dict.fromkeys(("generate", "evaluate", "cross", "doctor"), RunConfig),
    **{
        "serve": ServeConfig,
        "build": BuildConfig,
        "refilter": RefilterConfig,
        "import": ImportConfig,
    },
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    place: str
    language: str
    text: str
    given: tuple[str, ...]
    not_run: tuple[str, ...]
    follows: bool  # whether only blank lines are between the block before and this one

    @property
    def saved_as(self) -> str:
        """Name of the file for a program that the reader saves, which its first line says."""
        found = _SAVED.match(self.text) if self.language == "python" else None
        return found[1] if found else ""


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    end = 0
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("indent")) + 1
        comments = {what: (*names.split(", "),) for what, names in _COMMENT.findall(found[0])}
        yield Block(
            f"{page.relative_to(ROOT)}:{line}",
            found["language"],
            textwrap.dedent(found["text"]),
            comments.pop("given", ()),
            comments.pop("not run", ()),
            not text[end : found.start()].strip(),
        )
        end = found.end()


def commands_in(script: str) -> Iterator[list[str]]:
    """The words of each simple command of a shell script, without what heredocs hold."""
    joined = _HEREDOC.sub(r"\3", script).replace("\\\n", " ")
    for line in joined.splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("|&;()<>"):
                yield command
                command = []
            elif command or not _VARIABLE.fullmatch(word):
                command.append(word)


def check_command(words: list[str]) -> None:
    """Raise where a command has a flag, key, value or file that does not exist."""
    for word in words:
        if (file := _FILE.fullmatch(word)) and not (ROOT / file[1]).exists():
            raise FileNotFoundError(file[1])
    match words:
        case ["heavydistill", *rest]:
            _check_verb(rest)
        case ["accelerate", "launch", *rest]:
            from accelerate.commands.launch import launch_command_parser

            launched = launch_command_parser().parse_args(rest)
            _check_script(launched.training_script, launched.training_script_args)
        case ["python", script, *rest] if _FILE.fullmatch(script):
            _check_script(script, rest)


def check_prose(text: str) -> None:
    """Raise where the prose of a page names, in code, a verb, flag or key that does not exist."""
    for code in _CODE.findall(text):
        words = code.split()
        if words[:1] == ["heavydistill"] and len(words) > 1 and not _is_placeholder(words[1]):
            command, path = _command(words[1:])
            known = {name for each in command.params for name in each.opts}
            unknown = {*_FLAG.findall(code)} - known - {"--help", "--help-all"}
            if unknown and path not in (["sft"], ["grpo"], ["distill"]):
                raise LookupError(f"`{code}`: there is no {', '.join(unknown)}")
        for key in re.findall(r"--set '?([a-z][\w.]+)=", code):
            _require_key({*_SECTIONS.values()}, key)


def _is_placeholder(word: str) -> bool:
    return bool(_PLACEHOLDER.fullmatch(word))


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and these words."""
    command: Any = typer.main.get_command(app)
    path: list[str] = []
    while len(words) > len(path) and hasattr(command, "list_commands"):
        name = words[len(path)]
        if name.startswith("-"):
            break
        if name not in command.list_commands(None):
            raise LookupError(f"There is no verb {name}")
        path.append(name)
        command = command.get_command(None, name)
    return command, path


def _check_verb(words: list[str]) -> None:
    command, path = _command(words)
    rest = words[len(path) :]
    if path in (["sft"], ["grpo"], ["distill"]):
        _check_training(path[-1], rest)
        return
    values = ["1" if _is_placeholder(word) else word for word in rest]
    with contextlib.suppress(typer.Exit):  # of --help
        given = command.make_context(" ".join(path), values).params
        for assignment in given.get("assignments") or ():
            _require_key({_SECTIONS[path[-1]]}, parse_assignment(assignment)[0])


def _require_key(sections: set[type[BaseModel]], dotted: str) -> None:
    """Raise KeyError unless one of the configurations has the key."""
    if not any(_has_key(section, dotted.split(".")) for section in sections):
        raise KeyError(dotted)


def _has_key(section: type[BaseModel] | None, parts: list[str]) -> bool:
    if section is None or parts[0] not in section.model_fields:
        return False
    annotation = section.model_fields[parts[0]].annotation
    is_mapping = "dict" in str(annotation)
    return len(parts) == 1 or is_mapping or _has_key(section_in(annotation), parts[1:])


def _check_training(script: str, words: list[str]) -> None:
    """Read the flags of a training and of its launch, and the file that they name."""
    from heavydistill.cli import training

    nothing: Callable[..., int] = lambda *_: 0  # noqa: E731
    with (
        mock.patch("heavydistill.train.script.run_script", nothing),
        mock.patch("heavydistill.train.script.check_files", lambda *_, **__: None),
        mock.patch("heavydistill.train.launch.launch", nothing),
    ):
        training._checked(script, words)


class _ParsedError(Exception):
    """Raised where a script would begin to act on its arguments."""


def _check_script(script: str, words: list[str]) -> None:
    path = ROOT / script
    if path.stem in ("sft", "grpo", "distill", "merge"):
        _check_verb([path.stem, *words])
        return
    if path.stem == "train_sizes":  # its other flags are those of a training
        import train_sizes

        train_sizes.report(*train_sizes.parsed(words))
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_alone(parser: argparse.ArgumentParser) -> None:
        parse(parser, words)
        raise _ParsedError

    with (
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_alone),
        mock.patch.object(sys, "path", [str(path.parent), *sys.path]),
        contextlib.suppress(_ParsedError),
    ):
        runpy.run_path(str(path), run_name="__main__")
        raise AssertionError(f"{script} takes no arguments")
