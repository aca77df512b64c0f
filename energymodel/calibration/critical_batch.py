"""How do tokens to a target grow with the batch: `calibrate` kind `batch`, from batch and tokens (or steps)?

Two models. *Separate*: each group (a benchmark, a task) has its own effective tokens, critical batch and sharpness.
*Shared*: groups are sizes of one model family on the same data; their critical batches follow one power law of the
tokens, so that a size that was never measured at large batches is predicted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.calibration.constants import Constant, Constants, Values
from energymodel.learning.critical_batch import (
    PowerCriticalBatch,
    batch_penalty,
    power_critical_batch,
    sharp_batch_penalty,
)

PIVOT = 5e9
"""Tokens [token] at which the coefficient of the shared law is fitted, so that it hardly depends on the exponent."""


class BatchRuns(NamedTuple):
    """Runs to a target, one row each; batch and tokens in one unit (token or sequence).

    - `group`: number of the group, from 0.
    - `batch`: B.
    - `tokens`: to the target, D.
    - `usual_batch`: a batch of the group's order of magnitude: the prior's median of its critical batch.
    - `usual_tokens`: tokens of the group's order of magnitude: the prior's median of its effective tokens. In the
      shared model they say how the sizes differ, such as 20 tokens per parameter.
    """

    group: Int[Array | np.ndarray, " rows"]
    batch: Float[Array | np.ndarray, " rows"]
    tokens: Float[Array | np.ndarray, " rows"]
    usual_batch: Float[Array | np.ndarray, " rows"]
    usual_tokens: Float[Array | np.ndarray, " rows"]


def batch_runs(groups: Sequence[Any] | np.ndarray, batch: Any, tokens: Any, usual_tokens: Any = None) -> BatchRuns:
    """The table of some runs; what is usual is the geometric mean of a group, unless it is given."""
    batch, tokens = np.asarray(batch, np.float64), np.asarray(tokens, np.float64)
    labels = np.asarray(groups).tolist()
    names = list(dict.fromkeys(labels))
    group = np.array([names.index(name) for name in labels])

    def usual(values: np.ndarray) -> np.ndarray:
        means = [np.exp(np.mean(np.log(values[group == number]))) for number in range(len(names))]
        return np.array(means)[group]

    given = usual(tokens) if usual_tokens is None else np.asarray(usual_tokens, np.float64)
    return BatchRuns(group, batch, tokens, usual(batch), given)


def separate_constants(groups: Sequence[str]) -> Constants:
    """Priors of the separate model: within a factor of some seven, and a sharpness of 0.5 to 2."""
    labels = tuple(dict.fromkeys(groups))
    return {
        "effective_tokens": Constant(1.0, 2.0, unit="usual tokens", labels=labels),
        "critical_batch": Constant(1.0, 2.0, unit="usual batch", labels=labels),
        "sharpness": Constant(1.0, 0.7, unit="1", labels=labels),
    }


def separate_errors(values: Values, runs: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the separate model, for `least_squares.fit`."""
    effective = values["effective_tokens"][runs.group] * runs.usual_tokens
    critical = values["critical_batch"][runs.group] * runs.usual_batch
    penalty = sharp_batch_penalty(runs.batch, critical, values["sharpness"][runs.group])
    return jnp.log(effective * penalty / runs.tokens)[:, None]


def shared_constants(groups: Sequence[str] = ()) -> Constants:
    """Priors of the shared model; the tokens of each group are its own, or one multiple of the usual ones.

    **Arguments:**

    - `groups`: of which the effective tokens are fitted one by one; none: one share for all.
    """
    labels = tuple(dict.fromkeys(groups))
    return {
        "critical_batch_at_pivot": Constant(2e6, 1.0, unit="token"),
        "exponent": Constant(0.5, 0.25, 0.0, 1.0),
        "sharpness": Constant(1.0, 0.7),
        "effective_share": Constant(0.9, 0.5, unit="usual tokens", labels=labels),
    }


def shared_errors(values: Values, runs: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the shared model, for `least_squares.fit`."""
    share = jnp.atleast_1d(values["effective_share"])
    effective = share[jnp.minimum(runs.group, share.shape[0] - 1)] * runs.usual_tokens
    critical = power_critical_batch(effective / PIVOT, values["critical_batch_at_pivot"], values["exponent"])
    return jnp.log(effective * sharp_batch_penalty(runs.batch, critical, values["sharpness"]) / runs.tokens)[:, None]


def family_errors(values: Values, runs: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the shared model with McCandlish's hyperbola: a sharpness of one."""
    return shared_errors({**values, "sharpness": jnp.ones(())}, runs)


def group_constants(runs: BatchRuns, groups: Sequence[str], unit: str) -> Constants:
    """Effective tokens and critical batch of each group by name, in the unit of its batches, within a factor of some
    seven of what is usual in it.
    """
    first = {name: place for place, name in reversed([*enumerate(groups)])}
    names = [*dict.fromkeys(groups)]
    return {
        f"{word}[{name}]": Constant(float(usual[first[name]]), 2.0, unit=unit)
        for word, usual in (("effective_tokens", runs.usual_tokens), ("critical_batch", runs.usual_batch))
        for name in names
    }


def group_errors(values: Values, runs: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of one hyperbola for each group [McCandlish et al. 2018, sec. 2.3], see `group_constants`."""
    constants = [jnp.asarray(value) for value in values.values()]
    half = len(constants) // 2
    effective, critical = jnp.stack(constants[:half])[runs.group], jnp.stack(constants[half:])[runs.group]
    return jnp.log(effective * batch_penalty(runs.batch, critical) / runs.tokens)[:, None]


def law_of(values: Values) -> PowerCriticalBatch:
    """The fitted power law of the critical batch, as a component of a system.

    Where the sharpness is not one, `batch_penalty` with this law is off by up to `2^(1 - 1/p)` at B = B_c.
    """
    exponent = np.asarray(values["exponent"])
    return PowerCriticalBatch(np.asarray(values["critical_batch_at_pivot"]) * PIVOT**-exponent, exponent)
