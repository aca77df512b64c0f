"""Loss law with separate terms for steps and batch size, so that a best batch exists."""

import equinox as eqx
import jax.numpy as jnp

from energymodel.learning.loss_law import ChinchillaLaw
from energymodel.numerics import Numeric, Real, Values, power_law, real
from energymodel.ranges import EXPONENT


class ThreeTermLaw(eqx.Module):
    """Constants of `L = E + A N^-alpha + c_1 S^-gamma_1 + c_2 B^-gamma_2`, S steps, B batch in tokens."""

    entropy_floor: Real = real("nat/token", doc="E, loss of an infinite model, run and batch")
    parameter_coefficient: Real = real("1", doc="A [nat/token]")
    parameter_exponent: Real = real("1", doc="alpha", within=EXPONENT)
    step_coefficient: Real = real("1", doc="c_1 [nat/token]")
    step_exponent: Real = real("1", doc="gamma_1", within=EXPONENT)
    batch_coefficient: Real = real("1", doc="c_2 [nat/token]")
    batch_exponent: Real = real("1", doc="gamma_2", within=EXPONENT)

    def size_term(self, parameters: Numeric) -> Values:
        """`A N^-alpha` [nat/token]."""
        return power_law(parameters, self.parameter_coefficient, -self.parameter_exponent)

    def step_term(self, steps: Numeric) -> Values:
        """`c_1 S^-gamma_1` [nat/token]."""
        return power_law(steps, self.step_coefficient, -self.step_exponent)


def three_term_loss(parameters: Numeric, steps: Numeric, batch: Numeric, law: ThreeTermLaw) -> Values:
    """Final loss, `L = E + A N^-alpha + c_1 S^-gamma_1 + c_2 B^-gamma_2` [Schaipp 2026].

    **Arguments:**

    - `parameters`: model parameters N [1].
    - `steps`: optimizer steps S [1].
    - `batch`: B [token].

    **Returns:** cross-entropy [nat/token]. At fixed tokens S B it has a minimum: `three_term_optimal_batch`.
    """
    return law.size_term(parameters) + law.step_term(steps) + batch_term(batch, law) + law.entropy_floor


def batch_term(batch: Numeric, law: ThreeTermLaw) -> Values:
    """Loss that no number of steps at this batch removes [nat/token], `c_2 B^-gamma_2` [Schaipp 2026].

    **Arguments:**

    - `batch`: B [token].
    """
    return power_law(batch, law.batch_coefficient, -law.batch_exponent)


def three_term_optimal_batch(tokens: Numeric, law: ThreeTermLaw) -> Values:
    """Lowest-loss batch at given tokens [token], `B = (c_2 gamma_2 D^gamma_1 / (c_1 gamma_1))^(1/(gamma_1 + gamma_2))`.

    [derivation: stationarity of `three_term_loss` in B at S = D/B].

    **Arguments:**

    - `tokens`: D [token].
    """
    g1, g2 = jnp.asarray(law.step_exponent), jnp.asarray(law.batch_exponent)
    ratio = law.batch_coefficient * g2 / (law.step_coefficient * g1)
    return jnp.power(ratio, 1.0 / (g1 + g2)) * jnp.power(jnp.asarray(tokens), g1 / (g1 + g2))


def at_optimal_batch(law: ThreeTermLaw) -> ChinchillaLaw:
    """Loss law at the best batch, `L = E + A N^-alpha + b x^-beta`, `beta = gamma_1 gamma_2 / (gamma_1 + gamma_2)`.

    `b = c_1 K^gamma_1 + c_2 K^-gamma_2`, with K the optimal batch at one token [derivation: `three_term_optimal_batch`
    in `three_term_loss`]. This defines the effective tokens of the law: those that reach the same loss at the best
    constant batch.

    **Returns:** constants with the same floor and size term; loss [nat/token].
    """
    g1, g2 = jnp.asarray(law.step_exponent), jnp.asarray(law.batch_exponent)
    scale = three_term_optimal_batch(1.0, law)
    coefficient = law.step_coefficient * jnp.power(scale, g1) + law.batch_coefficient * jnp.power(scale, -g2)
    return ChinchillaLaw(
        law.entropy_floor, law.parameter_coefficient, law.parameter_exponent, coefficient, g1 * g2 / (g1 + g2)
    )
