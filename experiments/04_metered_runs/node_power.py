"""What does a node draw while its chips are busy a share of the time, and what do metered runs say about it?

Two constants of a kind of chip: the power of a chip that waits, and how busy a node by itself keeps its chips.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Rows, Values
from energymodel.numerics import Numeric
from energymodel.physics.switching import average_power


class NodeRuns(NamedTuple):
    """Metered runs, one row each.

    - `idle_power`: of the idle node, at the meter [W].
    - `chips`: in the node [1].
    - `rated_power`: of a chip [W].
    - `busy_power`: of a chip that computes all the time at full clock, were there no limit, over the rated power [1].
    - `idle_chip`: power of an idle chip over the rated power [1].
    - `efficiency`: from the meter to the chips, power supplies [1].
    - `relative_rate`: samples per second and chip over those of one node by itself [1].
    - `power`: mean power of a node over the run, at the meter [W].
    """

    idle_power: Rows
    chips: Rows
    rated_power: Rows
    busy_power: Rows
    idle_chip: Rows
    efficiency: Rows
    relative_rate: Rows
    power: Rows


CONSTANTS: ConstantPriors = {
    "waiting_power": ConstantPrior(0.25, 0.10, 0.05, 0.9, "1"),
    "busy_share": ConstantPrior(0.80, 0.10, 0.2, 1.0, "1"),
}
"""Waiting power over rated power (prior: docs/physics.md B2, 140 of 700 W, and spinning kernels), and the share of the
time that chips of a node by itself are busy (prior: communication and idle gaps of a fifth)."""


def chip_power(busy_share: Numeric, busy_power: Numeric, waiting_power: Numeric) -> Float[Array, "..."]:
    """Mean power of a chip over its rated power, `p = min(1, p_w + u (p_b - p_w))` [definition].

    The law of `energymodel.system.operating_point` for runs of which only the busy share is known: the limit holds for
    the mixture of busy and waiting, not for the busy part.

    **Arguments:**

    - `busy_share`: u, share of the time with kernels that compute [1].
    - `busy_power`: p_b, over rated power, without a limit [1].
    - `waiting_power`: p_w, over rated power [1].

    **Returns:** share of the rated power [1], at most 1.
    """
    return jnp.minimum(1.0, average_power(waiting_power, busy_power, busy_share))


def node_power(
    idle_power: Numeric, chips: Numeric, rated_power: Numeric, chip: Numeric, idle_chip: Numeric, efficiency: Numeric
) -> Float[Array, "..."]:
    """Power of a node whose other parts draw as when idle, `P = P_idle + n P_rated (p - p_idle) / eta` [definition].

    **Arguments:**

    - `idle_power`: P_idle of the node, at the meter [W].
    - `chips`: n [1].
    - `rated_power`: P_rated of a chip [W].
    - `chip`, `idle_chip`: power of a chip, now and idle, over its rated power: p, p_idle [1].
    - `efficiency`: of the power supplies between meter and chips, eta [1].

    **Returns:** power at the meter [W].
    """
    above = jnp.asarray(chip) - idle_chip
    return jnp.asarray(idle_power + chips * rated_power * above / efficiency)


def predicted_power(values: Values, runs: NodeRuns) -> Float[Array, " rows"]:
    """Mean node power [W] of runs; the busy share falls with the rate that communication between nodes costs."""
    share = values["busy_share"] * runs.relative_rate
    chip = chip_power(share, runs.busy_power, values["waiting_power"])
    return node_power(runs.idle_power, runs.chips, runs.rated_power, chip, runs.idle_chip, runs.efficiency)


def node_power_errors(values: Values, runs: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors."""
    return jnp.log(predicted_power(values, runs) / runs.power)[:, None]
