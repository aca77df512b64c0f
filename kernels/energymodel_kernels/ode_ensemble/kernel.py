"""An accelerator kernel that advances many plans, one per lane, in registers from start to end."""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.runtime.operations import portable
from energymodel_kernels.backends import BACKENDS, Backend, launch, over_lanes
from energymodel_kernels.flat import Flat, flatten
from energymodel_kernels.ode_ensemble.runge_kutta import runge_kutta_step
from energymodel_kernels.ode_ensemble.tiles import Tile


def integrate(
    rate: Callable[[Any, Any, Any, Any], Any],
    state: Any,
    own: Any,
    shared: Any,
    step: Array,
    steps: int,
    saves: int,
    implementation: str,
    approximate: bool,
    tile: Tile,
) -> Any:
    """What `reference.integrate` returns, by a kernel; `shared` are the parameters that all plans have in common."""
    backend = BACKENDS[implementation](approximate=approximate)
    plans, dtype = step.size, step.dtype
    programs = ceil(plans / tile.block)

    def formula(varying: tuple[Any, Any, Any], shared: Any) -> Any:
        return rate(*varying, shared)

    plan = flatten(formula, (step[0], state, own), shared, dtype)
    leaves, structure = jax.tree.flatten((state, own, step))
    rows = jnp.pad(jnp.stack(leaves), ((0, 0), (0, programs * tile.block - plans)), mode="edge")
    numbers = jnp.stack([*plan.numbers, jnp.zeros((), dtype)])
    size = len(jax.tree.leaves(state))
    arranged = backend.arrange(rows, tile.block)
    shape = (saves * size, *arranged.shape[1:])
    (out,) = launch(
        backend,
        partial(
            _kernel,
            backend=backend,
            plan=plan,
            structure=structure,
            rows=len(leaves),
            size=size,
            steps=steps,
            saves=saves,
            tile=tile,
        ),
        "ode_ensemble",
        programs,
        [(numbers, backend.vector_spec(numbers.size)), (arranged, backend.lanes_spec(len(leaves), tile.block))],
        [(jax.ShapeDtypeStruct(shape, dtype), backend.lanes_spec(saves * size, tile.block))],
        tile.warps,
    )
    parts = jnp.moveaxis(out.reshape(saves, size, -1)[:, :, :plans], 1, 0)
    return jax.tree.unflatten(jax.tree.structure(state), list(parts))


def _kernel(
    numbers_ref: Any,
    rows_ref: Any,
    out_ref: Any,
    *,
    backend: Backend,
    plan: Flat,
    structure: Any,
    rows: int,
    size: int,
    steps: int,
    saves: int,
    tile: Tile,
) -> None:
    numbers = [numbers_ref[position] for position in range(len(plan.numbers))]
    leaves = [backend.row(rows_ref, row) for row in range(rows)]
    state, own, step = jax.tree.unflatten(structure, leaves)

    def advance(number: Array, state: Any, lost: Any, own: Any, step: Array) -> tuple[Any, Any]:
        time = number.astype(step.dtype) * step
        return runge_kutta_step(lambda time, y: plan.function((time, y, own), numbers), time, state, lost, step)

    def step_once(number: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        each = portable(over_lanes(partial(advance, number), step.ndim), backend.substitutes)
        return each(*carry, own, step)

    stride = steps // saves

    def part(save: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        start = save * jnp.int32(stride)
        carry = jax.lax.fori_loop(
            jnp.int32(0), jnp.int32(stride), lambda count, carry: step_once(start + count, carry), carry
        )
        for row, lanes in enumerate(jax.tree.leaves(carry[0])):
            backend.write_row(out_ref, save * jnp.int32(size) + row, lanes)
        return carry

    lost = jax.tree.map(jnp.zeros_like, state)
    jax.lax.fori_loop(jnp.int32(0), jnp.int32(saves), part, (state, lost))
