"""The compiled program of a tile, which evaluates and reduces its points without storing them.

A program depends on the structure of a sweep alone (`TileTrace`): values of axes, numbers of the model, limits and
ranges are arguments, so that another sweep of the same structure traces and compiles nothing. The points of a small
grid of a scenario are evaluated in float64 by one program that is kept for all such grids.
"""

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import CONFIG, Split, cached, compiler_options, split
from energymodel.runtime.operations import portable
from energymodel.runtime.placement import accelerated
from energymodel.sweeps.axes import Axis, cast
from energymodel.sweeps.float32_functions import substitutes
from energymodel.sweeps.grid import Costs, Grid, cheapest_order, costs_by_axes
from energymodel.sweeps.points import evaluate_points
from energymodel.sweeps.reductions import AbstractReduction, Chunk

LANES = 8
"""Float32 numbers in a vector register of AVX2."""
SMALL = 2**18
"""Most points of a small grid: by the kept program they take less time than another program takes to compile."""
TIMED_CHUNKS, TIMED_POINTS = 4, 1024
SAMPLED, MOST_SAMPLED = 24, 64
"""One of so many chunks, and at most so many, are evaluated first for hints."""


class PointModel(NamedTuple):
    """What a reduction picks of the outputs of one point, as a function of arrays, numbers and values of axes."""

    function: Split
    reduction: Split
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, function: Callable[..., Any], reduction: AbstractReduction, names: Sequence[str], dtype: Any
    ) -> tuple["PointModel", list[Any], np.ndarray]:
        """The model, the arrays of the function, and the numbers of the reduction."""
        arrays, static = split(cast(function, dtype), eqx.is_array)
        numbers, rest = split(reduction, lambda leaf: isinstance(leaf, float) and bool(np.isfinite(leaf)))
        return cls(static, rest, tuple(names)), arrays, np.array(numbers, dtype)

    def picked(self, arrays: Any, numbers: Any, *values: Any) -> Any:
        """What is picked at one point."""
        outputs = self.function.joined(arrays)(**dict(zip(self.names, values, strict=True)))
        return self.reduction.joined(list(numbers)).pick(outputs)


class TileTrace(NamedTuple):
    """All that the program of a tile depends on; `quick` if it is compiled for less time."""

    model: PointModel
    grid: Grid
    bits: int
    quick: bool

    def run(self, arrays: Any, numbers: Any, values: Sequence[Any], hint: Any, first: Any, count: Any) -> Any:
        """State after `count` chunks from the first one; what is compiled."""
        grid, axes = self.grid, range(len(self.grid.names))
        reduction: AbstractReduction = self.model.reduction.joined(list(numbers))

        def point(*own: Any) -> Any:
            return self.model.picked(arrays, numbers, *own)

        if self.bits == 32 and not self.quick and not accelerated():
            point = portable(point, substitutes())
        for axis in reversed(axes[grid.cut :]):
            # Each operation is evaluated only over the axes that it depends on; the last axis is the innermost.
            point = jax.vmap(point, in_axes=tuple(0 if own == axis else None for own in axes))

        def step(position: Any, state: Any) -> Any:
            number = first + position
            own, leading, start = grid.chunk_values(values, number)
            picked = point(*own)
            if accelerated():  # else what the reduction reads twice is evaluated twice
                picked = jax.lax.optimization_barrier(picked)
            chunk = Chunk(grid, number, position, leading, start, grid.valid(start), hint)
            return reduction.update(state, picked, chunk)

        return jax.lax.fori_loop(0, count, step, reduction.init(grid))


@cached
def _jitted(trace: TileTrace, device: str) -> Any:
    return jax.jit(trace.run, compiler_options=compiler_options(once=trace.quick, tile=True))


@cached
def _costs(model: PointModel, structure: Any, shapes: tuple[Any, ...]) -> Costs:
    return costs_by_axes(model.picked, *jax.tree.unflatten(structure, shapes))


def best_order(
    function: Callable[..., Any], axes: Sequence[Axis], reduction: AbstractReduction, chunk: int
) -> tuple[int, ...]:
    """Order of the axes in which what a reduction picks of a model is cheapest, outermost first."""
    model, *fixed = PointModel.of(function, reduction, [axis.name for axis in axes], np.float32)
    with jax.enable_x64(False):
        leaves, structure = jax.tree.flatten(([cast(axis.at(0), np.float32) for axis in axes], fixed))
        shapes = tuple(jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        costs = _costs(model, structure, shapes)
    return cheapest_order(costs, [len(axis) for axis in axes], chunk)


class TileProgram:
    """A model over a grid with a reduction, evaluated one tile at a time.

    - `function`: takes the axes by keyword and returns the outputs of one point: a mapping, a named tuple or a module.
      Its arrays are arguments of the program if it is a pytree.
    - `axes`: in the order of the grid.
    - `bits`: precision, 32 or 64.
    - `quick`: whether to compile for less time, which pays for a short run.
    """

    name = "XLA"

    def __init__(
        self,
        function: Callable[..., Any],
        axes: Sequence[Axis],
        grid: Grid,
        reduction: AbstractReduction,
        bits: int = 32,
        quick: bool = False,
    ) -> None:
        if bits not in (32, 64):
            raise InputError(f"precision: {bits} is neither 32 nor 64 bits.")
        self.function, self.axes, self.grid, self.reduction = function, tuple(axes), grid, reduction
        self.bits, self.quick = bits, quick
        self._device = CONFIG.jax_default_device

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function, self.axes, self.grid, self.reduction, self.bits, self.quick)

    @property
    def dtype(self) -> Any:
        """Type of the numbers that it evaluates."""
        return np.float32 if self.bits == 32 else np.float64

    def scanned(self) -> tuple[Callable[..., Any], Sequence[Axis]]:
        """The function of a point, and its axes."""
        return self.function, self.axes

    @cached_property
    def parts(self) -> tuple[TileTrace, tuple[Any, ...]]:
        """What the program depends on, and its first arguments.

        These are arrays of the model, numbers of the reduction and values of the axes.
        """
        function, axes = self.scanned()
        model, *arguments = PointModel.of(function, self.reduction, self.grid.names, self.dtype)
        trace = TileTrace(model, self.grid, self.bits, self.quick)
        return trace, (*arguments, self.grid.values(axes, self.dtype))

    @cached_property
    def _on_device(self) -> Any:
        return jax.device_put(self.parts[1])  # once, not for each tile

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        """Context in which the program is traced and called, in any thread: precision, and device of the caller."""
        with jax.enable_x64(self.bits == 64), jax.default_device(self._device):
            yield

    @property
    def _program(self) -> Any:
        """One for all sweeps of the same structure."""
        return _jitted(self.parts[0], str((jax.default_backend(), CONFIG.jax_default_device)))

    def compile(self) -> None:
        """Compile the program, unless one of the same structure is."""
        self._run(self.no_hint(), 0, 0)

    def _run(self, hint: Any, first: int, count: int) -> Any:
        with self.precision():
            state = self._program(*self._on_device, hint, np.int32(first), np.int32(count))
            return jax.tree.map(np.asarray, jax.device_get(state))

    def digest(self) -> str:
        """What the program does, in all processes the same; without the arrays that are its arguments."""
        with self.precision():
            closed = self._program.trace(*self._no_chunks).jaxpr
        text = re.sub("0x[0-9a-f]+", "0x", str(closed.jaxpr))
        text += "".join(str(np.asarray(const).tobytes()) for const in closed.consts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def _no_chunks(self) -> tuple[Any, ...]:
        """Arguments of the program for no chunk."""
        return (*self.parts[1], self.no_hint(), np.int32(0), np.int32(0))

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
        for half in range(1, 2 * count, 2):
            fresh = run(hint, half * self.grid.chunks // (2 * count))
            state = fresh if state is None else self.reduction.merge(state, fresh)
            hint = self.reduction.hint(state)
        return hint

    @cached_property
    def hint(self) -> Any:
        """What every tile knows of a sample of the grid; threads that run tiles read it first."""
        self.compile()
        return self.sampled_hint(lambda hint, chunk: self._run(hint, chunk, 1))

    def run(self, number: int) -> Any:
        """State of a tile, as NumPy arrays."""
        return self._run(self.hint, *self.grid.tile(number))

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few."""
        hint, count = self.hint, min(TIMED_CHUNKS, self.grid.tile(0)[1])
        return timed(lambda: self._run(hint, 0, count)) / count

    def memory(self) -> int:
        """Memory that the program allocates besides its arguments, as the compiler states it [B]."""
        with self.precision():
            analysis = self._program.lower(*self._no_chunks).compile().memory_analysis()
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes) if analysis is not None else 0


class Lookup(eqx.Module):
    """Outputs at all points of a grid as a function of the indices along its axes."""

    columns: dict[str, Any]

    def __call__(self, **indices: Any) -> dict[str, Any]:
        """The outputs at one point."""
        return {name: jnp.asarray(column)[tuple(indices.values())] for name, column in self.columns.items()}


class SmallGrid(TileProgram):
    """Looks up what `ScenarioModel.many` returned at all points of a small grid; a tile evaluates none."""

    name = "the model in float64"

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


def timed(run: Callable[[], Any]) -> float:
    """Time of a second call [s]; the first one warms up."""
    run()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def row_lanes() -> int:
    """Points to whole numbers of which rows are padded.

    XLA evaluates what is left of a row point by point, but quickly with AVX-512: padding would cost more.
    """
    limited = re.search(r"--xla_cpu_max_isa=(\S+)", os.environ.get("XLA_FLAGS", ""))
    if accelerated():
        return 1
    if limited and "AVX512" not in limited[1].upper().replace("_", ""):
        return LANES
    information = Path("/proc/cpuinfo")
    wide = information.is_file() and " avx512f " in information.read_text(encoding="utf-8", errors="replace")
    return 1 if wide else LANES
