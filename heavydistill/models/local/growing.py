"""Keys and values that are written into spare room, not copied with every token.

transformers' growing cache makes a new tensor for each token, with all earlier ones in it, which
takes a quarter of the time of a small model on a CPU; its static one reads room that is not yet
filled. Here a layer keeps some room behind what is there.

Not covered: layers of another kind, such as sliding windows, and layers that hold nothing yet; they
stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_ROOM = 64
"""Tokens for which room is made at once."""


def make_room(cache: Cache) -> None:
    """Let the growing layers of a cache that is in use be written in place from now on."""
    cache.layers = [
        _RoomyLayer(layer) if type(layer) is DynamicLayer and layer.is_initialized else layer
        for layer in cache.layers
    ]


class _RoomyLayer(DynamicLayer):
    """``keys`` and ``values`` are what is there, as of any growing layer: views of longer tensors.

    Whatever replaces them, as choosing rows does, loses the room, and more is made.
    """

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.dtype, self.device = layer.dtype, layer.device
        self.keys, self.values = layer.keys, layer.values
        self.is_initialized = True
        self._roomy: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of new tokens, each of shape (rows, heads, tokens, size)."""
        begin = self.keys.shape[-2]
        end = begin + key_states.shape[-2]
        if not self._has_room(end):
            self._roomy = [_longer(old, end + _ROOM) for old in (self.keys, self.values)]
        for roomy, new in zip(self._roomy, (key_states, value_states), strict=True):
            roomy[..., begin:end, :] = new
        self.keys, self.values = (roomy[..., :end, :] for roomy in self._roomy)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows; what the others took is free at once."""
        super().batch_select_indices(indices)
        self._roomy = []

    def _has_room(self, end: int) -> bool:
        return bool(self._roomy) and all(
            roomy.data_ptr() == now.data_ptr() and roomy.shape[-2] >= end
            for roomy, now in zip(self._roomy, (self.keys, self.values), strict=True)
        )


def _longer(tensor: torch.Tensor, tokens: int) -> torch.Tensor:
    """A copy with room for so many tokens."""
    longer = tensor.new_empty((*tensor.shape[:-2], tokens, tensor.shape[-1]))
    longer[..., : tensor.shape[-2], :] = tensor
    return longer
