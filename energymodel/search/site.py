"""The power of a site, divided over compute, memory, network, host and cooling.

A static division: every part is provisioned for its share and may draw it at any moment, so that the shares add up to
no more than the site's limit. Clock, powered width of memory and links, and the temperature of the coolant decide them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError
from energymodel.numerics import Numeric, Real, Scalar, component, p_norm, real
from energymodel.physics.flow import server_fan_power
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.scenario import Scenario
from energymodel.solver import RESULTS, SolverOptions, Values, minimize, result_is
from energymodel.system.accelerator import Accelerator
from energymodel.system.evaluate import evaluate_once
from energymodel.system.facility import NO_LIMIT, Facility
from energymodel.system.outputs import parse_number
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import step_work
from energymodel.system.training_system import TrainingSystem, as_designed
from energymodel.units import format_quantity

KELVIN = 10.0  # unit of temperatures in the search
SHARES = (0.6, 0.7, 0.8, 0.9, 1.0)
"""Of the limit of the facility, or of the highest power of the plan: the limits where none are named."""
STANDSTILL = 1e-3  # of the throughput at the plan's power: at which the lowest power of a site is asked for


class SiteLoad(eqx.Module):
    """What a token asks of one chip's compute, memory and links, and what these draw at full width.

    - `arithmetic`: time of the operations of a token at clock 1 [s].
    - `memory_time`, `network_time`: of its traffic, at full width [s].
    - `memory_power`, `network_power`: at full width, in proportion to the width that is powered [W].
    - `background_power`: of host and cards, always on [W].
    - `overlap`: exponent that joins the three times [1].
    - `fan_power`, `fan_fraction`: of the node's fans with cold chips [W], and over the power of a chip [1].
    """

    chip: Accelerator = component()
    facility: Facility = component()
    chips: Real = real("1")
    arithmetic: Real = real("s")
    memory_time: Real = real("s")
    network_time: Real = real("s")
    memory_power: Real = real("W")
    network_power: Real = real("W")
    background_power: Real = real("W")
    overlap: Real = real("1")
    minimum_width: Real = real("1", 0.1)
    fan_power: Real = real("W", 0.0)
    fan_fraction: Real = real("1", 0.0)


class SiteChoice(NamedTuple):
    """Settings: clock, powered width of memory and links over full width [1], temperatures of coolant and chip [K]."""

    clock: Scalar
    memory_width: Scalar
    network_width: Scalar
    coolant_temperature: Scalar
    temperature: Scalar


class SitePower(NamedTuple):
    """Where the power of the site goes [W]."""

    compute: Scalar
    memory: Scalar
    network: Scalar
    host: Scalar
    delivery_loss: Scalar
    cooling: Scalar
    other: Scalar

    @property
    def total(self) -> Scalar:
        """All of it [W]."""
        return sum(self, jnp.zeros(()))


class SiteSplit(NamedTuple):
    """The best static division of a site's power: settings, parts of the power, throughput of all chips [token/s].

    `limit` is the power [W] or the throughput that was asked for. `price` is the throughput that one more watt brings
    [token/J] (`most_throughput`), or the power that one token per second less saves [J/token] (`least_power`); `result`
    is a member of `RESULTS`.
    """

    limit: Scalar
    choice: SiteChoice
    power: SitePower
    throughput: Scalar
    price: Scalar
    result: RESULTS


def site_load(system: TrainingSystem, plan: TrainingPlan) -> SiteLoad:
    """Demands of a scenario per token and chip: kernels, memory traffic, and all communication of a step.

    Memory and links draw their full power when powered, whether or not data flow, the upper end of what they do.
    Traffic within and between nodes counts with the energy of its own links.
    """
    batch = jnp.max(jnp.asarray(plan.batch))
    system, plan = as_designed(system, plan)
    step = step_work(system, plan, batch)
    chip, division, load = system.accelerator, step.division, step.load
    sent, tokens = step.traffic.of_step(division), batch / plan.chips
    inner, outer, network_time = (
        sum(getattr(part, name) for part in sent) for name in ("inner_bytes", "outer_bytes", "time")
    )
    energy = 8.0 * (inner * system.node.scale_up.energy + outer * step.links.energy_per_bit)
    products = division.layer_passes * (load.arithmetic + load.attention)
    memory = division.layer_passes * (load.product_memory + load.elementwise)
    return SiteLoad(
        chip=chip,
        facility=system.facility,
        chips=plan.chips,
        arithmetic=(products + division.head_passes * step.head.arithmetic) / tokens,
        memory_time=(memory + division.head_passes * step.head.elementwise) / tokens,
        network_time=network_time / tokens,
        memory_power=chip.traffic_energy * chip.memory_bandwidth,
        network_power=energy / network_time + step.links.power,
        background_power=system.node.overhead_power / system.node.chips,
        overlap=chip.roofline_exponent,
        fan_power=system.node.fan_power / system.node.chips,
        fan_fraction=system.node.fan_fraction,
    )


def throughput(site: SiteLoad, choice: SiteChoice) -> Scalar:
    """Throughput of all chips [token/s], `R = G / (sum_i t_i^p)^(1/p)`: compute, memory and network together."""
    time = p_norm(
        site.overlap,
        site.arithmetic / choice.clock,
        site.memory_time / choice.memory_width,
        site.network_time / choice.network_width,
    )
    return site.chips / time


def site_power(site: SiteLoad, choice: SiteChoice) -> SitePower:
    """Power of the site, by where it goes [W]."""
    chip, coolant = site.chip, site.facility.cooling.at(choice.coolant_temperature)
    voltage = chip.voltage(choice.clock)
    swing = chip.charging.swing(choice.clock, voltage)
    compute = chip.static_power(voltage, choice.temperature) + chip.dynamic_power * choice.clock * swing**2
    memory, network = site.memory_power * choice.memory_width, site.network_power * choice.network_width
    fans = server_fan_power(site.fan_power, site.fan_fraction, compute + memory, coolant.fan_effort)
    host = site.background_power + fans
    building = site.facility.power(compute + memory + network + host, coolant)
    parts = (compute, memory, network, host, building.delivery_loss, building.cooling, building.other)
    return SitePower(*(part * site.chips for part in parts))


def most_throughput(site: SiteLoad, power: Numeric) -> SiteSplit:
    """Static division of highest throughput under a site limit in watts, `max R(x)` with `P(x) <= P_site`.

    At the best division the next watt brings the same throughput wherever it goes [derivation: Lagrange]: if times
    `a_i / P_i` are joined by a p-norm, `P_i ~ a_i^(p / (p + 1))`. The chip's temperature obeys
    `theta >= theta_c + R P`, so that leakage and coolant take part. Works under `jit`, `vmap` and differentiation.
    """
    return _split(site, jnp.asarray(power, float), by_power=True)


def least_power(site: SiteLoad, tokens_per_second: Numeric) -> SiteSplit:
    """Static division of lowest power, hence of lowest energy per token, at a throughput, `min P(x)` with `R(x) >= R`.

    The same divisions as those of `most_throughput`, by throughput instead of power.
    """
    return _split(site, jnp.asarray(tokens_per_second, float), by_power=False)


def _split(site: SiteLoad, bound: Array, *, by_power: bool) -> SiteSplit:
    """The division of highest throughput within a power, or of lowest power at a throughput."""

    def settings(x: SiteChoice) -> SiteChoice:
        """In SI, from those of the search: logarithms, and temperatures in tens of kelvins above freezing."""
        return SiteChoice(*(jnp.exp(value) for value in x[:3]), *(ZERO_CELSIUS + KELVIN * value for value in x[3:]))

    def values(x: SiteChoice, site: SiteLoad, bound: Array) -> Values:
        choice = settings(x)
        parts, coolant = site_power(site, choice), site.facility.cooling.at(choice.coolant_temperature)
        power, rate = jnp.log(parts.total), jnp.log(throughput(site, choice))
        objective, row = (-rate, power - jnp.log(bound)) if by_power else (power, jnp.log(bound) - rate)
        heat = (parts.compute + parts.memory) / site.chips
        settled = coolant.last + (site.chip.thermal_resistance + coolant.resistance) * heat
        return Values(objective, jnp.stack([row, (settled - choice.temperature) / KELVIN]))

    inlet = site.facility.cooling.inlet
    ends = (inlet.recommended_lowest, inlet.recommended_highest, site.chip.maximum_temperature)
    coldest, warmest, hottest = (jnp.asarray((end - ZERO_CELSIUS) / KELVIN) for end in ends)
    width, clock = jnp.log(jnp.asarray(site.minimum_width)), jnp.log(jnp.asarray(site.chip.minimum_clock))
    low = SiteChoice(clock, width, width, coldest, coldest)
    high = SiteChoice(0.0 * clock, 0.0 * width, 0.0 * width, warmest, hottest)
    start = jax.tree.map(lambda a, b: 0.5 * (a + b), low, high)
    options = SolverOptions(hessian="differences")  # exact second derivatives compile twice as long
    solution = minimize(values, start, args=(site, bound), bounds=(low, high), options=options)
    choice = settings(solution.x)
    power, rate = site_power(site, choice), throughput(site, choice)
    price = solution.multipliers.inequalities[0] * (rate if by_power else power.total) / bound
    return SiteSplit(bound, choice, power, rate, price, solution.result)


_most_throughput = Compiled(most_throughput, once=True)
_least_power = Compiled(least_power, once=True)


def divide_site_power(scenario: Scenario, limits: Sequence[float | str] = ()) -> list[SiteSplit]:
    """The best static division of a site's power over compute, memory, links, host and cooling, at each limit.

    Every part may draw its share at any moment; clock, powered width of memory and links, and temperature of the
    coolant decide them (`most_throughput`).

    **Arguments:**

    - `limits`: of the whole site, in watts or as text with a unit; without them, shares of the facility's limit, or of
      the highest power of the scenario's own plan where there is none.

    **Raises:** `InputError` for a limit that is not positive, or below what the site needs to run at all.
    """
    watts, divided = [parse_number(limit, "W", "site power") for limit in limits], []
    for limit, power in zip(limits, watts, strict=True):
        if not (math.isfinite(power) and power > 0.0):
            raise InputError(f"site power: {limit} is not a positive power. Give for example 25 MW.")
    with jax.enable_x64(True):
        load = jax.tree.map(np.asarray, site_load(scenario.system, scenario.plan))
        if not watts:
            own = float(scenario.system.facility.power_limit)
            if not own < NO_LIMIT:
                own = float(evaluate_once(scenario.system, scenario.plan).power_peak)
            watts = [share * own for share in SHARES]
        for limit in watts:
            split = jax.tree.map(np.asarray, _most_throughput(load, np.asarray(limit)))
            if not result_is(split.result, RESULTS.successful):
                lowest = _least_power(load, np.asarray(STANDSTILL * float(split.throughput)))
                needed = format_quantity(float(lowest.power.total), "W")
                raise InputError(
                    f"site power: {format_quantity(limit, 'W')} is not enough: at the lowest clock and width, the site "
                    f"needs {needed}. Give more, or take fewer chips (--set plan.chips=...)."
                )
            divided.append(split._replace(limit=limit))
    return divided
