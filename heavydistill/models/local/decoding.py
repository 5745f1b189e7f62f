"""Generation that prefills a prompt once for all of its samples, and drops finished rows.

transformers' ``generate`` computes all rows until the last one has ended. Here it is called for
``_STRETCH`` tokens at a time: finished rows are dropped before the next call, and keys and values
are written into preallocated memory. A callback gets each row at most ``_STRETCH`` tokens after its
end, and generation can be stopped after any token.

Not covered: models with states other than keys and values (see ``can_drop_rows``); limits that
``generate`` counts from the start of a call, such as ``min_new_tokens``; beam search; weights
sharded over processes, which must all call ``generate`` equally often.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedConfig,
    StoppingCriteriaList,
)
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.generation import GenerateDecoderOnlyOutput

_STRETCH = 16  # Number of tokens after which finished rows are reported and dropped
_ROOM = 64  # Number of tokens for which memory is allocated at once


def can_drop_rows(config: PreTrainedConfig) -> bool:
    """Whether rows can be dropped from the key-value cache of a model with this configuration.

    States of linear attention and of convolutions cannot be selected by row.
    """
    of_attention = (DynamicLayer, DynamicSlidingWindowLayer)
    return all(type(layer) in of_attention for layer in DynamicCache(config=config).layers)


def padded(
    prompts: Sequence[list[int]], pad: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The prompts, padded on the left to the longest one, and the mask; both (prompts, width)."""
    width = max(map(len, prompts))
    padding = [width - len(prompt) for prompt in prompts]
    rows = [[pad] * n + prompt for n, prompt in zip(padding, prompts, strict=True)]
    mask = [[0] * n + [1] * (width - n) for n in padding]
    return torch.tensor(rows, device=device), torch.tensor(mask, device=device)


def write(
    generate: Callable[..., GenerateDecoderOnlyOutput],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    config: GenerationConfig,
    processors_of: Callable[[Sequence[int]], LogitsProcessorList] | None = None,
    *,
    in_stretches: bool = True,
    on_tokens: Callable[[int, list[int], bool], bool] | None = None,
    goes_on: Callable[[], bool] | None = None,
) -> list[list[int]]:
    """Generate tokens for each row, up to the end of its turn or a few tokens more.

    Args:
        generate: Method ``generate`` of the model.
        input_ids: (rows, width), padded on the left.
        attention_mask: (rows, width), 0 at the padding.
        config: Configuration with ``max_new_tokens``, ``eos_token_id`` and ``pad_token_id``.
        processors_of: Logits processors for a list of row numbers.
        in_stretches: Must be False for models whose rows cannot be dropped.
        on_tokens: Called with a row's number, its tokens so far and whether it has ended, at every
            stretch until it has ended; a row for which it returns False is dropped before. An
            exception stops all rows.
        goes_on: Called after each token; returning False stops generation.
    """
    limit: int = config.max_new_tokens
    width = input_ids.size(1)
    stretch = _STRETCH if in_stretches else limit
    ends = torch.as_tensor(config.eos_token_id, device=input_ids.device)
    rows = list(range(len(input_ids)))
    written: list[list[int]] = [[] for _ in rows]
    over: set[int] = set()

    def note(sequences: torch.Tensor) -> torch.Tensor:
        """Record the tokens and report them; returns a mask of the rows that are over."""
        completions = sequences[:, width:]
        is_over = torch.isin(completions, ends).any(dim=1) | (completions.size(1) == limit)
        for row, tokens, ended in zip(rows, completions.tolist(), is_over.tolist(), strict=True):
            written[row] = tokens
            if row not in over:
                is_wanted = on_tokens is None or on_tokens(row, tokens, ended)
                over.update([row] * (ended or not is_wanted))
        return torch.tensor([row in over for row in rows], device=sequences.device)

    def ends_all(sequences: torch.Tensor, scores: object) -> torch.Tensor:
        """Stopping criterion: a mask of the finished rows, after each token."""
        if on_tokens and not in_stretches and (sequences.size(1) - width) % _STRETCH == 0:
            note(sequences)
        is_over = goes_on is not None and not goes_on()
        return torch.full((len(sequences),), is_over, dtype=torch.bool, device=sequences.device)

    cache = _read(generate, input_ids, attention_mask, config) if in_stretches else None
    criteria = StoppingCriteriaList([ends_all]) if on_tokens or goes_on else None
    for begun in range(0, limit, stretch):
        most = min(stretch, limit - begun)
        output = generate(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            generation_config=_for_a_stretch(config, most),
            logits_processor=processors_of(rows) if processors_of else None,
            stopping_criteria=criteria,
        )
        going = (~note(output.sequences)).nonzero()[:, 0]
        if not len(going) or output.sequences.size(1) - width < begun + most:
            break
        input_ids, cache = output.sequences[going], output.past_key_values
        if len(going) < len(rows):
            cache.batch_select_indices(going)
            rows = [rows[i] for i in going.tolist()]
        make_room(cache)
        attention_mask = torch.nn.functional.pad(attention_mask[going], (0, most), value=1)
    return written


def _read(
    generate: Callable[..., GenerateDecoderOnlyOutput],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    config: GenerationConfig,
) -> Cache | None:
    """Prefill the prompts without their last tokens; None if all prompts differ."""
    both = torch.stack([input_ids, attention_mask], dim=1)
    prompts, of_row = both.unique(dim=0, return_inverse=True)
    if len(prompts) == len(both) or attention_mask.sum(dim=1).min() < 2:
        return None
    # ``generate`` must generate at least one token, which is discarded.
    read = generate(
        input_ids=prompts[:, 0, :-1],
        attention_mask=prompts[:, 1, :-1],
        generation_config=_for_a_stretch(config, 1),
    )
    cache: Cache = read.past_key_values
    cache.batch_select_indices(of_row)
    make_room(cache)
    return cache


def _for_a_stretch(config: GenerationConfig, tokens: int) -> GenerationConfig:
    shorter = copy.copy(config)
    shorter.max_new_tokens, shorter.return_dict_in_generate = tokens, True
    return shorter


def make_room(cache: Cache) -> None:
    """Make the growing layers of a cache write into preallocated memory from now on."""
    cache.layers = [
        _RoomyLayer(layer) if type(layer) is DynamicLayer and layer.is_initialized else layer
        for layer in cache.layers
    ]


class _RoomyLayer(DynamicLayer):
    """A growing cache layer whose ``keys`` and ``values`` are views of longer tensors.

    If they are replaced, e.g. by selecting rows, new memory is allocated.
    """

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.dtype, self.device = layer.dtype, layer.device
        self.keys, self.values = layer.keys, layer.values
        self.is_initialized = True
        self._roomy: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of new tokens, of shape (rows, heads, tokens, size)."""
        begin = self.keys.shape[-2]
        end = begin + key_states.shape[-2]
        if not self._has_room(end):
            self._roomy = [_longer(old, end + _ROOM) for old in (self.keys, self.values)]
        for roomy, new in zip(self._roomy, (key_states, value_states), strict=True):
            roomy[..., begin:end, :] = new
        self.keys, self.values = (roomy[..., :end, :] for roomy in self._roomy)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows at these indices and free the memory of the others."""
        super().batch_select_indices(indices)
        self._roomy = []

    def _has_room(self, end: int) -> bool:
        return bool(self._roomy) and all(
            roomy.data_ptr() == now.data_ptr() and roomy.shape[-2] >= end
            for roomy, now in zip(self._roomy, (self.keys, self.values), strict=True)
        )


def _longer(tensor: torch.Tensor, tokens: int) -> torch.Tensor:
    """A copy of the tensor with room for ``tokens`` tokens."""
    longer = tensor.new_empty((*tensor.shape[:-2], tokens, tensor.shape[-1]))
    longer[..., : tensor.shape[-2], :] = tensor
    return longer
