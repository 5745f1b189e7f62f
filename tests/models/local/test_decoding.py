"""Which models may let rows go, and that the others write as they would by themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, Lfm2Config, LlamaConfig
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from heavydistill.models.local.decoding import can_drop_rows, make_room, write

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
ENDS = list(range(3, 9))
LLAMA = LlamaConfig(**SIZES)
LFM2 = Lfm2Config(**SIZES, layer_types=["conv", "full_attention"])


@pytest.mark.parametrize(
    ("config", "may"),
    [
        (LLAMA, True),
        (AutoConfig.for_model("mistral", **SIZES, sliding_window=8), True),
        (LFM2, False),
        (AutoConfig.for_model("qwen3_next", layer_types=["linear_attention"] * 48), False),
    ],
    ids=lambda value: getattr(value, "model_type", None),
)
def test_states_that_are_not_of_tokens_keep_rows(config, may):
    assert can_drop_rows(config) is may


@pytest.mark.parametrize("config", [LLAMA, LFM2], ids=lambda config: config.model_type)
def test_what_is_written_is_what_generate_writes(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    prompts = torch.randint(3, 64, (5, 7))
    asked = GenerationConfig(do_sample=False, max_new_tokens=50, eos_token_id=ENDS, pad_token_id=0)
    whole = model.generate(
        input_ids=prompts, attention_mask=torch.ones_like(prompts), generation_config=asked
    )[:, 7:].tolist()
    calls: list[int] = []

    def generate(**options: Any) -> Any:
        calls.append(len(options["input_ids"]))
        return model.generate(**options)

    mask, in_stretches = torch.ones_like(prompts), can_drop_rows(config)
    written = write(generate, prompts, mask, asked, in_stretches=in_stretches)

    assert list(map(_up_to(ENDS), written)) == list(map(_up_to(ENDS), whole))
    assert (len(calls) == 1) is not can_drop_rows(config)
    # Rows that have ended leave their batch.
    assert calls == sorted(calls, reverse=True) and (len(calls) == 1 or calls[-1] < len(prompts))


def test_a_prompt_is_read_once_for_all_of_its_samples():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LLAMA).eval()
    first, second, third = torch.randint(3, 64, (3, 9))
    prompts = torch.stack([second, first, second, third, first, first])
    mask = torch.ones_like(prompts)
    prompts[3, :4] = mask[3, :4] = 0  # a shorter one
    asked = GenerationConfig(do_sample=False, max_new_tokens=20, eos_token_id=[2], pad_token_id=0)
    whole = model.generate(input_ids=prompts, attention_mask=mask, generation_config=asked)
    shapes: list[tuple[int, ...]] = []
    model.model.embed_tokens.register_forward_pre_hook(
        lambda _, inputs: shapes.append(tuple(inputs[0].shape))
    )
    written = write(model.generate, prompts, mask, asked)
    assert written == whole[:, 9:].tolist()
    assert shapes[:2] == [(3, 8), (6, 1)] and {shape[1] for shape in shapes[1:]} == {1}
    shapes.clear()
    write(model.generate, prompts[[1, 0, 3]], mask[[1, 0, 3]], asked)
    assert shapes[0] == (3, 9)


@pytest.mark.parametrize("config", [LLAMA, LFM2], ids=lambda config: config.model_type)
def test_a_row_is_reported_when_it_is_over_and_the_rest_may_be_left(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    prompts = torch.randint(3, 64, (12, 7))
    # One row ends soon, the others do not.
    asked = GenerationConfig(do_sample=False, max_new_tokens=100, eos_token_id=[2], pad_token_id=0)
    in_stretches = can_drop_rows(config)
    rest: dict[str, Any] = {
        "attention_mask": torch.ones_like(prompts),
        "config": asked,
        "in_stretches": in_stretches,
    }
    whole = write(model.generate, prompts, **rest)
    asked.eos_token_id = [whole[3][20]]
    whole = list(map(_up_to(asked.eos_token_id), write(model.generate, prompts, **rest)))
    lengths = [len(row) for row in whole]
    assert lengths[3] <= 21 and max(lengths) == 100
    reported: dict[int, list[int]] = {}
    steps: list[int] = []
    seen_after: dict[int, int] = {}

    def on_tokens(row: int, tokens: list[int], has_ended: bool) -> bool:
        if not has_ended:
            return True
        assert row not in reported
        reported[row], seen_after[row] = tokens, len(steps)
        return True

    def goes_on() -> bool:
        return not _stop_at(steps, 1000)

    write(model.generate, prompts, **rest, on_tokens=on_tokens, goes_on=goes_on)
    assert list(map(_up_to(asked.eos_token_id), (reported[row] for row in range(12)))) == whole
    for row, steps_before in seen_after.items():
        assert lengths[row] - 1 <= steps_before <= lengths[row] + 16
    assert len(steps) == 100

    steps.clear()
    kept = reported.copy()
    reported.clear()
    write(
        model.generate,
        prompts,
        **rest,
        on_tokens=on_tokens,
        goes_on=lambda: not _stop_at(steps, 50),
    )
    assert len(steps) == 50
    assert reported == {row: kept[row] for row in range(12) if lengths[row] <= 48}
    assert 0 < len(reported) < 12

    reported.clear()
    with pytest.raises(OSError, match="full"):
        write(model.generate, prompts, **rest, on_tokens=_full)


def test_a_row_that_is_not_wanted_any_more_is_dropped():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LLAMA).eval()
    prompts = torch.randint(3, 64, (3, 7))
    asked = GenerationConfig(do_sample=False, max_new_tokens=40, eos_token_id=[2], pad_token_id=0)
    lengths: dict[int, list[int]] = {}

    def on_tokens(row: int, tokens: list[int], has_ended: bool) -> bool:
        lengths.setdefault(row, []).append(len(tokens))
        return row != 1

    write(model.generate, prompts, torch.ones_like(prompts), asked, on_tokens=on_tokens)
    assert lengths[1] == [16]
    assert lengths[0][-1] > 16 or lengths[2][-1] > 16


def _stop_at(steps: list[int], count: int) -> bool:
    steps.append(0)
    return len(steps) >= count


def _full(row: int, tokens: list[int], has_ended: bool) -> bool:
    raise OSError("the disk is full")


def _up_to(ends: list[int]) -> Callable[[list[int]], list[int]]:
    return lambda row: row[: min((row.index(end) + 1 for end in ends if end in row), default=None)]


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
def test_tokens_are_appended_and_rows_chosen_as_without_room(lengths, rows, when):
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


def test_what_was_given_out_is_not_written_over():
    cache = DynamicCache()
    cache.update(*states(5, 0), 0)
    make_room(cache)
    earlier = cache.update(*states(1, 1), 0)[0]
    before = earlier.clone()
    cache.update(*states(1, 2), 0)
    assert torch.equal(earlier, before)


def test_other_layers_and_empty_ones_stay():
    cache = DynamicCache()
    cache.layers = [DynamicSlidingWindowLayer(sliding_window=8), DynamicLayer(), DynamicLayer()]
    for number in (0, 1):
        cache.update(*states(3, number), number)
    window, full, empty = cache.layers
    make_room(cache)
    assert cache.layers[0] is window and cache.layers[2] is empty
    assert cache.layers[1] is not full and torch.equal(cache.layers[1].keys, full.keys)
