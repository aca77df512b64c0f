"""The parallel layouts that a model can have on a number of chips."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.runtime.compilation import Compiled
from energymodel.search.problem import DesignProblem
from energymodel.search.training_run import TrainingRun
from energymodel.system.division import divide
from energymodel.system.memory import chip_memory
from energymodel.system.outputs import OUTPUTS
from energymodel.system.plan import PRECISIONS, SCHEDULES, ParallelLayout
from energymodel.system.plan_rules import CUTS, OF_STAGES, stage_fault
from energymodel.units import format_quantity

Lattice = ParallelLayout
"""Layouts with a leading axis on every leaf."""

MICROBATCHES = (1, 2, 4, 8)
_LAYOUT = {"tensor": "t", "pipeline": "p", "virtual_stages": "v", "context": "c", "expert": "e", "microbatch": "b"}
ZERO = {1: (1.0, 0.0, 0.0), 2: (1.0, 1.0, 0.0), 3: (1.0, 1.0, 1.0)}
"""Whether optimizer states, gradients and parameters are sharded, by ZeRO stage."""
SMALLEST_CONTEXT = 4096.0  # tokens of a sequence that one chip of a context group should keep
FIELDS = tuple(field.name for field in dataclasses.fields(ParallelLayout))
SWITCHES = FIELDS[FIELDS.index("recompute_full") + 1 :]
"""As in the scenario, unless they may vary; the fields before them are searched."""


def candidates(run: TrainingRun, chips: float, ranges: Mapping[str, tuple[float, float]] | None = None) -> Lattice:
    """All layouts that divide at most `chips` chips, the scenario's own among them.

    Tensor parallelism stays within a node; pipelines are those that the software runs (`system.plan_rules`);
    ZeRO is of stage 1, 2 or 3, with pipelines up to the stage that the framework runs there; stage 0 sends the same
    bytes as 1 and keeps more. Recomputation none or full (selective where attention scores are kept) are the ends of
    what memory costs. `ranges` are those of fields: a switch takes both ends of its range, all else must lie within.
    """
    ranges = ranges or {}
    system, workload, own = run.system, run.system.workload, run.plan.layout
    layers, node = round(float(workload.layers)), round(float(system.node.chips))
    tensors = [t for t in _powers(min(node, chips)) if float(workload.heads) % t == 0]
    kinds = [set(ranges.get(name, (float(getattr(own, name)),))) for name in (*SCHEDULES, *CUTS)]
    schedules = list(itertools.product(*kinds))
    stages: dict[int, list[int]] = {}  # virtual stages of each pipeline degree that the software runs in some schedule
    for ranks in range(1, layers + 1):
        for chunks in range(1, math.ceil(layers / ranks) + 1):
            asked = (dict(zip(OF_STAGES, (float(ranks), float(chunks), *kind), strict=True)) for kind in schedules)
            if any(stage_fault(system, kind) is None for kind in asked):
                stages.setdefault(ranks, []).append(chunks)
    pipelines = [p for p in stages if p <= chips]
    contexts = [c for c in _powers(chips) if c == 1 or float(workload.sequence) / c >= SMALLEST_CONTEXT]
    experts = _powers(min(chips, float(workload.experts)))
    recomputations = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)][: 2 + int(float(workload.flash) < 1.0)]
    with_pipeline = max(1.0, float(system.software.zero_with_pipeline))
    rows = [
        (t, p, v, c, e, b, float(t > 1), *ZERO[stage], *recomputation)
        for t, p, c, e in itertools.product(tensors, pipelines, contexts, experts)
        if t * p * max(c, e) <= chips
        for v, b, stage, recomputation in itertools.product(
            stages[p], MICROBATCHES, [stage for stage in ZERO if p == 1 or stage <= with_pipeline], recomputations
        )
    ]
    switches = [sorted(set(ranges.get(name, (float(getattr(own, name)),)))) for name in SWITCHES]
    chosen = [float(getattr(own, name)) for name in FIELDS]
    table = np.array([(*row, *switch) for row in rows for switch in itertools.product(*switches)] + [chosen])
    # Each product has one precision.
    table = table[table[:, [FIELDS.index(name) for name in PRECISIONS]].sum(axis=1) <= 1.0]
    kinds, kind = np.unique(table[:, [FIELDS.index(name) for name in OF_STAGES]], axis=0, return_inverse=True)
    faults = [stage_fault(system, dict(zip(OF_STAGES, map(float, row), strict=True))) for row in kinds]
    table = table[np.array([fault is None for fault in faults])[np.reshape(kind, -1)]]
    for name, (low, high) in ranges.items():
        column = table[:, FIELDS.index(name)]
        table = table[(low <= column) & (column <= high)]
    if not len(table):
        asked = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in ranges.items())
        raise InputError(f"plan.layout: no layout has {asked}. Give wider ranges.")
    return jax.tree.map(np.asarray, jax.vmap(ParallelLayout)(*np.unique(table, axis=0).T))


def _powers(limit: int | float) -> list[int]:
    return [2**k for k in range(int(math.log2(max(1.0, limit))) + 1)]


def take(lanes: Any, index: np.ndarray) -> Any:
    """Some of the lanes of layouts or anything else with a leading axis; one without that axis, at a single index."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], lanes)


def concatenate(*lanes: Any) -> Any:
    """Lanes of several searches, one after the other."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *lanes)


def layout_label(layout: ParallelLayout) -> str:
    """A layout in one word, such as t4·p8·v16·c2·b1, with ZeRO 2 or 3 and recomputation where they act."""
    degrees = [f"{short}{float(getattr(layout, name)):g}" for name, short in _LAYOUT.items()]
    degrees = [word for word in degrees if word[1:] != "1" or word[0] in "tp"]
    if float(layout.shard_parameters) or float(layout.shard_gradients):
        degrees.append("z3" if float(layout.shard_parameters) else "z2")
    if float(layout.recompute_full):
        degrees.append("full")
    elif float(layout.recompute_attention):
        degrees.append("selective")
    return "·".join(degrees)


def chips_per_replica(layout: Lattice) -> np.ndarray:
    """Fewest chips of a layout: a model replica, or as many replicas as the experts divide over."""
    expert = np.maximum(np.asarray(layout.context), np.asarray(layout.expert))
    return np.asarray(layout.tensor) * np.asarray(layout.pipeline) * expert


def fitting_layouts(problem: DesignProblem) -> tuple[Lattice, int]:
    """Layouts that fit in memory, and how many were considered.

    **Raises:** `InputError` if none fits.
    """
    lattice = candidates(problem.run, problem.most_chips, problem.layout_ranges)
    fitting = np.flatnonzero(fits(problem, lattice, problem.most_chips))
    if not len(fitting):
        memory, chips = (format_quantity(problem.limits[name], OUTPUTS[name]) for name in ("memory", "chips"))
        raise InputError(
            f"The model does not fit in {memory} per chip in any layout of {chips} chips. Allow more chips "
            "(--limit chips=...), more memory, or offload states (plan.layout.offload_optimizer=1)."
        )
    return take(lattice, fitting), len(lattice.tensor)


def fits(problem: DesignProblem, lattice: Lattice, chips: float) -> Bool[np.ndarray, " layouts"]:
    """Which layouts fit in memory at their best: all the chips, the fewest micro-batches."""
    return np.asarray(_smallest_memory(problem.run, lattice, chips)) <= problem.limits["memory"]


@Compiled
def _smallest_memory(run: TrainingRun, lattice: Lattice, chips: Numeric) -> Float[Array, " layouts"]:
    def smallest(layout: ParallelLayout) -> Array:
        group = layout.tensor * layout.pipeline * layout.context
        used = jnp.maximum(1.0, jnp.floor(chips / group)) * group
        batch = layout.smallest_batch(used, run.system.workload.sequence)
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.layout), run.plan, (used, layout))
        return chip_memory(run.system, plan, divide(run.system, plan, batch)).total

    return jax.vmap(smallest)(lattice)
