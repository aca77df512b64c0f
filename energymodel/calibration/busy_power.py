"""How much does a chip draw in the work of a scenario, whose `busy_power` is that of large products alone?"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.scenarios.scenario import Scenario
from energymodel.system.step import training_step

APART = 0.1  # of the busy power, between which the line is drawn
NO_CAP = 10.0  # [rated power]


class BusyLine(NamedTuple):
    """Power of a chip at work in a scenario at clock 1 by its `accelerator.busy_power` b, `a + s b` [W]."""

    intercept: float
    slope: float


def busy_line(scenario: Scenario) -> BusyLine:
    """The line through two busy powers; switching energy per operation is in proportion to what is left of b.

    Training works on attention, memory and small products as well as on large ones, so that a chip draws less in it:
    a power that was measured in training belongs to a higher `busy_power`.
    """
    chip = scenario.system.accelerator
    powers = float(chip.busy_power) * jnp.array([1.0 - APART, 1.0 + APART])

    def at(power: Float[Array, ""]) -> Float[Array, ""]:
        system = eqx.tree_at(lambda one: one.accelerator.busy_power, scenario.system, power)
        where = lambda one: (one.power_cap, one.clock)  # noqa: E731
        plan = eqx.tree_at(where, scenario.plan, (jnp.asarray(NO_CAP * chip.rated_power), jnp.ones(())))
        return training_step(system, plan, jnp.max(jnp.asarray(plan.batch))).point.busy_power

    low, high = (float(one) for one in np.asarray(jax.jit(jax.vmap(at))(powers)))
    slope = (high - low) / float(powers[1] - powers[0])
    return BusyLine(high - slope * float(powers[1]), slope)
