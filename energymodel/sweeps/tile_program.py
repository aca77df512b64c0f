"""The compiled program of a tile, which evaluates and reduces its points without storing them.

A program depends on the structure of a sweep alone (`TileTrace`): values of axes, numbers of the model, limits and
ranges are arguments, so that another sweep of the same structure traces and compiles nothing.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.errors import InputError
from energymodel.runtime.compilation import CONFIG, compiler_options
from energymodel.runtime.operations import portable
from energymodel.runtime.placement import accelerated
from energymodel.runtime.program_cache import Split, cached, split
from energymodel.sweeps.axes import Axis, cast
from energymodel.sweeps.float32_functions import substitutes
from energymodel.sweeps.grid import Costs, Grid, cheapest_order, costs_by_axes
from energymodel.sweeps.reductions import AbstractReduction, Chunk

LANES = 8
"""Float32 numbers in a vector register of AVX2; a row of points is padded to whole ones."""
TIMED_CHUNKS = 4
SAMPLED, MOST_SAMPLED = 24, 64
"""One of so many chunks, and at most so many, are evaluated first for hints."""


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, float) and np.isfinite(leaf)


class PointModel(NamedTuple):
    """What a reduction picks of the outputs of one point, as a function of arrays, numbers and values of axes."""

    function: Split
    kind: type | None
    reduction: Any
    names: tuple[str, ...]
    bits: int

    @classmethod
    def of(
        cls, function: Callable[..., Any], reduction: AbstractReduction, names: Sequence[str], bits: int
    ) -> tuple["PointModel", list[Any], np.ndarray]:
        """The model, the arrays of the function, and the numbers of the reduction."""
        dtype = np.float32 if bits == 32 else np.float64
        arrays, static = split(cast(function, dtype), eqx.is_array)
        kind, rest, numbers = None, reduction, []
        if reduction.has_numbers and dataclasses.is_dataclass(reduction):
            fields = {field.name: getattr(reduction, field.name) for field in dataclasses.fields(reduction)}
            kind, (numbers, rest) = type(reduction), split(fields, _is_number)
        return cls(static, kind, rest, tuple(names), bits), arrays, np.array(numbers, dtype)

    def reduction_of(self, numbers: Any) -> AbstractReduction:
        """The reduction, with traced numbers."""
        return self.reduction if self.kind is None else self.kind(**self.reduction.joined(list(numbers)))

    def picked(self, arrays: Any, numbers: Any, *values: Any) -> Any:
        """What is picked at one point."""
        outputs = self.function.joined(arrays)(**dict(zip(self.names, values, strict=True)))
        return self.reduction_of(numbers).pick(outputs)


class TileTrace(NamedTuple):
    """All that the program of a tile depends on.

    - `row`: length of the last axis as it is evaluated.
    - `own_functions`: whether exponentials and logarithms are those of `float32_functions`.
    - `quick`: whether it is compiled for less time.
    """

    model: PointModel
    grid: Grid
    row: int
    own_functions: bool
    quick: bool

    def run(self, arrays: Any, numbers: Any, values: Sequence[Any], hint: Any, first: Any, count: Any) -> Any:
        """State after `count` chunks from the first one; what is compiled."""
        grid, model = self.grid, self.model
        reduction = model.reduction_of(numbers)

        def point(*own: Any) -> Any:
            return model.picked(arrays, numbers, *own)

        if self.own_functions:
            point = portable(point, substitutes())
        for axis in reversed(range(grid.cut, len(grid.names))):
            # Each operation is evaluated only over the axes that it depends on; the last axis is the innermost.
            point = jax.vmap(point, in_axes=tuple(0 if own == axis else None for own in range(len(grid.names))))

        def step(position: Any, state: Any) -> Any:
            number = first + position
            own, leading, start = grid.chunk_values(values, number)
            if self.row > grid.shape[-1]:
                own = (*own[:-1], jax.tree.map(lambda leaf: _padded(leaf, self.row), own[-1]))
            picked = point(*own)
            if accelerated():  # else what the reduction reads twice is evaluated twice
                picked = jax.lax.optimization_barrier(picked)
            valid = _valid(grid, start, self.row)
            return reduction.update(state, picked, Chunk(grid, number, position, leading, start, valid, self.row, hint))

        return jax.lax.fori_loop(0, count, step, reduction.init(grid))


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


def shapes_of(tree: Any) -> tuple[Any, tuple[Any, ...]]:
    """Structure, shapes and types of a tree of arrays; what `_shaped` restores."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), np.dtype(jnp.result_type(leaf))) for leaf in leaves)


def _shaped(structure: Any, shapes: Sequence[Any]) -> Any:
    return jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*shape) for shape in shapes])


@cached
def _traced(trace: TileTrace, device: str, structure: Any, shapes: tuple[Any, ...]) -> jax.stages.Traced:
    options = compiler_options(once=trace.quick, tile=True)
    return jax.jit(trace.run, compiler_options=options).trace(*_shaped(structure, shapes))


@cached
def _compiled(*key: Any) -> jax.stages.Compiled:
    return _traced(*key).lower().compile()


def without_addresses(text: str) -> str:
    """A text that is the same in another process."""
    return re.sub("0x[0-9a-f]+", "0x", text)


@cached
def _costs(model: PointModel, structure: Any, shapes: tuple[Any, ...]) -> Costs:
    arrays, numbers, *scalars = _shaped(structure, shapes)
    by_argument = costs_by_axes(model.picked, [arrays, numbers, *scalars])
    costs: Costs = {}
    for axes, cost in by_argument.items():
        own = frozenset(axis - 2 for axis in axes if axis >= 2)
        costs[own] = costs.get(own, 0.0) + cost
    return costs


def best_order(
    function: Callable[..., Any], axes: Sequence[Axis], reduction: AbstractReduction, chunk: int
) -> tuple[int, ...]:
    """Order of the axes in which what a reduction picks of a model is cheapest, outermost first."""
    model, *arguments = PointModel.of(function, reduction, [axis.name for axis in axes], 32)
    scalars = [jax.tree.map(lambda leaf: np.asarray(leaf)[0], cast(axis.values, np.float32)) for axis in axes]
    with jax.enable_x64(False):
        costs = _costs(model, *shapes_of((*arguments, *scalars)))
    return cheapest_order(costs, [len(axis) for axis in axes], chunk)


class TileProgram:
    """A model over a grid with a reduction, evaluated one tile at a time.

    - `function`: takes the axes by keyword and returns the outputs of one point: a mapping, a named tuple or a module.
      Its arrays are arguments of the program if it is a pytree.
    - `axes`: in the order of the grid.
    - `bits`: precision, 32 or 64.
    - `quick`: whether to compile for less time, which pays for a short run.

    **Raises:** `InputError` for another precision.
    """

    name, reason = "XLA", "compiled for this grid"

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
        self._lock = Lock()
        self._hint: Any = None

    def scanned(self) -> tuple[Callable[..., Any], Sequence[Axis]]:
        """The function that is evaluated at each point, and its axes."""
        return self.function, self.axes

    @cached_property
    def _parts(self) -> tuple[TileTrace, tuple[Any, ...]]:
        function, axes = self.scanned()
        model, arrays, numbers = PointModel.of(function, self.reduction, self.grid.names, self.bits)
        own_functions = self.bits == 32 and not self.quick and not accelerated()
        row = self.grid.shape[-1]
        if own_functions and self.reduction.takes_padding and row >= LANES and not wide_vectors():
            row += -row % LANES
        values = self.grid.values(axes, np.float32 if self.bits == 32 else np.float64)
        return TileTrace(model, self.grid, row, own_functions, self.quick), (arrays, numbers, values)

    @property
    def trace(self) -> TileTrace:
        """What the program depends on."""
        return self._parts[0]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arrays of the model, numbers of the reduction and values of the axes: the first arguments of the program."""
        return self._parts[1]

    @cached_property
    def _on_device(self) -> Any:
        return jax.device_put(self.arguments)  # once, not for each tile

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        """Context in which the program is traced and called, in any thread: precision, and device of the caller."""
        with jax.enable_x64(self.bits == 64), jax.default_device(self._device):
            yield

    def compile(self) -> jax.stages.Compiled:
        """The compiled program; one for all sweeps of the same structure."""
        with self._lock, self.precision():
            return _compiled(*self._key())

    def _key(self) -> tuple[Any, ...]:
        arguments = (*self.arguments, self.no_hint(), np.int32(0), np.int32(0))
        return self.trace, str((jax.default_backend(), CONFIG.jax_default_device)), *shapes_of(arguments)

    def digest(self) -> str:
        """What the program does, in all processes the same; without the arrays that are its arguments."""
        with self._lock, self.precision():
            closed = _traced(*self._key()).jaxpr
        text = without_addresses(str(closed.jaxpr)) + "".join(
            str(np.asarray(const).tobytes()) for const in closed.consts
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def portable(self) -> bytes:
        """What makes the same program in another process."""
        import cloudpickle

        return cloudpickle.dumps(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.function, self.axes, self.grid, self.reduction, self.bits, self.quick)

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
        if self._hint is None:
            program = self.compile()
            with self._lock:
                if self._hint is None:
                    self._hint = self.sampled_hint(lambda hint, chunk: self._run(program, hint, chunk, 1))
        return self._hint

    def run(self, number: int) -> Any:
        """State of a tile, as NumPy arrays."""
        return self._run(self.compile(), self.hint(), *self.grid.tile(number))

    def _run(self, program: jax.stages.Compiled, hint: Any, first: int, count: int) -> Any:
        with self.precision():
            state = program(*self._on_device, hint, np.int32(first), np.int32(count))
            return jax.tree.map(np.asarray, jax.device_get(state))

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few."""
        program, hint, count = self.compile(), self.hint(), min(TIMED_CHUNKS, self.grid.tile(0)[1])
        seconds = 0.0
        for _ in range(2):  # the first one warms up
            start = time.perf_counter()
            self._run(program, hint, 0, count)
            seconds = time.perf_counter() - start
        return seconds / count

    def memory(self) -> int:
        """Memory that the program allocates besides its arguments, as the compiler states it [B]."""
        analysis = self.compile().memory_analysis()
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes) if analysis is not None else 0


def wide_vectors() -> bool:
    """Whether XLA compiles for AVX-512, which evaluates what is left of a row quickly; padding would cost more."""
    limited = re.search(r"--xla_cpu_max_isa=(\S+)", os.environ.get("XLA_FLAGS", ""))
    if limited and "AVX512" not in limited[1].upper().replace("_", ""):
        return False
    information = Path("/proc/cpuinfo")
    return information.is_file() and " avx512f " in information.read_text(encoding="utf-8", errors="replace")
