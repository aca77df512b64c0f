"""`evaluate`: what a training run yields and costs."""

import jax
import jax.numpy as jnp

from energymodel.learning.data_set import ContinuedLearning, LimitedData, RepeatedLearning
from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import effective_parameters
from energymodel.learning.recipe import RecipeLearning
from energymodel.learning.schedule import quadrature_over_progress, schedule_effective_tokens
from energymodel.numerics import Numeric, Real, is_fixed, with_own_numbers
from energymodel.performance.reliability import Calendar
from energymodel.system.outcome import EnergyBreakdown, TrainingOutcome
from energymodel.system.over_time import power_over_time, temperature_over_time
from energymodel.system.plan import AbstractGoal, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import check_formats, check_pipeline, is_traced
from energymodel.system.plausible import CheckedOutcome, check_inputs, check_outcome
from energymodel.system.run_outcome import LearningResult, Moment, RunTotals, run_outcome
from energymodel.system.step import ChipPower, Step, training_step
from energymodel.system.training_system import TrainingSystem, as_designed

LOWEST_TEMPERATURES = ("temperature_trough", "temperature_checkpoint", "temperature_first")
"""Outputs of which the lowest of several steps or groups counts."""


def evaluate(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    """Loss, time, energy, power, temperature, money and carbon of a training run [docs/physics.md E, 2026].

    Pure: works under `jit`, `vmap` and `grad`, in the caller's precision (float32 or float64). All inputs are in SI
    units. A plan with one batch and one clock uses the closed form; others integrate over the progress of the run.

    Counts may be fractions where they are traced. Of known numbers, those that no framework runs are refused, and those
    that are 0 or 1 decide which parts the program has: without experts, offload or storage, nothing of them is in it.

    **Returns:** `TrainingOutcome`; its `energy` parts [J] add up to the total, and its `slack` is negative where the
    plan violates a limit of the system.

    **Raises:** `InputError`, outside `jit`, `vmap` and `grad`, for a number outside its range, for a pipeline that
    cannot run (`system.plan_rules`), for a number format that the chip lacks, and for an outcome that cannot be
    (`system.plausible`). Inside them, such products are those of the next wider format.
    """
    system, plan = with_own_numbers((system, plan))
    concrete = not is_traced(system, plan)
    if concrete:
        check_inputs(system, plan)
    if not is_traced(system.workload, system.software, plan):
        check_pipeline(system, plan)
    outcome = _evaluate(system, plan)
    if concrete and not is_traced(outcome):  # `jit` traces also what depends on no argument
        check_outcome(system, plan, outcome)
    return outcome


evaluate_once = CheckedOutcome(evaluate, once=True)
"""`evaluate` for a single call from the host: compiled, its trace kept between processes, its outcome checked."""


def _evaluate(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    system, plan = as_designed(system, plan)
    check_formats(system.accelerator, vars(plan.layout), "plan.layout")
    if plan.knots == 1:
        batch = jnp.reshape(plan.batch, ())
        return outcome_of_step(system, plan, batch, training_step(system, plan, batch))
    calendar = system.reliability.calendar(plan.chips, plan.spares)
    learned, run = _along_schedule(system, plan, calendar)
    return run_outcome(system, plan, run, _worst_moment(system, plan, calendar), learned, calendar)


def outcome_of_step(system: TrainingSystem, plan: TrainingPlan, batch: Numeric, step: Step) -> TrainingOutcome:
    """Outcome of a run that repeats one step from its beginning to its end [definition].

    **Arguments:**

    - `system`, `plan`: as designed (`training_system.as_designed`), the batch constant.
    - `batch`: of the step [token].

    **Returns:** `TrainingOutcome`, as `evaluate`.
    """
    calendar = system.reliability.calendar(plan.chips, plan.spares)
    learning, parameters = learning_of(system, plan), parameters_in_loss(system)
    if isinstance(plan.goal, TokenBudget):
        tokens = jnp.asarray(plan.goal.tokens)
    else:
        tokens = learning.tokens(parameters, _target(plan.goal).loss, batch)
    loss, effective = learning.run(parameters, tokens, batch)
    learned = LearningResult(tokens, effective, loss, learning.information(effective))
    moment = _moment(system, plan, step, calendar)
    run = jax.tree.map(lambda rate: rate * tokens, _per_token(system, plan, batch, moment, calendar))
    return run_outcome(system, plan, run, moment, learned, calendar)


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
    begun = system.learning
    if not is_fixed(system.tokens_seen, 0.0):
        begun = ContinuedLearning(begun, system.tokens_seen)
    learning = RecipeLearning(
        base=begun,
        parameters_worth=system.chip_design.parameters_worth
        * recipe.precision.parameters_worth(layout.fp8, layout.fp4),
        tokens_worth=of_recipe * recipe.precision.tokens_worth(layout.fp8, layout.fp4),
        added_loss=recipe.learning_rate.added_loss(),
    )
    return RepeatedLearning(learning, system.data) if isinstance(system.data, LimitedData) else learning


def _target(goal: AbstractGoal) -> TargetLoss:
    if not isinstance(goal, TargetLoss):
        raise TypeError(f"plan.goal is {type(goal).__name__}; use TokenBudget or TargetLoss.")
    return goal


def _per_token(
    system: TrainingSystem, plan: TrainingPlan, batch: Numeric, moment: Moment, calendar: Calendar
) -> RunTotals:
    """Time and energy per token at a batch, including failures and the other stages of the run."""
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


def run_rates(
    system: TrainingSystem, plan: TrainingPlan, batch: Numeric, calendar: Calendar | None = None
) -> RunTotals:
    """What a run takes per token at a batch, failures and other stages included [definition].

    **Returns:** steps [1/token], calendar time [s/token], energy [J/token] and so on.
    """
    calendar = calendar or system.reliability.calendar(plan.chips, plan.spares)
    return _per_token(
        system, plan, batch, _moment(system, plan, training_step(system, plan, batch), calendar), calendar
    )


def _moment(system: TrainingSystem, plan: TrainingPlan, step: Step, calendar: Calendar) -> Moment:
    return Moment(step, power_over_time(system, plan, step, calendar), temperature_over_time(system, step))


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


def _along_schedule(system: TrainingSystem, plan: TrainingPlan, calendar: Calendar) -> tuple[LearningResult, RunTotals]:
    """Learning result and totals of a run whose batch changes with progress."""
    learning, goal, parameters = learning_of(system, plan), plan.goal, parameters_in_loss(system)
    knots = jnp.log(jnp.ravel(jnp.asarray(plan.batch)))
    if isinstance(goal, TokenBudget):
        effective = schedule_effective_tokens(goal.tokens, knots, learning, parameters)
    else:
        effective = learning.effective_tokens(parameters, _target(goal).loss)

    def rates(batch: Real) -> RunTotals:
        return run_rates(system, plan, batch, calendar)

    run, tokens = quadrature_over_progress(rates, effective, knots, learning, parameters)
    loss = learning.loss(parameters, effective)
    return LearningResult(tokens, effective, loss, learning.information(effective)), run


def _worst_moment(system: TrainingSystem, plan: TrainingPlan, calendar: Calendar) -> Moment:
    """Largest value of each quantity over the knots of the schedule; of lowest temperatures the lowest."""
    batches = jnp.ravel(jnp.asarray(plan.batch))
    moments = jax.vmap(lambda batch: _moment(system, plan, training_step(system, plan, batch), calendar))(batches)
    worst = jax.tree.map(lambda values: jnp.max(values, axis=0), moments)
    lowest = {name: jnp.min(getattr(moments.warmth, name)) for name in LOWEST_TEMPERATURES}
    return worst._replace(warmth=worst.warmth._replace(**lowest))
