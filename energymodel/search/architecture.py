"""The shape of transformer that reaches a loss at the lowest cost, and the cost of other shapes.

Depth, width, feed-forward width, attention width and experts are chosen together with the plan: parameters follow from
the shape, tokens from the loss that is left after the penalty of the shape (docs/physics.md A0.13), time and energy
from the whole model of a step. Depths are enumerated, because a pipeline holds whole layers; the rest is continuous,
and rounded to realizable shapes at the end.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError
from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import concatenate, take
from energymodel.search.model_shape import (
    MODEL,
    SHAPE,
    Depth,
    ShapedFormulation,
    ShapePrior,
    depth_step,
    depths_that_divide,
    proportions,
    realizable_shapes,
)
from energymodel.search.problem import DesignProblem, formulate
from energymodel.search.relaxation import obeys_limits, solve_relaxed
from energymodel.search.rounding import at_counts, nearby_counts, with_counts
from energymodel.solver import RESULTS, Solution, result_is
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.plan import TargetLoss, TrainingPlan
from energymodel.system.training_system import TrainingSystem

HELD = ("plan.chips", "plan.coolant_temperature")
"""Variables of a plan that keep the scenario's value unless they are varied."""
AT_BOUND = 1e-4  # distance from a bound, in the logarithm
RANGE = 4.0  # of a shape variable around the scenario's own
DEPTHS = 24  # depths that are searched at once; the neighbors of the best one follow
ROUNDED = 3  # depths whose neighbors are rounded
FOUND = "The shape and its plan are realizable and obey every limit."
NOT_FOUND = (
    "No realizable shape near the relaxed optimum was shown to be best within the limits; this one breaks them "
    "least. Relax a limit a little, or choose another layout."
)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The best realizable shape with its plan, at the loss of the scenario's own.

    - `system`, `plan`, `outcome`, `value`: of the best shape; `outcome.loss` is without the penalty of the shape.
    - `loss`, `penalty`: loss with the penalty, the same for every shape, and the penalty [nat/token].
    - `own_value`: the objective of the scenario's own shape with its plan optimized; `baseline_value`: as it is.
    - `relaxed_value`: with counts free to be fractions at the best depth: a bound.
    - `at_bounds`: shape variables that want to go further than a factor of 4 from the scenario's own.
    - `depths`, `depth_values`: objective at each depth, all else optimized.
    - `success`, `message`: whether the answer can be trusted, and what next.
    """

    scenario: Scenario
    minimize: str
    names: tuple[str, ...]
    system: TrainingSystem
    plan: TrainingPlan
    outcome: TrainingOutcome
    value: float
    loss: float
    penalty: float
    own_value: float
    baseline_value: float
    relaxed_value: float
    at_bounds: tuple[str, ...]
    depths: Float[np.ndarray, " depths"]
    depth_values: Float[np.ndarray, " depths"]
    success: bool
    message: str

    @property
    def saving(self) -> float:
        """Share of the objective that the best shape saves over the scenario's own, both with their best plans [1]."""
        return 1.0 - self.value / self.own_value


def optimize_architecture(
    scenario: Scenario,
    minimize: str | None = None,
    limits: Mapping[str, Any] | None = None,
    vary: Mapping[str, tuple[Any, Any]] | None = None,
    fix: Sequence[str] = (),
    names: Sequence[str] | None = None,
    prior: ShapePrior | None = None,
) -> Architecture:
    """Find the shape of transformer that minimizes the objective at a loss.

    The parallel layout stays, but for the virtual pipeline stages that a depth needs. All depths that divide well over
    the pipeline are searched at once; at each, shape and plan vary together.

    **Arguments:**

    - `scenario`: its own shape and loss are the reference.
    - `minimize`, `limits`: as in `optimize`; the loss includes the penalty of the shape.
    - `vary`: bounds of further variables of system and plan by dotted path, or of those in `HELD`.
    - `fix`: further paths that keep the scenario's value; batch and clock vary otherwise.
    - `names`: shape variables that vary besides depth, see `SHAPE`; unless given all but `kv_share`, and experts of a
      mixture alone. Nothing in the laws of loss pays for `kv_share`: where it varies, its best value is the cheapest.
    - `prior`: what unusual shapes cost in loss.

    **Raises:** `InputError` for a name, limit, path or objective that does not exist, for a range of the layout, and
    for a batch or a clock over progress or power by stage, which only `optimize` searches without a shape.
    """
    all_names, prior = SHAPE if float(scenario.system.workload.experts) > 1.0 else SHAPE[:4], prior or ShapePrior()
    names = tuple(name for name in all_names if name != "kv_share") if names is None else tuple(names)
    for name in names:
        if name not in all_names:
            raise InputError(f'Shape variable "{name}" is none of {", ".join(all_names)}.')
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        own_loss = {"loss": float(baseline.loss + prior.penalty(scenario.system.workload))}
        asked = scenario.with_question(minimize, limits, vary, fix)
        held = [path for path in HELD if path not in asked.optimize.vary]
        problem = formulate(asked.with_question(None, {**own_loss, **asked.optimize.limits}, None, held), baseline)
        for path in problem.formulation.paths:
            if path.startswith("system.workload."):
                raise InputError(f"{path}: the shape varies by `names`, and the rest of the workload stays.")
        if TOKENS in problem.formulation.paths:
            raise InputError("optimize_architecture: the loss is held; minimize energy, time, money or carbon.")
        for name, (low, high) in problem.layout_ranges.items():
            if low < high:
                raise InputError(
                    f"vary plan.layout.{name}: the layout stays while the shape varies. Leave it out here."
                )
        search = _ShapeSearch(problem, prior, names)
        depths = search.depths()
        if not np.isfinite(depths.values[depths.best]):
            raise InputError(
                "optimize_architecture: no shape at any depth obeys the limits in this layout. Relax a limit (time, "
                "memory), or start from the plan that `optimize` finds."
            )
        system, plan, success = search.rounded(depths)
        outcome = jax.tree.map(np.asarray, evaluate_once(system, plan))
        penalty = float(prior.penalty(system.workload))
        low, high = (side[0] for side in search.problem.boxes(1))
        reached = np.minimum(depths.points[depths.best] - low, high - depths.points[depths.best]) < AT_BOUND
        return Architecture(
            scenario=scenario,
            minimize=problem.minimize,
            names=names,
            system=system,
            plan=plan,
            outcome=outcome,
            value=float(objective_value(outcome, problem.minimize)),
            loss=float(outcome.loss) + penalty,
            penalty=penalty,
            own_value=search.own_value(depths),
            baseline_value=float(objective_value(baseline, problem.minimize)),
            relaxed_value=float(np.exp(depths.values[depths.best])),
            at_bounds=tuple(name for name, at in zip(SHAPE, reached, strict=False) if at and name in names),
            depths=depths.layers,
            depth_values=np.exp(depths.values),
            success=success,
            message=FOUND if success else NOT_FOUND,
        )


class _Depths(NamedTuple):
    """The best shape and plan at each depth: logarithm of the objective, and point."""

    layers: Float[np.ndarray, " depths"]
    values: Float[np.ndarray, " depths"]
    points: Float[np.ndarray, "depths n"]

    @property
    def best(self) -> int:
        """Index of the best depth."""
        return int(np.argmin(self.values))


class _ShapeSearch:
    """A problem with the shape added, whose lanes are depths.

    All shape variables are in it; bounds are equal for those that do not vary, so that all searches share one program.
    """

    def __init__(self, plain: DesignProblem, prior: ShapePrior, names: Sequence[str]) -> None:
        self.prior, self.layout = prior, plain.run.plan.layout
        self.workload = plain.run.system.workload
        self.layers = float(self.workload.layers)
        own = {name: float(value) for name, value in proportions(self.workload).items()}
        self.own = np.log(list(own.values()))
        fewest = {"experts": max(2.0, float(self.layout.expert)), "active_experts": 1.0}
        bounds = {}
        for name, value in own.items():
            low, high = (max(value / RANGE, fewest.get(name, 0.0)), value * RANGE) if name in names else (value, value)
            bounds[MODEL + name] = (low, min(high, 1.0) if name == "kv_share" else high)
        formulation = ShapedFormulation.of(plain.formulation, prior)
        self.problem = dataclasses.replace(plain, formulation=formulation, bounds={**bounds, **plain.bounds})

    def solve(
        self,
        layers: Float[np.ndarray, " lanes"],
        start: Float[np.ndarray, "lanes n"],
        fixed: Float[np.ndarray, "lanes n"] | float = np.nan,
    ) -> tuple[_Depths, Depth, Solution]:
        """Optimize each lane; coordinates in `fixed` that are not NaN stay. Infinite where limits do not hold."""
        lower, upper = (np.where(np.isnan(fixed), side, fixed) for side in self.problem.boxes(len(layers)))
        layouts = jax.tree.map(lambda leaf: np.full(len(layers), float(leaf)), self.layout)
        if float(self.layout.virtual_stages) > 1.0:
            stages = np.ceil(layers / depth_step(self.layers, self.layout))
            layouts = eqx.tree_at(lambda layouts: layouts.virtual_stages, layouts, stages)
        lanes = Depth(layers, layouts)
        solution = solve_relaxed(self.problem, lanes, np.clip(start, lower, upper), bounds=(lower, upper))
        values = np.where(obeys_limits(solution), solution.value, np.inf)
        return _Depths(layers, values, np.asarray(solution.x)), lanes, solution

    def depths(self) -> _Depths:
        """All depths, or many and then the neighbors of the best."""
        form = self.problem.formulation
        plan = [form.coordinate(path, self.problem.start(path)) for path in form.paths[len(SHAPE) :]]

        def solve(depths: Float[np.ndarray, " depths"]) -> _Depths:
            """From the own shape and plan, as wide as makes the parameters the same at another depth."""
            start = np.tile(np.concatenate([self.own, plan]), (len(depths), 1))
            start[:, SHAPE.index("hidden")] += 0.5 * np.log(self.layers / depths)
            return self.solve(depths, start)[0]

        every = depths_that_divide(self.layers, self.layout)
        spread = np.unique(np.round(np.linspace(0, len(every) - 1, min(DEPTHS, len(every)))).astype(int))
        first = np.union1d(every[spread], [self.layers])
        coarse = solve(first)
        near = np.searchsorted(every, first[[max(coarse.best - 1, 0), min(coarse.best + 1, len(first) - 1)]])
        others = np.setdiff1d(every[near[0] : near[1] + 1], first)
        if not len(others):
            return coarse
        joined = concatenate(coarse, solve(others))
        return take(joined, np.argsort(joined.layers))

    def rounded(self, depths: _Depths) -> tuple[TrainingSystem, TrainingPlan, bool]:
        """The best realizable shape at the best depths, then whole replicas and micro-batches for it."""
        problem = self.problem
        trials = [
            (int(index), shape)
            for index in np.argsort(depths.values)[:ROUNDED]
            if np.isfinite(depths.values[index])
            for shape in realizable_shapes(
                self.workload, self.layout, float(depths.layers[index]), depths.points[index]
            )
        ]
        index = np.array([index for index, _ in trials])
        fixed = np.full((len(trials), depths.points.shape[1]), np.nan)
        fixed[:, : len(SHAPE)] = np.log([list(map(float, proportions(shape).values())) for _, shape in trials])
        ends, lanes, solution = self.solve(depths.layers[index], depths.points[index], fixed)
        best = ends.best
        if not np.isfinite(ends.values[best]):
            best = int(np.argmax(np.min(solution.slacks.inequalities, axis=1)))
        workload, point, layout = trials[best][1], ends.points[best], take(lanes.layout, np.array([best]))
        counts = nearby_counts(problem, layout, 0, point, 1)
        if not counts:
            raise InputError("optimize_architecture: no whole micro-batches lie within the bounds of chips and batch.")
        start = np.tile(point, (len(counts), 1))
        lower, upper = at_counts(problem, layout, counts, start).bounds
        fixed = np.where(lower == upper, lower, fixed[best])
        ends, lanes, solution = self.solve(np.full(len(counts), float(workload.layers)), start, fixed)
        at = ends.points[ends.best], take(lanes, np.array(ends.best)), problem.criteria, problem.run
        system, plan = jax.tree.map(np.asarray, problem.formulation.at(*at))
        goal = TargetLoss(np.asarray(problem.criteria.limits["loss"] - self.prior.penalty(workload)))
        system = eqx.tree_at(lambda system: system.workload, system, workload)
        plan = with_counts(eqx.tree_at(lambda plan: plan.goal, plan, goal), system, counts[ends.best])
        converged = result_is(solution.result, RESULTS.successful)[ends.best]
        return system, plan, bool(np.isfinite(ends.values[ends.best]) and converged)

    def own_value(self, depths: _Depths) -> float:
        """The objective of the scenario's own shape with the best plan for it; NaN where none obeys the limits."""
        fixed = np.full((1, depths.points.shape[1]), np.nan)
        fixed[0, : len(SHAPE)] = self.own
        value = self.solve(np.array([self.layers]), depths.points[[depths.best]], fixed)[0].values[0]
        return float(np.exp(value)) if np.isfinite(value) else math.nan
