"""Flags from the fields of a configuration, where name, type, default and help stand once.

A verb whose first parameter is a mapping of dotted keys to values gets flags in its place by
``@with_flags``; one that takes a ``RunConfig`` gets all flags of a run by ``@with_run_flags``.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
import yaml
from pydantic.fields import FieldInfo

from heavydistill.config.run import RunConfig, load_config, parse_assignment, refuse_code_of_saved
from heavydistill.config.yaml import RETIRED
from heavydistill.errors import ConfigError

Verb = Callable[..., None]

_OWN = "verify.own"
_SENTENCE_ENDS = re.compile(r"(?<!e\.g)\.\s+(?=[A-Z`])")


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a key; one of a mapping takes ``key=value,...`` or YAML."""

    key: str  # dotted key of the configuration
    panel: str | None = None  # heading under which ``--help`` lists it
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
    Flag("problems.source", name="problems"),
    Flag("pools"),
    Flag("problems.limit"),
    Flag("think.k"),
    Flag("deliberate.d"),
    Flag("deliberate.rounds"),
    Flag("seed"),
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
    bool,
    typer.Option("--dry-run", help="Check everything and print the plan; send no request."),
]
_Benchmark = Annotated[
    str | None,
    typer.Option(
        help="Public benchmark with the paper's settings (`heavydistill benchmarks` lists them). "
        "The file and flags take precedence; --problems FILE names a local copy.",
    ),
]


def with_flags(
    section: type[Any], flags: Sequence[Flag], example: str = "", panel: str | None = None
) -> Callable[[Verb], Verb]:
    """A decorator that replaces the first parameter of a verb, dotted keys to values, by flags.

    Args:
        section: The configuration, of pydantic.
        flags: Flags of its keys.
        example: An assignment for the help of ``--set``, which sets any other; empty for none.
        panel: Heading of ``--set``.
    """

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def command(**given: Any) -> None:
            keys = dict(map(parse_assignment, given.pop("assignments", None) or []))
            for flag in flags:
                if (value := given.pop(flag.parameter)) is not None:
                    is_mapping = get_origin(_field(section, flag.key).annotation) is dict
                    keys[flag.key] = _mapping(flag.option, value) if is_mapping else value
            verb(keys, **given)

        own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
        arguments = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        option = typer.Option(
            "--set", help=f"Any other key, e.g. {example}; may be repeated.", rich_help_panel=panel
        )
        parameters = [
            *(each.replace(kind=each.KEYWORD_ONLY) for each in arguments),
            *(_parameter(flag, _field(section, flag.key)) for flag in flags),
            *([_keyword("assignments", Annotated[list[str] | None, option])] if example else []),
            *(each for each in own if each not in arguments),
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def with_run_flags(verb: Verb) -> Verb:
    """The verb with the flags of a run in place of its first parameter, a ``RunConfig``."""

    def load(keys: dict[str, Any], **given: Any) -> None:
        path, preset = given.pop("config"), None
        if benchmark := given.pop("benchmark"):
            from heavydistill.problems import benchmarks

            preset = benchmarks.benchmark(benchmark).preset
        config = load_config(path, keys, preset)
        if path and _OWN not in keys:
            files = ",".join(config.verify.own)
            refuse_code_of_saved(path, config, f"name them yourself: --set '{_OWN}=[{files}]'")
        verb(config, **given)

    own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
    keys = inspect.Parameter("keys", inspect.Parameter.POSITIONAL_ONLY)
    shared = [_keyword("config", ConfigFile), _keyword("benchmark", _Benchmark)]
    load.__signature__ = inspect.Signature([keys, *shared, *own])  # type: ignore[attr-defined]
    load.__name__, load.__doc__ = verb.__name__, verb.__doc__
    return with_flags(RunConfig, _RUN_FLAGS, "--set cache.pruning=head_tail", "Run")(load)


def _parameter(flag: Flag, field: FieldInfo) -> inspect.Parameter:
    text = _SENTENCE_ENDS.split(" ".join((field.description or "").split()))[0]
    text = f"{text.removesuffix('.')}.".replace("``", "`")
    if isinstance(field.default, (int, str)) and field.default is not False:
        text += f" [default: {field.default}]"
    option = typer.Option(flag.option, help=text, rich_help_panel=flag.panel)
    kind = _type(field.annotation)
    if flag.needed:
        return _keyword(flag.parameter, Annotated[kind, option], inspect.Parameter.empty)
    return _keyword(flag.parameter, Annotated[Union[kind, None], option])  # noqa: UP007


def refuse_retired(words: Sequence[str]) -> None:
    """Say what became of a verb or a flag of a command line that an earlier version had."""
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    given = {" ".join(words[:1]), " ".join(words[:2]), *flags}
    for name in given & RETIRED.keys():
        raise ConfigError(f"{name} does not exist any more", RETIRED[name].instead)


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
            f"{option} {text!r} is no mapping",
            f"Write {option} KEY=VALUE,... or YAML, e.g. {option} '{{KEY: \"VALUE\"}}'.",
        ) from error
