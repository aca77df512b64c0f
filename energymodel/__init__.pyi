from . import (
    calibration,
    economics,
    learning,
    monitor,
    performance,
    physics,
    scenarios,
    search,
    solver,
    sources,
    sweeps,
    system,
)
from .calibration.benchmark import Benchmark, benchmark
from .calibration.calibrate import Calibration, calibrate
from .calibration.step_prediction import predict
from .errors import InputError
from .monitor.monitor import Monitor, trainer_callback
from .monitor.status import Status
from .readers.columns import TableChoices
from .readers.meters import CpuMeter, Meter, NvmlMeter, RecordedMeter
from .runtime.compilation import jit
from .scenarios.pieces import Pieces, scenario_of_pieces
from .scenarios.scenario import Scenario, load_scenario
from .scenarios.training_file import scenario_of_training
from .search.architecture import optimize_architecture
from .search.calendar import calendar
from .search.compare import Comparison, compare, frontier
from .search.fleet import Fleet, FleetOptimum, load_fleet, optimize_fleet
from .search.optimize import optimize
from .search.pareto import pareto
from .search.replan import MeasuredRun, Replan, replan
from .search.result import Front, Optimum, SearchResult
from .search.sensitivity import Sensitivity, sensitivity
from .search.site import divide_site_power
from .sweeps.axes import Axis
from .sweeps.batch_curve import batch_curve
from .sweeps.monte_carlo import MonteCarlo, monte_carlo
from .sweeps.reductions import AbstractReduction
from .sweeps.sweep import sweep
from .sweeps.sweep_result import SweepResult
from .system.evaluate import evaluate
from .system.outcome import TrainingOutcome
from .system.outputs import own_output
from .system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from .system.training_system import TrainingSystem

__version__: str

__all__ = [
    "AbstractReduction",
    "Axis",
    "Benchmark",
    "Calibration",
    "Comparison",
    "CpuMeter",
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
    "batch_curve",
    "benchmark",
    "calendar",
    "calibrate",
    "calibration",
    "compare",
    "divide_site_power",
    "economics",
    "evaluate",
    "frontier",
    "jit",
    "learning",
    "load_fleet",
    "load_scenario",
    "monitor",
    "monte_carlo",
    "optimize",
    "optimize_architecture",
    "optimize_fleet",
    "own_output",
    "pareto",
    "performance",
    "physics",
    "predict",
    "replan",
    "scenario_of_pieces",
    "scenario_of_training",
    "scenarios",
    "search",
    "sensitivity",
    "solver",
    "sources",
    "sweep",
    "sweeps",
    "system",
    "trainer_callback",
]
