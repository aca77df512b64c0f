"""Which shape and plan are best at each depth, with counts free to be fractions?"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from energymodel.performance.workload import Transformer
from energymodel.search.model_shape import (
    SHAPE,
    Depth,
    ShapeForm,
    ShapePrior,
    depth_step,
    depths_that_divide,
    proportions,
)
from energymodel.search.problem import DesignProblem
from energymodel.solver import Solution, SolverOptions, minimize_many

OPTIONS = SolverOptions(hessian="differences", max_iterations=100)
RANGE = 4.0  # of a shape variable around the scenario's own
DEPTHS = 24  # depths that are searched at once; the neighbors of the best one follow
TOLERATED = 1e-6  # violation of a limit in the logarithm


@dataclasses.dataclass(frozen=True)
class ShapeSearch:
    """The problem of a scenario with the shape added; bounds are equal for shape variables that are not in `names`.

    So all searches share one compiled program.
    """

    problem: DesignProblem
    prior: ShapePrior
    names: tuple[str, ...]

    @property
    def form(self) -> ShapeForm:
        """Objective and rows by shape and plan."""
        return ShapeForm(self.problem.formulation)

    @property
    def workload(self) -> Transformer:
        """The scenario's own model."""
        return self.problem.run.system.workload

    @property
    def own(self) -> Float[np.ndarray, " shape"]:
        """Logarithms of the shape variables of the scenario's model."""
        return np.log([float(value) for value in proportions(self.workload).values()])

    def sides(self) -> tuple[Float[np.ndarray, " shape"], Float[np.ndarray, " shape"]]:
        """Bounds of the shape variables."""
        free = np.array([name in self.names for name in SHAPE])
        reach = np.where(free, math.log(RANGE), 0.0)
        low, high = self.own - reach, self.own + reach
        fewest = {"experts": max(2.0, float(self.problem.run.plan.layout.expert)), "active_experts": 1.0}
        for name, value in fewest.items():
            place = SHAPE.index(name)
            low[place] = max(low[place], math.log(value)) if free[place] else low[place]
        place = SHAPE.index("kv_share")
        high[place] = min(high[place], 0.0)
        return low, high

    def depth(self, layers: Float[np.ndarray, " lanes"]) -> Depth:
        """Depths with their layouts, as lanes."""
        layout = self.problem.run.plan.layout
        lanes = jax.tree.map(lambda leaf: np.full(len(layers), float(leaf)), layout)
        if float(layout.virtual_stages) > 1.0:
            stages = np.ceil(layers / depth_step(float(self.workload.layers), layout))
            lanes = eqx.tree_at(lambda lanes: lanes.virtual_stages, lanes, stages)
        return Depth(layers, lanes)

    def start(self, layers: Float[np.ndarray, " lanes"]) -> Float[np.ndarray, "lanes n"]:
        """The scenario's own shape and plan, as wide as makes its parameters the same at another depth."""
        form = self.problem.formulation
        plan = [form.coordinate(path, self.problem.start(path)) for path in form.paths]
        points = np.tile(np.concatenate([self.own, plan]), (len(layers), 1))
        points[:, SHAPE.index("hidden")] += 0.5 * np.log(float(self.workload.layers) / layers)
        return points

    def solve(
        self,
        layers: Float[np.ndarray, " lanes"],
        start: Float[np.ndarray, "lanes n"],
        held: Float[np.ndarray, "lanes n"] | None = None,
    ) -> tuple[Float[np.ndarray, " lanes"], Solution]:
        """Optimize each lane; coordinates in `held` that are not NaN are fixed. Infinite where limits do not hold."""
        shapes = (np.tile(side, (len(layers), 1)) for side in self.sides())
        plans = self.problem.boxes(len(layers))
        lower, upper = (np.concatenate(pair, axis=1) for pair in zip(shapes, plans, strict=True))
        if held is not None:
            lower, upper = np.where(np.isnan(held), lower, held), np.where(np.isnan(held), upper, held)
        # Lanes in whole chunks, the last ones twice: all calls then share one compiled program.
        pad = np.resize(np.arange(len(layers)), -(-len(layers) // OPTIONS.chunk) * OPTIONS.chunk)
        solution = minimize_many(
            self.form,
            np.clip(start, lower, upper)[pad],
            (self.depth(layers[pad]),),
            shared=(self.problem.criteria, self.problem.run, self.prior),
            bounds=(lower[pad], upper[pad]),
            options=OPTIONS,
        )
        solution = jax.tree.map(lambda leaf: leaf[: len(layers)], solution)
        kept = np.min(solution.slacks.inequalities, axis=1) >= -TOLERATED
        return np.where(kept & np.isfinite(solution.value), solution.value, np.inf), solution


class DepthSearch(NamedTuple):
    """The best shape and plan at each depth: logarithm of the objective, point, and prices of the rows."""

    layers: Float[np.ndarray, " depths"]
    values: Float[np.ndarray, " depths"]
    points: Float[np.ndarray, "depths n"]
    prices: Float[np.ndarray, "depths rows"]

    @property
    def best(self) -> int:
        """Place of the best depth."""
        return int(np.argmin(self.values))


def search_depths(search: ShapeSearch) -> DepthSearch:
    """All depths, or many and then the neighbors of the best."""

    def solve(layers: Float[np.ndarray, " depths"]) -> DepthSearch:
        values, solution = search.solve(layers, search.start(layers))
        return DepthSearch(layers, values, np.asarray(solution.x), np.asarray(solution.multipliers.inequalities))

    layout, layers = search.problem.run.plan.layout, float(search.workload.layers)
    every = depths_that_divide(layers, layout)
    spread = np.unique(np.round(np.linspace(0, len(every) - 1, min(DEPTHS, len(every)))).astype(int))
    first = np.union1d(every[spread], [layers])
    found = solve(first)
    near = np.searchsorted(every, first[[max(found.best - 1, 0), min(found.best + 1, len(first) - 1)]])
    others = np.setdiff1d(every[near[0] : near[1] + 1], first)
    if not len(others):
        return found
    joined = DepthSearch(*(np.concatenate(pair) for pair in zip(found, solve(others), strict=True)))
    order = np.argsort(joined.layers)
    return DepthSearch(*(leaf[order] for leaf in joined))
