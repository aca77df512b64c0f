"""The evolution of many plans in plain JAX: specification of the kernel, and what runs where none is faster."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from energymodel_kernels.ode_ensemble.runge_kutta import runge_kutta_step


def integrate(rate: Callable[[Any, Any, Any], Any], state: Any, own: Any, step: Any, steps: int, saves: int) -> Any:
    """States of all plans after each of `saves` equal parts; see `ode_ensemble`. `own` leads to a plan's parameters."""

    def advance(state: Any, lost: Any, own: Any, step: Any, number: Any) -> tuple[Any, Any]:
        return runge_kutta_step(lambda time, y: rate(time, y, own), number.astype(step.dtype) * step, state, lost, step)

    each = jax.vmap(advance, in_axes=(0, 0, 0, 0, None))
    stride = steps // saves

    def part(carry: tuple[Any, Any], save: Any) -> tuple[tuple[Any, Any], Any]:
        def step_once(count: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            return each(*carry, own, step, save * jnp.int32(stride) + count)

        carry = jax.lax.fori_loop(jnp.int32(0), jnp.int32(stride), step_once, carry)
        return carry, carry[0]

    lost = jax.tree.map(jnp.zeros_like, state)
    return jax.lax.scan(part, (state, lost), jnp.arange(saves, dtype=jnp.int32))[1]
