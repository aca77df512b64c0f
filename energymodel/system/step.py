"""What does one training step ask of a chip: how long, at which clock, with what power?"""

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Array, Float

from energymodel.numerics import Numeric
from energymodel.system.exchange import Traffic, traffic_of
from energymodel.system.operating_point import OperatingPoint, chip_load, operating_point
from energymodel.system.outcome import StepTime
from energymodel.system.plan import TrainingPlan
from energymodel.system.step_time import step_time
from energymodel.system.work import divide, layer_work, memory_per_chip, optimizer_traffic, shard

if TYPE_CHECKING:
    from energymodel.system.training_system import TrainingSystem

Scalar = Float[Array, ""]


class ChipPower(NamedTuple):
    """Mean direct-current power per chip over a step, by where it goes [W]."""

    dynamic: Scalar
    static: Scalar
    memory: Scalar
    network: Scalar
    host: Scalar
    idle_wait: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts [W]."""
        return self.dynamic + self.static + self.memory + self.network + self.host + self.idle_wait


class Step(NamedTuple):
    """One training step; `memory` is of the fullest chip, `hardware_flops` of the mean one."""

    time: StepTime
    power: ChipPower
    point: OperatingPoint
    memory: Scalar
    hardware_flops: Scalar
    background_power: Scalar
    waiting_power: Scalar


def training_step(system: "TrainingSystem", plan: TrainingPlan, batch: Numeric) -> Step:
    """Time, power and memory of one step at its operating point, `P = E / t` [derivation: docs/physics.md E].

    Kernels keep the mean chip busy; host stalls idle it; bubbles, exchanges and stragglers keep it spinning, which
    power gates make cheaper. Links, switches and the host draw all the time.

    **Arguments:**

    - `system`, `plan`: what is given and what is decided.
    - `batch`: global batch [token].

    **Returns:** terms of the time [s], mean power per chip by where it goes [W], operating point, memory of the
    fullest chip [B], operations of the mean chip [FLOP].
    """
    chip = system.accelerator
    division = divide(system, plan, batch)
    work = layer_work(system, plan, division)
    part = shard(system, plan, division)
    load = chip_load(system, plan, work)
    point = operating_point(system, plan, load)
    traffic = traffic_of(system, plan, division, work, part)
    time = step_time(system, plan, division, work, part, load, point, traffic)
    total = time.total

    layers_worth = division.layer_passes + division.head_passes * work.head_share
    head_and_optimizer = division.head_passes * work.head_bytes + optimizer_traffic(system, plan, part)
    memory_energy = division.layer_passes * load.memory_energy + 8.0 * chip.memory_energy * head_and_optimizer
    busy = time.compute + time.memory + time.optimizer
    exchanges = time.tensor + time.context + time.expert + time.pipeline + time.data
    waiting = exchanges + time.bubble + time.overhead + time.straggler
    saved = chip.gate.saved_power(chip.leakage(point.voltage, point.temperature), waiting, total)
    links = system.network.static_power + system.node.scale_up.power() + system.network.link.power()
    host = system.node.overhead_per_chip
    power = ChipPower(
        dynamic=layers_worth * load.switching_energy * point.voltage**2 / total,
        static=point.static_power * busy / total,
        memory=memory_energy / total,
        network=_network_energy(system, plan, traffic.of_step(division)) / total + links,
        host=host,
        idle_wait=(point.static_power * waiting + chip.idle_power * time.host) / total - saved,
    )
    return Step(
        time=time,
        power=power,
        point=point,
        memory=memory_per_chip(system, plan, division),
        hardware_flops=layers_worth * work.flops,
        background_power=links + host,
        waiting_power=point.static_power,
    )


def _network_energy(system: "TrainingSystem", plan: TrainingPlan, sent: Traffic) -> Scalar:
    """Energy that one chip's traffic costs in links and switches in a step [J]."""
    inner = sum(exchange.inner_bytes for exchange in sent)
    outer = sum(exchange.outer_bytes for exchange in sent)
    between_nodes = system.network.energy_per_bit(system.node.count(plan.chips))
    return 8.0 * (inner * system.node.scale_up.energy + outer * between_nodes)
