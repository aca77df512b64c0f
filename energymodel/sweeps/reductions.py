"""The contract of a reduction: what a sweep keeps of its points.

A reduction reads each chunk of points once and keeps a small state. The states of tiles merge in the order of the
tiles. Work that only a better point needs hides behind one comparison per chunk.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import GridSample


class Chunk(NamedTuple):
    """Position of an update in the grid.

    - `number`, `position`: number of the chunk in the grid, and in its tile.
    - `leading`: indices of the axes that have one value in a chunk; `start` is the first index of the axis that is cut.
    - `valid`: which points are not padding, in a shape that broadcasts; `None` if all are.
    - `hint`: what the reduction makes of a sample of the grid, see `AbstractReduction.hint`.
    """

    grid: Grid
    number: Any
    position: Any
    leading: tuple[Any, ...]
    start: Any
    valid: Any
    hint: Any = None

    def masked(self, values: Any, padding: Any) -> Any:
        """Values with `padding` in place of the points that are padding."""
        return values if self.valid is None else jnp.where(self.valid, values, padding)


class AbstractReduction(ABC):
    """What a sweep keeps. Subclass it to keep something else.

    `pick` and `update` are traced; `merge` and `result` run on the host, on NumPy arrays. Finite floats of one that JAX
    knows as a pytree (`jax.tree_util.register_dataclass`) are traced, so that one program serves all limits and ranges.
    """

    @abstractmethod
    def pick(self, outputs: Any) -> Any:
        """What `update` needs of the outputs of one point; everything else is never computed."""

    @abstractmethod
    def init(self, grid: Grid) -> Any:
        """State of a tile before its first chunk: a pytree of arrays."""

    @abstractmethod
    def update(self, state: Any, picked: Any, chunk: Chunk) -> Any:
        """State after a chunk; every leaf of `picked` has the shape of the chunk, padding included."""

    @abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """State of two groups of tiles, the first before the second; associative."""

    @abstractmethod
    def result(self, state: Any, grid: Grid) -> Any:
        """The result for the user, from the state of one tile or the merged state of many."""

    def scaled_to(self, sample: GridSample) -> Self:
        """The same reduction with the ranges of its bins, taken from a sample of the grid unless it has them."""
        return self

    def hint(self, state: Any) -> Any:
        """What every tile may know of points elsewhere: arrays of fixed shapes, from a state; or nothing.

        A few chunks spread over the grid are evaluated first and merged. Their hint reaches `update` with every chunk,
        so that each tile leaves out what these points rule out. It must not rule out a point of the final result.
        """
        return None


class AbstractSum(AbstractReduction):
    """A reduction whose states add up; in 64 bits, which the counts and sums of a whole grid need."""

    def merge(self, first: Any, second: Any) -> Any:
        """Sums of the leaves."""
        return jax.tree.map(lambda left, right: wide(left) + wide(right), first, second)


class AbstractPointReduction(AbstractReduction):
    """A reduction that keeps points of the grid, which are then evaluated again in float64."""

    def result(self, state: Any, grid: Grid) -> Any:
        """Nothing besides the points."""
        return None

    @abstractmethod
    def kept_points(self, state: Any, grid: Grid) -> list[tuple[int, ...]]:
        """The points to evaluate again, as indices along the axes of the grid."""

    @abstractmethod
    def ranked(self, values: np.ndarray, outputs: Mapping[str, np.ndarray]) -> Sequence[int]:
        """Rows of the points to print, best first, from their float64 values to minimize and outputs."""

    def warning(self, state: Any) -> str:
        """What to print with the points, if anything."""
        return ""


def float_dtype() -> np.dtype:
    """Floating-point type of the precision in which a sweep runs."""
    return jnp.result_type(float)


def wide(leaf: Any) -> np.ndarray:
    """Integers and floats in 64 bits."""
    leaf = np.asarray(leaf)
    return leaf.astype(np.int64 if np.issubdtype(leaf.dtype, np.integer) else np.float64)
