"""`evaluate`: what a training run yields and costs."""

from functools import partial

import jax
import jax.numpy as jnp

from energymodel.learning.schedule import quadrature_over_progress, schedule_effective_tokens
from energymodel.numerics import Scalar, with_own_numbers
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import AbstractGoal, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import is_traced
from energymodel.system.plausible import CheckedOutcome, check_inputs, check_outcome
from energymodel.system.run_outcome import LearningResult, moment_at, run_outcome, run_rates, worst_moment
from energymodel.system.step import Step
from energymodel.system.training_system import TrainingSystem, as_designed, learning_of, parameters_in_loss


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
    outcome = outcome_of_run(*as_designed(system, plan))
    if not is_traced(system, plan, outcome):  # `jit` traces also what depends on no argument
        check_outcome(system, plan, outcome)
    return outcome


evaluate_once = CheckedOutcome(evaluate, once=True)
"""`evaluate` for a single call from the host: compiled, its trace kept between processes, its outcome checked."""


def outcome_of_run(system: TrainingSystem, plan: TrainingPlan, step: Step | None = None) -> TrainingOutcome:
    """Outcome of a run that repeats one step, or whose batch follows its progress [definition].

    Along a schedule of batches, rates are integrated by quadrature, and limits hold at the worst of its knots.

    **Arguments:**

    - `system`, `plan`: as designed (`training_system.as_designed`).
    - `step`: that a run with a constant batch repeats, unless it is that of the plan.

    **Returns:** `TrainingOutcome` as `evaluate`: energy [J], time [s], money [USD] and so on.
    """
    calendar = system.reliability.calendar(plan.chips, plan.spares)
    learning, parameters, goal = learning_of(system, plan), parameters_in_loss(system), plan.goal
    if plan.knots == 1:
        batch = jnp.reshape(plan.batch, ())
        moment = moment_at(system, plan, batch, calendar, step)
        if isinstance(goal, TokenBudget):
            tokens = jnp.asarray(goal.tokens)
        else:
            tokens = learning.tokens(parameters, _target(goal), batch)
        loss, progress = learning.run(parameters, tokens, batch)
        run = jax.tree.map(lambda rate: rate * tokens, run_rates(system, plan, batch, calendar, moment))
    else:
        knots = jnp.log(jnp.ravel(jnp.asarray(plan.batch)))
        if isinstance(goal, TokenBudget):
            progress = schedule_effective_tokens(goal.tokens, knots, learning, parameters)
        else:
            progress = learning.effective_tokens(parameters, _target(goal))
        rates = partial(run_rates, system, plan, calendar=calendar)
        run, tokens = quadrature_over_progress(rates, progress, knots, learning, parameters)
        loss, moment = learning.loss(parameters, progress), worst_moment(system, plan, calendar)
    learned = LearningResult(tokens, loss, learning.information(progress))
    return run_outcome(system, plan, run, moment, learned, calendar)


def _target(goal: AbstractGoal) -> Scalar:
    """Loss at which a run ends [nat/token]."""
    if not isinstance(goal, TargetLoss):
        raise TypeError(f"plan.goal is {type(goal).__name__}; use TokenBudget or TargetLoss.")
    return goal.loss
