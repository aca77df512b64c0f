"""When does a larger batch pay: how much throughput must it gain, and how little power may it draw?

A batch that needs more tokens for the same loss is faster only if its throughput rises by more, and saves energy only
if its energy per token falls by more. The two conditions are independent: a batch may be faster and take more energy.

Shared arguments: `batch` B_1, `other_batch` B_2 and the run-level `critical_batch` B_c [token]; `throughput` R_1 and
`other_throughput` R_2 [token/s]; `power` P_1 [W]; `token_ratio` D_2/D_1, of the tokens to the same loss [1].
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.learning.critical_batch import batch_penalty
from energymodel.numerics import Numeric


def token_ratio(batch: Numeric, other_batch: Numeric, critical_batch: Numeric) -> Float[Array, "..."]:
    """Tokens to a loss at another batch over those at this one, `D(B_2)/D(B_1) = (1 + B_2/B_c) / (1 + B_1/B_c)`.

    [McCandlish et al. 2018, sec. 2.3]. B_c is that at the progress of the loss.

    **Returns:** ratio [1], the `token_ratio` of the other functions unless it is measured.
    """
    return batch_penalty(other_batch, critical_batch) / batch_penalty(batch, critical_batch)


def break_even_throughput(throughput: Numeric, token_ratio: Numeric) -> Float[Array, "..."]:
    """Throughput above which another batch reaches the loss in less time, `R_2 = R_1 D_2/D_1`.

    [derivation: t = D / R at the same loss].

    **Returns:** lowest throughput R_2 [token/s].
    """
    return jnp.asarray(throughput) * token_ratio


def break_even_power(
    power: Numeric, throughput: Numeric, other_throughput: Numeric, token_ratio: Numeric
) -> Float[Array, "..."]:
    """Power below which another batch reaches the loss with less energy, `P_2 = P_1 (R_2/R_1) / (D_2/D_1)`.

    [derivation: E = P D / R at the same loss]. Per token: `(P_2/R_2) / (P_1/R_1)` below `D_1/D_2`.

    **Returns:** highest power P_2 [W].
    """
    return jnp.asarray(power) * other_throughput / (jnp.asarray(throughput) * token_ratio)
