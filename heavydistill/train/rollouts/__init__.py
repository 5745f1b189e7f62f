"""What GRPO and distillation share: prompts, held-out figures, and how responses are sampled."""
