"""Loss over time when batch size, throughput and prices change during the run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.numerics import Numeric, Values

TOLERANCES = {"float64": 1e-10, "float32": 1e-5}
"""Relative tolerance of every integration, by precision."""

MAXIMUM_STEPS = 4096
"""Steps after which an integration gives up."""


def loss_rate(
    loss: Numeric, parameters: Numeric, token_rate: Numeric, batch: Numeric, critical_batch: Numeric, law: ChinchillaLaw
) -> Values:
    """Rate at which the loss falls, `dL/dt = -beta b^(-1/beta) (L - L_inf)^(1+1/beta) R / (1 + B/B_n)`.

    [derivation: time derivative of L = L_inf + b x^-beta with dx/dt = R / (1 + B/B_n), docs/physics.md A0.10]. The
    sources' exponential decay is the limit 1/beta -> 0 with L_inf = 0. At or below the floor the rate is 0.

    **Arguments:**

    - `loss`: L [nat/token].
    - `parameters`: model parameters N, which set `L_inf = E + A N^-alpha` [1].
    - `token_rate`: throughput R [token/s].
    - `batch`: B [token].
    - `critical_batch`: instantaneous critical batch B_n [token].

    **Returns:** rate of the loss [nat/(token s)], never positive.
    """
    beta = jnp.asarray(law.data_exponent)
    gap = loss - law.entropy_floor - law.size_term(parameters)
    above = gap > 0
    # gap (gap/b)^(1/beta): b^(-1/beta) alone underflows in float32.
    gap = jnp.where(above, gap, 1.0)
    per_token = beta * gap * jnp.power(gap / law.data_coefficient, 1.0 / beta)
    return jnp.where(above, -per_token * token_rate / (1.0 + jnp.asarray(batch) / critical_batch), 0.0)


class Trajectory(NamedTuple):
    """A run at given times [s]: effective and processed tokens [token], loss [nat/token], integrals of extra rates."""

    times: Float[Array, " times"]
    effective_tokens: Float[Array, " times"]
    tokens: Float[Array, " times"]
    loss: Float[Array, " times"]
    totals: PyTree[Float[Array, " times"]]


def integrate_training(
    times: Float[Array, " times"],
    batch: Callable[[Any], Any],
    token_rate: Callable[[Any, Any], Any],
    learning: AbstractLearning,
    parameters: Numeric,
    initial_effective_tokens: Numeric,
    extra_rates: Callable[[Any, Any, Any], Any] | None = None,
) -> Trajectory:
    """Training as an initial-value problem, `dx/dt = R(B) / p(x, B)`, `dD/dt = R(B)`, `dQ/dt = q(t, B)`, `L = L(N, x)`.

    [derivation: docs/physics.md B1, schedule ODE]. The state x (effective tokens) is not stiff; p is
    `AbstractLearning.penalty`, tokens per effective token; the loss follows from x. Dormand-Prince 8(7) with a relative
    tolerance of 1e-10 (1e-5 in float32), differentiable in forward and reverse mode. An integration that does not
    finish returns infinities.

    **Arguments:**

    - `times`: increasing times at which to report, after the start at 0 [s].
    - `batch`: B as a function of x [token], for example one that grows with the critical batch.
    - `token_rate`: R as a function of B and x [token/s].
    - `learning`: how batches turn tokens into progress.
    - `parameters`: model parameters N [1].
    - `initial_effective_tokens`: x at the start [token], above 0.
    - `extra_rates`: pytree of rates as a function of time, B and x, for energy [W], money [USD/s], carbon [kg/s].

    **Returns:** times [s], x and D [token], loss [nat/token] and the integrals of the extra rates ([J], [USD], [kg]).
    """
    extra = extra_rates if extra_rates is not None else lambda time, batch, x: ()
    start = jnp.asarray(initial_effective_tokens) * jnp.ones_like(times[0])

    def derivative(time: Any, state: Any) -> tuple[Any, Any, Any]:
        x = start + state[0]
        size = batch(x)
        rate = token_rate(size, x)
        return rate / learning.penalty(parameters, x, size), rate, extra(time, size, x)

    first = derivative(jnp.zeros_like(start), (jnp.zeros_like(start), start, ()))
    scale = jax.tree.map(lambda rate: _magnitude(jnp.asarray(rate) * times[-1]), first)
    gained, tokens, totals = integrate(derivative, (scale[0] + start, *scale[1:]), times)
    effective_tokens = start + gained
    return Trajectory(times, effective_tokens, tokens, learning.loss(parameters, effective_tokens), totals)


def integrate(derivative: Callable[[Any, Any], Any], scale: Any, times: Float[Array, " times"]) -> Any:
    """Integral from 0 to each time, `y = int_0^t f(s, y) ds`, by Dormand-Prince 8(7) [Hairer et al. 1993, sec. II.5].

    One tolerance serves tokens, joules and dollars alike, because each is integrated in units of its own scale.
    Integrals come out infinite if the integration does not finish.

    **Arguments:**

    - `derivative`: f(t, y), a pytree of scalars in any unit, for example [W] for an integral in [J].
    - `scale`: pytree like f, expected size of each integral, above 0; its values carry no gradient.
    - `times`: increasing times at which to report [s]; the last one ends the integration.

    **Returns:** a pytree like f with `times` as axis, units of f times [s].
    """
    import diffrax

    leaves, structure = jax.tree.flatten(scale)
    dtype = jnp.result_type(times, *leaves)
    units = jax.lax.stop_gradient(jnp.stack([jnp.asarray(leaf, dtype) for leaf in leaves]))

    def unpack(scaled: Array) -> Any:
        return jax.tree.unflatten(structure, list(jnp.moveaxis(scaled * units, -1, 0)))

    def scaled_derivative(time: Any, scaled: Any, args: Any) -> Array:
        rates = jax.tree.leaves(derivative(time, unpack(scaled)))
        return jnp.stack([jnp.asarray(rate, dtype) for rate in rates]) / units

    tolerance = TOLERANCES[str(dtype)]
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(scaled_derivative),
        diffrax.Dopri8(),
        t0=jnp.zeros_like(times[-1]),
        t1=times[-1],
        dt0=None,
        y0=jnp.zeros_like(units),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        adjoint=diffrax.DirectAdjoint(),
        max_steps=MAXIMUM_STEPS,
        throw=False,
    )
    finished = solution.result == diffrax.RESULTS.successful
    values: Any = solution.ys
    return unpack(jnp.where(finished, values, jnp.inf))


def _magnitude(value: Array) -> Array:
    """Size of a quantity, 1 if it vanishes; a unit of measurement, so without gradient."""
    size = jax.lax.stop_gradient(jnp.abs(value))
    return jnp.where(size > 0, size, 1.0)
