"""Minimization of smooth functions under bounds and constraints, once or for thousands of starts together.

`minimize` is an interior point for up to about 60 variables, pure and differentiable; `minimize_many` runs it for
thousands of problems of one kind on a host.
"""

from energymodel.solver.flat_problem import Values
from energymodel.solver.minimize import minimize
from energymodel.solver.minimize_many import minimize_many
from energymodel.solver.solution import RESULTS, PerConstraint, Solution, SolverOptions, result_is

__all__ = ["RESULTS", "PerConstraint", "Solution", "SolverOptions", "Values", "minimize", "minimize_many", "result_is"]
