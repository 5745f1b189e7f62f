"""Ways to turn rewards into steps, each a few of TRL's arguments; every one of them can be changed.

None says in how many steps a generation is learnt from: a training that does not say it either
takes ``STEPS``, so that ratios and their clipping mean something. As long as the policy is the one
that sampled, every ratio is 1. None has a reference model.
"""

from __future__ import annotations

from typing import Any

STEPS = 4
"""Optimizer steps that learn from one generation."""
GSPO, DAPO, DR_GRPO = "gspo", "dapo", "dr_grpo"
PRESETS: dict[str, dict[str, Any]] = {
    # One ratio for a whole response, clipped as in arXiv 2507.18071; what HeavySkill ran
    # (arXiv 2605.02396, appendix B), which gives no number of it.
    GSPO: {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
    # A ratio for each token, all tokens of a step weigh the same, more room upward
    # (arXiv 2503.14476). Its dynamic sampling is our filter of prompts, before a stage.
    DAPO: {
        "importance_sampling_level": "token",
        "loss_type": "dapo",
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": 0.28,
    },
    # Neither lengths nor the spread of a group's rewards weigh in (arXiv 2503.20783).
    DR_GRPO: {
        "importance_sampling_level": "token",
        "loss_type": "dr_grpo",
        "scale_rewards": "none",
        "beta": 0.0,
        "epsilon": 0.2,
    },
}
