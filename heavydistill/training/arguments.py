"""What a training takes, beside what TRL takes: the sets, the role, and what happens around it.

The command line is TRL's (https://huggingface.co/docs/trl/script_utils): one YAML with
``--config``, over which flags win. Here it is strict. A key that no field has, in the file or as a
flag, is an error that names the nearest one; flags are not abbreviated; and a parameter of TRL
that would have no effect, or would cut rows, is refused with the reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_type_hints

from pydantic import TypeAdapter, ValidationError

from heavydistill.errors import ConfigError
from heavydistill.sections import read_yaml

if TYPE_CHECKING:
    from trl import ModelConfig, SFTConfig, TrlParser

ROLES = ("thinker", "deliberator")
_KEYS = "`python scripts/sft.py --help` lists all keys."
_COMPLETION = "what is learnt are the completions of the sets, and nothing else"
_WHOLE = "rows are never cut; too_long says what becomes of those that do not fit"
# Parameters of TRL that would be ignored or would cut rows: those values that do neither, and why.
_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "completion_only_loss": ((None, True), _COMPLETION),
    "assistant_only_loss": ((False,), _COMPLETION),
    "dataset_text_field": (("text",), _COMPLETION),
    "dataset_kwargs": ((None,), "the rows are prepared by the guard"),
    "truncation_mode": (("keep_start",), _WHOLE),
    "packing_strategy": (("bfd",), _WHOLE),
    "eos_token": ((None,), "a response ends as the chat template ends it"),
    "pad_token": ((None,), "the tokenizer's own is taken, or else its end of sequence"),
    "shuffle_dataset": ((False,), "packs are shuffled in every epoch"),
    "hub_token": ((None,), "the token is taken from HF_TOKEN, or from `hf auth login`"),
    "hub_strategy": (("every_save", "end"), "the model is pushed once, at the end, with its card"),
    "save_only_model": ((False,), "a checkpoint is there to go on from"),
    "auto_find_batch_size": ((False,), "the batch is the one that is asked for"),
}
# What ``model_init_kwargs`` could say past the flag that says it.
_FLAG_OF = {
    "revision": "model_revision",
    "attn_implementation": "attn_implementation",
    "dtype": "dtype",
    "torch_dtype": "dtype",
    "trust_remote_code": "trust_remote_code",
    "quantization_config": "load_in_4bit",
}


@dataclass(frozen=True)
class Source:
    """Rows of one role from one folder of sets.

    Attributes:
        path: A folder that ``heavydistill build`` wrote, or its id on the Hub.
        role: ``thinker`` or ``deliberator``.
        fraction: Share of the mixture, as in TRL: shares add up to one, and no row is repeated.
            None takes all rows; then all sources take all of theirs.
        revision: Branch, tag or commit on the Hub.
    """

    path: str
    role: str
    fraction: float | None = None
    revision: str | None = None


@dataclass
class SetArguments:
    """What is learnt, and what is done around it."""

    dataset_name: str | None = field(
        default=None,
        metadata={"help": "Folder of sets from `heavydistill build`, or its id on the Hub."},
    )
    role: str | None = field(
        default=None,
        metadata={
            "help": "Whose rows of it are learnt.",
            "choices": [*ROLES, "both"],
        },
    )
    datasets: list[dict] = field(  # type: ignore[type-arg]
        default_factory=list,
        metadata={
            "help": "Instead of both, in the file: a list of sources with `path`, `role` and, if "
            "wanted, `fraction` and `revision`."
        },
    )
    muon: bool = field(
        default=False,
        metadata={
            "help": "Muon for the matrices of the layers and AdamW for all else, instead of "
            "`optim`. For full training of small models, with one process or plain data "
            "parallelism."
        },
    )
    too_long: str = field(
        default="refuse",
        metadata={
            "help": "Rows of more than max_length tokens: `refuse` to train, or `leave_out` and "
            "count them. They are never cut. Without max_length it is the longest row's length, "
            "or with `leave_out` that of the 99th of 100.",
            "choices": ["refuse", "leave_out"],
        },
    )
    evaluate: str | None = field(
        default=None,
        metadata={
            "help": "Configuration of a run (as of `heavydistill evaluate --config`) in which the "
            "model is measured before and after."
        },
    )
    license: str | None = field(
        default=None,
        metadata={
            "help": "With push_to_hub: licence of the model, e.g. apache-2.0, where no profile "
            "tells that of its base."
        },
    )
    dry_run: bool = field(
        default=False,
        metadata={"help": "Read and check everything but the weights, say what would be trained."},
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A training as it is asked for.

    Attributes:
        sets: What is learnt.
        sft: TRL's arguments. ``max_length`` is None where the data decides it.
        model: The model and its adapter.
        sources: Where the rows are.
    """

    sets: SetArguments
    sft: SFTConfig
    model: ModelConfig
    sources: tuple[Source, ...]

    @property
    def role(self) -> str:
        """Whose rows are learnt: a role or ``both``."""
        roles = {source.role for source in self.sources}
        return roles.pop() if len(roles) == 1 else "both"


def parse(arguments: Sequence[str] | None = None, description: str | None = None) -> Asked:
    """Read the command line, and the file that it names.

    Args:
        arguments: In place of those of the process.
        description: What ``--help`` begins with.

    Raises:
        ConfigError: A key or value that is none; see the module.
    """
    path, rest = _file_of(sys.argv[1:] if arguments is None else list(arguments))
    tree = read_yaml(path) if path else {}
    _set_environment(path, tree)

    from trl import ModelConfig, SFTConfig

    parser = _parser(description)
    _, unknown = parser.parse_known_args(rest)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        raise ConfigError(f"There is no flag {flag}", _nearest(flag, known))
    if path:
        _check_file(parser, path, tree)
        rest = ["--config", str(path), *rest]
    try:
        sets, sft, model = parser.parse_args_and_config(rest)
    # From the types of the flags, and from the checks that the dataclasses make of themselves.
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        raise ConfigError(str(error), _mended(str(error))) from error
    assert isinstance(sft, SFTConfig)
    assert isinstance(model, ModelConfig)
    for name, (allowed, why) in _REFUSED.items():
        if getattr(sft, name) not in allowed:
            raise ConfigError(
                # Without its value, for it may be a key.
                f"{name}: it cannot be set: {why}",
                f"Leave {name} out.",
            )
    for part, name in ((sft, "hub_model_id"), (sft, "hub_revision"), (sets, "license")):
        if getattr(part, name) is not None and not sft.push_to_hub:
            raise ConfigError(
                f"{name} is set, and push_to_hub is not",
                f"Give --push_to_hub true, or leave {name} out.",
            )
    if sft.push_to_hub and not sft.hub_model_id:
        raise ConfigError(
            "push_to_hub is set, and where to is not said", "Give --hub_model_id ORG/NAME."
        )
    if sets.muon and model.use_peft:
        raise ConfigError(
            "muon is set, and what is trained is an adapter", "Leave out muon, or use_peft."
        )
    if sft.eval_packing and not sft.packing:
        raise ConfigError(
            "eval_packing without packing: rows in one sequence would attend to each other",
            "Give packing as well, or leave eval_packing out.",
        )
    if sets.evaluate and model.model_revision not in (None, "main"):
        raise ConfigError(
            "evaluate: before training the model is asked as the main branch of its repository has "
            f"it, and what is trained is model_revision {model.model_revision}",
            "Fetch that revision with `hf download --local-dir FOLDER`, and train FOLDER.",
        )
    _check_loading(sft.model_init_kwargs)
    _check_trackers(sft.report_to)
    if model.model_name_or_path is None:
        raise ConfigError(
            "There is no model to train",
            "Give --model_name_or_path: a folder, an id on the Hub, or a profile's name.",
        )
    return Asked(sets, sft, model, _sources(sets))


def _parser(description: str | None) -> TrlParser:
    from trl import ModelConfig, SFTConfig, TrlParser

    class Parser(TrlParser):
        """Raises what argparse would print below the usage of two hundred flags."""

        def error(self, message: str) -> NoReturn:
            of_list = message.startswith("argument --datasets:")
            raise ConfigError(message, "Give datasets as a list in the file." if of_list else _KEYS)

    parser = Parser(
        (SetArguments, SFTConfig, ModelConfig),
        usage="%(prog)s --config FILE [--KEY VALUE ...]",
        allow_abbrev=False,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # TRL's 1,024 would cut the answers off long rows.
    parser.set_defaults(max_length=None)
    return parser


def _file_of(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The file of ``--config``, and all other arguments."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", nargs="?", type=Path, const=Path())
    found, rest = finder.parse_known_args(arguments)
    if found.config == Path():
        raise ConfigError("--config has no file", "Give the path of a YAML file.")
    return found.config, rest


def _set_environment(path: Path | None, tree: dict[str, Any]) -> None:
    """Set the variables under ``env`` before the libraries are imported that read them."""
    variables = tree.get("env", {})
    if not isinstance(variables, dict):
        raise ConfigError(f"{path}: env: {variables!r} is no mapping", "Give names and values.")
    os.environ.update({str(name): str(value) for name, value in variables.items()})


def _check_file(parser: TrlParser, path: Path, tree: dict[str, Any]) -> None:
    """What TRL's parser does not look at: keys, choices, and values of another type."""
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}
    hints = {
        name: hint for kind in parser.dataclass_types for name, hint in get_type_hints(kind).items()
    }
    hints["resume_from_checkpoint"] |= bool  # which is a word there
    for key, value in tree.items():
        if key == "env":
            continue
        if key not in actions:
            raise ConfigError(f"{path}: there is no key {key!r}", _nearest(str(key), list(actions)))
        choices = actions[key].choices
        if choices is not None and value is not None and value not in choices:
            listed = ", ".join(map(str, choices))
            fix = 'Write "no", between quotes.' if value is False else "Take one of them."
            raise ConfigError(f"{path}: {key}: {value!r} is none of {listed}", fix)
        try:
            # Text is what a flag is too, such as 1e-4, which is no number in YAML.
            TypeAdapter(hints[key]).validate_python(value, strict=not isinstance(value, str))
        except ValidationError as error:
            kind = re.sub(r"[a-z_]+\.", "", getattr(hints[key], "__name__", str(hints[key])))
            raise ConfigError(
                f"{path}: {key}: {value!r} is no {kind}", "Give one, or leave the key out."
            ) from error


def _check_loading(kwargs: Any) -> None:
    if isinstance(kwargs, str):
        raise ConfigError(f"model_init_kwargs: {kwargs!r} is no mapping", "Give one, as JSON.")
    for key in kwargs or {}:
        if key in _FLAG_OF:
            raise ConfigError(
                f"model_init_kwargs: {key} has a flag of its own", f"Give --{_FLAG_OF[key]}."
            )


def _check_trackers(names: list[str]) -> None:
    from transformers.integrations import get_available_reporting_integrations

    there = get_available_reporting_integrations()
    for name in names:
        if name not in there:
            raise ConfigError(
                f"report_to: {name} is not installed here, or is no tracker",
                f"Install it (pip install {name}), or leave it out of report_to.",
            )


def _mended(said: str) -> str:
    """The fix of what a library says."""
    if "bf16" in said:
        return "On a machine without a GPU set bf16: false (--bf16 false)."
    return _KEYS


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}? {_KEYS}" if near else _KEYS


def _sources(sets: SetArguments) -> tuple[Source, ...]:
    if sets.datasets and sets.dataset_name:
        raise ConfigError("Both datasets and dataset_name are given", "Leave out one of the two.")
    if sets.datasets:
        if sets.role:
            raise ConfigError(
                "role is given beside datasets, whose entries have a role each", "Leave it out."
            )
        return _mixture(sets.datasets)
    if not sets.dataset_name:
        raise ConfigError(
            "There are no sets to learn from",
            "Give --dataset_name: a folder that `heavydistill build` wrote, or its id on the Hub.",
        )
    if not sets.role:
        raise ConfigError("Whose rows are learnt is not said", "Give --role: a role, or both.")
    roles = ROLES if sets.role == "both" else (sets.role,)
    return tuple(Source(sets.dataset_name, role) for role in roles)


def _mixture(entries: list[Any]) -> tuple[Source, ...]:
    sources = tuple(_source(number, entry) for number, entry in enumerate(entries, start=1))
    fractions = [source.fraction for source in sources]
    if any(fraction is None for fraction in fractions) != all(
        fraction is None for fraction in fractions
    ):
        raise ConfigError(
            "datasets: some entries have a fraction and some have none",
            "Give every entry one, or none.",
        )
    if len({(Path(source.path), source.role, source.revision) for source in sources}) < len(
        sources
    ):
        raise ConfigError("datasets: two entries are the same rows", "Leave out one of them.")
    return sources


def _source(number: int, entry: Any) -> Source:
    where = f"datasets, entry {number}"
    keys = [one.name for one in dataclasses.fields(Source)]
    fix = f"An entry has {', '.join(keys)}; the last two may be left out."
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is no mapping: {entry!r}", fix)
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{where}: there is no key {key!r}", _nearest(key, keys))
    for key in ("path", "role"):
        if not isinstance(entry.get(key), str):
            raise ConfigError(f"{where}: {key} is missing or no text", fix)
    if entry["role"] not in ROLES:
        raise ConfigError(
            f"{where}: role: {entry['role']!r} is none", f"Give {' or '.join(ROLES)}."
        )
    if not isinstance(entry.get("revision", ""), str):
        raise ConfigError(
            f"{where}: revision: {entry['revision']!r} is no text", "Put it between quotes."
        )
    fraction = entry.get("fraction")
    if fraction is not None and not (
        isinstance(fraction, int | float) and 0 < fraction <= 1 and fraction is not True
    ):
        raise ConfigError(
            f"{where}: fraction: {fraction!r} is no share", "Give more than 0, up to 1."
        )
    return Source(**entry)
