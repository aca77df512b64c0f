"""A model that is evaluated outside the compiled search that minimizes it.

A model of thousands of equations takes tens of seconds to compile, and a search that holds it several times as long. A
search that asks for it by number of lane is compiled once for all models of as many variables and constraints.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from energymodel.runtime.compilation import Compiled
from energymodel.solver import interior_point as ip
from energymodel.solver.flat_problem import Values, difference_points, differenced
from energymodel.solver.line_search import Arc
from energymodel.solver.newton_system import select
from energymodel.solver.search_state import InteriorPointState

Points = Float[np.ndarray, "points n"]
Owners = Int[np.ndarray, " points"]


@dataclasses.dataclass(frozen=True)
class ModelOutside:
    """An objective with inequalities, for `minimize_many`, that stays outside the compiled search.

    - `rows`: number of inequalities.
    - `values`: objective and inequalities beside each other, at points of lanes that are given by number.
    - `expansion`: the same, and their Jacobians by the variables. Second derivatives are their differences.
    """

    rows: int
    values: Callable[[Points, Owners], Float[np.ndarray, "points k"]]
    expansion: Callable[[Points, Owners], tuple[Float[np.ndarray, "points k"], Float[np.ndarray, "points k n"]]]

    def step(self, family: Any, lanes: PyTree, state: InteriorPointState, going: Bool[np.ndarray, " lanes"]) -> Any:
        """The states after one iteration of some lanes: three programs, and between them the model."""
        ((numbers,), size) = lanes[1], np.asarray(state.size)[:, None]

        def ask(function: Callable[..., Any], points: np.ndarray, wanted: np.ndarray, *shapes: tuple) -> Any:
            """Answers at several points of each lane, no numbers where none are wanted."""
            inner, rows = points.shape[1:-1], np.flatnonzero(wanted)
            answers = [np.full((len(points), *inner, *shape), np.nan, points.dtype) for shape in shapes]
            if rows.size:
                parts = function(points[rows].reshape(-1, points.shape[-1]), np.repeat(numbers[rows], np.prod(inner)))
                for answer, part in zip(answers, parts, strict=True):
                    answer[rows] = part.reshape(rows.size, *answer.shape[1:])
            return answers

        def values(points: np.ndarray, wanted: np.ndarray) -> np.ndarray:
            return ask(lambda *asked: (self.values(*asked),), points, wanted, (1 + self.rows,))[0]

        around = difference_points(np.asarray(state.x)) * size
        expanded = ask(self.expansion, around, going, (1 + self.rows,), (1 + self.rows, around.shape[-1]))
        attempt, straight, needed = _begin(family, lanes, state, *expanded)
        needed = going & np.asarray(needed)
        first = values(np.asarray(straight)[:, None], needed)
        arc, points = _bend(family, lanes, attempt, first[:, 0])
        points = np.asarray(points)
        table = np.full((*points.shape[:-1], 1 + self.rows), np.nan, points.dtype)
        table[:, 0] = np.concatenate([first, values(points[:, 0, 1:], needed)], axis=1)
        stepped, unfinished = _finish(family, lanes, state, attempt, arc, table, going)
        shorter = going & np.asarray(unfinished)
        if shorter.any():
            table[:, 1:] = values(points[:, 1:], shorter)
            stepped, _ = _finish(family, lanes, state, attempt, arc, table, going)
        return stepped


@dataclasses.dataclass(frozen=True)
class StandIn:
    """What a search is compiled with in place of a model outside: numbers of its shapes, which it never asks for."""

    rows: int

    def __call__(self, point: Float[Array, " n"], lane: Int[Array, ""]) -> Values:
        """Objective and inequalities."""
        return Values(jnp.zeros((), point.dtype), jnp.zeros(self.rows, point.dtype))


@partial(Compiled, once=True)
def _begin(
    family: Any, lanes: PyTree, state: InteriorPointState, values: Array, jacobians: Array
) -> tuple[ip.Attempt, Array, Array]:
    """Attempts of all lanes, their first points, and whether they are needed."""

    def begin(lane: PyTree, state: InteriorPointState, values: Array, jacobians: Array) -> tuple[Any, ...]:
        problem = family.problem(lane)
        expanded = differenced(values, jacobians * state.size, ip.weights(state))
        attempt = ip.begin(problem, family.options, state, *expanded)
        search = attempt.search(problem)
        return attempt, search.point(search.alphas[0], search.straight)[0] * state.size, search.needed

    return jax.vmap(begin)(lanes, state, values, jacobians)


@partial(Compiled, once=True)
def _bend(family: Any, lanes: PyTree, attempt: ip.Attempt, first: Array) -> tuple[Arc, Array]:
    """Arcs of all lanes, given the values at their first points, and all points that they may ask for."""

    def bend(lane: PyTree, attempt: ip.Attempt, first: Array) -> tuple[Arc, Array]:
        search = attempt.search(family.problem(lane))
        arc = search.arc(attempt.scaled(first)[1:])
        return arc, search.points(arc, search.alphas) * attempt.state.size

    return jax.vmap(bend)(lanes, attempt, first)


@partial(Compiled, once=True)
def _finish(
    family: Any, lanes: PyTree, state: InteriorPointState, attempt: ip.Attempt, arc: Arc, table: Array, going: Array
) -> tuple[InteriorPointState, Array]:
    """The states of all lanes, given the values at their points, and whether they need shorter steps than the first."""

    def finish(
        lane: PyTree, state: InteriorPointState, attempt: ip.Attempt, arc: Arc, values: Array, going: Array
    ) -> tuple[InteriorPointState, Array]:
        problem = family.problem(lane)
        search = attempt.search(problem)
        table = search.judged(arc, search.alphas, attempt.scaled(values))
        moved = ip.finish(problem, state, attempt, search.end(arc, table))
        return select(going, moved, state), search.unfinished(table)

    return jax.vmap(finish)(lanes, state, attempt, arc, table, going)
