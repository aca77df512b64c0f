"""Kind `step-time`: constants of a cluster from the times of steps of some layouts.

The columns are those of `energymodel predict` with the measured step time.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.calibration_case import BASE, CalibrationCase, Candidates, Grouping, WrittenNumber
from energymodel.calibration.cluster_source import model_preset
from energymodel.calibration.constant_priors import JointPrior, Rows, Values
from energymodel.calibration.layout_table import SHAPE, inputs_of, row_words
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.calibration.step_prediction import by_rows, predict_row, prior_of, with_constants
from energymodel.calibration.step_table import read_step_table
from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.readers.columns import TableChoices
from energymodel.readers.table import Measurements, Records
from energymodel.scenarios.clusters import labels_of
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, step_population
from energymodel.search.layouts import take
from energymodel.system.layouts import FIELDS, candidates, divides
from energymodel.system.plan import ParallelLayout
from energymodel.system.plan_rules import torus_fault
from energymodel.system.training_system import TrainingSystem
from energymodel.units import counted

OPTIONS = FitOptions(loss="cauchy", noise_counts=12.0, noise_freedom=12.0, tolerance=1e-6, steps=80)
THIS_CLUSTER = "measured"  # word for the cluster of rows that name none: `--prior` describes it
MOST_FITTED = 256  # rows that are fitted; of a longer file evenly chosen ones, because a row takes many formulas

MOST_MODELS, MOST_LAYOUTS = 8, 256  # of those (and of counts of chips), and of the divisions of each, to measure next
SLOWEST = 2.0  # time of such a division over that of the fastest
DIVIDED = ("chips", "tensor", "pipeline", "virtual_stages", "expert", "microbatch")
"""Columns that differ between divisions of the same work."""


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
    """Rows in the columns of `layout_table`, some of which have a step time.

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
    return table.having({}, notes)


def step_time_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """The constants of `step_population`, with the population of framework and chip of the prior as their prior."""
    clusters = sorted({*table.columns["cluster"].tolist()})
    if len(clusters) > 1:
        raise InputError(
            f'{table.path}: column "cluster" holds {", ".join(clusters)}; constants belong to one cluster. Choose '
            f"it with --where cluster={clusters[0]}."
        )
    scenario = prior or load_scenario(BASE)
    notes = [] if prior is not None else [f"The cluster is that of {BASE}: name yours with --prior."]
    timed = np.isfinite(table.columns["step_time_s"])
    measured, table = table.select(timed), table.select(timed | ~table.columns["failed"])
    if (everything := len(measured)) > MOST_FITTED:
        measured = measured.select(np.unique(np.linspace(0, everything - 1, MOST_FITTED).round().astype(int)))
        notes.append(f"{len(measured)} of {everything} rows, evenly chosen, are fitted.")
    rows = inputs_of(measured)
    steps, population = MeasuredSteps(scenario.system, rows, measured.columns["step_time_s"]), step_population()
    problem = step_time_problem(population.of(labels_of(scenario.tables)), population.scatter, steps)
    numbers = {f"system.{path}": WrittenNumber(of.unit, constant=path) for path, of in problem.constants.items()}
    return CalibrationCase(
        fit=problem,
        groups=_groups(measured, rows),
        outputs={"step time": (1.0,)},
        along=("accelerators", rows["chips"]),
        candidates=_candidates(scenario.system, table),
        numbers=numbers,
        notes=notes,
        common="Step times",
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


def _candidates(system: TrainingSystem, table: Measurements) -> Candidates:
    """Runs of the models of a table that were not measured: divided otherwise over as many chips at most.

    They are to sharpen the times of the rows without one, if there are any, or else of each other.
    """
    rows, models, timed = inputs_of(table), table.text("model", "").tolist(), np.isfinite(table.columns["step_time_s"])
    counts = Candidates.thinned(np.unique(rows["chips"]).tolist(), MOST_MODELS)
    half = 0.5 * counts[0]
    counts += [half] if half.is_integer() and torus_fault(system, half) is None else []
    work = np.nan_to_num([values for name, values in rows.items() if name not in DIVIDED])
    first = Candidates.thinned(np.unique(work, axis=1, return_index=True)[1].tolist(), MOST_MODELS)
    divided = [(at, _divisions(system, take(rows, at), chips)) for at in first for chips in counts]
    new = {name: np.concatenate([own[name] for _, own in divided]) for name in rows}
    of = np.repeat([at for at, _ in divided], [len(own["chips"]) for _, own in divided])
    keys, measured = (np.nan_to_num([of[name] for name in rows]).T.tolist() for of in (new, take(rows, timed)))
    index = Candidates.thinned([row for row, key in enumerate(keys) if key not in measured])
    of, new = (of[index], take(new, index)) if index else (np.array(first), take(rows, first))
    words = [row_words(take(new, row), model_preset(models[at]) or "") for row, at in enumerate(of.tolist())]
    chosen = MeasuredSteps(system, new, np.ones(len(words)))
    if np.all(timed):
        return Candidates(chosen, words, of=f"the step times of {len(words)} such layouts that fit in memory")
    asked = take(rows, Candidates.thinned(np.flatnonzero(~timed).tolist()))
    steps = MeasuredSteps(system, asked, np.ones(len(asked["chips"])))
    return Candidates(chosen, words, steps, f"the step times of {counted(int(np.sum(~timed)), 'row')} without one")


def _divisions(system: TrainingSystem, row: Mapping[str, float], chips: float) -> dict[str, np.ndarray]:
    """The row on a number of chips, divided in every way that its framework runs, fits in memory and is not slow."""
    shape = Transformer(**{column.name: row[column.name] for column in SHAPE})
    system = eqx.tree_at(lambda tree: tree.workload, system, shape)
    fixed = {name: (row[name], row[name]) for name in FIELDS if name not in DIVIDED}
    columns, index = dict[str, np.ndarray](), np.array([], int)
    with suppress(InputError):  # no layout
        lattice = candidates(system, ParallelLayout(**{name: row[name] for name in FIELDS}), chips, fixed)
        index = np.flatnonzero(divides(system, lattice, chips, row["batch_sequences"] * row["sequence"])[0])
        index = np.array(Candidates.thinned(index.tolist(), MOST_LAYOUTS), int)
        columns = {name: getattr(lattice, name)[index] for name in FIELDS}
    table = {name: columns.get(name, np.full(len(index), value)) for name, value in {**row, "chips": chips}.items()}
    if not len(index):
        return table
    predicted = by_rows(predict_row, system, table)
    fits = np.asarray(predicted.out_of_memory_probability) <= float(system.out_of_memory_risk)
    time = np.where(fits, predicted.step_time.total, np.inf)
    return take(table, np.flatnonzero(fits & (time <= SLOWEST * np.min(time))))
