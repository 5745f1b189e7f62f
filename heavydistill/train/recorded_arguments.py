"""The arguments of a training as its record tells them: what differs from TRL's defaults."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heavydistill.train.arguments import Asked

# Places, keys, what stands elsewhere in the record, and what is only shown or set by the libraries.
_UNTOLD = re.compile(
    r".*_dir|.*token|.*_path|hub_.*|run_name|trackio_.*|model_init_kwargs|dataset_kwargs|"
    r"max_length|deepspeed|fsdp.*|accelerator_config|parallelism_config|local_rank|_.*|"
    r"resume_from_checkpoint|debug|project|model_revision|attn_implementation|"
    r"vllm_server_.*|vllm_group_port|report_to|disable_tqdm|do_eval|pad_to_multiple_of|dataloader_pin_memory"
)


def told(asked: Asked) -> dict[str, Any]:
    """The arguments by their names, sorted; simple values only."""
    differing = {
        field.name: _simple(getattr(part, field.name))
        for part in (asked.around, asked.trl, asked.model)
        for field in dataclasses.fields(part)
        if _is_told(field.name, asked)
        and _simple(getattr(part, field.name)) != _simple(_default(field))
    }
    return dict(sorted(differing.items()))


def _is_told(name: str, asked: Asked) -> bool:
    if name in {field.name for field in dataclasses.fields(asked.around)}:
        return name in asked.around.told
    return not _UNTOLD.fullmatch(name)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _simple(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_simple(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _simple(one) for key, one in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)
