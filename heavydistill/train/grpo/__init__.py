"""GRPO and its variants: reinforcement learning with the verifier's verdict as the reward."""
