"""Rows in sequences: whole, each once, no two roles in one, and learnt as they are alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import sft_arguments

from heavydistill.errors import ConfigError, RunError
from heavydistill.train.sequences import check_isolation, of_role, pack, pack_one, sum_of
from heavydistill.train.sft import new_trainer, prepare, train

Row = tuple[str, int, int]  # role, tokens of the prompt, tokens that are learnt
TOKENS = 681  # of the micro student's tokenizer
ROW = st.tuples(st.sampled_from(["thinker", "deliberator"]), st.integers(1, 30), st.integers(1, 20))


def rows_of(rows: list[Row]) -> Any:
    """As ``tokenize_sources`` gives them; a row's first token tells it from all others."""
    from datasets import Dataset

    tokens = [
        ([number, *range(1000, 999 + prompt)], list(range(2000, 2000 + learnt)))
        for number, (_, prompt, learnt) in enumerate(rows)
    ]
    return Dataset.from_dict(
        {
            "input_ids": [prompt + learnt for prompt, learnt in tokens],
            "labels": [[-100] * len(prompt) + learnt for prompt, learnt in tokens],
            "role": [role for role, _, _ in rows],
        }
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 40))
def test_every_row_is_in_one_pack_whole_and_with_rows_of_its_role_alone(
    rows: list[Row], more: int
) -> None:
    given_rows = rows_of(rows)
    longest = max(map(len, given_rows["input_ids"]))
    packed = pack([given_rows], longest + more)
    roles, seen = dict(enumerate(given_rows["role"])), []
    for pack_ in packed:
        assert len(pack_["input_ids"]) == sum(pack_["seq_lengths"]) <= longest + more
        at, own = 0, set()
        for length in pack_["seq_lengths"]:
            part = slice(at, at + length)
            seen.append((pack_["input_ids"][part], pack_["labels"][part]))
            own.add(roles[pack_["input_ids"][at]])
            at += length
        assert len(own) == 1
    before = [(row["input_ids"], row["labels"]) for row in given_rows]
    assert sorted(seen) == sorted(before)
    assert sum_of(packed) == sum_of(given_rows)


def test_the_same_rows_are_packed_in_the_same_way() -> None:
    rows = [("thinker", 3 + number % 7, 5) for number in range(40)]
    assert pack([rows_of(rows)], 40)[:] == pack([rows_of(rows)], 40)[:]


def test_sources_of_a_role_share_packs(sets: Path) -> None:
    parts = [rows_of([("thinker", 4, 4)]), rows_of([("deliberator", 4, 4), ("thinker", 5, 4)])]
    assert Counter(len(one["seq_lengths"]) for one in pack(parts, 100)) == {2: 1, 1: 1}
    assert len(of_role(parts, "thinker")) == 2


def test_a_packing_that_loses_tokens_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import trl

    whole = trl.pack_dataset
    monkeypatch.setattr(trl, "pack_dataset", lambda rows, *rest: whole(rows.select([0]), *rest))
    with pytest.raises(RunError, match="Packing lost tokens"):
        pack_one(rows_of([("thinker", 4, 4), ("thinker", 4, 4)]).remove_columns("role"), 9)


def test_the_loss_of_packs_is_the_mean_over_their_rows(sets: Path, tmp_path: Path) -> None:
    import torch

    alone = prepare(sft_arguments(sets, tmp_path / "rows")).train.select(range(12))
    trainer = new_trainer(prepare(sft_arguments(sets, tmp_path / "packs", packing=True)))
    packed = pack_one(alone, 600)
    assert len(packed) < len(alone)
    trainer.model.eval()

    def loss(rows: list[dict[str, Any]]) -> tuple[float, int]:
        batch = trainer.data_collator(rows)
        learnt = int((batch["labels"] != -100).sum())
        with torch.no_grad():
            return trainer.compute_loss(trainer.model, batch).item() * learnt, learnt

    summed, tokens = (sum(part) for part in zip(*(loss([row]) for row in alone), strict=True))
    together = loss(list(packed))
    assert together[1] == tokens
    assert together[0] / tokens == pytest.approx(summed / tokens, abs=1e-5)


def random_model(kind: str, dtype: Any) -> Any:
    """A few layers of a kind with weights at random, for the micro student's tokens."""
    import torch
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": TOKENS,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
    }
    linear = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    }
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    more: dict[str, dict[str, Any]] = {
        "Qwen3NextConfig": {**linear, **experts, "shared_expert_intermediate_size": 32},
        "Qwen3_5TextConfig": linear,
        "Lfm2Config": {"layer_types": ["conv", "full_attention"] * 2},
        "Qwen3MoeConfig": experts,
        "Gemma3TextConfig": {"sliding_window": 16},
    }
    torch.manual_seed(1)
    config = getattr(transformers, kind)(**sizes, **more.get(kind, {}))
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)


@pytest.fixture(scope="module")
def collate(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes the batches of a training that packs."""
    wanted = sft_arguments(sets, tmp_path_factory.mktemp("out"), packing=True)
    return new_trainer(prepare(wanted)).data_collator


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["Qwen3Config", "Gemma3TextConfig", "Qwen3MoeConfig"])
def test_rows_that_attention_keeps_apart_may_be_packed(collate: Any, kind: str, dtype: str) -> None:
    import torch

    model = random_model(kind, getattr(torch, dtype)).train()
    check_isolation(model, collate, TOKENS)
    assert model.training


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["Qwen3NextConfig", "Qwen3_5TextConfig", "Lfm2Config"])
def test_rows_that_see_each_other_are_not_packed(collate: Any, kind: str, dtype: str) -> None:
    import torch

    # This is what transformers does without the kernels, which need a GPU.
    with pytest.raises(ConfigError, match="rows of one sequence see each other") as refused:
        check_isolation(random_model(kind, getattr(torch, dtype)), collate, TOKENS)
    assert "--packing false, or install the kernels" in str(refused.value)


def test_a_hybrid_model_is_refused_before_its_first_step_and_trains_unpacked(
    sets: Path, tmp_path: Path
) -> None:
    import torch
    from rollouts import STUDENT
    from transformers import AutoTokenizer

    hybrid = str(tmp_path / "hybrid")
    random_model("Qwen3_5TextConfig", torch.float32).save_pretrained(hybrid)
    AutoTokenizer.from_pretrained(STUDENT).save_pretrained(hybrid)
    keys = {"model_name_or_path": hybrid, "max_steps": 1}
    with pytest.raises(ConfigError, match="rows of one sequence see each other"):
        train(prepare(sft_arguments(sets, tmp_path / "packed", packing=True, **keys)))
    assert not list((tmp_path / "packed").glob("**/model.safetensors"))
    record = train(prepare(sft_arguments(sets, tmp_path / "rows", packing=False, **keys)))
    assert record.result and record.result.steps == 1
