"""The training sets that a build writes: their rows, folder and manifest."""
