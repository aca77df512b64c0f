"""A model that is evaluated outside the compiled search that minimizes it.

A model of thousands of equations takes tens of seconds to compile, and a search that holds it several times as long. A
search that calls it by number of lane is compiled once for all models of as many variables and constraints.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from energymodel.runtime.host_calls import host_call
from energymodel.solver.flat_problem import Values

Points = Float[np.ndarray, "points n"]
Owners = Int[np.ndarray, " points"]


@dataclasses.dataclass(frozen=True)
class ModelOutside:
    """An objective with inequalities, for `minimize_many`, that stays outside the compiled search.

    - `rows`: number of inequalities.
    - `values`: objective and inequalities beside each other, at points of lanes that are given by number.
    - `expansion`: the same, and their Jacobians by the variables.
    """

    rows: int
    values: Callable[[Points, Owners], Float[np.ndarray, "points k"]]
    expansion: Callable[[Points, Owners], tuple[Float[np.ndarray, "points k"], Float[np.ndarray, "points k n"]]]

    @property
    def stand_in(self) -> "StandIn":
        """What the search is compiled with."""
        return StandIn(self.rows)

    def answer(self, asked: Sequence[jax.Array], count: int) -> Sequence[np.ndarray]:
        """The values at points that the search asks for, with their Jacobians if it wants two arrays.

        Those at a point that is not a number are no numbers either: the search needs none there.
        """
        points, owners = map(np.asarray, asked)
        size = points.shape[-1]
        flat, lanes = points.reshape(-1, size), owners.reshape(-1)
        wanted = np.flatnonzero(~np.isnan(flat).any(axis=1))
        shapes = [(1 + self.rows,), (1 + self.rows, size)][:count]
        answers = [np.full((len(flat), *shape), np.nan, flat.dtype) for shape in shapes]
        if wanted.size:
            parts = (self.values if count == 1 else self.expansion)(flat[wanted], lanes[wanted])
            for answer, part in zip(answers, (parts,) if count == 1 else parts, strict=True):
                answer[wanted] = part
        return [answer.reshape(*owners.shape, *answer.shape[1:]) for answer in answers]


@dataclasses.dataclass(frozen=True)
class StandIn:
    """Calls the model of a lane by the number of the lane."""

    rows: int

    def __call__(self, point: Float[Array, " n"], lane: Int[Array, ""]) -> Values:
        """Objective and inequalities."""
        values = _of_lane(self.rows, point, lane)
        return Values(values[0], values[1:])


def _shapes(rows: int, point: Array) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    size = 1 + rows
    return jax.ShapeDtypeStruct((size,), point.dtype), jax.ShapeDtypeStruct((size, point.size), point.dtype)


def _of_lane(rows: int, point: Array, lane: Array) -> Array:
    @jax.custom_jvp
    def values(point: Array, lane: Array) -> Array:
        return host_call(_shapes(rows, point)[:1], point, lane)[0]

    def push(primals: Any, tangents: Any) -> tuple[Array, Array]:
        reached, jacobian = host_call(_shapes(rows, primals[0]), *primals)
        return reached, jnp.matmul(jacobian, tangents[0])

    values.defjvp(push)
    return values(point, lane)
