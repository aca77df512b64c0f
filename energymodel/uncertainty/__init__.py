"""How sure is a result, and which uncertain numbers matter?

`draws` turns uniform numbers into uncertain ones, `sampled_model` evaluates a model on them, `sample_statistics` and
`sobol_indices` reduce the samples, and `monte_carlo` runs both as sweeps.
"""
