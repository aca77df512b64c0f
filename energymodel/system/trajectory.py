"""Loss, information, energy and money of a training run over time."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.learning.loss_ode import integrate_training
from energymodel.learning.schedule import batch_at
from energymodel.numerics import Scalar
from energymodel.system.evaluate import evaluate
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.run_outcome import money_until, run_rates
from energymodel.system.training_system import TrainingSystem, as_designed, learning_of, parameters_in_loss

FIRST_SHARE = 1e-6  # of the effective tokens: the progress from which on the equation is integrated
USUAL_POINTS, MOST_POINTS = 20, 10_000

Times = Float[Array | np.ndarray, " times"]


class RunTrajectory(NamedTuple):
    """A run at equally spaced times, after its start.

    - `time`: calendar time [s]; `progress`: share of the run's effective tokens [1].
    - `batch` [token], `tokens` [token], `token_rate` of calendar time [token/s].
    - `loss` of a run that ends here, as the loss law says it [nat/token]; `loss_rate`: dL/dt [nat/(token s)].
    - `information` absorbed [bit], and its rate [bit/s].
    - `power` of the building, mean over steps, failures and restarts [W]; `energy` [J]; `energy_per_bit`: of the next
      bit [J/bit].
    - `money` [USD], `carbon` [kg].
    """

    time: Times
    progress: Times
    batch: Times
    tokens: Times
    token_rate: Times
    loss: Times
    loss_rate: Times
    information: Times
    information_rate: Times
    power: Times
    energy: Times
    energy_per_bit: Times
    money: Times
    carbon: Times


def run_trajectory(
    system: TrainingSystem, plan: TrainingPlan, points: int = USUAL_POINTS
) -> tuple[TrainingOutcome, RunTrajectory]:
    """Outcome of a run, and the way there, `dx/dt = R / p(x, B)` and `dL/dt = L'(x) dx/dt`.

    [derivation: docs/physics.md B1]. x are effective tokens, p tokens for each of them at the batch of the moment, R
    tokens per second of calendar time, failures included. The last row is the outcome.

    **Arguments:**

    - `points`: rows, 1 to 10,000 [1].

    **Raises:** `InputError` for another number of points.
    """
    if not 1 <= points <= MOST_POINTS:
        raise InputError(f"points: {points} make no trajectory. Give 1 to {MOST_POINTS:,}.")
    with jax.enable_x64(True):
        shares = np.arange(1, points + 1) / points
        return jax.tree.map(np.asarray, _trajectory(system, plan, shares))


@eqx.filter_jit  # the integrator calls back, so that the program cannot be kept in a file
def _trajectory(system: TrainingSystem, plan: TrainingPlan, shares: Times) -> tuple[TrainingOutcome, RunTrajectory]:
    outcome = evaluate(system, plan)
    system, plan = as_designed(system, plan)
    learning, parameters = learning_of(system, plan), parameters_in_loss(system)
    end = learning.effective_tokens(parameters, outcome.loss)
    knots = jnp.log(jnp.ravel(jnp.asarray(plan.batch)))
    calendar = system.reliability.calendar(plan.chips, plan.spares)
    first = run_rates(system, plan, jnp.exp(knots[0]), calendar)

    def batch(x: Scalar) -> Scalar:
        return batch_at(x / end, knots)

    def rates(size: Scalar) -> tuple[Scalar, Scalar]:
        """Tokens per second of calendar time [token/s], and power [W]."""
        per_token = run_rates(system, plan, size, calendar) if plan.knots > 1 else first
        return 1.0 / per_token.time, per_token.energy.total / per_token.time

    # Before the first share of the progress the batch is that of the first knot.
    begun = FIRST_SHARE * end
    spent = learning.tokens_to(parameters, begun, jnp.exp(knots[0]))
    offset = spent * first.time
    times = outcome.time * shares
    result = integrate_training(
        times - offset,
        batch,
        lambda size, x: rates(size)[0],
        learning,
        parameters,
        begun,
        lambda time, size, x: rates(size)[1],
    )
    x = result.effective_tokens
    size = jax.vmap(batch)(x)
    rate, drawn = jax.vmap(rates)(size)
    along = rate / learning.penalty(parameters, x, size)  # dx/dt

    loss_rate = jax.jvp(lambda progress: learning.loss(parameters, progress), (x,), (along,))[1]
    information, learned = jax.jvp(learning.information, (x,), (along,))
    energy = result.totals + spent * first.energy.total
    market, chip = system.market, system.accelerator
    money = money_until(system, plan, outcome, times, energy)
    carbon = market.carbon.operational(energy) + market.carbon.embodied(chip.embodied_carbon, plan.chips, times)
    return outcome, RunTrajectory(
        time=times,
        progress=x / end,
        batch=size,
        tokens=spent + result.tokens,
        token_rate=rate,
        loss=result.loss,
        loss_rate=loss_rate,
        information=information,
        information_rate=learned,
        power=drawn,
        energy=energy,
        energy_per_bit=drawn / learned,
        money=money,
        carbon=carbon,
    )
