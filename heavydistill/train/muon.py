"""Muon for the matrices of the layers, AdamW for embeddings, norms and biases.

Muon (https://kellerjordan.github.io/posts/muon/; ``torch.optim.Muon``) makes every direction of a
matrix learn alike, and the bundled models were made with it.

Not covered: weights that are spread over processes (DeepSpeed's ZeRO, FSDP), since a matrix must be
there as a whole; adapters, whose matrices are thin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_EMBEDDINGS = ("embed_tokens", "lm_head")
_SHARE_OF_REST = 0.5


class MuonAdamW(torch.optim.Optimizer):
    """Both as one optimizer, so that schedules, clipping and checkpoints see a usual one.

    Args:
        parameters: (name, parameter) of all that is trained.
        lr: Of the matrices, in the scale of AdamW's; half of it is that of all else.
        weight_decay: Of the matrices.
        betas: Of AdamW.
        eps: Of AdamW.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, torch.nn.Parameter]],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        matrices: list[torch.nn.Parameter] = []
        rest: list[torch.nn.Parameter] = []
        for name, parameter in parameters:
            is_matrix = parameter.ndim == 2 and not any(part in name for part in _EMBEDDINGS)
            (matrices if is_matrix else rest).append(parameter)
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(rest, lr=lr * _SHARE_OF_REST, betas=betas, eps=eps, weight_decay=0.0),
        ]
        super().__init__([{"params": matrices}, {"params": rest}], {"lr": lr})
        # The same groups in both places, so that a schedule that changes these changes those.
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of both."""
        loss = closure() if closure else None
        muon, adamw = self._parts
        on_cpu = all(matrix.device.type == "cpu" for matrix in muon.param_groups[0]["params"])
        with _SinglePrecision() if on_cpu else nullcontext():
            muon.step()
        adamw.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self._parts for group in part.param_groups]


class _SinglePrecision(TorchFunctionMode):
    """What torch's Muon casts to bfloat16 stays in single precision.

    Processors without instructions for bfloat16 emulate it: a step of the bundled student took four
    times as long.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.bfloat16:
            return args[0].to(torch.float32, copy=True)
        return func(*args, **(kwargs or {}))
