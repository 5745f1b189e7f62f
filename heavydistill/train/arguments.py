"""The command line of a training script: TRL's, read strictly.

A script's configuration is a subclass of TRL's dataclass that adds our fields and checks itself;
TRL's parser reads it from one YAML with ``--config``, over which flags win. Added here: a key that
no field has, in the file or as a flag, is an error that names the nearest one, flags are not
abbreviated, and words of the file are checked too.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from heavydistill.config.yaml import read_yaml
from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    from trl import ModelConfig, TrlParser

Refused = Mapping[str, tuple[tuple[Any, ...], str]]
"""Parameters of TRL: the values that they may have, and why they may have no other."""

# What every script refuses.
REFUSED: Refused = {
    "hub_token": ((None,), "the token is taken from HF_TOKEN, or from `hf auth login`"),
    "hub_strategy": (("every_save", "end"), "the model is pushed once, at the end, with its card"),
    "save_only_model": ((False,), "a checkpoint is there to go on from"),
    "auto_find_batch_size": ((False,), "the batch is the one that is asked for"),
}
# Beginnings of parameters that have no effect without another one.
_NEEDED = {
    "use_peft": ("lora_", "use_dora", "use_rslora", "load_in_"),
    "load_in_4bit": ("bnb_4bit_", "use_bnb_"),
    "push_to_hub": ("hub_model_id", "hub_revision", "license"),
}
# What ``model_init_kwargs`` could say past the flag that says it.
_FLAGS = {"revision", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code"}
_MORE_THAN_0 = (
    *("learning_rate", "num_train_epochs", "gradient_accumulation_steps", "num_iterations"),
    "save_steps",
    *("per_device_train_batch_size", "per_device_eval_batch_size", "steps_per_generation"),
)
# Keys of earlier versions, and what to do instead.
_REMOVED = {
    "final_norm_learning_rate": "Leave it out: all weights learn with learning_rate.",
    "objective": "Leave it out: mode joint always learns whole episodes.",
}
# Places, keys, what stands elsewhere in the record or is only shown, and what the libraries set.
_NOT_RECORDED = re.compile(
    r".*_dir|.*token|.*_path|hub_.*|run_name|trackio_.*|model_init_kwargs|dataset_kwargs|"
    r"max_length|deepspeed|fsdp.*|accelerator_config|parallelism_config|local_rank|_.*|"
    r"resume_from_checkpoint|debug|project|model_revision|attn_implementation|"
    r"vllm_server_.*|vllm_group_port|report_to|disable_tqdm|do_eval|pad_to_multiple_of|"
    r"dataloader_pin_memory"
)


def option(default: Any, text: str, *choices: str) -> Any:
    """A field of a script's configuration: its default, help, and what it may be."""
    metadata = {"help": text} | ({"choices": [*choices]} if choices else {})
    return field(default=default, metadata=metadata)


@dataclass
class TrainingOptions:
    """Our own arguments of every training; a base of the scripts' configurations beside TRL's."""

    script: ClassVar[str]
    """Name of its file in ``scripts``."""
    trl_config: ClassVar[type]
    refused: ClassVar[Refused]
    """Parameters of TRL that it refuses beside ``REFUSED``."""
    recorded: ClassVar[Mapping[str, Any]]
    """Fields of its own that are recorded, unless they have these values."""

    evaluate: str | None = option(
        None,
        "Configuration of a run (as of `heavydistill evaluate --config`) in which the model is "
        "measured before and after.",
    )
    license: str | None = option(
        None,
        "With push_to_hub: licence of the model, e.g. apache-2.0, where no profile names that of "
        "its base.",
    )
    dry_run: bool = option(
        False, "Read and check everything but the weights, print what would be trained."
    )


C = TypeVar("C", bound=TrainingOptions)


@dataclass(frozen=True, slots=True)
class TrainArguments(Generic[C]):
    """A training as the user wants it."""

    config: C
    model: ModelConfig


def read_arguments(
    config: type[C],
    model: type[ModelConfig],
    arguments: Sequence[str] | None,
    description: str | None,
) -> TrainArguments[C]:
    """Read the command line (default: that of the process), and the file that it names.

    Raises:
        ConfigError: An unknown key, or a value that is not accepted; see the module.
    """
    set_environment(arguments)
    path, rest = _file_of(sys.argv[1:] if arguments is None else list(arguments))
    tree = read_yaml(path) if path else {}
    parser = _parser(config, model, description)
    _, unknown = parser.parse_known_args(rest)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        raise ConfigError(f"There is no flag {flag}", _nearest(flag, known, config.script))
    if path:
        _check_file(parser, path, tree, config.script)
    try:
        flags = ["--config", str(path), *rest] if path else rest
        found = TrainArguments(*parser.parse_args_and_config(flags))
        _check(found)
    # From the types of the flags, and from the checks that the dataclasses make of themselves.
    except (ArithmeticError, ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        fix = _keys_of(config.script)
        if "bf16" in str(error):
            fix = "On a machine without a GPU set bf16: false (--bf16 false)."
        raise ConfigError(str(error), fix) from error
    return found


def set_environment(arguments: Sequence[str] | None = None) -> None:
    """Set the variables under ``env`` of the file, before libraries are imported that read them."""
    path, _ = _file_of(sys.argv[1:] if arguments is None else list(arguments))
    variables = read_yaml(path).get("env", {}) if path else {}
    if not isinstance(variables, dict):
        raise ConfigError(f"{path}: env: {variables!r} is no mapping", "Give names and values.")
    os.environ.update({str(name): str(value) for name, value in variables.items()})


def _nearest(name: str, known: Sequence[str], script: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    did_you_mean = f"Did you mean {near[0]}? " if near else ""
    return _REMOVED.get(name.removeprefix("--"), f"{did_you_mean}{_keys_of(script)}")


def recorded(arguments: TrainArguments[Any]) -> dict[str, Any]:
    """The arguments as the record has them: simple values other than TRL's defaults, sorted."""
    from trl import ModelConfig

    config, model = arguments.config, arguments.model
    usual = dict(config.recorded)
    for known in (*dataclasses.fields(config.trl_config), *dataclasses.fields(ModelConfig)):
        is_unused = known.name.startswith("lora_") and not model.use_peft
        if not (is_unused or _NOT_RECORDED.fullmatch(known.name)):
            factory = known.default_factory
            usual[known.name] = known.default if factory is dataclasses.MISSING else factory()
    found = {}
    for name in sorted(usual):
        value = _simple(getattr(config if hasattr(config, name) else model, name))
        if value != _simple(usual[name]):
            found[name] = value
    return found


def _simple(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def _keys_of(script: str) -> str:
    return f"`python scripts/{script}.py --help` lists all keys."


def _parser(config: type[C], model: type[ModelConfig], description: str | None) -> TrlParser:
    from trl import TrlParser

    class Parser(TrlParser):
        """Raises what argparse would print below the usage of two hundred flags."""

        def error(self, message: str) -> NoReturn:
            raise ConfigError(message, _keys_of(config.script))

    return Parser(
        (config, model),
        usage="%(prog)s --config FILE [--KEY VALUE ...]",
        allow_abbrev=False,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _check_file(parser: TrlParser, path: Path, tree: dict[str, Any], script: str) -> None:
    """What TRL's parser does not look at, or has no fix for: keys, and words."""
    actions = {action.dest: action for action in parser._actions if action.dest != "help"}
    for key, value in tree.items():
        if key == "env":
            continue
        if key not in actions:
            fix = _nearest(str(key), list(actions), script)
            raise ConfigError(f"{path}: there is no key {key!r}", fix)
        choices = actions[key].choices
        if choices is not None and value is not None and value not in choices:
            words = ", ".join(str(choice) for choice in choices)
            fix = "Take one of them." if value is not False else 'Write "no" or "off" in quotes.'
            raise ConfigError(f"{path}: {key}: {value!r} is none of {words}", fix)


def _file_of(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The file of ``--config``, and all other arguments."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", nargs="?", type=Path, const=Path())
    found, rest = finder.parse_known_args(arguments)
    if found.config == Path():
        raise ConfigError("--config has no file", "Give the path of a YAML file.")
    return found.config, rest


def _check(arguments: TrainArguments[Any]) -> None:
    """What every training needs."""
    config, model = arguments.config, arguments.model
    for name, (allowed, why) in {**REFUSED, **config.refused}.items():
        if getattr(config, name) not in allowed:
            # Without its value, for it may be a key.
            raise ConfigError(f"{name}: it cannot be set: {why}", f"Leave {name} out.")
    for name in _MORE_THAN_0:
        if not 0 < getattr(config, name, 1) < math.inf:
            raise ConfigError(
                f"{name}: {getattr(config, name)} is not more than 0", "Give a larger one."
            )
    if config.max_steps == 0 or config.max_steps < -1:
        raise ConfigError(
            f"max_steps: {config.max_steps} is no number of steps",
            "Give 1 or more, or leave it out for num_train_epochs.",
        )
    values = {
        known.name: (getattr(part, known.name), known.default)
        for part in (config, model)
        for known in dataclasses.fields(part)
    }
    for needed, (name, (value, usual)) in product(_NEEDED, values.items()):
        if name.startswith(_NEEDED[needed]) and value != usual and not values[needed][0]:
            raise ConfigError(
                f"{name} is set, and {needed} is not",
                f"Set {needed}: true, or leave {name} out.",
            )
    if config.push_to_hub and not config.hub_model_id:
        raise ConfigError(
            "push_to_hub is set, and where to is not said", "Give --hub_model_id ORG/NAME."
        )
    if config.evaluate and model.model_revision not in (None, "main"):
        raise ConfigError(
            f"evaluate measures the main branch, and model_revision {model.model_revision} is "
            "trained",
            "Fetch that revision with `hf download --local-dir FOLDER`, and train FOLDER.",
        )
    if isinstance(config.model_init_kwargs, str):
        raise ConfigError(
            f"model_init_kwargs: {config.model_init_kwargs!r} is no mapping", "Give one, as JSON."
        )
    if named := _FLAGS & {*(config.model_init_kwargs or {})}:
        raise ConfigError(
            f"model_init_kwargs: {min(named)} has a flag of its own", "Give that one in its place."
        )
    if model.model_name_or_path is None:
        raise ConfigError(
            "There is no model to train",
            "Give --model_name_or_path: a folder, an id on the Hub, or a profile's name.",
        )
