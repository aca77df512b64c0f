"""How is a tile of a grid evaluated and reduced, without ever storing a point?"""

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.sweeps.axes import Axis
from energymodel.sweeps.dependence import cheapest_order, costs_by_axes
from energymodel.sweeps.grid import CHUNK, Grid
from energymodel.sweeps.reductions import AbstractReduction, Chunk

CONFIG: Any = jax.config
VECTOR_BITS = 512
TIMED_CHUNKS = 4
LONG = 2**21  # points for which it pays to compile longer (`benchmarks/sweep --only samples`)


def compiler_options() -> Any:
    """Options for `jax.jit` of a tile: on CPU, vectors as wide as the processor has.

    XLA prefers half of them on processors with AVX-512, which these long loops over cached data do not need
    (`benchmarks/sweep`); on processors without, it changes nothing.
    """
    return {"xla_cpu_prefer_vector_width": VECTOR_BITS} if jax.default_backend() == "cpu" else None


def dtype_of(bits: int) -> Any:
    """NumPy type of a precision."""
    return np.float32 if bits == 32 else np.float64


def cast(tree: Any, bits: int) -> Any:
    """The same tree with its floats in a precision."""
    dtype = dtype_of(bits)

    def convert(leaf: Any) -> Any:
        floating = eqx.is_array(leaf) and np.issubdtype(leaf.dtype, np.floating)
        return np.asarray(leaf).astype(dtype) if floating else leaf

    return jax.tree.map(convert, tree)


class Tiles:
    """A model over a grid with a reduction, compiled for one tile at a time.

    `function` takes the axes by keyword (`**{name: value}`) and returns the outputs of one point: a mapping, a named
    tuple or a module. Its arrays are arguments of the compiled program if it is a pytree.
    """

    def __init__(self, function: Callable[..., Any], grid: Grid, reduction: AbstractReduction, bits: int = 32) -> None:
        self.function, self.grid, self.reduction, self.bits = function, grid, reduction, bits
        self._lock = Lock()
        self._arrays, self._static = eqx.partition(cast(function, bits), eqx.is_array)
        self._values = grid.values(dtype_of(bits))
        self._program: Any = None

    def compile(self) -> Any:
        """Compile the tile; later calls do nothing."""
        with self._lock:
            if self._program is not None:
                return self._program
            with jax.enable_x64(self.bits == 64):
                shapes = jax.tree.map(_shape, (self._arrays, self._values))
                number = jax.ShapeDtypeStruct((), jnp.int32)
                jitted = jax.jit(self.trace, compiler_options=self.options())
                self._program = jitted.lower(*shapes, number, number).compile()
            return self._program

    def options(self) -> Any:
        """Options for `jax.jit`; a short run of random samples does without what it takes long to compile."""
        options = compiler_options()
        if options is not None and self.reduction.alone and self.grid.points < LONG:
            options["xla_cpu_use_fusion_emitters"] = False
        return options

    def arguments(self) -> tuple[Any, Any]:
        """What `trace` takes besides the chunks: arrays of the model, values of the axes."""
        return self._arrays, self._values

    def portable(self) -> bytes:
        """What makes the same tiles in another process."""
        import cloudpickle

        return cloudpickle.dumps((self.function, self.grid, self.reduction, self.bits))

    def like(self) -> Any:
        """Shapes of the state of a tile."""
        with jax.enable_x64(self.bits == 64):
            return jax.eval_shape(lambda: self.reduction.init(self.grid))

    def run(self, number: int) -> Any:
        """State of a tile, as NumPy arrays."""
        program = self.compile()
        first, count = self.grid.tile(number)
        with jax.enable_x64(self.bits == 64):
            state = program(self._arrays, self._values, np.int32(first), np.int32(count))
            return jax.tree.map(np.asarray, jax.device_get(state))

    def trace(self, arrays: Any, values: Sequence[Any], first: Any, count: Any) -> Any:
        """State after so many chunks from the first one; what is compiled."""
        function = eqx.combine(arrays, self._static)
        grid, reduction = self.grid, self.reduction
        point = over_chunk(self.point(function), grid)

        def step(place: Any, state: Any) -> Any:
            number = first + place
            own, leading, start = grid.chunk_values(values, number)
            picked = point(*own)
            return reduction.update(state, picked, Chunk(grid, number, place, leading, start, grid.valid(start)))

        return jax.lax.fori_loop(0, count, step, reduction.init(grid))

    def point(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is kept of one point, by the values of the axes in order."""
        names = [axis.name for axis in self.grid.axes]
        return lambda *own: self.reduction.pick(function(**dict(zip(names, own, strict=True))))

    def seconds_per_chunk(self) -> float:
        """Time of one chunk, by that of a few."""
        program, count = self.compile(), np.int32(min(TIMED_CHUNKS, self.grid.tile(0)[1]))
        with jax.enable_x64(self.bits == 64):
            times = []
            for _ in range(2):  # the first one warms up
                start = time.perf_counter()
                jax.block_until_ready(program(self._arrays, self._values, np.int32(0), count))
                times.append(time.perf_counter() - start)
        return times[-1] / int(count)

    @property
    def memory(self) -> int:
        """Memory that the program allocates besides its arguments, by the compiler's account [B]."""
        analysis = self.compile().memory_analysis()
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes) if analysis is not None else 0


def over_chunk(point: Callable[..., Any], grid: Grid) -> Callable[..., Any]:
    """Map a function of scalars over the axes of a chunk, each operation over those that it depends on only."""
    count = len(grid.axes)
    for axis in reversed(range(grid.cut, count)):
        # Later maps are the outer ones, so that the last axis is the innermost.
        point = jax.vmap(point, in_axes=tuple(0 if place == axis else None for place in range(count)))
    return point


def best_order(
    function: Callable[..., Any], axes: Sequence[Axis], reduction: AbstractReduction, chunk: int = CHUNK
) -> tuple[int, ...]:
    """Order of the axes in which this model is cheapest, outermost first."""
    names = [axis.name for axis in axes]
    scalars = [jax.tree.map(lambda leaf: np.asarray(leaf)[0], cast(axis.values, 32)) for axis in axes]
    narrow = cast(function, 32)

    def point(*own: Any) -> Any:
        return reduction.pick(narrow(**dict(zip(names, own, strict=True))))

    with jax.enable_x64(False):
        return cheapest_order(costs_by_axes(point, scalars), [len(axis) for axis in axes], chunk)


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    leaf = np.asarray(leaf)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
