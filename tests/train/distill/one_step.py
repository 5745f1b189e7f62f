"""One step of a distillation on the same responses, however many processes share them."""

import contextlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tiny_distill
import torch
from students import TURN_ENDS as END

WRITTEN = [[200, 201, 202, 203, 204, END], [300, END], [400, 401, END], [500, 501, 502]]
"""Responses of different lengths; the last one was cut off."""
KEYS: dict[str, Any] = {
    "max_steps": 1,
    "optim": "sgd",
    "learning_rate": 0.1,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "ddp_find_unused_parameters": False,
}


def weights(folder: Path, size: int, rank: int, url: str = "") -> Any:
    """The weights after it; a process has ``size`` of the responses, a served teacher a ``url``."""
    keys = {**KEYS, "per_device_train_batch_size": size}
    with contextlib.ExitStack() as opened:
        if url:
            server: Any = SimpleNamespace(base_url=url, model="teacher")
            made = opened.enter_context(tiny_distill.served_trainer(folder, server, **keys))
        else:
            made = tiny_distill.trainer(folder, **keys)
        written = WRITTEN[rank * size :][:size]
        made._generate = lambda _: ([[101, 102, 103]] * size, written, None, None, [])
        made.train()
        model = made.accelerator.unwrap_model(made.model)
        return {name: each.detach() for name, each in model.named_parameters()}


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    torch.save(weights(folder, 2, rank, *sys.argv[2:]), folder / f"{rank}.pt")
