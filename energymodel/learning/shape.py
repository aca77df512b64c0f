"""Loss added by an unusual ratio of width to depth."""

import jax.numpy as jnp

from energymodel.numerics import Numeric, Values


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
