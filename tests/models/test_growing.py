"""A cache with spare room holds what one without holds."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from heavydistill.models.local.decoding import make_room

ROWS = 3


def states(tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, ROWS, 2, tokens, 4, generator=made)
    return keys, values


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=8),
    st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=ROWS, unique=True),
    st.integers(0, 7),
)
def test_tokens_are_appended_and_rows_chosen_as_without_room(
    lengths: list[int], rows: list[int], when: int
) -> None:
    caches = DynamicCache(), DynamicCache()
    kept = torch.arange(ROWS)
    for number, tokens in enumerate(lengths):
        keys, values = (state[kept] for state in states(tokens, number))
        told = [cache.update(keys, values, 0) for cache in caches]
        assert all(map(torch.equal, *told))
        assert caches[0].get_seq_length() == caches[1].get_seq_length()
        make_room(caches[1])
        if number == when:
            kept = kept[torch.tensor(rows)]
            for cache in caches:
                cache.batch_select_indices(torch.tensor(rows))


def test_what_was_given_out_is_not_written_over() -> None:
    cache = DynamicCache()
    cache.update(*states(5, 0), 0)
    make_room(cache)
    earlier = cache.update(*states(1, 1), 0)[0]
    before = earlier.clone()
    cache.update(*states(1, 2), 0)
    assert torch.equal(earlier, before)


def test_other_layers_and_empty_ones_stay() -> None:
    cache = DynamicCache()
    cache.layers = [DynamicSlidingWindowLayer(sliding_window=8), DynamicLayer(), DynamicLayer()]
    for number in (0, 1):
        cache.update(*states(3, number), number)
    window, full, empty = cache.layers
    make_room(cache)
    assert cache.layers[0] is window and cache.layers[2] is empty
    assert cache.layers[1] is not full and torch.equal(cache.layers[1].keys, full.keys)
