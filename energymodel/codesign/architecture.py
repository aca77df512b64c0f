"""Which shape of transformer reaches a loss at least cost, and how much does it matter?

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

from energymodel.codesign.model_shape import (
    SHAPE,
    Depth,
    ShapeForm,
    ShapePrior,
    around,
    depth_step,
    depths_that_divide,
    proportions,
    realizable_shapes,
)
from energymodel.design.problem import TOKENS, Problem, leaf_at, pose
from energymodel.errors import InputError
from energymodel.performance.workload import Transformer
from energymodel.presets.scenario import Scenario
from energymodel.solver.minimize import RESULTS, Solution, SolverOptions
from energymodel.solver.minimize_many import minimize_many
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.plan import TargetLoss, TrainingPlan
from energymodel.system.training_system import TrainingSystem

OPTIONS = SolverOptions(hessian="differences", max_iterations=100)
HELD = ("plan.chips", "plan.coolant_temperature")
RANGE = 4.0  # of a shape variable around the scenario's own
DEPTHS = 24  # depths that are searched at once; the neighbors of the best one follow
FLATNESS = 0.2
CURVATURE_STEP = 0.05  # in the logarithm: second differences of values that are exact to 1e-8
TOLERATED = 1e-6  # violation of a limit in the logarithm
AT_BOUND = 1e-4  # distance from a bound, in the logarithm
ROUNDED = 3  # depths whose neighbors are rounded
FOUND = "The shape and its plan are realizable and obey every limit."
NOT_FOUND = (
    "No realizable shape near the relaxed optimum was shown to be best within the limits; the one given breaks them "
    "least. Relax a limit a little, or give another layout."
)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The best realizable shape with its plan, at the loss of the scenario's own.

    - `system`, `plan`, `outcome`, `value`: of the best shape; `outcome.loss` is without the penalty of the shape.
    - `loss`, `penalty`: loss with the penalty, the same for every shape, and the penalty [nat/token].
    - `own_value`: the objective of the scenario's own shape with its plan optimized; `baseline_value`: as it is.
    - `relaxed_value`, `relaxed`: with counts free to be fractions at the best depth: a bound, and its shape variables.
    - `at_bounds`: shape variables that want to go further than a factor of 4 from the scenario's own.
    - `depths`, `depth_values`: objective at each depth, all else optimized.
    - `flatness`: by shape variable, what 20 % less and 20 % more of it cost, all else optimized (0.01 is 1 %); NaN
      where no plan obeys the limits. `layers` between the nearest depths that divide.
    - `curvatures`, `directions`: eigenvalues, least first, and eigenvectors (columns, in the order of `names`) of the
      second derivatives of the logarithm of the objective by those of the shape variables at that depth, the plan
      optimized: a step s along a direction costs `s^2/2` times its curvature. NaN where a limit cuts the steps off.
    - `prices`: elasticities of the limits; `success`, `message`: whether the answer can be trusted, and what next.
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
    relaxed: Mapping[str, float]
    at_bounds: tuple[str, ...]
    depths: Float[np.ndarray, " depths"]
    depth_values: Float[np.ndarray, " depths"]
    flatness: Mapping[str, tuple[float, float]]
    curvatures: Float[np.ndarray, " names"]
    directions: Float[np.ndarray, "names names"]
    prices: Mapping[str, float]
    success: bool
    message: str

    @property
    def gap(self) -> float:
        """What rounding costs, relative to the relaxed shape [1]."""
        return self.value / self.relaxed_value - 1.0

    @property
    def saving(self) -> float:
        """Share of the objective that the best shape saves over the scenario's own, both with their best plans [1]."""
        return 1.0 - self.value / self.own_value


def optimize_architecture(
    scenario: Scenario,
    minimize: str = "energy",
    limits: Mapping[str, Any] | None = None,
    vary: Mapping[str, tuple[Any, Any]] | None = None,
    fix: Sequence[str] = HELD,
    names: Sequence[str] | None = None,
    prior: ShapePrior | None = None,
) -> Architecture:
    """Find the shape of transformer that costs least at a loss.

    The parallel layout stays, but for the virtual_stages that a depth needs. All depths that divide well over the
    pipeline are searched at once; at each, shape and plan vary together.

    **Arguments:**

    - `scenario`: from `load_scenario`; its own shape and loss are what is compared with.
    - `minimize`: as in `optimize`.
    - `limits`: as in `optimize`; the loss includes the penalty of the shape.
    - `vary`: bounds of further variables of system and plan by dotted path.
    - `fix`: paths that keep the scenario's value; chips and coolant unless given, so that batch and clock vary.
    - `names`: shape variables that vary besides depth, see `SHAPE`; unless given `hidden`, `feed_forward_ratio` and
      `attention_ratio`, and for mixtures of experts `experts` and `active_experts`. Nothing in the laws of loss pays
      for `kv_share`: where it varies, its best value is the cheapest.
    - `prior`: what unusual shapes cost in loss.

    **Returns:** `Architecture`.

    **Raises:** `InputError` for a name, limit, path or objective that does not exist.
    """
    mixture = float(scenario.system.workload.experts) > 1.0
    if names is None:
        names = SHAPE[:3] + (SHAPE[4:] if mixture else ())
    for name in names:
        if name not in SHAPE or (name in SHAPE[4:] and not mixture):
            raise InputError(f'Shape variable "{name}" is none of {", ".join(SHAPE if mixture else SHAPE[:4])}.')
    for path in vary or {}:
        if path.startswith("system.workload."):
            raise InputError(f"{path}: the shape varies by `names`, and the rest of the workload stays.")
    prior = ShapePrior() if prior is None else prior
    with jax.enable_x64(True):
        baseline = _numpy(evaluate_once(scenario.system, scenario.plan))
        limits = {"loss": float(baseline.loss + prior.penalty(scenario.system.workload)), **(limits or {})}
        fix = [path for path in fix if path not in (vary or {})]
        problem = pose(scenario, baseline, minimize, limits, vary or {}, fix)
        if TOKENS in problem.form.paths:
            raise InputError("optimize_architecture: the loss is held; minimize energy, time, money or carbon.")
        return _answer(_Search(problem, prior, tuple(names)), scenario, baseline)


@dataclasses.dataclass(frozen=True)
class _Search:
    """A problem whose lanes all share one compiled program: shape variables that do not vary have equal bounds."""

    problem: Problem
    prior: ShapePrior
    names: tuple[str, ...]

    @property
    def form(self) -> ShapeForm:
        return ShapeForm(self.problem.form)

    @property
    def workload(self) -> Transformer:
        return self.problem.given.system.workload

    @property
    def own(self) -> Float[np.ndarray, " shape"]:
        """Logarithms of the shape variables of the scenario's model."""
        return np.log([float(value) for value in proportions(self.workload).values()])

    def sides(self) -> tuple[Float[np.ndarray, " shape"], Float[np.ndarray, " shape"]]:
        """Bounds of the shape variables."""
        free = np.array([name in self.names for name in SHAPE])
        reach = np.where(free, math.log(RANGE), 0.0)
        low, high = self.own - reach, self.own + reach
        least = {"experts": max(2.0, float(self.problem.given.plan.layout.expert)), "active_experts": 1.0}
        for name, value in least.items():
            place = SHAPE.index(name)
            low[place] = max(low[place], math.log(value)) if free[place] else low[place]
        place = SHAPE.index("kv_share")
        high[place] = min(high[place], 0.0)
        return low, high

    def depth(self, layers: Float[np.ndarray, " lanes"]) -> Depth:
        """Depths with their layouts, as lanes."""
        layout = self.problem.given.plan.layout
        lanes = jax.tree.map(lambda leaf: np.full(len(layers), float(leaf)), layout)
        if float(layout.virtual_stages) > 1.0:
            stages = np.ceil(layers / depth_step(float(self.workload.layers), layout))
            lanes = eqx.tree_at(lambda lanes: lanes.virtual_stages, lanes, stages)
        return Depth(layers, lanes)

    def start(self, layers: Float[np.ndarray, " lanes"]) -> Float[np.ndarray, "lanes n"]:
        """The scenario's own shape and plan, as wide as makes its parameters the same at another depth."""
        form = self.problem.form
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
        least, most = self.problem.boxes(len(layers))
        low, high = (np.tile(side, (len(layers), 1)) for side in self.sides())
        lower, upper = np.concatenate([low, least], axis=1), np.concatenate([high, most], axis=1)
        if held is not None:
            lower, upper = np.where(np.isnan(held), lower, held), np.where(np.isnan(held), upper, held)
        # Lanes in whole chunks, the last ones twice: all calls then share one compiled program.
        pad = np.resize(np.arange(len(layers)), -(-len(layers) // OPTIONS.chunk) * OPTIONS.chunk)
        solution = minimize_many(
            self.form,
            np.clip(start, lower, upper)[pad],
            (self.depth(layers[pad]),),
            shared=(self.problem.target, self.problem.given, self.prior),
            bounds=(lower[pad], upper[pad]),
            options=OPTIONS,
        )
        solution = jax.tree.map(lambda leaf: leaf[: len(layers)], solution)
        kept = np.min(solution.slacks.inequalities, axis=1) >= -TOLERATED
        return np.where(kept & np.isfinite(solution.value), solution.value, np.inf), solution


class _Lanes(NamedTuple):
    """Optimized lanes, by depth."""

    layers: Float[np.ndarray, " lanes"]
    values: Float[np.ndarray, " lanes"]
    points: Float[np.ndarray, "lanes n"]
    prices: Float[np.ndarray, "lanes rows"]

    @property
    def best(self) -> int:
        return int(np.argmin(self.values))


def _depths(search: _Search) -> _Lanes:
    """All depths, or many and then the neighbors of the best."""
    layout, layers = search.problem.given.plan.layout, float(search.workload.layers)
    every = depths_that_divide(layers, layout)
    spread = np.unique(np.round(np.linspace(0, len(every) - 1, min(DEPTHS, len(every)))).astype(int))
    first = np.union1d(every[spread], [layers])
    lanes = _lanes(search, first)
    if len(first) < len(every):
        near = np.searchsorted(every, first[[max(lanes.best - 1, 0), min(lanes.best + 1, len(first) - 1)]])
        others = np.setdiff1d(every[near[0] : near[1] + 1], first)
        if len(others):
            more = _lanes(search, others)
            joined = _Lanes(*(np.concatenate(pair) for pair in zip(lanes, more, strict=True)))
            order = np.argsort(joined.layers)
            lanes = _Lanes(*(leaf[order] for leaf in joined))
    return lanes


def _lanes(search: _Search, layers: Float[np.ndarray, " lanes"]) -> _Lanes:
    values, solution = search.solve(layers, search.start(layers))
    return _Lanes(layers, values, np.asarray(solution.x), np.asarray(solution.multipliers.inequalities))


def _round(search: _Search, lanes: _Lanes) -> tuple[TrainingSystem, TrainingPlan, bool]:
    """The best realizable shape at the best depths, then whole replicas and micro-batches for it."""
    order, layout = np.argsort(lanes.values)[:ROUNDED], search.problem.given.plan.layout
    trials = [
        (int(lane), counts)
        for lane in order
        if np.isfinite(lanes.values[lane])
        for counts in realizable_shapes(search.workload, layout, float(lanes.layers[lane]), lanes.points[lane])
    ]
    places = np.array([lane for lane, _ in trials])
    held = np.full((len(trials), lanes.points.shape[1]), np.nan)
    held[:, : len(SHAPE)] = [counts.logarithms(search.workload) for _, counts in trials]
    values, solution = search.solve(lanes.layers[places], lanes.points[places], held)
    best = int(np.argmin(values))
    if not np.isfinite(values[best]):
        best = int(np.argmax(np.min(solution.slacks.inequalities, axis=1)))
    counts, point = trials[best][1], np.asarray(solution.x[best])
    layers = np.array([counts.layers])
    wholes = _whole_counts(search, point)
    held = np.tile(held[best], (len(wholes), 1))
    form = search.problem.form
    for path, column in (("plan.chips", 0), ("plan.batch", 1)):
        if path in form.paths:
            held[:, len(SHAPE) + form.paths.index(path)] = np.log([whole[column] for whole in wholes])
    many = np.repeat(layers, len(wholes))
    values, solution = search.solve(many, np.tile(point, (len(wholes), 1)), held)
    best = int(np.argmin(values))
    depth = jax.tree.map(lambda leaf: leaf[best], search.depth(many))
    given, target = search.problem.given, search.problem.target
    system, plan = _numpy(search.form.at(np.asarray(solution.x[best]), depth, target, given, search.prior))
    workload = counts.workload(search.workload)
    goal = TargetLoss(np.asarray(target.limits["loss"] - search.prior.penalty(workload)))
    chips, batch = wholes[best]
    system = eqx.tree_at(lambda system: system.workload, system, workload)
    plan = eqx.tree_at(
        lambda plan: (plan.goal, plan.chips, plan.batch),
        plan,
        (goal, np.asarray(chips), np.full(np.shape(plan.batch), batch)),
    )
    return (
        system,
        plan,
        bool(np.isfinite(values[best])) and bool(np.asarray(solution.result == RESULTS.successful)[best]),
    )


def _whole_counts(search: _Search, point: Float[np.ndarray, " n"]) -> list[tuple[float, float]]:
    """Chips in whole replicas and nodes, and batches of whole micro-batches, next to a point; fixed ones stay."""
    form, given = search.problem.form, search.problem.given
    layout, sequence = given.plan.layout, round(float(search.workload.sequence))

    def value(path: str) -> float:
        if path in form.paths:
            return float(np.exp(point[len(SHAPE) + form.paths.index(path)]))
        return float(np.reshape(leaf_at(given, path), ()))

    group = round(float(layout.tensor) * float(layout.pipeline) * float(layout.context))
    step = math.lcm(group, round(float(given.system.node.chips)))
    chips = around(value("plan.chips"), step) if "plan.chips" in form.paths else [value("plan.chips")]
    most = search.problem.limits["chips"]
    pairs = []
    for count in chips:
        replica = count / group * float(layout.microbatch) * sequence
        exact = value("plan.batch")
        steps = max(1.0, np.floor(exact / replica)), np.ceil(exact / replica)
        batches = [step * replica for step in dict.fromkeys(steps)] if "plan.batch" in form.paths else [exact]
        pairs += [(float(count), float(batch)) for batch in batches if count <= most]
    return pairs


class _Around(NamedTuple):
    """What lies around the best shape, and the scenario's own with its best plan."""

    flatness: dict[str, tuple[float, float]]
    curvatures: Float[np.ndarray, " names"]
    directions: Float[np.ndarray, "names names"]
    own_value: float


def _look_around(search: _Search, lanes: _Lanes) -> _Around:
    """20 % to either side of each shape variable, second differences, and the scenario's own shape: one call."""
    names, best = search.names, lanes.best
    center = lanes.points[best]
    places = [SHAPE.index(name) for name in names]
    free = np.full(len(center), np.nan)
    all_held = free.copy()
    all_held[: len(SHAPE)] = center[: len(SHAPE)]

    def moved(base: np.ndarray, *moves: tuple[int, float]) -> np.ndarray:
        held = base.copy()
        for place, by in moves:
            held[place] = center[place] + by
        return held

    ends = (math.log(1.0 - FLATNESS), math.log(1.0 + FLATNESS))
    sides = [moved(free, (place, end)) for place in places for end in ends]
    signs = [(a, b) for a in (1, -1) for b in (1, -1)]
    h = CURVATURE_STEP
    pairs = [(i, j) for i in places for j in places if i < j]
    axes = [moved(all_held, (place, sign * h)) for place in places for sign in (1, -1)]
    corners = [moved(all_held, (i, a * h), (j, b * h)) for i, j in pairs for a, b in signs]
    own = free.copy()
    own[: len(SHAPE)] = search.own
    held = np.stack([own, all_held, *sides, *axes, *corners])
    layers = np.full(len(held), lanes.layers[best])
    layers[0] = float(search.workload.layers)
    values, _ = search.solve(layers, np.tile(center, (len(held), 1)), held)
    values = np.where(np.isfinite(values), values, np.nan)
    count = len(names)
    excess = np.expm1(values[2 : 2 + 2 * count] - lanes.values[best]).reshape(count, 2)
    flatness = {name: (float(low), float(high)) for name, (low, high) in zip(names, excess, strict=True)}
    flatness["layers"] = (_at_depth(lanes, 1.0 - FLATNESS), _at_depth(lanes, 1.0 + FLATNESS))
    along = values[2 + 2 * count : 2 + 4 * count].reshape(count, 2)
    hessian = np.diag((along.sum(axis=1) - 2.0 * values[1]) / h**2)
    for (i, j), four in zip(pairs, values[2 + 4 * count :].reshape(-1, 4), strict=True):
        mixed = (four[0] - four[1] - four[2] + four[3]) / (4.0 * h**2)
        a, b = places.index(i), places.index(j)
        hessian[a, b] = hessian[b, a] = mixed
    if np.isfinite(hessian).all():
        curvatures, directions = np.linalg.eigh(hessian)
    else:
        curvatures, directions = np.full(count, np.nan), np.full((count, count), np.nan)
    return _Around(flatness, curvatures, directions, float(np.exp(values[0])))


def _at_depth(lanes: _Lanes, factor: float) -> float:
    """What a depth costs, between the nearest ones that divide."""
    wanted = lanes.layers[lanes.best] * factor
    finite = np.isfinite(lanes.values)
    layers, values = lanes.layers[finite], lanes.values[finite]
    if not layers[0] <= wanted <= layers[-1]:
        return float("nan")
    return float(np.expm1(np.interp(np.log(wanted), np.log(layers), values) - lanes.values[lanes.best]))


def _answer(search: _Search, scenario: Scenario, baseline: TrainingOutcome) -> Architecture:
    lanes = _depths(search)
    best, form = lanes.best, search.problem.form
    if not np.isfinite(lanes.values[best]):
        raise InputError(
            "optimize_architecture: no shape at any depth obeys the limits in this layout. Relax a limit (time, "
            "memory), or start from the plan that `optimize` finds."
        )
    system, plan, success = _round(search, lanes)
    near = _look_around(search, lanes)
    outcome = _numpy(evaluate_once(system, plan))
    penalty = float(search.prior.penalty(system.workload))
    shape = lanes.points[best, : len(SHAPE)]
    low, high = search.sides()
    reached = np.minimum(shape - low, high - shape) < AT_BOUND
    return Architecture(
        scenario=scenario,
        minimize=search.problem.minimize,
        names=search.names,
        system=system,
        plan=plan,
        outcome=outcome,
        value=float(objective_value(outcome, search.problem.minimize)),
        loss=float(outcome.loss) + penalty,
        penalty=penalty,
        own_value=near.own_value,
        baseline_value=float(objective_value(baseline, search.problem.minimize)),
        relaxed_value=float(np.exp(lanes.values[best])),
        relaxed={"layers": float(lanes.layers[best])}
        | {name: float(np.exp(lanes.points[best, place])) for place, name in enumerate(SHAPE)},
        at_bounds=tuple(name for place, name in enumerate(SHAPE) if name in search.names and reached[place]),
        depths=lanes.layers,
        depth_values=np.exp(lanes.values),
        flatness=near.flatness,
        curvatures=near.curvatures,
        directions=near.directions,
        prices=dict(zip(form.rows, map(float, lanes.prices[best]), strict=False)),
        success=success,
        message=FOUND if success else NOT_FOUND,
    )


def _numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)
