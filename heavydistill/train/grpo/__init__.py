"""Reinforcement learning with the verdict of a verifier as the reward: GRPO and its kin."""
