"""How does a reduction look again at the few points of a chunk that passed a first look?"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

ROW = 128
GROUP = 32
"""Points in a row, and rows that are looked at together."""
MANY = 64
"""Rows from which on it pays to look at all points of a chunk at once."""


def if_any(some: Any, look: Callable[[Any, Any], Any], state: Any, columns: Any) -> Any:
    """The state after a look at the columns of a chunk if there is `some` point to look at, else the state.

    A loop of at most one turn updates the state in place, where a branch would copy it for every chunk.
    """

    def turn(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        again, state, columns = carry
        again, seen = jax.lax.optimization_barrier((again, columns))  # else XLA moves the look out of the loop
        return again & False, look(state, seen), columns

    return jax.lax.while_loop(lambda carry: carry[0], turn, (some, state, columns))[1]


def over_rows(
    columns: Sequence[Any],
    sort: Callable[[Any, list[Any], Any], Any],
    state: Any,
    narrow: Callable[[], Any] | None = None,
) -> Any:
    """Give `sort` the state and the points of rows in which one passes, group after group, with their numbers.

    `columns` have the shape of the chunk; the first one is infinite where a point does not pass. Where many rows have
    one that does, `narrow` makes more of that column infinite, after a look at all points.
    """
    # XLA for CPU vectorizes loops over the shape of the chunk, but not those that compute a reshaped result.
    first, *others = jax.lax.optimization_barrier(list(columns))

    def passing(column: Any) -> Any:
        return jnp.min(in_rows(column), axis=-1) < jnp.inf

    rows = passing(first)
    if narrow is not None:
        look = narrow
        many = jnp.sum(rows) > MANY
        rows = jax.lax.cond(many, lambda: passing(jax.lax.optimization_barrier(look())), lambda: rows)
    first, others = in_rows(first), [in_rows(other) for other in others]
    count, width = first.shape
    order = jnp.nonzero(rows, size=count + -count % GROUP, fill_value=count)[0].astype(jnp.int32)

    def group(number: Any, state: Any) -> Any:
        chosen = jax.lax.dynamic_slice_in_dim(order, number * GROUP, GROUP)
        taken = jnp.minimum(chosen, count - 1)
        numbers = taken[:, None] * width + jnp.arange(width, dtype=jnp.int32)
        points = [jnp.where((chosen < count)[:, None], first[taken], jnp.inf), *(other[taken] for other in others)]
        return sort(state, [column.reshape(-1) for column in points], numbers.reshape(-1))

    groups = (jnp.sum(rows, dtype=jnp.int32) + (GROUP - 1)) // GROUP
    return jax.lax.fori_loop(0, groups, group, state)


def in_rows(values: Any) -> Any:
    """Points of a chunk in rows of about `ROW`; filled up with infinities only where the points do not divide."""
    flat = values.reshape(-1)
    width = next((one for one in range(ROW, ROW // 8, -1) if flat.size % one == 0), 0)
    if width:
        return flat.reshape(-1, width)
    return jnp.concatenate([flat, jnp.full(-flat.size % ROW, jnp.inf, flat.dtype)]).reshape(-1, ROW)
