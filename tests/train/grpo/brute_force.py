"""The joint objective computed one episode and one row at a time, without TRL and padding."""

import copy
import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from heavydistill.train.grpo.episodes import Rollout


def advantages(rewards: Sequence[float | None], group: int, scale: str = "group") -> list[float]:
    """Of each episode; its group is ``group`` episodes in a row."""
    everyone = [one for one in rewards if one is not None]
    found = []
    for number, reward in enumerate(rewards):
        start = number - number % group
        others = [one for one in rewards[start : start + group] if one is not None]
        if reward is None or (scale == "group" and len(others) < 2):
            found.append(0.0)
            continue
        spread = {
            "none": lambda: 1 - 1e-4,
            "group": lambda others=others: statistics.stdev(others),
            "batch": lambda: statistics.stdev(everyone),
        }[scale]()
        found.append((reward - statistics.fmean(others)) / (spread + 1e-4))
    return found


def log_probabilities(model: Any, episode: Rollout, masks_truncated: bool) -> torch.Tensor:
    """Of all learnt tokens of all rows."""
    found = []
    for row in episode.rows:
        if not row.is_learnt or (masks_truncated and not row.completion.is_whole):
            continue
        ids = torch.tensor([row.prompt_ids + row.completion.ids])
        logps = model(input_ids=ids).logits[0].log_softmax(-1)
        for at in range(len(row.prompt_ids), ids.size(1)):
            found.append(logps[at - 1, ids[0, at]])
    return torch.stack(found) if found else torch.zeros(0)


def ratio(model: Any, old: Any, episode: Rollout, masks_truncated: bool) -> torch.Tensor:
    """Of an episode; 1 if nothing of it is learnt."""
    new = log_probabilities(model, episode, masks_truncated)
    with torch.no_grad():
        before = log_probabilities(old, episode, masks_truncated)
    return ((new - before).sum() / max(1, len(new))).exp()


def joint_loss(
    model: Any,
    old: Any,
    episodes: Sequence[Rollout],
    of_each: Sequence[float],
    low: float,
    high: float,
    masks_truncated: bool = True,
) -> torch.Tensor:
    """The loss of these episodes with these advantages."""
    losses = []
    for episode, advantage in zip(episodes, of_each, strict=True):
        if not len(log_probabilities(model, episode, masks_truncated)):
            losses.append(torch.zeros(()))
            continue
        weight = ratio(model, old, episode, masks_truncated)
        clipped = weight.clamp(1 - low, 1 + high)
        losses.append(-torch.minimum(weight * advantage, clipped * advantage))
    return torch.stack(losses).sum() / math.fsum(1 for _ in losses)


def plain(model: Any) -> Any:
    """A model as it is called without TRL's head."""
    return type(model).forward.__get__(model)


def moved(model: Any, played: list[Rollout], far: float = 2e-3) -> Any:
    """The model as it was, when it is changed to where logarithms of ratios are about ``far``."""
    before = copy.deepcopy(model)
    rng = random.Random(3)
    wanted = torch.tensor([rng.choice((far, -far)) for _ in played])
    towards = []
    for episode in played:
        log_probabilities(plain(model), episode, False).mean().backward()
        towards.append(gradient(model))
        model.zero_grad()
    matrix = torch.stack(towards)
    step = matrix.T @ torch.linalg.solve(matrix @ matrix.T, wanted)
    parameters = list(model.parameters())
    with torch.no_grad():
        for parameter, part in zip(
            parameters, step.split([p.numel() for p in parameters]), strict=True
        ):
            parameter += part.view_as(parameter)
    return plain(before)


def gradient(model: Any) -> torch.Tensor:
    """Of all its parameters."""
    return torch.cat([p.grad.flatten() for p in model.parameters()])
