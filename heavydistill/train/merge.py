"""Merging an adapter into its base model: a folder with a complete model, for any engine.

The folder has the weights, in the dtype of the base unless another is given; the configuration and
generation settings of the base; and the adapter's tokenizer with chat template and end of sequence.
It also has the adapter's ``training.json``, unless another base is given.

Before the folder is renamed to its final name, the model is loaded from it, and its logits must
equal those of base plus adapter up to rounding. The rounding error is measured on the model itself:
every weight is rounded once more, and the merge fails if the logits differ by more than ``TIMES``
the effect of this rounding. Correct merges differed by 0.4 to 2.2 times, with LoRA, rsLoRA and
DoRA, float32, bfloat16 and float16, 3 to 48 layers.

Merging runs on the CPU. Not covered: quantizing the result, and several adapters.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError, RunError
from heavydistill.models.hub_files import file_in
from heavydistill.models.local.adapter import Adapter, adapter_of, load_adapter, merge_adapter
from heavydistill.models.local.architecture import copy_processor, load_model
from heavydistill.models.local.engine import base_revision, load_tokenizer
from heavydistill.store.atomic import new_folder
from heavydistill.store.training_record import RECORD, TrainingRecord, read_record

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig
    from transformers import PreTrainedTokenizerBase as Tokenizer

DTYPES = ("bfloat16", "float16", "float32")
TIMES = 4
_PROBLEM = "A train covers 180 km in 2.5 hours. What is its mean speed in km/h?"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge."""

    base: str  # Folder or Hub id of the base
    dtype: str
    difference: float  # Maximum difference of a logit between the merged model and base + adapter
    rounding: float  # Maximum difference of a logit if every weight is rounded once more
    effect: float  # Maximum difference of a logit between base + adapter and the base alone
    record: TrainingRecord | None
    """Content of ``training.json`` in the folder; None if there is no such file."""

    @property
    def is_right(self) -> bool:
        """Return whether rounding explains the difference."""
        return self.difference <= TIMES * self.rounding  # False for nan

    @property
    def is_drowned(self) -> bool:
        """Return whether the rounding error may be as large as the adapter's effect."""
        return self.effect <= TIMES * self.rounding


def merge(
    name: str | Path, out: str | Path, base: str | None = None, dtype: str | None = None
) -> MergeResult:
    """Merge an adapter into its base, and check that the result computes the same as base +
    adapter.

    Args:
        name: Folder or Hub id of the adapter.
        out: The new folder.
        base: Base model that replaces the one named by the adapter.
        dtype: bfloat16, float16 or float32; weights are merged in float32 and rounded to it
            (default: merge in the dtype of the base).

    Raises:
        ConfigError: There is no adapter, its training has not ended, the base differs from that of
            the training, ``out`` exists, or the dtype is unknown.
        TeacherError: ``load_adapter`` failed, or there is no tokenizer with a chat template.
        RunError: The merged model computes something else, or the disk is full; no ``out`` remains.
    """
    from transformers.utils.logging import disable_progress_bar

    if dtype not in (None, *DTYPES):
        raise ConfigError(f"--dtype {dtype} is not one of {', '.join(DTYPES)}", "Give one.")
    name, out = str(name), Path(out)
    adapter = adapter_of(name)
    if adapter is None:
        is_whole = (Path(name) / "config.json").is_file()
        raise ConfigError(
            f"{name} has a whole model, so there is nothing to merge"
            if is_whole
            else f"There is no adapter in {name}: it has no adapter_config.json",
            "Give the folder of an adapter from `heavydistill sft`, or its Hub id.",
        )
    record = _record(adapter)
    if base:
        adapter = replace(adapter, base=base, revision=None)
        if record and base_revision(adapter) != record.base.revision:
            record = None
    elif record and (revision := base_revision(adapter)) != record.base.revision:
        raise ConfigError(
            f"{adapter.base} is not the base model that {adapter.name} was trained on: its "
            f"revision is {revision}, but that of the training was {record.base.revision}",
            "Give the base of the training with --base, or give "
            f"--base {adapter.base} to merge into this one all the same.",
        )
    disable_progress_bar()
    tokenizer = load_tokenizer(adapter.tokenizer)
    with new_folder(out) as folder:
        ids = tokenizer(_PROBLEM, return_tensors="pt")["input_ids"]
        wanted, plain = _write(adapter, tokenizer, folder, dtype, ids)
        if record:
            shutil.copyfile(file_in(adapter.name, RECORD), folder / RECORD)
        merged = _look(adapter.base, record, folder, ids, wanted, plain)
        if not merged.is_right:
            raise RunError(
                f"The merged model is not {adapter.base} with {name}: a logit differs by "
                f"{merged.difference:.3g}, but rounding explains only {merged.rounding:.3g}",
                "Use the base with the adapter unmerged, and report this with adapter_config.json.",
            )
    return merged


def _record(adapter: Adapter) -> TrainingRecord | None:
    """Return the record of the adapter's training; None if there is none."""
    try:
        folder = file_in(adapter.name, RECORD).parent
    except (OSError, ValueError):
        return None
    record = read_record(folder)
    if record.result is None:
        raise ConfigError(
            f"The training of {adapter.name} has not ended: {RECORD} has no result",
            "Resume it with --resume_from_checkpoint true, or give a checkpoint-N folder.",
        )
    return record


def _write(
    adapter: Adapter, tokenizer: Tokenizer, folder: Path, dtype: str | None, ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the merged model to a folder; return the logits of base + adapter, and of the base."""
    import torch

    adapted = load_adapter(adapter, torch.float32 if dtype else "auto").eval()
    wanted = _logits(adapted, ids)
    with adapted.disable_adapter():
        plain = _logits(adapted, ids)
    model = merge_adapter(adapter, adapted)
    if dtype:
        model = model.to(getattr(torch, dtype))
    _settle_generation(model.generation_config, tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if model.config.get_text_config() is not model.config:
        copy_processor(adapter.base, folder, adapter.revision)
    for weights in folder.glob("*.safetensors"):  # written with permissions for the owner only
        weights.chmod((folder / "config.json").stat().st_mode)
    return wanted, plain


def _settle_generation(config: GenerationConfig, eos: int | None) -> None:
    """Make generation stop at the tokenizer's end of sequence, and correct invalid settings."""
    stops = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if eos not in stops:
        config.eos_token_id = [stop for stop in (*stops, eos) if stop is not None]
    try:
        config.validate(strict=True)
    except ValueError:  # many checkpoints have a temperature without sampling
        config.do_sample = True


def _look(
    base: str,
    record: TrainingRecord | None,
    folder: Path,
    ids: torch.Tensor,
    wanted: torch.Tensor,
    plain: torch.Tensor,
) -> MergeResult:
    model = load_model(str(folder), "auto").eval()
    logits = _logits(model, ids)
    _round_once_more(model)
    return MergeResult(
        base=base,
        dtype=str(model.dtype).removeprefix("torch."),
        difference=_apart(logits, wanted),
        rounding=_apart(_logits(model, ids), logits),
        effect=_apart(wanted, plain),
        record=record,
    )


def _round_once_more(model: torch.nn.Module) -> None:
    """Change every weight at random by up to half the distance to the next representable value."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            half = torch.finfo(weight.dtype).eps / 2
            noise = torch.empty_like(weight).uniform_(-half, half, generator=generator)
            weight.add_(noise.mul_(weight))


def _logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits of every position in float32, shape (length, vocabulary)."""
    import torch

    with torch.inference_mode():
        logits: torch.Tensor = model(ids).logits[0].float()
    return logits


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())
