from . import (
    allocation,
    calibration,
    codesign,
    design,
    economics,
    learning,
    performance,
    physics,
    presets,
    solver,
    sources,
    sweeps,
    system,
    uncertainty,
)
from .calibration.calibrate import Calibration, calibrate
from .calibration.step_prediction import predict
from .calibration.table_columns import TableChoices
from .design.front import Front
from .design.optimize import optimize
from .design.pareto import pareto
from .design.replan import MeasuredRun, Replan, replan
from .design.result import Optimum, SearchResult
from .design.sensitivity import Sensitivity, sensitivity
from .errors import InputError
from .presets.scenario import Scenario, load_scenario
from .sweeps.axes import Axis
from .sweeps.reductions import AbstractReduction
from .sweeps.sweep import sweep
from .sweeps.sweep_result import SweepResult
from .system.evaluate import evaluate
from .system.outcome import TrainingOutcome
from .system.own_outputs import own_output
from .system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from .system.training_system import TrainingSystem
from .uncertainty.monte_carlo import MonteCarlo, monte_carlo

__version__: str

__all__ = [
    "AbstractReduction",
    "Axis",
    "Calibration",
    "Front",
    "InputError",
    "MeasuredRun",
    "MonteCarlo",
    "Optimum",
    "ParallelLayout",
    "Replan",
    "Scenario",
    "SearchResult",
    "Sensitivity",
    "SweepResult",
    "TableChoices",
    "TargetLoss",
    "TokenBudget",
    "TrainingOutcome",
    "TrainingPlan",
    "TrainingSystem",
    "allocation",
    "calibrate",
    "calibration",
    "codesign",
    "design",
    "economics",
    "evaluate",
    "learning",
    "load_scenario",
    "monte_carlo",
    "optimize",
    "own_output",
    "pareto",
    "performance",
    "physics",
    "predict",
    "presets",
    "replan",
    "sensitivity",
    "solver",
    "sources",
    "sweep",
    "sweeps",
    "system",
    "uncertainty",
]
