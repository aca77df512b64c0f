"""What does a good die cost, by its area?"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from energymodel.numerics import Numeric


def die_yield(area: Numeric, defect_density: Numeric, clustering: Numeric) -> Float[Array, "..."]:
    """Share of dies without defects, `Y = (1 + A D / c)^-c` [Stapper, Armstrong & Saji 1983, negative binomial].

    Units that may be switched off raise it; then A is the area that must be whole.

    **Arguments:**

    - `area`: A of a die [m^2].
    - `defect_density`: D [1/m^2]; 0.1 per cm^2 for a mature process.
    - `clustering`: c, 2 to 3; large for defects that do not cluster [1].

    **Returns:** yield [1], in (0, 1].
    """
    defects = jnp.asarray(area) * defect_density / clustering
    return jnp.exp(-jnp.asarray(clustering) * jnp.log1p(defects))


def good_silicon(area: Numeric, largest_die: Numeric, defect_density: Numeric, clustering: Numeric) -> Array:
    """Area of wafer per chip, `A / Y(A / max(1, A / A_1))` [definition].

    A chip larger than what one exposure prints is made of several dies.

    **Arguments:**

    - `area`: A of all dies of the chip [m^2].
    - `largest_die`: A_1 [m^2]; 858 mm^2.
    - the others: as in `die_yield`.

    **Returns:** area [m^2].
    """
    whole = jnp.asarray(area)
    each = whole / jnp.maximum(1.0, whole / largest_die)
    return whole / die_yield(each, defect_density, clustering)
