"""Additions to TRL's trainers: no model cards, tied weights saved once, the Muon optimizer.

TRL would overwrite our model card at every checkpoint. Weights gathered from several processes may
contain a tied weight twice; only one is saved, so that the file has the same names with every
launch.

Muon (https://kellerjordan.github.io/posts/muon/) updates all directions of a matrix equally; the
bundled models were trained with it. Not covered: weights spread over processes (DeepSpeed's ZeRO,
FSDP), because Muon needs whole matrices; adapters, whose matrices have low rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import Trainer

from heavydistill.errors import ConfigError

# accelerate numbers the CPUs of several processes, and the Trainer loads checkpoints to "cpu:1",
# which torch does not know.
torch.serialization.register_package(
    11, lambda _: None, lambda storage, place: storage if place.startswith("cpu:") else None
)
_EMBEDDINGS = ("embed_tokens", "lm_head")
_SHARE_OF_REST = 0.5


class RolesMixin(Trainer):
    """Mixin for TRL's trainers: writes no model card, and saves tied weights only once."""

    def create_model_card(self, *_: object, **__: object) -> None:
        """Do nothing: our own model card replaces the Trainer's."""

    def log(self, logs: dict[str, float], *arguments: object) -> None:
        """Log the values; if the training has diverged, end it in all processes."""
        super().log(logs, *arguments)
        for name, value in logs.items():
            # With fp16, the gradient scaler skips steps whose gradients are too large.
            of_gradient = name == "grad_norm" and self.accelerator.mixed_precision != "fp16"
            is_watched = (name.endswith("loss") or of_gradient) and value is not None
            if is_watched and not math.isfinite(value):
                raise ConfigError(
                    f"The training diverged: {name} is {value} at step {self.state.global_step}",
                    "Start again with another --output_dir and a --learning_rate smaller than "
                    f"{self.args.learning_rate:g}.",
                )

    def end(self) -> None:
        """End the training: trackers, and the process group, which nothing can use afterwards."""
        # transformers has ``end`` since version 5.18.
        getattr(super(), "end", self.accelerator.end_training)()

    def _run_epoch(self, *, model: torch.nn.Module, **options: object) -> None:
        # Otherwise a training resumed at its last step would make one more step.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(model=model, **options)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write the weights of the model or a checkpoint; the Trainer saves only through this."""
        model = self.accelerator.unwrap_model(self.model)
        settings = model.generation_config
        if settings and isinstance(settings.eos_token_id, list):
            # The Trainer adds the tokenizer's to those of the model, in which it often is.
            settings.eos_token_id = [*dict.fromkeys(settings.eos_token_id)]
        if state_dict:
            for name, source in model.all_tied_weights_keys.items():
                weight, copy = state_dict.get(source), state_dict.get(name)
                if weight is not None and copy is not None and torch.equal(weight, copy):
                    # transformers detects tied weights by shared memory, and writes one of them.
                    state_dict[name] = weight
        super()._save(output_dir, state_dict)


class MuonAdamW(torch.optim.Optimizer):
    """Muon and AdamW combined in one optimizer, for schedules, clipping and checkpoints.

    Matrices use ``lr`` and ``weight_decay``; other parameters use half the rate and no decay.
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
            if not parameter.requires_grad:
                continue
            is_matrix = parameter.ndim == 2 and not any(part in name for part in _EMBEDDINGS)
            (matrices if is_matrix else rest).append(parameter)
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(rest, lr=lr * _SHARE_OF_REST, betas=betas, eps=eps, weight_decay=0.0),
        ]
        super().__init__([{"params": matrices}, {"params": rest}], {"lr": lr})
        # The parameter groups are shared, so that a schedule changes the groups of both optimizers.
        self.param_groups = [group for part in self._parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Make one step of both optimizers."""
        loss = closure() if closure else None
        muon, adamw = self._parts
        on_cpu = all(matrix.device.type == "cpu" for matrix in muon.param_groups[0]["params"])
        with _SinglePrecision() if on_cpu else nullcontext():
            muon.step()
        adamw.step()
        return loss

    def state_dict(self) -> dict[str, object]:
        """Return the states of both optimizers."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state returned by ``state_dict``."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self._parts for group in part.param_groups]


class _SinglePrecision(TorchFunctionMode):
    """Keeps torch's Muon from casting to bfloat16.

    CPUs without bfloat16 instructions emulate it, which made a step of the bundled student four
    times as long.
    """

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is torch.Tensor.bfloat16:
            return args[0].to(torch.float32, copy=True)
        return func(*args, **(kwargs or {}))
