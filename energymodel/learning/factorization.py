"""What do low-rank and tensor-train weights save, and what do they cost in loss?

Off unless asked for: a ratio of 1 is a dense model. There is no evidence so far of a net benefit in pre-training at
scale; the penalty exponent is a prior.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric, Real, power_law, real


def low_rank_ratio(rank: Numeric, rows: Numeric, columns: Numeric) -> Float[Array, "..."]:
    """Parameters and FLOP of a factorized matrix per dense one, `chi (m + n) / (m n)` [definition].

    The m x n matrix is the product of m x chi and chi x n. Above `break_even_rank` it is larger than the dense one.

    **Arguments:**

    - `rank`: chi [1].
    - `rows`: m [1].
    - `columns`: n [1].

    **Returns:** ratio [1].
    """
    rows, columns = jnp.asarray(rows), jnp.asarray(columns)
    return (1.0 / rows + 1.0 / columns) * rank


def break_even_rank(rows: Numeric, columns: Numeric) -> Float[Array, "..."]:
    """Rank at which the factors are as large as the matrix, `chi = m n / (m + n)` [derivation: `low_rank_ratio` = 1].

    Arguments as in `low_rank_ratio`.

    **Returns:** rank [1].
    """
    return 1.0 / (1.0 / jnp.asarray(rows) + 1.0 / jnp.asarray(columns))


def tensor_train_ratio(rank: Numeric, rows: Numeric, columns: Numeric, cores: Numeric) -> Float[Array, "..."]:
    """Parameters of a tensor-train matrix per dense one, `chi (2 + (d - 2) chi) (m n)^(1/d) / (m n)`.

    [Novikov et al. 2015]. d cores of equal mode sizes and inner rank chi; the two outer cores have one bond, the d - 2
    inner ones two.

    **Arguments:**

    - `cores`: d [1], at least 2.
    - the others: as in `low_rank_ratio`.

    **Returns:** ratio [1].
    """
    rank, size, cores = jnp.asarray(rank), jnp.asarray(rows) * columns, jnp.asarray(cores)
    return rank * (2.0 + (cores - 2.0) * rank) * jnp.power(size, 1.0 / cores - 1.0)


def factorized_parameters(parameters: Numeric, ratio: Numeric, exponent: Numeric) -> Float[Array, "..."]:
    """Dense size with the loss of a factorized model, `N_eff = N ratio^omega` [definition].

    omega = 1 is as good as a dense model of the stored size, omega = 0 as the original. A prior, 0.3 to 1.

    **Arguments:**

    - `parameters`: size of the dense model that is factorized, N [1].
    - `ratio`: stored over dense parameters [1].
    - `exponent`: omega [1].

    **Returns:** parameters that enter the loss law [1].
    """
    return power_law(ratio, parameters, exponent)


class Factorization(eqx.Module):
    """Weights in factors: smaller and cheaper by `ratio`, with the quality of `N ratio^omega`. Off at ratio 1."""

    ratio: Real = real("1", 1.0, doc="stored over dense parameters, by `low_rank_ratio` or `tensor_train_ratio`")
    quality_exponent: Real = real("1", 1.0, doc="omega; 1 is the most pessimistic prior")

    def stored_parameters(self, parameters: Numeric) -> Float[Array, "..."]:
        """Parameters kept and computed with [1]; memory and FLOP scale with it."""
        return jnp.asarray(parameters) * self.ratio

    def effective_parameters(self, parameters: Numeric) -> Float[Array, "..."]:
        """Parameters that enter the loss law [1]."""
        return factorized_parameters(parameters, self.ratio, self.quality_exponent)
