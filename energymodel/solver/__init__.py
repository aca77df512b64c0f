"""What minimizes a smooth function under bounds and constraints, once or for thousands of starts together?"""

from energymodel.solver.first_order import FirstOrderOptions, minimize_first_order
from energymodel.solver.minimize import RESULTS, PerConstraint, Solution, SolverOptions, Values, minimize
from energymodel.solver.minimize_many import minimize_many

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
