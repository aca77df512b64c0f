"""Changes of a plan that save more than one percent, and those that rest on unmeasured numbers.

Prints three tables and writes `result.json` beside this file.
"""

import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import energymodel as em
from energymodel.scenarios.files import names
from energymodel.search.causes import CAUSES, LAYOUT
from energymodel.search.result import Optimum
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk, saving_at_risk
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import objective_value
from energymodel.system.plan import TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.plan_rules import formats_of

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
OBJECTIVES = ("energy", "time", "money", "carbon")
NARROW = ("fp8", "fp4")
MOST_NARROW = 0.9  # of the products: attention and output head stay in 16 bits
FORMATS = "formats"
WORTH = 0.01  # of the own plan's objective: what a change must save to be listed
TESTED_BATCH = "system.learning.critical_batch.tested_batch"  # the largest behind the law
NAMED = 3  # priors that are named in a line


class Change(NamedTuple):
    """A cause of a saving: its share by the project's split, and the uncertainty of what it saves when made last."""

    cause: str
    saving: float
    risk: SavingAtRisk


def compute() -> outputs.Tables:
    """All tables."""
    plans, lines = [], []
    for name in names("scenarios"):
        for optimum, earlier in searches(name):
            begun = time.monotonic()
            plans.append(plan_row(name, optimum, earlier))
            lines += [_line(name, optimum, change) for change in changes(optimum, earlier)]
            print(f"{name} {plans[-1]['minimized']}: {time.monotonic() - begun:.0f} s after the search", flush=True)
    return {"plans": plans, "changes": lines, "summary": [_summary(plans, lines)]}


def searches(name: str) -> Iterator[tuple[Optimum, Optimum | None]]:
    """Best plans of a scenario for each objective, and for energy with every format of the chip beside them."""
    scenario = em.load_scenario(name)
    result = {}
    for objective in OBJECTIVES:
        result[objective] = em.optimize(scenario, minimize=objective)
        yield result[objective], None
    own = scenario.plan.layout
    free = [
        format_name
        for format_name in NARROW
        if format_name in formats_of(scenario.system.accelerator) and float(getattr(own, format_name)) == 0.0
    ]
    if free:
        vary = {f"plan.layout.{format_name}": (0.0, MOST_NARROW) for format_name in free}
        yield em.optimize(scenario, minimize="energy", vary=vary), result["energy"]


def plan_row(name: str, optimum: Optimum, earlier: Optimum | None) -> dict[str, Any]:
    """A plan as somebody sees it who has to run it."""
    plan, outcome, system = optimum.plan, optimum.outcome, optimum.scenario.system
    risk = saving_at_risk(optimum)
    low, high = risk.saving_interval
    layout = {
        field: float(getattr(plan.layout, field))
        for field in ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")
    }
    batch, chips, restarts = float(np.reshape(plan.batch, ())), float(plan.chips), optimum.statistics["restarts"]
    return {
        "scenario": name,
        "minimized": optimum.minimize + (f", any of {', '.join(NARROW)}" if earlier else ""),
        "saving": risk.saving / optimum.baseline_value,
        "low": low / optimum.baseline_value,
        "high": high / optimum.baseline_value,
        "rests_on_priors": risk.resting_on_priors if abs(risk.saving) > WORTH * optimum.baseline_value else None,
        "runs": _fault(optimum) or "yes",
        "converged": optimum.success,
        "chips": chips,
        "parked": 1.0 - chips / float(optimum.scenario.plan.chips),
        "nodes": chips / float(system.node.chips),
        "batch": batch,
        "beyond_tested_batch": batch / TrainingRun(system, plan).number(TESTED_BATCH),
        "clock": float(plan.clock),
        "coolant": float(plan.coolant_temperature) - 273.15,
        **layout,
        "fp8": float(plan.layout.fp8),
        "fp4": float(plan.layout.fp4),
        "memory_room": float(np.expm1(outcome.slack.memory)),
        "restarts_agreeing": optimum.statistics["restarts_agreeing"] / restarts if restarts else None,
    }


def _fault(optimum: Optimum) -> str:
    """What a file with this plan would be refused for; empty if nothing."""
    try:
        dataclasses.replace(optimum.scenario, plan=optimum.plan).check()
    except em.InputError as error:
        return str(error)
    return ""


def changes(optimum: Optimum, earlier: Optimum | None) -> Iterator[Change]:
    """Changes that save more than one percent of the own plan's objective."""
    worth = WORTH * optimum.baseline_value
    if earlier is not None:  # formats are a cause of their own: against the best plan without them
        saving = earlier.value - optimum.value
        if saving > worth:
            yield Change(FORMATS, saving, _risk_against(optimum, earlier.plan))
        return
    for cause, saving in optimum.saving.items():
        if saving > worth and (cause == LAYOUT or cause in CAUSES.values()):
            yield Change(cause, saving, _risk_against(optimum, _without(optimum, cause)))


def _without(optimum: Optimum, cause: str) -> TrainingPlan:
    """The plan that was found, but for one cause; it trains to the same loss."""
    own, plan = optimum.scenario.plan, optimum.plan
    if cause == LAYOUT:
        return eqx.tree_at(lambda plan: plan.layout, plan, own.layout)
    fields = [path.removeprefix("plan.") for path, name in CAUSES.items() if name == cause and "goal" not in path]
    for field in fields:
        plan = eqx.tree_at(lambda plan, field=field: getattr(plan, field), plan, getattr(own, field))
    return plan


def _risk_against(optimum: Optimum, plan: TrainingPlan) -> SavingAtRisk:
    """Uncertainty of what the found plan saves against another one that trains to the same loss."""
    scenario = optimum.scenario
    with jax.enable_x64(True):
        goal = TargetLoss(np.asarray(float(optimum.outcome.loss)))
        plan = eqx.tree_at(lambda plan: plan.goal, plan, goal)
        outcome = jax.tree.map(np.asarray, evaluate_once(scenario.system, plan))
        if isinstance(scenario.plan.goal, TokenBudget):
            plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(outcome.tokens))
    value = float(objective_value(outcome, optimum.minimize))
    other = dataclasses.replace(scenario, plan=plan)
    return saving_at_risk(dataclasses.replace(optimum, scenario=other, baseline=outcome, baseline_value=value))


def _line(name: str, optimum: Optimum, change: Change) -> dict[str, Any]:
    """One change, what it saves, and on which priors that rests."""
    largest = ", ".join(f"{path} {100.0 * share:.0f} %" for path, share in list(change.risk.shares.items())[:NAMED])
    return {
        "scenario": name,
        "minimized": optimum.minimize,
        "cause": change.cause,
        "saving": change.saving / optimum.baseline_value,
        "rests_on_priors": change.risk.resting_on_priors,
        "priors_share_of_variance": change.risk.prior_variance,
        "most_of_it": largest,
    }


def _summary(plans: list[dict[str, Any]], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """How many plans run, and how many changes rest on priors for more than half of what they save."""
    return {
        "plans": len(plans),
        "that_run": sum(row["runs"] == "yes" for row in plans),
        "converged": sum(row["converged"] for row in plans),
        "changes_above_one_percent": len(lines),
        "of_which_half_rests_on_priors": sum(row["rests_on_priors"] > 0.5 for row in lines),
    }


if __name__ == "__main__":
    outputs.keep(compute(), FOLDER)
