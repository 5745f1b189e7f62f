"""An adapter: what PEFT trains beside the weights of a base model, which stay as they are.

A folder or a repository of the Hub with ``adapter_config.json``, which names the base model, and
the adapter's weights. Where it brings a tokenizer, that one and its chat template are in use, else
the base's. What stops a response is the base's. LoRA and its kinds are taken: rsLoRA, DoRA, modules
that were trained whole, and adapters of a base that was in 4 bit while they were trained.

Not covered: other kinds, several at a time, one on top of another, and added tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.errors import TeacherError
from heavydistill.models.hub_files import file_in

CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter and where its base is."""

    name: str  # Folder or Hub id
    base: str  # Folder or Hub id of the base model
    revision: str | None  # Revision of the base on the Hub; None takes the newest
    own_tokenizer: bool  # Whether it brings a tokenizer

    @property
    def tokenizer(self) -> str:
        """Folder or Hub id of the tokenizer that goes with it."""
        return self.name if self.own_tokenizer else self.base

    def lost_base(self, why: object) -> TeacherError:
        """The error that its base model cannot be had."""
        return TeacherError(
            f"The base model {self.base!r} of the adapter {self.name} cannot be loaded: {why}",
            f"Put the base model back, or set base_model_name_or_path in {self.name}/{CONFIG} to "
            "its folder or Hub id.",
        )


def adapter_of(model: str) -> Adapter | None:
    """The adapter at a folder or Hub id; None if there is none.

    Raises:
        TeacherError: The adapter's configuration cannot be used, or the folder also holds a whole
            model.
    """
    try:
        text = file_in(model, CONFIG).read_text(encoding="utf-8")
    except (OSError, ValueError):  # the Hub's errors are of these kinds
        return None
    if _has(model, "config.json"):
        raise TeacherError(
            f"{model} holds a model, and an adapter as well",
            f"Move {CONFIG} and {_WEIGHTS[0]} to a folder of their own.",
        )
    try:
        config = json.loads(text)
        kind, base = config["peft_type"], config["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError) as error:
        raise TeacherError(
            f"{CONFIG} of {model} cannot be read: {type(error).__name__}: {error}",
            "Give the folder of an adapter that PEFT has saved.",
        ) from error
    if kind != "LORA" or not base:
        lacks = f"is of the kind {kind}" if base else "names no base model"
        raise TeacherError(
            f"The adapter {model} {lacks}", "Give a LoRA adapter (rsLoRA, DoRA) with its base."
        )
    return Adapter(model, base, config.get("revision"), _has(model, "tokenizer.json"))


def load_adapter(adapter: Adapter, dtype: Any) -> Any:
    """The base model with the adapter beside its weights, as PEFT's model, on the CPU.

    ``dtype`` is the torch type of the base's weights; ``"auto"`` takes what is on disk.

    Raises:
        TeacherError: PEFT is not installed, or one of both cannot be loaded, or they do not belong
            together, or merging would change what the adapter does.
    """
    try:
        from peft import PeftConfig, PeftModelForCausalLM
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError as error:
        raise TeacherError(
            f"{adapter.name} is an adapter, and PEFT, which loads adapters, is not installed",
            'Install it with `pip install "heavydistill[train]"`, or give a whole model.',
        ) from error
    model = _load_base(adapter, dtype)
    try:
        if Path(adapter.name).is_dir() and not any(_has(adapter.name, file) for file in _WEIGHTS):
            raise FileNotFoundError(f"{_WEIGHTS[0]} is not there")
        config = PeftConfig.from_pretrained(adapter.name)
        config.inference_mode = True
        adapted = PeftModelForCausalLM(model, config)
        found = adapted.load_adapter(adapter.name, "default", torch_device="cpu")
    except Exception as error:  # cut off, other shapes: the libraries share no base
        said = " ".join(line.strip() for line in str(error).splitlines()[:2])  # of each weight one
        raise _unfit(adapter, f"{type(error).__name__}: {said}") from error
    if strangers := [*found.missing_keys, *found.unexpected_keys]:
        raise _unfit(adapter, f"{len(strangers)} weights are in one only, as {strangers[0]}")
    # PEFT would merge LoRA on embeddings that are the head's too into both.
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    if ends[0].weight is ends[1].weight and any(isinstance(e, BaseTunerLayer) for e in ends):
        raise TeacherError(
            f"The adapter {adapter.name} has LoRA on embeddings which its base model "
            f"{adapter.base!r} shares with its head, so it cannot be merged",
            "Train without it: lora_target_modules all-linear, or with the embeddings trained "
            "whole (lora_modules_to_save).",
        )
    return adapted


def merge_adapter(adapter: Adapter, adapted: Any) -> Any:
    """The base model with the adapter merged into its weights, which are changed in place.

    Raises:
        TeacherError: There are weights in it that are no numbers.
    """
    try:
        return adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TeacherError(
            f"The adapter {adapter.name} cannot be merged: {error}",
            "Its training went astray: take an earlier checkpoint, or train with a lower "
            "learning rate.",
        ) from error


def _load_base(adapter: Adapter, dtype: Any) -> Any:
    from transformers import AutoModelForCausalLM

    if _has(adapter.base, CONFIG):
        raise TeacherError(
            f"The base model {adapter.base!r} of the adapter {adapter.name} is an adapter itself",
            "Merge that one first with `heavydistill merge`, and train the merged model.",
        )
    try:
        model = AutoModelForCausalLM.from_pretrained(
            adapter.base, revision=adapter.revision, dtype=dtype
        )
    except Exception as error:  # no such model, weights cut off
        raise adapter.lost_base(error) from error
    if getattr(model.config, "quantization_config", None) is not None:
        raise TeacherError(
            f"The weights of the base model {adapter.base!r} of the adapter {adapter.name} are "
            "quantized, and an adapter cannot be merged into these",
            f"Name the unquantized model in {CONFIG} of the adapter as base_model_name_or_path.",
        )
    return model


def _unfit(adapter: Adapter, why: str) -> TeacherError:
    return TeacherError(
        f"The adapter {adapter.name} does not fit its base model {adapter.base!r}: {why}",
        "Give the adapter whole, with the model that it was trained on.",
    )


def _has(model: str, file: str) -> bool:
    try:
        return file_in(model, file).is_file()
    except (OSError, ValueError):
        return False
