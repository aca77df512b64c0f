"""Relaxed optima of a problem in many layouts at once, and their values on grids.

Every layout is a lane of one compiled program.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from energymodel.runtime.compilation import Compiled
from energymodel.runtime.work_in_progress import counted
from energymodel.search.layouts import chips_per_replica, concatenate
from energymodel.search.problem import Criteria, DesignProblem, Formulation
from energymodel.search.training_run import TrainingRun, in_chunks
from energymodel.solver import RESULTS, PerConstraint, Solution, SolverOptions, Values, minimize_many, result_is
from energymodel.solver.flat_problem import jacobian_at
from energymodel.solver.model_outside import ModelOutside
from energymodel.system.layouts import Lattice

OPTIONS = SolverOptions(hessian="differences", max_iterations=100)
SETTLED = 48  # iterations: lanes that obey all limits have converged, or stall at a kink
CHUNK = 96  # points in one call of the compiled model
PADDED = 1024  # layouts whose smallest batches one call finds: few programs serve any number of them
EXPANDED = 40  # points in one call of the model with its Jacobian
TOLERANCE = 1e-5  # violation of limits in the logarithm that counts as none
VIOLATION_PRICE = 10.0
COARSE = {
    "plan.batch": np.array([0.5, 0.85, 1.5, 4.0]),
    "plan.clock": np.array([0.8, 1.0]),
    "plan.chips": np.array([0.5, 1.0]),
}
FINE = {
    "plan.batch": np.exp(np.linspace(np.log(0.25), np.log(8.0), 8)),
    "plan.clock": np.array([0.7, 0.85]),
    "plan.coolant_temperature": np.array([0.97, 1.0, 1.04]),
    "plan.chips": np.array([0.5, 1.0]),
}
CLOSE = {
    "plan.batch": np.array([0.5, 1.0, 2.0]),
    "plan.clock": np.array([0.85, 1.0, 1.2]),
    "plan.chips": np.array([0.5, 1.0, 2.0]),
}
"""Grids of a screening, as multiples of the values at a point, the scenario's own or an optimum; others keep theirs.

The fine one gives starts. At clocks that the rated power does not let the chips reach, nothing depends on the clock
and a search stalls: it starts below. The close one lies around an optimum.
"""
DEVICES = ("accelerator", "node", "network")
"""Parts of a system whose numbers are no switches of a program: all devices that are compared share one."""
TO_THE_TOP = ("plan.chips", "plan.power_floor")
"""Variables whose upper bound is on the grid too: all chips that there may be, and a floor without a swing.

A floor below what waiting chips draw changes nothing, so a search that starts there stalls.
"""


class Screening(NamedTuple):
    """Layouts on a grid: all points with their values."""

    points: Float[np.ndarray, "layouts points n"]
    values: Values

    @property
    def merits(self) -> Float[np.ndarray, "layouts points"]:
        """Logarithm of the objective and a price on what a point violates; infinite where the model has no answer.

        So layouts that the search can still make feasible rank before hopeless ones.
        """
        broken = np.sum(np.maximum(self.values.inequalities, 0.0), axis=-1)
        objective = self.values.objective
        return np.where(np.isfinite(objective), objective + VIOLATION_PRICE * broken, np.inf)

    @property
    def merit(self) -> Float[np.ndarray, " layouts"]:
        """Merit of the best point of each layout."""
        return np.min(self.merits, axis=1)

    @property
    def lowest(self) -> tuple[Float[np.ndarray, " layouts"], Float[np.ndarray, " layouts"]]:
        """Merit of the best point of each layout, and logarithm of the objective there, lower if it breaks a limit."""
        merits, rows = self.merits, np.arange(len(self.points))
        best = np.argmin(merits, axis=1)
        return merits[rows, best], self.values.objective[rows, best]

    @property
    def start(self) -> Float[np.ndarray, "layouts n"]:
        """The best point of each layout."""
        return self.points[np.arange(len(self.points)), np.argmin(self.merits, axis=1)]

    def best(self, count: int) -> np.ndarray:
        """Indices of the best layouts, best first."""
        return np.argsort(self.merit, kind="stable")[:count]


def screen(
    problem: DesignProblem,
    lattice: Lattice,
    steps: dict[str, np.ndarray],
    around: Float[np.ndarray, " n"] | None = None,
) -> Screening:
    """Evaluate all layouts on a grid, with at least the chips of a replica.

    The grid lies around the scenario's own values, or those of a point; variables without steps keep these. Batches
    with steps also have the smallest one, where each replica has the fewest micro-batches: with more of them
    activations may not fit, and once a pipeline is full no smaller step down would help a search.
    """
    formulation, axes = problem.formulation, []
    for index, path in enumerate(formulation.paths):
        own = problem.start(path) if around is None else formulation.value(path, around[index])
        values = np.clip(own * steps.get(path, np.ones(1)), *problem.bounds[path])
        if path in TO_THE_TOP:
            values = np.append(values, problem.bounds[path][1])
        if path == "plan.batch" and path in steps:
            values = np.append(values, np.nan)  # the smallest of each layout
        axes.append(np.unique(formulation.coordinate(path, values)))
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    points = np.tile(grid, (len(lattice.tensor), 1, 1))
    chips, batch, run = problem.index("plan.chips"), problem.index("plan.batch"), problem.run
    if chips is not None:
        points[..., chips] = np.maximum(points[..., chips], np.log(chips_per_replica(lattice))[:, None])
    if batch is not None and "plan.batch" in steps:
        used = run.number("plan.chips") if chips is None else np.exp(points[..., chips])
        padded = jax.tree.map(lambda leaf: np.resize(leaf, -(-len(points) // PADDED) * PADDED), lattice)
        per_chip = np.asarray(_smallest_batch_per_chip(run, padded))[: len(points), None]
        smallest = np.log(np.clip(used * per_chip, *problem.bounds["plan.batch"]))
        points[..., batch] = np.where(np.isnan(points[..., batch]), smallest, points[..., batch])
    return Screening(points, evaluate_points(problem, points, lattice))


@Compiled
def _smallest_batch_per_chip(run: TrainingRun, lattice: Lattice) -> Float[Array, " layouts"]:
    return jnp.asarray(lattice.smallest_batch(1.0, run.system.workload.sequence))


def evaluate_points(
    problem: DesignProblem,
    points: Float[np.ndarray, "layouts points n"],
    lattice: Lattice,
    criteria: Criteria | None = None,
) -> Values:
    """Objective and rows of every layout at each of its points, in chunks of one compiled size.

    The criteria are those of the problem unless given, once for all layouts or for each of them.
    """
    layouts, count, size = points.shape
    owners = np.repeat(np.arange(layouts), count)
    values = lane_model(problem, lattice, criteria).values(points.reshape(-1, size), owners)
    return Values(values[:, 0].reshape(layouts, count), values[:, 1:].reshape(layouts, count, -1))


class Packed(eqx.Module):
    """A tree of numbers as one array, along its last axis; axes before that are those of all leaves.

    A call that hands over each number by itself takes longer than the program that it calls. `switches` are 0 or 1 for
    leaves that hold nothing else: they belong to the program, which leaves out the parts that are off (of the 405B run
    a third of its operations).
    """

    numbers: Float[Array | np.ndarray, "*lanes n"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    switches: tuple[float | None, ...] = eqx.field(static=True)

    @property
    def tree(self) -> Any:
        """The tree, of one lane."""
        leaves, first = [], 0
        for shape, switch in zip(self.shapes, self.switches, strict=True):
            last = first + (math.prod(shape) if switch is None else 0)
            leaves.append(np.full(shape, switch) if first == last else jnp.reshape(self.numbers[first:last], shape))
            first = last
        return jax.tree.unflatten(self.structure, leaves)

    def take(self, lanes: Any) -> "Packed":
        """The trees of some lanes."""
        return dataclasses.replace(self, numbers=self.numbers[lanes])


def pack(tree: Any, *lanes: int) -> Packed:
    """All numbers of a tree; of one whose leaves have a first axis of so many lanes, if that is given: no switches."""
    named, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = [(path, np.asarray(leaf, np.float64)) for path, leaf in named]
    switches = tuple(None if lanes else _switch(path, leaf) for path, leaf in leaves)
    numbers = [leaf.reshape(*lanes, -1) for (_, leaf), switch in zip(leaves, switches, strict=True) if switch is None]
    return Packed(
        np.concatenate(numbers, axis=-1), structure, tuple(leaf.shape[len(lanes) :] for _, leaf in leaves), switches
    )


def _switch(path: tuple[Any, ...], leaf: np.ndarray) -> float | None:
    """0 or 1 where a leaf is nothing else and no number of a device."""
    values = set(leaf.ravel().tolist())
    if len(values) != 1 or not values <= {0.0, 1.0} or any(getattr(key, "name", "") in DEVICES for key in path):
        return None
    return values.pop()


def lane_model(problem: DesignProblem, lattice: Any, criteria: Criteria | None = None) -> ModelOutside:
    """The model of a problem in layouts, or in what its formulation takes for them, by criteria of each or of all.

    It calls the programs that all searches share.
    """
    count, run = len(jax.tree.leaves(lattice)[0]), pack(problem.run)
    criteria = jax.tree.map(lambda leaf: np.broadcast_to(leaf, count), criteria or problem.criteria)
    lanes = pack((lattice, criteria), count)

    def called(program: Callable[..., Sequence[Array]], size: int, points: np.ndarray, owners: np.ndarray) -> Any:
        return in_chunks(
            lambda index: program(problem.formulation, points[index], lanes.take(owners[index]), run), len(points), size
        )

    return ModelOutside(
        len(problem.formulation.rows) + 1,
        lambda points, owners: called(model_values, CHUNK, points, owners)[0],
        partial(called, model_expansion, EXPANDED),
    )


def _at(formulation: Formulation, point: Array, lane: Packed, run: Packed) -> Float[Array, " k"]:
    layout, criteria = lane.tree
    values = formulation.values(point, layout, criteria, run.tree)
    return jnp.concatenate([jnp.reshape(values.objective, 1), values.inequalities])


@Compiled
def model_values(formulation: Formulation, points: Array, lanes: Packed, run: Packed) -> tuple[Array]:
    """Objective and rows beside each other, at points of lanes."""
    return (jax.vmap(partial(_at, formulation), in_axes=(0, 0, None))(points, lanes, run),)


@partial(Compiled, once=True)
def model_expansion(formulation: Formulation, points: Array, lanes: Packed, run: Packed) -> tuple[Array, Array]:
    """The same, and their derivatives by the coordinates."""
    return jax.vmap(lambda point, lane: jacobian_at(lambda at: _at(formulation, at, lane, run), point))(points, lanes)


def solve_relaxed(
    problem: DesignProblem,
    lattice: Any,
    start: Float[np.ndarray, "lanes n"],
    criteria: Criteria | None = None,
    *,
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
    warm: PerConstraint | None = None,
    iterations: int | None = None,
    patient: bool | None = None,
) -> Solution:
    """Relaxed optimum of each layout [see `lane_model`]; criteria and bounds are those of the problem unless given.

    Where iterations are limited, a search is not `patient` unless that is asked for: lanes that stall at a kink, or of
    whose limits a percent would be worth a hundred percent of the objective, are given up [see `minimize_many`].
    """
    return minimize_many(
        lane_model(problem, lattice, criteria),
        start,
        bounds=layout_bounds(problem, lattice) if bounds is None else bounds,
        options=OPTIONS,
        chunk=OPTIONS.chunk,
        warm=warm,
        iterations=iterations,
        patient=iterations in (None, OPTIONS.max_iterations) if patient is None else patient,
        progress=counted,
    )


def layout_bounds(problem: DesignProblem, lattice: Lattice) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the bounds for each layout: a layout needs its replica's chips."""
    lower, upper = problem.boxes(len(lattice.tensor))
    index = problem.index("plan.chips")
    if index is not None:
        lower[:, index] = np.minimum(np.maximum(lower[:, index], np.log(chips_per_replica(lattice))), upper[:, index])
    return lower, upper


def violation(solution: Solution) -> Float[np.ndarray, " lanes"]:
    """By how much each lane breaks its limits, in the sum of logarithms."""
    return np.sum(np.maximum(-solution.slacks.inequalities, 0.0), axis=-1)


def obeys_limits(solution: Solution) -> Bool[np.ndarray, " lanes"]:
    """Lanes with a finite optimum within all limits."""
    return np.isfinite(solution.value) & (violation(solution) <= TOLERANCE)


def converged(solution: Solution) -> Bool[np.ndarray, " lanes"]:
    """Lanes in which the optimality conditions hold, so that their multipliers are prices."""
    return result_is(solution.result, RESULTS.successful)


class LayoutSearch(NamedTuple):
    """Layouts with their relaxed optima in a problem, and what is known of the layouts that were not searched.

    - `criteria`: of each lane; those of the problem where there are none.
    - `indices`: of the layouts among all; `others`: the lowest bound of one that was not searched (logarithm of the
      objective, infinite if there is none); `left`: how many of them their bound does not exclude.
    - `restarted`: the lane that was restarted last. Of `restarts`, `agreeing` converge to its optimum and `astray` do
      not converge within the limits; those that do differ by `spread` in the logarithm.
    """

    problem: DesignProblem
    lattice: Lattice
    solution: Solution
    criteria: Criteria | None = None
    indices: np.ndarray = np.zeros(0, int)
    others: float = np.inf
    left: int = 0
    restarted: int | None = None
    restarts: int = 0
    agreeing: int = 0
    astray: int = 0
    spread: float = 0.0

    @property
    def usable(self) -> Bool[np.ndarray, " lanes"]:
        """Lanes that obey all limits."""
        return obeys_limits(self.solution)

    @property
    def values(self) -> Float[np.ndarray, " lanes"]:
        """Logarithms of the objective; infinite for lanes that break a limit."""
        return np.where(self.usable, self.solution.value, np.inf)

    @property
    def broken(self) -> Float[np.ndarray, " lanes"]:
        """By how much each lane breaks its limits, in the logarithm; infinite where the model has no answer."""
        return np.where(np.isfinite(self.solution.value), violation(self.solution), np.inf)

    @property
    def solved(self) -> Bool[np.ndarray, " lanes"]:
        """Lanes that converged."""
        return converged(self.solution)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C cut the search short."""
        return bool(np.any(result_is(self.solution.result, RESULTS.interrupted)))

    @property
    def best(self) -> int:
        """The best usable lane, or the one that breaks its limits least."""
        return int(np.argmin(self.values if self.usable.any() else self.broken))

    def joined(self, *others: "LayoutSearch") -> "LayoutSearch":
        """The same with the lanes of other searches after its own."""
        parts = [(search.lattice, search.solution, search.criteria, search.indices) for search in (self, *others)]
        lattice, solution, criteria, indices = concatenate(*parts)
        return self._replace(lattice=lattice, solution=solution, criteria=criteria, indices=indices)
