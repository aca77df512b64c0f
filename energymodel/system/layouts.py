"""The parallel layouts that a model can have on a number of chips, and the fastest of them."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.performance.pipeline_bubble import microbatch_multiple
from energymodel.runtime.compilation import Compiled
from energymodel.system.memory import memory_limit
from energymodel.system.plan import PRECISIONS, SCHEDULES, ParallelLayout, TrainingPlan
from energymodel.system.plan_rules import CUTS, OF_STAGES, TABLES, WHOLE, empty_slots, stage_fault
from energymodel.system.step import training_step
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

Lattice = ParallelLayout
"""Layouts with a leading axis on every leaf."""

MICROBATCHES = (1.0, 2.0, 4.0, 8.0)
MORE_MICROBATCHES = (*MICROBATCHES, 16.0, 32.0, 64.0)  # of small models
ZERO = {1: (1.0, 0.0, 0.0), 2: (1.0, 1.0, 0.0), 3: (1.0, 1.0, 1.0)}
"""Whether optimizer states, gradients and parameters are sharded, by ZeRO stage."""
SHARDS = ("shard_optimizer", "shard_gradients", "shard_parameters")
RESTRICTED = {"sequence_parallel", *SHARDS, "recompute_attention", "recompute_full"}
"""Fields that follow from others, or of which not all values are tried."""
SMALLEST_CONTEXT = 4096.0  # tokens of a sequence that one chip of a context group should keep
FIELDS = tuple(field.name for field in fields(ParallelLayout))
SWITCHES = FIELDS[FIELDS.index("recompute_full") + 1 :]
"""As in the scenario, unless they may vary; the fields before them are searched."""
SEARCHED = (*(name for name in FIELDS if name not in SWITCHES), "embedding_balanced")
ACT_ON = {**dict.fromkeys(SCHEDULES, "pipeline"), "async_tensor": "tensor", "context_all_to_all": "context"}
"""Degrees of parallelism that switches act on; others act on every layout."""
SCHEDULING = (*ACT_ON, "cuda_graphs")
"""Switches that change neither the numerics nor what a chip and its host hold: when the same work is done, and sent."""
MOST_EMPTY = 1.0 / 16.0  # slots that a pipeline leaves empty, over the layers, if it is tried
CHUNK = 1024  # layouts in one call of the compiled step


def candidates(
    system: TrainingSystem,
    own: ParallelLayout,
    chips: float,
    ranges: Mapping[str, tuple[float, ...]] | None = None,
    microbatches: Sequence[float] = MICROBATCHES,
) -> Lattice:
    """All layouts that divide at most `chips` chips, a plan's own among them.

    Tensor parallelism stays within a node, and is none where the software divides models with experts by experts alone;
    pipelines are those that the software runs (`system.plan_rules`) with a slot for sixteen layers empty at most; ZeRO
    is of stage 1, 2 or 3, with pipelines up to the stage that the framework runs there; stage 0 sends the same bytes as
    1 and keeps more. Recomputation none or full (selective where attention scores are kept) are the ends of what memory
    costs. `ranges` are those of fields: a switch takes both ends of its range, all else must lie within. One value
    fixes the field to it, and more than two are those that it takes, also such as are not tried otherwise.
    """
    ranges, workload = ranges or {}, system.workload
    listed = {name: sorted({*ends}) for name, ends in ranges.items() if len({*ends}) == 1 or len(ends) > 2}
    fixed = {name: values[0] for name, values in listed.items() if len(values) == 1}
    layers, node = round(float(workload.layers)), round(float(system.node.chips))
    alone = float(workload.experts) > 1.0 and not float(system.software.expert_tensor)
    tensors = listed.get("tensor", _powers(1.0 if alone else min(node, chips)))
    tensors = [t for t in tensors if float(workload.heads) % t == 0 and float(workload.state_heads) % t == 0]
    kinds = [set(ranges.get(name, (float(getattr(own, name)),))) for name in (*SCHEDULES, *CUTS)]
    wasted = layers if {"pipeline", "virtual_stages"} <= listed.keys() else max(TABLES, MOST_EMPTY * layers)
    schedules = list(itertools.product(*kinds))
    stages: dict[int, list[int]] = {}  # virtual stages of each pipeline degree that the software runs in some schedule
    for ranks in range(1, layers + 1):
        for chunks in range(1, math.ceil(layers / ranks) + 1):
            if empty_slots(layers, ranks * chunks) > wasted:
                continue
            asked = (dict(zip(OF_STAGES, (float(ranks), float(chunks), *kind), strict=True)) for kind in schedules)
            if any(stage_fault(system, kind) is None for kind in asked):
                stages.setdefault(ranks, []).append(chunks)
    pipelines = [p for p in stages if p <= chips]
    contexts = [c for c in _powers(chips) if c == 1 or float(workload.sequence) / c >= SMALLEST_CONTEXT]
    contexts, microbatches = listed.get("context", contexts), listed.get("microbatch", microbatches)
    experts = listed.get("expert", _powers(min(chips, float(workload.experts))))
    recomputations = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)][: 2 + int(float(workload.flash) < 1.0)]
    with_pipeline = max(1.0, float(system.software.zero_with_pipeline))
    rows = [
        (t, p, v, c, e, b, 1.0 if t > 1 else float(own.sequence_parallel), *ZERO[stage], *recomputation)
        for t, p, c, e in itertools.product(tensors, pipelines, contexts, experts)
        if t * p * max(c, e) <= chips
        for v, b, stage, recomputation in itertools.product(stages[p], microbatches, ZERO, recomputations)
    ]
    switches = [sorted(set(ranges.get(name, (float(getattr(own, name)),)))) for name in SWITCHES]
    chosen = [float(getattr(own, name)) for name in FIELDS]
    table = np.array([(*row, *switch) for row in rows for switch in itertools.product(*switches)]).reshape(
        -1, len(FIELDS)
    )
    for name in fixed.keys() & RESTRICTED:
        table[:, FIELDS.index(name)] = fixed[name]
    stage = table[:, [FIELDS.index(name) for name in SHARDS]].sum(axis=1)
    runs = (stage <= with_pipeline) | (table[:, FIELDS.index("pipeline")] == 1.0)
    table = np.concatenate([table[runs], [chosen]])
    # Each product has one precision.
    table = table[table[:, [FIELDS.index(name) for name in PRECISIONS]].sum(axis=1) <= 1.0]
    table = table[can_run(system, ParallelLayout(*table.T))]
    for name, (low, *_, high) in ranges.items():
        column = table[:, FIELDS.index(name)]
        table = table[np.isin(column, listed[name]) if name in listed else (low <= column) & (column <= high)]
    if not len(table):
        asked = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, *_, high) in ranges.items())
        raise InputError(f"plan.layout: no layout has {asked}. Give wider ranges.")
    return jax.tree.map(np.asarray, jax.vmap(ParallelLayout)(*np.unique(table, axis=0).T))


def can_run(system: TrainingSystem, lattice: Lattice) -> Bool[np.ndarray, " layouts"]:
    """Layouts whose stages the software runs in their schedule, and whose all-to-alls have a head for each chip."""
    table = np.stack([np.asarray(getattr(lattice, name)) for name in OF_STAGES], axis=1)
    kinds, kind = np.unique(table, axis=0, return_inverse=True)
    faults = [stage_fault(system, dict(zip(OF_STAGES, map(float, row), strict=True))) for row in kinds]
    divides_heads = (np.asarray(lattice.context) > 1.0) & (np.asarray(lattice.context_all_to_all) > 0.0)
    lacks_heads = divides_heads & (np.asarray(lattice.tensor * lattice.context) > float(system.workload.heads))
    return np.array([fault is None for fault in faults])[np.reshape(kind, -1)] & ~lacks_heads


def _powers(limit: float) -> list[float]:
    """Powers of two up to a limit."""
    return [2.0**k for k in range(int(math.log2(max(1.0, limit))) + 1)]


class FastestLayout(NamedTuple):
    """A layout, its step time [s], how many layouts fit in memory, and how many divide chips and batch."""

    layout: ParallelLayout
    step_time: float
    fitting: int
    considered: int


def fastest_layout(
    system: TrainingSystem, plan: TrainingPlan, ranges: Mapping[str, tuple[float, ...]] | None = None
) -> FastestLayout:
    """The layout of the shortest step that fits in memory, with chips, batch and clock of a plan.

    All chips are used, in whole replicas over which the experts divide, and a step has whole micro-batches. Where no
    layout has them, one without a pipeline may have a fractional number, a mean over steps. A single layout is that one
    whether it fits or not: the evaluation says so.

    **Arguments:**

    - `ranges`: of fields of the layout, as in `candidates`.

    **Raises:** `InputError` if no layout divides chips and batch, and if none fits.
    """
    chips, batch = float(plan.chips), float(np.max(plan.batch))
    lattice = candidates(system, plan.layout, chips, ranges, MORE_MICROBATCHES)
    exact, fractional = divides(system, lattice, chips, batch)
    index = np.flatnonzero(exact if np.any(exact) else fractional)
    if not len(index):
        raise InputError(
            f"plan.batch: {format_quantity(batch, 'token')} cannot be divided over {chips:g} chips in any layout of "
            f"whole micro-batches of {format_quantity(float(system.workload.sequence), 'token')}. Give a multiple of "
            f"{format_quantity(chips * float(system.workload.sequence), 'token')}, or another number of chips."
        )
    with jax.enable_x64(True):
        parts = [np.resize(index[first : first + CHUNK], CHUNK) for first in range(0, len(index), CHUNK)]
        steps = [_steps(system, plan, batch, jax.tree.map(lambda leaf, of=of: leaf[of], lattice)) for of in parts]
    memory, time = (np.concatenate(rows)[: len(index)] for rows in zip(*steps, strict=True))
    limit = float(memory_limit(system, plan))
    fits = (memory <= limit) | (len(index) == 1)
    if not np.any(fits):
        needed, usable = (format_quantity(size, "B") for size in (np.min(memory), limit))
        raise InputError(
            f"chips: in no layout of {chips:g} chips does the model fit into the memory: of {len(index):,} the "
            f"smallest needs {needed} of {usable} per chip. Give more chips, or keep states on the host "
            "(plan.layout.offload_optimizer=1)."
        )
    best = index[np.argmin(np.where(fits & np.isfinite(time), time, np.inf))]
    layout = jax.tree.map(lambda leaf: np.asarray(leaf[best]), lattice)
    return FastestLayout(layout, float(np.min(time[fits])), int(np.sum(fits)), len(index))


def divides(
    system: TrainingSystem, lattice: Lattice, chips: float, batch: float
) -> tuple[Bool[np.ndarray, " layouts"], Bool[np.ndarray, " layouts"]]:
    """Layouts of whole replicas, experts and micro-batches; and those of a fraction of micro-batches, unpipelined."""
    data = chips / (lattice.tensor * lattice.pipeline * lattice.context)
    experts = data * lattice.context / lattice.expert
    count = batch / (data * lattice.microbatch * float(system.workload.sequence))
    multiple = microbatch_multiple(
        lattice.pipeline, lattice.interleaved, lattice.dual_pipe, system.software.whole_groups
    )
    runs = _whole(data) & _whole(experts) & (count >= np.asarray(lattice.fewest_microbatches) * (1.0 - WHOLE))
    return runs & _whole(count / np.asarray(multiple)), runs & (np.asarray(lattice.pipeline) == 1.0)


def _whole(count: Float[np.ndarray, " layouts"]) -> Bool[np.ndarray, " layouts"]:
    return (count >= 1.0 - WHOLE) & (np.abs(count - np.round(count)) <= WHOLE * count)


@Compiled
def _steps(system: TrainingSystem, plan: TrainingPlan, batch: Numeric, lattice: Lattice) -> tuple[Array, Array]:
    """Memory of a chip [B] and time of a step [s] in each layout."""

    def step(layout: ParallelLayout) -> tuple[Array, Array]:
        taken = training_step(system, eqx.tree_at(lambda plan: plan.layout, plan, layout), batch)
        return jnp.asarray(taken.memory), jnp.asarray(taken.duration)

    return jax.vmap(step)(lattice)
