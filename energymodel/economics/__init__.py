"""Money and carbon of a run."""
