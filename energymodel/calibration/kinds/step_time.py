"""Kind `step-time`: constants of a cluster from the times of steps of some layouts.

The columns are those of `energymodel predict` with the measured step time.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.calibration_case import BASE, CalibrationCase, Candidates, Grouping, WrittenNumber
from energymodel.calibration.constant_priors import JointPrior, Rows, Values
from energymodel.calibration.layout_table import inputs_of
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.calibration.step_prediction import predict_row, prior_of, with_constants
from energymodel.calibration.step_table import read_step_table
from energymodel.errors import InputError
from energymodel.readers.columns import TableChoices
from energymodel.readers.table import Measurements, Records
from energymodel.scenarios.clusters import labels_of
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, step_population
from energymodel.system.training_system import TrainingSystem
from energymodel.units import counted

OPTIONS = FitOptions(loss="cauchy", noise_counts=12.0, tolerance=1e-6, steps=80)
THIS_CLUSTER = "measured"  # word for the cluster of rows that name none: `--prior` describes it
MOST_FITTED = 256  # rows that are fitted; of a longer file evenly chosen ones, because a row takes many formulas


class MeasuredSteps(NamedTuple):
    """Measured steps."""

    system: TrainingSystem  # with all other constants
    rows: Mapping[str, Rows]  # the columns of `predict`
    measured: Rows  # the time [s] or the memory [B]


def step_time_errors(values: Values, steps: MeasuredSteps) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the step time."""
    system = with_constants(steps.system, values)
    predicted = jax.vmap(lambda row: predict_row(system, row).step_time.total)(steps.rows)
    return jnp.log(predicted / steps.measured)[:, None]


def measured_steps(source: Path | Records, choices: TableChoices) -> Measurements:
    """Rows with a step time, in the columns of `layout_table`; runs that failed are counted in the notes.

    **Raises:** `InputError` as `read_step_table`, and if no row was measured.
    """
    table = read_step_table(source, choices, default_cluster=THIS_CLUSTER)
    timed = np.isfinite(table.columns["step_time_s"])
    if not np.any(timed):
        raise InputError(
            f'{table.path}: no row has a measured step time. Give a column "step_time_s" (or tokens_per_s, or '
            "model_tflops_per_gpu), or say which it is with --rename THEIRS=step_time_s."
        )
    notes = list(table.notes)
    if not np.all(timed):
        memory = int(np.sum(table.columns["out_of_memory"][~timed] > 0.0))
        failed = f", {memory:,} of them out-of-memory failures" if memory else ""
        notes.append(f"Not fitted: {counted(int(np.sum(~timed)), 'row')} without a step time{failed}.")
    return table.select(timed).having({}, notes)


def step_time_case(measured: Measurements, prior: Scenario | None) -> CalibrationCase:
    """The constants of `step_population`, with the population of framework and chip of the prior as their prior."""
    clusters, everything = sorted({*measured.columns["cluster"].tolist()}), len(measured)
    if len(clusters) > 1:
        raise InputError(
            f'{measured.path}: column "cluster" holds {", ".join(clusters)}; constants belong to one cluster. Choose '
            f"it with --where cluster={clusters[0]}."
        )
    if everything > MOST_FITTED:
        measured = measured.select(np.unique(np.linspace(0, everything - 1, MOST_FITTED).round().astype(int)))
    rows = inputs_of(measured)
    scenario = prior or load_scenario(BASE)
    notes = [] if prior is not None else [f"The cluster is that of {BASE}: name yours with --prior."]
    if everything > len(measured):
        notes.append(f"{len(measured)} of {everything} rows, evenly chosen, are fitted.")
    steps, population = MeasuredSteps(scenario.system, rows, measured.columns["step_time_s"]), step_population()
    problem = step_time_problem(population.of(labels_of(scenario.tables)), population.scatter, steps)
    numbers = {f"system.{path}": WrittenNumber(of.unit, constant=path) for path, of in problem.constants.items()}
    return CalibrationCase(
        fit=problem,
        groups=_groups(measured, rows),
        outputs={"step time": (1.0,)},
        along=("accelerators", rows["chips"]),
        candidates=_candidates(scenario.system, rows),
        numbers=numbers,
        notes=notes,
    )


def step_time_problem(before: Coordinates, scatter: float, steps: MeasuredSteps) -> FitProblem:
    """The fit of all constants to measured steps, from their distribution and the scatter about them before."""
    prior = JointPrior.of(NAMES, before.mean, before.covariance)
    each = zip(STEP_CONSTANTS.items(), prior.mean.tolist(), prior.spread.tolist(), strict=True)
    constants = {path: prior_of(constant, z, deviation) for (path, constant), z, deviation in each}
    return FitProblem(step_time_errors, constants, steps, noise=scatter, options=OPTIONS, prior=prior)


def _groups(measured: Measurements, rows: Mapping[str, np.ndarray]) -> Grouping:
    """What is held out together: the group of the file, else models, else layouts of one model."""
    if "group" in measured.columns:
        return Grouping(measured.columns["group"], "group")
    models = np.array([f"{a:g} layers of {b:g}" for a, b in zip(rows["layers"], rows["hidden"], strict=True)])
    if len({*models.tolist()}) > 1:
        return Grouping(models, "model")
    parts = zip(rows["chips"], rows["tensor"], rows["pipeline"], strict=True)
    return Grouping(np.array([f"{chips:g} chips, tensor {t:g}, pipeline {p:g}" for chips, t, p in parts]), "layout")


def _candidates(system: TrainingSystem, rows: Mapping[str, np.ndarray]) -> Candidates:
    """Other divisions of the measured models over as many chips as some row has: more may not be there."""
    shapes = np.stack([rows["layers"], rows["hidden"], rows["chips"], rows["batch_sequences"]], axis=1)
    _, first = np.unique(shapes, axis=0, return_index=True)
    counts = np.unique(rows["chips"]).tolist()
    settings: list[tuple[int, float, float, float]] = []
    for row in first.tolist():
        for chips, tensor, pipeline in product(counts, (1, 2, 4, 8), (1, 2, 4, 8)):
            data = chips / (tensor * pipeline * rows["context"][row])
            sequences = rows["batch_sequences"][row] / (data * rows["microbatch"][row])
            divides = all(count >= 1.0 and float(count).is_integer() for count in (data, sequences))
            if divides and rows["heads"][row] % tensor == 0 and rows["layers"][row] % pipeline == 0:
                settings.append((row, chips, float(tensor), float(pipeline)))
    own = zip(first.tolist(), *(rows[name][first].tolist() for name in ("chips", "tensor", "pipeline")), strict=True)
    settings = Candidates.thinned(settings) or list(own)
    at, chips, tensor, pipeline = (np.array(column) for column in zip(*settings, strict=True))
    ones, table = np.ones(len(at)), {name: values[at] for name, values in rows.items()}
    table |= {"chips": chips, "tensor": tensor, "pipeline": pipeline, "virtual_stages": ones, "expert": ones}
    words = [
        f"{rows['layers'][row]:g} layers of {rows['hidden'][row]:g} on {chips:g} chips, tensor {tensor:g}, "
        f"pipeline {pipeline:g}"
        for row, chips, tensor, pipeline in settings
    ]
    return Candidates(MeasuredSteps(system, table, ones), words)
