from .batch import batch_answer
from .benchmark import benchmark_answer
from .calendar import calendar_answer
from .calibrate import calibrate_answer, calibration_toml
from .doctor import cleared_answer, doctor_answer
from .evaluate import evaluate_answer
from .fleet import fleet_answer, site_answer
from .limits import limits_answer
from .measure import measure_answer
from .monitor import forecast_line, monitor_answer
from .optimize import architecture_answer, design_chip_answer, optimize_answer
from .pareto import compare_answer, frontier_answer, pareto_answer
from .post_training import post_training_answer
from .predict import run_prediction_answer, table_prediction_answer
from .presets import category_answer, presets_answer
from .samples import samples_answer
from .scenario import replan_answer, rest_toml, scenario_answer, scenario_toml
from .sensitivity import sensitivity_answer
from .sweep import cost_answer, sweep_answer
from .timeline import stage_clocks_answer, timeline_answer

__all__ = [
    "architecture_answer",
    "batch_answer",
    "benchmark_answer",
    "calendar_answer",
    "calibrate_answer",
    "calibration_toml",
    "category_answer",
    "cleared_answer",
    "compare_answer",
    "cost_answer",
    "design_chip_answer",
    "doctor_answer",
    "evaluate_answer",
    "fleet_answer",
    "forecast_line",
    "frontier_answer",
    "limits_answer",
    "measure_answer",
    "monitor_answer",
    "optimize_answer",
    "pareto_answer",
    "post_training_answer",
    "presets_answer",
    "replan_answer",
    "rest_toml",
    "run_prediction_answer",
    "samples_answer",
    "scenario_answer",
    "scenario_toml",
    "sensitivity_answer",
    "site_answer",
    "stage_clocks_answer",
    "sweep_answer",
    "table_prediction_answer",
    "timeline_answer",
]
