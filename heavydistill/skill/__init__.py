"""The protocol of heavy thinking as a portable skill: its texts, evals, export and check."""
