"""Loads PEFT adapters: additional weights for a frozen base model.

An adapter is a folder or a repository of the Hub with ``adapter_config.json``, which names the base
model, and the adapter's weights. The adapter's tokenizer and chat template are used if it has them,
otherwise the base's; the end-of-turn tokens are always the base's. Supported are LoRA, rsLoRA and
DoRA, fully trained modules, and adapters trained on a base in 4 bit.

Not covered: other kinds of adapters, several at a time, an adapter on an adapter, added tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import TeacherError
from heavydistill.models.hub_files import file_in
from heavydistill.models.local.architecture import load_model

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel

CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter and its base model."""

    name: str  # Folder or Hub id
    base: str  # Folder or Hub id of the base model
    revision: str | None  # Revision of the base on the Hub; None for the newest
    own_tokenizer: bool  # Whether the adapter has a tokenizer
    rank: int  # Of its matrices, where no pattern sets another
    has_patterns: bool  # Whether ranks or scales differ between layers

    @property
    def tokenizer(self) -> str:
        """Folder or Hub id of the tokenizer to use with the adapter."""
        return self.name if self.own_tokenizer else self.base

    def lost_base(self, why: object) -> TeacherError:
        """The error for a base model that cannot be loaded."""
        return TeacherError(
            f"The base model {self.base!r} of the adapter {self.name} cannot be loaded: {why}",
            f"Put the base model back, or set base_model_name_or_path in {self.name}/{CONFIG} to "
            "its folder or Hub id.",
        )


def adapter_of(model: str) -> Adapter | None:
    """Read the configuration of the adapter in a folder or at a Hub id; None if it is no adapter.

    Raises:
        TeacherError: The adapter's configuration cannot be used, or the folder also holds a whole
            model.
    """
    try:
        text = file_in(model, CONFIG).read_text(encoding="utf-8")
    except (OSError, ValueError):  # the Hub's errors have these types
        return None
    if _has(model, "config.json"):
        raise TeacherError(
            f"{model} holds both a model and an adapter",
            f"Move {CONFIG} and {_WEIGHTS[0]} to a folder of their own.",
        )
    try:
        config = json.loads(text)
        kind, base = config["peft_type"], config["base_model_name_or_path"]
        rank = int(config.get("r", 0))
        has_patterns = bool(config.get("rank_pattern") or config.get("alpha_pattern"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TeacherError(
            f"{CONFIG} of {model} cannot be read: {type(error).__name__}: {error}",
            "Give the folder of an adapter that PEFT has saved.",
        ) from error
    if kind != "LORA" or not base:
        lacks = f"is of the kind {kind}" if base else "names no base model"
        raise TeacherError(
            f"The adapter {model} {lacks}",
            f"Give a LoRA, rsLoRA or DoRA adapter whose {CONFIG} names its base.",
        )
    tokenizer = _has(model, "tokenizer.json")
    return Adapter(model, base, config.get("revision"), tokenizer, rank, has_patterns)


def load_adapter(adapter: Adapter, dtype: torch.dtype | str | None) -> PeftModel:
    """Load the base model with the adapter as a PEFT model on the CPU, not merged.

    ``dtype`` is the torch type of the base's weights: ``"auto"`` keeps the type on disk, None
    chooses (``architecture.fast_dtype``).

    Raises:
        TeacherError: PEFT is not installed; base or adapter cannot be loaded; they do not fit each
            other; or merging would change the effect of the adapter.
    """
    try:
        from peft import PeftConfig, PeftModelForCausalLM
    except ImportError as error:
        raise TeacherError(
            f"{adapter.name} is an adapter, and PEFT, which loads adapters, is not installed",
            "Install it: pip install 'heavydistill[train]'. Or give a whole model.",
        ) from error
    model = _load_base(adapter, dtype)
    try:
        if Path(adapter.name).is_dir() and not any(_has(adapter.name, file) for file in _WEIGHTS):
            raise FileNotFoundError(f"{_WEIGHTS[0]} is not there")
        config = PeftConfig.from_pretrained(adapter.name)
        config.inference_mode = True
        adapted = PeftModelForCausalLM(model, config)
        report = adapted.load_adapter(adapter.name, "default", torch_device="cpu")
    except Exception as error:  # incomplete weights or wrong shapes: no common exception
        lines = str(error).splitlines()[:2]  # one for each weight
        message = " ".join(line.strip() for line in lines)
        raise _unfit(adapter, f"{type(error).__name__}: {message}") from error
    if strangers := [*report.missing_keys, *report.unexpected_keys]:
        what = f"{len(strangers)} weights are in only one of both, e.g. {strangers[0]}"
        raise _unfit(adapter, what)
    _refuse_shared_ends(adapter, model)
    return adapted


def _refuse_shared_ends(adapter: Adapter, model: PreTrainedModel) -> None:
    """Raise TeacherError if PEFT would merge the LoRA of the embeddings into the head too."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    ends = model.get_input_embeddings(), model.get_output_embeddings()
    if ends[0].weight is ends[1].weight and any(isinstance(e, BaseTunerLayer) for e in ends):
        raise TeacherError(
            f"The adapter {adapter.name} has LoRA on embeddings that the base model "
            f"{adapter.base!r} shares with its head, so it cannot be merged",
            "Train again with lora_target_modules: all-linear, or with the embeddings in "
            "lora_modules_to_save.",
        )


def merge_adapter(adapter: Adapter, adapted: PeftModel) -> PreTrainedModel:
    """Merge the adapter into the base model's weights, in place, and return the base model.

    Raises:
        TeacherError: The adapter has weights that are not finite numbers.
    """
    try:
        return adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TeacherError(
            f"The adapter {adapter.name} cannot be merged: {error}",
            "Its training diverged: use an earlier checkpoint, or train with a lower learning "
            "rate.",
        ) from error


def _load_base(adapter: Adapter, dtype: torch.dtype | str | None) -> PreTrainedModel:
    if _has(adapter.base, CONFIG):
        raise TeacherError(
            f"The base model {adapter.base!r} of the adapter {adapter.name} is an adapter itself",
            "Merge that one first with `heavydistill merge`, and train the merged model.",
        )
    try:
        model = load_model(adapter.base, dtype, adapter.revision)
    except Exception as error:  # no such model, or incomplete weights
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
        "Give the complete adapter, with the base model that it was trained on.",
    )


def _has(model: str, file: str) -> bool:
    try:
        return file_in(model, file).is_file()
    except (OSError, ValueError):
        return False
