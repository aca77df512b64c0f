"""Time and memory of training steps by their layouts, with intervals from what is known of the cluster."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.calibration.constant_priors import ConstantPrior
from energymodel.calibration.layout_table import LAYOUT, OF_CLUSTER, SHAPE, inputs_of
from energymodel.calibration.step_table import read_step_table
from energymodel.errors import InputError
from energymodel.numerics import Scalar
from energymodel.performance.workload import Transformer
from energymodel.readers.columns import AS_WRITTEN, TableChoices
from energymodel.readers.table import Measurements
from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.clusters import KIND
from energymodel.scenarios.scenario import Scenario
from energymodel.scenarios.step_population import NAMES, STEP_CONSTANTS, Coordinates, StepConstant
from energymodel.system.chip_load import OperatingPoint, format_factors
from energymodel.system.memory import FAILING_RISK, out_of_memory_risk, reserved_memory
from energymodel.system.outcome import StepTime
from energymodel.system.plan import ParallelLayout, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import check_formats
from energymodel.system.step import pass_times, step_time, step_work
from energymodel.system.training_system import TrainingSystem

SAME = 1e-4  # relative difference of a number that nobody changed
ROWS = 128  # of the compiled programs; longer tables take them several times
INTERVAL_ENDS = {
    "step_time_low_s": float(ndtri(0.05)),
    "step_time_high_s": float(ndtri(0.95)),
    "step_time_low_50_s": float(ndtri(0.25)),
    "step_time_high_50_s": float(ndtri(0.75)),
}
"""Ends of the 90 and 50 % intervals of a step time, in standard deviations of its logarithm."""


class Prediction(NamedTuple):
    """One step: its time by terms [s], model FLOP utilization [1], memory of the fullest chip [B], risk [1].

    `allocated` is the memory of tensors, what `torch.cuda.max_memory_allocated` measures, without the reserve.
    """

    step_time: StepTime
    mfu: Scalar
    memory: Scalar
    allocated: Scalar
    out_of_memory_probability: Scalar


def with_constants(system: TrainingSystem, values: Mapping[str, Any]) -> TrainingSystem:
    """The system with values at dotted paths replaced."""
    paths = [path.split(".") for path in values]
    return eqx.tree_at(lambda tree: [reduce(getattr, path, tree) for path in paths], system, list(values.values()))


def predict_row(system: TrainingSystem, row: Mapping[str, Any]) -> Prediction:
    """Time and memory of a step at a given clock, as `evaluate` has them [derivation: docs/step_time.md].

    Unlike `evaluate` it does not look for the clock that a power cap allows: the constants of a cluster are fitted to
    what its chips sustained.

    **Arguments:**

    - `system`: a cluster; its workload is replaced by that of the row, and its software by what the row says of it.
    - `row`: the columns of `layout_table.INPUTS`, one number each.
    """
    workload = Transformer(**{column.name: row[column.name] for column in SHAPE})
    system = eqx.tree_at(lambda tree: tree.workload, system, workload)
    own = {column.name: (row[column.name], getattr(system.software, column.name)) for column in OF_CLUSTER}
    changed = {f"software.{name}": jnp.where(jnp.isnan(value), usual, value) for name, (value, usual) in own.items()}
    system = with_constants(system, changed)
    batch, chip = jnp.asarray(row["batch_sequences"]) * row["sequence"], system.accelerator
    plan = TrainingPlan(
        chips=row["chips"],
        batch=jnp.reshape(batch, (1,)),
        goal=TokenBudget(batch),
        clock=row["clock"],
        power_cap=chip.rated_power,
        coolant_temperature=0.0,
        layout=ParallelLayout(**{column.name: row[column.name] for column in LAYOUT}),
        trained_share=row["trained_share"],
    )
    work, nothing = step_work(system, plan, batch), jnp.zeros_like(batch)
    voltage, temperature = chip.voltage(row["clock"]), jnp.asarray(chip.leakage.reference_temperature)
    point = OperatingPoint(
        clock=jnp.asarray(row["clock"]),
        voltage=voltage,
        temperature=temperature,
        products=work.load.product_time(chip, row["clock"]),
        leakage=chip.leakage(voltage, temperature),
        static_power=nothing,
        busy_power=nothing,
        lowest_power=nothing,
        spin_power=nothing,
        swing=voltage,
    )
    time, memory = step_time(system, plan, work, point, pass_times(system, plan, work, point)), work.memory.total
    peak = chip.peak_flops * format_factors(chip, plan.layout).speedup
    frozen = 2.0 * (1.0 - plan.trained_share) * workload.active_parameters  # operations per token that are not done
    flops = batch * (workload.flops_per_token - frozen) / (row["chips"] * peak)
    allocated = memory - reserved_memory(system, plan)
    return Prediction(time, flops / time.total, memory, allocated, out_of_memory_risk(system, plan, memory))


def prior_of(constant: StepConstant, coordinate: float | None = None, deviation: float = 1.0) -> ConstantPrior:
    """A constant as one that is fitted, with a median at a coordinate and a standard deviation of it."""
    z = constant.middle if coordinate is None else coordinate
    spread = deviation * (constant.slope(z) if math.isfinite(constant.upper) else 1.0)
    return ConstantPrior(constant.value(z), spread, 0.0, constant.upper, constant.unit, widest=10.0)


def _log_step_time(
    fixed: tuple[TrainingSystem, Float[Array, " constants"]], row: Mapping[str, Array]
) -> tuple[Array, Array]:
    """Logarithm of the time of a step with the constants at coordinates, and its slopes."""
    system, coordinates = fixed

    def logarithm(coordinates: Array) -> Array:
        pairs = zip(STEP_CONSTANTS.items(), coordinates, strict=True)
        values = {path: prior_of(constant).value(jnp.asarray(z)) for (path, constant), z in pairs}
        return jnp.log(predict_row(with_constants(system, values), row).step_time.total)

    value, push = jax.linearize(logarithm, coordinates)
    return value, jax.vmap(push)(jnp.eye(len(STEP_CONSTANTS)))


@cache
def _compiled(function: Callable[..., Any]) -> Any:
    return jax.jit(jax.vmap(function, in_axes=(None, 0)), compiler_options=compiler_options())


def by_rows(function: Callable[..., Any], fixed: Any, rows: Mapping[str, np.ndarray]) -> Any:
    """A function of each row, compiled for `ROWS` of them and run as often as there are."""
    count = len(next(iter(rows.values())))
    parts = []
    with jax.enable_x64(True):
        for begin in range(0, count, ROWS):
            index = np.resize(np.arange(begin, min(count, begin + ROWS)), ROWS)
            part = {name: np.asarray(column, np.float64)[index] for name, column in rows.items()}
            parts.append(jax.device_get(_compiled(function)(fixed, part)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)


def log_step_times(
    coordinates: Float[np.ndarray, " constants"], system: TrainingSystem, rows: Mapping[str, np.ndarray]
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, "rows constants"]]:
    """Logarithms of the times of steps on a system with its constants at coordinates, and their slopes by coordinate,
    in float64.
    """
    return by_rows(_log_step_time, (system, np.asarray(coordinates, np.float64)), rows)


def known_constants(scenario: Scenario) -> tuple[Coordinates, float] | None:
    """What a scenario knows of the constants of its cluster together, and the standard deviation of the logarithm of a
    step time whose constants are known; nothing where it states neither a fitted cluster nor the population.

    Numbers that were changed since, by `--set` or in Python, are known exactly.
    """
    table = scenario.tables.get("calibration", {}).get(KIND)
    if table is None or "slopes" not in table or tuple(table["names"]) != NAMES:
        return None
    values = np.array([float(reduce(getattr, path.split("."), scenario.system)) for path in NAMES])
    changed = ~np.isclose(values, table["values"], rtol=SAME)
    mean = np.asarray(table["coordinates"], np.float64)
    for index in np.flatnonzero(changed & (values > 0.0)).tolist():
        mean[index] = STEP_CONSTANTS[NAMES[index]].coordinate(float(values[index]))
    covariance = np.where(changed[:, None] | changed, 0.0, np.asarray(table["covariance"], np.float64))
    return Coordinates(mean, covariance), float(table["scatter"])


def step_time_spread(
    constants: Coordinates, scatter: float, system: TrainingSystem, rows: Mapping[str, np.ndarray]
) -> Float[np.ndarray, " rows"]:
    """Standard deviation of the logarithm of step times, `sqrt(g^T C g + s^2)` [Taylor 1997, sec. 3.7].

    C is the covariance of the coordinates, g are the slopes at their mean, s is the scatter, all of `known_constants`.
    """
    _, slopes = log_step_times(constants.mean, system, rows)
    return np.sqrt(np.einsum("ri,ij,rj->r", slopes, constants.covariance, slopes) + scatter**2)


class StepPredictions(NamedTuple):
    """Predictions for a table, as NumPy arrays with one entry for each row.

    `spread` is the standard deviation of the logarithm of the step time, not a number on a cluster that states none.
    """

    layouts: Measurements
    prediction: Prediction
    spread: np.ndarray

    def table(self) -> dict[str, np.ndarray]:
        """Columns by name, with the unit in each name; ends of 50 and 90 % intervals of the step time beside it."""
        total = np.asarray(self.prediction.step_time.total)
        tokens = self.layouts.columns["batch_sequences"] * self.layouts.columns["sequence"]
        return {
            "step_time_s": total,
            **{name: total * np.exp(share * self.spread) for name, share in INTERVAL_ENDS.items()},
            **{f"{name}_s": values for name, values in vars(self.prediction.step_time).items()},
            "tokens_per_s": tokens / total,
            "mfu": np.asarray(self.prediction.mfu),
            "memory_b": np.asarray(self.prediction.memory),
            "allocated_b": np.asarray(self.prediction.allocated),
            "out_of_memory_probability": np.asarray(self.prediction.out_of_memory_probability),
        }

    def errors(self) -> dict[str, dict[str, float | int]]:
        """Errors over the rows that were measured, in percent, by what was measured; nothing where nothing was."""
        columns, predicted = self.layouts.columns, self.table()
        errors: dict[str, dict[str, float | int]] = {}
        for name, column, own in (("step_time", "step_time_s", "step_time_s"), ("memory", "memory_b", "allocated_b")):
            error = 100.0 * (predicted[own] / columns[column] - 1.0)
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
            measured = columns["step_time_s"]
            errors["step_time"]["inside_90"] = int(np.sum((low <= measured) & (measured <= high)))
        failed = columns["out_of_memory"] > 0.0
        if np.any(failed):
            ran = np.isfinite(columns["out_of_memory"]) | np.isfinite(columns["step_time_s"])
            right = (predicted["out_of_memory_probability"] > FAILING_RISK) == failed
            counts = {"rows": ran, "right": right & ran, "failed": failed, "right_failed": right & failed}
            errors["out_of_memory"] = {name: int(np.sum(rows)) for name, rows in counts.items()}
        return errors


def predict(
    table: Path | str | Sequence[Mapping[str, Any]] | Measurements,
    systems: Mapping[str, TrainingSystem] | None = None,
    *,
    cluster: str | Path | None = None,
    changes: Sequence[str] = (),
    choices: TableChoices = AS_WRITTEN,
) -> StepPredictions:
    """Predict the step time, its terms, and the memory, for each row of a table, in float64.

    **Arguments:**

    - `table`: path of a CSV file, rows as mappings, or `layouts`; `step_table.py` says which columns are read.
    - `systems`: clusters by name; by default the presets and files that the column `cluster` names.
    - `cluster`: preset or file of the cluster of all rows.
    - `changes`: of the clusters, such as `["system.network.link.efficiency=0.5"]`.
    - `choices`: how the table is read: renamed, constant and ignored columns, bad rows.

    **Raises:** `InputError` that names line and column, and for numbers that have no finite prediction together.
    """
    if not isinstance(table, Measurements):
        choices = choices._replace(
            cluster=choices.cluster if cluster is None else str(cluster), clusters=tuple(systems or ())
        )
        table = read_step_table(Path(table) if isinstance(table, str) else table, choices)
    spread, order, parts = np.full(len(table), np.nan), [], []
    for name in dict.fromkeys(table.columns["cluster"].tolist()):
        system, constants = (systems or {}).get(name), None
        if system is None:
            scenario = cluster_scenario(name, changes)
            system, constants = scenario.system, known_constants(scenario)
        rows = np.flatnonzero(table.columns["cluster"] == name)
        own = inputs_of(table.select(rows))
        check_formats(system.accelerator, own, f"cluster {name}")
        if constants is not None:
            spread[rows] = step_time_spread(*constants, system, own)
        parts.append(by_rows(predict_row, system, own))
        order += rows.tolist()
    predicted = jax.tree.map(lambda *leaves: np.concatenate(leaves)[np.argsort(order)], *parts)
    finite = np.all([np.isfinite(values) for values in jax.tree.leaves(predicted)], axis=0)
    if not np.all(finite):
        row = int(np.argmin(finite))
        inputs = {name: float(values[row]) for name, values in inputs_of(table).items() if np.isfinite(values[row])}
        name = max(inputs, key=lambda name: abs(inputs[name]))
        raise InputError(
            f"row {row + 1} of the layouts: no finite step time and memory follow from its numbers. Look at the "
            f"largest, {name} = {inputs[name]:g}."
        )
    return StepPredictions(table, predicted, spread)
