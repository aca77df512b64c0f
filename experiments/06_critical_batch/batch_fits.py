"""Steps to a loss and samples to converge, predicted at held-out batches and sizes."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.calibration.batch_curves import (
    SHARPNESS,
    BatchRuns,
    batch_runs,
    family_constants,
    family_errors,
    family_law,
)
from energymodel.calibration.constant_priors import ConstantPrior
from energymodel.calibration.intervals import laplace_intervals
from energymodel.calibration.least_squares import FitProblem, FitResult, fit, held_out_errors

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
import reference_batches

DATA = Path(__file__).parents[1] / "data"
ANCHOR = 131072.0
"""Batch [token] of the one run of a held-out size that states its tokens: the reference batch of Zhang et al. 2024."""
NOISE = 0.04
TENFOLD = 10.0
"""Times the smallest batch of a benchmark: up to here most of them have reference points."""
HYPERBOLA = ConstantPrior(1.0, 1e-6)
"""A sharpness that no measurement moves: the hyperbola of McCandlish et al. 2018."""


def rows_of(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def zhang() -> tuple[list[str], BatchRuns]:
    """Sizes and runs of Zhang et al. 2024; tokens are usual at 20 per parameter (their compute-optimal count)."""
    rows = rows_of("zhang2024_batch_vs_steps.csv")
    column = {
        key: [float(row[key]) for row in rows] for key in ("batch_size_tokens", "tokens_to_target", "chinchilla_tokens")
    }
    sizes = [row["model"] for row in rows]
    return sizes, batch_runs(
        sizes, column["batch_size_tokens"], column["tokens_to_target"], column["chinchilla_tokens"]
    )


def constants_of(source: str, fitted: FitResult) -> list[dict[str, Any]]:
    """Fitted constants with 90 % intervals."""
    ends = laplace_intervals(fitted)
    values = np.concatenate([np.atleast_1d(value) for value in fitted.values.values()])
    return [
        {"source": source, "constant": name, "value": float(value), "low_90": float(low), "high_90": float(high)}
        for name, value, low, high in zip(fitted.names, values, ends.lower, ends.upper, strict=True)
    ]


def mean_error(errors: np.ndarray) -> float:
    return float(np.mean(np.abs(np.expm1(errors))))


def zhang_tables() -> dict[str, list[dict[str, Any]]]:
    """Steps against batch, each size held out: with one of its runs known, and with none."""
    sizes, table = zhang()
    fitted = fit(FitProblem(family_errors, family_constants(sizes, SHARPNESS), table, noise=NOISE))
    anchor = np.asarray(table.batch) == ANCHOR
    with_run = held_out_errors(fitted, sizes, anchor)[:, 0]
    plain = fit(FitProblem(family_errors, family_constants(sizes, HYPERBOLA), table, noise=NOISE))
    hyperbola = held_out_errors(plain, sizes, anchor)[:, 0]
    together = fit(FitProblem(family_errors, family_constants(sharpness=SHARPNESS), table, noise=NOISE))
    without = held_out_errors(together, sizes)[:, 0]
    rows = []
    for size in dict.fromkeys(sizes):
        chosen = np.array([other == size for other in sizes])
        rows.append(
            {
                "size": size,
                "one_run_known": mean_error(with_run[chosen & ~anchor]),
                "hyperbola_one_run_known": mean_error(hyperbola[chosen & ~anchor]),
                "none_known": mean_error(without[chosen]),
                "fitted": mean_error(fitted.errors[chosen, 0]),
            }
        )
    law = family_law(fitted.values)
    points = [
        {
            "size": size,
            "batch_token": float(batch),
            "steps": float(tokens / batch),
            "steps_held_out": float(tokens / batch * np.exp(error)),
            "anchor": bool(is_anchor),
        }
        for size, batch, tokens, error, is_anchor in zip(
            sizes, table.batch, table.tokens, with_run, anchor, strict=True
        )
    ]
    return {
        "zhang_sizes": rows,
        "zhang_points": points,
        "zhang_constants": [
            *constants_of("zhang", fitted),
            {
                "source": "zhang",
                "constant": "coefficient at 1 token",
                "value": float(law.run_level(1.0, np.asarray(3.0))),
            },
        ],
        "zhang_summary": [
            {"protocol": "size held out, one run known", "mean_error": mean_error(with_run[~anchor])},
            {"protocol": "the same with a sharpness of one", "mean_error": mean_error(hyperbola[~anchor])},
            {"protocol": "size held out, none known", "mean_error": mean_error(without)},
        ],
        "accuracy": [
            outputs.accuracy(
                "steps to a loss against batch, one run of the size known",
                np.expm1(with_run[~anchor]),
                "size of the model",
                "85 million to 1.2 billion parameters, batches of 33 thousand to 8.4 million tokens",
            ),
            outputs.accuracy(
                "steps to a loss against batch, no run of the size known",
                np.expm1(without),
                "size of the model",
                "the same; the loss is that of 20 tokens per parameter",
            ),
        ],
    }


def convergence_tables() -> dict[str, list[dict[str, Any]]]:
    """Samples to converge against batch: benchmarks held out, of which one point is known, and batches held out."""
    benchmarks = reference_batches.benchmarks()
    by = reference_batches.deviations(benchmarks)
    population = reference_batches.population(benchmarks, by)
    points, batches = reference_batches.held_out_benchmarks(benchmarks), reference_batches.held_out_batches(benchmarks)
    for row in points:
        row["within_tenfold"] = row["batch_over_smallest"] <= TENFOLD

    def errors(rows: Sequence[dict[str, Any]], name: str, truth: str = "") -> np.ndarray:
        return np.array([row[name] / (row[truth] if truth else 1.0) - 1.0 for row in rows])

    def of(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        return [row for row in rows if row["benchmark"] == name]

    curves = ("predicted", "straight_line", "sharpness_one", "sharpness_fitted")
    guesses = ("predicted", "same_samples")
    amount = "amount_over_smallest"
    rows = []
    for benchmark in benchmarks:
        own = [row for row in of(points, benchmark.name) if row["within_tenfold"]]
        known_others = of(batches, benchmark.name)
        rows.append(
            {
                "benchmark": benchmark.name,
                "points": len(benchmark.batch),
                "largest_over_smallest": float(benchmark.batch[-1] / benchmark.batch[0]),
                "multiple": reference_batches.own_multiple(benchmark, by),
                **{f"one_known_{name}": _mean(errors(own, name, amount)) for name in guesses},
                **{f"others_known_{name}": _mean(errors(known_others, name)) for name in curves},
            }
        )
    near = [row for row in points if row["within_tenfold"]]
    summary = [
        {"protocol": f"{words}, {name}", "count": len(chosen), "mean_error": _mean(errors(chosen, name, truth))}
        for words, chosen, truth, names in (
            ("benchmark held out, smallest batch known, up to ten times it", near, amount, guesses),
            ("benchmark held out, smallest batch known, all batches", points, amount, guesses),
            ("batch held out, others known", batches, "", curves),
            ("batch held out between others", [row for row in batches if row["inside"]], "", curves),
        )
        for name in names
    ]
    covered = {
        "protocol": "benchmark held out, smallest batch known: points within the 90 % interval",
        "count": len(points),
        "share": float(np.mean([row["in_interval"] for row in points])),
    }
    same, line = (
        mean_error(np.log1p(error))
        for error in (errors(near, "same_samples", amount), errors(batches, "straight_line"))
    )
    return {
        "reference_population": [{"benchmarks": len(benchmarks), **population._asdict()}],
        "convergence_benchmarks": rows,
        "convergence_from_smallest": points,
        "convergence_batches": batches,
        "convergence_summary": [*summary, covered],
        "convergence_by_law": reference_batches.by_law(benchmarks),
        "accuracy": [
            outputs.accuracy(
                "samples to converge against batch, smallest reference batch known",
                errors(near, "predicted", amount),
                "benchmark",
                f"{len(benchmarks)} MLPerf benchmarks, up to ten times the smallest batch",
                f"the same samples at every batch: {100 * same:.0f} %",
            ),
            outputs.accuracy(
                "samples to converge against batch, other batches of the benchmark known",
                errors(batches, "predicted"),
                "batch",
                f"{len(benchmarks)} MLPerf benchmarks, batches that differ by 2 to 64 times",
                f"a straight line: {100 * line:.1f} %",
            ),
        ],
    }


def _mean(errors: np.ndarray) -> float | None:
    return float(np.mean(np.abs(errors))) if len(errors) else None


def compute() -> dict[str, list[dict[str, Any]]]:
    """All tables."""
    parts = zhang_tables(), convergence_tables()
    accuracy = [row for part in parts for row in part["accuracy"]]
    return {**parts[0], **parts[1], "accuracy": accuracy}
