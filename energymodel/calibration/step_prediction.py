"""How long does a step of each layout of a table take, and does it fit in memory?"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.layout_table import INPUTS, LAYOUT, SHAPE, Columns, Layouts, layouts, read_layouts
from energymodel.compilation import compiler_options
from energymodel.errors import InputError, suggest
from energymodel.numerics import Scalar
from energymodel.performance.memory_footprint import out_of_memory_probability
from energymodel.performance.workload import Transformer
from energymodel.presets.files import names, read_preset
from energymodel.presets.renamed import current_name
from energymodel.presets.scenario import load_scenario
from energymodel.system.formats import check_formats
from energymodel.system.operating_point import OperatingPoint, precision_speedup
from energymodel.system.outcome import StepTime
from energymodel.system.plan import ParallelLayout, TokenBudget, TrainingPlan
from energymodel.system.step import step_time, step_work
from energymodel.system.training_system import TrainingSystem

FEWEST_ROWS = 64  # of a compiled program
PLACEHOLDER = "test-1b-h100"
"""Scenario with a model and a plan that run on most accelerators and clusters."""


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
    system = eqx.tree_at(lambda system: system.workload, system, workload)
    batch = jnp.asarray(row["batch_sequences"]) * row["sequence"]
    plan = TrainingPlan(
        chips=row["chips"],
        batch=jnp.reshape(batch, (1,)),
        goal=TokenBudget(batch),
        clock=row["clock"],
        power_cap=system.accelerator.rated_power,
        coolant_temperature=0.0,
        layout=ParallelLayout(**{column.name: row[column.name] for column in LAYOUT}),
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
    flops = batch * workload.flops_per_token / (row["chips"] * peak)
    return Prediction(
        step_time=time,
        mfu=flops / time.total,
        memory=memory,
        out_of_memory_probability=out_of_memory_probability(
            memory, system.software.usable_memory * chip.memory_capacity, system.software.memory_spread
        ),
    )


def _padded(places: np.ndarray) -> np.ndarray:
    """The same, repeated up to a power of two, so that tables of any length share a few compiled programs."""
    return np.resize(places, max(FEWEST_ROWS, 2 ** int(np.ceil(np.log2(len(places))))))


@cache
def _compiled() -> Any:
    return jax.jit(jax.vmap(predict_row, in_axes=(None, 0)), compiler_options=compiler_options())


def cluster_tables(name: str) -> dict[str, Any]:
    """The tables of a scenario on a cluster preset, with a model and a plan that only fill the form.

    **Raises:** `InputError` that suggests the nearest name.
    """
    name = current_name(name)
    if name not in names("clusters"):
        raise InputError(f'Unknown cluster "{name}". {suggest(name, names("clusters"))}')
    return {"base": PLACEHOLDER, "system": read_preset("clusters", name)["system"]}


@cache
def cluster_system(name: str) -> TrainingSystem:
    """The system of a cluster preset."""
    return load_scenario({**cluster_tables(name), "name": name}).system


def predict(
    table: Path | str | Sequence[Mapping[str, Any]] | Layouts, systems: Mapping[str, TrainingSystem] | None = None
) -> StepPredictions:
    """Predict the step time, its terms, and the memory, for each row of a table, in float64.

    **Arguments:**

    - `table`: path of a CSV file, rows as mappings, or `Layouts`; the columns are in `layout_table.INPUTS`.
    - `systems`: clusters by name; by default the presets that the column `cluster` names.

    **Returns:** `StepPredictions`; its `table()` has the columns of the output.

    **Raises:** `InputError` that names line and column.
    """
    if not isinstance(table, Layouts):
        table = read_layouts(Path(table)) if isinstance(table, Path | str) else layouts(table)
    found: Any = None
    with jax.enable_x64(True):
        for name in dict.fromkeys(table.cluster):
            system = systems[name] if systems and name in systems else cluster_system(str(name))
            check_formats(system.accelerator, table.select(table.cluster == name).columns, f"cluster {name}")
            rows = _padded(np.flatnonzero(table.cluster == name))
            inputs = {column.name: table.columns[column.name][rows] for column in INPUTS}
            part = jax.device_get(_compiled()(system, inputs))
            if found is None:
                found = jax.tree.map(lambda values: np.full(len(table), np.nan), part)
            # Repeated rows are written again, with the same values.
            jax.tree.map(lambda all_of_it, values, rows=rows: all_of_it.__setitem__(rows, values), found, part)
    return StepPredictions(table, found)
