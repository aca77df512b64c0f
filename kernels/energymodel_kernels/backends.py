"""Programs that run a kernel, and what each of them asks of it.

A kernel works on lanes: arrays with one element per point, problem or plan, all of one shape, that stay in registers.
Each backend says which shape that is, where parameters and results live, and what stands for primitives that it lacks.
All that depends on Pallas' Triton stands here.
"""

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu, triton
from jaxtyping import Array

from energymodel.runtime.operations import Substitutes

IMPLEMENTATIONS = ("xla", "pallas_triton", "pallas_tpu", "interpret")
"""`xla` is the reference in plain JAX; `interpret` runs the kernel's program on any machine, slowly, for tests."""

TPU_ROW = 128  # lanes of a vector register of a TPU
NEAR_ZERO = 0.3
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


def resolve(implementation: str, gpu: str = "xla") -> str:
    """The implementation that a name stands for on the present platform.

    **Arguments:**

    - `gpu`: what "auto" stands for on a GPU, where it was measured to be the faster one; elsewhere it is `xla`.

    **Raises:** `ValueError` for a name that is none of `IMPLEMENTATIONS` or `"auto"`.
    """
    if implementation == "auto":
        return gpu if jax.default_backend() == "gpu" else "xla"
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
    def substitutes(self) -> Substitutes:
        """What stands for primitives that the compiler lacks."""
        special = {"exp": exp_by_units, "log": log_by_units, "pow": pow_by_units} if self.approximate else {}
        return {"select_n": select_of_constants, **special}

    def shape(self, block: int) -> tuple[int, ...]:
        """Shape of the lanes of one program."""
        return (block,)

    def numbers(self, block: int) -> Array:
        """0, 1, 2, ... over the lanes, int32."""
        return jax.lax.broadcasted_iota(jnp.int32, (block,), 0)

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

    def row(self, reference: Any, row: Any) -> Array:
        """One row of this program's lanes."""
        return reference[row, :]

    def write_row(self, reference: Any, row: Any, lanes: Array) -> None:
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
    def substitutes(self) -> Substitutes:
        """See `Backend.substitutes`."""
        return {}


class TPU(Backend):
    """Pallas with Mosaic for TPU: lanes in rows of 128, eight rows to a register; numbers in scalar memory."""

    platform = "tpu"

    @property
    def substitutes(self) -> Substitutes:
        """See `Backend.substitutes`."""
        return {"expm1": expm1, "reshape": reshape}

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

    def row(self, reference: Any, row: Any) -> Array:
        """See `Backend.row`."""
        return reference[row]

    def write_row(self, reference: Any, row: Any, lanes: Array) -> None:
        """See `Backend.write_row`."""
        reference[row] = lanes

    def compiler_params(self, warps: int) -> Any:
        """See `Backend.compiler_params`."""
        return tpu.CompilerParams()


BACKENDS: dict[str, type[Backend]] = {"pallas_triton": Backend, "pallas_tpu": TPU, "interpret": Interpreted}


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


def expm1(x: Any, **_: Any) -> Any:
    """`e^x - 1`, near zero by its series, to float32."""
    near = jnp.abs(x) < NEAR_ZERO
    small = jnp.where(near, x, 0.0)
    series = jnp.full_like(x, 1.0 / factorial(8))
    for term in reversed(range(7)):
        series = series * small + 1.0 / factorial(term + 1)
    return jnp.where(near, small * series, jnp.exp(x) - 1.0)


def select_of_constants(which: Any, *cases: Any) -> Any:
    """One of several values; constants among them get the type of the result, which Triton takes from `which`."""
    return jax.lax.select_n(which, *(case.astype(case.dtype) for case in cases))


def reshape(x: Any, new_sizes: Sequence[int], dimensions: Any = None, **_: Any) -> Any:
    """Another shape; the same one is left alone, which Mosaic for TPU does not do with a number."""
    return x if x.shape == tuple(new_sizes) else jax.lax.reshape(x, new_sizes, dimensions)


def exp_by_units(x: Any, **_: Any) -> Any:
    """`e^x` by the base-2 exponential of a GPU's special function units; relative error about |x| 1e-7.

    Numbers that all lanes share take the ordinary function: the instruction is for lanes.
    """
    return _special("ex2.approx.ftz.f32", x * LOG2_E) if x.shape else jnp.exp(x)


def log_by_units(x: Any, **_: Any) -> Any:
    """`ln x` by the base-2 logarithm of a GPU's special function units; absolute error about 1e-7 near 1.

    Numbers that all lanes share take the ordinary function: the instruction is for lanes.
    """
    return _special("lg2.approx.ftz.f32", x) * LN_2 if x.shape else jnp.log(x)


def pow_by_units(x: Any, y: Any, **_: Any) -> Any:
    """`x^y` by both, for x >= 0; relative error about |y log x| 1e-7."""
    y = y.astype(x.dtype)
    return jnp.where(y == 0, 1.0, exp_by_units(y * log_by_units(x)))


def _special(instruction: str, x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (result,) = triton.elementwise_inline_asm(
        f"{instruction} $0, $1;", args=[x], constraints="=f,f", pack=1, result_shape_dtypes=[shape]
    )
    return result
