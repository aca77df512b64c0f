"""Division of work and power over unlike devices that train in synchronous steps.

Each kind of device holds whole replicas of the model. All that are on end a step at the same time, because their
shares of the tokens follow their throughputs [docs/physics.md A2.17]; what is left to choose is a clock for each kind
and how many of its devices are on. At the best choice the next token per second costs the same power everywhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Scalar, component, vector
from energymodel.solver import RESULTS, SolverOptions, minimize
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_load import ChipLoad, operating_point
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import step_work
from energymodel.system.training_system import TrainingSystem, as_designed

Groups = Float[Array | np.ndarray, " groups"]
_START = 0.9  # of the range of clocks and of the share of devices that are on


class DeviceGroups(eqx.Module):
    """Groups of like devices; every leaf, those of `chip` and `load` included, has an axis of groups.

    - `load`: work of one token on one device, in seconds at clock 1 and joules at the reference voltage.
    - `count`: devices of each group [1].
    - `temperature`: of a device that works [K].
    - `off_power`: of a device that does not [W].
    """

    chip: Accelerator = component()
    load: ChipLoad = component()
    count: Float[Array | np.ndarray, " groups"] = vector("1")
    temperature: Float[Array | np.ndarray, " groups"] = vector("K")
    off_power: Float[Array | np.ndarray, " groups"] = vector("W")

    def rate(self, clock: Groups) -> Groups:
        """Throughput of one device of each group [token/s] at its clock [1]."""
        return 1.0 / jax.vmap(lambda chip, load, clock: load.busy_time(chip, clock))(self.chip, self.load, clock)

    def busy_power(self, clock: Groups) -> Groups:
        """Power of one busy device of each group [W] at its clock [1]."""

        def power(chip: Accelerator, load: ChipLoad, temperature: Numeric, clock: Numeric) -> Array:
            voltage = chip.voltage(clock)
            work = load.switching_energy * voltage**2 + load.memory_energy
            return chip.static_power(voltage, temperature) + work / load.busy_time(chip, clock)

        return jax.vmap(power)(self.chip, self.load, self.temperature, clock)


def device_groups(
    systems: Sequence[TrainingSystem],
    plan: TrainingPlan,
    counts: Sequence[float] | np.ndarray,
    off_power: Sequence[float] | np.ndarray | None = None,
) -> DeviceGroups:
    """Groups of devices from systems that differ in their accelerator, for the model and layout of a plan.

    The work is that of the kernels: layers and output head; communication, bubbles and fixed times, which do not
    depend on the split, stay outside. Temperature is where each device settles at its highest clock.

    **Arguments:**

    - `counts`: devices of each kind, one kind for each system [1].
    - `off_power`: power of a device that is off [W]; by default its idle power.

    **Raises:** `ValueError` if the accelerators have voltage curves of different form, or counts do not match.
    """
    if len(counts) != len(systems):
        raise ValueError(f"device_groups: {len(counts)} counts for {len(systems)} systems. Give one for each.")
    chips = [system.accelerator for system in systems]
    if len({jax.tree.structure(chip) for chip in chips}) > 1:
        forms = ", ".join(sorted({type(chip.voltage).__name__ for chip in chips}))
        raise ValueError(f"device_groups: voltage curves of different form, {forms}. Give all the same form.")
    loads, temperatures = zip(*(_token_load(system, plan) for system in systems), strict=True)
    chip, load = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees) for trees in (chips, loads))
    off = chip.idle_power if off_power is None else np.asarray(off_power, np.float64)
    return DeviceGroups(chip, load, np.asarray(counts, np.float64), jnp.stack(temperatures), off)


def _token_load(system: TrainingSystem, plan: TrainingPlan) -> tuple[ChipLoad, Array]:
    """Kernels of one token on one chip, and the temperature at which they run."""
    batch = jnp.max(jnp.asarray(plan.batch))
    system, plan = as_designed(system, plan)
    step = step_work(system, plan, batch)
    division, layer, head = step.division, step.load, step.head
    passes = division.layer_passes * plan.chips / batch  # of a layer on one chip, for each token that it accounts for
    heads = division.head_passes * plan.chips / batch
    token = jax.tree.map(lambda of_layer, of_head: of_layer * passes + heads * of_head, layer, head)
    return token, operating_point(system, plan, step.coolant, layer).temperature


class WorkSplit(NamedTuple):
    """The best division of a step over groups of devices.

    - `share`: of the tokens, for each group [1].
    - `on`: devices of each group that work, over all of them [1]; the clock of a group with none means nothing.
    - `clock`: of the devices that are on [1]; `device_power`: what each draws, hence its cap [W].
    - `step_time` [s], `power` of all devices [W], `energy` of a step [J].
    - `price`: energy that one more second of step time saves [W] (`least_energy_split`), or step time that one
      more watt saves [s/W] (`least_time_split`); `result`: a member of `RESULTS`.
    """

    share: Groups
    on: Groups
    clock: Groups
    device_power: Groups
    step_time: Scalar
    power: Scalar
    energy: Scalar
    price: Scalar
    result: RESULTS


class _ClocksAndShares(NamedTuple):
    log_clock: Groups
    on: Groups


def _rate_and_power(choice: _ClocksAndShares, groups: DeviceGroups) -> tuple[Array, Array]:
    clock = jnp.exp(choice.log_clock)
    rate = jnp.sum(groups.count * choice.on * groups.rate(clock))
    powers = choice.on * groups.busy_power(clock) + (1.0 - choice.on) * groups.off_power
    return rate, jnp.sum(groups.count * powers)


def _bounds(groups: DeviceGroups, lowest_on: Numeric) -> tuple[_ClocksAndShares, _ClocksAndShares, _ClocksAndShares]:
    """Start, lower and upper bounds."""
    lowest = jnp.log(jnp.asarray(groups.chip.minimum_clock))
    ones = jnp.ones_like(lowest)
    low, high = _ClocksAndShares(lowest, ones * lowest_on), _ClocksAndShares(0.0 * lowest, ones)
    return jax.tree.map(lambda a, b: a + _START * (b - a), low, high), low, high


def _split(choice: _ClocksAndShares, groups: DeviceGroups, tokens: Numeric, price: Array, result: RESULTS) -> WorkSplit:
    clock = jnp.exp(choice.log_clock)
    rates = groups.count * choice.on * groups.rate(clock)
    rate, power = _rate_and_power(choice, groups)
    time = jnp.asarray(tokens) / rate
    return WorkSplit(rates / rate, choice.on, clock, groups.busy_power(clock), time, power, power * time, price, result)


def least_energy_split(
    groups: DeviceGroups,
    tokens: Numeric,
    step_time: Numeric,
    least_on: Numeric = 0.0,
    options: SolverOptions | None = None,
) -> WorkSplit:
    """Split of lowest energy for a step within a time, `min sum n [u P(phi) + (1 - u) P_off]`, `sum n u r(phi) >= W/t`.

    Groups fall into three: those at full number, whose marginal energies per token `P'(phi) / r'(phi)` are equal; one
    that is partly on, at its clock of lowest energy per token; and those that are off, because even their lowest
    energy per token is above that price [derivation: Lagrange]. Works under `jit`, `vmap` and differentiation.

    **Arguments:**

    - `tokens`: W, of a step [token].
    - `step_time`: t, without what does not depend on the split [s].
    - `least_on`: lowest share of the devices that are on [1]; 1 keeps all of them.
    """
    needed = jnp.asarray(tokens) / step_time
    start, low, high = _bounds(groups, least_on)
    unit = _rate_and_power(high, groups)[1]
    solution = minimize(
        lambda choice, groups, _: _rate_and_power(choice, groups)[1] / unit,
        start,
        args=(groups, needed),
        bounds=(low, high),
        inequalities=lambda choice, groups, needed: 1.0 - _rate_and_power(choice, groups)[0] / needed,
        options=options,
    )
    # E = P t with R = W / t: -dE/dt = R dP/dR - P.
    price = solution.multipliers.inequalities * unit - solution.value * unit
    return _split(solution.x, groups, tokens, price, solution.result)


def least_time_split(
    groups: DeviceGroups, tokens: Numeric, power: Numeric, least_on: Numeric = 0.0, options: SolverOptions | None = None
) -> WorkSplit:
    """Split of lowest time for a step under a power cap, `max sum n u r(phi)`, `sum n [u P(phi) + (1 - u) P_off] <= P`.

    The same splits as those of `least_energy_split`, by power P of all devices [W] instead of time; the other
    arguments are the same.
    """
    start, low, high = _bounds(groups, least_on)
    unit = _rate_and_power(high, groups)[0]
    solution = minimize(
        lambda choice, groups, _: -_rate_and_power(choice, groups)[0] / unit,
        start,
        args=(groups, jnp.asarray(power, float)),
        bounds=(low, high),
        inequalities=lambda choice, groups, power: _rate_and_power(choice, groups)[1] / power - 1.0,
        options=options,
    )
    split = _split(solution.x, groups, tokens, jnp.zeros(()), solution.result)
    # t = W / R: -dt/dP = t / R dR/dP.
    gain = solution.multipliers.inequalities * unit / power
    return split._replace(price=gain * split.step_time**2 / tokens)
