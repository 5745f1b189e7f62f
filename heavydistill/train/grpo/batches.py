"""The numbers of a GRPO training: groups, generations, steps, tokens; and what does not fit.

    generation batch   per_device_train_batch_size x processes x steps_per_generation: responses
                       that are sampled at once, all of the same policy
    group              num_generations responses to one prompt, over whose mean each is judged
    episode            K + 1 responses, where K thinkers and a deliberator are one sample

Every refusal computes what would fit. Nothing here needs the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heavydistill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GenerationBatch:
    """What is sampled at once, and learnt from in a step."""

    per_device: int
    """``per_device_train_batch_size``."""
    processes: int
    """Of the launch."""
    accumulation: int
    """``gradient_accumulation_steps``."""
    per_generation: int
    """``steps_per_generation``: micro-batches that a generation is cut into."""
    group: int
    """``num_generations``."""
    iterations: int
    """``num_iterations``: how often each is learnt from."""

    @property
    def rows(self) -> int:
        """Responses of a generation."""
        return self.per_device * self.processes * self.per_generation

    @property
    def prompts(self) -> int:
        """Prompts of a generation."""
        return self.rows // self.group

    @property
    def rows_of_step(self) -> int:
        """Responses that an optimizer step learns from."""
        return self.per_device * self.processes * self.accumulation

    def steps(self, prompts: int) -> int:
        """Optimizer steps of an epoch, as TRL's sampler and the Trainer count them.

        Prompts that fill no generation are left to another epoch, which draws another order.
        """
        micro_steps = (prompts // self.prompts) * self.per_generation * self.iterations
        return -(-micro_steps // self.accumulation)


def batch_of(arguments: Any, processes: int) -> GenerationBatch:
    """The numbers of TRL's arguments, or of a command line with all of their names."""
    return GenerationBatch(
        per_device=arguments.per_device_train_batch_size,
        processes=processes,
        accumulation=arguments.gradient_accumulation_steps,
        per_generation=arguments.steps_per_generation,
        group=arguments.num_generations,
        iterations=arguments.num_iterations,
    )


def check_batch(batch: GenerationBatch) -> None:
    """See to it that a generation has whole groups.

    Raises:
        ConfigError: It has not, or a group has nothing to compare with, or a number is below 1.
    """
    for name, value in (
        ("per_device_train_batch_size", batch.per_device),
        ("gradient_accumulation_steps", batch.accumulation),
        ("steps_per_generation", batch.per_generation),
        ("num_iterations", batch.iterations),
    ):
        if value < 1:
            raise ConfigError(f"{name}: {value} is not more than 0", "Give a larger one.")
    if batch.group < 2:
        raise ConfigError(
            f"num_generations: {batch.group} responses to a prompt cannot be compared",
            "Give 2 or more; 8 is usual.",
        )
    if batch.rows % batch.group:
        steps = _next_multiple(batch.per_generation, batch.group, batch.rows)
        fitting = [n for n in range(batch.rows, 1, -1) if batch.rows % n == 0]
        ways = [f"--num_generations {_nearest(batch.group, fitting)}"] if fitting else []
        ways.append(f"--steps_per_generation {steps}")
        raise ConfigError(
            f"num_generations: {batch.group} does not divide the {batch.rows} responses of a "
            f"generation ({_product(batch)})",
            f"Give {', or '.join(ways)}.",
        )


def check_episodes(batch: GenerationBatch, attempts: int) -> None:
    """See to it that groups and micro-batches have whole episodes of K attempts and one more.

    Raises:
        ConfigError: They have not.
    """
    size = attempts + 1
    if batch.group % size == 0 and batch.group >= 2 * size and batch.per_device % size == 0:
        return
    group = max(2, round(batch.group / size)) * size
    per_device = up_to(batch.per_device, size)
    of_step = per_device * batch.processes
    wanted = -(-batch.rows // of_step)  # about as many responses as were asked for
    steps = up_to(wanted, math.lcm(group, of_step) // of_step)
    raise ConfigError(
        f"num_generations {batch.group} and per_device_train_batch_size {batch.per_device} are to "
        f"be whole episodes of K + 1 = {size} responses (think.k is {attempts}), two or more to a "
        "problem",
        f"Give --num_generations {group} --per_device_train_batch_size {per_device} "
        f"--steps_per_generation {steps}: {group // size} episodes a problem.",
    )


def check_prompts(batch: GenerationBatch, prompts: int) -> None:
    """See to it that so many prompts are enough for a step.

    Raises:
        ConfigError: There are fewer prompts than one generation asks.
    """
    if prompts >= batch.prompts:
        return
    of_step = batch.per_device * batch.processes
    least = math.lcm(batch.group, of_step)  # responses that are whole groups and whole steps
    steps = prompts * batch.group // least * (least // of_step)
    raise ConfigError(
        f"A generation asks {batch.prompts:,} prompts ({_product(batch)}, {batch.group} of each), "
        f"and there are {prompts:,}",
        f"Give --steps_per_generation {steps}, or more prompts."
        if steps
        else f"Give a smaller batch ({least} responses are the least that are whole groups of this "
        "size here), or more prompts.",
    )


def check_validation(per_device: int, processes: int, group: int) -> None:
    """See to it that an evaluation has whole groups.

    Raises:
        ConfigError: It has not.
    """
    if per_device * processes % group:
        fitting = math.lcm(group, processes) // processes
        raise ConfigError(
            f"per_device_eval_batch_size: {per_device} x {processes} process(es) are no whole "
            f"groups of {group} responses to a prompt",
            f"Give --per_device_eval_batch_size {fitting}.",
        )


def _product(batch: GenerationBatch) -> str:
    return (
        f"{batch.per_device} a process x {batch.processes} process(es) x "
        f"{batch.per_generation} steps_per_generation"
    )


def _next_multiple(steps: int, group: int, rows: int) -> int:
    """The least number of steps, no fewer than these, of which a generation has whole groups."""
    of_step = rows // steps
    unit = math.lcm(of_step, group) // of_step
    return up_to(steps, unit)


def _nearest(number: int, numbers: Sequence[int]) -> int:
    """The nearest of some, of two the larger one."""
    return min(numbers, key=lambda one: (abs(one - number), -one))


def up_to(number: int, unit: int) -> int:
    """The least multiple of a unit that is no smaller."""
    return -(-number // unit) * unit
