"""One law of the critical batch for runs to a target and runs to a loss, with the tokens that small batches cost.

Zhang et al. 2024 tuned beta2 and the averaging of weights at each batch and see no such cost (k = 0); Li et al. 2025
kept the settings of the optimizer. Everything else of the law is common to both.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import batch_fits
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from energymodel.calibration.batch_curves import (
    PIVOT,
    SHARPNESS,
    BatchRuns,
    batch_runs,
    family_constants,
    family_errors,
    family_law,
)
from energymodel.calibration.constant_priors import ConstantPrior, Values
from energymodel.calibration.intervals import laplace_intervals
from energymodel.calibration.least_squares import FitProblem, FitResult, fit
from energymodel.learning.critical_batch import PowerCriticalBatch, best_batch
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_law import ChinchillaLaw

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
import step_law

SIZE, TOKENS = 4e8, 2e10
"""Parameters [1] and effective tokens at which the terms of the loss are fitted."""
LOSS_NOISE = 0.0085
"""Standard deviation of a loss from the law [nat/token]; that of a logarithm of tokens is `batch_fits.NOISE`."""
LOSS_CONSTANTS = {
    "entropy_floor": ConstantPrior(1.5, 0.5, unit="nat/token"),
    "size_term": ConstantPrior(0.45, 0.5, unit="nat/token"),
    "size_exponent": ConstantPrior(0.3, 0.5),
    "data_term": ConstantPrior(0.36, 0.5, unit="nat/token"),
    "data_exponent": ConstantPrior(0.26, 0.5),
}
SMALL_BATCHES = ConstantPrior(1.0 / 60.0, 0.7)
"""k of the runs to a loss."""
LAW_CONSTANTS = ("critical_batch_at_pivot", "exponent", "sharpness", "small_batches")


def law_of(values: Values) -> PowerCriticalBatch:
    """The law of a fit; k is a constant of its own, which runs to a target do not have."""
    return family_law(values, values["small_batches"])


class JointRuns(NamedTuple):
    """Runs to a target (loss 0) and runs to a loss, one row each: parameters [1] and loss [nat/token]."""

    runs: BatchRuns
    size: Float[Array | np.ndarray, " rows"]
    loss: Float[Array | np.ndarray, " rows"]


def joint_errors(values: Values, table: JointRuns) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the tokens to a target; errors of losses in their noise over that of a logarithm."""
    to_target = family_errors(values, table.runs)[:, 0]
    law = ChinchillaLaw(
        values["entropy_floor"],
        values["size_term"] * SIZE ** values["size_exponent"],
        values["size_exponent"],
        values["data_term"] * TOKENS ** values["data_exponent"],
        values["data_exponent"],
    )
    learning = CriticalBatchLearning(law, law_of(values), jnp.zeros(()))
    loss, _ = learning.run(table.size, table.runs.tokens, table.runs.batch)
    return jnp.where(table.loss > 0.0, (loss - table.loss) * (batch_fits.NOISE / LOSS_NOISE), to_target)[:, None]


def problem(runs: step_law.Runs) -> FitProblem:
    """The joint fit to the runs of Zhang et al. 2024 and the best learning rates of some of Li et al. 2025."""
    sizes, targets = batch_fits.zhang()
    best = runs.best()
    groups = [*sizes, *(sizes[0] for _ in best.loss)]  # of the runs to a loss no share of the usual tokens is fitted
    batch, tokens = (
        np.concatenate(columns) for columns in ((targets.batch, best.batch), (targets.tokens, best.tokens))
    )
    usual = np.concatenate([targets.usual_tokens, best.tokens])
    none = np.zeros(len(sizes))
    table = JointRuns(
        batch_runs(groups, batch, tokens, usual),
        np.concatenate([none + SIZE, best.size]),
        np.concatenate([none, best.loss]),
    )
    constants = {**family_constants(sizes, SHARPNESS, SMALL_BATCHES), **LOSS_CONSTANTS}
    return FitProblem(joint_errors, constants, table, noise=batch_fits.NOISE)


def fitted(runs: step_law.Runs, left_out: ArrayLike = False) -> FitResult:
    """The joint fit without some of the best runs."""
    joint = problem(runs)
    targets = np.asarray(joint.table.loss) == 0.0
    weights = np.ones(len(targets))
    weights[~targets] = np.where(left_out, 0.0, 1.0)
    return fit(joint._replace(weights=weights))


def effective_tokens(law: PowerCriticalBatch, tokens: Any, batch: Any) -> np.ndarray:
    """Effective tokens of runs at constant batches by a law [token]."""
    learning = CriticalBatchLearning(ChinchillaLaw(*np.ones(5)), law, np.zeros(()))
    with jax.enable_x64(True):
        return np.asarray(learning.run(SIZE, tokens, batch)[1])


def regrets(law: PowerCriticalBatch, runs: step_law.Runs, source: str) -> list[dict[str, Any]]:
    """Loss at the batch that a law chooses over that at the best, by setting, each at its best learning rate.

    Beside it that of the law without a cost of small batches, which takes the smallest batch, and that of
    `B = 0.58 D^0.571`, the batch that Li et al. state.
    """
    rows = []
    best = runs.best()
    for setting in np.unique(best.setting):
        own = best.part(best.setting == setting)
        lowest = int(np.argmin(own.loss))
        stated = 0.58 * own.tokens[0] ** 0.571
        choices = {
            "": float(own.batch[np.argmax(effective_tokens(law, own.tokens, own.batch))]),
            "_without": float(np.min(own.batch)),
            "_stated": float(own.batch[np.argmin(np.abs(np.log(own.batch / stated)))]),
        }
        regret = {
            f"regret{name}_nat": float(own.loss[own.batch == batch][0] - own.loss[lowest])
            for name, batch in choices.items()
        }
        rows.append(
            {
                "source": source,
                "size": float(own.size[0]),
                "tokens": float(own.tokens[0]),
                "batch_token": choices[""],
                "best_batch_token": float(own.batch[lowest]),
                "lowest_loss_nat": float(own.loss[lowest]),
                **regret,
            }
        )
    return rows


def constants(result: FitResult) -> list[dict[str, Any]]:
    """Constants of the law with 90 % intervals, and what follows from them."""
    ends = laplace_intervals(result)
    law = law_of(result.values)
    rows = [
        {"constant": name, "value": float(result.values[name]), "low_90": float(low), "high_90": float(high)}
        for name, low, high in zip(result.names, ends.lower, ends.upper, strict=True)
        if name in LAW_CONSTANTS
    ]
    with jax.enable_x64(True):
        best = best_batch(law.at_pivot, law.sharpness, law.small_batch_share)
        ratio, penalty = float(best / law.at_pivot), float(law.run_penalty(best, PIVOT, np.nan))
    rows.append({"constant": "inverse of small_batch_share", "value": 1.0 / float(law.small_batch_share)})
    rows.append({"constant": "best batch over the critical one", "value": ratio})
    rows.append({"constant": "overhead of the best batch", "value": penalty - 1.0})
    return rows


def tables(dense: step_law.Runs, mixtures: step_law.Runs) -> dict[str, list[dict[str, Any]]]:
    """The joint fit, its errors, and the regret of the chosen batch: dense sizes held out, and mixtures of experts."""
    result, best = fitted(dense), dense.best()
    rows = []
    for size in np.unique(dense.size):
        law = law_of(fitted(dense, best.size == size).values)
        rows += regrets(law, dense.part(dense.size == size), "dense, size held out")
    rows += regrets(law_of(result.values), mixtures, "mixture of experts, all held out")
    is_loss, errors = np.asarray(result.problem.table.loss) > 0.0, result.errors[:, 0]
    of_loss = float(np.mean(np.abs(errors[is_loss]))) * LOSS_NOISE / batch_fits.NOISE
    summary = [
        {"quantity": "error of the loss [nat/token]", "mean": of_loss},
        {"quantity": "error of the tokens to a target", "mean": batch_fits.mean_error(errors[~is_loss])},
    ]
    for source in dict.fromkeys(row["source"] for row in rows):
        for name in ("regret_nat", "regret_without_nat", "regret_stated_nat"):
            values = np.array([row[name] for row in rows if row["source"] == source])
            mean, largest = float(np.mean(values)), float(np.max(values))
            summary.append({"quantity": f"{source}, {name}", "mean": mean, "largest": largest})
    held_out = [row for row in rows if row["source"].startswith("dense")]
    without = np.mean([row["regret_without_nat"] / row["lowest_loss_nat"] for row in held_out])
    accuracy = outputs.accuracy(
        "loss at the batch of the fewest tokens, over that at the best",
        [row["regret_nat"] / row["lowest_loss_nat"] for row in held_out],
        "size of the model",
        "215 million to 1.07 billion parameters, 4 to 100 billion tokens, batches of 33 thousand to 4.2 million tokens",
        f"the smallest batch: {100 * without:.1f} %",
    )
    return {"joint_constants": constants(result), "regrets": rows, "joint_summary": summary, "accuracy": [accuracy]}
