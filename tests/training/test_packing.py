"""Rows in sequences: whole, each once, no two roles in one, and learnt as they are alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainings import asked

from heavydistill.errors import RunError
from heavydistill.training import packing
from heavydistill.training.packing import of_role, pack, sum_of
from heavydistill.training.sft import new_trainer, prepare

Row = tuple[str, int, int]  # role, tokens of the prompt, tokens that are learnt
ROW = st.tuples(st.sampled_from(["thinker", "deliberator"]), st.integers(1, 30), st.integers(1, 20))


def rows_of(rows: list[Row]) -> Any:
    """As ``reading`` gives them; a row's first token tells it from all others."""
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
        packing.pack_one(rows_of([("thinker", 4, 4), ("thinker", 4, 4)]).remove_columns("role"), 9)


def test_the_loss_of_packs_is_the_mean_over_their_rows(sets: Path, tmp_path: Path) -> None:
    import torch

    alone = prepare(asked(sets, tmp_path / "rows")).train.select(range(12))
    trainer = new_trainer(prepare(asked(sets, tmp_path / "packs", packing=True)))
    packed = packing.pack_one(alone, 600)
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
