"""Programs that run a kernel, and what each of them asks of it.

A kernel works on lanes: arrays with one element per point, problem or plan, all of one shape, that stay in registers.
Each backend says which shape that is, where parameters and results live, and which functions it lacks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu, tpu, triton
from jaxtyping import Array

from energymodel.runtime.substitution import Dialect
from energymodel_kernels.portable import (
    SUBSTITUTES,
    exp_by_units,
    log_by_units,
    pow_by_units,
    reshape,
    select_of_constants,
)

IMPLEMENTATIONS = ("xla", "pallas_triton", "pallas_mosaic_gpu", "pallas_tpu", "interpret")
"""`xla` is the reference in plain JAX; `interpret` runs the kernel's program on any machine, slowly, for tests."""

DEFAULTS = {"cpu": "xla", "gpu": "xla", "tpu": "xla"}
"""What `auto` stands for, by platform: a kernel takes the place of plain XLA where it was measured to be faster."""

TPU_ROW = 128  # lanes of a vector register of a TPU


def resolve(implementation: str) -> str:
    """The implementation that a name stands for on the present platform.

    **Raises:** `ValueError` for a name that is none of `IMPLEMENTATIONS` or `"auto"`.
    """
    if implementation == "auto":
        return DEFAULTS.get(jax.default_backend(), "xla")
    if implementation not in IMPLEMENTATIONS:
        choices = ", ".join(("auto", *IMPLEMENTATIONS))
        raise ValueError(f'implementation = "{implementation}": choose one of {choices}')
    return implementation


class Backend:
    """Pallas with Triton: lanes in one dimension, a power of two; references are global memory."""

    platform = "cuda"
    interpret = False

    def __init__(self, *, approximate: bool = False) -> None:
        """`approximate`: exponentials and logarithms by the special function units, where there is a choice."""
        self.approximate = approximate

    @property
    def substitutes(self) -> dict[str, Callable[..., Any]]:
        """What stands for primitives that the compiler lacks, see `Dialect`."""
        special = {"exp": exp_by_units, "log": log_by_units, "pow": pow_by_units} if self.approximate else {}
        return {"select_n": select_of_constants, **special}

    @property
    def dialect(self) -> Dialect:
        """What the compiler asks of formulas."""
        return Dialect(self.substitutes, self.pin)

    def shape(self, block: int) -> tuple[int, ...]:
        """Shape of the lanes of one program."""
        return (block,)

    def numbers(self, block: int) -> Array:
        """0, 1, 2, ... over the lanes, int32."""
        return jax.lax.broadcasted_iota(jnp.int32, (block,), 0)

    def pin(self, lanes: Array) -> Array:
        """Lanes in the layout that loops and branches carry."""
        return lanes

    def vector_spec(self, length: int) -> pl.BlockSpec:
        """Numbers that every program reads one by one."""
        return pl.BlockSpec((length,), lambda program: (0,))

    def lanes_spec(self, rows: int, block: int) -> pl.BlockSpec:
        """Rows of lanes, of which each program sees its own."""
        return pl.BlockSpec((rows, block), lambda program: (0, program))

    def scalars_shape(self, programs: int, columns: int) -> tuple[int, ...]:
        """Shape of an output with a few numbers per program."""
        return (programs, columns)

    def scalars_spec(self, programs: int, columns: int) -> pl.BlockSpec:
        """A few numbers per program."""
        return pl.BlockSpec((programs, columns), lambda program: (0, 0))

    def arrange(self, rows: Array, block: int) -> Array:
        """Rows of lanes `[rows, lanes]` in the shape that `lanes_spec` cuts up."""
        return rows

    def row(self, reference: Any, row: Any, program: Array, block: int) -> Array:
        """One row of this program's lanes."""
        return reference[row, :]

    def write_row(self, reference: Any, row: Any, program: Array, block: int, lanes: Array) -> None:
        """Write one row of this program's lanes."""
        reference[row, :] = lanes

    def write_scalar(self, reference: Any, program: Array, column: int, value: Array) -> None:
        """Write one of this program's numbers."""
        reference[program, column] = value

    def compiler_params(self, warps: int) -> Any:
        """Settings of the compiler."""
        return triton.CompilerParams(num_warps=warps, num_stages=1)


class Interpreted(Backend):
    """The program of a kernel on any machine, for tests."""

    interpret = True

    @property
    def substitutes(self) -> dict[str, Callable[..., Any]]:
        """See `Backend.substitutes`."""
        return {}


class MosaicGPU(Backend):
    """Pallas with Mosaic GPU, for Hopper and later: lanes strided over one warpgroup of 128 threads."""

    @property
    def substitutes(self) -> dict[str, Callable[..., Any]]:
        """See `Backend.substitutes`."""
        return SUBSTITUTES

    def _layout(self, block: int) -> Any:
        return mosaic_gpu.Layout.WG_STRIDED((block,), vec_size=block // 128)

    def numbers(self, block: int) -> Array:
        """See `Backend.numbers`."""
        return mosaic_gpu.broadcasted_iota(jnp.int32, (block,), 0, layout=self._layout(block))

    def pin(self, lanes: Array) -> Array:
        """See `Backend.pin`."""
        return mosaic_gpu.layout_cast(lanes, self._layout(lanes.size)) if lanes.shape else lanes

    def vector_spec(self, length: int) -> pl.BlockSpec:
        """See `Backend.vector_spec`."""
        return pl.BlockSpec(memory_space=mosaic_gpu.GMEM)

    def lanes_spec(self, rows: int, block: int) -> pl.BlockSpec:
        """See `Backend.lanes_spec`."""
        return pl.BlockSpec(memory_space=mosaic_gpu.GMEM)

    def scalars_spec(self, programs: int, columns: int) -> pl.BlockSpec:
        """See `Backend.scalars_spec`."""
        return pl.BlockSpec(memory_space=mosaic_gpu.GMEM)

    def row(self, reference: Any, row: Any, program: Array, block: int) -> Array:
        """See `Backend.row`."""
        return self.pin(reference[row, pl.ds(program * block, block)])

    def write_row(self, reference: Any, row: Any, program: Array, block: int, lanes: Array) -> None:
        """See `Backend.write_row`."""
        reference[row, pl.ds(program * block, block)] = self.pin(lanes)

    def compiler_params(self, warps: int) -> Any:
        """See `Backend.compiler_params`."""
        return mosaic_gpu.CompilerParams(approx_math=self.approximate)


class TPU(Backend):
    """Pallas with Mosaic for TPU: lanes in rows of 128, eight rows to a register; numbers in scalar memory."""

    platform = "tpu"

    @property
    def substitutes(self) -> dict[str, Callable[..., Any]]:
        """See `Backend.substitutes`."""
        return {"expm1": SUBSTITUTES["expm1"], "reshape": reshape}

    def shape(self, block: int) -> tuple[int, ...]:
        """See `Backend.shape`."""
        return (block // TPU_ROW, TPU_ROW)

    def numbers(self, block: int) -> Array:
        """See `Backend.numbers`."""
        across, down = (jax.lax.broadcasted_iota(jnp.int32, self.shape(block), axis) for axis in (1, 0))
        return down * TPU_ROW + across

    def vector_spec(self, length: int) -> pl.BlockSpec:
        """See `Backend.vector_spec`."""
        return pl.BlockSpec(memory_space=tpu.SMEM)

    def lanes_spec(self, rows: int, block: int) -> pl.BlockSpec:
        """See `Backend.lanes_spec`."""
        return pl.BlockSpec((rows, block // TPU_ROW, TPU_ROW), lambda program: (0, program, 0))

    def scalars_shape(self, programs: int, columns: int) -> tuple[int, ...]:
        """See `Backend.scalars_shape`."""
        return (programs, 1, columns)

    def scalars_spec(self, programs: int, columns: int) -> pl.BlockSpec:
        """See `Backend.scalars_spec`."""
        return pl.BlockSpec((1, 1, columns), lambda program: (program, 0, 0), memory_space=tpu.SMEM)

    def write_scalar(self, reference: Any, program: Array, column: int, value: Array) -> None:
        """See `Backend.write_scalar`."""
        reference[0, 0, column] = value

    def arrange(self, rows: Array, block: int) -> Array:
        """See `Backend.arrange`."""
        return rows.reshape(rows.shape[0], -1, TPU_ROW)

    def row(self, reference: Any, row: Any, program: Array, block: int) -> Array:
        """See `Backend.row`."""
        return reference[row]

    def write_row(self, reference: Any, row: Any, program: Array, block: int, lanes: Array) -> None:
        """See `Backend.write_row`."""
        reference[row] = lanes

    def compiler_params(self, warps: int) -> Any:
        """See `Backend.compiler_params`."""
        return tpu.CompilerParams()


BACKENDS: dict[str, type[Backend]] = {
    "pallas_triton": Backend,
    "pallas_mosaic_gpu": MosaicGPU,
    "pallas_tpu": TPU,
    "interpret": Interpreted,
}


def launch(
    backend: Backend,
    kernel: Callable[..., None],
    name: str,
    programs: int,
    inputs: Sequence[tuple[Array, pl.BlockSpec]],
    outputs: Sequence[tuple[jax.ShapeDtypeStruct, pl.BlockSpec]],
    warps: int,
) -> list[Array]:
    """Run `programs` copies of a kernel, which gets its references in the order of inputs and outputs."""
    call = pl.pallas_call(
        kernel,
        grid=(programs,),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[shape for shape, _ in outputs],
        interpret=backend.interpret,
        compiler_params=None if backend.interpret else backend.compiler_params(warps),
        name=name,
    )
    return list(call(*(array for array, _ in inputs)))


def over_lanes(function: Callable[..., Any], dimensions: int) -> Callable[..., Any]:
    """A scalar function over lanes of that many dimensions."""
    for _ in range(dimensions):
        function = jax.vmap(function)
    return function
