"""On-policy distillation: a student samples, and a teacher of its vocabulary scores every token."""
