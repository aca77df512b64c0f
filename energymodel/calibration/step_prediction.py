"""How long does a step of each layout of a table take, and does it fit in memory?"""

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.layout_table import (
    INPUTS,
    LAYOUT,
    OF_CLUSTER,
    SHAPE,
    Columns,
    Layouts,
    layouts,
    read_layouts,
)
from energymodel.compilation import compiler_options
from energymodel.numerics import Scalar
from energymodel.performance.memory_footprint import out_of_memory_probability
from energymodel.performance.workload import Transformer
from energymodel.presets.files import names, read_preset
from energymodel.presets.renamed import current_name
from energymodel.presets.scenario import load_scenario
from energymodel.system.cluster import Software
from energymodel.system.formats import check_formats
from energymodel.system.operating_point import OperatingPoint, precision_speedup
from energymodel.system.outcome import StepTime
from energymodel.system.plan import ParallelLayout, TokenBudget, TrainingPlan
from energymodel.system.step import step_time, step_work
from energymodel.system.training_system import TrainingSystem

FEWEST_ROWS = 64  # of a compiled program


class Prediction(NamedTuple):
    """One step: its time by terms [s], model FLOP utilization [1], memory of the fullest chip [B], risk [1]."""

    step_time: StepTime
    mfu: Scalar
    memory: Scalar
    out_of_memory_probability: Scalar


class StepPredictions(NamedTuple):
    """Predictions for a table, as NumPy arrays with one entry for each row."""

    layouts: Layouts
    prediction: Prediction

    def table(self) -> Columns:
        """Columns by name, with the unit in each name."""
        terms = {f"{name}_s": values for name, values in vars(self.prediction.step_time).items()}
        total = np.asarray(self.prediction.step_time.total)
        columns = self.layouts.columns
        tokens = columns["batch_sequences"] * columns["sequence"]
        return {
            "step_time_s": total,
            **terms,
            "tokens_per_s": tokens / total,
            "mfu": np.asarray(self.prediction.mfu),
            "memory_b": np.asarray(self.prediction.memory),
            "out_of_memory_probability": np.asarray(self.prediction.out_of_memory_probability),
        }


def with_constants(system: TrainingSystem, values: Mapping[str, Any]) -> TrainingSystem:
    """The system with values at dotted paths replaced."""
    paths = [path.split(".") for path in values]
    return eqx.tree_at(lambda tree: [reduce(getattr, path, tree) for path in paths], system, list(values.values()))


def predict_row(system: TrainingSystem, row: Mapping[str, Any]) -> Prediction:
    """Time and memory of a step at a given clock, as `evaluate` has them [derivation: docs/step_time.md].

    Unlike `evaluate` it does not look for the clock that a power cap allows: the constants of a cluster are fitted to
    what its chips sustained.

    **Arguments:**

    - `system`: a cluster; its workload is replaced by that of the row.
    - `row`: the columns of `layout_table.INPUTS`, one number each.

    **Returns:** `Prediction`.
    """
    workload = Transformer(**{column.name: row[column.name] for column in SHAPE})
    system = eqx.tree_at(lambda system: (system.workload, system.software), system, (workload, _software(system, row)))
    batch = jnp.asarray(row["batch_sequences"]) * row["sequence"]
    plan = TrainingPlan(
        chips=row["chips"],
        batch=jnp.reshape(batch, (1,)),
        goal=TokenBudget(batch),
        clock=row["clock"],
        power_cap=system.accelerator.rated_power,
        coolant_temperature=0.0,
        layout=ParallelLayout(**{column.name: row[column.name] for column in LAYOUT}),
        trained_share=row["trained_share"],
    )
    chip = system.accelerator
    work = step_work(system, plan, batch)
    nothing = jnp.zeros_like(batch)
    point = OperatingPoint(
        clock=jnp.asarray(row["clock"]),
        voltage=chip.voltage(row["clock"]),
        temperature=jnp.asarray(chip.leakage.reference_temperature),
        static_power=nothing,
        busy_power=nothing,
        lowest_power=nothing,
    )
    time = step_time(system, plan, work, point)
    memory = work.memory.total
    peak = chip.peak_flops * precision_speedup(chip, plan.layout)
    frozen = 2.0 * (1.0 - plan.trained_share) * workload.active_parameters  # operations per token that are not done
    flops = batch * (workload.flops_per_token - frozen) / (row["chips"] * peak)
    return Prediction(
        step_time=time,
        mfu=flops / time.total,
        memory=memory,
        out_of_memory_probability=out_of_memory_probability(
            memory, system.software.usable_memory * chip.memory_capacity, system.software.memory_spread
        ),
    )


def _software(system: TrainingSystem, row: Mapping[str, Any]) -> Software:
    """The cluster's software, with what the row says instead."""
    own = {column.name: getattr(system.software, column.name) for column in OF_CLUSTER}
    given = {name: jnp.asarray(row[name]) for name in own}
    values = [jnp.where(jnp.isnan(given[name]), own[name], given[name]) for name in own]
    return eqx.tree_at(lambda software: [getattr(software, name) for name in own], system.software, values)


def _padded(places: np.ndarray) -> np.ndarray:
    """The same, repeated up to a power of two, so that tables of any length share a few compiled programs."""
    return np.resize(places, max(FEWEST_ROWS, 2 ** int(np.ceil(np.log2(len(places))))))


@cache
def _compiled() -> Any:
    return jax.jit(jax.vmap(predict_row, in_axes=(None, 0)), compiler_options=compiler_options())


def predict(
    table: Path | str | Sequence[Mapping[str, Any]] | Layouts,
    systems: Mapping[str, TrainingSystem] | None = None,
    *,
    cluster: str | Path | None = None,
    changes: Sequence[str] = (),
    choices: TableChoices = AS_WRITTEN,
) -> StepPredictions:
    """Predict the step time, its terms, and the memory, for each row of a table, in float64.

    **Arguments:**

    - `table`: path of a CSV file, rows as mappings, or `Layouts`; `table_columns` says which columns are read.
    - `systems`: clusters by name; by default the presets and files that the column `cluster` names.
    - `cluster`: preset or file of the cluster of all rows.
    - `changes`: of the clusters, such as `["system.network.link.efficiency=0.5"]`.
    - `choices`: how the table is read: renamed, constant and ignored columns, bad rows.

    **Returns:** `StepPredictions`; its `table()` has the columns of the output.

    **Raises:** `InputError` that names line and column.
    """
    if not isinstance(table, Layouts):
        choices = choices._replace(
            cluster=choices.cluster if cluster is None else str(cluster), clusters=tuple(systems or ())
        )
        read = read_step_table(Path(table), choices) if isinstance(table, Path | str) else step_table(table, choices)
        table = read.layouts
    found: Any = None
    with jax.enable_x64(True):
        for name in dict.fromkeys(table.cluster):
            system = systems[name] if systems and name in systems else cluster_system(str(name), changes)
            check_formats(system.accelerator, table.select(table.cluster == name).columns, f"cluster {name}")
            rows = _padded(np.flatnonzero(table.cluster == name))
            inputs = {column.name: table.columns[column.name][rows] for column in INPUTS}
            part = jax.device_get(_compiled()(system, inputs))
            if found is None:
                found = jax.tree.map(lambda values: np.full(len(table), np.nan), part)
            # Repeated rows are written again, with the same values.
            jax.tree.map(lambda all_of_it, values, rows=rows: all_of_it.__setitem__(rows, values), found, part)
    return StepPredictions(table, found)


class TablePrediction(NamedTuple):
    """A table that was read, and what is predicted for its rows, by column.

    `predicted` has the columns of `StepPredictions.table`.
    """

    read: StepTable
    predicted: Columns

    @property
    def measured_time(self) -> np.ndarray:
        """Of each row [s]; not a number where none was measured."""
        return self.read.layouts.columns["step_time_s"]

    def errors(self) -> dict[str, dict[str, float | int]]:
        """Errors over the rows that were measured, in percent, by what was measured; nothing where nothing was."""
        columns = self.read.layouts.columns
        found: dict[str, dict[str, float | int]] = {}
        for name, column in (("step_time", "step_time_s"), ("memory", "memory_b")):
            error = 100.0 * (self.predicted[column] / columns[column] - 1.0)
            error = error[np.isfinite(error)]
            if len(error):
                found[name] = {
                    "rows": len(error),
                    "mean_percent": float(np.mean(np.abs(error))),
                    "median_percent": float(np.median(np.abs(error))),
                    "bias_percent": float(np.mean(error)),
                }
        failed = columns["out_of_memory"]
        ran = np.isfinite(failed) | np.isfinite(self.measured_time)
        if np.any(failed > 0.0):
            right = (self.predicted["out_of_memory_probability"] > 0.5) == (failed > 0.0)
            found["out_of_memory"] = {
                "rows": int(np.sum(ran)),
                "right": int(np.sum(right & ran)),
                "failed": int(np.sum(failed > 0.0)),
                "right_failed": int(np.sum(right & (failed > 0.0))),
            }
        return found


def predict_table(read: StepTable, changes: Sequence[str] = ()) -> TablePrediction:
    """Predict the rows of a table that was read, see `predict`."""
    return TablePrediction(read, predict(read.layouts, changes=changes).table())
