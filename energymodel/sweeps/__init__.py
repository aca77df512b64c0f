"""Sweeps of huge grids of systems and plans, and of uncertain numbers.

`sweep` parses axes, limits and the reduction, divides the grid into tiles and compiles one `tile_program` for all.
`prepared_sweep` runs the tiles on one of the `engines`, stores them in a `ledger`, and merges their states. A reduction
says what is kept: the contract is in `reductions`, the kinds are in `best_points`, `pareto`, `histogram` and
`full_array`. `points` evaluates in float64 what a reduction kept.

`draws` turns uniform numbers into uncertain ones and evaluates a model at them, `sample_statistics` reduces the
samples, and `monte_carlo` runs both as sweeps. `outcome_spread` and `first_order` need no samples.
"""
