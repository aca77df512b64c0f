"""Sweeps of huge grids of systems and plans, and of uncertain numbers.

`sweep` parses axes, limits and the reduction, divides the grid into tiles and compiles one `tile_program` for all.
`prepared_sweep` runs the tiles on one of the `engines`, stores them in a `ledger`, and merges their states. A reduction
says what is kept: the contract is in `reductions`, the kinds are in `best_points`, `pareto_points`, `pareto_bins`,
`histogram` and `full_array`. `kept_points` evaluates in float64 what a reduction kept.

`draws` turns uniform numbers into uncertain ones, `sampled_model` evaluates a model on them, `sample_statistics` and
`sobol_indices` reduce the samples, and `monte_carlo` runs both as sweeps.
"""
