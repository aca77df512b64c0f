"""Time and memory of a training step, and what failures and stragglers cost."""
