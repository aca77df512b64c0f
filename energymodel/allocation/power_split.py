"""How should a power be divided over devices with any law of throughput against power?

Three laws have closed forms, in `energymodel.performance.water_filling`; the solver agrees with them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from energymodel.numerics import Numeric
from energymodel.solver import RESULTS, SolverOptions, minimize


class PowerSplit(NamedTuple):
    """The best division of a power: what each device gets [W], and the throughput of all [token/s].

    `price` is the throughput that one more watt brings [token/J], the same at every device between its limits;
    `result` is a member of `RESULTS`.
    """

    powers: Float[Array | np.ndarray, " devices"]
    throughput: Float[Array | np.ndarray, ""]
    price: Float[Array | np.ndarray, ""]
    result: RESULTS


def divide_power(
    throughput: Callable[..., Float[Array, " devices"]],
    power: Numeric,
    lower: Float[ArrayLike, " devices"],
    upper: Float[ArrayLike, " devices"],
    args: tuple = (),
    options: SolverOptions | None = None,
) -> PowerSplit:
    """Highest throughput of devices that share a power, `max sum_i R_i(P_i)` with `sum_i P_i <= P`.

    At the best division the marginal throughput is the same everywhere [Boyd & Vandenberghe 2004, ex. 5.2]. For
    concave throughputs the solution is the best of all; otherwise it is a local one. Works under `jit`, `vmap` and
    differentiation.

    **Arguments:**

    - `throughput`: `R(P, *args)` of all devices [token/s], from their powers [W].
    - `power`: P [W], at least the sum of `lower`.
    - `lower`, `upper`: lowest and highest power of each device [W].
    - `args`: further arguments, by which the split may be differentiated.
    """
    power, low, high = jnp.asarray(power, float), jnp.asarray(lower, float), jnp.asarray(upper, float)
    room = jnp.minimum(high, power) - low
    start = low + room * jnp.clip((power - jnp.sum(low)) / jnp.sum(room), 0.01, 0.99)
    scale = jnp.sum(throughput(start, *args))

    def lost(shares: Array, power: Array, *args: Any) -> Array:
        return -jnp.sum(throughput(shares * power, *args)) / scale

    solution = minimize(
        lost,
        start / power,
        args=(power, *args),
        bounds=(low / power, high / power),
        inequalities=lambda shares, *_: jnp.sum(shares) - 1.0,
        options=options,
    )
    return PowerSplit(
        powers=solution.x * power,
        throughput=-solution.value * scale,
        price=solution.multipliers.inequalities * scale / power,
        result=solution.result,
    )
