"""How is a small grid evaluated without a program of its own? By one that is kept for all grids of a model."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.grid_sample import evaluate_points
from energymodel.sweeps.scenario_model import ScenarioModel
from energymodel.sweeps.tile_program import TileProgram

SMALL = 2**18
"""Most points of a small grid: by the kept program they take less time than another program takes to compile."""
TIMED = 1024  # points


def is_small(function: Callable[..., Any], points: int) -> bool:
    """Whether a grid of so many points is evaluated by the program that is kept for all grids of a scenario."""
    return points <= SMALL and isinstance(function, ScenarioModel)


def small_grid(program: TileProgram) -> "SmallGrid | None":
    """The same tiles without a program of their own, if their grid is small."""
    if not is_small(program.function, program.grid.points):
        return None
    return SmallGrid(program.function, program.grid, program.reduction, program.bits, quick=True)


class SmallGrid(TileProgram):
    """Looks up what `ScenarioModel.many` returned at all points of a small grid; a tile evaluates none."""

    name = "the model in float64"

    @cached_property
    def arguments(self) -> tuple[Any, Sequence[Any]]:
        """The outputs at all points, and the places along the axes."""
        sizes = [len(axis) for axis in self.grid.axes]
        outputs = self._outputs(self.grid.points)
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, as where XLA evaluates it
            columns = {name: np.reshape(column, sizes).astype(self.dtype) for name, column in outputs.items()}
        places = tuple(Axis(axis.name, np.arange(size)) for axis, size in zip(self.grid.axes, sizes, strict=True))
        return columns, dataclasses.replace(self.grid, axes=places).values(self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"arguments": self.arguments}  # evaluated once, not by each worker

    def point(self, arrays: Any) -> Callable[..., Any]:
        """The outputs at one point, from its places along the axes."""
        return lambda **places: {name: column[tuple(places.values())] for name, column in arrays.items()}

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few points."""
        count, seconds = min(TIMED, self.grid.points), 0.0
        for _ in range(2):  # the first one warms up
            start = time.perf_counter()
            self._outputs(count)
            seconds = time.perf_counter() - start
        return seconds / count * self.grid.volume

    def memory(self) -> int:
        """Memory of all outputs, as they are evaluated and as they are looked up [B]."""
        each = np.dtype(np.float64).itemsize + np.dtype(self.dtype).itemsize
        return len(self._outputs(1)) * self.grid.points * each

    def _outputs(self, count: int) -> dict[str, np.ndarray]:
        """All outputs at the first points."""
        axes = self.grid.axes
        indices = np.unravel_index(np.arange(count), [len(axis) for axis in axes])
        return evaluate_points(self.function, axes, np.stack(indices, axis=1).tolist())
