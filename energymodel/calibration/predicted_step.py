"""Time and memory of one step, in one layout on one system."""

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from energymodel.calibration.layout_table import LAYOUT, OF_CLUSTER, SHAPE
from energymodel.numerics import Scalar
from energymodel.performance.memory_footprint import out_of_memory_probability
from energymodel.performance.workload import Transformer
from energymodel.system.chip_load import format_factors
from energymodel.system.cluster import Software
from energymodel.system.operating_point import OperatingPoint
from energymodel.system.outcome import StepTime
from energymodel.system.plan import ParallelLayout, TokenBudget, TrainingPlan
from energymodel.system.step import step_time, step_work
from energymodel.system.training_system import TrainingSystem


class Prediction(NamedTuple):
    """One step: its time by terms [s], model FLOP utilization [1], memory of the fullest chip [B], risk [1]."""

    step_time: StepTime
    mfu: Scalar
    memory: Scalar
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
        spin_power=nothing,
    )
    time = step_time(system, plan, work, point)
    memory = work.memory.total
    peak = chip.peak_flops * format_factors(chip, plan.layout).speedup
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
    values = [jnp.where(jnp.isnan(row[name]), number, row[name]) for name, number in own.items()]
    return eqx.tree_at(lambda software: [getattr(software, name) for name in own], system.software, values)
