"""A small grid of a scenario: its points are evaluated in float64 by one program that is kept for all such grids."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.points import evaluate_points
from energymodel.sweeps.tile_program import TileProgram, timed
from energymodel.units import counted

SMALL = 2**18
"""Most points of a small grid: by the kept program they take less time than another program takes to compile."""
TIMED_POINTS = 1024


class Lookup(eqx.Module):
    """Outputs at all points of a grid as a function of the indices along its axes."""

    columns: dict[str, Any]

    def __call__(self, **indices: Any) -> dict[str, Any]:
        """The outputs at one point."""
        return {name: jnp.asarray(column)[tuple(indices.values())] for name, column in self.columns.items()}


class SmallGrid(TileProgram):
    """Looks up what `ScenarioModel.many` returned at all points of a small grid; a tile evaluates none."""

    name = "the model in float64"

    @property
    def reason(self) -> str:
        """Why it has no program of its own."""
        return f"a grid of {counted(self.grid.points, 'point')} needs no program of its own"

    @cached_property
    def outputs(self) -> Lookup:
        """The outputs at all points, when first needed: a finished sweep evaluates nothing."""
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, as where XLA evaluates it
            columns = {name: part.astype(self.dtype) for name, part in self._first_outputs(self.grid.points).items()}
        return Lookup({name: np.reshape(column, self.grid.sizes) for name, column in columns.items()})

    def scanned(self) -> tuple[Callable[..., Any], Sequence[Axis]]:
        """The outputs at all points, and the indices along the axes."""
        grid = self.grid
        return self.outputs, [Axis(name, np.arange(size)) for name, size in zip(grid.names, grid.sizes, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"outputs": self.outputs}  # evaluated once, not by each worker

    def digest(self) -> str:
        """It is the same for all scenarios."""
        return self.name

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few points."""
        count = min(TIMED_POINTS, self.grid.points)
        return timed(lambda: self._first_outputs(count)) / count * self.grid.volume

    def memory(self) -> int:
        """Memory of all outputs, as they are evaluated and as they are looked up [B]."""
        return len(self._first_outputs(1)) * self.grid.points * (8 + self.bits // 8)

    def _first_outputs(self, count: int) -> dict[str, np.ndarray]:
        indices = np.unravel_index(np.arange(count), self.grid.sizes)
        return evaluate_points(self.function, self.axes, np.stack(indices, axis=1))
