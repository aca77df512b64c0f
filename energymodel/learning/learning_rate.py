"""How should the learning rate follow the batch size, and what does a wrong one cost?

Shared arguments: `batch` B, `critical_batch` (noise scale) B_n and `tokens` D of the run [token]; `learning_rate` eta,
`maximum` eta_max (SGD: without noise; Adam: at the peak) and `weight_decay` lambda [1].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric


def mismatch_loss(learning_rate: Numeric, optimal: Numeric, stiffness: Numeric) -> Float[Array, "..."]:
    """Loss added by a wrong learning rate, `dL = (k/2) ln^2(eta/eta_opt)`.

    [derivation: lowest order about the optimum in ln eta].

    **Arguments:**

    - `optimal`: eta_opt [1].
    - `stiffness`: k [nat/token], about 0.02 (0.005 to 0.05, a prior).

    **Returns:** added loss [nat/token].
    """
    return 0.5 * jnp.asarray(stiffness) * jnp.log(jnp.asarray(learning_rate) / optimal) ** 2
