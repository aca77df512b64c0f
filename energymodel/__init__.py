"""Energy, time, money and carbon of training a large language model, and the best plan, by gradients.

Public names load on first use, so that the command line answers before JAX is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from energymodel import calibration, design, economics, learning, performance, physics, presets, sources, system
    from energymodel.calibration.calibrate import Calibration, calibrate
    from energymodel.calibration.predict import predict
    from energymodel.design.front import Front
    from energymodel.design.optimize import Optimum, optimize
    from energymodel.design.pareto import pareto
    from energymodel.design.replan import Replan, SoFar, replan
    from energymodel.design.sensitivity import Sensitivity, sensitivity
    from energymodel.presets.scenario import Scenario, load_scenario
    from energymodel.sweep.axes import Axis
    from energymodel.sweep.monte_carlo import MonteCarlo, monte_carlo
    from energymodel.sweep.reductions import AbstractReduction
    from energymodel.sweep.run import Swept, sweep
    from energymodel.system.outcome import TrainingOutcome
    from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
    from energymodel.system.training_system import TrainingSystem, evaluate
    from energymodel.units import InputError

__version__ = "0.1.0"

_HOME = {
    "AbstractReduction": "energymodel.sweep.reductions",
    "Axis": "energymodel.sweep.axes",
    "MonteCarlo": "energymodel.sweep.monte_carlo",
    "monte_carlo": "energymodel.sweep.monte_carlo",
    "Swept": "energymodel.sweep.run",
    "Calibration": "energymodel.calibration.calibrate",
    "calibrate": "energymodel.calibration.calibrate",
    "predict": "energymodel.calibration.predict",
    "Front": "energymodel.design.front",
    "Optimum": "energymodel.design.optimize",
    "optimize": "energymodel.design.optimize",
    "Replan": "energymodel.design.replan",
    "SoFar": "energymodel.design.replan",
    "replan": "energymodel.design.replan",
    "Sensitivity": "energymodel.design.sensitivity",
    "sensitivity": "energymodel.design.sensitivity",
    "pareto": "energymodel.design.pareto",
    "Scenario": "energymodel.presets.scenario",
    "load_scenario": "energymodel.presets.scenario",
    "TrainingOutcome": "energymodel.system.outcome",
    "ParallelLayout": "energymodel.system.plan",
    "TargetLoss": "energymodel.system.plan",
    "TokenBudget": "energymodel.system.plan",
    "TrainingPlan": "energymodel.system.plan",
    "TrainingSystem": "energymodel.system.training_system",
    "evaluate": "energymodel.system.training_system",
    "InputError": "energymodel.units",
}
_PACKAGES = (
    "calibration",
    "design",
    "economics",
    "learning",
    "performance",
    "physics",
    "presets",
    "sources",
    "sweep",
    "system",
)

__all__ = [
    "AbstractReduction", "Axis", "Calibration", "Front", "InputError", "MonteCarlo", "Optimum", "ParallelLayout",
    "Replan", "Scenario", "Sensitivity", "SoFar", "Swept", "TargetLoss", "TokenBudget", "TrainingOutcome",
    "TrainingPlan", "TrainingSystem", "calibrate", "calibration", "design", "economics", "evaluate", "learning",
    "load_scenario", "monte_carlo", "optimize", "pareto", "performance", "physics", "predict", "presets", "replan",
    "sensitivity", "sources", "sweep", "system",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"energymodel.{name}")
    else:
        raise AttributeError(f"module 'energymodel' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
