"""Predicted step time and memory of each layout of a table."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.layout_table import INPUTS, Columns, Layouts
from energymodel.calibration.predicted_step import Prediction, predict_row
from energymodel.calibration.step_slopes import known_constants, step_time_spread
from energymodel.calibration.step_table import StepTable, read_step_table, step_table
from energymodel.errors import InputError
from energymodel.readers.columns import AS_WRITTEN, TableChoices
from energymodel.runtime.compilation import compiler_options
from energymodel.system.plan_rules import check_formats
from energymodel.system.training_system import TrainingSystem

FEWEST_ROWS = 64  # of a compiled program
INTERVAL_ENDS = {
    "step_time_low_s": float(ndtri(0.05)),
    "step_time_high_s": float(ndtri(0.95)),
    "step_time_low_50_s": float(ndtri(0.25)),
    "step_time_high_50_s": float(ndtri(0.75)),
}
"""Ends of the 90 and 50 % intervals of a step time, in standard deviations of its logarithm."""


class StepPredictions(NamedTuple):
    """Predictions for a table, as NumPy arrays with one entry for each row.

    `spread` is the standard deviation of the logarithm of the step time, not a number on a cluster that states none.
    """

    layouts: Layouts
    prediction: Prediction
    spread: np.ndarray

    def table(self) -> Columns:
        """Columns by name, with the unit in each name; ends of 50 and 90 % intervals of the step time beside it."""
        terms = {f"{name}_s": values for name, values in vars(self.prediction.step_time).items()}
        total = np.asarray(self.prediction.step_time.total)
        columns = self.layouts.columns
        tokens = columns["batch_sequences"] * columns["sequence"]
        return {
            "step_time_s": total,
            **{name: total * np.exp(share * self.spread) for name, share in INTERVAL_ENDS.items()},
            **terms,
            "tokens_per_s": tokens / total,
            "mfu": np.asarray(self.prediction.mfu),
            "memory_b": np.asarray(self.prediction.memory),
            "out_of_memory_probability": np.asarray(self.prediction.out_of_memory_probability),
        }


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

    - `table`: path of a CSV file, rows as mappings, or `Layouts`; `step_table` says which columns are read.
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
    predicted: Any = None
    spread = np.full(len(table), np.nan)
    with jax.enable_x64(True):
        for name in dict.fromkeys(table.cluster):
            system, constants = (systems or {}).get(name), None
            if system is None:
                scenario = cluster_scenario(str(name), changes)
                system, constants = scenario.system, known_constants(scenario)
            check_formats(system.accelerator, table.select(table.cluster == name).columns, f"cluster {name}")
            rows = _padded(np.flatnonzero(table.cluster == name))
            inputs = {column.name: table.columns[column.name][rows] for column in INPUTS}
            if constants is not None:
                spread[rows] = step_time_spread(constants, system, inputs)
            part = jax.device_get(_compiled()(system, inputs))
            if predicted is None:
                predicted = jax.tree.map(lambda values: np.full(len(table), np.nan), part)
            # Repeated rows are written again, with the same values.
            jax.tree.map(lambda column, values, rows=rows: column.__setitem__(rows, values), predicted, part)
    _check_predictions(table, predicted)
    return StepPredictions(table, predicted, spread)


def _check_predictions(table: Layouts, predicted: Any) -> None:
    """Refuse rows whose numbers are each possible, but have no finite prediction together.

    **Raises:** `InputError` that names the first row and its largest number.
    """
    finite = np.all([np.isfinite(values) for values in jax.tree.leaves(predicted)], axis=0)
    if np.all(finite):
        return
    row = int(np.argmin(finite))
    inputs = {column.name: float(table.columns[column.name][row]) for column in INPUTS}
    name = max((name for name in inputs if np.isfinite(inputs[name])), key=lambda name: abs(inputs[name]))
    raise InputError(
        f"row {row + 1} of the layouts: no finite step time and memory follow from its numbers. Look at the largest, "
        f"{name} = {inputs[name]:g}."
    )


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
        columns, predicted = self.read.layouts.columns, self.predicted
        errors: dict[str, dict[str, float | int]] = {}
        for name, column in (("step_time", "step_time_s"), ("memory", "memory_b")):
            error = 100.0 * (predicted[column] / columns[column] - 1.0)
            error = error[np.isfinite(error)]
            if len(error):
                errors[name] = {
                    "rows": len(error),
                    "mean_percent": float(np.mean(np.abs(error))),
                    "median_percent": float(np.median(np.abs(error))),
                    "bias_percent": float(np.mean(error)),
                }
        low, high = predicted["step_time_low_s"], predicted["step_time_high_s"]
        if "step_time" in errors and np.any(np.isfinite(low)):
            errors["step_time"]["inside_90"] = int(np.sum((low <= self.measured_time) & (self.measured_time <= high)))
        failed = columns["out_of_memory"]
        if np.any(failed > 0.0):
            ran = np.isfinite(failed) | np.isfinite(self.measured_time)
            right = (predicted["out_of_memory_probability"] > 0.5) == (failed > 0.0)
            errors["out_of_memory"] = {
                "rows": int(np.sum(ran)),
                "right": int(np.sum(right & ran)),
                "failed": int(np.sum(failed > 0.0)),
                "right_failed": int(np.sum(right & (failed > 0.0))),
            }
        return errors


def predict_table(read: StepTable, changes: Sequence[str] = ()) -> TablePrediction:
    """Predict the rows of a table that was read, see `predict`."""
    return TablePrediction(read, predict(read.layouts, changes=changes).table())
