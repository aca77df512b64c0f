"""Tiles of `energymodel.sweeps` evaluated by the fused kernel.

A chunk of the grid is a product of axes in itself. The kernel runs over its last axes, which have equal steps or
ratios; values of the axes before them, such as layouts, are parameters of one call after the other. The best points
merge with those of the calls before. Tiles, their states and their files are those of XLA, so that engines and ledgers
need not know which of the two evaluates.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.sweeps import axes as sweep_axes
from energymodel.sweeps import grid as sweep_grid
from energymodel.sweeps.best_points import Points, Top, lowest
from energymodel.sweeps.tile_program import TileProgram
from energymodel_kernels.fused_sweep.keep import MOST_POINTS, Best
from energymodel_kernels.fused_sweep.kernel import scan, select
from energymodel_kernels.fused_sweep.reference import Search
from energymodel_kernels.fused_sweep.scan_axes import Axis, Grid, unravel
from energymodel_kernels.fused_sweep.tiles import choose_tile

EQUAL = 1e-9
"""Relative error of the values of an axis with equal steps."""


def obstacle(program: TileProgram) -> str:
    """Why the kernel cannot evaluate a sweep, or nothing."""
    keep, grid = program.reduction, program.grid
    if not isinstance(keep, Top):
        return "a kernel keeps best and top only"
    if keep.count + keep.spare > MOST_POINTS:
        return f"a kernel keeps at most top:{MOST_POINTS - keep.spare}"
    if program.bits != 32:
        return "a kernel scans in 32 bits"
    last = grid.axes[-1]
    return f"a kernel needs equal steps or ratios of {last.name}" if steps_of(last) is None else ""


class Steps(NamedTuple):
    """Values with equal steps, or with equal steps of their logarithm."""

    step: np.float32
    logarithmic: bool

    def value(self, first: Any, position: Any) -> Any:
        """Value that many steps after the first one."""
        return first * jnp.exp(self.step * position) if self.logarithmic else first + self.step * position


def steps_of(axis: sweep_axes.Axis) -> Steps | None:
    """Steps of an axis; `None` for choices and for values with other distances."""
    if not axis.numeric:
        return None
    values, steps = np.asarray(axis.values, np.float64), max(1, len(axis) - 1)
    first, last = float(values[0]), float(values[-1])
    if np.allclose(values, np.linspace(first, last, len(axis)), EQUAL, EQUAL * np.max(np.abs(values))):
        return Steps(np.float32((last - first) / steps), False)
    if np.all(values > 0.0) and np.allclose(values, np.geomspace(first, last, len(axis)), EQUAL, 0.0):
        return Steps(np.float32(np.log(last / first) / steps), True)
    return None


class KernelTileProgram(TileProgram):
    """The tiles of a sweep by the fused kernel; `implementation` is one of `backends.IMPLEMENTATIONS`."""

    def __init__(self, *arguments: Any, implementation: str) -> None:
        super().__init__(*arguments)
        self.name = implementation

    @classmethod
    def of(cls, program: TileProgram, implementation: str) -> "KernelTileProgram":
        """The same tiles by the kernel."""
        arguments = (program.function, program.grid, program.reduction, program.bits, program.quick)
        return cls(*arguments, implementation=implementation)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (super().__reduce__()[1], self.name)

    def trace(self, arrays: Any, values: Any, hint: Any, first: Any, count: Any) -> Points:
        """See `TileProgram.trace`."""
        function, grid, reduction = eqx.combine(arrays, self._static), self.grid, self.reduction
        assert isinstance(reduction, Top)
        keep, dtype = Best(reduction.count + reduction.spare), np.float32
        calls, shape = grid.shape[: _called(grid)], grid.shape[_called(grid) :]
        places = Grid(tuple(f"place{n}" for n in range(len(shape))), tuple(Axis(0, n - 1, n) for n in shape))
        tile = choose_tile(places, self.name, keep)
        inner, each = prod(places.split(tile.inner)[1]), np.int32(prod(calls))
        formula = _formula(self)

        def step(turn: Any, state: Points) -> Points:
            number, call = first + jax.lax.div(turn, each), jax.lax.rem(turn, each)
            own, _, start = grid.chunk_values(values, number)
            at = unravel(call, calls)
            fixed = [
                jax.tree.map(lambda leaf, index=index: leaf[index], value)
                for value, index in zip(own[grid.cut :], at, strict=False)
            ]
            firsts = [value[0] for value in own[grid.cut + len(calls) :]]
            room = jnp.asarray(len(grid.axes[grid.cut]) - start - (at[0] if calls else 0), dtype)
            sought = Search(formula, places, (function, [*own[: grid.cut], *fixed], firsts, room), (), keep, dtype)
            least, where = scan(sought, tile, self.name, approximate=False)

            def better(_: None) -> Points:
                best = select(sought, tile, least, where)
                spots = call * np.int32(prod(shape)) + best.outer * np.int32(inner) + best.inner
                new = Points(best.objective, jnp.full_like(spots, number), spots)
                return lowest(state, new, keep.count, jnp)

            return jax.lax.cond(jnp.min(least) < state.value[-1], better, lambda _: state, None)

        return jax.lax.fori_loop(0, count * each, step, reduction.init(grid))


def _remade(arguments: tuple[Any, ...], implementation: str) -> KernelTileProgram:
    return KernelTileProgram(*arguments, implementation=implementation)


def _called(grid: sweep_grid.Grid) -> int:
    """How many axes of a chunk have one value in a call: those up to the last one without equal steps."""
    return max(
        (position + 1 for position, axis in enumerate(grid.axes[grid.cut :]) if steps_of(axis) is None), default=0
    )


def _formula(program: TileProgram) -> Callable[[Any, Any], Any]:
    """What to minimize at a place of a call; infinite where a limit is broken or the place is padding."""
    grid, reduction = program.grid, program.reduction
    names, called = [axis.name for axis in grid.axes], _called(grid)
    steps = [steps_of(axis) for axis in grid.axes[grid.cut + called :]]
    smallest = np.finfo(np.float32).min  # the kernel leaves out what is infinitely low

    def formula(position: Any, arguments: Any) -> tuple[Any, tuple[()]]:
        function, fixed, firsts, room = arguments
        varied = [
            step.value(value, at) for step, value, at in zip(steps, firsts, position, strict=True) if step is not None
        ]
        picked = reduction.pick(function(**dict(zip(names, (*fixed, *varied), strict=True))))
        inside = (0.0 if called else position[0]) < room
        return jnp.where(inside, jnp.maximum(picked, smallest), np.float32(jnp.inf)), ()

    return formula
