"""The training loop of the micro models, on a model that takes a second."""

import itertools
import re

import pytest
from micro_models.rows import MicroRow
from micro_models.tokenizer import train_tokenizer
from micro_models.training import Schedule, Size, Stream, batch, new_model, train

ROWS = [
    MicroRow(f"{a}+{b}", f"{a}+{b}={a + b}", f"\\boxed{{{a + b}}}") for a in (1, 5) for b in (2, 6)
]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """So small a model is only slowed down by more, and its weights depend on their number."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([row.prompt for row in ROWS], context=128)


def test_only_what_the_assistant_says_is_learnt(tokenizer):
    ids, labels = batch(tokenizer, ROWS)
    for row, row_ids, row_labels in zip(ROWS, ids, labels, strict=True):
        supervised = row_labels >= 0
        assert (row_ids[supervised] == row_labels[supervised]).all()
        assert tokenizer.decode(row_labels[supervised]) == (
            f"<think>\n{row.reasoning}\n</think>\n{row.answer_text}<|im_end|>"
        )


def trained(tokenizer, deliberator_rows: int, seed: int = 0):
    """(model, lines of progress) after a training on few rows."""
    model = new_model(Size(hidden=32, layers=1, heads=1, feed_forward=32), tokenizer, seed)
    streams = [
        Stream("thinker", itertools.cycle(ROWS[:2]), 2, 0.5),
        Stream("deliberator", itertools.cycle(ROWS[2:]), deliberator_rows, 0.5),
    ]
    lines: list[str] = []
    train(model, tokenizer, streams, Schedule(200, 2e-2), lines.append)
    return model, lines


def losses(line: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss ([\d.]+)", line)]


def test_training_learns_both_roles(tokenizer):
    model, lines = trained(tokenizer, deliberator_rows=2)
    assert [line.split("  ")[0] for line in lines] == ["step 100/200", "step 200/200"]
    assert max(losses(lines[-1])) < 0.2 < min(losses(lines[0]))
    assert not model.training


def test_training_is_repeatable(tokenizer):
    one, other = (trained(tokenizer, deliberator_rows=1, seed=3)[0] for _ in range(2))
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    assert all((a == b).all() for a, b in pairs)
