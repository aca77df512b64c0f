"""How well are steps to a loss and samples to converge predicted at batches and sizes that were held out?"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Values
from energymodel.calibration.intervals import laplace_intervals
from energymodel.calibration.kinds.batch import BatchRuns, batch_runs, family_constants, family_errors, family_law
from energymodel.calibration.least_squares import FitProblem, FitResult, fit, held_out_errors
from energymodel.learning.critical_batch import sharp_batch_penalty

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

DATA = Path(__file__).parents[1] / "data"
ANCHOR = 131072.0
"""Batch [token] of the one run of a held-out size that states its tokens: the reference batch of Zhang et al. 2024."""
LANGUAGE = ("gpt3", "llama31_405b", "llama31_8b", "llama2_70b_lora", "bert")
NOISE = 0.04
SHARPNESS = ConstantPrior(1.0, 0.7)
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


def convergence() -> tuple[list[str], BatchRuns, np.ndarray]:
    """Benchmarks, samples to converge, and which rows are reference points; other rows are submissions.

    Means of submissions at one batch are one row, whatever their number.
    """
    found = [
        (row["benchmark"], float(row["global_batch_size"]), float(row["converge_mean_sequences"]), True)
        for row in rows_of("mlperf_rcp.csv")
        if row["suite"] == "training"
        and row["benchmark"] in LANGUAGE
        and row["repeat_of_earlier_round"] == "0"
        and not row["suspect"]
    ]
    runs: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for row in rows_of("mlperf_training_summary.csv"):
        if row["benchmark"] in LANGUAGE and row["division"] == "closed" and row["train_sequences_mean"]:
            key = row["benchmark"], float(row["global_batch_size"])
            runs.setdefault(key, []).append((float(row["train_sequences_mean"]), float(row["n_runs"])))
    known = {benchmark for benchmark, *_ in found}
    for (benchmark, batch), group in runs.items():
        if benchmark in known:
            samples, counts = np.array(group).T
            found.append((benchmark, batch, float(np.average(samples, weights=counts)), False))
    found.sort(key=lambda row: (LANGUAGE.index(row[0]), row[1]))
    names = [row[0] for row in found]
    table = batch_runs(names, [row[1] for row in found], [row[2] for row in found])
    return names, table, np.array([row[3] for row in found])


def separate_constants(groups: Sequence[str]) -> ConstantPriors:
    """Priors of each group by itself: within a factor of some seven, and a sharpness of 0.5 to 2."""
    labels = tuple(dict.fromkeys(groups))
    return {
        "effective_tokens": ConstantPrior(1.0, 2.0, unit="usual tokens", labels=labels),
        "critical_batch": ConstantPrior(1.0, 2.0, unit="usual batch", labels=labels),
        "sharpness": SHARPNESS._replace(labels=labels),
    }


def separate_errors(values: Values, runs: BatchRuns) -> Float[Array, "rows 1"]:
    """Logarithmic errors of groups with effective tokens, critical batch and sharpness of their own."""
    effective = values["effective_tokens"][runs.group] * runs.usual_tokens
    critical = values["critical_batch"][runs.group] * runs.usual_batch
    penalty = sharp_batch_penalty(runs.batch, critical, values["sharpness"][runs.group])
    return jnp.log(effective * penalty / runs.tokens)[:, None]


def part(table: BatchRuns, chosen: np.ndarray) -> BatchRuns:
    """Some rows of a table."""
    return BatchRuns(*(np.asarray(column)[chosen] for column in table))


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
        chosen = np.array([one == size for one in sizes])
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
    """Samples to converge against batch, each batch of a benchmark held out, with and without submissions."""
    names, table, reference = convergence()
    problem = FitProblem(separate_errors, separate_constants(names), table, noise=NOISE)
    groups = [f"{name} {batch:g}" for name, batch in zip(names, table.batch, strict=True)]
    fitted = fit(problem)
    with_submissions = held_out_errors(fitted, groups)[:, 0]
    alone = held_out_errors(fit(problem._replace(weights=reference.astype(float))), groups)[:, 0]
    points = [
        {
            "benchmark": name,
            "batch": float(batch),
            "samples": float(samples),
            "held_out": float(samples * np.exp(error)),
            "held_out_from_reference_points": float(samples * np.exp(other)),
            "reference_point": bool(is_reference),
        }
        for name, batch, samples, error, other, is_reference in zip(
            names, table.batch, table.tokens, with_submissions, alone, reference, strict=True
        )
    ]
    rows = []
    for name in dict.fromkeys(names):
        chosen = reference & np.array([one == name for one in names])
        rows.append(
            {
                "benchmark": name,
                "reference_points": int(chosen.sum()),
                "held_out": mean_error(with_submissions[chosen]),
                "held_out_from_reference_points": mean_error(alone[chosen]),
            }
        )
    return {
        "convergence_benchmarks": rows,
        "convergence_points": points,
        "convergence_constants": constants_of("mlperf", fitted),
        "convergence_summary": [
            {
                "protocol": "batch held out, reference points and submissions",
                "mean_error": mean_error(with_submissions[reference]),
            },
            {"protocol": "batch held out, reference points alone", "mean_error": mean_error(alone[reference])},
        ],
        "accuracy": [
            outputs.accuracy(
                "samples to converge against batch, other batches of the benchmark known",
                np.expm1(with_submissions[reference]),
                "batch",
                "four MLPerf language benchmarks, batches that differ by 5 to 64 times",
            ),
            outputs.accuracy(
                "samples to converge against batch, known from reference points alone",
                np.expm1(alone[reference]),
                "batch",
                "the same; four points of the smallest benchmark",
            ),
        ],
    }


def compute() -> dict[str, list[dict[str, Any]]]:
    """All tables."""
    parts = zhang_tables(), convergence_tables()
    accuracy = [row for part in parts for row in part["accuracy"]]
    return {**parts[0], **parts[1], "accuracy": accuracy}
