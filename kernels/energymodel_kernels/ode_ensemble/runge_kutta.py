"""One fixed step of an ordinary differential equation."""

from collections.abc import Callable
from typing import Any

import jax


def runge_kutta_step(rate: Callable[[Any, Any], Any], time: Any, state: Any, lost: Any, step: Any) -> tuple[Any, Any]:
    """Classical Runge-Kutta step of fourth order [Hairer et al. 1993, table II.1.2], with compensated sums.

    Ten thousand increments in float32 would lose four digits; `lost` carries what each sum rounds away
    [Higham 2002, algorithm 4.2].

    **Arguments:**

    - `rate`: derivative as a function of time and state.
    - `time`: at the start of the step [s].
    - `state`: pytree of numbers or lanes.
    - `lost`: what earlier sums rounded away, like `state`.
    - `step`: length [s].

    **Returns:** state and what was lost, after the step.
    """

    def moved(slope: Any, share: float) -> Any:
        return jax.tree.map(lambda y, k: y + share * step * k, state, slope)

    first = rate(time, state)
    second = rate(time + 0.5 * step, moved(first, 0.5))
    third = rate(time + 0.5 * step, moved(second, 0.5))
    fourth = rate(time + step, moved(third, 1.0))
    slope = jax.tree.map(lambda a, b, c, d: (a + 2.0 * (b + c) + d) * (1.0 / 6.0), first, second, third, fourth)
    increment = jax.tree.map(lambda k, lost: step * k - lost, slope, lost)
    new = jax.tree.map(lambda y, increment: y + increment, state, increment)
    lost = jax.tree.map(lambda new, y, increment: (new - y) - increment, new, state, increment)
    return new, lost
