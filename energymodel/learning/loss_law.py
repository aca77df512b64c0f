"""Loss of a model by size, shape, tokens and batch, and the information that it absorbs.

Shared arguments: model `parameters` N [1]; `effective_tokens` and `tokens` D [token]; `loss` L to reach [nat/token];
`data_coefficient` b [nat/token] and `data_exponent` beta [1] of the data term b D^-beta, 0 < beta < 1; `token_rate` R
[token/s]; `per_token`, information per effective token, dI/dD [bit/token]; `token_efficiency`, effective tokens per
token, e(B)/e_0, at most 1 [1].
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp

from energymodel.numerics import Numeric, Real, Values, power_law, real
from energymodel.ranges import ABOVE_ZERO, SHARE_ABOVE_ZERO, Range

FLOP_PER_PARAMETER_AND_TOKEN = 6.0
"""Training compute, forward and backward, without attention: C = 6 N D [Kaplan et al. 2020, sec. 2]."""

UNREACHABLE_TOKENS = 1e20
"""Tokens from which a loss counts as out of reach: a million times the largest run, still safe in float32."""


def information_absorbed(effective_tokens: Numeric, data_coefficient: Numeric, data_exponent: Numeric) -> Values:
    """Excess code length of learning [bit], `I = int_0^D (L(x) - L(D)) dx / ln 2 = b beta/(1-beta) D^(1-beta) / ln 2`.

    Prequential code: bits that a compressor which learns as it goes uses beyond one that starts with the final model
    [Blier & Ollivier 2018].
    """
    beta = jnp.asarray(data_exponent)
    return beta * data_coefficient / (1.0 - beta) * jnp.power(jnp.asarray(effective_tokens), 1.0 - beta) / math.log(2.0)


def information_rate(per_token: Numeric, token_rate: Numeric, token_efficiency: Numeric) -> Values:
    """Rate of information [bit/s], `dI/dt = (dI/dD) R e(B)/e_0` [derivation: chain rule through effective tokens].

    The sources' processing rate I = E T, with the efficiency e made explicit; `trajectory` differentiates the
    information along the run instead.
    """
    return jnp.asarray(per_token) * token_rate * token_efficiency


class AbstractLossLaw(eqx.Module):
    """Loss as a function of model size and effective tokens (tokens at vanishing batch size)."""

    @abc.abstractmethod
    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """Cross-entropy [nat/token] of `parameters` after `effective_tokens` [token]."""

    @abc.abstractmethod
    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """Effective tokens [token] at which `parameters` reach `loss` [nat/token]; huge but finite out of reach."""

    @abc.abstractmethod
    def information(self, effective_tokens: Numeric) -> Values:
        """Information absorbed [bit] after `effective_tokens` [token]."""


class ChinchillaLaw(AbstractLossLaw):
    """Power laws above an entropy floor, `L = E + A N^-alpha + b x^-beta`, N parameters, x effective tokens.

    Coefficients carry the units that make N and x plain numbers (parameters, tokens).
    """

    entropy_floor: Real = real("nat/token", doc="E, loss of an infinite model on infinite data")
    parameter_coefficient: Real = real("1", doc="A [nat/token]")
    parameter_exponent: Real = real("1", doc="alpha", within=SHARE_ABOVE_ZERO)
    data_coefficient: Real = real("1", doc="b [nat/token]", within=ABOVE_ZERO)
    # From 1 on, the first tokens would hold infinite information.
    data_exponent: Real = real("1", doc="beta", within=Range(0.0, 0.99, above=True))

    def size_term(self, parameters: Numeric) -> Values:
        """`A N^-alpha` [nat/token]."""
        return power_law(parameters, self.parameter_coefficient, -self.parameter_exponent)

    def data_term(self, effective_tokens: Numeric) -> Values:
        """`b x^-beta` [nat/token]."""
        return power_law(effective_tokens, self.data_coefficient, -self.data_exponent)

    def loss(self, parameters: Numeric, effective_tokens: Numeric) -> Values:
        """See `chinchilla_loss`."""
        return chinchilla_loss(parameters, effective_tokens, self)

    def effective_tokens(self, parameters: Numeric, loss: Numeric) -> Values:
        """See `chinchilla_tokens`."""
        return chinchilla_tokens(parameters, loss, self)

    def information(self, effective_tokens: Numeric) -> Values:
        """See `information_absorbed`."""
        return information_absorbed(effective_tokens, self.data_coefficient, self.data_exponent)


def chinchilla_loss(parameters: Numeric, tokens: Numeric, law: ChinchillaLaw) -> Values:
    """Final training loss, `L = E + A / N^alpha + b / D^beta` [Hoffmann et al. 2022, eq. 2].

    Fitted on 70M to 16B parameters and 5 to 500 billion tokens, one epoch, schedule matched to `tokens`; beyond
    that it extrapolates. The refit of [Besiroglu et al. 2024] is the default preset.

    **Arguments:**

    - `parameters`: model parameters N [1]; `effective_parameters` for a mixture of experts.
    - `tokens`: training tokens D [token]; effective tokens where the batch matters.

    **Returns:** cross-entropy [nat/token]. Decreasing in both arguments, above `law.entropy_floor`.
    """
    return law.size_term(parameters) + law.data_term(tokens) + law.entropy_floor


def chinchilla_tokens(parameters: Numeric, loss: Numeric, law: ChinchillaLaw) -> Values:
    """Tokens that reach a loss, `D_0 = (b / (L - E - A N^-alpha))^(1/beta)` [derivation: inverse of `chinchilla_loss`].

    A loss out of reach of the model size costs more than 1e20 tokens: below the gap g_u at which D_0 = 1e20, the
    logarithm continues as `ln 1e20 + g_u - gap`, finite and with a slope that points back to feasible losses.

    **Returns:** effective tokens D_0 [token]. Decreasing in both arguments.
    """
    size = law.size_term(parameters)
    return tokens_for_gap(loss - law.entropy_floor - size, law.data_coefficient, law.data_exponent)


def tokens_for_gap(gap: Numeric, data_coefficient: Numeric, data_exponent: Numeric) -> Values:
    """Tokens at which the data term equals a gap [token], `D_0 = (b / gap)^(1/beta)` [definition].

    Continued to gaps that are not positive as in `chinchilla_tokens`.

    **Arguments:**

    - `gap`: loss left to the data term [nat/token], of any sign.
    - `data_coefficient`: b [nat/token].
    - `data_exponent`: beta [1].
    """
    gap, coefficient = jnp.asarray(gap), jnp.asarray(data_coefficient)
    smallest = coefficient * jnp.power(UNREACHABLE_TOKENS, -jnp.asarray(data_exponent))
    reachable = gap > smallest
    tokens = jnp.power(coefficient / jnp.where(reachable, gap, coefficient), 1.0 / jnp.asarray(data_exponent))
    beyond = UNREACHABLE_TOKENS * jnp.exp(jnp.where(reachable, 0.0, smallest - gap))
    return jnp.where(reachable, tokens, beyond)


def effective_parameters(active: Numeric, total: Numeric, exponent: Numeric) -> Values:
    """Dense size with the loss of a mixture of experts, `N_eff = N_active^(1-mu) N_total^mu`.

    [derivation: weighted geometric mean, after the effective size of Clark et al. 2022]. A weak prior, mu about 0.2 to
    0.35; a dense model has N_active = N_total.

    **Arguments:**

    - `active`: parameters used by a token, N_active [1].
    - `total`: all parameters, N_total [1].
    - `exponent`: mu [1], 0 to 1.

    **Returns:** parameters that enter the loss law [1], between `active` and `total`.
    """
    active = jnp.asarray(active)
    return active * jnp.power(total / active, exponent)


def unique_equivalent_tokens(tokens: Numeric, unique_tokens: Numeric, repetition_scale: Numeric) -> Values:
    """Unique tokens worth the repeated ones [token], `D = U (1 + R* (1 - e^(-(e-1)/R*)))` [Muennighoff et al. 2023].

    With `e = tokens / U` epochs. Data seen at most once (e <= 1) counts in full. Valid up to about four epochs; the
    limit is U (1 + R*).

    **Arguments:**

    - `tokens`: tokens seen, repetitions included [token].
    - `unique_tokens`: tokens in the data set, U [token].
    - `repetition_scale`: R*, repetitions after which the value of a token has fallen to 1/e [1], about 15.4.
    """
    tokens, unique = jnp.asarray(tokens), jnp.asarray(unique_tokens)
    repetitions = jnp.maximum(tokens / unique - 1.0, 0.0)
    return jnp.minimum(tokens, unique) - unique * repetition_scale * jnp.expm1(-repetitions / repetition_scale)


def shape_penalty(width: Numeric, depth: Numeric, best_ratio: Numeric, stiffness: Numeric) -> Values:
    """Loss added by the shape of a transformer, `dL = k ln^2(h / (l r))`.

    [derivation: lowest order in ln r about the flat optimum of Kaplan et al. 2020, fig. 5]. A prior: the figure shows
    less than about 3 % over a factor of 40 in the ratio.

    **Arguments:**

    - `width`: hidden size h [1].
    - `depth`: layers l [1].
    - `best_ratio`: r, best h/l [1], about 100.
    - `stiffness`: k [nat/token], about 0.005.

    **Returns:** added loss [nat/token], 0 at the best ratio.
    """
    return jnp.asarray(stiffness) * jnp.log(jnp.asarray(width) / (depth * jnp.asarray(best_ratio))) ** 2
