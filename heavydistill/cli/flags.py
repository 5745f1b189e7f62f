"""The flags that say what a run is, the same for every verb that makes or plans one.

A verb takes a ``config: RunConfig`` and gets the flags by ``@with_run_flags``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union

import typer

from heavydistill.config.run import load_config, parse_assignment, refuse_code_of_saved

_MODELS, _MONEY, _RUN = "Models", "Money", "Run"
_OWN = "verify.own"


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag and the key that it sets.

    Attributes:
        name: Without its dashes, as a Python name.
        key: Dotted, of the configuration.
        kind: Type of its value.
        help: What it does.
        panel: Heading under which ``--help`` shows it.
    """

    name: str
    key: str
    kind: type
    help: str
    panel: str | None = None


_FLAGS = (
    _Flag(
        "teacher",
        "teacher",
        str,
        "Profile (`heavydistill teachers` lists them) or YAML file with one, checkpoint folder or "
        "Hub id; with --endpoint also a served name. [default: micro]",
        _MODELS,
    ),
    _Flag("thinker", "thinker", str, "Who thinks, if not the teacher.", _MODELS),
    _Flag("deliberator", "deliberator", str, "Who deliberates, if not the teacher.", _MODELS),
    _Flag(
        "judge",
        "judge.model",
        str,
        "A model that is asked about verdicts that rules leave undecided. [default: nobody]",
        _MODELS,
    ),
    _Flag(
        "endpoint",
        "endpoint.base_url",
        str,
        "An OpenAI-compatible server, e.g. http://localhost:8000/v1, several with commas between, "
        "or a provider's name, e.g. openrouter.",
        _MODELS,
    ),
    _Flag(
        "serve",
        "endpoint.serve",
        bool,
        "Start vLLM on this machine's GPUs as the profile says, and stop it at the end.",
        _MODELS,
    ),
    _Flag(
        "tokenizer",
        "endpoint.tokenizer",
        str,
        "Tokenizer of the served model, if no profile names it: folder or Hub id. [default: the "
        "server's /tokenize, else an estimate]",
        _MODELS,
    ),
    _Flag(
        "problems",
        "problems.source",
        str,
        "micro, a .jsonl or .parquet file, hub:ORG/NAME, or gym:FAMILY,... [default: micro]",
    ),
    _Flag(
        "pools",
        "pools",
        str,
        "Folder of a run or import whose problems and trajectories are taken; nobody thinks then.",
    ),
    _Flag("limit", "problems.limit", int, "Take the first so many problems."),
    _Flag("k", "think.k", int, "Trajectories a problem, at most 1,024. [default: 8]"),
    _Flag("d", "deliberate.d", int, "Deliberations a cache, at most 1,024. [default: 4]"),
    _Flag("rounds", "deliberate.rounds", int, "Rounds of deliberation. [default: 1]"),
    _Flag("seed", "seed", int, "Seed of the run. [default: 0]"),
    _Flag(
        "budget",
        "budget",
        str,
        "Maximum cost, e.g. 25usd or 40Mtok, of all runs into the same --out together: more K, "
        "another D, limit, seed or time-out go on with what is left.",
        _MONEY,
    ),
    _Flag(
        "price_in",
        "endpoint.price_in",
        float,
        "US dollars for a million tokens of prompts, if the profile does not say.",
        _MONEY,
    ),
    _Flag(
        "price_out",
        "endpoint.price_out",
        float,
        "US dollars for a million tokens of responses, likewise.",
        _MONEY,
    ),
    _Flag("out", "out", str, "Folder of the run. [default: runs/TEACHER-TIME]", _RUN),
    _Flag(
        "journal",
        "journal",
        str,
        "Folder that keeps every response. [default: journal beside the run]",
        _RUN,
    ),
)

_Config = Annotated[Path | None, typer.Option(help="YAML file of the run; flags win over it.")]
_Benchmark = Annotated[
    str | None,
    typer.Option(
        help="A public benchmark with the paper's settings (`heavydistill benchmarks` lists them); "
        "file and flags win over it. With --problems FILE, a file of its shape.",
    ),
]
_Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Any other key, e.g. --set cache.pruning=head_tail; may be repeated.",
        rich_help_panel=_RUN,
    ),
]


def with_run_flags(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with all flags of a run in place of its first parameter, the configuration."""

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        path, assignments = given.pop("config"), given.pop("assignments")
        preset = _preset(given.pop("benchmark"))
        chosen: dict[str, Any] = dict(map(parse_assignment, assignments or []))
        for flag in _FLAGS:
            if (value := given.pop(flag.name)) is not None:
                chosen[flag.key] = value
        config = load_config(path, chosen, preset)
        if path and _OWN not in chosen:
            files = ",".join(config.verify.own)
            refuse_code_of_saved(path, config, f"name them yourself: --set '{_OWN}=[{files}]'")
        verb(config, **given)

    own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
    shared = [_parameter("config", _Config), _parameter("benchmark", _Benchmark)]
    shared += map(_of_flag, _FLAGS)
    shared.append(_parameter("assignments", _Assignments))
    parameters = [*shared, *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _preset(benchmark: str | None) -> dict[str, Any] | None:
    """The keys of a run that a benchmark sets."""
    if benchmark is None:
        return None
    from heavydistill.problems import benchmarks

    return benchmarks.benchmark(benchmark).preset


def _of_flag(flag: _Flag) -> inspect.Parameter:
    option = typer.Option(
        f"--{flag.name.replace('_', '-')}", help=flag.help, rich_help_panel=flag.panel
    )
    return _parameter(flag.name, Annotated[Union[flag.kind, None], option])  # noqa: UP007


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)
