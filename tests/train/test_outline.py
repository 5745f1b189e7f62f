"""What is said of a training before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from trainings import RECORD

from heavydistill.train.loop import common_summary


@pytest.mark.parametrize(
    ("wanted", "found", "tokens", "warns"),
    [
        ("auto", "sdpa", 16384, True),
        ("auto", "sdpa", 8192, False),
        ("auto", "kernels-community/flash-attn2", 16384, False),
        ("sdpa", "sdpa", 16384, False),  # as it was asked for
    ],
)
def test_long_sequences_without_flash_attention_are_warned_of(
    wanted: str, found: str, tokens: int, warns: bool
) -> None:
    launch = RECORD.launch.model_copy(update={"attention": found})
    prepared: Any = SimpleNamespace(
        arguments=SimpleNamespace(model=SimpleNamespace(attn_implementation=wanted)),
        record=RECORD.model_copy(update={"launch": launch, "max_length": tokens}),
        start=None,
    )
    warnings = [text for name, text in common_summary(prepared) if name == "warning"]
    assert [f"{tokens:,} tokens" in text for text in warnings] == [True] * warns
