"""Errors of the step time of an unseen cluster, before and after a few of its rows are known.

`python experiments/21_unseen_clusters/run.py [--data FOLDER] [--write-presets] [--fit-only]`
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import measured_runs
import numpy as np
from known_rows import KnownCluster, unseen, updated
from pooled_fit import ClusterRuns, PooledFit, pooled_fit
from scipy.special import ndtri
from write_presets import write_clusters, write_frameworks, write_population

from energymodel.calibration.intervals import next_measurement
from energymodel.calibration.kinds.step_time import MeasuredSteps, step_time_problem
from energymodel.calibration.least_squares import FitProblem, fit, unfitted
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, GRAY, ORANGE, add_axes, new_figure

HERE = Path(__file__).parent
MOST_ROWS = 100  # of a cluster that are fitted, drawn by chance: a long table knows no more of other clusters
FEWEST_ROWS = 8  # of a cluster whose learning curve is drawn
KNOWN, MOST_PROPOSED = (1, 3, 10, 30), 3
DRAWS = 8
SLOW_RINGS = "nanotron-h100-ring"
"""A cluster whose all-reduces within a node were slow throughout the runs: neither its chip nor its framework tells."""
LEVELS = {"cluster": "a cluster", "chip": "all clusters of a chip", "framework": "all clusters of a framework"}


class Prediction(NamedTuple):
    """Logarithms of predicted over measured times of one cluster, and their predicted standard deviations."""

    runs: ClusterRuns
    error: np.ndarray
    spread: np.ndarray

    def inside(self, level: float) -> np.ndarray:
        """Whether the interval of a level holds each row."""
        return np.abs(self.error) < ndtri(0.5 + 0.5 * level) * self.spread


def predicted(cluster: KnownCluster, runs: ClusterRuns) -> Prediction:
    """Predictions with what is known of the constants."""
    error, slopes = runs.errors(cluster.coordinates)
    variance = np.einsum("ri,ij,rj->r", slopes, cluster.coordinates.covariance, slopes) + cluster.scatter**2
    return Prediction(runs, error, np.sqrt(variance))


def known_clusters(runs: Sequence[ClusterRuns], full: PooledFit) -> dict[str, KnownCluster]:
    """Each measured cluster by name: what frameworks and chips say of it, updated by its rows."""
    before = {run.name: unseen(full.population, {**run.labels, "cluster": ""}) for run in runs}
    return {run.name: updated(before[run.name], run, full.population.of(run.labels).mean) for run in runs}


def without(level: str, runs: Sequence[ClusterRuns], full: PooledFit) -> list[Prediction]:
    """Predictions of the runs of each label of a level, by a population that has not seen them."""
    result = []
    for label in sorted({run.labels[level] for run in runs}):
        rest = [run for run in runs if run.labels[level] != label]
        population = pooled_fit(rest, start=full).population
        own = [run for run in runs if run.labels[level] == label]
        result += [predicted(unseen(population, held_out.labels), held_out) for held_out in own]
        print(f"without {level} {label}", flush=True)
    return result


def summary(what: str, predictions: Sequence[Prediction]) -> dict[str, object]:
    error = np.concatenate([prediction.error for prediction in predictions])
    size = np.abs(np.expm1(error))
    return {
        "left_out": what,
        "rows": len(error),
        "median_percent": 100 * float(np.median(size)),
        "mean_percent": 100 * float(np.mean(size)),
        "bias_percent": 100 * float(np.expm1(np.median(error))),
        "inside_90_percent": 100
        * float(np.mean(np.concatenate([prediction.inside(0.9) for prediction in predictions]))),
        "inside_50_percent": 100
        * float(np.mean(np.concatenate([prediction.inside(0.5) for prediction in predictions]))),
        "median_spread_percent": 100
        * float(np.median(np.concatenate([prediction.spread for prediction in predictions]))),
    }


def learning_curve(runs: Sequence[ClusterRuns], full: PooledFit) -> list[dict[str, object]]:
    """Mean error on other rows of a left-out cluster once `calibrate step-time` has some, and that of one scalar.

    Some are drawn by chance, a few also as the command proposes them.
    """
    generator, rows = np.random.default_rng(0), []
    for run in runs:
        if len(run.measured) < FEWEST_ROWS:
            continue
        rest = [other for other in runs if other.name != run.name]
        population = pooled_fit(rest, start=full).population
        cluster = unseen(population, run.labels)
        before = run.errors(cluster.coordinates)[0]
        for count in KNOWN:
            if count > len(before) // 2:
                continue
            errors, scalar = [], []
            for _ in range(DRAWS):
                order = generator.permutation(len(before))
                seen, other = order[:count], order[count:]
                errors.append(
                    np.mean(np.abs(np.expm1(run.select(other).errors(calibrated(cluster, run.select(seen)))[0])))
                )
                scalar.append(np.mean(np.abs(np.expm1(before[other] - np.mean(before[seen])))))
            row = {"cluster": run.name, "known_rows": count, "rows": len(before) - count}
            row |= {"percent": 100 * float(np.mean(errors)), "scalar_percent": 100 * float(np.mean(scalar))}
            if count <= MOST_PROPOSED:
                row["proposed_percent"] = proposed_percent(cluster, run, count)
            rows.append(row | {"unfitted_percent": 100 * float(np.mean(np.abs(np.expm1(before))))})
        print(f"learning curve of {run.name}", flush=True)
    return rows


def proposed_percent(cluster: KnownCluster, runs: ClusterRuns, count: int) -> float:
    """Mean error on the other rows once those are known that are proposed one after the other, each by those before."""
    rest, chosen = np.arange(len(runs.measured)), list[int]()
    fitted = unfitted(problem_of(cluster, runs))
    for _ in range(count):
        row, _ = next_measurement(fitted, steps_of(runs.select(rest)), steps_of(runs))
        chosen.append(int(rest[row]))
        rest = np.delete(rest, row)
        fitted = fit(problem_of(cluster, runs.select(np.array(chosen))))
    error, _ = runs.select(rest).errors(Coordinates(fitted.coordinates, fitted.covariance))
    return 100 * float(np.mean(np.abs(np.expm1(error))))


def steps_of(rows: ClusterRuns) -> MeasuredSteps:
    """The rows as `calibrate step-time` has them."""
    return MeasuredSteps(rows.system, rows.columns, rows.measured)


def problem_of(cluster: KnownCluster, rows: ClusterRuns) -> FitProblem:
    """What `calibrate step-time` fits."""
    return step_time_problem(cluster.coordinates, cluster.scatter, steps_of(rows))


def calibrated(cluster: KnownCluster, rows: ClusterRuns) -> Coordinates:
    """Constants that `calibrate step-time` finds."""
    fitted = fit(problem_of(cluster, rows))
    return Coordinates(fitted.coordinates, fitted.covariance)


def constants(by_cluster: Mapping[str, KnownCluster]) -> list[dict[str, object]]:
    """Constants of every cluster with 90 % intervals."""
    rows: list[dict[str, object]] = []
    for cluster, known in by_cluster.items():
        half = ndtri(0.95) * np.sqrt(np.diag(known.coordinates.covariance))
        for name, z, width in zip(NAMES, known.coordinates.mean, half, strict=True):
            constant = STEP_CONSTANTS[name]
            value, low, high = (constant.value(float(at)) for at in (z, z - width, z + width))
            rows.append({"cluster": cluster, "constant": name, "value": value, "low": low, "high": high})
            rows[-1]["unit"] = constant.unit
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=measured_runs.DATA, help="folder of the CSV files")
    parser.add_argument("--write-presets", action="store_true", help="write the population and the cluster presets")
    parser.add_argument("--fit-only", action="store_true", help="leave nothing out")
    chosen = parser.parse_args()
    runs = measured_runs.cluster_runs(measured_runs.read_all(chosen.data), MOST_ROWS)
    full = pooled_fit(runs, hints=measured_runs.HINTS, progress=lambda text: print(text, flush=True))
    everything = measured_runs.cluster_runs(measured_runs.read_all(chosen.data))
    by_cluster = known_clusters(runs, full)
    if chosen.write_presets:
        write_population(full.population)
        write_frameworks(full.population)
        write_clusters(by_cluster)
    fitted = [predicted(by_cluster[runs.name], runs) for runs in everything]
    print(outputs.table([summary(prediction.runs.name, [prediction]) for prediction in fitted]))
    if chosen.fit_only:
        return
    left_out = {level: without(level, runs, full) for level in LEVELS}
    curve = learning_curve(runs, full)
    frameworks = len({run.labels["framework"] for run in runs})
    without_slow = {
        level: [prediction for prediction in predictions if prediction.runs.name != SLOW_RINGS]
        for level, predictions in left_out.items()
    }
    tables: outputs.Tables = {
        "accuracy": [
            outputs.accuracy(
                f"time of a training step, {what} left out",
                np.expm1(np.concatenate([prediction.error for prediction in left_out[level]])),
                level,
                f"{len(runs)} clusters of A100, H100, Blackwell and TPUs, {frameworks} frameworks",
            )
            for level, what in LEVELS.items()
        ],
        "left_out": [summary(what, left_out[level]) for level, what in LEVELS.items()],
        "left_out_but_slow_rings": [summary(what, without_slow[level]) for level, what in LEVELS.items()],
        "known": [summary("nothing", fitted)],
        "clusters": [
            {"level": level, **summary(prediction.runs.name, [prediction])}
            for level, predictions in left_out.items()
            for prediction in predictions
        ],
        "learning": curve,
        "constants": constants(by_cluster),
    }
    outputs.keep(tables, HERE)
    draw(left_out["cluster"], curve)


def draw(predictions: Sequence[Prediction], curve: Sequence[dict[str, object]]) -> None:
    """Errors of each cluster left out with the 90 % interval, and the learning curve."""
    figure = new_figure(11.0, 4.8)
    axes = add_axes(figure, 1, 2, 1)
    for index, prediction in enumerate(predictions):
        half = 100 * np.expm1(ndtri(0.95) * float(np.median(prediction.spread)))
        axes.plot([-half, half], [index, index], "-", color=GRAY, lw=6, alpha=0.4, solid_capstyle="butt")
        axes.plot(100 * np.expm1(prediction.error), np.full(len(prediction.error), index), ".", ms=3, color=BLUE)
    axes.set_yticks(range(len(predictions)), [prediction.runs.name for prediction in predictions], fontsize=7)
    axes.set(
        xlim=(-70, 100), xlabel="predicted over measured, less one [%]", title="Each cluster predicted by the others"
    )
    axes = add_axes(figure, 1, 2, 2)
    for name, color, label in (("percent", BLUE, "constants"), ("scalar_percent", ORANGE, "one scalar")):
        means = [np.mean([float(str(row[name])) for row in curve if row["known_rows"] == count]) for count in KNOWN]
        axes.semilogx(KNOWN, means, "o-", color=color, label=label)
    axes.set(xlabel="known rows", ylabel="mean error on other rows [%]", title="A few rows make it right")
    axes.legend()
    outputs.draw(figure, HERE, "unseen")


if __name__ == "__main__":
    sys.exit(main())
