"""The fastest layout that fits into memory, with chips, batch and clock fixed.

For runs of which the layout is not disclosed: it was presumably tuned. Used by the experiments beside this file.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.runtime.compilation import compiler_options
from energymodel.search.layouts import take
from energymodel.system.evaluate import evaluate
from energymodel.system.layouts import candidates
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

CHUNK = 512


@eqx.filter_jit(compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
def _step(system: TrainingSystem, plan: TrainingPlan, lattice: Any) -> tuple[Any, Any]:
    """Step time [s] and slack of memory of layouts."""

    def step_of(layout: Any) -> tuple[Any, Any]:
        outcome = evaluate(system, eqx.tree_at(lambda plan: plan.layout, plan, layout))
        return outcome.step_time.total, outcome.slack.memory

    return jax.vmap(step_of)(lattice)


def is_whole(system: TrainingSystem, plan: TrainingPlan, lattice: Any) -> np.ndarray:
    """Which layouts divide chips into whole replicas, and the batch into whole micro-batches."""
    group = np.asarray(lattice.tensor) * np.asarray(lattice.pipeline) * np.asarray(lattice.context)
    data = float(plan.chips) / group
    sequences = float(np.ravel(plan.batch)[0]) / float(system.workload.sequence)
    counts = sequences / (data * np.asarray(lattice.microbatch))
    near = [np.abs(number / np.maximum(1.0, np.round(number)) - 1.0) < 1e-6 for number in (data, counts)]
    return near[0] & near[1]


def fastest_layout(
    system: TrainingSystem, plan: TrainingPlan, choices: Mapping[str, tuple[float, float]] | None = None
) -> TrainingPlan:
    """The plan with the fastest layout that fits; recomputation, sharding and micro-batch are free.

    **Arguments:**

    - `system`, `plan`: everything else.
    - `choices`: ranges of fields of the layout, of which something is known.

    **Raises:** `ValueError` if no layout fits.
    """
    lattice = candidates(system, plan.layout, float(plan.chips), choices)
    lattice = take(lattice, np.flatnonzero(is_whole(system, plan, lattice)))
    count = len(np.asarray(lattice.tensor))
    times, slacks = [], []
    for first in range(0, count, CHUNK):
        part = take(lattice, np.resize(np.arange(first, min(first + CHUNK, count)), CHUNK))
        time, slack = _step(system, plan, part)
        times.append(np.asarray(time)[: count - first])
        slacks.append(np.asarray(slack)[: count - first])
    time = np.where(np.concatenate([*slacks, []]) >= 0.0, np.concatenate([*times, []]), np.inf)
    if not count or not np.any(np.isfinite(time)):
        raise ValueError(f"none of {count} layouts fits into memory on {float(plan.chips):g} chips.")
    best = jax.tree.map(lambda leaf: np.asarray(leaf[int(np.argmin(time))]), lattice)
    return eqx.tree_at(lambda plan: plan.layout, plan, best)
