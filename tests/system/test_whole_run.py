"""Terms of time, power, energy and money of whole runs by their definitions, computed again by `bookkeeping`; units."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml

from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import output
from system.bookkeeping import bookkeeping

SMALL, EXPERTS = "test-1b-h100", "deepseek-v3-h800"
SYSTEMS = yaml.safe_load(Path(__file__).with_name("whole_runs.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_term_is_what_its_definition_says(name, scenario, run):
    changes = [f"{path}={value}" for path, value in SYSTEMS[name].items()]
    case = scenario(EXPERTS if "experts" in name else SMALL, *changes)
    outcome = jax.device_get(run(case.system, case.plan))
    expected = bookkeeping(case.system, case.plan, outcome)
    assert len(expected) > 35
    # The chip runs at the clock of the plan, unless it draws the power cap there.
    result, wanted = (outcome.power_busy, 400.0) if name == "capped" else (outcome.clock, 1.0)
    np.testing.assert_allclose(result, wanted, rtol=1e-12)
    for path, value in expected.items():
        np.testing.assert_allclose(float(output(outcome, path)), value, rtol=1e-9, atol=1e-12, err_msg=path)


SIZE = 3.0  # of the new unit in the old one
POWERS = {
    "second": {
        **dict.fromkeys(("s", "K/W", "USD/W", "ohm", "m^2 s/B", "J s"), 1),
        **dict.fromkeys(("Hz", "FLOP/s", "B/s", "W", "K/s", "USD/s", "W/m^2", "W/B", "token/s", "bit/s"), -1),
        "W/s": -2,
    },
    "joule": {
        **dict.fromkeys(("J", "W", "W/s", "W/m^2", "W/B", "J/B", "J/bit", "J/K", "J s", "m^3"), 1),
        **dict.fromkeys(("K/W", "USD/W", "USD/J", "USD/(W s)", "kg/J", "token/J", "ohm"), -1),
    },
    "dollar": dict.fromkeys(("USD", "USD/W", "USD/J", "USD/s", "USD/(W s)"), 1),
    "kilogram": dict.fromkeys(("kg", "kg/J"), 1),
}
"""Power of a base unit in each unit that has it; water is in proportion to the joules that evaporate it."""

CONSTANTS = {
    "second": ("money", "lifetime_money"),  # interest is for a year of seconds
    "joule": ("landauer_multiple",),  # Boltzmann's constant
}
"""Outputs that hold a constant of nature or a convention in the unit."""


def converted(component, powers):
    """The same system or plan with its numbers in the new unit."""
    result = {}
    for field in dataclasses.fields(component):
        value = getattr(component, field.name)
        if "range" in field.metadata and value is not None:
            result[field.name] = np.asarray(value) / SIZE ** powers.get(field.metadata["unit"], 0)
        elif dataclasses.is_dataclass(value):
            result[field.name] = converted(value, powers)
    return dataclasses.replace(component, **result)


def outputs(outcome, prefix=""):
    """Unit and value of each output by name."""
    for field in dataclasses.fields(outcome):
        value = getattr(outcome, field.name)
        if dataclasses.is_dataclass(value):
            yield from outputs(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.metadata["unit"], float(value)


@pytest.mark.parametrize("base", POWERS)
def test_a_run_does_not_depend_on_the_unit(base, scenario, run):
    changes = "system.accelerator.gate.fraction=0.5", "plan.waiting_clock=0.7", "plan.spares=1", "plan.power_floor=0.4"
    case, powers = scenario(SMALL, *changes), POWERS[base]
    own, other = (
        jax.device_get(run(system, plan))
        for system, plan in ((case.system, case.plan), (converted(case.system, powers), converted(case.plan, powers)))
    )
    assert isinstance(own, TrainingOutcome)
    for (name, unit, value), (_, _, result) in zip(outputs(own), outputs(other), strict=True):
        if name not in CONSTANTS.get(base, ()):
            expected = value / SIZE ** powers.get(unit, 0)
            np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-12, err_msg=name)
