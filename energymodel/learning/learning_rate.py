"""What does a wrong learning rate cost?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric


def mismatch_loss(learning_rate: Numeric, optimal: Numeric, stiffness: Numeric) -> Float[Array, "..."]:
    """Loss added by a wrong learning rate, `dL = (k/2) ln^2(eta/eta_opt)`.

    [derivation: lowest order about the optimum in ln eta].

    **Arguments:**

    - `learning_rate`, `optimal`: eta and eta_opt [1].
    - `stiffness`: k [nat/token], about 0.02 (0.005 to 0.05, a prior).

    **Returns:** added loss [nat/token].
    """
    return 0.5 * jnp.asarray(stiffness) * jnp.log(jnp.asarray(learning_rate) / optimal) ** 2
