"""How many bits does a model absorb from its tokens, and how fast?

Shared arguments: `effective_tokens` D [token]; `data_coefficient` b [nat/token] and `data_exponent` beta [1] of the
data term b D^-beta, 0 < beta < 1; `token_rate` R [token/s].
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric


def information_absorbed(
    effective_tokens: Numeric, data_coefficient: Numeric, data_exponent: Numeric
) -> Float[Array, "..."]:
    """Excess code length of learning, `I = int_0^D (L(x) - L(D)) dx / ln 2 = b beta/(1-beta) D^(1-beta) / ln 2`.

    Prequential code: bits that a compressor which learns as it goes uses beyond one that starts with the final model
    [Blier & Ollivier 2018].

    **Returns:** information [bit].
    """
    beta = jnp.asarray(data_exponent)
    return beta * data_coefficient / (1.0 - beta) * jnp.power(jnp.asarray(effective_tokens), 1.0 - beta) / math.log(2.0)


def information_per_token(
    effective_tokens: Numeric, data_coefficient: Numeric, data_exponent: Numeric
) -> Float[Array, "..."]:
    """Information absorbed from the next token, `dI/dD = b beta D^-beta / ln 2`.

    [derivation: derivative of `information_absorbed`].

    **Returns:** information per effective token [bit/token]. Falls as the model learns.
    """
    beta = jnp.asarray(data_exponent)
    return beta * data_coefficient * jnp.power(jnp.asarray(effective_tokens), -beta) / math.log(2.0)


def information_rate(per_token: Numeric, token_rate: Numeric, token_efficiency: Numeric) -> Float[Array, "..."]:
    """Information absorbed per second, `dI/dt = (dI/dD) R e(B)/e_0` [derivation: chain rule through effective tokens].

    The sources' processing rate I = E T, with the efficiency e made explicit.

    **Arguments:**

    - `per_token`: information per effective token, dI/dD [bit/token].
    - `token_efficiency`: effective tokens per token, e(B)/e_0 [1], at most 1.

    **Returns:** information rate [bit/s].
    """
    return jnp.asarray(per_token) * token_rate * token_efficiency
