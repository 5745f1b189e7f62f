"""G4: does linear attention keep the rows of a pack apart, with its kernels and without?

A Qwen3.5 text model with four layers, three of them linear attention. With flash-linear-attention
and causal-conv1d, rows have to stay apart; without, transformers falls back to code that mixes
them, and ``check_isolation`` must refuse it before a training starts.

Bound: accepted with the kernels, refused without.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from accelerate.utils import send_to_device
from shared import DEVICE, TINY, Skipped, measuring, new_model, report, row, tokenizer
from transformers import Qwen3_5TextConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from heavydistill.errors import ConfigError
from heavydistill.train.sft.data import check_isolation

KERNELS = {"fla": "flash-linear-attention", "causal_conv1d": "causal-conv1d"}


def refusal() -> str:
    """What ``check_isolation`` says to packs; empty if it accepts them."""
    vocabulary = len(tokenizer())
    config = Qwen3_5TextConfig(
        vocab_size=vocabulary,
        hidden_size=64 if TINY else 1024,
        intermediate_size=128 if TINY else 3584,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16 if TINY else 128,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16 if TINY else 128,
        linear_value_head_dim=16 if TINY else 128,
    )
    collate = DataCollatorForLanguageModeling(tokenizer().pad_token_id, padding_free=True)

    def batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return send_to_device(collate(rows), DEVICE)

    try:
        check_isolation(new_model(config), batch, vocabulary)
    except ConfigError as error:
        return str(error)
    return ""


def without() -> None:
    """Measure in a process that has not loaded the kernels."""
    what, bound = "rows of a pack, linear attention without kernels", "refused"
    sys.modules.update(dict.fromkeys(KERNELS))  # an import of None is an ImportError
    with measuring(what, bound):
        said = refusal()
        text = said.removeprefix("packing: ").partition(" with the row")[0] or "accepted"
        row(what, bound, text, "mixes the rows" in said)


def check() -> None:
    """Packs of a model with linear attention"""
    what, bound = "rows of a pack, linear attention with kernels", "accepted"
    with measuring(what, bound):
        missing = [name for module, name in KERNELS.items() if find_spec(module) is None]
        if missing or TINY:
            raise Skipped(f"needs a GPU and {' and '.join(missing or KERNELS.values())}")
        said = refusal()
        row(what, bound, said or "accepted", not said)
    if missing:
        return without()
    child = [sys.executable, __file__, "without"]
    print(subprocess.run(child, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    report(without if "without" in sys.argv else check)
