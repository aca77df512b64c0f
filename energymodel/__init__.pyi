from . import (
    allocation,
    calibration,
    codesign,
    design,
    economics,
    learning,
    monitor,
    performance,
    physics,
    presets,
    solver,
    sources,
    sweeps,
    system,
    uncertainty,
)
from .allocation.fleet import Fleet, load_fleet
from .allocation.fleet_search import FleetOptimum, optimize_fleet
from .allocation.site_power import divide_site_power
from .calibration.calibrate import Calibration, calibrate
from .calibration.step_prediction import predict
from .calibration.table_columns import TableChoices
from .compilation import jit
from .design.calendar import calendar
from .design.compare import Comparison, compare
from .design.front import Front
from .design.frontier import frontier
from .design.optimize import optimize
from .design.pareto import pareto
from .design.replan import MeasuredRun, Replan, replan
from .design.result import Optimum, SearchResult
from .design.sensitivity import Sensitivity, sensitivity
from .errors import InputError
from .monitor.callbacks import loop_callback, trainer_callback
from .monitor.meters import Meter, NvmlMeter, RecordedMeter
from .monitor.monitor import Monitor
from .monitor.status import Status
from .presets.pieces import Pieces, scenario_of_pieces
from .presets.scenario import Scenario, load_scenario
from .presets.training_file import scenario_of_training
from .sweeps.axes import Axis
from .sweeps.reductions import AbstractReduction
from .sweeps.sweep import sweep
from .sweeps.sweep_result import SweepResult
from .system.evaluate import evaluate
from .system.outcome import TrainingOutcome
from .system.own_outputs import own_output
from .system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from .system.training_system import TrainingSystem
from .uncertainty.batch_curve import batch_curve
from .uncertainty.monte_carlo import MonteCarlo, monte_carlo

__version__: str

__all__ = [
    "AbstractReduction",
    "Axis",
    "Calibration",
    "Comparison",
    "Fleet",
    "FleetOptimum",
    "Front",
    "InputError",
    "MeasuredRun",
    "Meter",
    "Monitor",
    "MonteCarlo",
    "NvmlMeter",
    "Optimum",
    "ParallelLayout",
    "Pieces",
    "RecordedMeter",
    "Replan",
    "Scenario",
    "SearchResult",
    "Sensitivity",
    "Status",
    "SweepResult",
    "TableChoices",
    "TargetLoss",
    "TokenBudget",
    "TrainingOutcome",
    "TrainingPlan",
    "TrainingSystem",
    "allocation",
    "batch_curve",
    "calendar",
    "calibrate",
    "calibration",
    "codesign",
    "compare",
    "design",
    "divide_site_power",
    "economics",
    "evaluate",
    "frontier",
    "jit",
    "learning",
    "load_fleet",
    "load_scenario",
    "loop_callback",
    "monitor",
    "monte_carlo",
    "optimize",
    "optimize_fleet",
    "own_output",
    "pareto",
    "performance",
    "physics",
    "predict",
    "presets",
    "replan",
    "scenario_of_pieces",
    "scenario_of_training",
    "sensitivity",
    "solver",
    "sources",
    "sweep",
    "sweeps",
    "system",
    "trainer_callback",
    "uncertainty",
]
