"""What are the Jacobian of many functions and the Hessian of their weighted sum, at once?"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Functions = Callable[[Float[Array, " n"]], Float[Array, " k"]]


def derivatives(functions: Functions, x: Float[Array, " n"], weights: Float[Array, " k"]) -> tuple[Array, Array, Array]:
    """Values, Jacobian and the Hessian of `weights . functions`, from one linearization of the reverse sweep.

    The sweep returns the values beside the weighted gradient, so that its n tangents carry both matrices.
    """

    def sweep(x: Array) -> tuple[Array, Array]:
        values, pull = jax.vjp(functions, x)
        return values, pull(weights)[0]

    (values, _), tangent = jax.linearize(sweep, x)
    jacobian, hessian = jax.vmap(tangent, out_axes=-1)(jnp.eye(x.size, dtype=x.dtype))
    return values, jacobian, 0.5 * (hessian + hessian.T)


def differenced_derivatives(
    functions: Functions, x: Float[Array, " n"], weights: Float[Array, " k"]
) -> tuple[Array, Array, Array]:
    """Values, Jacobian and the Hessian of `weights . functions`, from forward differences of the Jacobian.

    The residual of the optimality conditions needs values and Jacobian only, and those are exact.
    """
    size = x.size
    step = jnp.finfo(x.dtype).eps ** (1 / 3)
    points = x + step * jnp.concatenate([jnp.zeros((1, size), x.dtype), jnp.eye(size, dtype=x.dtype)])

    def expand(point: Array) -> tuple[Array, Array]:
        push = jax.vmap(lambda direction: jax.jvp(functions, (point,), (direction,)), out_axes=(None, -1))
        return push(jnp.eye(size, dtype=x.dtype))

    values, jacobians = jax.vmap(expand)(points)
    slopes = weights @ jacobians
    hessian = (slopes[1:] - slopes[0]) / step
    return values[0], jacobians[0], 0.5 * (hessian + hessian.T)
