"""Tables of experiments that have no baseline model: early stopping, and width and depth."""
