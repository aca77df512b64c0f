"""The shape of a transformer as variables of a search, its cost in loss, and the shapes that can be built.

The variables are proportions, from which parameters, operations and memory follow.
"""

import dataclasses
import math
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.learning.loss_law import shape_penalty
from energymodel.learning.recipe import RecipeLearning
from energymodel.numerics import Numeric
from energymodel.performance.workload import Transformer
from energymodel.search.problem import Criteria, Formulation
from energymodel.search.training_run import TrainingRun
from energymodel.solver import Values
from energymodel.system.plan import ParallelLayout, TrainingPlan
from energymodel.system.training_system import TrainingSystem

DEPTH_RANGE = 2.5
FEED_FORWARD_STEP, HEADS_STEP = 256, 4
WHOLE = 1e-6


class ShapePrior(NamedTuple):
    """Loss added by an unusual shape, `dL = k [ln^2(h / (l r)) + ln^2(f / (h r_f)) + ln^2(a d / h)]`
    [docs/physics.md A0.13; the last two terms extend it to the other proportions of Kaplan et al. 2020, fig. 5].

    f is the feed-forward width that acts on a token, a d the attention width. `best_feed_forward` is r_f without a
    gate; a gated block, with three matrices for two, is best at two thirds of it [Shazeer 2020]. `stiffness` is k
    [nat/token]. A weak prior: without it the cheapest shape per parameter would win, however strange.
    """

    best_ratio: float = 100.0
    best_feed_forward: float = 4.0
    stiffness: float = 0.005

    def penalty(self, workload: Transformer) -> Float[Array, ""]:
        """Added loss [nat/token]."""
        best_feed_forward = self.best_feed_forward * 2.0 / (2.0 + jnp.asarray(workload.gated))
        return (
            shape_penalty(workload.hidden, workload.layers, self.best_ratio, self.stiffness)
            + shape_penalty(active_feed_forward(workload), workload.hidden, best_feed_forward, self.stiffness)
            + shape_penalty(workload.attention_width, workload.hidden, 1.0, self.stiffness)
        )


def active_feed_forward(workload: Transformer) -> Float[Array, ""]:
    """Feed-forward width that acts on a token, `(k + k_s) f` with k active and k_s shared experts [1]."""
    return jnp.asarray(workload.active_experts + workload.shared_experts) * workload.feed_forward


MODEL = "model."
SHAPE = ("hidden", "feed_forward_ratio", "attention_ratio", "kv_share", "experts", "active_experts")
"""Shape variables: h, f/h of what acts on a token, a d / h, a_kv / a, and the counts of experts."""


def proportions(workload: Transformer) -> dict[str, Float[Array, ""]]:
    """Shape variables of a transformer, see `SHAPE` [1]."""
    hidden = jnp.asarray(workload.hidden)
    return {
        "hidden": hidden,
        "feed_forward_ratio": active_feed_forward(workload) / hidden,
        "attention_ratio": workload.attention_width / hidden,
        "kv_share": jnp.asarray(workload.kv_heads) / workload.heads,
        "experts": jnp.asarray(workload.experts),
        "active_experts": jnp.asarray(workload.active_experts),
    }


def shaped(workload: Transformer, layers: Numeric, shape: Mapping[str, Numeric]) -> Transformer:
    """The transformer of a depth and of shape variables, with vocabulary, context and kind of another.

    Dense layers among mixtures of experts keep their number, and their width in proportion to the active one. Shape
    variables that are not in `shape` stay, see `SHAPE`; counts may be fractions.
    """
    full = {**proportions(workload), **shape}
    hidden = full["hidden"]
    heads = full["attention_ratio"] * hidden * workload.heads / workload.attention_width
    active_width = full["feed_forward_ratio"] * hidden
    counts = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": full["kv_share"] * heads,
        "feed_forward": active_width / (full["active_experts"] + workload.shared_experts),
        "dense_feed_forward": workload.dense_feed_forward / active_feed_forward(workload) * active_width,
        "experts": full["experts"],
        "active_experts": full["active_experts"],
    }
    return _with_counts(workload, jax.tree.map(jnp.asarray, counts))


def _with_counts(workload: Transformer, counts: Mapping[str, Any]) -> Transformer:
    return eqx.tree_at(lambda w: [getattr(w, name) for name in counts], workload, list(counts.values()))


class Depth(NamedTuple):
    """A number of layers and the layout that holds them: what is discrete in a search of shapes."""

    layers: Any
    layout: ParallelLayout


@dataclasses.dataclass(frozen=True)
class ShapedFormulation(Formulation):
    """A formulation with the logarithms of all shape variables before those of a plan, in the order of `SHAPE`.

    A lane has a `Depth` in place of a layout. `plain` is the formulation of the plan alone; the last row says that no
    more experts are active than there are.
    """

    prior: ShapePrior = dataclasses.field(default_factory=ShapePrior)
    plain: Formulation = dataclasses.field(default_factory=lambda: Formulation(()))

    @classmethod
    def of(cls, plain: Formulation, prior: ShapePrior) -> "ShapedFormulation":
        """The formulation of a plan with a shape."""
        paths, rows = (*(MODEL + name for name in SHAPE), *plain.paths), (*plain.rows, "active_experts")
        return cls(**{**vars(plain), "paths": paths, "rows": rows}, prior=prior, plain=plain)

    def values(
        self, point: Float[Array | np.ndarray, " n"], layout: Any, criteria: Criteria, run: TrainingRun
    ) -> Values:
        """Objective and rows of a shape and its plan at a depth."""
        values = self.plain.values(*self._plan(point, layout, criteria, run))
        choice = point[SHAPE.index("active_experts")] - point[SHAPE.index("experts")]
        return Values(values.objective, jnp.append(values.inequalities, choice))

    def at(
        self, point: Float[Array | np.ndarray, " n"], layout: Any, criteria: Criteria, run: TrainingRun
    ) -> tuple[TrainingSystem, TrainingPlan]:
        """System and plan at a point, at a depth."""
        return self.plain.at(*self._plan(point, layout, criteria, run))

    def _plan(self, point: Any, depth: Depth, criteria: Criteria, run: TrainingRun) -> tuple[Any, ...]:
        """Arguments of the formulation of the plan: with the workload of the shape, whose penalty the loss contains."""
        shape: dict[str, Any] = dict(zip(SHAPE, jnp.exp(point[: len(SHAPE)]), strict=True))
        workload, neutral = shaped(run.system.workload, depth.layers, shape), jnp.ones(())
        learning = RecipeLearning(run.system.learning, neutral, neutral, self.prior.penalty(workload))
        run = eqx.tree_at(lambda run: (run.system.workload, run.system.learning), run, (workload, learning))
        return point[len(SHAPE) :], depth.layout, criteria, run


def depths_that_divide(layers: float, layout: ParallelLayout) -> Float[np.ndarray, " depths"]:
    """Depths from 0.4 to 2.5 times one that fill the pipeline, or leave the slots empty that it leaves.

    With virtual stages, the layers of a virtual stage stay as many, and the number of virtual stages changes.
    """
    step = depth_step(layers, layout)
    spare = math.ceil(layers / step) * step - layers
    most = math.floor(layers * DEPTH_RANGE / step) + 1
    full = step * np.arange(1.0, most + 1)
    depths = np.unique(np.concatenate([full, full - spare, [float(layers)]]))
    return depths[(depths >= layers / DEPTH_RANGE) & (depths <= layers * DEPTH_RANGE) & (depths >= 1.0)]


def depth_step(layers: float, layout: ParallelLayout) -> int:
    """Layers by which a depth may grow: one for every rank, or a virtual stage for every rank [1]."""
    pipeline, virtual_stages = round(float(layout.pipeline)), round(float(layout.virtual_stages))
    return pipeline if virtual_stages == 1 else pipeline * math.ceil(layers / (pipeline * virtual_stages))


def realizable_shapes(
    workload: Transformer, layout: ParallelLayout, layers: float, point: Float[np.ndarray, " n"]
) -> list[Transformer]:
    """Whole shapes around a point: hidden in heads and tensor ranks, heads in fours and ranks, widths in blocks of 256.

    All combinations of the nearest whole numbers; `point` begins with logarithms in the order of `SHAPE`.
    Key-value heads are as many as heads, or a power of two.
    """
    own: dict[str, Any] = dict(zip(SHAPE, np.exp(point[: len(SHAPE)]), strict=True))
    shape = shaped(workload, layers, own)
    tensor, head = round(float(layout.tensor)), round(float(workload.head_size))
    share, shared_experts = float(shape.kv_heads / shape.heads), float(workload.shared_experts)
    width, dense = float(active_feed_forward(shape)), float(workload.dense_feed_forward / active_feed_forward(workload))
    expert_counts = [(1, 1)]
    if float(workload.experts) > 1.0:
        every = around(float(shape.experts), round(float(layout.expert))), around(float(shape.active_experts), 1)
        expert_counts = [(experts, active) for experts, active in product(*every) if active <= experts]
    widths = (
        around(float(shape.hidden), math.lcm(head, tensor)),
        around(float(shape.heads), math.lcm(HEADS_STEP, tensor)),
    )
    shapes = []
    for hidden, heads, (experts, active) in product(*widths, expert_counts):
        groups = [kv for kv in range(1, heads + 1) if heads % kv == 0 and (kv == heads or kv.bit_count() == 1)]
        for feed_forward in around(width / (active + shared_experts), math.lcm(FEED_FORWARD_STEP, tensor)):
            dense_blocks = round(dense * feed_forward * (active + shared_experts) / FEED_FORWARD_STEP)
            counts = {
                "layers": layers,
                "hidden": hidden,
                "heads": heads,
                "kv_heads": min(groups, key=lambda kv, heads=heads: abs(math.log(kv / (share * heads)))),
                "feed_forward": feed_forward,
                "dense_feed_forward": FEED_FORWARD_STEP * dense_blocks,
                "experts": experts,
                "active_experts": active,
            }
            shapes.append(_with_counts(workload, {name: np.asarray(float(count)) for name, count in counts.items()}))
    return shapes


def around(value: float, step: int) -> list[int]:
    """Multiples of a step next to a value, at least one step [1]; one if the value is a multiple but for rounding."""
    exact = value / step
    counts = {round(exact)} if abs(exact - round(exact)) < WHOLE * exact else {math.floor(exact), math.ceil(exact)}
    return sorted({max(1, count) * step for count in counts})
