"""The totals along a schedule by an integrator with step-size control, as a reference for the quadrature."""

import jax
import jax.numpy as jnp

from energymodel.learning.loss_ode import integrate
from energymodel.learning.schedule import batch_at

STRETCH, LEAST_PROGRESS = 8, 1e-24


def integrate_over_progress(rates, effective_tokens, knots, learning, parameters):
    """`Q = int_0^x_end q(B(x/x_end)) p(x, B) dx` and the tokens, with x = x_end u^8 [docs/physics.md B1]."""
    dtype = jnp.result_type(jnp.asarray(effective_tokens), knots)
    end, knots = jnp.asarray(effective_tokens, dtype), jnp.asarray(knots, dtype)

    def with_tokens(batch):
        return jax.tree.map(lambda q: jnp.asarray(q, batch.dtype), rates(batch)), jnp.ones_like(batch)

    def size(values):
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(values)))
        return jnp.where(largest > 0, largest, 1.0)

    scale = jax.tree.map(lambda q: size(end * q), jax.vmap(with_tokens)(jnp.exp(knots)))

    def derivative(u, state):
        progress = jnp.maximum(u**STRETCH, LEAST_PROGRESS)
        batch = batch_at(progress, knots)
        weight = end * STRETCH * u ** (STRETCH - 1) * learning.penalty(parameters, end * progress, batch)
        return jax.tree.map(lambda q: q * weight, with_tokens(batch))

    inner = jnp.linspace(0.0, 1.0, knots.shape[0])[1:-1] ** (1.0 / STRETCH)
    kinks = jnp.asarray(inner, knots.dtype) if knots.shape[0] > 2 else None
    return jax.tree.map(lambda q: q[0], integrate(derivative, scale, jnp.ones(1, knots.dtype), kinks))
