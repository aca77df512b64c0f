"""Saturation of throughput and power with the batch, best batches, and the division of work over unlike devices.

Throughput saturates at `B_h`, progress per token falls beyond the critical batch `B_c` [McCandlish et al. 2018], and a
chip draws `P = P_i + P_d R / R_0` at throughput R. Time to a loss, relative to the ideal, is then
`(1 + B/B_c)(1 + B_h/B)`, and energy `(1 + B/B_c)(1 + s B_h/B)` with the idle share s = P_i / (P_i + P_d).

Shared arguments, all positive: `batch` B, `critical_batch` B_c, and `half_batch` B_h, the fixed time per step over the
time of a token [token]; `fixed_time` t_0 of a step, which does not depend on the batch [s]; `token_time` tau, the
additional time per token [s/token]; `idle_power` P_i, drawn all the time, and `work_power` P_d, on top of it at full
throughput [W]; of memory, `step_traffic` w of weights and optimizer [B], `token_traffic` a of activations [B/token],
`traffic_rate` r [B/s] and `energy_per_byte` e [J/B].
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from energymodel.numerics import Numeric, Real, Scalar, Values, p_norm, real
from energymodel.ranges import ABOVE_ZERO, EXPONENT, SHARE_ABOVE_ZERO


def saturating_throughput(
    batch: Numeric,
    maximum_throughput: Numeric,
    saturation_batch: Numeric,
    exponent: Numeric = 1.0,
    sharpness: Numeric = 1.0,
) -> Values:
    """Throughput of a batch [token/s], `R = R_0 [1 + (B_s / B)^p]^(-g / p)` [derivation: docs/physics.md A0.3].

    p = g = 1 is a step of fixed and proportional time, `R = B / (t_0 + tau B)` with `B_s = t_0 / tau`;
    p -> infinity is `R_0 min(1, B / B_s)^g`.

    **Arguments:**

    - `maximum_throughput`: R_0 [token/s].
    - `saturation_batch`: B_s [token].
    - `exponent`: g, slope in logarithms at small batches [1].
    - `sharpness`: p, of the bend [1].
    """
    utilization = jnp.asarray(batch) / p_norm(sharpness, batch, saturation_batch)
    return jnp.asarray(maximum_throughput) * jnp.exp(exponent * jnp.log(utilization))


def half_throughput_batch(fixed_time: Numeric, token_time: Numeric) -> Values:
    """Batch that reaches half of the maximum throughput [token], `B_h = t_0 / tau` [derivation: t_0 = tau B_h]."""
    return jnp.asarray(fixed_time) / token_time


def exponential_saturation(batch: Numeric, maximum: Numeric, scale: Numeric) -> Values:
    """Efficiency of a batch [1], `eta = eta_0 (1 - exp(-B / B_0))` [derivation: docs/physics.md A2.7].

    An alternative to `saturating_throughput`. B_0 is an e-folding scale, not an optimum: it reaches 63 %.

    **Arguments:**

    - `maximum`: eta_0 [1].
    - `scale`: B_0 [token].
    """
    # 1 - e^-x = 2 t / (1 + t) with t = tanh(x / 2), without cancellation at small x.
    t = jnp.tanh(0.5 * jnp.asarray(batch) / scale)
    return jnp.asarray(maximum) * (2.0 * t / (1.0 + t))


def compute_power(batch: Numeric, work_power: Numeric, half_batch: Numeric) -> Values:
    """Power of the arithmetic [W], `P = P_d B / (B + B_h)` [derivation: docs/physics.md A2.8].

    Proportional to the batch only far below B_h; bounded by the device.
    """
    B = jnp.asarray(batch)
    return jnp.asarray(work_power) * (B / (B + half_batch))


def memory_traffic_rate(
    batch: Numeric, step_traffic: Numeric, token_traffic: Numeric, fixed_time: Numeric, token_time: Numeric
) -> Values:
    """Memory traffic per time [B/s], `(w + a B) / (t_0 + tau B)` [derivation: docs/physics.md A2.8].

    Falls with the batch where `w / t_0 > a / tau`. There is no bandwidth limit in it: where the result exceeds the
    device's bandwidth, t_0 is too short for w, and a roofline gives the step time.
    """
    B, w, t_0 = map(jnp.asarray, (batch, step_traffic, fixed_time))
    return (w + token_traffic * B) / (t_0 + token_time * B)


def memory_power(traffic_rate: Numeric, energy_per_byte: Numeric) -> Values:
    """Power of the memory [W], `P = e r` [definition]."""
    return jnp.asarray(traffic_rate) * energy_per_byte


class AbstractSaturation(eqx.Module):
    """Rate of products of small batches, relative to that of their kernels."""

    @abc.abstractmethod
    def utilization(self, batch: Numeric) -> Values:
        """Rate of the products of a step with a global `batch` [token] over that of their kernels [1]."""

    def byte_energy(self, energy: Scalar, batch: Numeric) -> Scalar:
        """Energy of a byte that kernels move [J/B] in such a step, from that of the memory: the same."""
        return energy


class KernelSaturation(AbstractSaturation):
    """The rate is that of the kernels, whose tiles, launches and bubbles saturate with the sizes of the work."""

    def utilization(self, batch: Numeric) -> Values:
        """One."""
        return jnp.ones_like(jnp.asarray(batch))


class StatedSaturation(AbstractSaturation):
    """The throughput curve of "Training Dynamics", on top of what the kernels lose: see `saturating_throughput`."""

    saturation_batch: Real = real(
        "token", doc="global batch beyond which throughput no longer grows", within=ABOVE_ZERO
    )
    utilization_exponent: Real = real(
        "1", 1.0, doc="slope of throughput in logarithms at small batches", within=EXPONENT
    )
    bend: Real = real("1", 100.0, doc="sharpness of the bend; the document has a kink", within=ABOVE_ZERO)

    def utilization(self, batch: Numeric) -> Values:
        """See `AbstractSaturation.utilization`."""
        return saturating_throughput(batch, 1.0, self.saturation_batch, self.utilization_exponent, self.bend)


class StatedBatchPower(AbstractSaturation):
    """Laws of the batch of "Engineering Optimization", `eta = g (1 - exp(-B / B_opt))` and `P_memory` as `sqrt(B)`.

    Products take 1/eta of the time of their kernels at the same energy, so that `P_compute` goes as eta: as B far below
    B_opt. Memory draws `sqrt(B / B_0)` times the power of its traffic.
    """

    efficiency_batch: Real = real("token", doc="B_opt, an e-folding scale", within=ABOVE_ZERO)
    memory_batch: Real = real("token", doc="B_0, at which memory draws the power of its traffic", within=ABOVE_ZERO)
    maximum_efficiency: Real = real("1", 1.0, doc="g", within=SHARE_ABOVE_ZERO)

    def utilization(self, batch: Numeric) -> Values:
        """See `exponential_saturation`."""
        return exponential_saturation(batch, self.maximum_efficiency, self.efficiency_batch)

    def byte_energy(self, energy: Scalar, batch: Numeric) -> Scalar:
        """`e sqrt(B / B_0)` [J/B]."""
        return energy * jnp.sqrt(jnp.asarray(batch) / self.memory_batch)


def time_optimal_batch(critical_batch: Numeric, half_batch: Numeric) -> Values:
    """Time-optimal batch of a given fleet [token], `B*_T = sqrt(B_h B_c)` [derivation: zero slope of the time]."""
    return jnp.sqrt(jnp.asarray(critical_batch) * half_batch)


def energy_optimal_batch(
    critical_batch: Numeric, half_batch: Numeric, idle_power: Numeric, work_power: Numeric
) -> Values:
    """Energy-optimal batch, `B*_E = sqrt(B_h B_c P_i / (P_i + P_d))` [derivation: zero slope of the energy].

    **Returns:** batch [token], at most the time-optimal one.
    """
    share = jnp.asarray(idle_power) / (jnp.asarray(idle_power) + work_power)
    return time_optimal_batch(critical_batch, half_batch * share)


Devices = Float[ArrayLike, "*batch devices"]


def proportional_split(work: Numeric, throughputs: Devices, exponent: Numeric = 1.0) -> Float[Array, "*batch devices"]:
    """Work of each device, `W_i = W s_i^a / sum_j s_j^a` [derivation: docs/physics.md A2.17].

    a = 1 minimizes the makespan of a synchronous step, a = 0 divides evenly.

    **Arguments:**

    - `work`: W in all [token].
    - `throughputs`: s_i of each device, positive [token/s].
    - `exponent`: a [1].

    **Returns:** work of each device [token], summing to W.
    """
    s = jnp.asarray(throughputs)
    # Only ratios matter; the largest as unit keeps powers in range.
    weight = jnp.exp(jnp.asarray(exponent)[..., None] * jnp.log(s / jnp.max(s, axis=-1, keepdims=True)))
    return jnp.asarray(work)[..., None] * weight / jnp.sum(weight, axis=-1, keepdims=True)
