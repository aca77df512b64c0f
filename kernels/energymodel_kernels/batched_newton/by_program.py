"""A kernel with one problem per program, the whole matrix spread over the registers of its threads.

The matrix is padded to a power of two with ones on its diagonal. Each step of the factorization takes one column by a
masked sum and subtracts its outer product from the rest, which all threads do at once; the forward substitution rides
along.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from energymodel.solver.newton_system import DAMPINGS
from energymodel_kernels.backends import TPU, Backend, launch
from energymodel_kernels.batched_newton.by_lane import damping_number
from energymodel_kernels.batched_newton.system import Step, System
from energymodel_kernels.batched_newton.tiles import SADDLE_TRIAL, Tile

_LEAST = 16


def solve(systems: System, backend: Backend, tile: Tile) -> Step:
    """What `reference.solve` returns, one problem per program."""
    problems, m, n = systems.jacobian.shape
    dtype = systems.hessian.dtype
    wide = 128 if isinstance(backend, TPU) else _LEAST
    while wide < n:
        wide *= 2
    more = wide - n
    lower = jnp.tril(systems.hessian)
    hessian = lower + jnp.swapaxes(jnp.tril(systems.hessian, -1), 1, 2)
    matrices = jnp.pad(hessian, ((0, 0), (0, more), (0, more)))
    stiffness = jnp.pad(systems.stiffness, ((0, 0), (0, more)), constant_values=1.0)
    size, force = (jnp.pad(vector, ((0, 0), (0, more))) for vector in (systems.size, systems.force))
    damping = jnp.broadcast_to(systems.damping[:, None], (problems, wide))
    vectors = jnp.stack([stiffness, size, damping, force], axis=1)
    # Each row of the Jacobian with its compliance and shift repeated beside it, so that all are read as vectors.
    jacobian = jnp.pad(systems.jacobian, ((0, 0), (0, 0), (0, more)))
    beside = [
        jnp.broadcast_to(column[:, :, None], (problems, m, wide)) for column in (systems.compliance, systems.shift)
    ]
    rows = jnp.concatenate([jacobian, *beside], axis=1)

    def spec(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec((1, *shape), lambda program: (program, 0, 0))

    out, extra = launch(
        backend,
        partial(_kernel, n=n, m=m, wide=wide),
        "batched_newton",
        problems,
        [(matrices, spec(wide, wide)), (vectors, spec(4, wide)), (rows, spec(3 * m, wide))],
        [
            (jax.ShapeDtypeStruct((problems, 3, wide), dtype), spec(3, wide)),
            (jax.ShapeDtypeStruct((problems, m, wide), dtype), spec(m, wide)),
        ],
        tile.warps,
    )
    return Step(out[:, 0, :n], extra[:, :, 0], out[:, 1, 0], out[:, 2, 0] > 0)


def _kernel(
    matrix_ref: Any, vectors_ref: Any, rows_ref: Any, out_ref: Any, dy_ref: Any, *, n: int, m: int, wide: int
) -> None:
    down = jax.lax.broadcasted_iota(jnp.int32, (wide, wide), 0)
    across = jax.lax.broadcasted_iota(jnp.int32, (wide, wide), 1)
    stiffness, size, damping, force = (vectors_ref[0, row, :] for row in range(4))
    on_diagonal = down == across
    # Vectors along columns, `[:, None]`, and along rows, `[None, :]`; sums along an axis turn one into the other.
    matrix = matrix_ref[0, :, :] + jnp.where(on_diagonal, stiffness[None, :], 0.0)

    def assemble(row: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, force = carry
        J, S, shift = (rows_ref[0, jnp.int32(part * m) + row, :] for part in range(3))
        return matrix + (S * J)[:, None] * J[None, :], force - S * shift * J

    matrix, force = jax.lax.fori_loop(jnp.int32(0), jnp.int32(m), assemble, (matrix, force))
    diagonal = jnp.sum(jnp.where(on_diagonal, matrix, 0.0), axis=0)

    def attempt(trial: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        dx, _, _, saddle = carry
        tried = jnp.maximum(damping, damping_number(trial, damping.dtype))
        damped = matrix + jnp.where(on_diagonal, (size * tried)[None, :], 0.0)
        new, good = _cholesky_solve(damped, jnp.abs(diagonal) + size * tried, force, n)
        late = jnp.where(trial > SADDLE_TRIAL, 1.0, saddle)
        return jnp.where(good > 0.5, new, dx), tried, good, late

    plain = force / jnp.maximum(jnp.abs(diagonal), jnp.where(size > 0, size, 1.0))
    zero = jnp.zeros((), damping.dtype)
    start = (jnp.int32(0), (plain, damping, zero, zero))
    _, (dx, tried, _, saddle) = jax.lax.while_loop(
        lambda state: (state[0] < len(DAMPINGS)) & (state[1][2] < 0.5),
        lambda state: (state[0] + jnp.int32(1), attempt(*state)),
        start,
    )
    out_ref[0, 0, :] = dx
    out_ref[0, 1, :] = tried
    out_ref[0, 2, :] = jnp.zeros_like(dx) + saddle

    def respond(row: Array, carry: Array) -> Array:
        J, S, shift = (rows_ref[0, jnp.int32(part * m) + row, :] for part in range(3))
        dy_ref[0, row, :] = S * (jnp.sum(J * dx) + shift)
        return carry

    jax.lax.fori_loop(jnp.int32(0), jnp.int32(m), respond, jnp.int32(0))


def _cholesky_solve(matrix: Array, scale: Array, right: Array, n: int) -> tuple[Array, Array]:
    """Solution by the Cholesky factor, and 1 if each pivot is more than rounding; right-looking, a column at a time."""
    wide = right.size
    down, across = (jax.lax.broadcasted_iota(jnp.int32, (wide, wide), axis) for axis in (0, 1))
    index = jax.lax.broadcasted_iota(jnp.int32, (1, wide), 1)[0] if wide >= 128 else jnp.arange(wide, dtype=jnp.int32)
    eps = float(jnp.finfo(right.dtype).eps)

    def pick(vector: Array, number: Array) -> Array:
        return jnp.sum(jnp.where(index == number, vector, 0.0))

    def eliminate(j: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        rest, factor, y, good = carry
        column = jnp.sum(jnp.where(across == j, rest, 0.0), axis=1)
        line = jnp.sum(jnp.where(down == j, rest, 0.0), axis=0)  # the same numbers along rows
        pivot = pick(line, j)
        sound = pivot > eps * pick(scale, j)
        inverse = jax.lax.rsqrt(jnp.where(sound, pivot, 1.0))
        column, line = column * inverse, line * inverse
        factor = jnp.where((down == j) & (across >= j), line[None, :], factor)
        rest = jnp.where((down > j) & (across > j), rest - column[:, None] * line[None, :], rest)
        y_j = pick(y, j) * inverse
        y = jnp.where(index == j, y_j, jnp.where(index > j, y - line * y_j, y))
        return rest, factor, y, jnp.where(sound, good, 0.0)

    start = (matrix, jnp.zeros_like(matrix), right, jnp.ones((), right.dtype))
    _, factor, y, good = jax.lax.fori_loop(jnp.int32(0), jnp.int32(n), eliminate, start)

    def substitute(count: Array, x: Array) -> Array:
        j = jnp.int32(n - 1) - count
        line = jnp.sum(jnp.where(down == j, factor, 0.0), axis=0)  # row j of the upper factor
        x_j = (pick(x, j) - jnp.sum(jnp.where(index > j, line * x, 0.0))) / pick(line, j)
        return jnp.where(index == j, x_j, x)

    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(n), substitute, y), good
