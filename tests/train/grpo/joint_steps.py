"""Two steps of a joint training, the second off policy, in each process of a launch, for tests.

    torchrun --standalone --nproc-per-node N tests/train/grpo/joint_steps.py FOLDER

Every process leaves FOLDER/RANK.pt: of each step the weights, the gradients that the optimizer
sees, the loss and the tokens of the rows of its micro-batch.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from brute_force import gradient, moved
from tiny_rollouts import STUDENT, Replayed, arguments, made_up, problems, rewarding, tokenizer
from transformers import TrainerCallback

from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.verifiers.pool import VerdictPool

K, GROUP = 3, 4
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.2, 1.0, None, 0.0]
BOUNDS = (3e-4, 4e-4)
PLAYED = made_up(len(REWARDS), K, seed=1)


class Watched(JointTrainer):
    """Notes what each step sees."""

    seen: list[dict[str, Any]]

    def compute_loss(self, model: Any, inputs: dict[str, Any], **options: Any) -> torch.Tensor:
        loss = super().compute_loss(model, inputs, **options)
        weights = {name: w.detach().clone() for name, w in self.model.state_dict().items()}
        ids = torch.cat(
            [self._apart(inputs["prompt_ids"]), self._apart(inputs["completion_ids"])], dim=1
        )
        self.seen.append({"weights": weights, "loss": loss.item(), "rows": ids.tolist()})
        return loss


class Watch(TrainerCallback):
    """Notes gradients, and leaves the policy between the steps."""

    def __init__(self, seen: list[dict[str, Any]]) -> None:
        self._seen = seen

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        self._seen[-1]["gradient"] = gradient(model)

    def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
        if len(self._seen) == 1:
            model.zero_grad()
            moved(model, PLAYED)


def main(folder: Path) -> None:
    from accelerate import PartialState

    state = PartialState(cpu=True)
    rows = len(PLAYED) * (K + 1) // state.num_processes
    seen: list[dict[str, Any]] = []
    trainer = Watched(
        episodes=Replayed(K, PLAYED, state.process_index),
        verdicts=VerdictPool(),
        model=STUDENT,
        args=arguments(
            folder,
            num_generations=GROUP * (K + 1),
            per_device_train_batch_size=rows // 2,
            steps_per_generation=2,
            gradient_accumulation_steps=1,
            max_steps=2,
            optim="sgd",
            learning_rate=1e-9,
            epsilon=BOUNDS[0],
            epsilon_high=BOUNDS[1],
            mask_truncated_completions=True,
        ),
        train_dataset=problems(len(PLAYED) // GROUP),
        reward_funcs=rewarding(REWARDS, state.process_index),
        processing_class=tokenizer(),
        callbacks=[Watch(seen)],
    )
    trainer.seen = seen
    trainer.train()
    assert trainer.accelerator.num_processes == state.num_processes
    torch.save(seen, folder / f"{state.process_index}.pt")
    if state.num_processes > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
