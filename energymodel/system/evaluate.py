"""What does a training run yield and cost?"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.learning.continued import ContinuedLearning
from energymodel.learning.data_set import LimitedData, RepeatedLearning
from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import effective_parameters
from energymodel.learning.recipe import RecipeLearning
from energymodel.learning.schedule import quadrature_over_progress, schedule_effective_tokens
from energymodel.numerics import Numeric, Real, with_own_numbers
from energymodel.performance.reliability import LostTime, availability
from energymodel.physics.limits import landauer_energy, landauer_multiple
from energymodel.runtime.operations import simplified
from energymodel.system.designed import as_designed
from energymodel.system.formats import check_formats
from energymodel.system.lifetime import serving_of
from energymodel.system.operating_point import precision_energy, precision_speedup
from energymodel.system.outcome import EnergyBreakdown, StepTime, TrainingOutcome
from energymodel.system.pipeline_rules import check_pipeline, is_traced
from energymodel.system.plan import AbstractGoal, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plausible import CheckedOutcome, check_inputs, check_outcome
from energymodel.system.power_over_time import PowerOverTime, power_over_time
from energymodel.system.room import slack_of
from energymodel.system.step import ChipPower, Step, training_step
from energymodel.system.temperature_over_time import TemperatureOverTime, temperature_over_time
from energymodel.system.training_system import TrainingSystem


def evaluate(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    """Loss, time, energy, power, temperature, money and carbon of a training run [docs/physics.md E, 2026].

    Pure: works under `jit`, `vmap` and `grad`, in the caller's precision (float32 or float64). All inputs are in SI
    units. A plan with one batch and one clock uses the closed form; others integrate over the progress of the run.

    Counts may be fractions where they are traced. Of known numbers, those that no framework runs are refused.

    **Returns:** `TrainingOutcome`; its `energy` parts [J] add up to the total, and its `slack` is negative where the
    plan violates a limit of the system.

    **Raises:** `InputError`, outside `jit`, `vmap` and `grad`, for a number outside its range, for a pipeline that
    cannot run (`system.pipeline_rules`), for a number format that the chip lacks, and for an outcome that cannot be
    (`system.plausible`). Inside them, such products are those of the next wider format.
    """
    system, plan = with_own_numbers((system, plan))
    known = not is_traced(system, plan)
    if known:
        check_inputs(system, plan)
    if not is_traced(system.workload, system.software, plan):
        check_pipeline(system, plan)
    outcome = _evaluate(system, plan) if known else _listed(system, plan)
    if known and not is_traced(outcome):  # `jit` traces also what depends on no argument
        check_outcome(system, plan, outcome)
    return outcome


evaluate_once = CheckedOutcome(evaluate, once=True)
"""`evaluate` for a single call from the host: compiled, its trace kept between processes, its outcome checked."""


def _listed(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    """`_evaluate`, whose operations stand once in the program that is traced: derivatives compile in half the time."""
    traced, known = eqx.partition((system, plan), is_traced)
    return simplified(lambda part: _evaluate(*eqx.combine(part, known)))(traced)


def _evaluate(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    """Outcome of a system and a plan."""
    system, plan = as_designed(system, plan)
    check_formats(system.accelerator, vars(plan.layout), "plan.layout")
    if plan.knots == 1:
        batch = jnp.reshape(plan.batch, ())
        return outcome_of_step(system, plan, batch, training_step(system, plan, batch))
    learned, run = _along_schedule(system, plan, parameters_in_loss(system))
    return _outcome(system, plan, run, *_worst_step(system, plan), learned)


def outcome_of_step(system: TrainingSystem, plan: TrainingPlan, batch: Numeric, step: Step) -> TrainingOutcome:
    """Outcome of a run that repeats one step from its beginning to its end [definition].

    **Arguments:**

    - `system`, `plan`: as designed (`system.designed`), the batch constant.
    - `batch`: of the step [token].

    **Returns:** `TrainingOutcome`, as `evaluate`.
    """
    learned = _learned(learning_of(system, plan), plan, parameters_in_loss(system), batch)
    swings, warmth = power_over_time(system, plan, step), temperature_over_time(system, plan, step)
    run = jax.tree.map(lambda rate: rate * learned.tokens, _per_token(system, plan, batch, step, swings))
    return _outcome(system, plan, run, step, swings, warmth, learned)


def parameters_in_loss(system: TrainingSystem) -> Real:
    """Parameter count that enters the loss law, `N_active^(1-mu) N_total^mu` [definition].

    **Returns:** parameters [1], between the active and the total count; both are equal for a dense model.
    """
    workload = system.workload
    return effective_parameters(workload.active_parameters, workload.parameters, system.mixture_exponent)


def learning_of(system: TrainingSystem, plan: TrainingPlan) -> AbstractLearning:
    """Learning from the tokens seen on, with the recipe and the data of the system and the formats of the plan.

    [definition]. Tokens that are repeated are worth less (`learning.data_set`).

    **Returns:** the law, in which a parameter and a token are worth 1 with all products in bf16, AdamW and cosine
    decay of the best learning rate [1].
    """
    layout, recipe = plan.layout, system.recipe
    of_recipe = recipe.optimizer.token_efficiency * jnp.asarray(recipe.learning_rate.token_efficiency)
    learning = RecipeLearning(
        whole=ContinuedLearning(system.learning, system.tokens_seen),
        parameters_worth=system.chip_design.parameters_worth
        * recipe.precision.parameters_worth(layout.fp8, layout.fp4),
        tokens_worth=of_recipe * recipe.precision.tokens_worth(layout.fp8, layout.fp4),
        added_loss=recipe.learning_rate.added_loss(),
    )
    return RepeatedLearning(learning, system.data) if isinstance(system.data, LimitedData) else learning


class LearningResult(NamedTuple):
    """Tokens processed, the effective tokens that they are worth, and the final loss."""

    tokens: Real
    effective_tokens: Real
    loss: Real


class RunTotals(NamedTuple):
    """What accumulates over a run; `_per_token` gives the same per token."""

    steps: Real
    step_time: StepTime
    productive_time: Real
    time: Real
    energy: EnergyBreakdown
    equipment_energy: Real
    water: Real
    hardware_flops: Real


def _learned(learning: AbstractLearning, plan: TrainingPlan, parameters: Numeric, batch: Numeric) -> LearningResult:
    """Tokens, effective tokens and loss at a constant batch, whether the goal is a token budget or a loss."""
    if isinstance(plan.goal, TokenBudget):
        tokens = jnp.asarray(plan.goal.tokens)
    else:
        tokens = learning.tokens(parameters, _target(plan.goal).loss, batch)
    loss, effective = learning.run(parameters, tokens, batch)
    return LearningResult(tokens, effective, loss)


def _target(goal: AbstractGoal) -> TargetLoss:
    if not isinstance(goal, TargetLoss):
        raise TypeError(f"plan.goal is {type(goal).__name__}; use TokenBudget or TargetLoss.")
    return goal


def _per_token(
    system: TrainingSystem, plan: TrainingPlan, batch: Numeric, step: Step, swings: PowerOverTime
) -> RunTotals:
    """Time and energy per token at a batch, including failures and the other stages of the run."""
    productive, lost = _calendar(system, plan)
    load = _average_power(system, plan, step, productive, lost)
    facility = system.facility.power(load.total, plan.coolant_temperature)
    step_time = step.time.total
    seconds = step_time / productive * (1.0 + system.other_stages) / batch
    chip_seconds = seconds * plan.chips
    conversion = facility.delivery_loss + productive * swings.storage_loss
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


def run_rates(system: TrainingSystem, plan: TrainingPlan, batch: Numeric) -> RunTotals:
    """What a run takes per token at a batch, failures and other stages included [definition].

    **Returns:** steps [1/token], calendar time [s/token], energy [J/token] and so on.
    """
    step = training_step(system, plan, batch)
    return _per_token(system, plan, batch, step, power_over_time(system, plan, step))


def _calendar(system: TrainingSystem, plan: TrainingPlan) -> tuple[Real, LostTime]:
    """Productive share of calendar time, and where the rest goes."""
    lost = system.reliability.lost(plan.chips, plan.spares)
    productive, some = availability(lost.waste), lost.waste > 0.0
    scale = jnp.where(some, 1.0 - productive, 1.0) / jnp.where(some, lost.waste, 1.0)
    return productive, LostTime(*(scale * share for share in lost))


def _average_power(
    system: TrainingSystem, plan: TrainingPlan, step: Step, productive: Real, lost: LostTime
) -> ChipPower:
    """Mean power per chip over calendar time [W].

    Lost work draws full power, checkpoints spin, restarts and spare chips idle.
    """
    working = productive + lost.rework
    stopped = lost.checkpoint + lost.restart
    parts = ChipPower(*(part * working for part in step.power))
    idle, spares = _idle_power(system, plan, step), system.spare_chips(plan.spares) / plan.chips
    return parts._replace(
        network=parts.network + (stopped + spares) * idle.network,
        host=parts.host + (stopped + spares) * idle.host,
        idle_wait=parts.idle_wait + lost.checkpoint * step.levels.waiting + (lost.restart + spares) * idle.idle_wait,
    )


def _idle_power(system: TrainingSystem, plan: TrainingPlan, step: Step) -> ChipPower:
    """Power of a chip that does nothing, with its share of links and host [W]."""
    chip = system.accelerator.idle_power
    zero = jnp.zeros_like(step.links_power)
    return ChipPower(
        dynamic=zero,
        static=zero,
        memory=zero,
        network=step.links_power,
        host=system.host_power(chip, plan.coolant_temperature),
        idle_wait=jnp.asarray(chip),
    )


def _along_schedule(system: TrainingSystem, plan: TrainingPlan, parameters: Real) -> tuple[LearningResult, RunTotals]:
    """Learning result and totals of a run whose batch changes with progress."""
    learning, goal = learning_of(system, plan), plan.goal
    knots = jnp.log(jnp.ravel(jnp.asarray(plan.batch)))
    if isinstance(goal, TokenBudget):
        effective = schedule_effective_tokens(goal.tokens, knots, learning, parameters)
    else:
        effective = learning.effective_tokens(parameters, _target(goal).loss)

    def rates(batch: Real) -> RunTotals:
        return run_rates(system, plan, batch)

    run, tokens = quadrature_over_progress(rates, effective, knots, learning, parameters)
    return LearningResult(tokens, effective, learning.loss(parameters, effective)), run


def _worst_step(system: TrainingSystem, plan: TrainingPlan) -> tuple[Step, PowerOverTime, TemperatureOverTime]:
    """Largest value of each quantity over the knots of the schedule; of lowest temperatures the lowest."""

    def at(batch: Real) -> tuple[Step, PowerOverTime, TemperatureOverTime]:
        step = training_step(system, plan, batch)
        return step, power_over_time(system, plan, step), temperature_over_time(system, plan, step)

    found = jax.vmap(at)(jnp.ravel(jnp.asarray(plan.batch)))
    step, swings, warmth = jax.tree.map(lambda values: jnp.max(values, axis=0), found)
    lowest = {name: jnp.min(getattr(found[2], name)) for name in ("trough", "writing", "first")}
    return step, swings, warmth._replace(**lowest)


def _outcome(
    system: TrainingSystem,
    plan: TrainingPlan,
    run: RunTotals,
    worst: Step,
    swings: PowerOverTime,
    warmth: TemperatureOverTime,
    learned: LearningResult,
) -> TrainingOutcome:
    """Outcome of a run from its totals and its most demanding step."""
    chip, workload, market = system.accelerator, system.workload, system.market
    tokens = learned.tokens
    energy = run.energy.total
    chip_time = run.time * plan.chips
    productive_rate = tokens / run.productive_time
    model_flops = (4.0 + 2.0 * plan.trained_share) * workload.active_parameters
    peak = plan.chips * chip.peak_flops * precision_speedup(chip, plan.layout)
    mfu = productive_rate * (model_flops / peak)
    useful = tokens * model_flops * _useful_energy_per_flop(system, plan, worst)
    euf = useful / energy

    spare_chips = system.spare_chips(plan.spares)
    all_chips = plan.chips + spare_chips
    busy_load = worst.busy_load + spare_chips / plan.chips * _idle_power(system, plan, worst).total
    hottest = system.facility.hottest_power(busy_load, plan.coolant_temperature)
    peak_power = hottest.total(busy_load) * plan.chips
    information = learning_of(system, plan).information(learned.effective_tokens)
    bits = chip.bits_per_flop * model_flops * tokens
    equipment_price = system.links_price(plan.chips) + system.facility.equipment_price()
    plant_price = system.facility.plant_price(worst.busy_load)
    money = market.price.cost(chip.price, all_chips, run.time, energy, peak_power, equipment_price, plant_price)
    carbon_operational = market.carbon.operational(energy)
    carbon_embodied = market.carbon.embodied(chip.embodied_carbon, all_chips, run.time)
    prices = equipment_price, plant_price
    served = serving_of(system, worst, energy / chip_time, peak_power / plan.chips, prices)
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
        power_busy=worst.point.busy_power,
        power_peak=peak_power,
        power_swing=swings.swing,
        power_ramp=swings.ramp,
        swing_frequency=swings.frequency,
        checkpoint_swing=swings.checkpoint_swing,
        checkpoint_frequency=swings.checkpoint_frequency,
        stop_swing=swings.stop_swing,
        stop_ramp=swings.stop_ramp,
        pue=energy / run.equipment_energy,
        water=run.water,
        chilled_heat=system.facility.chilled_heat(worst.busy_load, plan.coolant_temperature) * plan.chips,
        temperature=warmth.hottest,
        temperature_peak=warmth.peak,
        temperature_trough=warmth.trough,
        temperature_checkpoint=warmth.writing,
        temperature_first=warmth.first,
        temperature_ramp=warmth.ramp,
        clock=worst.point.clock,
        memory_per_chip=worst.memory,
        availability=_calendar(system, plan)[0],
        money=money,
        carbon_operational=carbon_operational,
        carbon_embodied=carbon_embodied,
        serving_chip_time=served.chip_time,
        lifetime_energy=energy + served.energy,
        lifetime_money=money + served.money,
        lifetime_carbon=carbon_operational + carbon_embodied + served.carbon,
        information=information,
        information_rate=information / run.time,
        energy_per_bit=energy / information,
        eei=mfu * euf,
        ppw=tokens / energy,
        euf=euf,
        landauer_multiple=landauer_multiple(energy, landauer_energy(bits, plan.coolant_temperature)),
        slack=slack_of(system, plan, worst, swings, warmth, peak_power, information),
    )


def money_until(
    system: TrainingSystem, plan: TrainingPlan, outcome: TrainingOutcome, time: Numeric, energy: Numeric
) -> Float[Array, "..."]:
    """Money that a run has cost after a time and an energy, `C = C_run + c (t - t_run) + p_e (E - E_run)`.

    Capital, peak power and delay cost in proportion to time [definition].

    **Arguments:**

    - `outcome`: of the whole run.
    - `time`: t [s].
    - `energy`: at the meter, E [J].

    **Returns:** cost [USD], that of the outcome at its end.
    """
    chip, price = system.accelerator, system.market.price

    def cost(time: Numeric, energy: Numeric) -> Float[Array, "..."]:
        return price.cost(chip.price, plan.chips, time, energy, outcome.power_peak)

    whole = cost(outcome.time, outcome.energy.total)
    return cost(time, energy) + (outcome.money - whole) * (jnp.asarray(time) / outcome.time)


def _useful_energy_per_flop(system: TrainingSystem, plan: TrainingPlan, step: Step) -> Real:
    """Switching energy of one operation at the run's voltage [J/FLOP]."""
    chip = system.accelerator
    return chip.energy_per_flop * precision_energy(chip, plan.layout) * step.point.voltage**2
