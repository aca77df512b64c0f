"""Plans that no framework runs and no network can be: pipelines, number formats and tori that are refused.

Each rule of a pipeline is one that a public framework enforces: Megatron-LM's schedules and arguments, DualPipe's
program. A peak rate of zero says that a chip has no products in a format; all chips have 16-bit products.
`performance.topology.Torus` takes all sides as equal, `a = n^(1/d)`. With sides up to 1 : 2 its bisection is at most
`2^((d - 1)/d)` times that of the true torus, 1.6 for three dimensions. Thirteen blocks are a ring.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from energymodel.errors import InputError
from energymodel.performance.pipeline_bubble import microbatch_multiple
from energymodel.performance.topology import Torus
from energymodel.system.accelerator import Accelerator
from energymodel.system.plan import SCHEDULES, ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.units import format_quantity

WHOLE = 1e-6
TABLES = 2.0  # embedding and output head, which fill a stage without layers
LONGEST = 2.0  # longest over shortest side of a torus
PEAK_OF = {"fp8": "peak_flops_fp8", "fp4": "peak_flops_fp4", "tf32": "peak_flops_tf32", "fp32": "peak_flops_fp32"}
"""Field of an accelerator with the peak rate of a format, by the field of a layout with its share of products."""
SCHEDULE_NAMES: dict[str, str] = {
    "gpipe": "GPipe",
    "zero_bubble": "ZB-H1",
    "zero_bubble_h2": "ZB-H2",
    "zero_bubble_v": "ZB-V",
    "dual_pipe": "DualPipe",
}
CUTS: tuple[str, ...] = ("first_stage_layers", "last_stage_layers", "embedding_balanced")
"""Fields of a layout that say how layers are divided over the stages other than evenly."""
OF_STAGES: tuple[str, ...] = ("pipeline", "virtual_stages", *SCHEDULES, *CUTS)
"""Fields of a layout that decide whether its stages can be laid out."""


def stage_fault(system: TrainingSystem, layout: Mapping[str, float]) -> str | None:
    """What is wrong with the stages and the schedule of a layout, from its fields `OF_STAGES`; None if nothing is."""
    ranks, chunks = layout["pipeline"], layout["virtual_stages"]
    chosen = [name for name in SCHEDULES if layout[name] > 0.0]
    if len(chosen) > 1 or any(0.0 < layout[name] < 1.0 for name in chosen):
        switches = " and ".join(f"{name} = {layout[name]:g}" for name in chosen)
        return f"plan.layout: {switches}, but a pipeline has one schedule. Set one of them to 1 and the others to 0."
    name = SCHEDULE_NAMES[chosen[0]] if chosen else ""
    if ranks == 1.0 and chunks > 1.0:
        return (
            f"plan.layout.virtual_stages: {chunks:g} on one pipeline rank, which has nothing to interleave. Set "
            "virtual_stages to 1, or pipeline to 2 or more."
        )
    if name and ranks > 1.0 and chunks != (needed := 2.0 if name == "ZB-V" else 1.0):
        return (
            f"plan.layout.virtual_stages: {chunks:g}, but {name} has {needed:g} on each rank. Set virtual_stages to "
            f'{needed:g}, or plan.layout.schedule to "1f1b", which interleaves.'
        )
    if name == "DualPipe" and ranks % 2.0:
        return (
            f"plan.layout.pipeline: {ranks:g} ranks, but DualPipe pairs ranks from both ends. Set pipeline to an even "
            'number, or plan.layout.schedule to "1f1b".'
        )
    first, last, embedding = (layout[name] for name in CUTS)
    if first > 0.0 or last > 0.0:
        return _cut_fault(system, layout, name)
    return _layer_fault(system, ranks, chunks, embedding)


def _cut_fault(system: TrainingSystem, layout: Mapping[str, float], schedule: str) -> str | None:
    """What is wrong with ends of a pipeline that are cut by hand: Megatron Core's rules."""
    ranks, chunks, layers = layout["pipeline"], layout["virtual_stages"], float(system.workload.layers)
    cuts = {name: layout[name] for name in CUTS[:2] if layout[name] > 0.0}
    words = " and ".join(f"{name} = {count:g}" for name, count in cuts.items())
    where = f"plan.layout: {words}"
    if ranks == 1.0:
        return f"{where}, but one pipeline rank has all layers. Set them to 0, or pipeline to 2 or more."
    if schedule or layout["embedding_balanced"] > 0.0 or float(system.software.balanced_stages) > 0.0:
        other = schedule or ("embedding_balanced" if layout["embedding_balanced"] > 0.0 else "balanced_stages")
        return f"{where}, but {other} divides the layers itself. Set them to 0, or choose 1F1B without {other}."
    for name, count in cuts.items():
        if abs(count / chunks - round(count / chunks)) > WHOLE or count < chunks:
            return (
                f"plan.layout.{name}: {count:g} layers are not the same whole number in each of {chunks:g} virtual "
                "stages. Give a multiple of them."
            )
    others, left = ranks - len(cuts), layers - sum(cuts.values())
    if others == 0.0:
        wrong = f"{where} are not the {layers:g} layers. Let them add up, or leave one out."
        return wrong if abs(left) > WHOLE else None
    each = left / (others * chunks)
    if each < 1.0 - WHOLE or abs(each - round(each)) > WHOLE:
        return (
            f"{where} leave {left:g} of {layers:g} layers for {others * chunks:g} stages on the other {others:g} "
            "pipeline ranks, which must hold the same whole number of them. Change them, pipeline or virtual_stages."
        )
    return None


def _layer_fault(system: TrainingSystem, ranks: float, chunks: float, embedding: float) -> str | None:
    layers, slots = float(system.workload.layers), ranks * chunks
    if float(system.software.balanced_stages) > 0.0:
        if chunks > 1.0 or ranks > layers:
            return (
                f"plan.layout: {ranks:g} pipeline ranks with {chunks:g} virtual stages for {layers:g} layers, but "
                "stages that are balanced by weights (system.software.balanced_stages) have at least one layer and do "
                "not interleave. Set virtual_stages to 1 and pipeline to at most the layers."
            )
        return None
    empty = empty_slots(layers, slots)
    allowed = max(float(system.software.empty_slots), TABLES * embedding)
    # Where any number of layers is placed, each stage holds a layer, the embedding or the output head.
    if empty <= allowed + WHOLE and (allowed < layers or slots <= layers + TABLES):
        return None
    allows = f"allows {allowed:g} (system.software.empty_slots)" if allowed else "needs equal stages (empty_slots = 0)"
    return (
        f"plan.layout: {layers:g} layers leave {empty:g} of pipeline {ranks:g} x virtual stages {chunks:g} = {slots:g} "
        f"slots empty, but the framework {allows}. Choose degrees whose product divides the layers, set "
        "plan.layout.embedding_balanced to 1 if embedding and output head take a slot each, or "
        "system.software.empty_slots to what your framework allows."
    )


def empty_slots(layers: float, slots: float) -> float:
    """Slots of layers that stages of equally many leave empty [1], `s ceil(L / s) - L`."""
    return math.ceil(layers / slots - WHOLE) * slots - layers


def check_pipeline(system: TrainingSystem, plan: TrainingPlan) -> None:
    """Check that a framework runs the pipeline of a plan: its stages, its schedule and its micro-batches.

    A batch that changes along the run takes all values between its knots, so that only its fewest micro-batches count.

    **Raises:** `InputError` that names the rule.
    """
    layout = plan.layout
    if fault := stage_fault(system, {name: float(getattr(layout, name)) for name in OF_STAGES}):
        raise InputError(fault)
    ranks = float(layout.pipeline)
    if ranks == 1.0:
        return
    batch = float(np.min(plan.batch))
    unit = microbatch_tokens(system, plan)
    count, fewest, multiple = batch / unit, round(float(layout.fewest_microbatches)), multiple_count(system, layout)
    nearest = max(fewest, multiple * round(count / multiple))
    instead = (
        f"Set plan.batch to {format_quantity(nearest * unit, 'token')} ({nearest} micro-batches), or change chips, "
        "pipeline or microbatch"
    )
    interleaved = float(layout.interleaved) > 0.0
    if count < fewest - WHOLE:
        who = f"an interleaved schedule of {ranks:g} ranks" if interleaved else f"DualPipe on {ranks:g} ranks"
        raise InputError(
            f"plan.batch: {count:.6g} micro-batches for each replica, but {who} needs {fewest}. {instead}."
        )
    if plan.knots > 1:
        return
    if abs(count / multiple - round(count / multiple)) * multiple > WHOLE * count:
        why = "a step has whole micro-batches"
        if interleaved and multiple > 1:
            why = (
                f"an interleaved schedule takes them through a chunk in groups of {ranks:g} pipeline ranks "
                "(system.software.whole_groups = 1, as in Megatron-LM)"
            )
        elif multiple > 1:
            why = "DualPipe takes half of them from each end"
        raise InputError(f"plan.batch: {count:.6g} micro-batches for each replica, but {why}. {instead}.")


def is_traced(*trees: object) -> bool:
    """Whether some number is not known yet, because a transformation traces it."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def microbatch_tokens(system: TrainingSystem, plan: TrainingPlan) -> float:
    """Tokens of a global batch with one micro-batch for each replica [token]."""
    layout = plan.layout
    group = float(layout.tensor) * float(layout.pipeline) * float(layout.context)
    return float(plan.chips) / group * float(layout.microbatch) * float(system.workload.sequence)


def multiple_count(system: TrainingSystem, layout: ParallelLayout) -> int:
    """Number that the micro-batches of a step are a multiple of."""
    counts = layout.pipeline, layout.interleaved, layout.dual_pipe, system.software.whole_groups
    return round(float(microbatch_multiple(*counts)))


def formats_of(chip: Accelerator) -> tuple[str, ...]:
    """Number formats in which a chip multiplies, bf16 first."""
    return ("bf16", *(name for name, field in PEAK_OF.items() if np.all(np.asarray(getattr(chip, field)) > 0.0)))


def check_formats(chip: Accelerator, shares: Mapping[str, Any], where: str, name: str = "") -> None:
    """Check that a chip has every format that products are to be in. Says nothing of numbers that are traced.

    **Arguments:**

    - `shares`: share of the products by format, or its highest value.
    - `where`: beginning of the message, such as `plan.layout`.
    - `name`: title of the accelerator.

    **Raises:** `InputError` for the first format that the chip lacks.
    """
    for format_name, field in PEAK_OF.items():
        share, peak = shares.get(format_name, 0.0), getattr(chip, field)
        if isinstance(share, Tracer) or isinstance(peak, Tracer):
            continue
        if np.any((np.asarray(share) > 0.0) & (np.asarray(peak) <= 0.0)):
            raise InputError(
                f"{where}.{format_name}: {name or 'the accelerator'} has no {format_name}; it has: "
                f"{', '.join(formats_of(chip))}. Set the share to 0, or choose another accelerator."
            )


@cache
def torus_sides(blocks: int, dimensions: int) -> tuple[int, ...]:
    """Sides of the torus of so many blocks whose longest side is shortest, in ascending order."""
    if dimensions <= 1:
        return (blocks,)
    choices = (
        tuple(sorted((side, *torus_sides(blocks // side, dimensions - 1))))
        for side in range(1, round(blocks ** (1.0 / dimensions)) + 1)
        if blocks % side == 0
    )
    return min(choices, key=lambda sides: (sides[-1], -sides[0]))


def torus_fault(system: TrainingSystem, chips: float) -> str | None:
    """What is wrong with the torus of so many chips; None if it can be built, or if the network is none."""
    topology, block = system.network.topology, float(system.node.chips)
    if not isinstance(topology, Torus) or chips <= block:
        return None
    blocks = chips / block
    if abs(blocks - round(blocks)) > WHOLE * blocks:
        return f"{chips:g} chips are {blocks:.4g} blocks of {block:g}, but a torus is of whole blocks"
    sides = torus_sides(round(blocks), round(float(topology.dimensions)))
    if sides[-1] <= LONGEST * sides[0]:
        return None
    shape = " x ".join(str(side) for side in sides)
    return (
        f"{chips:g} chips make a torus of {shape} blocks of {block:g}, whose sides differ by more than 1 : {LONGEST:g}"
    )


def torus_chips(system: TrainingSystem, chips: float, most: float, group: int = 1) -> list[float]:
    """Numbers of chips up to `most` that make a torus, in whole groups: the nearest to `chips` below and above."""
    block = round(float(system.node.chips))
    multiple = math.lcm(block, group)
    possible = [float(n * multiple) for n in range(1, math.floor(most / multiple + WHOLE) + 1)]
    possible = [count for count in possible if torus_fault(system, count) is None]
    below = [count for count in possible if count <= chips * (1.0 + WHOLE)]
    return below[-1:] + [count for count in possible if count > chips * (1.0 + WHOLE)][:1]
