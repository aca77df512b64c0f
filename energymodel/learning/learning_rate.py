"""How should the learning rate follow the batch size, and what does a wrong one cost?

Shared arguments: `batch` B, `critical_batch` (noise scale) B_n and `tokens` D of the run [token]; `learning_rate` eta,
`maximum` eta_max (SGD: without noise; Adam: at the peak) and `weight_decay` lambda [1].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, power_law


def sgd_learning_rate(batch: Numeric, maximum: Numeric, critical_batch: Numeric) -> Float[Array, "..."]:
    """Best learning rate of SGD, `eta = eta_max / (1 + B_n/B)` [McCandlish et al. 2018, sec. 2.2].

    Linear at small batches, saturating at large ones.

    **Returns:** learning rate [1].
    """
    return jnp.asarray(maximum) / (1.0 + critical_batch / jnp.asarray(batch))


def adam_learning_rate(batch: Numeric, maximum: Numeric, critical_batch: Numeric) -> Float[Array, "..."]:
    """Best learning rate of sign-like optimizers, `eta = 2 eta_max / (sqrt(B_n/B) + sqrt(B/B_n))` [Li et al. 2024].

    The surge: it grows as sqrt(B), peaks at B = B_n and falls again.

    **Returns:** learning rate [1].
    """
    root = jnp.sqrt(jnp.asarray(batch) / critical_batch)
    return 2.0 * jnp.asarray(maximum) / (1.0 / root + root)


def mismatch_loss(learning_rate: Numeric, optimal: Numeric, stiffness: Numeric) -> Float[Array, "..."]:
    """Loss added by a wrong learning rate, `dL = (k/2) ln^2(eta/eta_opt)`.

    [derivation: lowest order about the optimum in ln eta].

    **Arguments:**

    - `optimal`: eta_opt [1].
    - `stiffness`: k [nat/token], about 0.02 (0.005 to 0.05, a prior).

    **Returns:** added loss [nat/token].
    """
    return 0.5 * jnp.asarray(stiffness) * jnp.log(jnp.asarray(learning_rate) / optimal) ** 2


def averaging_timescale(
    batch: Numeric, learning_rate: Numeric, weight_decay: Numeric, tokens: Numeric
) -> Float[Array, "..."]:
    """Memory of AdamW as a share of the run, `tau = B / (eta lambda D)` [Wang & Aitchison 2024].

    **Returns:** timescale tau [1].
    """
    return jnp.asarray(batch) / (jnp.asarray(learning_rate) * weight_decay * tokens)


def optimal_timescale(tokens_per_parameter: Numeric, coefficient: Numeric, exponent: Numeric) -> Float[Array, "..."]:
    """Best memory of AdamW, `tau = c (D/N)^m`, m negative [Bergsma et al. 2025].

    **Arguments:**

    - `tokens_per_parameter`: D/N [token].
    - `coefficient`: c [1].
    - `exponent`: m [1].

    **Returns:** timescale tau [1].
    """
    return power_law(tokens_per_parameter, coefficient, exponent)


def weight_decay_for_timescale(
    batch: Numeric, learning_rate: Numeric, timescale: Numeric, tokens: Numeric
) -> Float[Array, "..."]:
    """Weight decay that keeps a timescale, `lambda = B / (eta tau D)` [derivation: `averaging_timescale` for lambda].

    **Arguments:**

    - `timescale`: tau [1].

    **Returns:** weight decay lambda [1].
    """
    return averaging_timescale(batch, learning_rate, timescale, tokens)


def undecayed_tokens(
    effective_tokens: Numeric, progress: Numeric, decay_share: Numeric, discount: Numeric
) -> Float[Array, "..."]:
    """Tokens that count before the learning rate has decayed, `x (rho + (1 - rho) d)`, with d from 0 to 1.

    d rises linearly in the decay phase [derivation: docs/physics.md B1, after Hägele et al. 2024]. For
    warmup-stable-decay schedules: until the final decay, the loss is that of a decayed run of fewer tokens.

    **Arguments:**

    - `effective_tokens`: x [token].
    - `progress`: share of the run that is done [1].
    - `decay_share`: share of the run in which the rate decays [1], 0.1 to 0.2, above 0.
    - `discount`: rho [1], 0.8 to 0.9 (a prior).

    **Returns:** tokens to put into the loss law [token].
    """
    decayed = jnp.clip(1.0 - (1.0 - jnp.asarray(progress)) / decay_share, 0.0, 1.0)
    return (decayed + (1.0 - decayed) * discount) * effective_tokens
