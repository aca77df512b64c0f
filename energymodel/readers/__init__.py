"""Files that a user already has: of a model, a run, its steps and its power, and tables."""
