"""Minimization of smooth functions under bounds and constraints, once or for thousands of starts together.

`minimize` is an interior point for up to about 60 variables, pure and differentiable; `minimize_many` runs it for
thousands of problems of one kind on a host; `minimize_first_order` needs gradients alone, for hundreds of variables.
"""

from energymodel.solver.first_order import FirstOrderOptions, minimize_first_order
from energymodel.solver.flat_problem import Values
from energymodel.solver.minimize import minimize
from energymodel.solver.minimize_many import minimize_many
from energymodel.solver.solution import RESULTS, PerConstraint, Solution, SolverOptions, result_is

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
    "result_is",
]
