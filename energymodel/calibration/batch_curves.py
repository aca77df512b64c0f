"""Curves of tokens to a target over the batch, and their priors.

`D = D_eff (1 + (B / B_c)^p)^(1/p) (1 + (k B_c / B)^2)`, with p = 1, McCandlish's hyperbola, unless the measurements
exclude it, and k of the prior unless some batch is below the best one. Each group (a benchmark, a task) has its own
effective tokens and critical batch, of which the smallest batch gives a first guess; or groups are sizes of one family,
whose critical batches follow one power law of all tokens seen.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from energymodel.calibration.constant_priors import (
    ConstantPrior,
    ConstantPriors,
    Rows,
    Values,
    joint_prior,
    numbered,
    updated_prior,
)
from energymodel.calibration.intervals import laplace_intervals
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult
from energymodel.learning.critical_batch import PowerCriticalBatch, best_batch, sharp_batch_penalty, small_batch_excess
from energymodel.scenarios.files import ROOT, read_toml

PIVOT = 5e9
"""Tokens [token] at which the coefficient of the shared law is fitted, so that it hardly depends on the exponent."""
SHARPNESS = ConstantPrior(1.0, 0.7)  # of the bend, where it is fitted: 0.5 to 2
SMALL_BATCHES = ConstantPrior(1.0, 1.5, widest=np.inf)  # k over the prior's, where it is fitted; it may be next to none
SHARPNESS_LEVEL = 0.99  # share of cases in which a sharpness of 1 is kept where it is true
DEVIATION = "deviation["  # begins the name of the smooth deviation from the curve at a measured batch
OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100, noise_counts=8.0, noise_freedom=8.0)
"""The scatter of other benchmarks counts as 8 rows, so that one or two rows have an interval."""


class BatchRuns(NamedTuple):
    """Runs to a target, one row each; batch and tokens in one unit (token or sequence).

    Usual tokens are the prior's median of the effective tokens of a group. For sizes of a family they say how the sizes
    differ, such as 20 tokens per parameter.
    """

    group: Int[Array | np.ndarray, " rows"]  # its number, from 0
    batch: Rows  # B
    tokens: Rows  # to the target, D
    smallest_batch: Rows  # of the group
    usual_tokens: Rows
    tokens_seen: Rows  # before the runs, x_0 [token]
    small_batch_share: Rows  # k of the prior [1]
    nodes: Float[Array | np.ndarray, "rows nodes"]  # weights of smooth deviations from the curve, if there are any


class ReferencePopulation(NamedTuple):
    """What the benchmarks of MLPerf have in common [experiments/06_critical_batch]; logarithms are natural."""

    multiple: float  # median of the critical batch over the smallest reference batch [1]
    spread: float  # standard deviation of its logarithm between benchmarks [1]
    deviation: float  # standard deviation of a benchmark's logarithm of the amount from its curve [1]
    reach: float  # logarithm of the ratio of two batches at which the correlation of deviations has fallen to 1/e [1]
    noise: float  # scatter of the logarithm of single points beside it [1]


@cache
def reference_population() -> ReferencePopulation:
    """Read `presets/population/reference-batch.toml`."""
    tables = read_toml(ROOT / "population" / "reference-batch.toml")
    return ReferencePopulation(*(float(tables[name]["value"]) for name in ReferencePopulation._fields))


def batch_runs(
    groups: Sequence[Any] | np.ndarray, batch: Any, tokens: Any, usual_tokens: Any = None, tokens_seen: Any = 0.0
) -> BatchRuns:
    """The table of some runs; what is usual is the geometric mean of a group by default."""
    batch, tokens, group = np.asarray(batch, np.float64), np.asarray(tokens, np.float64), numbered(groups)
    smallest, means = np.zeros(len(batch)), np.zeros(len(batch))
    for number in range(np.max(group) + 1):
        rows = group == number
        smallest[rows], means[rows] = np.min(batch[rows]), np.exp(np.mean(np.log(tokens[rows])))
    usual = means if usual_tokens is None else np.asarray(usual_tokens, np.float64)
    seen = np.broadcast_to(np.asarray(tokens_seen, np.float64), batch.shape).copy()
    return BatchRuns(group, batch, tokens, smallest, usual, seen, np.zeros(len(batch)), np.zeros((len(batch), 0)))


def family_constants(
    groups: Sequence[str] = (), sharpness: ConstantPrior | None = None, small_batches: ConstantPrior | None = None
) -> ConstantPriors:
    """Priors of the law of a family; the tokens of each group are its own, or one multiple of the usual ones.

    **Arguments:**

    - `groups`: of which the effective tokens are fitted one by one; none: one share for all.
    - `sharpness`, `small_batches`: of the penalty, if they are fitted.
    """
    return {
        "critical_batch_at_pivot": ConstantPrior(2e6, 1.0, unit="token"),
        "exponent": ConstantPrior(0.5, 0.25, 0.0, 1.0),
        **({} if sharpness is None else {"sharpness": sharpness}),
        **({} if small_batches is None else {"small_batches": small_batches}),
        "effective_share": ConstantPrior(0.9, 0.5, unit="usual tokens", labels=tuple(dict.fromkeys(groups))),
    }


def family_errors(values: Values, runs: BatchRuns) -> Float[Array, "rows 1"]:
    """Logarithmic errors of one law for all groups, with a `sharpness` of one where there is none (a hyperbola).

    The law counts all tokens, those before the runs as well: `D(x_0 + x) - D(x_0)`.
    """
    law, effective = family_law(values, small_batch_share(values, runs)), _effective_tokens(values, runs)
    seen = jnp.asarray(runs.tokens_seen)

    def tokens(end: Array) -> Array:
        return end * law.run_penalty(runs.batch, end, jnp.nan)

    before = jnp.where(seen > 0.0, tokens(jnp.where(seen > 0.0, seen, 1.0)), 0.0)
    return jnp.log((tokens(seen + effective) - before) / runs.tokens)[:, None]


def family_law(values: Mapping[str, Any], small_batch_share: Any = 0.0) -> PowerCriticalBatch:
    """The power law of the critical batch, as a component of a system, with k of `small_batch_share`."""
    return PowerCriticalBatch(
        values["critical_batch_at_pivot"],
        values["exponent"],
        PIVOT,
        values.get("sharpness", 1.0),
        small_batch_share=small_batch_share,
    )


def small_batch_share(values: Mapping[str, Any], runs: BatchRuns) -> Any:
    """Share k of the critical batch of each run [1], see `small_batch_excess`."""
    return values.get("small_batches", 1.0) * runs.small_batch_share


def _effective_tokens(values: Values, runs: BatchRuns) -> Array:
    """Effective tokens of the runs of a family [token]."""
    share = jnp.atleast_1d(values["effective_share"])
    return share[jnp.minimum(runs.group, share.shape[0] - 1)] * runs.usual_tokens


def group_errors(values: Values, runs: BatchRuns) -> Float[Array, "rows 1"]:
    """Logarithmic errors of one curve for each group [McCandlish et al. 2018, sec. 2.3], see `group_problem`."""
    effective, critical, sharpness = (
        _of_groups(values, runs, word) for word in ("effective_tokens", "critical_batch", "sharpness")
    )
    excess = small_batch_excess(runs.batch, critical, small_batch_share(values, runs))
    curve = effective * sharp_batch_penalty(runs.batch, critical, sharpness) * (1.0 + excess)
    deviations = [jnp.asarray(value) for name, value in values.items() if name.startswith(DEVIATION)]
    moved = runs.nodes @ jnp.stack(deviations) if deviations else 0.0
    return (jnp.log(curve / runs.tokens) + moved)[:, None]


def _of_groups(values: Values, runs: BatchRuns, word: str) -> Array:
    """A constant of the group of each row; 1 where it is not fitted."""
    names = [name.partition("[")[2] for name in values if name.startswith("critical_batch[")]
    return jnp.stack([jnp.asarray(values.get(f"{word}[{name}", 1.0)) for name in names])[runs.group]


def has_small_batches(fitted: FitResult) -> bool:
    """Whether a run has a batch below the best one of its curve (`best_batch`), where it can tell k."""
    runs, values = fitted.problem.table, fitted.values
    share = small_batch_share(values, runs)
    if "exponent" in values:
        effective = _effective_tokens(values, runs)
        critical = family_law(values).run_level(np.asarray(runs.tokens_seen + effective), np.nan)
        sharpness = values.get("sharpness", 1.0)
    else:
        critical, sharpness = (_of_groups(values, runs, word) for word in ("critical_batch", "sharpness"))
    return bool(np.any(runs.batch < np.asarray(best_batch(critical, sharpness, share))))


def group_problem(
    runs: BatchRuns,
    groups: Sequence[str],
    unit: str,
    sharp: Sequence[str] = (),
    population: ReferencePopulation | None = None,
    small_batches: ConstantPrior | None = None,
) -> FitProblem:
    """The fit of `group_errors`, with a smooth deviation from the curve at each measured batch.

    The effective tokens lie within a factor of some seven of what is usual in the group. The critical batch is
    `ReferencePopulation.multiple` times the smallest batch, before any other is measured. What is left of a curve is
    similar at neighboring batches, which were tuned alike: a Gaussian process of the logarithm of the batch with the
    covariance `s^2 exp(-|ln B - ln B'| / l)` [Rasmussen & Williams 2006, eq. 4.18 with nu = 1/2], whose values at the
    measured batches are constants with that joint prior.

    **Arguments:**

    - `unit`: of batches and tokens.
    - `sharp`: groups whose sharpness is fitted; that of the others is 1.
    - `population`: of other benchmarks, by default that of the presets.
    - `small_batches`: of all groups, if it is fitted.
    """
    population = population or reference_population()
    first = {name: row for row, name in reversed([*enumerate(groups)])}
    names = list(dict.fromkeys(groups))
    usual = {name: float(runs.usual_tokens[first[name]]) for name in names}
    critical = {name: population.multiple * float(runs.smallest_batch[first[name]]) for name in names}
    constants = {
        **{f"effective_tokens[{name}]": ConstantPrior(usual[name], 2.0, unit=unit) for name in names},
        **{f"critical_batch[{name}]": ConstantPrior(critical[name], population.spread, unit=unit) for name in names},
        **{f"sharpness[{name}]": SHARPNESS for name in names if name in sharp},
        **({} if small_batches is None else {"small_batches": small_batches}),
    }
    measured = _measured_batches(runs)
    deviations = [f"{DEVIATION}{number}]" for number in range(measured.shape[1])]
    constants |= {name: ConstantPrior(0.0, population.deviation, lower=-np.inf) for name in deviations}
    table = runs._replace(nodes=deviation_weights(runs, runs.group, runs.batch, population)[0])
    covariance = population.deviation**2 * _correlation(measured, measured, population.reach)
    prior = updated_prior(joint_prior(constants), deviations, np.zeros(len(deviations)), covariance)
    return FitProblem(group_errors, constants, table, noise=population.noise, options=OPTIONS, prior=prior)


def _measured_batches(runs: BatchRuns) -> np.ndarray:
    """Group and batch of each smooth deviation, in order."""
    return np.unique(np.stack([np.asarray(runs.group, float), np.asarray(runs.batch)]), axis=1)


def deviation_weights(
    runs: BatchRuns, group: ArrayLike, batch: ArrayLike, population: ReferencePopulation | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What settings have of the deviations at measured batches: weights by setting and deviation, and the variance
    that is left [Rasmussen & Williams 2006, eq. 2.19, without noise].
    """
    population, measured = population or reference_population(), _measured_batches(runs)
    across = _correlation(np.array([group, batch], float), measured, population.reach)
    weights = np.linalg.solve(_correlation(measured, measured, population.reach), across.T).T
    return weights, population.deviation**2 * np.maximum(1.0 - np.sum(weights * across, axis=1), 0.0)


def _correlation(settings: np.ndarray, others: np.ndarray, reach: float) -> np.ndarray:
    """Correlation of deviations between settings, each a group and a batch in a column."""
    (group, batch), (other_group, other_batch) = settings, others
    apart = np.abs(np.log(batch)[:, None] - np.log(other_batch)[None])
    return np.where(group[:, None] == other_group[None], np.exp(-apart / reach), 0.0)


def excluded_hyperbolas(fitted: FitResult) -> dict[str, tuple[float, float]]:
    """Sharpnesses that measurements determine: those whose 99 % interval does not hold 1, by name.

    A sharpness that is fitted without need costs more at batches that were held out than it gains
    [experiments/06_critical_batch].

    **Arguments:**

    - `fitted`: with the sharpness of every group, or of a family, among its constants.
    """
    ends = zip(fitted.names, *(end.tolist() for end in laplace_intervals(fitted, SHARPNESS_LEVEL)), strict=True)
    return {name: (low, high) for name, low, high in ends if name.startswith("sharpness") and not low <= 1.0 <= high}


def sharpness_notes(excluded: Mapping[str, tuple[float, float]]) -> list[str]:
    """Whether sharpnesses are fitted, from the intervals of those that exclude 1."""
    return [
        f"{name} is fitted, since the measurements exclude 1 (99 %: {low:.3g} to {high:.3g})."
        for name, (low, high) in excluded.items()
    ] or ["The sharpness is 1, McCandlish's hyperbola, which the measurements do not exclude."]


def share_of_rest(runs: BatchRuns, exponent: float) -> np.ndarray:
    """K of the rest of a run over that of a whole one, with the critical batch of the rest.

    [derivation: `(1 + v) x` with `v = (k B_c / B)^2` and B_c as x^xi is `x^(1 + 2 xi)`, of which the rest is a
    difference; see `rest_critical_batch`].
    """
    seen, usual = runs.tokens_seen, runs.usual_tokens
    before, rest = seen / (seen + usual), usual / (seen + usual)
    of_excess = (1.0 - before ** (1.0 + 2.0 * exponent)) / rest
    return np.sqrt(of_excess) * (1.0 - before ** (1.0 - exponent)) / rest


def small_batch_notes(small_batches: ConstantPrior | None, prior_law: PowerCriticalBatch, unit: str) -> list[str]:
    """Where the share of small batches comes from, of runs whose batches have this unit."""
    share = float(prior_law.small_batch_share)
    if unit != "token" or share == 0.0:
        return []
    if small_batches is not None:
        return [f"small_batches is fitted: small_batch_share over {share:.3g}. Some batches are below the best one."]
    return [f"small_batch_share is {share:.3g}, that of the prior: no batch is below the best one, where it counts."]
