"""The command line of a training: strict parsing of TRL's fields and ours.

The configuration of a training is a subclass of TRL's dataclass with our fields and checks added.
Values come from one YAML file (``--config``) and from flags, which override the file, as in TRL's
parser. Parsing happens before TRL is imported (see ``fields``). An unknown flag or key is an error
that names the nearest field, flags cannot be abbreviated, and values with a fixed list of choices
are checked in the file too.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from heavydistill.config.shipped import shipped_file
from heavydistill.config.yaml import error_of, line_of, read_yaml
from heavydistill.errors import ConfigError, did_you_mean
from heavydistill.train.fields import Argument, arguments_of, own_arguments

if TYPE_CHECKING:
    from trl import ModelConfig
    from trl import SFTConfig as _TrlConfig
else:
    _TrlConfig = object  # at run time, the subclasses are built with TRL's class

Refused = Mapping[str, tuple[tuple[object, ...], str]]
"""TRL parameters that are refused: the values still accepted, and the reason."""

# Refused by every training.
REFUSED: Refused = {
    "hub_token": ((None,), "the token is read from HF_TOKEN, or from `hf auth login`"),
    "hub_strategy": (("every_save", "end"), "the model is pushed once, at the end, with its card"),
    "save_only_model": ((False,), "a checkpoint must be one that a training can continue from"),
    "auto_find_batch_size": ((False,), "the batch size is the given one"),
}
# Prefixes of parameters that have no effect unless another parameter is set.
_NEEDED = {
    "use_peft": ("lora_", "use_dora", "use_rslora", "load_in_"),
    "load_in_4bit": ("bnb_4bit_", "use_bnb_"),
    "push_to_hub": ("hub_model_id", "hub_revision", "license"),
}
# Parameters that have a flag, and are therefore refused in ``model_init_kwargs``.
_FLAGS = {"revision", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code"}
_MORE_THAN_0 = (
    *("learning_rate", "num_train_epochs", "gradient_accumulation_steps", "num_iterations"),
    "save_steps",
    *("per_device_train_batch_size", "per_device_eval_batch_size", "steps_per_generation"),
)
# Paths, keys, values stored elsewhere in the record, output settings, values set by libraries.
_NOT_RECORDED = re.compile(
    r".*_dir|.*token|.*_path|hub_.*|run_name|trackio_.*|model_init_kwargs|dataset_kwargs|"
    r"max_length|deepspeed|fsdp.*|accelerator_config|parallelism_config|local_rank|_.*|"
    r"resume_from_checkpoint|debug|project|model_revision|attn_implementation|"
    r"vllm_server_.*|vllm_group_port|report_to|disable_tqdm|do_eval|pad_to_multiple_of|"
    r"dataloader_pin_memory"
)
# What other trainers call an argument.
_OTHER_NAMES = {
    **{"lr": "learning_rate", "epochs": "num_train_epochs", "steps": "max_steps"},
    **dict.fromkeys(("batch_size", "train_batch_size"), "per_device_train_batch_size"),
    **dict.fromkeys(("model", "base", "student"), "model_name_or_path"),
    **dict.fromkeys(("data", "sets"), "dataset_name"),
    **dict.fromkeys(("lora_rank", "rank"), "lora_r"),
    **{"teacher": "teacher_model_name_or_path", "out": "output_dir"},
    "max_seq_length": "max_length",
}
_Value = TypeVar("_Value")


def option(default: _Value, text: str, *choices: str) -> _Value:
    """Return a dataclass field for a training option, with its default, help text and choices."""
    metadata = {"help": text} | ({"choices": [*choices]} if choices else {})
    return field(default=default, metadata=metadata)


@dataclass
class TrainingOptions(_TrlConfig):
    """Our options that every training has; combined with TRL's configuration by inheritance."""

    script: ClassVar[str]  # Name of the command, and of its file in ``scripts``
    trl_config: ClassVar[str]  # Name of TRL's configuration class
    model_options: ClassVar[type | None] = None
    """Class that changes defaults of TRL's ``ModelConfig``; None for no changes."""
    refused: ClassVar[Refused]
    """TRL parameters that this training refuses in addition to ``REFUSED``."""
    recorded: ClassVar[Mapping[str, object]]
    """Defaults of our fields to record; a value is recorded only if it differs from its default."""

    evaluate: str | None = option(
        None,
        "Configuration file of `heavydistill evaluate`, which then compares the model with its "
        "base at the end of the training.",
    )
    license: str | None = option(
        None,
        "Licence of the published model, e.g. apache-2.0; needed with push_to_hub if no profile "
        "names the licence of the base model.",
    )
    dry_run: bool = option(
        False, "Check everything but the weights, and print what would be trained."
    )

    @classmethod
    def check_given(cls, values: Mapping[str, object]) -> None:
        """Raise an error if no model is named. Called before TRL is imported."""
        if values.get("model_name_or_path"):
            return
        fix = "--model_name_or_path: a folder, an id on the Hub, or a profile's name."
        if config := values.get("config"):
            raise ConfigError(f"{config} names no model", f"Add {fix}")
        raise ConfigError(
            "No model to train is given",
            f"Give --config FILE or the name of a shipped one, or {fix}",
        )


C = TypeVar("C", bound=TrainingOptions, covariant=True)


@dataclass(frozen=True, slots=True)
class TrainArguments(Generic[C]):
    """The parsed arguments of a training."""

    config: C
    model: ModelConfig
    is_shown: bool = True  # whether the progress is printed


def read_arguments(
    options: type[TrainingOptions],
    config: type[C],
    model: type[ModelConfig],
    arguments: Sequence[str],
) -> TrainArguments[C]:
    """Parse flags, and the YAML file that they name, into the configurations of a training.

    Raises:
        ConfigError: A flag or key is unknown or has a wrong value (see ``given_values``), or values
            contradict each other.
    """
    values = given_values(options, arguments)
    try:
        read = TrainArguments(_made(config, values), _made(model, values))
        _check(read)
    # Exceptions that the checks in the dataclasses raise.
    except (ArithmeticError, ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        fix = _keys_of(options.script)
        if "bf16" in str(error):
            fix = "This needs a GPU; for a small model on a CPU add --use_cpu true --bf16 false."
        raise ConfigError(str(error), fix) from error
    return read


def _made(kind: type[Any], values: Mapping[str, object]) -> Any:
    names = {each.name for each in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


def known_arguments(options: type[TrainingOptions]) -> dict[str, Argument]:
    """Return all arguments of a training by name, ours first, without importing TRL."""
    own = own_arguments(options)
    trl = {**arguments_of("trl", options.trl_config), **arguments_of("trl", "ModelConfig")}
    of_model = own_arguments(options.model_options) if options.model_options else {}
    return {**own, **trl, **own, **of_model}


def given_values(
    options: type[TrainingOptions], arguments: Sequence[str], others: Iterable[str] = ()
) -> dict[str, object]:
    """Return the values given by flags and by the YAML file, by name, without importing TRL.

    Sets the environment variables listed under ``env`` in the file, because libraries read them on
    import. ``others`` are flags of the calling command, suggested if a mistyped flag resembles
    them.

    Raises:
        ConfigError: A name is unknown, or a value has the wrong type or is not one of the choices.
    """
    known = known_arguments(options)
    parser = FlagParser(options.script, known)
    parser.add_argument("--config")
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        names = [action.option_strings[0] for action in parser._actions]
        fix = _nearest(flag, [*names, *others], options.script)
        raise ConfigError(f"There is no flag {flag}", fix)
    path = shipped_file(options.script, given.config) if given.config else None
    flags = {name: text for name, text in vars(given).items() if name in known and text is not None}
    tree = read_yaml(path) if path else {}
    values = _read_values(options, known, tree, flags, path)
    options.check_given({"config": given.config, **values})
    os.environ.update({str(name): str(text) for name, text in tree.get("env", {}).items()})
    return values


def _read_values(
    options: type[TrainingOptions],
    known: Mapping[str, Argument],
    tree: Mapping[str, object],
    flags: Mapping[str, str],
    path: Path | None,
) -> dict[str, object]:
    """Read the values of a file's ``tree`` and of flags; raises ConfigError for a wrong one."""
    values, faults = {}, []
    for key, value in {**tree, **flags}.items():
        what = fix = ""
        if key == "env":
            if not isinstance(value, dict):
                what, fix = f"env: {value!r} is not a mapping", "Give names and values."
        elif key not in known:
            what = f"there is no key {key!r}"
            fix = _nearest(str(key), [*known], options.script)
        else:
            try:
                values[key] = known[key].read(value)
            except ValueError as error:
                what = f"{'--' * (key in flags)}{key}: {value!r} {error}"
                fix = 'Write "no" or "off" in quotes.' if value is False else ""
        if what and key in flags:
            raise ConfigError(what, "Correct it.")
        if what:
            assert path, "a value that no flag gives is from the file"
            faults.append((line_of(path, key), what, fix))
    if faults and path:
        raise error_of(faults, path)
    return values


class FlagParser(argparse.ArgumentParser):
    """An argparse parser that raises an exception instead of printing two hundred flags."""

    def __init__(self, script: str, known: Mapping[str, Argument] | None = None) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self._script = script
        for name, each in (known or {}).items():
            options = {"nargs": "?", "const": "true"} if each.is_switch else {"nargs": each.nargs}
            self.add_argument(*spellings(name), **options)
            if each.default is True:
                no = spellings(f"no_{name}")
                self.add_argument(*no, dest=name, action="store_const", const="false")

    def error(self, message: str) -> NoReturn:
        """Raise a ``ConfigError`` with argparse's message."""
        raise ConfigError(message, _keys_of(self._script))


def spellings(name: str) -> list[str]:
    """Return the spellings of a key as a flag: with underscores and with dashes."""
    return [*dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])]


def _nearest(name: str, known: Sequence[str], script: str) -> str:
    bare = name.lstrip("-")
    usual = _OTHER_NAMES.get(bare.replace("-", "_"))
    longer = [f"{name[: -len(bare)]}{usual}"] if usual else []
    longer = longer or [other for other in known if other.startswith(name)][:3]
    near = f"Did you mean {' or '.join(longer)}? " if longer else did_you_mean(name, known)
    return f"{near}{_keys_of(script)}"


def recorded(arguments: TrainArguments[TrainingOptions]) -> dict[str, object]:
    """Return the arguments to record, sorted: simple values that differ from TRL's defaults."""
    import trl

    config, model = arguments.config, arguments.model
    usual = dict(config.recorded)
    theirs = (getattr(trl, config.trl_config), trl.ModelConfig)
    for known in itertools.chain(*map(dataclasses.fields, theirs)):
        is_unused = known.name.startswith("lora_") and not model.use_peft
        if not (is_unused or _NOT_RECORDED.fullmatch(known.name)):
            factory = known.default_factory
            usual[known.name] = known.default if factory is dataclasses.MISSING else factory()
    flags = {}
    for name in sorted(usual):
        value = _simple(getattr(config if hasattr(config, name) else model, name))
        if value != _simple(usual[name]):
            flags[name] = value
    return flags


def _simple(value: object) -> object:
    return json.loads(json.dumps(value, default=str))


def _keys_of(script: str) -> str:
    return f"`heavydistill {script} --help-all` lists all flags and keys."


def _check_needed(arguments: TrainArguments[TrainingOptions]) -> None:
    """Raise an error if an argument is set without the one that gives it an effect."""
    values = {
        known.name: (getattr(part, known.name), known.default)
        for part in (arguments.config, arguments.model)
        for known in dataclasses.fields(part)
    }
    for needed, (name, (value, usual)) in itertools.product(_NEEDED, values.items()):
        if name.startswith(_NEEDED[needed]) and value != usual and not values[needed][0]:
            raise ConfigError(
                f"{name} is set, but {needed} is not", f"Set {needed}: true, or leave {name} out."
            )


def _check(arguments: TrainArguments[TrainingOptions]) -> None:
    """Run the checks that all trainings share."""
    config, model = arguments.config, arguments.model
    for name, (allowed, why) in {**REFUSED, **config.refused}.items():
        if getattr(config, name) not in allowed:
            # The message omits the value, which may be an API key.
            raise ConfigError(f"{name} cannot be set: {why}", f"Leave {name} out.")
    for name in _MORE_THAN_0:
        if not 0 < getattr(config, name, 1) < math.inf:
            raise ConfigError(
                f"{name}: {getattr(config, name)} is not more than 0", "Give a larger number."
            )
    if config.max_steps == 0 or config.max_steps < -1:
        raise ConfigError(
            f"max_steps: {config.max_steps} is not a number of steps",
            "Give 1 or more, or leave it out for num_train_epochs.",
        )
    _check_needed(arguments)
    if config.push_to_hub and not config.hub_model_id:
        raise ConfigError(
            "push_to_hub is set without a repository", "Give --hub_model_id ORG/NAME."
        )
    if config.evaluate and model.model_revision not in (None, "main"):
        raise ConfigError(
            f"evaluate measures the main branch, but model_revision {model.model_revision} is "
            "trained",
            "Fetch that revision with `hf download --local-dir FOLDER`, and train FOLDER.",
        )
    if isinstance(config.model_init_kwargs, str):
        raise ConfigError(
            f"model_init_kwargs: {config.model_init_kwargs!r} is not a mapping", "Give JSON."
        )
    if named := _FLAGS & {*(config.model_init_kwargs or {})}:
        raise ConfigError(
            f"model_init_kwargs: {min(named)} has a flag of its own", f"Give --{min(named)}."
        )
