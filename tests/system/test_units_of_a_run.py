"""Does a run stay the same when seconds, joules, dollars or kilograms are counted in another unit?

Every number of a system and a plan is converted, and every output must be the converted one: a sum of unlike terms, a
factor in the wrong place or a term left out of one of two that belong together shows.
"""

import dataclasses

import jax
import numpy as np
import pytest

from energymodel.system.outcome import TrainingOutcome

SMALL = "test-1b-h100"
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
    found = {}
    for field in dataclasses.fields(component):
        value = getattr(component, field.name)
        if "range" in field.metadata:
            found[field.name] = np.asarray(value) / SIZE ** powers.get(field.metadata["unit"], 0)
        elif dataclasses.is_dataclass(value):
            found[field.name] = converted(value, powers)
    return dataclasses.replace(component, **found)


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
    given, powers = scenario(SMALL, *changes), POWERS[base]
    own, other = (
        jax.device_get(run(system, plan))
        for system, plan in (
            (given.system, given.plan),
            (converted(given.system, powers), converted(given.plan, powers)),
        )
    )
    assert isinstance(own, TrainingOutcome)
    for (name, unit, value), (_, _, found) in zip(outputs(own), outputs(other), strict=True):
        if name not in CONSTANTS.get(base, ()):
            expected = value / SIZE ** powers.get(unit, 0)
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12, err_msg=name)
