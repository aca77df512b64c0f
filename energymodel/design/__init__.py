"""Which plan is best, and what is each constraint worth?

The solvers are here by name, `design.minimize` first; they load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from energymodel.design.architecture import optimize_architecture
    from energymodel.design.first_order import FirstOrderOptions, minimize_first_order
    from energymodel.design.lanes import minimize_many
    from energymodel.design.solve import RESULTS, PerConstraint, Solution, SolverOptions, Values, minimize

_HOME = {
    "RESULTS": "solve",
    "FirstOrderOptions": "first_order",
    "PerConstraint": "solve",
    "Solution": "solve",
    "SolverOptions": "solve",
    "Values": "solve",
    "minimize": "solve",
    "minimize_first_order": "first_order",
    "minimize_many": "lanes",
    "optimize_architecture": "architecture",
}

__all__ = [
    "RESULTS", "FirstOrderOptions", "PerConstraint", "Solution", "SolverOptions", "Values", "minimize",
    "minimize_first_order", "minimize_many", "optimize_architecture",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'energymodel.design' has no attribute {name!r}")
    value = getattr(import_module(f"energymodel.design.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
