"""Flags from the fields of a configuration, where name, type, default and help stand once.

A verb whose first parameter is a mapping of dotted keys to values gets flags in its place by
``@with_flags``; ``run_config`` makes such a mapping and a file the configuration of a run.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
import yaml
from pydantic.fields import FieldInfo

from heavydistill.config.run import RunConfig, load_config, parse_assignment, refuse_code_of_saved
from heavydistill.config.yaml import section_in, sections
from heavydistill.errors import ConfigError, HeavydistillError

Verb = Callable[..., None]

_OWN = "verify.own"
_SENTENCE_ENDS = re.compile(r"(?<!e\.g)\.\s+(?=[A-Z`])")


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of a configuration key; for a mapping it accepts ``key=value,...`` or YAML."""

    key: str  # dotted key of the configuration
    group: str | None = None  # heading under which ``--help-all`` lists it; None: --help, too
    name: str = ""  # name of the flag; empty takes the last part of the key
    needed: bool = False  # whether the command line must give it

    @property
    def option(self) -> str:
        """The flag as it is typed."""
        return f"--{self.name or self.key.rpartition('.')[2].replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Name of the Python parameter."""
        name = self.option.strip("-").replace("-", "_")
        return f"{name}_" if keyword.iskeyword(name) else name


_RUN_FLAGS = (
    Flag("problems.source", "Problems", "problems"),
    Flag("pools", "Problems"),
    Flag("problems.limit", "Problems"),
    Flag("think.k", "Sampling"),
    Flag("deliberate.d", "Sampling"),
    Flag("deliberate.rounds", "Sampling"),
    Flag("seed", "Sampling"),
    Flag("teacher", "Models"),
    Flag("thinker", "Models"),
    Flag("deliberator", "Models"),
    Flag("judge.model", "Models", "judge"),
    Flag("endpoint.base_url", "Models", "endpoint"),
    Flag("endpoint.start_vllm", "Models"),
    Flag("endpoint.tokenizer", "Models"),
    Flag("budget", "Cost"),
    Flag("endpoint.price_in", "Cost"),
    Flag("endpoint.price_out", "Cost"),
    Flag("out", "Run"),
    Flag("journal", "Run"),
    Flag("processes", "Run"),
)

ConfigFile = Annotated[Path | None, typer.Option(help="YAML file; flags take precedence over it.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything and print the plan; send no request.")
]
Full = Annotated[bool, typer.Option("--full", help="Print every table of the result.")]
_BENCHMARK = (
    "Public benchmark with the paper's settings (`heavydistill benchmarks` lists them). The file "
    "and flags take precedence; --problems FILE names a local copy."
)
Benchmark = Annotated[str | None, typer.Option(help=_BENCHMARK)]
OtherBenchmark = Annotated[str | None, typer.Option(help=_BENCHMARK, rich_help_panel="Problems")]


def run_flags(*main: str) -> tuple[Flag, ...]:
    """The flags of a run; ``main`` names those that ``--help`` lists, in their order."""
    known = {flag.option: flag for flag in _RUN_FLAGS}
    first = [dataclasses.replace(known.pop(name), group=None) for name in main]
    return (*first, *known.values())


def run_config(
    keys: dict[str, Any], path: Path | None = None, benchmark: str | None = None
) -> RunConfig:
    """The configuration of a run: ``keys`` win over the file, which wins over the benchmark.

    Raises:
        ConfigError: As ``load_config``, or the file is that of a run and names code.
    """
    preset = None
    if benchmark:
        from heavydistill.problems import benchmarks

        preset = benchmarks.benchmark(benchmark).preset
    config = load_config(path, keys, preset)
    if path and _OWN not in keys:
        files = ",".join(config.verify.own)
        refuse_code_of_saved(path, config, f"name them yourself: --set '{_OWN}=[{files}]'")
    return config


def with_flags(
    section: type[Any], flags: Sequence[Flag], example: str = ""
) -> Callable[[Verb], Verb]:
    """A decorator that gives a verb flags in place of its first parameter (values by dotted key).

    Args:
        section: The configuration, of pydantic.
        flags: Flags of its keys.
        example: An assignment for the help of ``--set``, which sets any other; empty for none.
    """

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def command(**given: Any) -> None:
            keys = dict(map(parse_assignment, given.pop("assignments", None) or []))
            for flag in flags:
                if (value := given.pop(flag.parameter)) is not None:
                    is_mapping = get_origin(_field(section, flag.key).annotation) is dict
                    keys[flag.key] = _mapping(flag.option, value) if is_mapping else value
            try:
                verb(keys, **given)
            except ConfigError as error:
                _name_flags(error, flags, keys)
                raise

        own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
        arguments = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        text = f"Set any key that --help-all lists, e.g. {example}; may be repeated."
        option = typer.Option("--set", metavar="KEY=VALUE", help=text)
        parameters = [
            *(each.replace(kind=each.KEYWORD_ONLY) for each in arguments),
            *(_parameter(flag, _field(section, flag.key)) for flag in flags),
            *(each for each in own if each not in arguments),
            *([_keyword("assignments", Annotated[list[str] | None, option])] if example else []),
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        if example:
            known = {flag.key for flag in flags}
            command.more_help = lambda: _keys(section, known)  # type: ignore[attr-defined]
        return command

    return decorate


def _name_flags(error: ConfigError, flags: Sequence[Flag], given: Container[str]) -> None:
    """Replace keys in the message that were given as flags, or are missing, by their flags."""
    texts = [error.what, error.fix]
    for flag in flags:
        key, value = re.escape(flag.key), ": |" if flag.key in given else ""
        named = rf"(?<![\w.]){key}(?={value} is missing)|(?<=Give ){key}(?=\.)"
        texts = [re.sub(named, flag.option, text) for text in texts]
    HeavydistillError.__init__(error, *texts)


def _keys(section: type[Any], flags: set[str]) -> Mapping[str, list[tuple[str, str]]]:
    """The keys without a flag, with their help, under the places of the section that has them."""
    places: dict[type[Any], list[str]] = {}
    for place, inner in sections(section):
        places.setdefault(inner, []).append(place)
    groups = {}
    for inner, at in places.items():
        rows = [
            (name, _help(field))
            for name, field in inner.model_fields.items()
            if not section_in(field.annotation) and not flags.issuperset(f"{p}{name}" for p in at)
        ]
        heading = f"Keys of {', '.join(place.rstrip('.') for place in at)}"
        groups["Keys outside of sections" if at == [""] else heading] = rows
    return groups


def _parameter(flag: Flag, field: FieldInfo) -> inspect.Parameter:
    option = typer.Option(flag.option, help=_help(field), rich_help_panel=flag.group)
    kind = _type(field.annotation)
    if flag.needed:
        return _keyword(flag.parameter, Annotated[kind, option], inspect.Parameter.empty)
    return _keyword(flag.parameter, Annotated[Union[kind, None], option])  # noqa: UP007


def _help(field: FieldInfo) -> str:
    """The first sentence of a key's documentation, and its default."""
    text = first_sentence(field.description or "")
    if isinstance(field.default, (int, float, str)) and field.default not in (False, ""):
        text += f" [default: {field.default}]"
    return text


def first_sentence(text: str) -> str:
    """The first sentence of a description, as help prints it."""
    first = _SENTENCE_ENDS.split(" ".join(text.split()))[0]
    return f"{first.removesuffix('.')}.".replace("``", "`")


def _keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _field(section: type[Any], key: str) -> FieldInfo:
    """The field of a dotted key."""
    parent, _, rest = key.partition(".")
    field: FieldInfo = section.__pydantic_fields__[parent]
    return _field(_type(field.annotation), rest) if rest else field


def _type(annotation: Any) -> Any:
    """The one type of a field, whether it may be null or is checked; texts of mappings."""
    origin, choices = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(choices[0])
    if origin in (Union, UnionType):
        return _type(next(choice for choice in choices if choice is not NoneType))
    return str if origin in (Literal, dict) else annotation


def _mapping(option: str, text: str) -> Any:
    """A mapping written as ``key=value,...`` or as YAML."""
    try:
        value = yaml.safe_load(text)
        if isinstance(value, dict):
            return value
        pairs = (pair.split("=", 1) for pair in text.split(","))
        return {key.strip(): value.strip() for key, value in pairs}
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"{option} {text!r} is not a mapping",
            f"Write {option} KEY=VALUE,... or YAML, e.g. {option} '{{KEY: \"VALUE\"}}'.",
        ) from error
