"""The subcommands ("verbs"), with help in two lengths and messages for usage errors.

A verb is imported when it is used, and its dependencies when it runs, so that help is fast.
``--help`` lists the flags without a group; ``--help-all`` also lists flags in groups (their
``rich_help_panel``).
"""

from __future__ import annotations

import ast
import difflib
import importlib
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

import heavydistill
from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter

Rows = Mapping[str, Iterable[tuple[str, str]]]
"""Maps a heading to (flag or key, help) pairs."""

_MAIN = "Options"
_ALWAYS = ("Arguments", _MAIN)  # headings that --help prints
_VALUES = {int: "N", float: "X", Path: "PATH"}
_VERBS = {
    "Traces": "runs.generate sets.import_ inspect.watch inspect.show inspect.report runs.replay "
    "inspect.journal",
    "Training": "sets.build sets.refilter sets.export training.sft training.grpo training.distill "
    "training.merge",
    "Evaluation": "experiments.evaluate experiments.compare experiments.cross",
    "Models and plug-ins": "doctor.doctor catalog.teachers catalog.benchmarks catalog.plugins",
    "Publishing and serving": "publish.publish serve.serve publish.skill",
}
"""Maps a heading to the modules and functions of its verbs."""
_FLAGS_OF_FILES = {
    **dict.fromkeys((".jsonl", ".json", ".parquet", ".csv"), "--problems"),
    **dict.fromkeys((".yaml", ".yml"), "--config"),
}
"""Maps the suffix of a file to the flag that takes it."""
_PLACES = {
    place.partition(".")[2].strip("_"): place
    for places in _VERBS.values()
    for place in places.split()
}


class Verb(TyperCommand):
    """A verb whose ``--help-all`` lists more flags than ``--help``, in groups.

    The function of a verb may have an attribute ``more_help`` that returns further ``Rows``;
    ``--help`` lists those under ``Options``. A function with an attribute ``reads_words`` parses
    its flags itself, from ``context.args``.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if "--help-all" in args:
            ctx.meta[__name__] = True
            typer.echo(ctx.get_help())
            raise typer.Exit
        if hasattr(self.callback, "reads_words") and not {"--help", "-h"} & {*args}:
            ctx.args = args
            return args
        return _parsed(super().parse_args, ctx, args)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Return flags that begin so, including those of ``more_help`` and --help-all."""
        completions = super().shell_complete(ctx, incomplete)
        groups: Rows = getattr(self.callback, "more_help", dict)()
        labels = ["--help-all", *(label for rows in groups.values() for label, _ in rows)]
        more = (label.split()[0] for label in labels if label.startswith("--"))
        return completions + [CompletionItem(flag) for flag in more if flag.startswith(incomplete)]

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        shown = [each for each in self.params if each.required or _is_argument(each)]
        return [*map(_label, sorted(shown, key=_is_argument)), "[OPTIONS]"]

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        is_all = ctx.meta.get(__name__, False)
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _ALWAYS}
        for parameter in self.get_params(ctx):
            usual = _ALWAYS[not _is_argument(parameter)]
            heading = getattr(parameter, "rich_help_panel", None) or usual
            if row := parameter.get_help_record(ctx):
                text = row[1].removesuffix("  [required]") if _is_argument(parameter) else row[1]
                groups.setdefault(heading, []).append((_label(parameter), text))
        for heading, rows in getattr(self.callback, "more_help", dict)().items():
            groups.setdefault(heading, [])[:0] = rows
        groups[_MAIN].append(("--help-all", "Show every flag and key, and exit."))
        for heading, rows in groups.items():
            if rows and (is_all or heading in _ALWAYS):
                with formatter.section(textwrap.fill(heading, formatter.width - 1)):
                    formatter.write_dl(rows)


class Group(TyperGroup):
    """A verb with subcommands."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        args = ["--help" if word == "--help-all" else word for word in args[:1]] + args[1:]
        return _parsed(super().parse_args, ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        if args[0] not in self.list_commands(ctx):
            raise _unknown(ctx, "verb", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class Verbs(Group):
    """All verbs; ``--help`` reads their summaries from the source, without importing them."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        match args:  # as other programs say it
            case ["help", *verb]:
                args = [*verb, "--help"]
            case ["version"]:
                args = ["--version"]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Return verbs or flags that begin so, without importing the verbs."""
        if incomplete.startswith("-"):
            return TyperCommand.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=_summary(place))
            for name, place in _PLACES.items()
            if name.startswith(incomplete)
        ]

    def list_commands(self, ctx: Context) -> list[str]:
        return list(_PLACES)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        module, _, name = _PLACES[cmd_name].partition(".")
        verb = getattr(importlib.import_module(f"heavydistill.cli.{module}"), name)
        if isinstance(verb, typer.Typer):
            return typer.main.get_command(verb)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(cmd_name, cls=Verb)(verb)
        return typer.main.get_command(alone)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        for heading, places in _VERBS.items():
            with formatter.section(heading):
                verbs = [(name, place) for name, place in _PLACES.items() if place in places]
                formatter.write_dl([(name, _summary(place)) for name, place in verbs])


def _is_argument(parameter: Parameter) -> bool:
    return parameter.param_type_name == "argument"


def _label(parameter: Parameter) -> str:
    """Return an argument or a flag as typed on the command line."""
    if not isinstance(parameter, TyperOption):
        name = (parameter.metavar or parameter.name.upper()) + "..." * (parameter.nargs == -1)
        return name if parameter.required else f"[{name}]"
    value = parameter.metavar or _VALUES.get(parameter.type_descriptor.annotation, "TEXT")
    return ", ".join(parameter.opts) + f" {value}" * (not parameter.is_flag)


def _parsed(
    parse: Callable[[Context, list[str]], list[str]], ctx: Context, args: list[str]
) -> list[str]:
    """Parse words; raise a usage error as a ``ConfigError``."""
    try:
        return parse(ctx, [*args])
    except TyperException as error:
        flag = getattr(error, "option_name", "")
        known = [name for each in ctx.command.get_params(ctx) for name in each.opts]
        if flag and flag not in known:
            if not flag.startswith("--"):  # e.g. one of the letters of -teacher
                flag = next((word for word in args if word.startswith(flag)), flag)
            raise _unknown(ctx, "flag", flag.partition("=")[0], known) from None
        raise ConfigError(*_explained(ctx, error, args)) from None


def _explained(ctx: Context, error: TyperException, args: Sequence[str]) -> tuple[str, str]:
    """Return the message and the fix for wrong arguments of a verb."""
    from heavydistill.config.yaml import in_words

    if parameter := getattr(error, "param", None):
        name = _label(parameter).removeprefix("[").split(" ")[0]
        if error.message:
            words = " ".join(args).replace("=", " ").split(" ")
            value = dict(itertools.pairwise(words)).get(name)
            got = f" (got {value!r})" if value is not None else ""
            help_text = getattr(parameter, "help", None) or _all_of(ctx, "flag")
            return f"{name}: {in_words(error.message)}{got}", help_text
        return f"{name} is missing", ctx.get_usage()
    if flag := getattr(error, "option_name", ""):
        return f"{flag} needs a value", _all_of(ctx, "flag")
    extra = re.search(r"unexpected extra arguments?\b.*\((.*)\)", error.format_message())
    flags = {name for each in ctx.command.get_params(ctx) for name in each.opts}
    if extra and (flag := _FLAGS_OF_FILES.get(Path(extra[1]).suffix)) in flags:
        return f"Unexpected argument: {extra[1]}", f"Did you mean {flag} {extra[1]}?"
    what = f"Unexpected argument: {extra[1]}" if extra else error.format_message()
    return what, ctx.get_usage()


def _unknown(ctx: Context, kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a verb or flag that does not exist."""
    from heavydistill.config.models import Endpoint

    bare = {each.strip("-"): each for each in known}
    near = difflib.get_close_matches(name.strip("-"), bare, n=1, cutoff=0.7)
    suggestion = f"Did you mean {bare[near[0]]}? " if near else ""
    last = name.strip("-").replace("-", "_")
    keys = [key for key in getattr(ctx.command.callback, "keys", ()) if key.split(".")[-1] == last]
    if kind == "flag" and keys and last not in bare:
        suggestion = f"Write {' or '.join(f'--set {key}=VALUE' for key in keys)}. "
    if kind == "flag" and last in ("api_key", "key", "token"):
        suggestion = f"The key is read from {Endpoint().key_env} (endpoint.api_key_env). "
    return ConfigError(f"There is no {kind} {name}", suggestion + _all_of(ctx, kind))


def _all_of(ctx: Context, kind: str) -> str:
    flag = "--help-all" if isinstance(ctx.command, Verb) else "--help"
    return f"`{ctx.command_path} {flag}` lists all {kind}s."


def _summary(place: str) -> str:
    """Return the first line of a verb's docstring, or the help of a group of verbs."""
    module, _, name = place.partition(".")
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name=found) if found == name:
                return (ast.get_docstring(node) or "").partition("\n")[0]
            case ast.Assign([ast.Name(id=found)], ast.Call(keywords=given)) if found == name:
                return next(str(ast.literal_eval(k.value)) for k in given if k.arg == "help")
    raise LookupError(place)


app = typer.Typer(
    name="heavydistill",
    cls=Verbs,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"heavydistill {heavydistill.__version__}")
        raise typer.Exit


@app.callback(help="Turn a strong teacher's parallel reasoning into small models that deliberate.")
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Options before the verb."""
