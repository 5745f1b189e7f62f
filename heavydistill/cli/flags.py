"""Flags generated from configuration fields, which define name, type, default and help.

If the first parameter of a subcommand is a mapping of dotted keys to values, ``@with_flags``
replaces it with flags. ``run_config`` combines such a mapping and a file into a run's
configuration.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
import re
import reprlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
import yaml
from pydantic.fields import FieldInfo

from heavydistill.config.run import RunConfig, load_config, parse_assignment, refuse_code_of_saved
from heavydistill.config.shipped import shipped, shipped_file
from heavydistill.config.yaml import (
    all_keys,
    documented,
    first_sentence,
    parse_yaml,
    section_in,
    sections,
)
from heavydistill.errors import ConfigError, HeavydistillError

Verb = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of a configuration key; a mapping's flag accepts ``key=value,...`` or YAML.

    The flag of a section accepts one ``KEY=VALUE``, or the name of a section in it, and may be
    repeated.
    """

    key: str  # dotted key of the configuration
    group: str | None = None  # heading for ``--help-all``; None: also listed by --help
    name: str = ""  # name of the flag; empty for the last part of the key
    needed: bool = False  # whether the flag is required

    @property
    def option(self) -> str:
        """Return the flag as typed on the command line."""
        return f"--{self.name or self.key.rpartition('.')[2].replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Return the name of the Python parameter."""
        name = self.option.strip("-").replace("-", "_")
        return f"{name}_" if keyword.iskeyword(name) else name


def flags_of(keys: str, group: str | None = None) -> list[Flag]:
    """Return the flags of keys, each written ``KEY`` or, with a name of its own, ``KEY=NAME``."""
    pairs = (each.partition("=") for each in keys.split())
    return [Flag(key, group, name) for key, _, name in pairs]


_RUN_FLAGS = (
    *flags_of("problems.source=problems pools problems.limit problems.columns", "Problems"),
    *flags_of("problems.verifier problems.verifier_args", "Problems"),
    *flags_of("think.k think.tools deliberate.d deliberate.rounds seed", "Sampling"),
    *flags_of("teacher thinker deliberator system judge.model=judge prompts=prompt", "Models"),
    *flags_of("endpoint.base_url=endpoint endpoint.start_vllm endpoint.tokenizer", "Models"),
    *flags_of("endpoint.extra_body", "Models"),
    *flags_of("endpoint.batch endpoint.batch_files", "Batches"),
    *flags_of("budget endpoint.price_in endpoint.price_out endpoint.fresh", "Cost"),
    *flags_of("out journal plugins=plugin processes", "Run"),
)


def _file_or_name(kind: str) -> object:
    """Return the option of a configuration: a file, or one that is shipped in ``configs/KIND``."""
    names = ", ".join(shipped(f"configs/{kind}"))
    text = f"YAML file, or a shipped one by name: {names}. Flags take precedence over it."
    return typer.Option(metavar="NAME|FILE", help=text)


RunFile = Annotated[str | None, _file_or_name("generate")]
EvaluationFile = Annotated[str | None, _file_or_name("evaluate")]
BuildFile = Annotated[str | None, _file_or_name("build")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check everything and print the plan; send no request.")
]
Full = Annotated[bool, typer.Option("--full", help="Print every table of the result.")]
_BENCHMARK = (
    "Public benchmark with the paper's settings, or several separated by commas (`heavydistill "
    "benchmarks` lists them). The file and flags take precedence; --problems FILE names a local "
    "copy of one."
)
Benchmark = Annotated[str | None, typer.Option(help=_BENCHMARK)]
OtherBenchmark = Annotated[str | None, typer.Option(help=_BENCHMARK, rich_help_panel="Problems")]


def run_flags(*main: str) -> tuple[Flag, ...]:
    """Return the flags of a run; ``main`` lists, in order, those that ``--help`` shows."""
    known = {flag.option: flag for flag in _RUN_FLAGS}
    first = [dataclasses.replace(known.pop(name), group=None) for name in main]
    return (*first, *known.values())


def run_config(
    keys: dict[str, Any],
    file: str | None = None,
    benchmark: str | None = None,
    kind: str = "generate",
) -> RunConfig:
    """Return a run's configuration: ``keys`` override the file, which overrides the benchmark.

    ``file`` is a path, or the name of a file in ``configs/KIND``.

    Raises:
        ConfigError: There is no such file, ``load_config`` fails, or the file is a run's saved one
            and names code.
    """
    path = shipped_file(kind, file) if file else None
    preset = None
    if benchmark:
        from heavydistill.problems import benchmarks

        preset = benchmarks.preset_of(benchmark)
    config = load_config(path, keys, preset)
    code = {"verify.own": config.verify.own, "plugins": config.plugins}
    unnamed = {key: ",".join(files) for key, files in code.items() if files and key not in keys}
    if path and unnamed:
        flags = " ".join(f"--set '{key}=[{files}]'" for key, files in unnamed.items())
        refuse_code_of_saved(path, config, f"name them yourself: {flags}")
    return config


def with_flags(
    section: type[Any], flags: Sequence[Flag], example: str = ""
) -> Callable[[Verb], Verb]:
    """Return a decorator that replaces a function's first parameter (values by key) with flags.

    Args:
        section: Configuration class, a pydantic model.
        flags: Flags of its keys.
        example: Example in the help of ``--set``, which sets any other key; empty for none.
    """

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def command(**given: Any) -> None:
            keys = dict(map(parse_assignment, given.pop("assignments", None) or []))
            for flag in flags:
                if (value := given.pop(flag.parameter)) is not None:
                    field = _field(section, flag.key)
                    if inner := section_in(field.annotation):
                        names = _subsections(inner)
                        given_keys = (
                            (f"{each}.", None)
                            if each in names
                            else parse_assignment(each, flag.option)
                            for each in value
                        )
                        keys |= {f"{flag.key}.{key}": file for key, file in given_keys}
                        continue
                    is_mapping = get_origin(field.annotation) is dict
                    keys[flag.key] = _mapping(flag.option, value, field) if is_mapping else value
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
            command.keys = [*all_keys(section)]  # type: ignore[attr-defined]
        return command

    return decorate


def _name_flags(error: ConfigError, flags: Sequence[Flag], given: Container[str]) -> None:
    """Replace keys in the message by their flags, if given as flags or missing."""
    texts = [error.what, error.fix]
    for flag in flags:
        key, value = re.escape(flag.key), ": |" if flag.key in given else ""
        named = rf"(?<![\w.]){key}(?={value} is missing)|(?<=Give ){key}(?=\.)"
        if "." in flag.key and flag.key in given:  # a key without a dot may be a common word
            named = rf"(?<![\w.]){key}(?![\w.=]|\.\w)"
        texts = [re.sub(named, flag.option, text) for text in texts]
    HeavydistillError.__init__(error, *texts)


def _keys(section: type[Any], flags: set[str]) -> Mapping[str, list[tuple[str, str]]]:
    """Return the keys without a flag, with their help, by the section that contains them."""
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
    if inner := section_in(kind):
        option.metavar = "|".join(_subsections(inner)) or "KEY=VALUE"
        kind = list[str]
    if flag.needed:
        return _keyword(flag.parameter, Annotated[kind, option], inspect.Parameter.empty)
    return _keyword(flag.parameter, Annotated[Union[kind, None], option])  # noqa: UP007


def _help(field: FieldInfo) -> str:
    """Return the first sentence of a key's documentation, and its default."""
    text = first_sentence(field.description or "")
    if isinstance(field.default, (int, float, str)) and field.default not in (False, ""):
        text += f" [default: {field.default}]"
    return text


def _subsections(section: type[Any]) -> list[str]:
    """Return the sections in a section, which a flag may give by name alone, with its defaults."""
    return [name for name, field in section.model_fields.items() if section_in(field.annotation)]


def _keyword(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _field(section: type[Any], key: str) -> FieldInfo:
    parent, _, rest = key.partition(".")
    field: FieldInfo = section.__pydantic_fields__[parent]
    return _field(_type(field.annotation), rest) if rest else field


def _type(annotation: object) -> Any:
    """Return a field's type for typer, without None or validators; str for choices, mappings."""
    origin, choices = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(choices[0])
    if origin in (Union, UnionType):
        return _type(next(choice for choice in choices if choice is not NoneType))
    if origin is list:
        return list[_type(choices[0])]  # type: ignore[misc]
    return str if origin in (Literal, dict) else annotation


def _mapping(option: str, text: str, field: FieldInfo) -> object:
    """Parse a mapping written as ``key=value,...`` or as YAML."""
    try:
        value = parse_yaml(text)
        if isinstance(value, dict):
            return value
        pairs = (pair.split("=", 1) for pair in text.split(","))
        return {key.strip(): value.strip() for key, value in pairs}
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"{option} {reprlib.repr(text)} is not a mapping",
            f"Write {option} NAME=VALUE,... or YAML. {documented(field)}",
        ) from error
