"""Totals of a run, and its outcome from them and its most demanding moment: money, carbon, serving, slack."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.economics.cost import Usage
from energymodel.numerics import Numeric, Real, Values, is_fixed, part
from energymodel.performance.reliability import Calendar
from energymodel.performance.serving import Serving
from energymodel.physics.limits import landauer_energy, landauer_multiple
from energymodel.system.memory import memory_limit, out_of_memory_risk
from energymodel.system.outcome import EnergyBreakdown, Slack, StepTime, TrainingOutcome
from energymodel.system.over_time import PowerOverTime, TemperatureOverTime, power_over_time, temperature_over_time
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import ChipPower, Step, training_step
from energymodel.system.training_system import TrainingSystem

LOWEST_TEMPERATURES = ("temperature_trough", "temperature_checkpoint", "temperature_first")
"""Outputs of which the lowest of several steps or groups counts."""

SMALLEST_SHARE = 1e-12  # of a limit: what is smaller, or zero, is far below it


class LearningResult(NamedTuple):
    """Tokens processed, the final loss, and the information absorbed."""

    tokens: Real
    loss: Real
    information: Real


class RunTotals(NamedTuple):
    """What accumulates over a run, or the same per token."""

    steps: Real
    step_time: StepTime
    productive_time: Real
    time: Real
    energy: EnergyBreakdown
    equipment_energy: Real
    water: Real
    hardware_flops: Real


class Moment(NamedTuple):
    """A step, and how power and temperature move meanwhile."""

    step: Step
    power: PowerOverTime
    warmth: TemperatureOverTime


def moment_at(
    system: TrainingSystem, plan: TrainingPlan, batch: Numeric, calendar: Calendar, step: Step | None = None
) -> Moment:
    """A step of a run at a batch [token], unless another `step` is given, with power and temperature over time [SI]."""
    if step is None:
        step = training_step(system, plan, batch)
    return Moment(step, power_over_time(system, plan, step, calendar), temperature_over_time(system, step))


def worst_moment(system: TrainingSystem, plan: TrainingPlan, calendar: Calendar) -> Moment:
    """Largest value of each quantity over the knots of the schedule; of lowest temperatures the lowest."""
    moments = jax.vmap(lambda batch: moment_at(system, plan, batch, calendar))(jnp.ravel(jnp.asarray(plan.batch)))
    worst = jax.tree.map(lambda values: jnp.max(values, axis=0), moments)
    lowest = {name: jnp.min(getattr(moments.warmth, name)) for name in LOWEST_TEMPERATURES}
    return worst._replace(warmth=worst.warmth._replace(**lowest))


def run_rates(
    system: TrainingSystem, plan: TrainingPlan, batch: Numeric, calendar: Calendar, moment: Moment | None = None
) -> RunTotals:
    """What a run takes per token in steps of a batch, failures and other stages included [definition].

    **Returns:** steps [1/token], calendar time [s/token], energy [J/token] and so on.
    """
    moment = moment_at(system, plan, batch, calendar) if moment is None else moment
    step, productive = moment.step, calendar.productive
    load = _average_power(step, calendar, system.spare_chips(plan.spares) / plan.chips)
    facility = system.facility.power(load.total, step.coolant)
    step_time = step.duration
    seconds = step_time / productive * (1.0 + system.other_stages) / batch
    chip_seconds = seconds * plan.chips
    conversion = facility.delivery_loss + productive * moment.power.storage_loss
    energy = EnergyBreakdown(*(part * chip_seconds for part in (*load, conversion, facility.cooling, facility.other)))
    return RunTotals(
        steps=1.0 / jnp.asarray(batch),
        step_time=jax.tree.map(lambda term: term / batch, step.time),
        productive_time=step_time / batch,
        time=seconds,
        energy=energy,
        equipment_energy=facility.equipment * chip_seconds,
        water=facility.water * chip_seconds,
        hardware_flops=step.hardware_flops * plan.chips / batch,
    )


def _average_power(step: Step, calendar: Calendar, spares: Numeric) -> ChipPower:
    """Mean power per chip over calendar time [W], with so many spare chips per chip [1].

    Lost work draws full power, checkpoints spin, restarts and spare chips idle.
    """
    lost, idle = calendar.lost, step.idle
    working, stopped = calendar.productive + lost.rework, lost.checkpoint + lost.restart + spares
    parts = ChipPower(*(part * working for part in step.power))
    return parts._replace(
        network=parts.network + stopped * idle.network,
        host=parts.host + stopped * idle.host,
        idle_wait=parts.idle_wait + lost.checkpoint * step.levels.waiting + (lost.restart + spares) * idle.idle_wait,
    )


def run_outcome(
    system: TrainingSystem,
    plan: TrainingPlan,
    run: RunTotals,
    moment: Moment,
    learned: LearningResult,
    calendar: Calendar,
) -> TrainingOutcome:
    """Outcome of a run in SI units from its totals and its most demanding moment [definition]."""
    chip, workload, market, facility = system.accelerator, system.workload, system.market, system.facility
    step, tokens, energy = moment.step, learned.tokens, run.energy.total
    chip_time, factors = run.time * plan.chips, step.factors
    productive_rate = tokens / run.productive_time
    parameters, model_flops = workload.parameters, system.adaptation.flops_per_token(workload, plan.trained_share)
    peak = plan.chips * chip.peak_flops * factors.speedup
    mfu = productive_rate * (model_flops / peak)
    euf = tokens * model_flops * (chip.energy_per_flop * factors.energy * step.point.swing**2) / energy

    spare_chips = system.spare_chips(plan.spares)
    all_chips = plan.chips + spare_chips
    busy_load = step.busy_load + spare_chips / plan.chips * step.idle.total
    peak_power = facility.hottest_power(busy_load, step.coolant).total(busy_load) * plan.chips
    feed = facility.feed(step.busy_load)
    chilled = facility.cooling.chilled_heat(feed.equipment, step.coolant)
    stored, load = learned.information / parameters, facility.supply_load(feed)
    slack = slack_of(system, plan, moment, peak_power, stored, chilled, load)
    prices = step.links_price + facility.equipment_price(), facility.cooling.added_price(feed.equipment)
    money = market.price.cost(Usage(chip.price, all_chips, run.time, energy, peak_power, *prices))
    carbon_operational = market.carbon.operational(energy)
    carbon_embodied = market.carbon.embodied(chip.embodied_carbon, all_chips, run.time)
    served = serving_of(system, step, energy / chip_time, peak_power / plan.chips, prices)
    bits = chip.bits_per_flop * model_flops * tokens
    power = moment.power._asdict()
    del power["storage_loss"]  # counted where power is converted
    return TrainingOutcome(
        loss=learned.loss,
        tokens=tokens,
        steps=run.steps,
        step_time=jax.tree.map(lambda term: term / run.steps, run.step_time),
        time=run.time,
        chip_time=chip_time,
        token_rate=productive_rate,
        mfu=mfu,
        hfu=run.hardware_flops / run.productive_time / peak,
        energy=run.energy,
        power_average=energy / run.time,
        power_busy=step.point.busy_power,
        power_peak=peak_power,
        **power,
        pue=energy / run.equipment_energy,
        water=run.water,
        chilled_heat=chilled * plan.chips,
        **moment.warmth._asdict(),
        clock=step.point.clock,
        memory_per_chip=step.memory,
        out_of_memory=out_of_memory_risk(system, plan, step.memory),
        availability=calendar.productive,
        money=money,
        carbon_operational=carbon_operational,
        carbon_embodied=carbon_embodied,
        serving_chip_time=served.chip_time,
        lifetime_energy=energy + served.energy,
        lifetime_money=money + served.money,
        lifetime_carbon=carbon_operational + carbon_embodied + served.carbon,
        information=learned.information,
        information_rate=learned.information / run.time,
        energy_per_bit=energy / learned.information,
        eei=mfu * euf,
        ppw=tokens / energy,
        euf=euf,
        landauer_multiple=landauer_multiple(energy, landauer_energy(bits, plan.coolant_temperature)),
        slack=slack,
    )


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
    waiting = market.price.cost(Usage(chip.price, 0.0, chip_time, 0.0, 0.0))  # the value of time is that of the run
    money = market.price.cost(Usage(chip.price, 1.0, chip_time, energy, peak_power, *prices)) - waiting
    embodied = market.carbon.embodied(chip.embodied_carbon, 1.0, chip_time)
    return Served(chip_time, energy, money, market.carbon.operational(energy) + embodied)


def slack_of(
    system: TrainingSystem,
    plan: TrainingPlan,
    moment: Moment,
    peak_power: Numeric,
    information: Numeric,
    chilled: Numeric,
    supply_load: Numeric,
) -> Slack:
    """Logarithm of limit over value for each limit of the system [definition].

    **Arguments:**

    - `moment`: the most demanding of the run.
    - `peak_power`: of the facility [W].
    - `information`: that the run absorbs per parameter [bit].
    - `chilled`: heat to chill on a hot day [W]; `supply_load`: largest load of a converter over its rating [1].

    **Returns:** slack of each limit [1], negative where the plan violates it.
    """
    chip, facility, point, warmth = system.accelerator, system.facility, moment.step.point, moment.warmth
    cooling = facility.cooling

    def below(share: Numeric) -> Real:
        """Logarithm of one over a share of a limit that may be zero."""
        if is_fixed(share, 0.0):
            return np.asarray(-np.log(SMALLEST_SHARE))
        return -jnp.log(jnp.maximum(share, SMALLEST_SHARE))

    return Slack(
        memory=jnp.log(memory_limit(system, plan) / moment.step.memory),
        temperature=jnp.log(chip.maximum_temperature / warmth.temperature),
        facility_power=jnp.log(facility.power_limit / peak_power),
        clock=jnp.log(plan.power_cap / point.lowest_power),
        heat_flux=jnp.log(cooling.loop.heat_flux_limit() / (point.busy_power / chip.die_area)),
        ramp=below(warmth.temperature_ramp / facility.ramp_limit),
        coolant=cooling.inlet.slack(plan.coolant_temperature),
        power_swing=below(moment.power.power_swing / facility.swing_limit),
        power_ramp=below(moment.power.power_ramp / facility.power_ramp_limit),
        information=jnp.log(system.capacity_per_parameter / information),
        chillers=below(cooling.chiller_load(chilled)),
        supplies=below(supply_load),
        host_memory=below(part(moment.step.host_memory, lambda: system.node.chips / system.node.host_memory)),
    )


def money_until(
    system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome, time: Numeric, energy: Numeric
) -> Values:
    """Money that a run has cost after a time and an energy, `C = C_run + c (t - t_run) + p_e (E - E_run)`.

    Capital, peak power and delay cost in proportion to time [definition].

    **Arguments:**

    - `outcome`: of the whole run.
    - `time`: t [s].
    - `energy`: at the meter, E [J].

    **Returns:** cost [USD], that of the outcome at its end.
    """
    chip, price = system.accelerator, system.market.price

    def cost(time: Numeric, energy: Numeric) -> Values:
        return price.cost(Usage(chip.price, plan.chips, time, energy, outcome.power_peak))

    total = cost(outcome.time, outcome.energy.total)
    return cost(time, energy) + (outcome.money - total) * (jnp.asarray(time) / outcome.time)
