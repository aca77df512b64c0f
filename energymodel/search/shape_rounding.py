"""Which whole shape, and which whole plan for it, lie nearest to the best fractional one?"""

import math

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from energymodel.search.model_shape import SHAPE, around, realizable_shapes
from energymodel.search.shape_search import DepthSearch, ShapeSearch
from energymodel.solver import RESULTS, result_is
from energymodel.system.plan import TargetLoss, TrainingPlan
from energymodel.system.training_system import TrainingSystem

ROUNDED = 3  # depths whose neighbors are rounded


def round_shape(search: ShapeSearch, depths: DepthSearch) -> tuple[TrainingSystem, TrainingPlan, bool]:
    """The best realizable shape at the best depths, then whole replicas and micro-batches for it."""
    given, target, form = search.problem.run, search.problem.criteria, search.problem.formulation
    order = np.argsort(depths.values)[:ROUNDED]
    trials = [
        (int(place), counts)
        for place in order
        if np.isfinite(depths.values[place])
        for counts in realizable_shapes(
            search.workload, given.plan.layout, float(depths.layers[place]), depths.points[place]
        )
    ]
    places = np.array([place for place, _ in trials])
    held = np.full((len(trials), depths.points.shape[1]), np.nan)
    held[:, : len(SHAPE)] = [counts.logarithms(search.workload) for _, counts in trials]
    values, solution = search.solve(depths.layers[places], depths.points[places], held)
    best = int(np.argmin(values))
    if not np.isfinite(values[best]):
        best = int(np.argmax(np.min(solution.slacks.inequalities, axis=1)))
    counts, point = trials[best][1], np.asarray(solution.x[best])
    wholes = _whole_counts(search, point)
    held = np.tile(held[best], (len(wholes), 1))
    for path, column in (("plan.chips", 0), ("plan.batch", 1)):
        if path in form.paths:
            held[:, len(SHAPE) + form.paths.index(path)] = np.log([whole[column] for whole in wholes])
    layers = np.full(len(wholes), counts.layers)
    values, solution = search.solve(layers, np.tile(point, (len(wholes), 1)), held)
    best = int(np.argmin(values))
    depth = jax.tree.map(lambda leaf: leaf[best], search.depth(layers))
    system, plan = jax.tree.map(np.asarray, search.form.at(solution.x[best], depth, target, given, search.prior))
    workload = counts.workload(search.workload)
    goal = TargetLoss(np.asarray(target.limits["loss"] - search.prior.penalty(workload)))
    chips, batch = wholes[best]
    system = eqx.tree_at(lambda system: system.workload, system, workload)
    plan = eqx.tree_at(
        lambda plan: (plan.goal, plan.chips, plan.batch),
        plan,
        (goal, np.asarray(chips), np.full(np.shape(plan.batch), batch)),
    )
    converged = result_is(solution.result, RESULTS.successful)[best]
    return system, plan, bool(np.isfinite(values[best]) and converged)


def _whole_counts(search: ShapeSearch, point: Float[np.ndarray, " n"]) -> list[tuple[float, float]]:
    """Chips in whole replicas and nodes, and batches of whole micro-batches, next to a point; fixed ones stay."""
    form, given = search.problem.formulation, search.problem.run
    layout, sequence = given.plan.layout, round(float(search.workload.sequence))

    def value(path: str) -> float:
        if path in form.paths:
            return float(np.exp(point[len(SHAPE) + form.paths.index(path)]))
        return given.number(path)

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
