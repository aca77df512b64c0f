"""The training system (given), the training plan (decided) and the outcome (computed by `evaluate`)."""
