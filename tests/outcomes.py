"""Outcomes of preset scenarios with changes as on the command line, each computed once in a process."""

from functools import cache
from typing import Any

import jax

from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate_once


@cache
def outcome_of(name: str, *changes: str) -> Any:
    """Outcome of a scenario, in float64."""
    scenario = load_scenario(name, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))
