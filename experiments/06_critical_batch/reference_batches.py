"""The critical batch of a benchmark as a multiple of its smallest reference batch.

Held out are whole benchmarks, of which the smallest reference batch is known, and batches of a benchmark.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import optimize, special

from energymodel.calibration.batch_curves import (
    ReferencePopulation,
    batch_runs,
    deviation_weights,
    excluded_hyperbolas,
    group_errors,
    group_problem,
)
from energymodel.calibration.calibration_case import BASE, NORMAL_90
from energymodel.calibration.least_squares import FitProblem, fit
from energymodel.learning.critical_batch import batch_penalty
from energymodel.learning.data_set import ContinuedLearning
from energymodel.learning.learning import AbstractLearning
from energymodel.scenarios.scenario import load_scenario

DATA = Path(__file__).parents[1] / "data"
FREEDOM = 4.0
"""Of Student's distribution of the logarithm of the multiple: some benchmarks are far from all others."""
MULTIPLES = np.geomspace(0.3, 3000.0, 200)
WIDE = (8.0, 1.0)
"""Median of the multiple and spread of its logarithm, while deviations are fitted."""
GUESS, BOUNDS = (0.06, 0.7, 0.02), ((0.01, 0.5), (0.1, 5.0), (0.01, 0.1))
"""Means of 20 runs that scatter by 4 % are no more exact than 1 %."""
SEARCH = {"xatol": 0.01, "fatol": 0.01}
PRETRAINING = {"gpt3": (2048.0, 1.0, 4000 * 1536 * 2048.0), "llama31_8b": (8192.0, 8192.0, 0.0)}
"""Tokens of a sequence, of a unit of the amount, and of the checkpoint. GPT-3 has seen 4,000 steps of 1,536 sequences
[mlcommons/training, large_language_model/megatron-lm/README.md, section 4]; Llama 3.1 8B begins from scratch."""
SIZE = 1e11
"""Parameters, which this law of critical batches does not depend on."""
NAME = "all"
"""Of the group in every fit, so that one compiled program serves all benchmarks."""

Curve = Callable[[np.ndarray], np.ndarray]


class Benchmark(NamedTuple):
    """Reference points of a benchmark: batches in rising order, and mean amounts to its target."""

    name: str
    batch: np.ndarray
    amount: np.ndarray


def benchmarks() -> list[Benchmark]:
    """The reference points in force: of each benchmark those of its last round, each carried-over value once.

    A benchmark with the runs of another is the same under a new name, and counts once. Suspect rows are left out.
    """
    with (DATA / "mlperf_rcp.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["suspect"]]
    rounds: dict[str, dict[str, list[dict[str, str]]]] = {}
    for row in rows:
        rounds.setdefault(row["benchmark"], {}).setdefault(row["round"], []).append(row)
    result: dict[frozenset[str], Benchmark] = {}
    for name, by_round in sorted(rounds.items()):
        several = [
            round_name
            for round_name, points in by_round.items()
            if len({row["global_batch_size"] for row in points}) > 1
        ]
        points = {float(row["global_batch_size"]): row for row in by_round[max(several)]}
        batch = np.array(sorted(points))
        amount = np.array([float(points[size]["converge_mean"]) for size in batch])
        result.setdefault(frozenset(row["converge_list"] for row in points.values()), Benchmark(name, batch, amount))
    return list(result.values())


class Deviations(NamedTuple):
    """Of the points of a benchmark from its curve, see `batch_curves.group_problem`."""

    deviation: float
    reach: float
    noise: float


def log_likelihood(benchmark: Benchmark, by: Deviations) -> np.ndarray:
    """Of `MULTIPLES` given the points of a benchmark, whose level is integrated out.

    Its deviations are larger or smaller than usual by a factor, also integrated out: Student's distribution.
    """
    places = np.log(benchmark.batch)
    apart = np.abs(places[:, None] - places[None])
    covariance = by.deviation**2 * np.exp(-apart / by.reach) + by.noise**2 * np.eye(len(places))
    inverse = np.linalg.inv(covariance)
    level = inverse.sum()
    error = np.log(benchmark.amount)[:, None] - np.log1p(benchmark.batch[:, None] / benchmark.batch[0] / MULTIPLES)
    error -= inverse.sum(axis=0) @ error / level
    squares = np.sum(error * (inverse @ error), axis=0)
    size = float(np.linalg.slogdet(covariance)[1]) + np.log(level)
    freedom, count = FREEDOM, len(places) - 1
    constant = special.gammaln(0.5 * (freedom + count)) - special.gammaln(0.5 * freedom) - 0.5 * count * np.log(freedom)
    return constant - 0.5 * (freedom + count) * np.log1p(squares / freedom) - 0.5 * size


def deviations(benchmarks: Sequence[Benchmark]) -> Deviations:
    """Deviations of the highest marginal likelihood, for multiples as a wide prior has them."""
    prior = -0.5 * ((np.log(MULTIPLES) - np.log(WIDE[0])) / WIDE[1]) ** 2
    prior -= np.logaddexp.reduce(prior)

    def lost(logarithms: np.ndarray) -> float:
        by = Deviations(*np.exp(logarithms))
        return -sum(float(np.logaddexp.reduce(prior + log_likelihood(benchmark, by))) for benchmark in benchmarks)

    solution = optimize.minimize(lost, np.log(GUESS), bounds=np.log(BOUNDS), method="Nelder-Mead", options=SEARCH)
    return Deviations(*map(float, np.exp(solution.x)))


def population(benchmarks: Sequence[Benchmark], by: Deviations | None = None) -> ReferencePopulation:
    """Median and spread of the multiple between benchmarks, of the highest marginal likelihood, and their deviations.

    The median is that of Student's distribution, the spread that of a normal one, which counts the far ones in full.
    """
    by = by or deviations(benchmarks)
    likelihoods = [log_likelihood(benchmark, by) for benchmark in benchmarks]
    places = np.log(MULTIPLES)
    centers, spreads = np.linspace(np.log(4.0), np.log(20.0), 81), np.geomspace(0.3, 2.0, 40)

    def best(shape: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float]:
        prior = shape((places - centers[:, None, None]) / spreads[:, None])
        prior -= np.logaddexp.reduce(prior, axis=-1, keepdims=True)
        total = np.sum([np.logaddexp.reduce(prior + likelihood, axis=-1) for likelihood in likelihoods], axis=0)
        center, spread = np.unravel_index(np.argmax(total), total.shape)
        return float(centers[center]), float(spreads[spread])

    center, _ = best(lambda z: -0.5 * (FREEDOM + 1.0) * np.log1p(z**2 / FREEDOM))
    _, spread = best(lambda z: -0.5 * z**2)
    return ReferencePopulation(float(np.exp(center)), spread, *by)


def own_multiple(benchmark: Benchmark, by: Deviations) -> float:
    """The multiple that fits all points of a benchmark best."""
    return float(MULTIPLES[np.argmax(log_likelihood(benchmark, by))])


def from_smallest(benchmark: Benchmark, reference: ReferencePopulation, deviations: float = 0.0) -> np.ndarray:
    """Amounts at the larger batches of a benchmark from that at the smallest."""
    critical = reference.multiple * np.exp(deviations * reference.spread) * benchmark.batch[0]
    penalty = np.asarray(batch_penalty(benchmark.batch, critical))
    return benchmark.amount[0] * penalty[1:] / penalty[0]


def held_out_benchmarks(benchmarks: Sequence[Benchmark]) -> list[dict[str, Any]]:
    """Every larger batch of every benchmark, from its smallest and from all other benchmarks."""
    rows = []
    for benchmark in benchmarks:
        others = population([other for other in benchmarks if other.name != benchmark.name])
        low, high = (from_smallest(benchmark, others, sign * NORMAL_90) for sign in (1.0, -1.0))
        noise = np.exp(NORMAL_90 * np.sqrt(2.0 * (others.noise**2 + others.deviation**2)))  # of both points
        for batch, amount, predicted, least, most in zip(
            benchmark.batch[1:], benchmark.amount[1:], from_smallest(benchmark, others), low, high, strict=True
        ):
            rows.append(
                {
                    "benchmark": benchmark.name,
                    "batch_over_smallest": float(batch / benchmark.batch[0]),
                    "amount_over_smallest": float(amount / benchmark.amount[0]),
                    "predicted": float(predicted / benchmark.amount[0]),
                    "same_samples": 1.0,
                    "in_interval": bool(least / noise <= amount <= most * noise),
                }
            )
    return rows


def straight_line(batch: np.ndarray, amount: np.ndarray) -> Curve:
    """Amount as a straight line of the batch, by least squares of relative errors."""
    slope, offset = np.polyfit(batch, amount, 1, w=1.0 / amount)
    return lambda other: slope * other + offset


def calibrated(
    batch: np.ndarray, amount: np.ndarray, prior_population: ReferencePopulation, sharp: bool | None = None
) -> Curve:
    """The curve of `calibrate batch`; the sharpness is fitted if the points exclude 1, or always, or never."""
    names = [NAME] * len(batch)
    runs = batch_runs(names, batch, amount)

    def problem(free: bool) -> FitProblem:
        return group_problem(runs, names, "sequence", [NAME] if free else (), prior_population)

    fitted = fit(problem(bool(excluded_hyperbolas(fit(problem(True)))) if sharp is None else sharp))

    def amounts(other: np.ndarray) -> np.ndarray:
        table = batch_runs([NAME] * len(other), other, np.ones(len(other)))
        table = table._replace(nodes=deviation_weights(runs, table.group, other, prior_population)[0])
        return np.exp(np.asarray(group_errors(fitted.values, table))[:, 0])

    return amounts


def held_out_batches(benchmarks: Sequence[Benchmark]) -> list[dict[str, Any]]:
    """Every batch of every benchmark from its other batches, at least two, and from all other benchmarks."""
    rows = []
    for benchmark in benchmarks:
        others = population([other for other in benchmarks if other.name != benchmark.name])
        for index, batch in enumerate(benchmark.batch):
            remaining = np.arange(len(benchmark.batch)) != index
            if remaining.sum() < 2:
                continue
            measured = benchmark.batch[remaining], benchmark.amount[remaining]
            curves = {
                "predicted": calibrated(*measured, others),
                "sharpness_fitted": calibrated(*measured, others, sharp=True),
                "sharpness_one": calibrated(*measured, others, sharp=False),
                "straight_line": straight_line(*measured),
            }
            guesses = {
                name: float(curve(benchmark.batch[[index]])[0] / benchmark.amount[index])
                for name, curve in curves.items()
            }
            rows.append(
                {
                    "benchmark": benchmark.name,
                    "batch": float(batch),
                    "inside": bool(0 < index < len(benchmark.batch) - 1),
                    **guesses,
                }
            )
    return rows


def by_law(benchmarks: Sequence[Benchmark]) -> list[dict[str, Any]]:
    """Pre-training benchmarks from their smallest batch by the law that `evaluate` has, with and without the tokens of
    their checkpoint.
    """
    learning = load_scenario(BASE).system.learning
    rows = []
    for benchmark in benchmarks:
        if benchmark.name not in PRETRAINING:
            continue
        length, unit, checkpoint = PRETRAINING[benchmark.name]
        for seen in dict.fromkeys((0.0, checkpoint)):
            errors = _by_rest(
                ContinuedLearning(learning, np.asarray(seen)), benchmark.batch * length, benchmark.amount * unit
            )
            rows.append(
                {
                    "benchmark": benchmark.name,
                    "tokens_seen": seen,
                    "mean_error": float(np.mean(np.abs(errors))),
                    "mean_signed_error": float(np.mean(errors)),
                }
            )
    return rows


def _by_rest(learning: AbstractLearning, batch: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Relative errors at the larger batches, where the effective tokens are those of the smallest."""

    def needed(effective: float, batch: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(learning.tokens_to(SIZE, np.full(batch.shape, effective), batch))

    def excess(effective: float) -> float:
        return float(needed(effective, batch[:1])[0] - tokens[0])

    effective = float(optimize.brentq(excess, 1e-3 * tokens[0], 2.0 * tokens[0]))  # pyright: ignore[reportArgumentType]
    return needed(effective, batch[1:]) / tokens[1:] - 1.0
