"""How is the best shape of a model shown: beside the scenario's own, with what other shapes cost?"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.performance.workload import Transformer
from energymodel.report.command_text import command_of
from energymodel.report.json_tree import outcome_json, plan_json
from energymodel.search.architecture import FLATNESS, Architecture
from energymodel.system.outputs import parse_objective
from energymodel.system.plan import TokenBudget, TrainingPlan
from energymodel.units import format_quantity

COUNTS = (
    *("layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward", "dense_feed_forward"),
    *("experts", "active_experts"),
)
TOTALS = {"parameters": "1", "active_parameters": "1"}


def architecture_report(found: Architecture) -> RenderableType:
    """Both shapes, what the best saves, and how flat the optimum is."""
    lines, command = Text("\n".join(shape_lines(found))), Text(f"To evaluate this shape: {evaluate_shape(found)}")
    return Group(shape_table(found), "", lines, "", flatness_table(found), "", command)


def shape_table(found: Architecture) -> Table:
    """Both shapes, as far as they differ, and their sizes."""
    own, best = found.scenario.system.workload, found.system.workload
    table = Table(title="Shape", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("", "own", "found"):
        table.add_column(name, justify="right" if name else "left")
    for name in _changed(own, best):
        table.add_row(name.replace("_", " "), f"{_number(own, name):,.6g}", f"{_number(best, name):,.6g}")
    for name in TOTALS:
        shown = (f"{_number(one, name) / 1e9:.4g} G" for one in (own, best))
        table.add_row(name.replace("_", " "), *shown)
    table.add_row("tokens", "", format_quantity(float(found.outcome.tokens), "token"))
    return table


def _number(workload: Transformer, name: str) -> float:
    return float(np.asarray(getattr(workload, name)))


def _changed(own: Transformer, best: Transformer) -> list[str]:
    return [name for name in COUNTS if not math.isclose(_number(own, name), _number(best, name), rel_tol=1e-9)]


def shape_lines(found: Architecture) -> list[str]:
    """What the shape saves, what its loss rests on, and why it may not be trusted."""
    unit = parse_objective(found.minimize).unit
    values = [format_quantity(one, unit) for one in (found.value, found.own_value, found.baseline_value)]
    lines = [
        f"{found.minimize.capitalize()}: {values[0]}, {100.0 * found.saving:.2g} % less than the own shape with its "
        f"best plan ({values[1]}); the own plan takes {values[2]}. All reach a loss of {found.loss:.4f} nat/token.",
        f"Of the loss, {found.penalty:.2g} nat/token is what the shape adds, by a prior: how much depends on the shape "
        "is not measured for models of this size, so that a small saving is none.",
    ]
    if found.at_bounds:
        lines.append(f"{', '.join(found.at_bounds)} would go further than a factor of 4 from the own shape.")
    if not found.success:
        lines.append(found.message)
    return lines


def flatness_table(found: Architecture) -> Table:
    """What other shapes cost."""
    title = f"What {100.0 * FLATNESS:g} % less and more of each costs, all else decided anew"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("", "less", "more"):
        table.add_column(name, justify="right" if name else "left")
    for name, ends in found.flatness.items():
        shown = ("no plan" if math.isnan(one) else f"{100.0 * one:+.2f} %" for one in ends)
        table.add_row(name.replace("_", " "), *shown)
    return table


def realizable_plan(found: Architecture) -> TrainingPlan:
    """The plan with the kind of goal that the scenario has."""
    if not isinstance(found.scenario.plan.goal, TokenBudget):
        return found.plan
    return eqx.tree_at(lambda one: one.goal, found.plan, TokenBudget(np.asarray(found.outcome.tokens)))


def evaluate_shape(found: Architecture) -> str:
    """The command that evaluates the shape with its plan."""
    own, best = found.scenario.system.workload, found.system.workload
    chosen = {f"system.workload.{name}": f"{_number(best, name):.17g}" for name in _changed(own, best)}
    return command_of(found.scenario, realizable_plan(found), chosen)


def architecture_json(found: Architecture) -> dict[str, Any]:
    """The shape, its plan and outcome, and what other shapes cost."""
    own, best = found.scenario.system.workload, found.system.workload
    return {
        "scenario": found.scenario.named_tables,
        "minimize": found.minimize,
        "value": found.value,
        "own_value": found.own_value,
        "baseline_value": found.baseline_value,
        "saving": found.saving,
        "loss_nat_per_token": found.loss,
        "penalty_nat_per_token": found.penalty,
        "shape": {name: {"own": _number(own, name), "found": _number(best, name)} for name in (*COUNTS, *TOTALS)},
        "flatness": {name: list(ends) for name, ends in found.flatness.items()},
        "at_bounds": list(found.at_bounds),
        "plan": plan_json(realizable_plan(found), dataclasses.replace(found.scenario, system=found.system)),
        "outcome": outcome_json(found.outcome),
        "success": found.success,
        "message": found.message,
    }
