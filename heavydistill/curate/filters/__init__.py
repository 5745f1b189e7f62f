"""What is wrong with a problem or a response as something to learn from, as labels with counts."""
