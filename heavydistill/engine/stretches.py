"""Generation that lets rows go when they have ended.

transformers' ``generate`` asks a model about all rows until the last one has ended. Here it is
called for a stretch of tokens at a time: rows that have ended take no part in the next one, and
keys and values are written into spare room (see ``growing``).

Not covered: what ``generate`` counts from the beginning of a call, such as ``min_new_tokens``;
beams; weights that are spread over processes, which must all call it as often.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList

from heavydistill.engine.growing import make_room

_STRETCH = 16
"""Tokens after which rows that have ended leave their batch."""


def write(
    generate: Callable[..., Any],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    config: GenerationConfig,
    processors_of: Callable[[Sequence[int]], LogitsProcessorList] | None = None,
) -> list[list[int]]:
    """The tokens that are written of each row, up to the end of its turn or a few more.

    Args:
        generate: That of the model.
        input_ids: (rows, width), padded on the left.
        attention_mask: Likewise.
        config: With ``max_new_tokens``, ``eos_token_id`` and ``pad_token_id``.
        processors_of: From the numbers of rows to what is done to their logits besides.
    """
    width = input_ids.size(1)
    ends = torch.as_tensor(config.eos_token_id, device=input_ids.device)
    rows, cache = list(range(len(input_ids))), None
    written: list[list[int]] = [[] for _ in rows]
    for begun in range(0, config.max_new_tokens, _STRETCH):
        most = min(_STRETCH, config.max_new_tokens - begun)
        output = generate(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            generation_config=_for_a_stretch(config, most),
            logits_processor=processors_of(rows) if processors_of else None,
        )
        told = output.sequences[:, width:]
        for row, tokens in zip(rows, told.tolist(), strict=True):
            written[row] = tokens
        going = (~torch.isin(told, ends).any(dim=1)).nonzero()[:, 0]
        if not len(going):
            break
        rows = [rows[i] for i in going.tolist()]
        input_ids, cache = output.sequences[going], output.past_key_values
        cache.batch_select_indices(going)
        make_room(cache)
        attention_mask = torch.nn.functional.pad(attention_mask[going], (0, most), value=1)
    return written


def _for_a_stretch(config: GenerationConfig, tokens: int) -> GenerationConfig:
    shorter = copy.copy(config)
    shorter.max_new_tokens, shorter.return_dict_in_generate = tokens, True
    return shorter
