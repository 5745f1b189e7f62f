"""Histories of trainings as the figure of the paper tells them, for tests of what watches one."""

import random
from collections.abc import Sequence
from typing import Any

# HeavySkill (arXiv 2605.02396), Figure 6, read off at these shares of the training.
K16: dict[str, Sequence[float]] = {
    "entropy": (0.50, 0.60, 0.665, 0.58, 0.48, 0.41),
    "completions/mean_length": (1400, 2100, 2800, 2200, 1300, 750),
    "groups/all_right": (0.20, 0.30, 0.40, 0.50, 0.58, 0.65),
    "reward": (0.51, 0.53, 0.55, 0.58, 0.60, 0.615),
    "eval_hm": (0.53, 0.55, 0.565, 0.556, 0.545, 0.534),
}
K8: dict[str, Sequence[float]] = {
    "entropy": (0.54, 0.60, 0.64, 0.68, 0.72, 0.76),
    "completions/mean_length": (3100, 3400, 3700, 4000, 4300, 4600),
    "groups/all_right": (0.15, 0.20, 0.25, 0.30, 0.34, 0.38),
    "reward": (0.51, 0.52, 0.53, 0.54, 0.55, 0.56),
    "eval_hm": (0.55, 0.565, 0.58, 0.597, 0.59, 0.585),
}


def history(
    curves: dict[str, Sequence[float]], steps: int = 150, noise: float = 0.02, every: int = 1
) -> list[dict[str, Any]]:
    """``log_history`` of a training with such curves, given at equal distances.

    Evaluations are where the curves are given; ``noise`` is relative.
    """
    rng = random.Random(0)
    entries: list[dict[str, Any]] = []
    points = len(curves["eval_hm"])
    evaluated = {round(i * steps / (points - 1)): i for i in range(points)}
    for step in range(steps + 1):
        if step and step % every == 0:
            entry = {
                name: _between(values, step / steps) * (1 + noise * rng.uniform(-1, 1))
                for name, values in curves.items()
                if not name.startswith("eval_")
            }
            all_right = entry["groups/all_right"]
            entry |= {"groups/all_wrong": 0.1, "frac_reward_zero_std": all_right + 0.12}
            entries.append({**entry, "loss": 0.0, "learning_rate": 1e-6, "step": step})
        if step in evaluated:
            hm, v = curves["eval_hm"][evaluated[step]], 0.54
            seen = {"eval_hm": hm, "eval_v": v, "eval_hm_minus_v": hm - v, "eval_pass_at_1": 0.44}
            entries.append({**seen, "step": step})
    entries.append({"train_runtime": 9.0, "train_loss": 0.0, "step": steps})
    return entries


def _between(values: Sequence[float], share: float) -> float:
    place = share * (len(values) - 1)
    left = min(int(place), len(values) - 2)
    return values[left] + (place - left) * (values[left + 1] - values[left])
