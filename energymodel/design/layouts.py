"""Which parallel layouts could run a model at all, and which of them are worth a search?"""

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

from energymodel.compilation import Compiled, concurrently
from energymodel.design.problem import Form, Given, Problem, Target
from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.solver.minimize import Values
from energymodel.system.memory import chip_memory
from energymodel.system.plan import PRECISIONS, ParallelLayout
from energymodel.system.work import divide

Lattice = ParallelLayout
"""Layouts with a leading axis on every leaf."""

MICROBATCHES = (1, 2, 4, 8)
_LAYOUT = {"tensor": "t", "pipeline": "p", "virtual_stages": "v", "context": "c", "expert": "e", "microbatch": "b"}
EMPTY_SLOTS = 0.04  # of the layer slots of a pipeline
LEAST_CONTEXT = 4096.0  # tokens of a sequence that one chip of a context group should keep
FIELDS = tuple(field.name for field in dataclasses.fields(ParallelLayout))
SWITCHES = FIELDS[FIELDS.index("recompute_full") + 1 :]
"""As in the scenario, unless they may vary; the fields before them are searched."""


def candidates(given: Given, chips: float, choices: Mapping[str, tuple[float, float]] | None = None) -> Lattice:
    """All layouts that divide at most `chips` chips, the scenario's own among them.

    Tensor parallelism stays within a node; pipelines and interleavings are powers of two or divide the layers;
    ZeRO 2 and 3, and recomputation none or full (selective where attention scores are kept), are the ends of
    what memory costs: stages 0 and 1 send the same bytes as 2 and keep more. `choices` are ranges of fields: a switch
    takes both ends of its range, all else must lie within.
    """
    choices = choices or {}
    workload, own = given.system.workload, given.plan.layout
    layers, node = round(float(workload.layers)), round(float(given.system.node.chips))
    tensors = [t for t in _powers(min(node, chips)) if float(workload.heads) % t == 0]
    pipelines = [p for p in _pipelines(layers) if p <= chips]
    contexts = [c for c in _powers(chips) if c == 1 or float(workload.sequence) / c >= LEAST_CONTEXT]
    experts = _powers(min(chips, float(workload.experts)))
    recomputations = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)][: 2 + int(float(workload.flash) < 1.0)]
    rows = [
        (t, p, v, c, e, b, float(t > 1), 1.0, 1.0, shard_parameters, *recomputation)
        for t, p, c, e in itertools.product(tensors, pipelines, contexts, experts)
        if t * p * max(c, e) <= chips
        for v, b, shard_parameters, recomputation in itertools.product(
            _between(math.ceil(layers / p), layers // p) if p > 1 else [1], MICROBATCHES, (0.0, 1.0), recomputations
        )
    ]
    switches = [sorted(set(choices.get(name, (float(getattr(own, name)),)))) for name in SWITCHES]
    chosen = [float(getattr(own, name)) for name in FIELDS]
    table = np.array([(*row, *switch) for row in rows for switch in itertools.product(*switches)] + [chosen])
    # Each product has one precision.
    table = table[table[:, [FIELDS.index(name) for name in PRECISIONS]].sum(axis=1) <= 1.0]
    for name, (low, high) in choices.items():
        column = table[:, FIELDS.index(name)]
        table = table[(low <= column) & (column <= high)]
    if not len(table):
        asked = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in choices.items())
        raise InputError(f"plan.layout: no layout has {asked}. Give wider ranges.")
    return jax.tree.map(np.asarray, jax.vmap(ParallelLayout)(*np.unique(table, axis=0).T))


def _powers(limit: int | float) -> list[int]:
    return [2**k for k in range(int(math.log2(max(1.0, limit))) + 1)]


def _pipelines(layers: int) -> list[int]:
    """Degrees that are powers of two, or leave at most a few percent of the layer slots empty."""
    full = [p for p in range(1, layers + 1) if math.ceil(layers / p) * p <= layers * (1.0 + EMPTY_SLOTS)]
    return sorted({*_powers(layers), *full})


def _between(most: int, dividend: int) -> list[int]:
    """Counts from 1 to `most` that are powers of two, divide the layers, or are the most."""
    divisors = [d for d in range(1, most + 1) if dividend > 0 and dividend % d == 0]
    return sorted({*_powers(most), *divisors, most})


def take(lanes: Any, places: np.ndarray) -> Any:
    """The lanes at some places, of layouts or anything else with a leading axis."""
    return jax.tree.map(lambda leaf: leaf[places], lanes)


def layout_word(layout: ParallelLayout) -> str:
    """A layout in one word, such as t4·p8·v16·c2·b1, with ZeRO 3 and recomputation where they act."""
    degrees = [f"{short}{float(getattr(layout, name)):g}" for name, short in _LAYOUT.items()]
    degrees = [word for word in degrees if word[1:] != "1" or word[0] in "tp"]
    if float(layout.shard_parameters):
        degrees.append("z3")
    if float(layout.recompute_full):
        degrees.append("full")
    elif float(layout.recompute_attention):
        degrees.append("selective")
    return "·".join(degrees)


def fits(problem: Problem, lattice: Lattice, chips: float) -> Bool[np.ndarray, " layouts"]:
    """Which layouts fit into memory at their best: all the chips, one micro-batch in flight."""
    return np.asarray(_least_memory(problem.given, lattice, chips)) <= problem.limits["memory"]


@Compiled
def _least_memory(given: Given, lattice: Lattice, chips: Numeric) -> Float[Array, " layouts"]:
    def least(layout: ParallelLayout) -> Array:
        group = layout.tensor * layout.pipeline * layout.context
        data = jnp.maximum(1.0, jnp.floor(chips / group))
        batch = data * layout.microbatch * given.system.workload.sequence
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.layout), given.plan, (data * group, layout))
        return chip_memory(given.system, plan, divide(given.system, plan, batch)).total

    return jax.vmap(least)(lattice)


def chips_per_replica(layout: Lattice) -> np.ndarray:
    """Least chips of a layout: a model replica, or as many replicas as the experts divide over."""
    expert = np.maximum(np.asarray(layout.context), np.asarray(layout.expert))
    return np.asarray(layout.tensor) * np.asarray(layout.pipeline) * expert


@dataclasses.dataclass(frozen=True)
class Screened:
    """What a grid says of each layout: its best point and how good it is, and the values of all points."""

    start: Float[np.ndarray, "layouts n"]
    merit: Float[np.ndarray, " layouts"]
    values: Values

    def best(self, count: int) -> np.ndarray:
        """Places of the best layouts, best first."""
        return np.argsort(self.merit, kind="stable")[:count]


VIOLATION_PRICE = 10.0
COARSE = {
    "plan.batch": np.array([0.5, 0.85, 1.5, 4.0]),
    "plan.clock": np.array([0.8, 1.0]),
    "plan.chips": np.array([0.5, 1.0]),
}
FINE = {
    "plan.batch": np.exp(np.linspace(np.log(0.25), np.log(8.0), 8)),
    "plan.clock": np.array([0.7, 0.85]),
    "plan.coolant_temperature": np.array([0.97, 1.0, 1.04]),
    "plan.chips": np.array([0.5, 1.0]),
}
"""Grids of a screening, as multiples of the scenario's own values; other variables keep theirs.

The fine one serves starts. At clocks that the rated power does not let the chips reach, nothing depends on the clock
and a search stands still: it starts below.
"""


def screen(
    problem: Problem, lattice: Lattice, steps: dict[str, np.ndarray], around: Float[np.ndarray, " n"] | None = None
) -> Screened:
    """Evaluate all layouts on a grid [see `grid_points`].

    The merit of a point is the logarithm of the objective plus a price on what it violates, so that layouts which
    the search can still make feasible rank before hopeless ones.
    """
    points = grid_points(problem, lattice, steps, around)
    values = evaluate_points(problem.form, points, lattice, problem.target, problem.given)
    violation = np.sum(np.maximum(values.inequalities, 0.0), axis=-1)
    merit = np.where(np.isfinite(values.objective), values.objective + VIOLATION_PRICE * violation, np.inf)
    best = np.argmin(merit, axis=1)
    row = np.arange(len(best))
    return Screened(points[row, best], merit[row, best], values)


def grid_points(
    problem: Problem, lattice: Lattice, steps: dict[str, np.ndarray], around: Float[np.ndarray, " n"] | None = None
) -> Float[np.ndarray, "layouts points n"]:
    """Coordinates of a grid for each layout, with at least the chips of a replica.

    Variables without steps keep the scenario's value, or that of the point that the grid is `around`.
    """
    grid = _grid(problem, steps)
    if around is not None:
        kept = [place for place, path in enumerate(problem.form.paths) if path not in steps]
        grid[:, kept] = around[kept]
    least = chips_per_replica(lattice)
    points = np.broadcast_to(grid, (len(least), *grid.shape)).copy()
    place = problem.index("plan.chips")
    if place is not None:
        points[..., place] = np.maximum(points[..., place], np.log(least)[:, None])
    return points


def _grid(problem: Problem, steps: dict[str, np.ndarray]) -> np.ndarray:
    axes = []
    for path in problem.form.paths:
        values = np.clip(problem.start(path) * steps.get(path, np.ones(1)), *problem.bounds[path])
        if path == "plan.chips":  # as many as there may be, however few the scenario has
            values = np.append(values, problem.bounds[path][1])
        axes.append(np.unique(problem.form.coordinate(path, values)))
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


CHUNK = 4096


def evaluate_points(
    form: Form, points: Float[np.ndarray, "layouts points n"], lattice: Lattice, target: Target, given: Given
) -> Values:
    """Objective and rows of every layout at each of its points, in chunks of one compiled size.

    There is one target for all layouts, or one for each.
    """
    layouts, count, size = points.shape
    flat = points.reshape(-1, size)
    owner = np.repeat(np.arange(layouts), count)
    targets = jax.tree.map(lambda leaf: np.broadcast_to(leaf, layouts), target)

    def chunk(first: int) -> Values:
        index = np.resize(np.arange(first, min(first + CHUNK, len(flat))), CHUNK)
        part = take((lattice, targets), owner[index])
        return jax.tree.map(np.asarray, _values(form, flat[index], *part, given))

    values = concurrently(chunk, range(0, len(flat), CHUNK))
    total = len(flat)
    return Values(
        np.concatenate([one.objective for one in values])[:total].reshape(layouts, count),
        np.concatenate([one.inequalities for one in values])[:total].reshape(layouts, count, -1),
    )


@Compiled
def _values(form: Form, points: Array, lattice: Lattice, targets: Target, given: Given) -> Values:
    return jax.vmap(form, in_axes=(0, 0, 0, None))(points, lattice, targets, given)
