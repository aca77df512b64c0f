"""Which plans and outcomes do points of a search stand for, in the words of the scenario?"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.compilation import Compiled
from energymodel.design.layouts import Lattice, take
from energymodel.design.problem import Form, Given, Problem, Target
from energymodel.design.realize import Counts
from energymodel.presets.scenario import Scenario
from energymodel.system.evaluate import evaluate, parameters_in_loss
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import ParallelLayout, TargetLoss, TokenBudget, TrainingPlan

TOGETHER = 8  # plans that one program finishes: a search needs one of them, or dozens


def finished_plans(
    scenario: Scenario, problem: Problem, points: Float[np.ndarray, "plans n"], counts: Sequence[Counts | None],
    layouts: Lattice, targets: Target,
) -> list[tuple[TrainingPlan, TrainingOutcome]]:  # fmt: skip
    """Plan and outcome of each point, in its layout and for its target.

    Where counts are given, chips and batch are exactly theirs, not exponentials of logarithms. The goal is in tokens
    if the scenario's is: the same numbers, said as the scenario says them.
    """
    group = np.round(np.asarray(layouts.tensor * layouts.pipeline * layouts.context))
    replica = np.round(np.asarray(layouts.microbatch) * np.asarray(problem.given.system.workload.sequence))
    whole = np.array([(one.data, one.data * one.microbatches) if one else (np.nan, np.nan) for one in counts])
    exact = np.stack([group * whole[:, 0], replica * whole[:, 1]], axis=1)
    goal = "tokens" if isinstance(scenario.plan.goal, TokenBudget) else "loss"
    finished = []
    for first in range(0, len(points), TOGETHER):
        part = np.arange(first, min(first + TOGETHER, len(points)))
        index = np.resize(part, TOGETHER)
        lanes = (points[index], exact[index], take(layouts, index), take(targets, index))
        both = jax.tree.map(np.asarray, finish(problem.form, goal, *lanes, problem.given))
        finished += [
            jax.tree.map(lambda leaf, place=place: np.asarray(leaf[place]), both) for place in range(len(part))
        ]
    return finished


def finished_plan(
    scenario: Scenario, problem: Problem, point: np.ndarray, counts: Counts | None, layout: ParallelLayout,
    target: Target,
) -> tuple[TrainingPlan, TrainingOutcome]:  # fmt: skip
    """The same for one point."""
    layouts, targets = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (layout, target))
    return finished_plans(scenario, problem, point[None], [counts], layouts, targets)[0]


@partial(Compiled, once=True)
def finish(
    form: Form, goal: str, points: Array, exact: Array, layouts: Lattice, targets: Target, given: Given
) -> tuple[TrainingPlan, TrainingOutcome]:
    """Plans and outcomes of points; chips and batch are exactly those given, where they are."""

    def one(point: Array, exact: Array, layout: ParallelLayout, target: Target) -> Any:
        system, plan = form.at(point, layout, target, given)
        found = jnp.stack([jnp.asarray(plan.chips, exact.dtype), jnp.reshape(plan.batch, ())])
        chips, batch = jnp.where(jnp.isnan(exact), found, exact)
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.batch), plan, (chips, jnp.full(jnp.shape(plan.batch), batch)))
        if goal == "tokens" and isinstance(plan.goal, TargetLoss):
            tokens = system.learning.tokens(parameters_in_loss(system), plan.goal.loss, batch)
            plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(tokens))
        return plan, evaluate(system, plan)

    return jax.vmap(one)(points, exact, layouts, targets)
