"""A kernel with one small problem per lane, its triangle and factor in registers.

All loops over variables are unrolled, so that every number has a register; rows of the Jacobian stream through.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.solver.newton_system import DAMPINGS
from energymodel_kernels.backends import Backend, launch
from energymodel_kernels.batched_newton.system import Step, System
from energymodel_kernels.batched_newton.tiles import SADDLE_TRIAL, Tile

Lanes = Array


def solve(systems: System, backend: Backend, tile: Tile) -> Step:
    """What `reference.solve` returns, one problem per lane."""
    problems, m, n = systems.jacobian.shape
    programs = ceil(problems / tile.block)
    dtype = systems.hessian.dtype
    triangle = jnp.stack([systems.hessian[:, row, column] for row in range(n) for column in range(row + 1)])
    rows = [
        triangle,
        systems.stiffness.T,
        systems.size.T,
        systems.damping[None],
        systems.force.T,
        systems.compliance.T,
        systems.shift.T,
        systems.jacobian.reshape(problems, m * n).T,
    ]
    rows = jnp.pad(jnp.concatenate(rows), ((0, 0), (0, programs * tile.block - problems)), mode="edge")
    arranged = backend.arrange(rows, tile.block)
    results = n + m + 2
    shape = jax.ShapeDtypeStruct((results, *arranged.shape[1:]), dtype)
    (out,) = launch(
        backend,
        partial(_kernel, backend=backend, n=n, m=m, tile=tile),
        "batched_newton",
        programs,
        [(arranged, backend.lanes_spec(rows.shape[0], tile.block))],
        [(shape, backend.lanes_spec(results, tile.block))],
        tile.warps,
    )
    out = out.reshape(results, -1)[:, :problems]
    return Step(out[:n].T, out[n : n + m].T, out[n + m], out[n + m + 1] > 0)


def _kernel(in_ref: Any, out_ref: Any, *, backend: Backend, n: int, m: int, tile: Tile) -> None:
    dtype = in_ref.dtype

    def row(number: Any) -> Lanes:
        return backend.row(in_ref, number)

    def write(number: Any, lanes: Lanes) -> None:
        backend.write_row(out_ref, number, lanes)

    count = n * (n + 1) // 2
    A = [row(number) for number in range(count)]
    diagonal = [entry * (entry + 3) // 2 for entry in range(n)]  # positions in the triangle
    size = [row(count + n + entry) for entry in range(n)]
    least, right = row(count + 2 * n), [row(count + 2 * n + 1 + entry) for entry in range(n)]
    rows = count + 3 * n + 1
    for entry, position in enumerate(diagonal):
        A[position] = A[position] + row(count + entry)

    def jacobian(constraint: Array) -> list[Lanes]:
        return [row(rows + 2 * m + constraint * jnp.int32(n) + entry) for entry in range(n)]

    def assemble(constraint: Array, carry: tuple[list[Lanes], list[Lanes]]) -> tuple[list[Lanes], list[Lanes]]:
        A, right = carry
        J = jacobian(constraint)
        S = row(rows + constraint)
        push = S * row(rows + m + constraint)
        pairs = [(i, j) for i in range(n) for j in range(i + 1)]
        A = [entry + S * J[i] * J[j] for entry, (i, j) in zip(A, pairs, strict=True)]
        return A, [force - push * slope for force, slope in zip(right, J, strict=True)]

    A, right = jax.lax.fori_loop(jnp.int32(0), jnp.int32(m), assemble, (A, right))

    def attempt(trial: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """Try one damping where no smaller one did, all lanes together."""
        dx, damping, good, saddle = carry
        tried = jnp.maximum(least, damping_number(trial, dtype))
        damped = list(A)
        for entry, position in enumerate(diagonal):
            damped[position] = A[position] + size[entry] * tried
        new, definite = _cholesky_solve(damped, [jnp.abs(A[position]) for position in diagonal], size, tried, right)
        fresh = good < 0.5
        take = fresh & definite
        dx = [jnp.where(take, a, b) for a, b in zip(new, dx, strict=True)]
        late = trial > SADDLE_TRIAL
        return (
            dx,
            jnp.where(fresh, tried, damping),
            jnp.where(definite, 1.0, good),
            jnp.where(fresh & late, 1.0, saddle),
        )

    zero = jnp.zeros(backend.shape(tile.block), dtype)
    plain = [
        force / jnp.maximum(jnp.abs(A[position]), jnp.where(weight > 0, weight, 1.0))
        for force, position, weight in zip(right, diagonal, size, strict=True)
    ]

    def unfinished(state: tuple[Array, Any]) -> Array:
        trial, (_, _, good, _) = state
        return (trial < len(DAMPINGS)) & (jnp.min(good) < 0.5)

    start = (jnp.int32(0), (plain, zero, zero, zero))
    _, (dx, damping, _, saddle) = jax.lax.while_loop(
        unfinished, lambda state: (state[0] + jnp.int32(1), attempt(*state)), start
    )
    for entry, step in enumerate(dx):
        write(entry, step)
    write(n + m, damping)
    write(n + m + 1, saddle)

    def respond(constraint: Array, carry: Array) -> Array:
        moved = row(rows + m + constraint)
        for slope, step in zip(jacobian(constraint), dx, strict=True):
            moved = moved + slope * step
        write(jnp.int32(n) + constraint, row(rows + constraint) * moved)
        return carry

    jax.lax.fori_loop(jnp.int32(0), jnp.int32(m), respond, jnp.int32(0))


def damping_number(trial: Array, dtype: Any) -> Array:
    """Damping number `trial`; a kernel has no table to look it up in."""
    value = jnp.asarray(DAMPINGS[0], dtype)
    for number, damping in enumerate(DAMPINGS):
        value = jnp.where(trial == number, jnp.asarray(damping, dtype), value)
    return value


def _cholesky_solve(
    A: Sequence[Lanes], diagonal: Sequence[Lanes], size: Sequence[Lanes], damping: Lanes, right: Sequence[Lanes]
) -> tuple[list[Lanes], Lanes]:
    """Solution by the factor of a triangle given row by row, and whether each pivot is more than rounding."""
    n = len(right)
    eps = float(jnp.finfo(damping.dtype).eps)
    L: dict[tuple[int, int], Lanes] = {}
    inverse: list[Lanes] = []
    x: list[Lanes] = []
    definite = damping >= 0
    for i in range(n):
        for j in range(i + 1):
            rest = A[i * (i + 1) // 2 + j]
            for k in range(j):
                rest = rest - L[i, k] * L[j, k]
            if j < i:
                L[i, j] = rest * inverse[j]
                continue
            good = rest > eps * (diagonal[i] + size[i] * damping)
            definite = definite & good
            inverse.append(jax.lax.rsqrt(jnp.where(good, rest, 1.0)))
        forced = right[i]
        for k in range(i):
            forced = forced - L[i, k] * x[k]
        x.append(forced * inverse[i])
    for i in reversed(range(n)):
        rest = x[i]
        for k in range(i + 1, n):
            rest = rest - L[k, i] * x[k]
        x[i] = rest * inverse[i]
    return x, definite
