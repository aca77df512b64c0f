"""What does the use of a model take after it is trained?"""

from typing import NamedTuple

import jax.numpy as jnp

from energymodel.numerics import Real
from energymodel.performance.serving import Serving
from energymodel.system.step import Step
from energymodel.system.training_system import TrainingSystem


class Served(NamedTuple):
    """What serving takes over the life of the model."""

    chip_time: Real
    energy: Real
    money: Real
    carbon: Real


def serving_of(system: TrainingSystem, step: Step, power: Real, peak_power: Real, prices: tuple[Real, Real]) -> Served:
    """Chip time, energy, money and carbon of the tokens that the model serves [definition].

    Chips that serve are like those that train.

    **Arguments:**

    - `power`, `peak_power`: of the facility per chip that trains [W].
    - `prices`: of links and storage, and of the plant, per chip [USD].

    **Returns:** chip time [s], energy [J], money [USD] and carbon [kg]; zeros where the model does not serve.
    """
    chip, serving, workload, market = system.accelerator, system.serving, system.workload, system.market
    if not isinstance(serving, Serving):
        return Served(*(jnp.zeros_like(power) for _ in Served._fields))
    chip_time = serving.chip_time(
        workload.active_parameters,
        workload.parameters,
        workload.cache_width,
        chip.peak_flops * step.point.clock,
        chip.sustained_bandwidth,
    )
    energy = power * chip_time
    waiting = market.price.cost(chip.price, 0.0, chip_time, 0.0, 0.0)  # the value of time is that of the run
    money = market.price.cost(chip.price, 1.0, chip_time, energy, peak_power, *prices) - waiting
    embodied = market.carbon.embodied(chip.embodied_carbon, 1.0, chip_time)
    return Served(chip_time, energy, money, market.carbon.operational(energy) + embodied)
