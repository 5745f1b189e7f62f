"""What our trainers do beside TRL's: no cards, tied weights once, Muon where it is asked for.

At every checkpoint TRL would write a card of its own over that of the output folder, which is made
of the record of the training (see ``record``), and in which users keep notes.

The weights that engines gather of several processes may hold a tied one twice. It is written once,
whatever the launch: the file has the same names, and no second embedding that others would load.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import Trainer
from trl import SFTTrainer

from heavydistill.errors import ConfigError
from heavydistill.train.muon import MuonAdamW
from heavydistill.train.sequences import check_isolation

# accelerate numbers the CPUs of several processes, and the Trainer has checkpoints read to "cpu:1",
# which torch does not know by itself.
torch.serialization.register_package(
    11, lambda _: None, lambda storage, place: storage if place.startswith("cpu:") else None
)


class RolesMixin(Trainer):
    """Stands before one of TRL's trainers; writes no card, and tied weights once.

    Args:
        muon: Whether Muon takes the place of the optimizer of the arguments.
        options: As of TRL's trainer.
    """

    def __init__(self, *, muon: bool, **options: Any) -> None:
        self._muon = muon
        self.optimizer: torch.optim.Optimizer | None
        super().__init__(**options)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def log(self, logs: dict[str, float], *arguments: Any) -> None:
        """Log, and end a training that has diverged: what it would leave is no model.

        Raises:
            ConfigError: A loss or gradient is no number, in all processes alike.
        """
        super().log(logs, *arguments)
        for name, value in logs.items():
            # With fp16 the scaler leaves out steps whose gradients are too large.
            of_gradient = name == "grad_norm" and self.accelerator.mixed_precision != "fp16"
            is_watched = (name.endswith("loss") or of_gradient) and value is not None
            if is_watched and not math.isfinite(value):
                raise ConfigError(
                    f"The training diverged: {name} is {value} at step {self.state.global_step}",
                    "Begin anew with another --output_dir and a --learning_rate smaller than "
                    f"{self.args.learning_rate:g} (all rates that are given).",
                )

    def _run_epoch(self, **options: Any) -> None:
        # One that goes on from its last step would take one more.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(**options)

    def create_optimizer(self, *arguments: Any) -> torch.optim.Optimizer:
        """Make the optimizer of the arguments, or Muon."""
        if self._muon and self.optimizer is None:
            trained = [
                (name, parameter)
                for name, parameter in self.model.named_parameters()
                if parameter.requires_grad
            ]
            self.optimizer = MuonAdamW(
                trained,
                lr=self.args.learning_rate,
                weight_decay=self.args.weight_decay,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            )
            return self.optimizer
        made: torch.optim.Optimizer = super().create_optimizer(*arguments)
        return made

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write the model, whole or for a checkpoint; all of the Trainer's ways lead here."""
        if state_dict:
            model = self.accelerator.unwrap_model(self.model)
            for name, source in model.all_tied_weights_keys.items():
                weight = state_dict.get(source)
                copy = state_dict.get(name)
                if weight is not None and copy is not None and torch.equal(weight, copy):
                    # Tied ones are told by their memory, and of them transformers writes one.
                    state_dict[name] = weight
        super()._save(output_dir, state_dict)


class RolesTrainer(RolesMixin, SFTTrainer):
    """TRL's trainer for SFT with these manners, which packs only rows that stay apart."""

    _is_probed = False

    def _run_epoch(self, **options: Any) -> None:
        if self.args.packing and not self._is_probed:
            check_isolation(
                options["model"],
                # Where ZeRO offloads weights, they are not where the model computes.
                lambda rows: self._prepare_inputs(self.data_collator(rows)),
                self.model.config.get_text_config().vocab_size,
                is_mixed=self.args.bf16 or self.args.fp16,
            )
            self._is_probed = True
        super()._run_epoch(**options)
