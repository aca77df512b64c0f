"""The shape of transformer that reaches a loss at the lowest cost, or the lowest loss at a cost, and other shapes.

Depth, width, feed-forward width, attention width and experts are chosen together with the plan: parameters follow from
the shape, loss and tokens from each other with the penalty of the shape (docs/physics.md A0.13), time and energy from
the whole model of a step. Depths are enumerated, because a pipeline holds whole layers; the rest is continuous, and
rounded to realizable shapes. Shape and layout are searched in turn, until neither improves the other.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import concatenate, layout_label, take
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
from energymodel.search.optimize import optimize
from energymodel.search.problem import DesignProblem, check_ends, formulate
from energymodel.search.relaxation import layout_bounds, obeys_limits, solve_relaxed
from energymodel.search.result import Optimum
from energymodel.search.rounding import nearby_counts, with_counts
from energymodel.solver import Solution
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import Lattice, fastest_layout
from energymodel.system.outputs import parse_objective
from energymodel.system.plan import ParallelLayout, TrainingPlan

HELD = ("plan.chips", "plan.coolant_temperature")
"""Variables of a plan that keep the scenario's value at a loss, unless they are varied."""
AT_BOUND = 1e-4  # distance from a bound, in the logarithm
RANGE = 4.0  # of a shape variable around the scenario's own
FEW = 5  # depths of each layout while the layout is open
SIZES = 2.0 ** np.arange(-4.0, 3.1, 0.5)  # of depth and width over the own, where the loss is sought
TOKENS_PER_PARAMETER = 20.0  # from which a search begins [Hoffmann et al. 2022]
DEPTHS = 24  # depths that are searched at once; the neighbors of the best one follow
ROUNDED = 3  # depths whose neighbors are rounded
ROUNDS = 3  # of shape and layout
BETTER = 1e-4  # of a round, in the logarithm of the objective


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The best realizable shape with its plan, at the loss of the scenario's own or at the lowest loss.

    - `optimum`: the best plan of that shape, whose losses are without the penalty of the shape.
    - `loss`, `penalty`: loss with the penalty, and the penalty [nat/token].
    - `value`: the objective; `own_value`: that of the own shape with its best plan, NaN where none obeys the limits.
      A loss is with the penalty.
    - `relaxed_value`: with counts free to be fractions at the best depth: a bound.
    - `at_bounds`: shape variables at the end of their range, a factor of 4 from the scenario's own; of the width 32,
      where the loss is sought.
    - `depths`, `depth_values`: objective at each depth in the best layout, all else optimized.
    """

    scenario: Scenario
    names: tuple[str, ...]
    optimum: Optimum
    loss: float
    penalty: float
    value: float
    own_value: float
    relaxed_value: float
    at_bounds: tuple[str, ...]
    depths: Float[np.ndarray, " depths"]
    depth_values: Float[np.ndarray, " depths"]

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
    progress: Callable[[str], None] | None = None,
) -> Architecture:
    """Find the shape of transformer that minimizes the objective at a loss, or the loss within limits.

    All depths that divide well over the pipeline are searched at once; at each, shape and plan vary together. The best
    layout of the shape found follows, then the shape in that layout, until nothing improves.

    **Arguments:**

    - `scenario`: its own shape and loss are the reference.
    - `minimize`, `limits`: as in `optimize`; the loss includes the penalty of the shape. Where it is minimized, chips
      and tokens vary as well, and models from a 16th to 8 times as deep and wide start the search.
    - `vary`: bounds of further variables of system and plan by dotted path, or of those in `HELD`.
    - `fix`: further paths that keep the scenario's value; batch, clock and layout vary otherwise.
    - `names`: shape variables that vary besides depth, see `SHAPE`; unless given all but `kv_share`, and experts of a
      mixture alone. Nothing in the laws of loss pays for `kv_share`: where it varies, its best value is the cheapest.
    - `prior`: what unusual shapes cost in loss.
    - `progress`: called with a sentence at every stage.

    **Raises:** `InputError` for a name, limit, path or objective that does not exist, for a loss without a limit of
    time, money, energy or carbon, and for a batch or a clock over progress or power by stage, which only `optimize`
    searches without a shape.
    """
    all_names, prior = SHAPE if float(scenario.system.workload.experts) > 1.0 else SHAPE[:4], prior or ShapePrior()
    names = tuple(name for name in all_names if name != "kv_share") if names is None else tuple(names)
    for name in names:
        if name not in all_names:
            raise InputError(f'Shape variable "{name}" is none of {", ".join(all_names)}.')
    workload = scenario.system.workload
    if fixed := [name for name in ("state_layers", "attention_weights") if float(getattr(workload, name)) > 0.0]:
        raise InputError(
            f"optimize_architecture: {fixed[0]} is {float(getattr(workload, fixed[0])):g}: shapes of models with a "
            "state or with attention of their own kind are not varied. Take a model without, or `optimize` the plan."
        )
    tell = progress or (lambda sentence: None)
    asked = scenario.with_question(minimize, limits, vary, fix)
    seeks_loss, is_loss = "loss" in parse_objective(asked.optimize.minimize).names(), asked.optimize.minimize == "loss"
    if seeks_loss:
        check_ends(asked)
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        own_penalty = float(prior.penalty(scenario.system.workload))
        if not seeks_loss:
            own_loss = {"loss": float(baseline.loss) + own_penalty}
            held = [path for path in HELD if path not in asked.optimize.vary]
            asked = asked.with_question(limits={**own_loss, **asked.optimize.limits}, fix=held)
        problem = formulate(asked, baseline)
        for path in problem.formulation.paths:
            if path.startswith("system.workload."):
                raise InputError(f"{path}: the shape varies by `names`, and the rest of the workload stays.")
        own_limits = {name: problem.limits[name] for name in ("time", "chips", "loss") if name in problem.limits}
        asked = asked.with_question(limits=own_limits)
        tell("searching the best plan of the own shape")
        own_value = math.nan
        with suppress(InputError):  # it may not fit
            own = _best_plan(asked, own_penalty, tell)
            own_value = own.value + own_penalty * is_loss if own.success else math.nan
        present, best, outcome = asked, None, baseline
        starts = _layouts_by_size(problem) if seeks_loss else [(1.0, scenario.plan.layout)]
        for _ in range(ROUNDS):
            tell("searching depths, widths and the plan")
            search = _ShapeSearch(formulate(present, outcome), prior, names, scenario.system.workload)
            depths = search.depths(starts)
            if (rounded := search.rounded(depths)) is None:
                break
            workload, plan = rounded
            system = eqx.tree_at(lambda system: system.workload, present.system, workload)
            penalty = float(prior.penalty(workload))
            optimum = _best_plan(dataclasses.replace(present, system=system, plan=plan), penalty, tell)
            value = optimum.value + penalty * is_loss
            if best is not None and not (optimum.success and value < best.value * (1.0 - BETTER)):
                break
            best = Architecture(
                scenario=asked,
                names=names,
                optimum=optimum,
                loss=float(optimum.outcome.loss) + penalty,
                penalty=penalty,
                value=value,
                own_value=own_value,
                relaxed_value=min(float(np.exp(depths.values[depths.best])), value),
                at_bounds=search.at_bounds(depths, names),
                depths=depths.lanes.layers,
                depth_values=np.exp(depths.values),
            )
            if not optimum.success or layout_label(optimum.plan.layout) == layout_label(plan.layout):
                break
            starts, outcome = [(1.0, optimum.plan.layout)], optimum.outcome
            # The own layout belongs to the compiled programs; lanes have their own.
            plan = eqx.tree_at(lambda plan: plan.layout, optimum.plan, scenario.plan.layout)
            present = dataclasses.replace(present, system=system, plan=plan)
    if best is None:
        raise InputError(
            "optimize_architecture: no shape at any depth obeys the limits. Relax a limit (time, money, memory), or "
            "start from the plan that `optimize` finds."
        )
    return best


def _best_plan(scenario: Scenario, penalty: float, tell: Callable[[str], None]) -> Optimum:
    """The best plan of a scenario whose limit of the loss contains the penalty of its shape."""
    loss = {name: limit - penalty for name, limit in scenario.optimize.limits.items() if name == "loss"}
    return optimize(scenario, limits=loss, progress=tell, tolerance=0.0, keep_layout=False)


def _layouts_by_size(problem: DesignProblem) -> list[tuple[float, ParallelLayout]]:
    """Sizes of models over the own one, in depth and width, with the fastest layout of each that fits in memory."""
    system, pairs = problem.run.system, []
    plan = eqx.tree_at(lambda plan: plan.chips, problem.run.plan, np.asarray(problem.most_chips))
    for size in SIZES:
        own = proportions(system.workload)
        point = np.log([*map(float, {**own, "hidden": own["hidden"] * size}.values())])
        layers = max(1.0, round(float(system.workload.layers) * size))
        workload = realizable_shapes(system.workload, ParallelLayout(), layers, point)[0]
        scaled = eqx.tree_at(lambda system: system.workload, system, workload)
        with suppress(InputError):
            pairs.append((float(size), fastest_layout(scaled, plan, problem.layout_ranges).layout))
    return pairs or [(1.0, fastest_layout(system, plan, problem.layout_ranges).layout)]


def _spread(depths: Float[np.ndarray, " depths"], most: int) -> Float[np.ndarray, " some"]:
    """At most so many of the depths, from the first to the last."""
    return depths[np.unique(np.round(np.linspace(0, len(depths) - 1, min(most, len(depths)))).astype(int))]


class _Depths(NamedTuple):
    """The best shape and plan at each depth, in its layout: logarithm of the objective, and point."""

    lanes: Depth
    values: Float[np.ndarray, " depths"]
    points: Float[np.ndarray, "depths n"]

    @property
    def best(self) -> int:
        """Index of the best depth."""
        return int(np.argmin(self.values))


class _ShapeSearch:
    """A problem with the shape added, whose lanes are depths in layouts.

    All shape variables are in it; bounds are equal for those that do not vary, so that all searches share one program.
    They lie around the shape of the `center`.
    """

    def __init__(self, plain: DesignProblem, prior: ShapePrior, names: Sequence[str], center: Transformer) -> None:
        self.plain, self.workload = plain, plain.run.system.workload
        self.layers = float(self.workload.layers)
        reach = {name: RANGE if name in names else 1.0 for name in SHAPE}
        if TOKENS in plain.bounds and "hidden" in names:
            reach["hidden"] *= max(SIZES)
        sizes = {name: (float(value), reach[name]) for name, value in proportions(center).items()}
        bounds = {MODEL + name: (size / factor, size * factor) for name, (size, factor) in sizes.items()}
        kv_share = MODEL + "kv_share"
        bounds[kv_share] = (bounds[kv_share][0], min(bounds[kv_share][1], 1.0))
        formulation = ShapedFormulation.of(plain.formulation, prior)
        self.problem = dataclasses.replace(plain, formulation=formulation, bounds={**bounds, **plain.bounds})

    def at_bounds(self, depths: _Depths, names: Sequence[str]) -> tuple[str, ...]:
        """Shape variables that reach a bound at the best depth."""
        best = take(depths, np.array([depths.best]))
        low, high = self.boxes(best.lanes.layout)
        reached = np.minimum(best.points - low, high - best.points)[0] < AT_BOUND
        return tuple(name for name, at in zip(SHAPE, reached, strict=False) if at and name in names)

    def boxes(self, layouts: Lattice) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of lower and upper bounds; chips and experts are at least those that a layout needs."""
        lower, upper = layout_bounds(self.problem, layouts)
        for name, fewest in (("experts", np.maximum(layouts.expert, 2.0)), ("active_experts", 1.0)):
            at = SHAPE.index(name)
            lower[:, at] = np.clip(np.log(fewest), lower[:, at], upper[:, at])
        return lower, upper

    def solve(
        self, lanes: Depth, start: Float[np.ndarray, "lanes n"], fixed: Float[np.ndarray, "lanes n"] | float = np.nan
    ) -> tuple[_Depths, Solution]:
        """Optimize each lane; coordinates in `fixed` that are not NaN stay. Infinite where limits do not hold."""
        lower, upper = (np.where(np.isnan(fixed), side, fixed) for side in self.boxes(lanes.layout))
        solution = solve_relaxed(self.problem, lanes, np.clip(start, lower, upper), bounds=(lower, upper))
        values = np.where(obeys_limits(solution), solution.value, np.inf)
        return _Depths(lanes, values, np.asarray(solution.x)), solution

    def lanes(
        self, size: float, layout: ParallelLayout, depths: Float[np.ndarray, " depths"]
    ) -> tuple[Depth, np.ndarray]:
        """Depths in a layout, and starts: wide enough for the parameters of a model `size` times as deep and wide."""
        form, problem = self.problem.formulation, self.problem
        layouts = jax.tree.map(lambda leaf: np.full(len(depths), float(leaf)), layout)
        if float(layout.virtual_stages) > 1.0:
            stages = np.ceil(depths / depth_step(self.layers * size, layout))
            layouts = eqx.tree_at(lambda layouts: layouts.virtual_stages, layouts, stages)
        own = np.log([*map(float, proportions(self.workload).values())])
        plan = [form.coordinate(path, problem.start(path)) for path in form.paths[len(SHAPE) :]]
        start = np.tile(np.concatenate([own, plan]), (len(depths), 1))
        start[:, SHAPE.index("hidden")] += np.log(size) + 0.5 * np.log(self.layers * size / depths)
        if TOKENS in form.paths:
            parameters = float(self.workload.active_parameters) * size**3
            start[:, form.paths.index(TOKENS)] = np.log(TOKENS_PER_PARAMETER * parameters)
        return Depth(depths, layouts), start

    def depths(self, starts: Sequence[tuple[float, ParallelLayout]]) -> _Depths:
        """Depths of a layout, many and then the neighbors of the best; of several sizes and layouts the best one's."""
        size, layout = starts[0]
        if len(starts) > 1:
            few = [self.lanes(*pair, _spread(self._every(*pair), FEW)) for pair in starts]
            best = self.solve(*concatenate(*few))[0].best
            owner = np.repeat(np.arange(len(starts)), [len(start) for _, start in few])
            size, layout = starts[owner[best]]
        every = self._every(size, layout)
        coarse = self.solve(*self.lanes(size, layout, _spread(every, DEPTHS)))[0]
        tried = coarse.lanes.layers
        near = tried[max(coarse.best - 1, 0)], tried[min(coarse.best + 1, len(tried) - 1)]
        others = np.setdiff1d(every[(every > near[0]) & (every < near[1])], tried)
        if not len(others):
            return coarse
        joined = concatenate(coarse, self.solve(*self.lanes(size, layout, others))[0])
        return take(joined, np.argsort(joined.lanes.layers))

    def _every(self, size: float, layout: ParallelLayout) -> Float[np.ndarray, " depths"]:
        return depths_that_divide(max(1.0, round(self.layers * size)), layout)

    def rounded(self, depths: _Depths) -> tuple[Transformer, TrainingPlan] | None:
        """The best realizable shape at the best depths, and a plan for it; `None` where no depth obeys the limits."""
        trials = [
            (int(index), shape)
            for index in np.argsort(depths.values)[:ROUNDED]
            if np.isfinite(depths.values[index])
            for shape in realizable_shapes(
                self.workload,
                take(depths.lanes.layout, np.array(index)),
                float(depths.lanes.layers[index]),
                depths.points[index],
            )
        ]
        if not trials:
            return None
        index = np.array([index for index, _ in trials])
        fixed = np.full((len(trials), depths.points.shape[1]), np.nan)
        fixed[:, : len(SHAPE)] = np.log([list(map(float, proportions(shape).values())) for _, shape in trials])
        ends, solution = self.solve(take(depths.lanes, index), depths.points[index], fixed)
        best = ends.best
        if not np.isfinite(ends.values[best]):
            best = int(np.argmax(np.min(solution.slacks.inequalities, axis=1)))
        plain, point, layout = self.plain, ends.points[best, len(SHAPE) :], take(ends.lanes.layout, np.array([best]))
        counts = nearby_counts(plain, layout, 0, point, 1)
        if not counts:
            raise InputError("optimize_architecture: no whole micro-batches lie within the bounds of chips and batch.")
        at = plain.formulation.at(point, take(layout, np.array(0)), plain.criteria, plain.run)
        system, plan = jax.tree.map(np.asarray, at)
        return trials[best][1], with_counts(plan, system, counts[0])
