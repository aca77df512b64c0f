"""Which shape of transformer reaches a loss at the lowest cost, and how much does it matter?

Depth, width, feed-forward width, attention width and experts are chosen together with the plan: parameters follow from
the shape, tokens from the loss that is left after the penalty of the shape (docs/physics.md A0.13), time and energy
from the whole model of a step. Depths are enumerated, because a pipeline holds whole layers; the rest is continuous,
and rounded to realizable shapes at the end.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.errors import InputError
from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.model_shape import SHAPE, ShapePrior
from energymodel.search.problem import formulate
from energymodel.search.shape_rounding import round_shape
from energymodel.search.shape_search import DepthSearch, ShapeSearch, search_depths
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

HELD = ("plan.chips", "plan.coolant_temperature")
FLATNESS = 0.2
CURVATURE_STEP = 0.05  # in the logarithm: second differences of values that are exact to 1e-8
AT_BOUND = 1e-4  # distance from a bound, in the logarithm
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
    - `curvatures`, `directions`: eigenvalues, lowest first, and eigenvectors (columns, in the order of `names`) of the
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
    """Find the shape of transformer that minimizes the objective at a loss.

    The parallel layout stays, but for the virtual pipeline stages that a depth needs. All depths that divide well over
    the pipeline are searched at once; at each, shape and plan vary together.

    **Arguments:**

    - `scenario`: its own shape and loss are the reference.
    - `minimize`, `limits`: as in `optimize`; the loss includes the penalty of the shape.
    - `vary`: bounds of further variables of system and plan by dotted path.
    - `fix`: paths that keep the scenario's value; chips and coolant unless given, so that batch and clock vary.
    - `names`: shape variables that vary besides depth, see `SHAPE`; unless given `hidden`, `feed_forward_ratio` and
      `attention_ratio`, and for mixtures of experts `experts` and `active_experts`. Nothing in the laws of loss pays
      for `kv_share`: where it varies, its best value is the cheapest.
    - `prior`: what unusual shapes cost in loss.

    **Raises:** `InputError` for a name, limit, path or objective that does not exist.
    """
    names = _shape_variables(scenario, names)
    for path in vary or {}:
        if path.startswith("system.workload."):
            raise InputError(f"{path}: the shape varies by `names`, and the rest of the workload stays.")
    prior = ShapePrior() if prior is None else prior
    with jax.enable_x64(True):
        baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
        limits = {"loss": float(baseline.loss + prior.penalty(scenario.system.workload)), **(limits or {})}
        fix = [path for path in fix if path not in (vary or {})]
        problem = formulate(scenario.with_question(minimize, limits, vary, fix), baseline)
        if TOKENS in problem.formulation.paths:
            raise InputError("optimize_architecture: the loss is held; minimize energy, time, money or carbon.")
        search = ShapeSearch(problem, prior, names)
        depths = search_depths(search)
        best = depths.best
        if not np.isfinite(depths.values[best]):
            raise InputError(
                "optimize_architecture: no shape at any depth obeys the limits in this layout. Relax a limit (time, "
                "memory), or start from the plan that `optimize` finds."
            )
        system, plan, success = round_shape(search, depths)
        near = _look_around(search, depths)
        outcome = jax.tree.map(np.asarray, evaluate_once(system, plan))
        penalty = float(prior.penalty(system.workload))
        shape = depths.points[best, : len(SHAPE)]
        low, high = search.sides()
        reached = np.minimum(shape - low, high - shape) < AT_BOUND
        return Architecture(
            scenario=scenario,
            minimize=minimize,
            names=names,
            system=system,
            plan=plan,
            outcome=outcome,
            value=float(objective_value(outcome, minimize)),
            loss=float(outcome.loss) + penalty,
            penalty=penalty,
            baseline_value=float(objective_value(baseline, minimize)),
            relaxed_value=float(np.exp(depths.values[best])),
            relaxed={"layers": float(depths.layers[best]), **dict(zip(SHAPE, map(float, np.exp(shape)), strict=True))},
            at_bounds=tuple(name for name, at in zip(SHAPE, reached, strict=True) if at and name in names),
            depths=depths.layers,
            depth_values=np.exp(depths.values),
            **near._asdict(),
            prices=dict(zip(problem.formulation.rows, map(float, depths.prices[best]), strict=False)),
            success=success,
            message=FOUND if success else NOT_FOUND,
        )


def _shape_variables(scenario: Scenario, names: Sequence[str] | None) -> tuple[str, ...]:
    """Those that vary besides depth: the names given, or the usual ones of a dense model or a mixture of experts."""
    mixture = float(scenario.system.workload.experts) > 1.0
    if names is None:
        return SHAPE[:3] + (SHAPE[4:] if mixture else ())
    for name in names:
        if name not in SHAPE or (name in SHAPE[4:] and not mixture):
            raise InputError(f'Shape variable "{name}" is none of {", ".join(SHAPE if mixture else SHAPE[:4])}.')
    return tuple(names)


class _Neighborhood(NamedTuple):
    """What lies around the best shape, and the scenario's own with its best plan."""

    flatness: dict[str, tuple[float, float]]
    curvatures: Float[np.ndarray, " names"]
    directions: Float[np.ndarray, "names names"]
    own_value: float


def _look_around(search: ShapeSearch, depths: DepthSearch) -> _Neighborhood:
    """20 % to either side of each shape variable, second differences, and the scenario's own shape: one call."""
    names, best = search.names, depths.best
    center = depths.points[best]
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
    layers = np.full(len(held), depths.layers[best])
    layers[0] = float(search.workload.layers)
    values, _ = search.solve(layers, np.tile(center, (len(held), 1)), held)
    values = np.where(np.isfinite(values), values, np.nan)
    count = len(names)
    excess = np.expm1(values[2 : 2 + 2 * count] - depths.values[best]).reshape(count, 2)
    flatness = {name: (float(low), float(high)) for name, (low, high) in zip(names, excess, strict=True)}
    flatness["layers"] = (_at_depth(depths, 1.0 - FLATNESS), _at_depth(depths, 1.0 + FLATNESS))
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
    return _Neighborhood(flatness, curvatures, directions, float(np.exp(values[0])))


def _at_depth(depths: DepthSearch, factor: float) -> float:
    """What a depth costs, between the nearest ones that divide."""
    wanted = depths.layers[depths.best] * factor
    finite = np.isfinite(depths.values)
    layers, values = depths.layers[finite], depths.values[finite]
    if not layers[0] <= wanted <= layers[-1]:
        return float("nan")
    return float(np.expm1(np.interp(np.log(wanted), np.log(layers), values) - depths.values[depths.best]))
