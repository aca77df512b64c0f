"""What if gradients were estimated on a quantum computer?

A thought experiment, off by default. There is no evidence of a net benefit today: the default speedup is zero, and
a sample is assumed to cost a million times the energy of a classical one.

Shared arguments: relative `error` eps of the gradient, 0 to 1; `speedup` s, 0 to 1; `energy_overhead` kappa, energy of
a quantum over a classical sample, cooling and error correction included, at least 1 [1].
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, real


def gradient_samples(error: Numeric, speedup: Numeric) -> Float[Array, "..."]:
    """Samples for a gradient with a given relative error, `n = eps^-(2 - s)` [Montanaro 2015].

    Classical sampling has s = 0; quantum mean estimation reaches at best s = 1.

    **Returns:** samples [1].
    """
    return jnp.power(jnp.asarray(error), jnp.asarray(speedup) - 2.0)


def quantum_energy_ratio(error: Numeric, speedup: Numeric, energy_overhead: Numeric) -> Float[Array, "..."]:
    """Energy of quantum over classical gradients with the same error, `kappa eps^s`.

    [derivation: ratio of `gradient_samples` times energy per sample].

    **Returns:** ratio [1]; below 1 the quantum computer saves energy.
    """
    return jnp.asarray(energy_overhead) * jnp.power(jnp.asarray(error), speedup)


def break_even_error(speedup: Numeric, energy_overhead: Numeric) -> Float[Array, "..."]:
    """Error below which the quantum computer saves energy, `eps = kappa^(-1/s)` [derivation: the ratio is 1].

    **Returns:** relative error [1]; 0 without a speedup.
    """
    speedup = jnp.asarray(speedup)
    faster = speedup > 0.0
    error = jnp.exp(-jnp.log(jnp.asarray(energy_overhead)) / jnp.where(faster, speedup, 1.0))
    return jnp.where(faster, error, 0.0)


class QuantumGradient(eqx.Module):
    """Share of the gradient samples that is taken on a quantum computer. Off at share 0, the default."""

    share: Real = real("1", 0.0, doc="share of gradient work done by quantum estimation")
    speedup: Real = real("1", 0.0, doc="s in eps^-(2 - s)")
    energy_overhead: Real = real("1", 1e6, doc="energy per sample over classical (docs/physics.md A0.14, a prior)")
    error: Real = real("1", 0.1, doc="relative error of the gradient; without effect at share 0 or speedup 0")

    def energy_factor(self) -> Float[Array, ""]:
        """Energy of the gradient work relative to classical [1]; exactly 1 when off."""
        ratio = quantum_energy_ratio(self.error, self.speedup, self.energy_overhead)
        return 1.0 + (ratio - 1.0) * self.share
