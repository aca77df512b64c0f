"""`evaluate`: what a training run yields and costs."""

import jax
import jax.numpy as jnp

from energymodel.learning.schedule import quadrature_over_progress, schedule_effective_tokens
from energymodel.numerics import Numeric, Scalar, with_own_numbers
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.over_time import moment_at, moment_of
from energymodel.system.plan import AbstractGoal, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import is_traced
from energymodel.system.plausible import CheckedOutcome, check_inputs, check_outcome
from energymodel.system.run_outcome import LearningResult, RunTotals, run_outcome, run_rates
from energymodel.system.step import Step, training_step
from energymodel.system.training_system import TrainingSystem, as_designed, learning_of, parameters_in_loss

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
    check_inputs(system, plan)
    run, batch = as_designed(system, plan), plan.batch
    if plan.knots == 1:
        batch = jnp.reshape(batch, ())
        outcome = outcome_of_step(*run, batch, training_step(*run, batch))
    else:
        outcome = outcome_of_schedule(*run)
    if not is_traced(system, plan, outcome):  # `jit` traces also what depends on no argument
        check_outcome(system, plan, outcome)
    return outcome


evaluate_once = CheckedOutcome(evaluate, once=True)
"""`evaluate` for a single call from the host: compiled, its trace kept between processes, its outcome checked."""


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
        tokens = learning.tokens(parameters, _target(plan.goal), batch)
    loss, progress = learning.run(parameters, tokens, batch)
    moment = moment_of(system, plan, step, calendar)
    run = jax.tree.map(lambda rate: rate * tokens, run_rates(system, plan, batch, moment, calendar))
    learned = LearningResult(tokens, loss, learning.information(progress))
    return run_outcome(system, plan, run, moment, learned, calendar)


def _target(goal: AbstractGoal) -> Scalar:
    """Loss at which a run ends [nat/token]."""
    if not isinstance(goal, TargetLoss):
        raise TypeError(f"plan.goal is {type(goal).__name__}; use TokenBudget or TargetLoss.")
    return goal.loss


def outcome_of_schedule(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    """Outcome of a run whose batch follows its progress, by quadrature; limits hold at the worst of its knots.

    **Arguments:**

    - `system`, `plan`: as designed (`training_system.as_designed`).
    """
    calendar = system.reliability.calendar(plan.chips, plan.spares)
    learning, parameters = learning_of(system, plan), parameters_in_loss(system)
    batches = jnp.ravel(jnp.asarray(plan.batch))
    knots = jnp.log(batches)
    if isinstance(plan.goal, TokenBudget):
        progress = schedule_effective_tokens(plan.goal.tokens, knots, learning, parameters)
    else:
        progress = learning.effective_tokens(parameters, _target(plan.goal))

    def rates(batch: Scalar) -> RunTotals:
        return run_rates(system, plan, batch, moment_at(system, plan, batch, calendar), calendar)

    run, tokens = quadrature_over_progress(rates, progress, knots, learning, parameters)
    learned = LearningResult(tokens, learning.loss(parameters, progress), learning.information(progress))
    moments = jax.vmap(lambda batch: moment_at(system, plan, batch, calendar))(batches)
    worst = jax.tree.map(lambda values: jnp.max(values, axis=0), moments)
    lowest = {name: jnp.min(getattr(moments.warmth, name)) for name in LOWEST_TEMPERATURES}
    worst = worst._replace(warmth=worst.warmth._replace(**lowest))
    return run_outcome(system, plan, run, worst, learned, calendar)
