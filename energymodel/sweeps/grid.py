"""Division of a grid into chunks and tiles, and the order of its axes in which a model is cheapest.

A chunk is what one step of a scan evaluates: the last axes in full, times a block of the axis before them. A tile is
a fixed number of consecutive chunks. Both follow from the axes and from nothing else, so that a tile gives the same
bits wherever and whenever it is computed. Chunks are numbered in the order of the axes, outermost first, and so are
points within a chunk: a point is known by (chunk, position), which needs no 64-bit integers.

Nested `vmap` evaluates an operation only on the axes that its operands depend on, so a chunk is cheap whose axes few
costly operations share. The operations of the traced model say which those are.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from energymodel.errors import InputError
from energymodel.sweeps.axes import Axis, cast

MOST_CHUNKS = 2**31 - 1
WEIGHTS = {"div": 4.0, "sqrt": 5.0, "rsqrt": 5.0, "exp": 10.0, "exp2": 10.0, "log": 10.0, "pow": 20.0, "lgamma": 50.0}
WEIGHTS |= dict.fromkeys(("log1p", "expm1", "tanh", "logistic", "sin", "cos", "erf"), 15.0)
"""Cost of an operation in multiplications, roughly that of vector code; others cost one."""
START = 100.0  # cost of starting an operation, and each of its rows, in multiplications
LOOP_LENGTH = 40.0  # assumed iterations of a loop of unknown length
MAX_AXES = 12  # for which all orders are compared

Costs = dict[frozenset[int], float]
"""Cost of operations by the axes that they depend on."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Names and lengths of axes, outermost first, and how their product is cut into chunks and tiles.

    Axes before `cut` have one value in a chunk, axes after it all of theirs, and the axis at `cut` a block, its last
    one padded. The last axis has `padding`. A program is compiled for a grid; the values of its axes are arguments.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    cut: int
    block: int
    tile_chunks: int
    padding: int = 0

    @property
    def points(self) -> int:
        """Number of points."""
        return math.prod(self.sizes)

    @property
    def blocks(self) -> int:
        """Blocks of the axis that is cut."""
        return -(-self.sizes[self.cut] // self.block)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the axes, padding included."""
        *inner, last = (*self.sizes[: self.cut], self.blocks * self.block, *self.sizes[self.cut + 1 :])
        return (*inner, last + self.padding)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a chunk: its block, then the axes after it, padding included."""
        return (self.block, *self.lengths[self.cut + 1 :])

    @property
    def volume(self) -> int:
        """Points of a chunk, padding included."""
        return math.prod(self.shape)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return math.prod(self.sizes[: self.cut]) * self.blocks

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return -(-self.chunks // self.tile_chunks)

    def tile(self, number: int) -> tuple[int, int]:
        """First chunk of a tile and the number of its chunks."""
        first = number * self.tile_chunks
        return first, min(self.tile_chunks, self.chunks - first)

    def points_of_tile(self, number: int) -> int:
        """Points of a tile without padding."""
        first, count = self.tile(number)
        last_blocks = (first + count) // self.blocks - first // self.blocks
        missing = last_blocks * (self.blocks * self.block - self.sizes[self.cut])
        return (count * self.block - missing) * math.prod(self.sizes[self.cut + 1 :])

    def index(self, chunk: int, position: int) -> tuple[int, ...]:
        """Indices along the axes of a point of a chunk."""
        *leading, block = np.unravel_index(chunk, (*self.sizes[: self.cut], self.blocks))
        first, *rest = np.unravel_index(position, self.shape)
        return tuple(map(int, (*leading, block * self.block + first, *rest)))

    def values(self, axes: Sequence[Axis], dtype: Any) -> tuple[Any, ...]:
        """Values of all axes in a precision; padding repeats the last one."""
        rows = [np.minimum(np.arange(length), size - 1) for length, size in zip(self.lengths, self.sizes, strict=True)]
        return tuple(
            jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row], cast(axis.values, dtype))
            for axis, row in zip(axes, rows, strict=True)
        )

    def chunk_values(self, values: Sequence[Any], chunk: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
        """What a chunk needs of each axis, the indices of its leading axes, and the first index of its block."""
        leading: tuple[Any, ...] = ()
        rest, start = chunk // self.blocks, chunk % self.blocks * self.block
        for size in reversed(self.sizes[: self.cut]):
            leading = (rest % size, *leading)
            rest = rest // size
        single = [
            jax.tree.map(lambda leaf, index=index: leaf[index], tree)
            for tree, index in zip(values[: self.cut], leading, strict=True)
        ]
        block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, self.block), values[self.cut])
        return (*single, block, *values[self.cut + 1 :]), leading, start

    def valid(self, start: Any) -> Any:
        """Which points of a chunk are not padding, in a shape that broadcasts; `None` if all are."""
        columns = np.arange(self.shape[-1]) < self.sizes[-1] if self.padding else None
        if self.blocks * self.block == self.sizes[self.cut]:
            return columns
        inside = start + jnp.arange(self.block) < self.sizes[self.cut]
        inside = inside.reshape((self.block,) + (1,) * (len(self.shape) - 1))
        return inside if columns is None else inside & columns


def divide(axes: Sequence[Axis], chunk: int, tile: int, lanes: int = 1) -> Grid:
    """Cut a grid, its axes outermost first, into chunks and tiles of at most so many points.

    Long rows are padded to whole vectors of so many `lanes`.

    **Raises:** `InputError` for a grid whose chunks cannot be numbered in 32 bits.
    """
    sizes = tuple(len(axis) for axis in axes)
    cut = len(sizes) - 1
    while cut > 0 and math.prod(sizes[cut:]) <= chunk:
        cut -= 1
    inner = math.prod(sizes[cut + 1 :])
    blocks = -(-sizes[cut] // max(1, chunk // inner))
    block = -(-sizes[cut] // blocks)
    row = block if cut == len(sizes) - 1 else sizes[-1]
    padding = -row % lanes if row >= lanes else 0
    if cut == len(sizes) - 1:
        block, padding = block + padding, 0
    tile_chunks = max(1, tile // (block * inner))
    grid = Grid(tuple(axis.name for axis in axes), sizes, cut, block, tile_chunks, padding)
    if grid.chunks > MOST_CHUNKS:
        raise InputError(
            f"The grid has {grid.points:.3g} points in {grid.chunks:.3g} chunks, more than {MOST_CHUNKS:,} can be "
            "numbered. Give fewer values on an axis, or several sweeps."
        )
    return grid


def costs_by_axes(function: Callable[..., Any], values: Sequence[Any], fixed: Sequence[Any] = ()) -> Costs:
    """Cost of the operations of a function of fixed arguments and values, by the set of values that they depend on."""
    closed = jax.make_jaxpr(function)(*fixed, *values)
    owners = [frozenset[int]() for _ in jax.tree.leaves(fixed)]
    owners += [frozenset({index}) for index, value in enumerate(values) for _ in jax.tree.leaves(value)]
    costs: Costs = {}
    _walk(closed.jaxpr, owners, 1.0, [True] * len(closed.jaxpr.outvars), costs)
    return costs


def _walk(
    jaxpr: Jaxpr, owners: Sequence[frozenset[int]], times: float, wanted: Sequence[bool], costs: Costs
) -> list[frozenset[int]]:
    """Add the costs of what is wanted; the sets that the results depend on."""
    owner: dict[Any, frozenset[int]] = dict(zip(jaxpr.invars, owners, strict=True))
    live = {var for var, want in zip(jaxpr.outvars, wanted, strict=True) if want and not isinstance(var, Literal)}
    needed = []
    for equation in reversed(jaxpr.eqns):
        if any(var in live for var in equation.outvars):
            needed.append(equation)
            live |= {var for var in equation.invars if not isinstance(var, Literal)}

    def owners_of(variables: Sequence[Any]) -> list[frozenset[int]]:
        return [frozenset() if isinstance(var, Literal) else owner.get(var, frozenset()) for var in variables]

    for equation in reversed(needed):
        inputs, name = owners_of(equation.invars), equation.primitive.name
        union = frozenset().union(*inputs)
        inner = list(_inner(equation.params))
        results = [union] * len(equation.outvars)
        if len(inner) == 1 and len(inner[0].invars) == len(inputs) and name not in ("while", "scan"):
            results = _walk(inner[0], inputs, times, [var in live for var in equation.outvars], costs)
        elif inner:
            length = float(equation.params.get("length", LOOP_LENGTH if name == "while" else 1.0))
            for body in inner:
                _walk(body, [union] * len(body.invars), times * length, [True] * len(body.outvars), costs)
        else:
            costs[union] = costs.get(union, 0.0) + times * WEIGHTS.get(name, 1.0)
        owner.update(zip(equation.outvars, results, strict=True))
    return owners_of(jaxpr.outvars)


def _inner(parameters: dict[str, Any]) -> list[Jaxpr]:
    """Programs within an operation, such as the body of a loop."""
    parts = jax.tree.leaves([*parameters.values()], is_leaf=lambda part: isinstance(part, ClosedJaxpr | Jaxpr))
    programs = [part for part in parts if isinstance(part, ClosedJaxpr | Jaxpr)]
    return [part.jaxpr if isinstance(part, ClosedJaxpr) else part for part in programs]


def cheapest_order(costs: Costs, sizes: Sequence[int], chunk: int) -> tuple[int, ...]:
    """Order of the axes, outermost first, in which the grid is cheapest in chunks of so many points.

    All choices of the axes within a chunk are compared, and of the axis that is cut to fill it. Within a chunk the
    longest axis comes last, where it fills vector registers.
    """
    count = len(sizes)
    best, lowest = tuple(range(count)), math.inf
    if count > MAX_AXES:
        return best
    for inner in (set(some) for size in range(count + 1) for some in itertools.combinations(range(count), size)):
        volume = math.prod(sizes[axis] for axis in inner)
        if volume > chunk and len(inner) > 1:
            continue
        rest = [axis for axis in range(count) if axis not in inner]
        for cut in rest or [None]:
            block = 1 if cut is None else min(sizes[cut], max(1, chunk // volume))
            if cut is not None and block == sizes[cut] and len(rest) > 1:
                continue  # it fits as a whole: that is another choice of the inner axes
            extents = {axis: sizes[axis] for axis in inner} | ({} if cut is None else {cut: block})
            total = START * sum(costs.values())  # a short chunk costs as its operations start
            for axes, cost in costs.items():
                row = max((sizes[axis] for axis in axes & inner), default=extents.get(cut, 1) if cut in axes else 1)
                total += cost * math.prod(extents.get(axis, 1) for axis in axes) * (1.0 + START / row)
            if (per_point := total / math.prod(extents.values())) < lowest * (1.0 - 1e-9):
                lead = [axis for axis in rest if axis != cut]
                own = () if cut is None else (cut,)
                best = (*lead, *own, *sorted(inner, key=lambda axis: (sizes[axis], axis)))
                lowest = per_point
    return best
