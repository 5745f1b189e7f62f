"""Figures of experiments whose runs differ in one thing: cache, instructions, models, or when to
stop."""
