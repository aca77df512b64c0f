"""Which parallel layouts could run a model at all?"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.system.work import divide, memory_per_chip

Lattice = ParallelLayout
"""Layouts with a leading axis on every leaf."""

MICROBATCHES = (1, 2, 4, 8)
CONTEXT_TOKENS = 8192  # below this, a sequence is not worth dividing


def candidates(system: TrainingSystem, plan: TrainingPlan, chips: float) -> Lattice:
    """All layouts that divide at most `chips` chips, with the precision and offload of the plan.

    Tensor parallelism stays in a node; pipelines divide the layers; ZeRO 1 and 3 and recomputation none or full
    are the ends of what memory costs (selective recomputation too where attention scores are kept).
    """
    workload, own = system.workload, plan.layout
    layers, node = round(float(workload.layers)), round(float(system.node.chips))
    tensors = [t for t in _powers(min(node, chips)) if float(workload.heads) % t == 0]
    pipelines = sorted({p for p in (*_powers(layers), *_divisors(layers), round(float(own.pipeline))) if p <= chips})
    contexts = [c for c in _powers(chips) if float(workload.sequence) / c >= CONTEXT_TOKENS or c == 1]
    experts = _powers(float(workload.experts))
    recomputations = [(0.0, 0.0), (0.0, 1.0)] + ([(1.0, 0.0)] if float(workload.flash) < 1.0 else [])
    rows = []
    for t, p, c, e in itertools.product(tensors, pipelines, contexts, experts):
        if t * p * max(c, e) > chips:
            continue
        for v, b, zero, recomputation in itertools.product(
            _interleavings(layers, p), MICROBATCHES, (2.0, 3.0), recomputations
        ):
            rows.append((t, p, v, c, e, b, float(t > 1), 1.0, 1.0, float(zero > 2), *recomputation))
    table = np.unique(np.array(rows, dtype=np.float64), axis=0)
    names = (
        "tensor", "pipeline", "interleaving", "context", "expert", "microbatch", "sequence_parallel",
        "shard_optimizer", "shard_gradients", "shard_parameters", "recompute_attention", "recompute_full",
    )  # fmt: skip
    kept = {name: np.full(len(table), float(getattr(own, name))) for name in _INHERITED}
    return ParallelLayout(**_unchecked(dict(zip(names, table.T, strict=True)) | kept))


_INHERITED = ("eight_bit", "offload_optimizer", "offload_activations")


def _unchecked(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return columns


def _powers(limit: float) -> list[int]:
    return [2**k for k in range(int(math.log2(max(1.0, limit))) + 1)]


def _divisors(count: int) -> list[int]:
    return [d for d in range(1, count + 1) if count % d == 0]


def _interleavings(layers: int, pipeline: int) -> list[int]:
    most = math.ceil(layers / pipeline)
    if pipeline == 1:
        return [1]
    return sorted({v for v in (*_powers(most), most)})


def fitting(system: TrainingSystem, plan: TrainingPlan, lattice: Lattice, chips: float) -> np.ndarray:
    """Which layouts fit into memory at their best: all chips, one micro-batch in flight."""

    def least_memory(layout: ParallelLayout) -> jax.Array:
        group = layout.tensor * layout.pipeline * layout.context
        data = jnp.maximum(1.0, jnp.floor(chips / group))
        batch = data * layout.microbatch * system.workload.sequence
        trial = TrainingPlan(
            chips=data * group, batch=batch, goal=plan.goal, clock=plan.clock, power_cap=plan.power_cap,
            coolant_temperature=plan.coolant_temperature, layout=layout,
        )  # fmt: skip
        return memory_per_chip(system, trial, divide(system, trial, batch))

    needed = jax.jit(jax.vmap(least_memory))(lattice)
    return np.asarray(needed) <= float(system.accelerator.memory_capacity)
