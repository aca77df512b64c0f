"""Relaxed optima of a problem in many layouts at once, and their values on grids.

Every layout is a lane of one compiled program.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from energymodel.errors import InputError
from energymodel.numerics import Numeric
from energymodel.runtime.compilation import Compiled
from energymodel.runtime.operations import simplified
from energymodel.runtime.work_in_progress import counted
from energymodel.search.layouts import Lattice, candidates, chips_per_replica, take
from energymodel.search.model_shape import Depth
from energymodel.search.problem import Criteria, DesignProblem, Formulation
from energymodel.search.training_run import TrainingRun, in_chunks
from energymodel.solver import PerConstraint, Solution, SolverOptions, Values, minimize_many
from energymodel.solver.model_outside import ModelOutside
from energymodel.system.division import divide
from energymodel.system.memory import chip_memory
from energymodel.system.outputs import OUTPUTS
from energymodel.system.plan import ParallelLayout
from energymodel.units import format_quantity

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
TO_THE_TOP = ("plan.chips", "plan.power_floor")
"""Variables whose upper bound is on the grid too: all chips that there may be, and a floor without a swing.

A floor below what waiting chips draw changes nothing, so a search that starts there stalls.
"""


def fitting_layouts(problem: DesignProblem) -> tuple[Lattice, int]:
    """Layouts that fit in memory, and how many were considered.

    **Raises:** `InputError` if none fits.
    """
    lattice = candidates(problem.run, problem.most_chips, problem.layout_ranges)
    fitting = np.flatnonzero(fits(problem, lattice, problem.most_chips))
    if not len(fitting):
        memory, chips = (format_quantity(problem.limits[name], OUTPUTS[name]) for name in ("memory", "chips"))
        raise InputError(
            f"The model does not fit in {memory} per chip in any layout of {chips} chips. Allow more chips "
            "(--limit chips=...), more memory, or offload states (plan.layout.offload_optimizer=1)."
        )
    return take(lattice, fitting), len(lattice.tensor)


def fits(problem: DesignProblem, lattice: Lattice, chips: float) -> Bool[np.ndarray, " layouts"]:
    """Which layouts fit in memory at their best: all the chips, the fewest micro-batches."""
    return np.asarray(_smallest_memory(problem.run, lattice, chips)) <= problem.limits["memory"]


@Compiled
def _smallest_memory(run: TrainingRun, lattice: Lattice, chips: Numeric) -> Float[Array, " layouts"]:
    def smallest(layout: ParallelLayout) -> Array:
        group = layout.tensor * layout.pipeline * layout.context
        used = jnp.maximum(1.0, jnp.floor(chips / group)) * group
        batch = layout.smallest_batch(used, run.system.workload.sequence)
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.layout), run.plan, (used, layout))
        return chip_memory(run.system, plan, divide(run.system, plan, batch)).total

    return jax.vmap(smallest)(lattice)


@dataclasses.dataclass(frozen=True)
class Screening:
    """Each layout on a grid: its best point and how good that is, and the values of all points."""

    start: Float[np.ndarray, "layouts n"]
    merit: Float[np.ndarray, " layouts"]
    values: Values

    def best(self, count: int) -> np.ndarray:
        """Indices of the best layouts, best first."""
        return np.argsort(self.merit, kind="stable")[:count]


def screen(
    problem: DesignProblem,
    lattice: Lattice,
    steps: dict[str, np.ndarray],
    around: Float[np.ndarray, " n"] | None = None,
) -> Screening:
    """Evaluate all layouts on a grid [see `grid_points`].

    The merit of a point is the logarithm of the objective plus a price on what it violates, so that layouts which
    the search can still make feasible rank before hopeless ones.
    """
    points = grid_points(problem, lattice, steps, around)
    values = evaluate_points(problem, points, lattice)
    merit = penalized(values.objective, values)
    best, row = np.argmin(merit, axis=1), np.arange(len(merit))
    return Screening(points[row, best], merit[row, best], values)


def penalized(merit: Float[np.ndarray, "layouts points"], values: Values) -> Float[np.ndarray, "layouts points"]:
    """A merit plus a price on the limits that each point breaks; infinite where the model has no answer."""
    broken = np.sum(np.maximum(values.inequalities, 0.0), axis=-1)
    return np.where(np.isfinite(merit), merit + VIOLATION_PRICE * broken, np.inf)


def grid_points(
    problem: DesignProblem,
    lattice: Lattice,
    steps: dict[str, np.ndarray],
    around: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, "layouts points n"]:
    """Coordinates of a grid for each layout, with at least the chips of a replica.

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
    chips, batch = problem.index("plan.chips"), problem.index("plan.batch")
    if chips is not None:
        points[..., chips] = np.maximum(points[..., chips], np.log(chips_per_replica(lattice))[:, None])
    if batch is not None and "plan.batch" in steps:
        smallest = _smallest_batches(problem, lattice, points)
        points[..., batch] = np.where(np.isnan(points[..., batch]), smallest, points[..., batch])
    return points


def _smallest_batches(
    problem: DesignProblem, lattice: Lattice, points: Float[np.ndarray, "layouts points n"]
) -> Float[np.ndarray, "layouts _"]:
    """Coordinates of the smallest batch of each layout with the chips of each point, within the bounds."""
    index, run = problem.index("plan.chips"), problem.run
    chips = np.full((len(points), 1), run.number("plan.chips")) if index is None else np.exp(points[..., index])
    padded = jax.tree.map(lambda leaf: np.resize(leaf, -(-len(points) // PADDED) * PADDED), lattice)
    per_chip = np.asarray(_smallest_batch_per_chip(run, padded))[: len(points), None]
    return np.log(np.clip(chips * per_chip, *problem.bounds["plan.batch"]))


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
    criteria = problem.criteria if criteria is None else criteria
    every = jax.tree.map(lambda leaf: np.broadcast_to(leaf, layouts), criteria)
    model = lane_model(problem, lattice, every)
    values = model.values(points.reshape(-1, size), np.repeat(np.arange(layouts), count))
    return Values(values[:, 0].reshape(layouts, count), values[:, 1:].reshape(layouts, count, -1))


class Packed(eqx.Module):
    """A tree of numbers as one array, along its last axis; axes before that are those of all leaves.

    A call that hands over each number by itself takes longer than the program that it calls.
    """

    numbers: Float[Array | np.ndarray, "*lanes n"]
    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def tree(self) -> Any:
        """The tree, of one lane."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = [
            jnp.reshape(self.numbers[end - int(np.prod(shape)) : end], shape)
            for end, shape in zip(ends, self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, parts)

    def take(self, lanes: Any) -> "Packed":
        """The trees of some lanes."""
        return Packed(self.numbers[lanes], self.structure, self.shapes)


def pack(tree: Any, lanes: int | None = None) -> Packed:
    """All numbers of a tree; of one whose leaves have a first axis of so many lanes, if that is given."""
    leaves, structure = jax.tree.flatten(tree)
    leading = () if lanes is None else (lanes,)
    leaves = [np.asarray(leaf, np.float64) for leaf in leaves]
    shapes = tuple(leaf.shape[len(leading) :] for leaf in leaves)
    flat = [leaf.reshape(*leading, -1) for leaf in leaves]
    return Packed(np.concatenate(flat, axis=-1), structure, shapes)


class LaneModel(NamedTuple):
    """A problem with the layout and the criteria of each lane, evaluated by the programs that all searches share."""

    formulation: Formulation
    lanes: Packed
    run: Packed

    def values(self, points: Float[np.ndarray, "points n"], lanes: Int[np.ndarray, " points"]) -> np.ndarray:
        """Objective and rows beside each other, at points of lanes."""
        return in_chunks(lambda index: model_values(*self._at(points, lanes, index)), len(points), CHUNK)[0]

    def expansion(
        self, points: Float[np.ndarray, "points n"], lanes: Int[np.ndarray, " points"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same, and their derivatives by the coordinates."""
        values, jacobian = in_chunks(
            lambda index: model_expansion(*self._at(points, lanes, index)), len(points), EXPANDED
        )
        return values, jacobian

    def _at(self, points: np.ndarray, lanes: np.ndarray, index: np.ndarray) -> tuple[Formulation, Any, Packed, Packed]:
        """Arguments of a program for some points."""
        return self.formulation, points[index], self.lanes.take(lanes[index]), self.run


def lane_model(problem: DesignProblem, lattice: Lattice | Depth, criteria: Criteria) -> LaneModel:
    """The model of a problem in layouts, each by its own criteria."""
    return LaneModel(problem.formulation, pack((lattice, criteria), len(lattice.tensor)), pack(problem.run))


def _at(formulation: Formulation, point: Array, lane: Packed, run: Packed) -> Float[Array, " k"]:
    def flat(point: Array, lane: Packed, run: Packed) -> Array:
        layout, criteria = lane.tree
        values = formulation.values(point, layout, criteria, run.tree)
        return jnp.concatenate([jnp.reshape(values.objective, 1), values.inequalities])

    return simplified(flat)(point, lane, run)


@Compiled
def model_values(formulation: Formulation, points: Array, lanes: Packed, run: Packed) -> tuple[Array]:
    """Objective and rows beside each other, at points of lanes."""
    return (jax.vmap(partial(_at, formulation), in_axes=(0, 0, None))(points, lanes, run),)


@partial(Compiled, once=True)
def model_expansion(formulation: Formulation, points: Array, lanes: Packed, run: Packed) -> tuple[Array, Array]:
    """The same, and their derivatives by the coordinates."""
    directions = jnp.eye(points.shape[1], dtype=points.dtype)

    def expand(point: Array, lane: Packed) -> tuple[Array, Array]:
        def push(direction: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda at: _at(formulation, at, lane, run), (point,), (direction,))

        return jax.vmap(push, out_axes=(None, -1))(directions)

    return jax.vmap(expand)(points, lanes)


def solve_relaxed(
    problem: DesignProblem,
    lattice: Lattice | Depth,
    start: Float[np.ndarray, "lanes n"],
    criteria: Criteria | None = None,
    *,
    bounds: tuple[np.ndarray, np.ndarray] | None = None,
    warm: PerConstraint | None = None,
    iterations: int | None = None,
    patient: bool | None = None,
) -> Solution:
    """Relaxed optimum of each layout; criteria and bounds are those of the problem unless given.

    Where iterations are limited, a search is not `patient` unless that is asked for: lanes that stall at a kink, or of
    whose limits a percent would be worth a hundred percent of the objective, are given up [see `minimize_many`].
    """
    layout = lattice.layout if isinstance(lattice, Depth) else lattice
    model = lane_model(problem, lattice, problem.repeated_criteria(len(start)) if criteria is None else criteria)
    return minimize_many(
        ModelOutside(len(problem.formulation.rows) + 1, model.values, model.expansion),
        start,
        bounds=layout_bounds(problem, layout) if bounds is None else bounds,
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
