"""Which constants of a cluster do measured layouts give: `calibrate` kind `step-time`?

The columns are those of `energymodel predict` with the measured step time.
"""

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.calibration_case import BASE, CalibrationCase, Candidates, FittedNumber, Grouping
from energymodel.calibration.constant_priors import JointPrior, Rows, Values
from energymodel.calibration.layout_table import INPUTS, layouts
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.predicted_step import predict_row, with_constants
from energymodel.calibration.step_slopes import prior_of
from energymodel.errors import InputError
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, step_population
from energymodel.scenarios.unseen_cluster import labels_of
from energymodel.system.training_system import TrainingSystem

SETTING = (*(column.name for column in INPUTS), "model", "zero", "recomputation")
OPTIONS = FitOptions(loss="cauchy", noise_counts=12.0, tolerance=1e-6, steps=80)
MOST_FITTED = 256
"""Rows that are fitted; of a longer file evenly chosen ones, because a row takes many formulas."""


class MeasuredSteps(NamedTuple):
    """Measured steps: the system with all other constants, the columns of `predict` by name, and what was measured,
    the time [s] or the memory [B].
    """

    system: TrainingSystem
    rows: Mapping[str, Rows]
    measured: Rows


def step_time_errors(values: Values, steps: MeasuredSteps) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the step time."""
    system = with_constants(steps.system, values)
    found = jax.vmap(lambda row: predict_row(system, row).step_time.total)(steps.rows)
    return jnp.log(found / steps.measured)[:, None]


def memory_errors(values: Values, steps: MeasuredSteps) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the memory of the fullest chip."""
    system = with_constants(steps.system, values)
    found = jax.vmap(lambda row: predict_row(system, row).memory)(steps.rows)
    return jnp.log(found / steps.measured)[:, None]


def step_time_case(measured: Measurements, prior: Scenario | None) -> CalibrationCase:
    """The constants of `step_population`, with the population of framework and chip of the prior as their prior."""
    clusters = sorted({*measured.text("cluster", "").tolist()})
    if len(clusters) > 1:
        raise InputError(
            f'{measured.path}: column "cluster" holds {", ".join(clusters)}; constants belong to one cluster. Choose '
            f"it with --where cluster={clusters[0] or clusters[1]}."
        )
    everything = len(measured)
    if everything > MOST_FITTED:
        measured = measured.select(np.unique(np.linspace(0, everything - 1, MOST_FITTED).round().astype(int)))
    rows = _rows(measured)
    system = (prior or load_scenario(BASE)).system
    notes = [] if prior is not None else [f"The cluster is that of {BASE}: name yours with --prior."]
    if everything > len(measured):
        notes.append(f"{len(measured)} of {everything} rows, evenly chosen, are fitted.")
    steps = MeasuredSteps(system, rows, measured.columns["step_time_s"])
    population = step_population()
    known = population.of(labels_of((prior or load_scenario(BASE)).tables))
    problem = step_time_problem(known, population.scatter, steps)
    return CalibrationCase(
        fit=problem,
        groups=_groups(measured, rows),
        outputs={"step time": (1.0,)},
        along=("accelerators", rows["chips"]),
        candidates=_candidates(system, rows),
        fitted_numbers={f"system.{path}": FittedNumber(path, 1.0, one.unit) for path, one in problem.constants.items()},
        notes=notes,
    )


def _rows(measured: Measurements) -> dict[str, np.ndarray]:
    """Columns of `predict`, with what is left out filled in; its messages name the line in the file."""
    given = [name for name in SETTING if name in measured.columns]
    words = [
        {name: str(measured.columns[name][row]) for name in given} | {"cluster": "measured"}
        for row in range(len(measured))
    ]
    columns = layouts(words, measured.path, measured.lines).columns
    return {one.name: columns[one.name] for one in INPUTS}


def step_time_problem(known: Coordinates, scatter: float, steps: MeasuredSteps) -> FitProblem:
    """The fit of all constants to measured steps, from what is known of them, and of the scatter about them, before."""
    spread = np.sqrt(np.diag(known.covariance))
    each = zip(STEP_CONSTANTS.items(), known.mean.tolist(), spread.tolist(), strict=True)
    constants = {path: prior_of(one, z, deviation) for (path, one), z, deviation in each}
    prior = JointPrior(NAMES, known.mean, spread, np.linalg.inv(np.linalg.cholesky(known.covariance)))
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
            whole = all(one >= 1.0 and float(one).is_integer() for one in (data, sequences))
            if whole and rows["heads"][row] % tensor == 0 and rows["layers"][row] % pipeline == 0:
                settings.append((row, chips, float(tensor), float(pipeline)))
    settings = Candidates.thinned(settings) or [
        (row, float(rows["chips"][row]), float(rows["tensor"][row]), float(rows["pipeline"][row]))
        for row in first.tolist()
    ]
    at, chips, tensor, pipeline = (np.array(column) for column in zip(*settings, strict=True))
    ones = np.ones(len(at))
    table = {name: values[at] for name, values in rows.items()}
    table |= {"chips": chips, "tensor": tensor, "pipeline": pipeline, "virtual_stages": ones, "expert": ones}
    words = [
        f"{rows['layers'][row]:g} layers of {rows['hidden'][row]:g} on {chips:g} chips, tensor {tensor:g}, "
        f"pipeline {pipeline:g}"
        for row, chips, tensor, pipeline in settings
    ]
    return Candidates(MeasuredSteps(system, table, ones), words)
