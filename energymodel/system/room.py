"""How much room does a run leave below each limit of its chips, its building and its grid?"""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Real
from energymodel.system.outcome import Slack
from energymodel.system.plan import TrainingPlan
from energymodel.system.power_over_time import PowerOverTime
from energymodel.system.step import Step
from energymodel.system.temperature_over_time import TemperatureOverTime
from energymodel.system.training_system import TrainingSystem

SMALLEST_SHARE = 1e-12  # of a limit: what is smaller, or zero, has room enough


def slack_of(
    system: TrainingSystem,
    plan: TrainingPlan,
    step: Step,
    swings: PowerOverTime,
    warmth: TemperatureOverTime,
    peak_power: Numeric,
    information: Numeric,
) -> Slack:
    """Logarithm of limit over value for each limit of the system [definition].

    **Arguments:**

    - `step`, `swings`, `warmth`: the most demanding of the run.
    - `peak_power`: of the facility [W].
    - `information`: that the run absorbs [bit].

    **Returns:** slack of each limit [1], negative where the plan violates it.
    """
    chip, facility, point = system.accelerator, system.facility, step.point
    heat_flux = point.busy_power / chip.die_area
    chilled = facility.chilled_heat(step.busy_load, plan.coolant_temperature)
    return Slack(
        memory=jnp.log(chip.memory_capacity / step.memory),
        temperature=jnp.log(chip.maximum_temperature / warmth.hottest),
        facility_power=jnp.log(facility.power_limit / peak_power),
        clock=jnp.log(plan.power_cap / point.lowest_power),
        heat_flux=jnp.log(facility.cooling.heat_flux_limit() / heat_flux),
        ramp=_room(facility.ramp_limit, warmth.ramp),
        coolant=facility.cooling.inlet.room(plan.coolant_temperature),
        power_swing=_room(facility.swing_limit, swings.swing),
        power_ramp=_room(facility.power_ramp_limit, swings.ramp),
        information=jnp.log(system.capacity_per_parameter * system.workload.parameters / information),
        chillers=_room(1.0, facility.cooling.chiller_load(chilled)),
        supplies=_room(1.0, facility.supply_load(step.busy_load)),
    )


def _room(limit: Numeric, value: Real) -> Real:
    """Logarithm of a limit over a value that may be zero [1]."""
    return -jnp.log(jnp.maximum(value / limit, SMALLEST_SHARE))
