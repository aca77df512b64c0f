"""Outcomes of preset scenarios with changes as on the command line, each computed once in a process."""

from functools import cache

import jax

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome


@cache
def outcome_of(name: str, *changes: str) -> TrainingOutcome:
    """Outcome of a scenario, in float64."""
    scenario = load_scenario(name, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))
