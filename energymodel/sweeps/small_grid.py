"""A small grid of a scenario: its points are evaluated in float64 by one program that is kept for all such grids."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.grid_sample import evaluate_points
from energymodel.sweeps.scenario_axes import ScenarioModel
from energymodel.sweeps.tile_program import TileProgram
from energymodel.units import counted

SMALL = 2**18
"""Most points of a small grid: by the kept program they take less time than another program takes to compile."""
TIMED_POINTS = 1024


def is_small(function: Callable[..., Any], points: int) -> bool:
    """Whether a grid of so many points is evaluated by the program that is kept for all grids of a scenario."""
    return points <= SMALL and isinstance(function, ScenarioModel)


class Lookup(eqx.Module):
    """Outputs at all points of a grid as a function of the indices along its axes."""

    columns: dict[str, Any]

    def __call__(self, **indices: Any) -> dict[str, Any]:
        """The outputs at one point."""
        return {name: jnp.asarray(column)[tuple(indices.values())] for name, column in self.columns.items()}


class SmallGrid(TileProgram):
    """Looks up what `ScenarioModel.many` returned at all points of a small grid; a tile evaluates none."""

    name = "the model in float64"
    outputs: Lookup | None = None

    @property
    def reason(self) -> str:
        """Why it has no program of its own."""
        return f"a grid of {counted(self.grid.points, 'point')} needs no program of its own"

    def digest(self) -> str:
        """It is the same for all scenarios."""
        return self.name

    def scanned(self) -> tuple[Callable[..., Any], Sequence[Axis]]:
        """The outputs at all points, and the indices along the axes."""
        sizes = self.grid.sizes
        if self.outputs is None:
            dtype = np.float32 if self.bits == 32 else np.float64
            columns = self._outputs(self.grid.points)
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, as where XLA evaluates it
                self.outputs = Lookup({name: np.reshape(part, sizes).astype(dtype) for name, part in columns.items()})
        return self.outputs, [Axis(name, np.arange(size)) for name, size in zip(self.grid.names, sizes, strict=True)]

    def __reduce__(self) -> tuple[Any, ...]:
        self.scanned()
        return *super().__reduce__(), {"outputs": self.outputs}  # evaluated once, not by each worker

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few points."""
        count, seconds = min(TIMED_POINTS, self.grid.points), 0.0
        for _ in range(2):  # the first one warms up
            start = time.perf_counter()
            self._outputs(count)
            seconds = time.perf_counter() - start
        return seconds / count * self.grid.volume

    def memory(self) -> int:
        """Memory of all outputs, as they are evaluated and as they are looked up [B]."""
        return len(self._outputs(1)) * self.grid.points * (8 + self.bits // 8)

    def _outputs(self, count: int) -> dict[str, np.ndarray]:
        """All outputs at the first points."""
        indices = np.unravel_index(np.arange(count), self.grid.sizes)
        return evaluate_points(self.function, self.axes, np.stack(indices, axis=1).tolist())
