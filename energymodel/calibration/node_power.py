"""Power of a node whose chips are busy a share of the time.

Four constants of a kind of node: its idle power, the power of a chip that waits, how busy a node by itself keeps its
chips, and the share of the chips' power that its fans add.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from energymodel.calibration.constant_priors import DECLARED, Rows, Values
from energymodel.numerics import Numeric
from energymodel.physics.flow import server_fan_power
from energymodel.physics.switching import average_power
from energymodel.system.training_system import TrainingSystem

HIGHEST_IDLE = 0.5
"""Of the mean power of a run: a node that draws more is not idle. Idle nodes draw 0.25 to 0.42 of it."""
LOWEST_SHARE = 0.05
"""Of readings of idle power, which a gap in the log may have made too low: the idle power is their 5 % quantile."""
CONSTANTS = DECLARED["node"]


class NodeRuns(NamedTuple):
    """Metered runs, one row each; `node_runs` fills in what rows share. Powers of a chip are over its rated power."""

    idle_power: Rows  # of the idle node, at the meter [W]; a constant "idle_power" takes precedence
    chips: Rows  # in the node [1]
    rated_power: Rows  # of a chip [W]
    busy_power: Rows  # of a chip that computes all the time at full clock, were there no limit [1]
    idle_chip: Rows  # power of an idle chip [1]
    efficiency: Rows  # from the meter to the chips, power supplies [1]
    relative_rate: Rows  # samples per second and chip over those of one node by itself [1]
    fan_effort: Rows  # power of the fans over their power at rated flow [1]: 0 for immersed nodes
    nodes: Rows  # of the run [1]; only a constant "node_exponent" needs them
    chip_power: Rows  # metered mean power of a chip [1]; 0 where it was not metered
    running: Rows  # 1 for a run, 0 for a reading of the idle node
    power: Rows  # mean power of a node over the run, at the meter [W]


def node_runs(power: Numeric, **columns: Numeric) -> NodeRuns:
    """Rows of runs of some power [W], with other fields of `NodeRuns`; a single number holds for all rows.

    By default a run is that of one node by itself, in a bath without fans, whose chips were not metered.
    """
    usual = {"relative_rate": 1.0, "fan_effort": 0.0, "nodes": 1.0, "chip_power": 0.0, "running": 1.0}
    rows, fields = np.shape(power), {**usual, **columns, "power": power}
    return NodeRuns(**{name: np.broadcast_to(np.asarray(value, np.float64), rows) for name, value in fields.items()})


def system_columns(system: TrainingSystem, coolant_temperature: Numeric) -> dict[str, float]:
    """What a system says of its nodes, as columns of `node_runs`.

    The idle power is that with idle fans, the efficiency of the power supplies that at the load of a busy node, the
    effort of the fans that in air or liquid of `coolant_temperature` [K].
    """
    chip, node, coolant = system.accelerator, system.node, system.facility.cooling.at(coolant_temperature)
    idle_load = chip.idle_power + system.host_power(chip.idle_power, coolant)
    busy_load = chip.rated_power + system.host_power(chip.rated_power, coolant)
    efficiency = busy_load / system.facility.power_supply.input_power(busy_load)
    return {
        "idle_power": float(node.chips * idle_load / efficiency),
        "chips": float(node.chips),
        "rated_power": float(chip.rated_power),
        "busy_power": float(jnp.asarray(chip.busy_power) / chip.rated_power),
        "idle_chip": float(jnp.asarray(chip.idle_power) / chip.rated_power),
        "efficiency": float(efficiency),
        "fan_effort": float(coolant.fan_effort),
    }


def system_constants(system: TrainingSystem) -> Values:
    """Constants of nodes without meters: waiting power and fans of the presets, and the usual busy share."""
    chip = system.accelerator
    waiting = chip.leakage.power + chip.fixed_power + chip.spin_power(1.0, 1.0)
    return {
        "waiting_power": np.asarray(waiting / chip.rated_power, np.float64),
        "busy_share": np.asarray(CONSTANTS["busy_share"].median),
        "fan_fraction": np.asarray(system.node.fan_fraction, np.float64),
    }


def chip_power(busy_share: Numeric, busy_power: Numeric, waiting_power: Numeric) -> Float[Array, "..."]:
    """Mean power of a chip over its rated power, `p = min(1, p_w + u (p_b - p_w))` [definition].

    The law of `energymodel.system.chip_load.operating_point` for runs of which only the busy share is known: the limit
    holds for the mixture of busy and waiting, not for the busy part.

    **Arguments:**

    - `busy_share`: u, share of the time with kernels that compute [1].
    - `busy_power`, `waiting_power`: p_b without a limit and p_w, over rated power [1].

    **Returns:** share of the rated power [1], at most 1.
    """
    return jnp.minimum(1.0, average_power(waiting_power, busy_power, busy_share))


def node_power(
    idle_power: Numeric,
    chips: Numeric,
    rated_power: Numeric,
    chip: Numeric,
    idle_chip: Numeric,
    efficiency: Numeric,
    fan_fraction: Numeric = 0.0,
    fan_effort: Numeric = 1.0,
) -> Float[Array, "..."]:
    """Power of a node at the meter [W], `P = P_idle + n P_rated (p - p_idle) (1 + f e) / eta` [definition].

    Fans remove what the chips draw, as in `energymodel.system.training_system.TrainingSystem.host_power`; those of the
    idle node are in its power, and everything else draws as when idle. It agrees with `evaluate` up to power supplies
    whose efficiency depends on load.

    **Arguments:** P_idle, n, P_rated, p_idle, eta and e as in `NodeRuns`;

    - `chip`: power of a chip over its rated power, p [1].
    - `fan_fraction`: more power of the fans at rated flow over power of the chips, f [1].
    """
    heat = jnp.asarray(chips) * rated_power * (jnp.asarray(chip) - idle_chip)
    return jnp.asarray(idle_power) + (heat + server_fan_power(0.0, fan_fraction, heat, fan_effort)) / efficiency


def predicted_power(values: Values, runs: NodeRuns) -> Float[Array, " rows"]:
    """Mean node power [W] of runs.

    The busy share falls with the rate that communication between nodes costs. Beside `CONSTANTS`, values may hold
    "idle_power" [W], and "node_exponent" b [1] where rates are not known: `u = u_1 N^-b` on N nodes. Where all chips
    are metered, neither their waiting power nor a busy share is needed; a bath needs no fans.
    """
    share = values.get("busy_share", jnp.ones(())) * runs.relative_rate
    share = share * jnp.asarray(runs.nodes) ** -values.get("node_exponent", jnp.zeros(()))
    waiting = values.get("waiting_power", jnp.asarray(runs.idle_chip))
    metered = jnp.asarray(runs.chip_power) > 0.0
    chip = jnp.where(metered, runs.chip_power, chip_power(share, runs.busy_power, waiting))
    return node_power(
        values.get("idle_power", jnp.asarray(runs.idle_power)),
        runs.chips,
        runs.rated_power,
        jnp.where(jnp.asarray(runs.running) > 0.0, chip, runs.idle_chip),
        runs.idle_chip,
        runs.efficiency,
        values.get("fan_fraction", jnp.zeros(())),
        runs.fan_effort,
    )


def node_power_errors(values: Values, runs: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors."""
    return jnp.log(predicted_power(values, runs) / runs.power)[:, None]


def idle_reading(
    lowest: Rows, mean: Rows, floor: float = 0.0
) -> tuple[float | None, Bool[np.ndarray, " rows"], Bool[np.ndarray, " rows"]]:
    """The idle power of a kind of node by the lowest readings of its runs.

    A run often starts warm, so that its first readings are two or three times the idle power: of many runs the lowest
    readings count, and none above `HIGHEST_IDLE` of the mean power of its run.

    **Arguments:**

    - `lowest`: reading of each run [W], before or in it; NaN where there is none.
    - `mean`: power of each run [W].
    - `floor`: what the idle chips draw by themselves [W]: a reading below it is none of the node.

    **Returns:** power of the idle node [W], `None` where no reading can be one; which readings are too high for an idle
    node, and which are so low that the meter or its log had a gap.
    """
    lowest, mean = np.asarray(lowest, np.float64), np.asarray(mean, np.float64)
    read = np.isfinite(lowest)
    warm = read & (lowest > HIGHEST_IDLE * mean)
    lost = read & (lowest <= floor)
    idle = lowest[read & ~warm & ~lost]
    return float(np.quantile(idle, LOWEST_SHARE, method="lower")) if idle.size else None, warm, lost
