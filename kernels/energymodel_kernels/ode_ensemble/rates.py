"""Equations of `energymodel` that are integrated over many plans, and their numbers.

Fields hold one number for all plans, or one for each.
"""

from typing import Any

import equinox as eqx

from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.learning.loss_ode import loss_rate
from energymodel.physics.thermal import temperature_slope


class LossPlan(eqx.Module):
    """A run at constant batch: model parameters [1], throughput [token/s], batch and critical batch [token]."""

    parameters: Any
    token_rate: Any
    batch: Any
    critical_batch: Any
    law: ChinchillaLaw


class ThermalPlan(eqx.Module):
    """A chip after a step of power [W]: coolant [K], resistance [K/W], heat capacity [J/K]."""

    power: Any
    coolant_temperature: Any
    thermal_resistance: Any
    heat_capacity: Any


def loss_rate_of(time: Any, loss: Any, plan: LossPlan) -> Any:
    """`energymodel.learning.loss_ode.loss_rate` [nat/(token s)] of a plan."""
    return loss_rate(loss, plan.parameters, plan.token_rate, plan.batch, plan.critical_batch, plan.law)


def heat_rate(time: Any, temperature: Any, plan: ThermalPlan) -> Any:
    """`energymodel.physics.thermal.temperature_slope` [K/s] of a plan."""
    return temperature_slope(
        temperature, plan.power, plan.coolant_temperature, plan.thermal_resistance, plan.heat_capacity
    )
