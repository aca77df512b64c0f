"""What is kept of a grid: the best points, the best along some axes, counts?

A reduction reads each chunk of points once and keeps a small state; states of tiles merge in the order of the tiles.
Work that only a better point needs hides behind one comparison per chunk.
"""

import dataclasses
import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.sweeps.grid import Grid

FEASIBLE = "feasible"
"""An output of this name, if there is one, tells whether a point may be kept."""
MARGIN = 0.05  # of the range of a sample, in logarithms where it is positive
RESOLVED = 1e-5  # of a mean: smaller deviations drown in the rounding of float32
Range = tuple[float, float]


class Chunk(NamedTuple):
    """Where a reduction stands: number of the chunk, its place in the tile, its leading indices, its first block index.

    `valid` is `None`, or tells by broadcasting which points are no padding.
    """

    grid: Grid
    number: Any
    place: Any
    leading: tuple[Any, ...]
    start: Any
    valid: Any


class AbstractReduction:
    """What is kept of a grid. Subclass it to keep something else.

    `pick` and `update` are traced; `merge` and `result` run on the host, on NumPy arrays.
    """

    looks_for_points = False
    """Whether it keeps points of the grid, so that none means that none is feasible."""
    ranked = True
    """Whether the points that it keeps have an order, by value."""

    contiguous = False
    """Whether the state of a stretch of tiles says nothing of which tiles they are, so that none may be left out."""
    alone: bool = False
    """Whether points of a large model share no operations, so that short runs are compiled for less time."""

    @property
    def shown(self) -> int | None:
        """How many of the points that it keeps are shown; `None` is all."""
        return None

    def prepare(self, sampled: "Sampled") -> "AbstractReduction":
        """The same reduction with what it takes from a sample of the grid, such as ranges of bins."""
        return self

    def pick(self, outputs: Any) -> Any:
        """What `update` needs of the outputs of one point; everything else is never computed."""
        return outputs

    @abstractmethod
    def init(self, grid: Grid) -> Any:
        """State of a tile before its first chunk: a pytree of arrays."""

    @abstractmethod
    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """State after a chunk; `picked` has the shape of the chunk on every leaf."""

    @abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """State of two stretches of tiles, the first one before the second; associative."""

    def start(self, state: Any) -> Any:
        """State of the first tile in the form in which others are merged with it."""
        return state

    def fold(self, states: Iterable[Any]) -> Any:
        """State of the whole grid, from those of all tiles in their order."""
        states = iter(states)
        return functools.reduce(self.merge, states, self.start(next(states)))

    def kept_points(self, state: Any, grid: Grid) -> list[tuple[int, ...]]:
        """Indices of the points that are to be evaluated again in float64."""
        return []

    def efficient(self, outputs: Mapping[str, np.ndarray]) -> list[int] | None:
        """Which of the points that it keeps are shown, in this order; `None` is all, by value."""
        return None

    def complaint(self, state: Any) -> str:
        """What a person must know before trusting the result."""
        return ""

    def result(self, state: Any, grid: Grid) -> Any:
        """What a person gets."""
        return None


class Sampled:
    """Outputs at points that are spread over a grid, in float64; computed when first asked for."""

    def __init__(self, outputs: Callable[[], Mapping[str, np.ndarray]]) -> None:
        self._outputs = functools.cache(outputs)

    def range(self, name: str, limits: Mapping[str, Range]) -> Range:
        """Least and largest finite value of an output within limits, with a margin; within none if there are none.

        **Raises:** `InputError` where no value is finite.
        """
        outputs = self._outputs()
        values = np.asarray(outputs[name], np.float64)
        verdict = np.broadcast_to(np.asarray(feasible(outputs, limits)), values.shape)
        finite = np.isfinite(values)
        values = values[verdict & finite] if np.any(verdict & finite) else values[finite]
        if not values.size:
            raise InputError(f"{name}: finite at none of the points of a sample. Give the range of the bins.")
        low, high = float(values.min()), float(values.max())
        if low > 0.0:
            factor = max((high / low) ** MARGIN, 1.0 + MARGIN)
            return low / factor, high * factor
        width = MARGIN * max(high - low, abs(high), MARGIN)
        return low - width, high + width

    def moments(self, name: str) -> tuple[float, float]:
        """Mean and standard deviation of the finite values of an output; never so small that float32 cannot resolve it.

        **Raises:** `InputError` where no value is finite.
        """
        values = np.asarray(self._outputs()[name], np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            raise InputError(f"{name}: finite at none of the points of a sample.")
        mean = float(values.mean())
        return mean, max(float(values.std()), RESOLVED * abs(mean)) or 1.0

    def positive_range(self, name: str, limits: Mapping[str, Range]) -> Range:
        """The same for an output that is to be positive.

        **Raises:** `InputError` where it is not.
        """
        low, high = self.range(name, limits)
        if low <= 0.0:
            raise InputError(f"{name}: not positive on all of a sample, so it has no logarithmic bins. Use pareto.")
        return low, high


def feasible(outputs: Any, limits: Mapping[str, Range]) -> Any:
    """Whether the outputs of a point lie within limits, `low <= output <= high`, and its own verdict holds."""
    verdict = output_of(outputs, FEASIBLE) if _has(outputs, FEASIBLE) else True
    for name, (low, high) in limits.items():
        value = output_of(outputs, name)
        verdict = verdict & (value >= low) if low > -math.inf else verdict
        verdict = verdict & (value <= high) if high < math.inf else verdict
    return verdict


def output_of(outputs: Any, name: str | Callable[[Any], Any]) -> Any:
    """An output by name, or by a function of all outputs."""
    if callable(name):
        return name(outputs)
    return outputs[name] if isinstance(outputs, Mapping) else getattr(outputs, name)


def _has(outputs: Any, name: str) -> bool:
    return name in outputs if isinstance(outputs, Mapping) else hasattr(outputs, name)


def least_or_inf(value: Any, permitted: Any) -> Any:
    """The value where it is permitted and a finite number, infinity elsewhere."""
    value = jnp.asarray(value)
    return jnp.where(permitted & (jnp.abs(value) < jnp.inf), value, jnp.inf)


def float_dtype() -> Any:
    """Floating-point type of the precision in which a sweep runs."""
    return jnp.result_type(float)


def masked(value: Any, chunk: Chunk) -> Any:
    """Infinity instead of padding."""
    return value if chunk.valid is None else jnp.where(chunk.valid, value, jnp.inf)


class Points(NamedTuple):
    """Points by value, chunk and place in it; those that were not found have infinite value."""

    value: Any
    chunk: Any
    place: Any


@dataclasses.dataclass(frozen=True)
class Top(AbstractReduction):
    """The `count` points of least `value` within `limits`, ties in the order of the grid.

    `spare` more are kept, so that a second look in float64 can correct the order of what float32 cannot tell apart.
    """

    value: str | Callable[[Any], Any]
    count: int = 1
    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    spare: int = 31

    looks_for_points = True

    @property
    def shown(self) -> int:
        """Points without the spare ones."""
        return self.count

    @property
    def kept(self) -> int:
        """Points in the state."""
        return self.count + self.spare

    def pick(self, outputs: Any) -> Any:
        """The value, infinite where a limit is broken."""
        return least_or_inf(output_of(outputs, self.value), feasible(outputs, self.limits))

    def init(self, grid: Grid) -> Points:
        """No points."""
        none = jnp.zeros(self.kept, jnp.int32)
        return Points(jnp.full(self.kept, jnp.inf, float_dtype()), none, none)

    def update(self, state: Points, picked: Any, chunk: Chunk) -> Points:
        """Merge the best of the chunk, if one of them is better than the last one kept."""
        picked = masked(picked, chunk)

        def better(_: None) -> Points:
            flat = picked.reshape(-1)
            if self.kept == 1:
                place = jnp.argmin(flat).astype(jnp.int32)
                return Points(flat[place][None], jnp.asarray(chunk.number, jnp.int32)[None], place[None])
            least, places = jax.lax.top_k(-flat, min(self.kept, flat.size))
            numbers = jnp.full(places.shape, chunk.number, jnp.int32)
            return _least(state, Points(-least, numbers, places.astype(jnp.int32)), self.kept, jnp)

        return jax.lax.cond(jnp.min(picked) < state.value[-1], better, lambda _: state, None)

    def merge(self, first: Points, second: Points) -> Points:
        """The least of both, those of the first before equal ones of the second."""
        return _least(first, second, self.kept, np)

    def kept_points(self, state: Points, grid: Grid) -> list[tuple[int, ...]]:
        """Indices of the points found."""
        return places(state, grid)


def places(points: Points, grid: Grid) -> list[tuple[int, ...]]:
    """Indices of the points that were found."""
    found = np.isfinite(points.value)
    return [
        grid.index(int(chunk), int(place))
        for chunk, place in zip(np.asarray(points.chunk)[found], np.asarray(points.place)[found], strict=True)
    ]


def lesser(first: Points, second: Points) -> Points:
    """The lesser of each pair, the first where they are equal."""
    wins = second.value < first.value
    return Points(*(np.where(wins, later, sooner) for sooner, later in zip(first, second, strict=True)))


def _least(first: Points, second: Points, count: int, xp: Any) -> Points:
    both = Points(*(xp.concatenate(pair) for pair in zip(first, second, strict=True)))
    order = xp.argsort(both.value, stable=True)[:count]
    return Points(*(part[order] for part in both))


@dataclasses.dataclass(frozen=True)
class Count(AbstractReduction):
    """How many points obey the limits."""

    limits: Mapping[str, Range] = dataclasses.field(default_factory=dict)

    def pick(self, outputs: Any) -> Any:
        """Whether the point obeys them."""
        return jnp.asarray(feasible(outputs, self.limits))

    def init(self, grid: Grid) -> Any:
        """None yet."""
        return jnp.zeros((), jnp.int32)

    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """Add those of the chunk."""
        counted = picked if chunk.valid is None else picked & chunk.valid
        return state + jnp.sum(counted, dtype=jnp.int32)

    def merge(self, first: Any, second: Any) -> Any:
        """Sum, in 64 bits."""
        return np.asarray(first, np.int64) + np.asarray(second, np.int64)

    def start(self, state: Any) -> Any:
        """The same in 64 bits."""
        return np.asarray(state, np.int64)

    def result(self, state: Any, grid: Grid) -> int:
        """The number."""
        return int(state)
