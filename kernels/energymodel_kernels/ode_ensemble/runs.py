"""Training runs and the start of their chips over time, of many plans in one call."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from energymodel.errors import InputError
from energymodel.learning.learning import AbstractLearning
from energymodel.physics.thermal import steady_temperature, thermal_time_constant
from energymodel.runtime.compilation import Compiled
from energymodel.system.evaluate import outcome_of_run
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.step import training_step
from energymodel.system.training_system import TrainingSystem, as_designed, learning_of, parameters_in_loss
from energymodel.system.trajectory import FIRST_SHARE
from energymodel_kernels.ode_ensemble.api import ode_ensemble
from energymodel_kernels.ode_ensemble.rates import ThermalPlan, heat_rate

STEPS = 20  # between two times
_TIME_CONSTANTS = 5.0  # of a chip, that its start is followed


class Trajectories(NamedTuple):
    """Runs over time, and their chips after a start, `[plans, points]`.

    Points are equally spaced in the cube root of the time, since the loss falls fastest at first, and in `start_time`.

    - `outcome` of each plan, without times.
    - `time` of the calendar [s], `tokens` and `effective_tokens` [token], `loss` of a run that ends there [nat/token],
      `energy` [J].
    - `start_time` from a start [s], `start_temperature` of a chip that goes from idle to busy power [K].
    """

    outcome: TrainingOutcome
    time: Any
    tokens: Any
    effective_tokens: Any
    loss: Any
    energy: Any
    start_time: Any
    start_temperature: Any


class _Run(NamedTuple):
    """What the equation of a run needs: its law of learning, N [1], B and effective tokens at the end [token], and
    tokens, and the root w of the share of the time at which the equation begins [1].
    """

    learning: AbstractLearning
    parameters: Any
    batch: Any
    end: Any
    tokens: Any
    begun: Any


def progress_rate(root: Any, share: Any, run: _Run) -> Any:
    """Rate of the share u of the effective tokens over w, `du/dw = 3 w^2 D / (x_1 p(u x_1, B))` [1], `t = t_1 w^3`.

    [derivation: dx/dt = R / p of `energymodel.system.trajectory`, with R = D / t_1 of a constant batch].
    """
    root = root + run.begun
    slope = run.tokens / (run.end * run.learning.penalty(run.parameters, share * run.end, run.batch))
    return 3.0 * root**2 * slope


def trajectories(
    system: TrainingSystem, plans: TrainingPlan, points: int = 20, *, implementation: str = "auto"
) -> Trajectories:
    """Runs of many plans over time, by `ode_ensemble`: the loss by its equation, the temperature after a start by its.

    In the precision of the caller. The first share of the effective tokens (1e-6) takes its time by the closed form.

    **Arguments:**

    - `plans`: one batch each; a leading axis on all numbers, or on those that differ, `batch` among them `[plans, 1]`.
    - `points`: times [1].
    - `implementation`: as of `ode_ensemble`.

    **Raises:** `InputError` for schedules of batches.
    """
    outcome, run, chip, idle, lag = _prepared(system, plans)
    options = {"steps": STEPS * points, "saves": points, "implementation": implementation, "dtype": outcome.loss.dtype}
    first = jnp.full_like(outcome.loss, FIRST_SHARE)
    share = ode_ensemble(progress_rate, first, run, step=(1.0 - run.begun) / options["steps"], **options).T
    heat = ode_ensemble(heat_rate, idle, chip, step=_TIME_CONSTANTS * lag / options["steps"], **options).T
    parts = jnp.arange(1, points + 1) / points
    time = (run.begun[:, None] + (1.0 - run.begun[:, None]) * parts) ** 3
    effective_tokens = share * run.end[:, None]
    return Trajectories(
        outcome=outcome,
        time=time * outcome.time[:, None],
        tokens=time * run.tokens[:, None],
        effective_tokens=effective_tokens,
        loss=jax.vmap(lambda of, size, x: of.loss(size, x))(run.learning, run.parameters, effective_tokens),
        energy=time * outcome.energy.total[:, None],
        start_time=_TIME_CONSTANTS * lag[:, None] * parts,
        start_temperature=heat,
    )


@Compiled
def _prepared(system: TrainingSystem, plans: TrainingPlan) -> tuple[TrainingOutcome, _Run, ThermalPlan, Any, Any]:
    """Outcomes of plans, their equations, the temperature of their idle chips [K], and the time constant [s]."""
    varies = jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, plans)

    def one(plan: TrainingPlan) -> Any:
        whole, plan = as_designed(system, plan)
        if plan.knots > 1:
            raise InputError(f"plans.batch: {plan.knots} knots each. Give one batch for each plan, [plans, 1].")
        batch = jnp.reshape(plan.batch, ())
        step = training_step(whole, plan, batch)
        outcome = outcome_of_run(whole, plan, step)
        learning, size = learning_of(whole, plan), parameters_in_loss(whole)
        resistance = whole.accelerator.thermal_resistance + step.coolant.resistance
        chip = ThermalPlan(step.point.busy_power, step.coolant.last, resistance, whole.accelerator.heat_capacity)
        idle = steady_temperature(step.levels.stopped, step.coolant.last, resistance)
        end = learning.effective_tokens(size, outcome.loss)
        begun = (learning.tokens_to(size, FIRST_SHARE * end, batch) / outcome.tokens) ** (1.0 / 3.0)
        run = _Run(learning, size, batch, end, outcome.tokens, begun)
        lag = thermal_time_constant(resistance, whole.accelerator.heat_capacity)
        return jax.tree.map(jnp.asarray, (outcome, run, chip, idle, lag))

    return jax.vmap(one, in_axes=(varies,))(plans)
