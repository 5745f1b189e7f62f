"""Supervised fine-tuning: its options, the tokens of its rows, the training."""
