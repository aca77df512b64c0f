"""The compiled program of a tile, which evaluates and reduces its points without storing them.

A small grid of a scenario has none of its own: its points are evaluated by one that is kept for all its grids.
"""

import dataclasses
import os
import re
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import compiler_options
from energymodel.runtime.substitution import Dialect, portable
from energymodel.sweeps.axes import Axis, cast
from energymodel.sweeps.float32_functions import substitutes
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.grid_sample import evaluate_points
from energymodel.sweeps.reductions import AbstractReduction, Chunk
from energymodel.sweeps.scenario_axes import ScenarioModel

LANES = 8
"""Float32 numbers in a vector register of AVX2; a row of points is padded to whole ones."""
TIMED_CHUNKS = 4
SAMPLED, MOST_SAMPLED = 24, 64
"""One of so many chunks, and at most so many, are evaluated first for hints."""
SMALL = 2**18
"""Most points of a small grid: by the kept program they take less time than another program takes to compile."""
TIMED_POINTS = 1024


class TileProgram:
    """A model over a grid with a reduction, compiled for one tile at a time.

    - `function`: takes the axes by keyword and returns the outputs of one point: a mapping, a named tuple or a module.
      Its arrays are arguments of the program if it is a pytree.
    - `bits`: precision, 32 or 64.
    - `quick`: whether to compile for less time, which pays for a short run.

    `name` is that of who evaluates a chunk; a kernel is a subclass with another `trace`.

    **Raises:** `InputError` for another precision.
    """

    name = "XLA"

    def __init__(
        self,
        function: Callable[..., Any],
        grid: Grid,
        reduction: AbstractReduction,
        bits: int = 32,
        quick: bool = False,
    ) -> None:
        if bits not in (32, 64):
            raise InputError(f"precision: {bits} is neither 32 nor 64 bits.")
        self.function, self.grid, self.reduction, self.bits, self.quick = function, grid, reduction, bits, quick
        self.dtype = np.float32 if bits == 32 else np.float64
        self._arrays, self._static = eqx.partition(cast(function, self.dtype), eqx.is_array)
        self._own_functions = bits == 32 and not quick and jax.default_backend() == "cpu"
        self._lock, self._hint_lock = Lock(), Lock()
        self._program: Any = None
        self._hint: Any = None

    @cached_property
    def arguments(self) -> tuple[Any, Sequence[Any]]:
        """Arrays of the model, and the values of the axes: the first arguments of the program."""
        return self._arrays, self.grid.values(self.dtype)

    def point(self, arrays: Any) -> Callable[..., Any]:
        """The model of one point, from its arrays."""
        return eqx.combine(arrays, self._static)

    def _row(self) -> int:
        """Length of the last axis as it is evaluated: filled up to whole vector registers where the reduction can."""
        length = self.grid.shape[-1]
        if not self._own_functions or not self.reduction.takes_padding or length < LANES or wide_vectors():
            return length
        return length + -length % LANES

    def precision(self) -> Any:
        """Context in which the program is traced and called."""
        return jax.enable_x64(self.bits == 64)

    def options(self) -> dict[str, Any]:
        """Options for `jax.jit` of `trace`."""
        return compiler_options(once=self.quick, tile=True)

    def compile(self) -> Any:
        """Compile the program; later calls do nothing."""
        with self._lock:
            if self._program is None:
                with self.precision():
                    number = jax.ShapeDtypeStruct((), jnp.int32)
                    jitted = jax.jit(self.trace, compiler_options=self.options())
                    arrays = jax.tree.map(np.asarray, (*self.arguments, self.no_hint()))
                    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arrays)
                    self._program = jitted.lower(*shapes, number, number).compile()
            return self._program

    def portable(self) -> bytes:
        """What makes the same program in another process."""
        import cloudpickle

        return cloudpickle.dumps(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function, self.grid, self.reduction, self.bits, self.quick)

    def state_shapes(self) -> Any:
        """Shapes and types of the state of a tile."""
        with self.precision():
            return jax.eval_shape(lambda: self.reduction.init(self.grid))

    def no_hint(self) -> Any:
        """The hint of a state without points."""
        with self.precision():
            return self.reduction.hint(jax.tree.map(np.asarray, self.reduction.init(self.grid)))

    def sampled_hint(self, run: Callable[[Any, int], Any]) -> Any:
        """The hint of a few chunks spread over the grid; `run` gives the state of a chunk under a hint."""
        hint, state = self.no_hint(), None
        if hint is None or self.grid.tiles == 1:
            return hint
        count = min(self.grid.chunks // SAMPLED, MOST_SAMPLED)
        for number in range(count):
            fresh = run(hint, ((2 * number + 1) * self.grid.chunks) // (2 * count))
            state = fresh if state is None else self.reduction.merge(state, fresh)
            hint = self.reduction.hint(state)
        return hint

    def hint(self) -> Any:
        """What every tile knows of a sample of the grid."""
        with self._hint_lock:
            if self._hint is None:
                self._hint = self.sampled_hint(lambda hint, chunk: self._run(hint, chunk, 1))
            return self._hint

    def run(self, number: int) -> Any:
        """State of a tile, as NumPy arrays."""
        return self._run(self.hint(), *self.grid.tile(number))

    def _run(self, hint: Any, first: int, count: int) -> Any:
        program = self.compile()
        with self.precision():
            state = program(*self.arguments, hint, np.int32(first), np.int32(count))
            return jax.tree.map(np.asarray, jax.device_get(state))

    def trace(self, arrays: Any, values: Sequence[Any], hint: Any, first: Any, count: Any) -> Any:
        """State after `count` chunks from the first one; what is compiled."""
        function = self.point(arrays)
        grid, reduction = self.grid, self.reduction
        names = [axis.name for axis in grid.axes]

        def point(*own: Any) -> Any:
            return reduction.pick(function(**dict(zip(names, own, strict=True))))

        if self._own_functions:
            point = portable(point, Dialect(substitutes(), lambda lanes: lanes))
        mapped = over_chunk(point, grid)
        row = self._row()

        def step(position: Any, state: Any) -> Any:
            number = first + position
            own, leading, start = grid.chunk_values(values, number)
            if row > grid.shape[-1]:
                own = (*own[:-1], jax.tree.map(lambda leaf: _padded(leaf, row), own[-1]))
            valid = _valid(grid, start, row)
            return reduction.update(
                state, mapped(*own), Chunk(grid, number, position, leading, start, valid, row, hint)
            )

        return jax.lax.fori_loop(0, count, step, reduction.init(grid))

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few."""
        program, hint, count = self.compile(), self.hint(), np.int32(min(TIMED_CHUNKS, self.grid.tile(0)[1]))
        seconds = 0.0
        with self.precision():
            for _ in range(2):  # the first one warms up
                start = time.perf_counter()
                jax.block_until_ready(program(*self.arguments, hint, np.int32(0), count))
                seconds = time.perf_counter() - start
        return seconds / int(count)

    def memory(self) -> int:
        """Memory that the program allocates besides its arguments, as the compiler states it [B]."""
        analysis = self.compile().memory_analysis()
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes) if analysis is not None else 0


def over_chunk(point: Callable[..., Any], grid: Grid) -> Callable[..., Any]:
    """Map a function of scalars over the axes of a chunk, each operation only over those that it depends on."""
    count = len(grid.axes)
    for axis in reversed(range(grid.cut, count)):
        # Later maps are the outer ones, so that the last axis is the innermost.
        point = jax.vmap(point, in_axes=tuple(0 if own == axis else None for own in range(count)))
    return point


def wide_vectors() -> bool:
    """Whether XLA compiles for AVX-512, which evaluates what is left of a row quickly; padding would cost more."""
    limited = re.search(r"--xla_cpu_max_isa=(\S+)", os.environ.get("XLA_FLAGS", ""))
    if limited and "AVX512" not in limited[1].upper().replace("_", ""):
        return False
    information = Path("/proc/cpuinfo")
    return information.is_file() and " avx512f " in information.read_text(encoding="utf-8", errors="replace")


def _padded(leaf: Any, row: int) -> Any:
    """An array of values along the last axis, its last value repeated."""
    return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], row - leaf.shape[0], axis=0)])


def _valid(grid: Grid, start: Any, row: int) -> Any:
    """Which points of a chunk are no padding, of the axis that is cut or of rows; `None` if all are."""
    inside, length = grid.valid(start), grid.shape[-1]
    if row == length:
        return inside
    columns = jnp.arange(row) < length
    return columns if inside is None else inside & columns


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
        """The outputs at all points, and the indices along the axes."""
        sizes = [len(axis) for axis in self.grid.axes]
        outputs = self._outputs(self.grid.points)
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, as where XLA evaluates it
            columns = {name: np.reshape(column, sizes).astype(self.dtype) for name, column in outputs.items()}
        indices = tuple(Axis(axis.name, np.arange(size)) for axis, size in zip(self.grid.axes, sizes, strict=True))
        return columns, dataclasses.replace(self.grid, axes=indices).values(self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return *super().__reduce__(), {"arguments": self.arguments}  # evaluated once, not by each worker

    def point(self, arrays: Any) -> Callable[..., Any]:
        """The outputs at one point, from its indices along the axes."""
        return lambda **indices: {name: column[tuple(indices.values())] for name, column in arrays.items()}

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
        each = np.dtype(np.float64).itemsize + np.dtype(self.dtype).itemsize
        return len(self._outputs(1)) * self.grid.points * each

    def _outputs(self, count: int) -> dict[str, np.ndarray]:
        """All outputs at the first points."""
        axes = self.grid.axes
        indices = np.unravel_index(np.arange(count), [len(axis) for axis in axes])
        return evaluate_points(self.function, axes, np.stack(indices, axis=1).tolist())
