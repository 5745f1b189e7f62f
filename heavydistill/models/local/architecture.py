"""Chooses the class that loads a checkpoint, and finds the text tower of a vision-language model.

The class is the one that ``architectures`` in ``config.json`` names. TRL trains this class, so
training, merging, generation in this process and the model card agree on the names of the modules.
AutoModelForCausalLM instead loads only the text tower of some vision-language checkpoints, under
other names, and an adapter trained on the whole model does not fit it.

Tested with Qwen3.5, Qwen3.6 and Gemma 4. Not covered: encoder-decoder models, and vision-language
models with code of their own, whose text tower has another place, or that cannot read text alone.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.models.hub_files import file_in, json_in

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

PROCESSOR = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""Files that a vision-language checkpoint needs to be served, beside those of a text model."""
_NARROW = 512  # width of the hidden states
ALL_LINEAR = "all-linear"
_TOWER = "language_model"
_log = logging.getLogger("heavydistill.models")


@dataclass(frozen=True, slots=True)
class TextTower:
    """The part of a vision-language model that reads and writes text."""

    architecture: str  # Class of transformers that loads the whole model
    name: str  # Name of the module, such as ``model.language_model``
    linear: tuple[str, ...]  # Last parts of the names of its linear layers, sorted

    @property
    def others(self) -> str:
        """Regular expression that matches the names of everything but the tower and the head."""
        return rf"(?!{re.escape(self.name)}\.|lm_head).*"

    def targets(self, given: str | list[str] | None) -> str | list[str] | None:
        """Return ``lora_target_modules`` with ``all-linear`` replaced by the tower's layers."""
        return [*self.linear] if given == ALL_LINEAR else given


def load_model(
    model: str, dtype: torch.dtype | str | None, revision: str | None = None
) -> PreTrainedModel:
    """Load a checkpoint from a folder or the Hub; ``dtype`` None is that of ``fast_dtype``.

    Raises:
        ValueError: The model does not write text, or not from text alone.
        Exception: transformers cannot load it; its errors share no class.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model, revision=revision)
    dtype = dtype or fast_dtype(config)
    return model_class(config).from_pretrained(model, revision=revision, dtype=dtype)


def fast_dtype(config: PreTrainedConfig) -> torch.dtype:
    """Return the type in which a model is computed for its samples: bfloat16 on a GPU.

    On a processor that computes bfloat16 itself, a model that is stored in it is computed in it,
    which takes 0.55 to 0.62 of the time; others are slower with it. All else is float32, and so are
    models narrower than ``_NARROW``: the bundled ones answer alike on all processors.
    """
    import torch

    if torch.cuda.is_available():
        return torch.bfloat16
    # Older versions cannot say it.
    abilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    is_native = any(has for name, has in abilities.items() if name.endswith("bf16"))
    text = config.get_text_config()
    gains = config.dtype == torch.bfloat16 and text.hidden_size >= _NARROW
    return torch.bfloat16 if is_native and gains else torch.float32


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """Return the class for a configuration; AutoModelForCausalLM if none of transformers is named.

    Raises:
        ValueError: The model is an encoder-decoder, or cannot read text alone.
    """
    import transformers

    name = next(iter(config.architectures or ()), "")
    named: type[PreTrainedModel] | None = getattr(transformers, name, None)
    if named is None or not issubclass(named, transformers.GenerationMixin):
        named = transformers.AutoModelForCausalLM
        return named
    needed = [
        parameter.name
        for parameter in inspect.signature(named.forward).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if config.is_encoder_decoder or set(needed) - {"self", "input_ids"}:
        raise ValueError(f"{name} does not continue a text, as a causal language model does")
    return named


def text_tower(config: PreTrainedConfig) -> TextTower | None:
    """Return the text tower of a vision-language model; None if the whole model is text.

    Raises:
        ValueError: As ``model_class``; or the text tower is not found.
    """
    import torch
    from transformers import PreTrainedModel

    cls = model_class(config)
    if config.get_text_config() is config:
        return None
    unknown = f"the text tower of this vision-language model ({config.model_type}) is not known"
    if not issubclass(cls, PreTrainedModel):  # AutoModelForCausalLM
        raise ValueError(unknown)
    with torch.device("meta"):
        model = cls(copy.deepcopy(config))
    modules, decoder = dict(model.named_modules()), model.get_decoder()
    name = next(name for name, module in modules.items() if module is decoder)
    if name.rpartition(".")[2] != _TOWER or decoder.get_output_embeddings() is not None:
        raise ValueError(unknown)
    layers = {
        path.rpartition(".")[2]
        for path, module in modules.items()
        if path.startswith(f"{name}.") and isinstance(module, torch.nn.Linear)
    }
    return TextTower(cls.__name__, name, tuple(sorted(layers)))


def copy_processor(model: str, folder: Path, revision: str | None = None) -> None:
    """Copy the processor of a vision-language checkpoint, without its chat template, to a folder.

    vLLM reads it for a model of this class, even if it is sent text alone. Logs a warning if the
    checkpoint has none.
    """
    copied = 0
    for name in PROCESSOR:
        try:
            settings = json_in(file_in(model, name, revision))
        except (OSError, ValueError):
            continue
        # It would take precedence over the template of the training.
        settings.pop("chat_template", None)
        (folder / name).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        copied += 1
    if not copied:
        warning = "%s has no %s. Copy it to %s if you serve that model with vLLM."
        _log.warning(warning, model, " or ".join(PROCESSOR[:2]), folder)
