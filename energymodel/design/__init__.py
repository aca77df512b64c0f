"""Which plan is best, and what is each constraint worth? The solver's functions are here by name as well."""

from energymodel.solver import (
    RESULTS,
    FirstOrderOptions,
    PerConstraint,
    Solution,
    SolverOptions,
    Values,
    minimize,
    minimize_first_order,
    minimize_many,
)

__all__ = [
    "RESULTS",
    "FirstOrderOptions",
    "PerConstraint",
    "Solution",
    "SolverOptions",
    "Values",
    "minimize",
    "minimize_first_order",
    "minimize_many",
]
