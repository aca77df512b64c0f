"""Time, energy and money of a run to the same loss over the batch, and the best batch for each.

A larger batch raises throughput, but a token teaches less in it. It pays as long as its throughput exceeds the one at
which it would only break even, `R_2 = R_1 D_2 / D_1`. Layout, chips and clock stay.
"""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from energymodel.errors import InputError
from energymodel.learning.critical_batch import break_even_power, break_even_throughput
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.checks import NO_LOSS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import TrainingRun, in_float64
from energymodel.sweeps.outcome_spread import DEVIATIONS, deviation, directions_of
from energymodel.system.evaluate import evaluate
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TargetLoss
from energymodel.system.plan_rules import multiple_count

OBJECTIVES = ("time", "energy", "money", "carbon")
WIDEST = 16.0  # largest batch over the smallest one that the pipeline runs, unless the plan's own is near it
AROUND = 16.0  # largest batch over the plan's own, at least
FINE = 97  # batches between which the best one is interpolated, evenly spaced in the logarithm
USUAL_POINTS, MOST_POINTS = 12, 1000
FLAT = 1e-3  # of the objective: batches that cost so little more than the best one are as good


class BestBatch(NamedTuple):
    """The batch with the lowest value of an objective [token].

    - `low`, `high`: ends of its 90 % interval, to first order in the uncertain numbers of the system [token].
    - `flat`: batches between which the objective is within 0.1 % of the lowest [token].
    - `saving`: share of the objective that it saves beside the plan's own batch [1].
    - `at_edge`: -1 if it is the smallest batch that the layout runs, 1 if it is the largest that was tried, else 0.
    """

    batch: float
    low: float
    high: float
    flat: tuple[float, float]
    saving: float
    at_edge: int


class BatchCurve(NamedTuple):
    """A run to the loss of the scenario's own plan at several batches, and the best batch for each objective.

    - `batch` [token]; `outcome`: leaves with a leading axis of batches.
    - `break_even_rate`: throughput above which the batch is faster than the plan's own [token/s].
    - `break_even_power`: power below which it takes less energy [W].
    """

    own: TrainingOutcome
    batch: Float[np.ndarray, " batches"]
    outcome: TrainingOutcome
    break_even_rate: Float[np.ndarray, " batches"]
    break_even_power: Float[np.ndarray, " batches"]
    best: Mapping[str, BestBatch]


def batch_curve(scenario: Scenario, points: int = USUAL_POINTS) -> BatchCurve:
    """Evaluate a scenario at batches of whole micro-batches, and find the best one for each objective.

    **Arguments:**

    - `points`: batches of the table, at most; the fewest micro-batches that the pipeline runs are the first.

    **Raises:** `InputError` for a plan with a batch schedule, or a number of points that makes no curve.
    """
    if not 2 <= points <= MOST_POINTS:
        raise InputError(f"points: {points} make no curve. Give 2 to {MOST_POINTS:,}.")
    if scenario.is_fine_tuned:
        raise InputError(f"batch: {NO_LOSS} `energymodel sweep --axis plan.batch=...` compares steps of equal tokens.")
    if scenario.plan.knots > 1:
        raise InputError(f"plan.batch: it has {scenario.plan.knots} knots. Give one batch to compare others with.")
    with jax.enable_x64(True):
        run = in_float64(TrainingRun(scenario.system, scenario.plan))
        batches = _whole_batches(scenario, points)
        fine = np.geomspace(batches[0], batches[-1], FINE)
        steps = directions_of(scenario, run).steps
        vectors = np.concatenate([run.vector[None], run.vector + steps, run.vector - steps])
        owns, outcomes = jax.tree.map(np.asarray, _outcomes(vectors, np.concatenate([fine, batches]), run))
    own, outcome = jax.tree.map(lambda leaf: leaf[0], owns), jax.tree.map(lambda leaf: leaf[0, FINE:], outcomes)
    logs = {name: np.log(_value(outcomes, name)[:, :FINE]) for name in OBJECTIVES}
    ratio = outcome.tokens / own.tokens
    return BatchCurve(
        own=own,
        batch=batches,
        outcome=outcome,
        break_even_rate=np.asarray(break_even_throughput(own.token_rate, ratio)),
        break_even_power=np.asarray(
            break_even_power(own.power_average, own.tokens / own.time, outcome.tokens / outcome.time, ratio)
        ),
        best={name: _best(fine, logs[name], float(np.log(_value(own, name)))) for name in OBJECTIVES},
    )


def _whole_batches(scenario: Scenario, points: int) -> Float[np.ndarray, " batches"]:
    """Batches of whole micro-batches, about evenly spaced in the logarithm [token]."""
    plan, workload = scenario.plan, scenario.system.workload
    layout = plan.layout
    multiple = multiple_count(scenario.system, layout)
    replicas = float(plan.chips) / float(layout.tensor * layout.pipeline * layout.context)
    unit = replicas * float(layout.microbatch) * float(workload.sequence) * multiple
    fewest = max(1.0, np.ceil(float(layout.fewest_microbatches) / multiple))
    own = float(np.ravel(plan.batch)[0]) / unit
    most = max(WIDEST * fewest, AROUND * own)
    return np.unique(np.round(np.geomspace(fewest, most, points))) * unit


def _value(outcome: TrainingOutcome, name: str) -> Float[np.ndarray, "..."]:
    return np.asarray(outcome.energy.total if name == "energy" else getattr(outcome, name))


def _all_outcomes(
    vectors: Float[Array, "runs n"], batches: Float[Array, " batches"], run: TrainingRun
) -> tuple[TrainingOutcome, TrainingOutcome]:
    """Outcome of each run's own plan, and those at all batches to the loss that its own plan reaches."""
    unravel = ravel_pytree(run)[1]

    def outcomes(vector: Array) -> tuple[TrainingOutcome, TrainingOutcome]:
        moved = unravel(vector)
        own = evaluate(moved.system, moved.plan)

        def at(batch: Array) -> TrainingOutcome:
            changed = (jnp.reshape(batch, (1,)), TargetLoss(own.loss))
            return evaluate(moved.system, eqx.tree_at(lambda plan: (plan.batch, plan.goal), moved.plan, changed))

        return own, jax.vmap(at)(batches)

    return jax.lax.map(outcomes, vectors)


_outcomes = Compiled(_all_outcomes)


def _best(batches: Float[np.ndarray, " batches"], logs: Float[np.ndarray, "runs batches"], own: float) -> BestBatch:
    """The best batch by the first run; the other runs are one deviation up, then one down, along each direction."""
    best, lowest = np.transpose([_lowest(np.log(batches), line) for line in logs])
    up, down = np.split(best[1:], 2)
    half = DEVIATIONS * deviation(0.5 * (up - down))
    as_good = np.flatnonzero(logs[0] <= lowest[0] + FLAT)
    edge = int(np.argmin(logs[0]))
    return BestBatch(
        batch=float(np.exp(best[0])),
        low=float(np.exp(best[0] - half)),
        high=float(np.exp(best[0] + half)),
        flat=(float(batches[as_good[0]]), float(batches[as_good[-1]])),
        saving=1.0 - float(np.exp(lowest[0] - own)),
        at_edge=-1 if edge == 0 else int(edge == len(batches) - 1),
    )


def _lowest(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Where a sampled function is lowest, and its value there, by the parabola through its three lowest samples."""
    index = int(np.argmin(y))
    if index in (0, len(x) - 1):
        return float(x[index]), float(y[index])
    step, (before, here, after) = x[1] - x[0], y[index - 1 : index + 2]
    bend = before - 2.0 * here + after
    shift = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return float(x[index] + shift * step), float(here - 0.25 * (before - after) * shift)
