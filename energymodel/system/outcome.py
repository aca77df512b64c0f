"""Outputs of a training run, with unit, JSON key and title."""

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from energymodel.numerics import Numeric, Real
from energymodel.rendered import Rendered

Output = Real


def _output(unit: str, key: str, title: str = "", *, better: str = "less") -> Any:
    """Declare an output with its unit, its JSON key, its title in tables, and whether less or more of it is better."""
    title = title or key.rsplit("_", 1)[0].replace("_", " ")
    return eqx.field(metadata={"unit": unit, "key": key, "title": title, "better": better})


def _group(unit: str, key: str) -> Any:
    """Declare a group of outputs that share a unit."""
    return eqx.field(metadata={"unit": unit, "key": key})


class EnergyBreakdown(eqx.Module):
    """Energy of a run by where it goes; the parts add up to the total."""

    dynamic: Output = _output("J", "dynamic", "switching")
    static: Output = _output("J", "static", "leakage and fixed power, busy")
    memory: Output = _output("J", "memory", "memory traffic")
    network: Output = _output("J", "network", "links and switches")
    host: Output = _output("J", "host", "host, fans, network cards")
    idle_wait: Output = _output("J", "idle_wait", "waiting chips")
    delivery_loss: Output = _output("J", "delivery_loss", "power conversion")
    cooling: Output = _output("J", "cooling", "cooling")
    other: Output = _output("J", "other", "lighting, offices, other")

    @property
    def total(self) -> Numeric:
        """Sum of the parts [J]."""
        return reduce(operator.add, jax.tree.leaves(self))


class StepTime(eqx.Module):
    """Step time by term; the terms add up to the total."""

    compute: Output = _output("s", "compute", "matrix products")
    memory: Output = _output("s", "memory", "memory-bound kernels")
    host: Output = _output("s", "host", "launch overhead and host link")
    tensor: Output = _output("s", "tensor", "tensor-parallel communication")
    context: Output = _output("s", "context", "context-parallel communication")
    expert: Output = _output("s", "expert", "expert-parallel communication")
    pipeline: Output = _output("s", "pipeline", "pipeline communication")
    bubble: Output = _output("s", "bubble", "pipeline bubble and imbalance")
    data: Output = _output("s", "data", "data-parallel communication")
    optimizer: Output = _output("s", "optimizer", "optimizer step")
    overhead: Output = _output("s", "overhead", "fixed overhead")
    straggler: Output = _output("s", "straggler", "stragglers")

    @property
    def total(self) -> Numeric:
        """Time of one step [s]."""
        return reduce(operator.add, jax.tree.leaves(self))

    @property
    def apart(self) -> Numeric:
        """Time in which a chip waits for others between its kernels, not within a layer [s]."""
        return self.bubble + self.data + self.overhead + self.straggler


class Slack(eqx.Module):
    """Logarithm of limit over value for each limit of the system; negative means violated."""

    memory: Output = _output("1", "memory", "memory per chip")
    temperature: Output = _output("1", "temperature", "junction temperature")
    facility_power: Output = _output("1", "facility_power", "facility power")
    clock: Output = _output("1", "clock", "power at the lowest clock")
    heat_flux: Output = _output("1", "heat_flux", "heat flux into the coolant")
    ramp: Output = _output("1", "ramp", "temperature ramp at start and stop")
    coolant: Output = _output("1", "coolant", "coolant within its class")
    power_swing: Output = _output("1", "power_swing", "power swing within a step")
    power_ramp: Output = _output("1", "power_ramp", "power ramp of steps and checkpoints")
    information: Output = _output("1", "information", "information absorbed, of what parameters can store")
    chillers: Output = _output("1", "chillers", "chillers on a hot day")
    supplies: Output = _output("1", "supplies", "rating of converters and supplies")
    host_memory: Output = _output("1", "host_memory", "memory of the host")


class TrainingOutcome(Rendered, eqx.Module):
    """Everything a plan costs and yields. Fields carry unit, JSON key and title as metadata."""

    loss: Output = _output("nat/token", "loss_nat_per_token", "final loss")
    tokens: Output = _output("token", "tokens", "tokens", better="more")
    steps: Output = _output("1", "steps", "steps")
    step_time: StepTime = _group("s", "step_time_s")
    time: Output = _output("s", "time_s", "calendar time")
    chip_time: Output = _output("s", "chip_hours", "chip hours")
    token_rate: Output = _output("token/s", "tokens_per_s", "throughput", better="more")
    mfu: Output = _output("1", "mfu", "model FLOP utilization", better="more")
    hfu: Output = _output("1", "hfu", "hardware FLOP utilization", better="more")
    energy: EnergyBreakdown = _group("J", "energy_j")
    power_average: Output = _output("W", "power_average_w", "average facility power")
    power_busy: Output = _output("W", "power_busy_w", "busy chip power")
    power_peak: Output = _output("W", "power_peak_w", "peak facility power")
    power_swing: Output = _output("W", "power_swing_w", "power swing within a step")
    power_ramp: Output = _output("W/s", "power_ramp_w_per_s", "power ramp of steps and checkpoints")
    swing_frequency: Output = _output("Hz", "swing_frequency_hz", "frequency of steps")
    checkpoint_swing: Output = _output("W", "checkpoint_swing_w", "power swing at a checkpoint")
    checkpoint_frequency: Output = _output("Hz", "checkpoint_frequency_hz", "frequency of checkpoints")
    stop_swing: Output = _output("W", "stop_swing_w", "power swing at start and stop")
    stop_ramp: Output = _output("W/s", "stop_ramp_w_per_s", "power ramp at start and stop")
    pue: Output = _output("1", "pue", "power usage effectiveness")
    water: Output = _output("m^3", "water_m3", "water for cooling")
    chilled_heat: Output = _output("W", "chilled_heat_w", "heat to chill on a hot day")
    temperature: Output = _output("K", "temperature_k", "junction temperature")
    temperature_peak: Output = _output("K", "temperature_peak_k", "highest temperature within a step")
    temperature_trough: Output = _output("K", "temperature_trough_k", "lowest temperature within a step", better="more")
    temperature_checkpoint: Output = _output(
        "K", "temperature_checkpoint_k", "temperature after checkpoints", better="more"
    )
    temperature_first: Output = _output("K", "temperature_first_k", "first chip of a row")
    temperature_ramp: Output = _output("K/s", "temperature_ramp_k_per_s", "temperature ramp at start and stop")
    clock: Output = _output("1", "clock", "clock relative to reference", better="more")
    memory_per_chip: Output = _output("B", "memory_per_chip_b", "memory per chip")
    out_of_memory: Output = _output("1", "out_of_memory_probability", "probability to run out of memory")
    availability: Output = _output("1", "availability", "availability", better="more")
    money: Output = _output("USD", "money_usd", "money")
    carbon_operational: Output = _output("kg", "carbon_operational_kg", "operational carbon")
    carbon_embodied: Output = _output("kg", "carbon_embodied_kg", "embodied carbon")
    serving_chip_time: Output = _output("s", "serving_chip_hours", "chip hours of serving")
    lifetime_energy: Output = _output("J", "lifetime_energy_j", "energy of training and serving")
    lifetime_money: Output = _output("USD", "lifetime_money_usd", "money of training and serving")
    lifetime_carbon: Output = _output("kg", "lifetime_carbon_kg", "carbon of training and serving")
    information: Output = _output("bit", "information_bit", "information absorbed", better="more")
    information_rate: Output = _output("bit/s", "information_rate_bit_per_s", "mean information rate", better="more")
    energy_per_bit: Output = _output("J/bit", "energy_per_bit_j_per_bit", "energy per bit absorbed")
    eei: Output = _output("1", "eei", "energy efficiency index", better="more")
    ppw: Output = _output("token/J", "ppw_token_per_j", "performance per watt", better="more")
    euf: Output = _output("1", "euf", "energy utilization factor", better="more")
    landauer_multiple: Output = _output("1", "landauer_multiple", "multiple of the Landauer limit")
    slack: Slack = _group("1", "slack")

    @property
    def etp(self) -> Numeric:
        """Energy-time product [J s], of known numbers in float64: in float32 it overflows.

        1e38 J s is the product of a run of 1,000 years on 1e12 W. Logarithms of objectives add those of both factors.
        """
        energy, time = self.energy.total, self.time
        if isinstance(energy, Tracer) or isinstance(time, Tracer):
            return energy * time
        return np.asarray(energy, np.float64) * np.asarray(time, np.float64)

    @property
    def carbon(self) -> Numeric:
        """Operational and embodied carbon [kg]."""
        return self.carbon_operational + self.carbon_embodied


DERIVED: Mapping[str, Mapping[str, str]] = {"etp": {"unit": "J s", "key": "etp_j_s", "title": "energy-time product"}}
"""Products of outputs that tables and JSON show with them, with the metadata of an output."""
