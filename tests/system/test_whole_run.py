"""Terms of time, power, energy and money of whole runs by their definitions, computed again by `bookkeeping`; units."""

import dataclasses

import jax
import numpy as np
import pytest

from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import output
from system.bookkeeping import bookkeeping

SMALL, EXPERTS = "test-1b-h100", "deepseek-v3-h800"
CHIP, SOFTWARE, LAYOUT = "system.accelerator", "system.software", "plan.layout"
FAILURES = {
    "system.reliability.chip_mtbf": "3e6 s",
    "system.reliability.write_time": "50 s",
    "system.reliability.replacement_time": "600 s",
    "system.reliability.repair_time": "1000 s",
}
ONE_RANK = {f"{LAYOUT}.pipeline": 1, f"{LAYOUT}.virtual_stages": 1, f"{LAYOUT}.schedule": "1f1b"}
SYSTEMS = {
    "as it is": {},
    "gated": {f"{CHIP}.gate.fraction": 0.6, f"{CHIP}.gate.wake_time": "20 us", f"{CHIP}.gate.blend_time": "1 ms"},
    "recomputed": {f"{LAYOUT}.recompute_full": 1, "system.workload.flash": 0, f"{SOFTWARE}.unmasked": 1},
    "attention recomputed": {
        f"{LAYOUT}.recompute_attention": 1,
        "plan.trained_share": 0.1,
        "system.workload.flash": 0.5,
    },
    "narrow": {f"{LAYOUT}.fp8": 0.5, f"{LAYOUT}.fp4": 0.3, f"{CHIP}.peak_flops_fp4": "4e15 FLOP/s"},
    "wide": {f"{LAYOUT}.tf32": 0.6, f"{LAYOUT}.fp32": 0.3},
    "failing": {**FAILURES, "plan.spares": 1, "system.other_stages": 0.2},
    "capped": {"plan.power_cap": "400 W", "plan.power_floor": 0.7, "system.production_slowdown": 1.3},
    "slow waits": {f"{CHIP}.overhead_time": "0.2 s", "plan.waiting_clock": 0.6, f"{SOFTWARE}.microbatch_time": "3 ms"},
    "on the host": {f"{LAYOUT}.offload_optimizer": 1, f"{LAYOUT}.shard_optimizer": 0},
    "in air": {
        "system.node.fan_power": "700 W",
        "system.node.fan_fraction": 0.1,
        "system.facility.cooling.loop.air_share": 1,
        "plan.coolant_temperature": "20 °C",
        "system.market.price.delay_cost": "5 USD/s",
    },
    "experts": ONE_RANK,
    "experts recomputed": {**ONE_RANK, f"{LAYOUT}.recompute_full": 0.5, "system.workload.expert_imbalance": 1.2},
}


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
        if "range" in field.metadata:
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
