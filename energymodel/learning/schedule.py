"""Tokens, time and energy of a run whose batch size follows its progress.

A schedule is a set of knots: logarithms of the batch, equally spaced in progress (the share of the run's effective
tokens), with linear interpolation. One knot is a constant batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.learning.learning import AbstractLearning, least_log_efficiency
from energymodel.numerics import Numeric, Scalar, Values, implicit_root

Knots = Float[Array | np.ndarray, " knots"]
"""Logarithms of the batch [token] at equally spaced progress."""

_STRETCH = 8
"""Progress is u^8: x^-xi, which diverges at the start, is then smooth in u for every xi below 7/8."""

_NODES = 16
"""Gauss-Legendre nodes in a panel of the quadrature."""

_FIRST_PANELS = 8
"""Panels before the second knot, where the critical batch changes fastest; one panel between later knots."""

_GREATEST_LOG_EFFICIENCY = 3.0
"""Upper bracket of ln(effective tokens / tokens); a schedule may beat the best constant batch a little."""


def batch_at(progress: Numeric, knots: Knots) -> Values:
    """Batch of a schedule [token], `ln B(p) = ln B_i + (ln B_(i+1) - ln B_i) (p (n - 1) - i)` from knot i [definition].

    **Arguments:**

    - `progress`: p, share of the effective tokens of the run [1], 0 to 1.
    - `knots`: ln B_i, at p = i/(n - 1), i = 0 to n - 1; batches in tokens [1].
    """
    count = knots.shape[0]
    position = jnp.clip(jnp.asarray(progress), 0.0, 1.0) * (count - 1)
    weights = jnp.maximum(1.0 - jnp.abs(position[..., None] - np.arange(count)), 0.0)
    return jnp.exp(jnp.sum(weights * knots, axis=-1))


def quadrature_over_progress(
    rates: Callable[..., Any], effective_tokens: Numeric, knots: Knots, learning: AbstractLearning, parameters: Numeric
) -> tuple[Any, Scalar]:
    """Totals along a schedule, `Q = int_0^x_end q(B(x/x_end)) p(x, B) dx` and `D = int_0^x_end p(x, B) dx`.

    [derivation: docs/physics.md B1, schedule ODE with x as independent variable]. q is a quantity per token, p tokens
    per effective token (`AbstractLearning.penalty`), infinite but integrable at the start; the substitution x = x_end
    u^8 makes it smooth. 16 Gauss-Legendre nodes in each panel of u [Abramowitz & Stegun 1964, eq. 25.4.29]: a sum
    without step-size control is cheap to compile and to run, and differentiable to any order. For rates that are smooth
    between knots it agrees with an integration of the ODE to 1e-9 (1e-6 for Kaplan's critical batch); the error at a
    jump between knots is at most one node's weight. With one knot it equals the closed form.

    **Arguments:**

    - `rates`: pytree of quantities per token as a function of the batch: [s/token], [J/token], [USD/token].
    - `effective_tokens`: x_end [token], a scalar.
    - `knots`: logarithms of the batch.
    - `learning`: how batches turn tokens into progress.
    - `parameters`: model parameters N, which a critical batch may depend on through the loss [1].

    **Returns:** the totals, a pytree like that of `rates` ([s], [J], [USD]), and the tokens [token].
    """
    end, knots = _same_precision(effective_tokens, knots)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    segments = _segments(knots.shape[0])
    bounds = np.concatenate([np.linspace(0.0, segments[1], _FIRST_PANELS, endpoint=False), segments[1:]])
    half = 0.5 * np.diff(bounds)[:, None]
    u = (bounds[:-1, None] + half * (1.0 + nodes)).ravel()
    progress = jnp.asarray(u**_STRETCH, knots.dtype)
    batch = batch_at(progress, knots)
    weight = jnp.asarray((half * weights).ravel() * _STRETCH * u ** (_STRETCH - 1), knots.dtype)
    weight = end * weight * learning.penalty(parameters, end * progress, batch)
    return jax.tree.map(lambda q: jnp.sum(q * weight), jax.vmap(lambda at: _with_tokens(rates(at), at))(batch))


def schedule_tokens(effective_tokens: Numeric, knots: Knots, learning: AbstractLearning, parameters: Numeric) -> Scalar:
    """Tokens that a schedule processes [token], `D = int_0^x_end p(x, B) dx` [derivation: docs/physics.md B1].

    Arguments as in `quadrature_over_progress`.
    """
    return quadrature_over_progress(lambda batch: (), effective_tokens, knots, learning, parameters)[1]


def schedule_effective_tokens(tokens: Numeric, knots: Knots, learning: AbstractLearning, parameters: Numeric) -> Scalar:
    """Progress of a schedule that processes given tokens: x_end with `D(x_end) = D`.

    [derivation: `schedule_tokens` solved for x_end].

    **Arguments:**

    - `tokens`: D [token], a scalar.
    - the others: as in `quadrature_over_progress`.

    **Returns:** effective tokens at the end [token].
    """
    inputs = (jnp.asarray(tokens), jnp.asarray(knots), learning, jnp.asarray(parameters))

    def excess(log_efficiency: Array, inputs: Any) -> Array:
        tokens, knots, learning, parameters = inputs
        return jnp.log(schedule_tokens(tokens * jnp.exp(log_efficiency), knots, learning, parameters) / tokens)

    lowest = least_log_efficiency(excess, inputs, inputs[0])
    highest = jnp.full_like(inputs[0], _GREATEST_LOG_EFFICIENCY)
    return inputs[0] * jnp.exp(implicit_root(excess, lowest, highest, inputs))


def _segments(count: int) -> np.ndarray:
    """Values of u at the knots, 0 and 1 included."""
    return np.linspace(0.0, 1.0, max(count, 2)) ** (1.0 / _STRETCH)


def _same_precision(effective_tokens: Numeric, knots: Knots) -> tuple[Array, Array]:
    """Both as arrays of their common precision."""
    dtype = jnp.result_type(jnp.asarray(effective_tokens), knots)
    return jnp.asarray(effective_tokens, dtype), jnp.asarray(knots, dtype)


def _with_tokens(rates: Any, batch: Array) -> tuple[Any, Array]:
    """Rates per token, with 1 for the tokens themselves."""
    return jax.tree.map(lambda q: jnp.asarray(q, batch.dtype), rates), jnp.ones_like(batch)
