"""The command line of a training script: TRL's, read strictly.

One YAML with ``--config``, over which flags win (https://huggingface.co/docs/trl/script_utils). A
key that no field has, in the file or as a flag, is an error that names the nearest one; flags are
not abbreviated; and a parameter of TRL that would have no effect, or would break what a script
promises, is refused with the reason.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from heavydistill.config.yaml import read_yaml
from heavydistill.errors import ConfigError

if TYPE_CHECKING:
    from transformers import TrainingArguments
    from trl import ModelConfig, TrlParser

Refused = Mapping[str, tuple[tuple[Any, ...], str]]
"""Names of parameters to the values that they may have, and why they may have no other."""

# What every script refuses.
REFUSED: Refused = {
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


@dataclass
class Around:
    """What is done around a training."""

    told: ClassVar[tuple[str, ...]] = ()
    """The fields of a kind of training that its record tells among the arguments."""

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


class Asked(Protocol):
    """A training as it is asked for, whatever its kind."""

    @property
    def around(self) -> Around:
        """Our own arguments."""

    @property
    def trl(self) -> TrainingArguments:
        """TRL's arguments."""

    @property
    def model(self) -> ModelConfig:
        """The model and its adapter."""

    @property
    def chat_template_path(self) -> str | None:
        """A file with the chat template that it learns, in place of the sets' or its own."""


_A = TypeVar("_A", bound=Around)
Settle = Callable[["TrlParser", Callable[[], argparse.Namespace]], None]
"""Sets defaults of a parser by what was given, which its second argument says, and checks it."""


@dataclass(frozen=True, slots=True)
class Script:
    """A training script.

    Attributes:
        name: Of its file in ``scripts``.
        config: Name of TRL's arguments, e.g. ``SFTConfig``.
        refused: Parameters of TRL that it refuses beside ``REFUSED``.
        defaults: Where its own defaults are other than TRL's.
        settle: Called when all keys and values are known to be some, before TRL checks them.
    """

    name: str
    config: str
    refused: Refused
    defaults: Mapping[str, Any]
    settle: Settle | None = None

    @property
    def keys(self) -> str:
        """Where its keys are listed."""
        return f"`python scripts/{self.name}.py --help` lists all keys."

    def nearest(self, name: str, known: Sequence[str]) -> str:
        """The fix of a name that is none."""
        near = difflib.get_close_matches(name, known, n=1)
        return f"Did you mean {near[0]}? {self.keys}" if near else self.keys

    def read(
        self, own: type[_A], arguments: Sequence[str] | None, description: str | None
    ) -> tuple[_A, Any, ModelConfig]:
        """Read the command line, and the file that it names.

        Args:
            own: Type of our own arguments.
            arguments: In place of those of the process.
            description: What ``--help`` begins with.

        Returns:
            Our own arguments, TRL's, and the model's.

        Raises:
            ConfigError: A key or value that is none; see the module.
        """
        path, rest = _file_of(sys.argv[1:] if arguments is None else list(arguments))
        tree = read_yaml(path) if path else {}
        _set_environment(path, tree)
        parser = self._parser(own, description)
        _, unknown = parser.parse_known_args(rest)
        if unknown:
            flag = unknown[0].partition("=")[0]
            known = [option for action in parser._actions for option in action.option_strings]
            raise ConfigError(f"There is no flag {flag}", self.nearest(flag, known))
        if path:
            self._check_file(parser, path, tree)
        if self.settle:
            self.settle(parser, lambda: _given(parser, tree, rest))
        try:
            flags = ["--config", str(path), *rest] if path else rest
            ours, trl, model = parser.parse_args_and_config(flags)
        # From the types of the flags, and from the checks that the dataclasses make of themselves.
        except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
            raise ConfigError(str(error), self._mended(str(error))) from error
        for name, (allowed, why) in {**REFUSED, **self.refused}.items():
            if getattr(trl, name) not in allowed:
                # Without its value, for it may be a key.
                raise ConfigError(f"{name}: it cannot be set: {why}", f"Leave {name} out.")
        _check_around(ours, trl, model)
        return ours, trl, model

    def _parser(self, own: type[Around], description: str | None) -> TrlParser:
        import trl
        from trl import ModelConfig, TrlParser

        script = self

        class Parser(TrlParser):
            """Raises what argparse would print below the usage of two hundred flags."""

            def error(self, message: str) -> NoReturn:
                of_file = re.match("argument --(datasets|verify):", message)
                kind = {"datasets": "a list", "verify": "a mapping"}
                raise ConfigError(
                    message,
                    f"Give {of_file[1]} as {kind[of_file[1]]} in the file."
                    if of_file
                    else script.keys,
                )

        parser = Parser(
            (own, getattr(trl, self.config), ModelConfig),
            usage="%(prog)s --config FILE [--KEY VALUE ...]",
            allow_abbrev=False,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(**self.defaults)
        return parser

    def _check_file(self, parser: TrlParser, path: Path, tree: dict[str, Any]) -> None:
        """What TRL's parser does not look at: keys, choices, and values of another type."""
        actions = {action.dest: action for action in parser._actions if action.dest != "help"}
        hints = {
            name: hint
            for kind in parser.dataclass_types
            for name, hint in get_type_hints(kind).items()
        }
        hints["resume_from_checkpoint"] |= bool  # which is a word there
        for key, value in tree.items():
            if key == "env":
                continue
            if key not in actions:
                fix = self.nearest(str(key), list(actions))
                raise ConfigError(f"{path}: there is no key {key!r}", fix)
            choices = actions[key].choices
            if choices is not None and value is not None and value not in choices:
                words = [str(choice) for choice in choices]
                # Which YAML takes for false.
                word = next((one for one in words if one in ("no", "off")), None)
                fix = "Take one of them."
                if value is False and word:
                    fix = f'Write "{word}", between quotes.'
                raise ConfigError(f"{path}: {key}: {value!r} is none of {', '.join(words)}", fix)
            try:
                # Text is what a flag is too, such as 1e-4, which is no number in YAML.
                TypeAdapter(hints[key]).validate_python(value, strict=not isinstance(value, str))
            except ValidationError as error:
                kind = re.sub(r"[a-z_]+\.", "", getattr(hints[key], "__name__", str(hints[key])))
                raise ConfigError(
                    f"{path}: {key}: {value!r} is no {kind}", "Give one, or leave the key out."
                ) from error

    def _mended(self, said: str) -> str:
        """The fix of what a library says."""
        if "bf16" in said:
            return "On a machine without a GPU set bf16: false (--bf16 false)."
        return self.keys


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


def _given(parser: TrlParser, tree: dict[str, Any], rest: list[str]) -> argparse.Namespace:
    """The values of all keys: the flags', or else the file's, or else the defaults."""
    parser.set_defaults(**{key: value for key, value in tree.items() if key != "env"})
    given: argparse.Namespace = parser.parse_known_args(rest)[0]
    return given


def _check_around(ours: Around, trl: TrainingArguments, model: ModelConfig) -> None:
    for part, name in ((trl, "hub_model_id"), (trl, "hub_revision"), (ours, "license")):
        if getattr(part, name) is not None and not trl.push_to_hub:
            raise ConfigError(
                f"{name} is set, and push_to_hub is not",
                f"Give --push_to_hub true, or leave {name} out.",
            )
    if trl.push_to_hub and not trl.hub_model_id:
        raise ConfigError(
            "push_to_hub is set, and where to is not said", "Give --hub_model_id ORG/NAME."
        )
    if ours.evaluate and model.model_revision not in (None, "main"):
        raise ConfigError(
            "evaluate: before training the model is asked as the main branch of its repository has "
            f"it, and what is trained is model_revision {model.model_revision}",
            "Fetch that revision with `hf download --local-dir FOLDER`, and train FOLDER.",
        )
    _check_loading(trl.model_init_kwargs)
    _check_trackers(trl.report_to)
    if model.model_name_or_path is None:
        raise ConfigError(
            "There is no model to train",
            "Give --model_name_or_path: a folder, an id on the Hub, or a profile's name.",
        )


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
