"""How is a run written for another program: strict JSON in SI, one CSV row?"""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from energymodel.report.fields import outcome_fields, plan_key, total
from energymodel.report.intervals import interval_of
from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import Optimum
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import LEVEL, OutcomeSpread
from energymodel.system.outcome import DERIVED, TrainingOutcome
from energymodel.system.plan import ParallelLayout, TrainingPlan

Tree = dict[str, Any]


def run_json(
    scenario: Scenario, plan: TrainingPlan, outcome: TrainingOutcome, spread: OutcomeSpread | None = None
) -> Tree:
    """`{"scenario", "plan", "outcome", "intervals"}`; the scenario gives the same run when read back."""
    return {
        "scenario": scenario.named_tables,
        "plan": plan_json(plan, scenario),
        "outcome": outcome_json(outcome),
        **({"intervals": intervals_json(spread)} if spread else {}),
    }


def intervals_json(spread: OutcomeSpread) -> Tree:
    """Low and high end of the interval of each output, by the keys of `outcome_json`; slack is left out."""

    def ends(component: eqx.Module, group: str = "") -> Tree:
        found = {field.key: interval_of(field, spread, group) for field in outcome_fields(component)}
        return {key: {"low": low, "high": high} for key, (low, high) in found.items()}

    outcome, totals = spread.outcome, {name: spread.interval(name) for name in ("energy", "step_time")}
    whole = {name: {"low": low, "high": high} for name, (low, high) in totals.items()}
    return {
        "probability": LEVEL,
        **ends(outcome),
        "step_time_s": whole["step_time"],
        "step_time_terms_s": ends(outcome.step_time, "step_time"),
        "energy_j": {"total": whole["energy"], **ends(outcome.energy, "energy")},
    }


def outcome_json(outcome: TrainingOutcome) -> Tree:
    """Outputs by the keys of their metadata; energy and slack are flat tables, the total of energy first."""
    nested: dict[str, Any] = {
        "step_time": total(outcome.step_time),
        "energy": {"total": total(outcome.energy), **_flat(outcome.energy)},
        "slack": _flat(outcome.slack),
    }
    scalars = {field.name: field for field in outcome_fields(outcome)}
    tree: Tree = {}
    for name, declared in type(outcome).__dataclass_fields__.items():
        tree[declared.metadata["key"]] = scalars[name].value if name in scalars else nested[name]
        if name == "step_time":
            tree["step_time_terms_s"] = _flat(outcome.step_time)
    return tree | {scalars[name].key: scalars[name].value for name in DERIVED}


def plan_json(plan: TrainingPlan, scenario: Scenario) -> Tree:
    """Plan in SI with the unit in each key, its clock also as a frequency; what follows progress is a list."""
    return {
        "chips": float(plan.chips),
        "batch_tokens": _one_or_list(plan.batch),
        "goal": _numbers(plan.goal),
        "clock": float(plan.clock),
        "clock_hz": float(plan.clock) * float(scenario.system.accelerator.reference_clock),
        "waiting_clock": float(plan.waiting_clock),
        "power_cap_w": float(plan.power_cap),
        "stage_power_caps_w": _numbers(plan.power),
        "coolant_temperature_k": float(plan.coolant_temperature),
        "power_floor": float(plan.power_floor),
        "trained_share": float(plan.trained_share),
        "spares": float(plan.spares),
        "layout": layout_json(plan.layout),
    }


def _one_or_list(given: ArrayLike) -> float | list[float]:
    values = np.ravel(np.asarray(given, np.float64)).tolist()
    return values[0] if len(values) == 1 else values


def layout_json(layout: ParallelLayout) -> Tree:
    """Degrees and switches of a layout."""
    return _numbers(layout)


def optimum_json(optimum: Optimum, risk: SavingAtRisk | None = None) -> Tree:
    """A run with what the search adds; the [optimize] section of its scenario repeats it."""
    runner_up, tie = optimum.runner_up, optimum.near_tie
    return {
        **run_json(optimum.scenario, optimum.plan, optimum.outcome, risk.found if risk else None),
        "minimize": optimum.minimize,
        "result": optimum.result,
        "message": optimum.message,
        "value": optimum.value,
        "baseline_value": optimum.baseline_value,
        "value_unit": optimum.value_unit,
        "relaxed_value": optimum.relaxed_value,
        "gap": optimum.gap,
        "baseline": outcome_json(optimum.baseline),
        **({"baseline_intervals": intervals_json(risk.own)} if risk and risk.own else {}),
        "limits": {
            name: {"value": float(value), "unit": optimum.limit_units[name]} for name, value in optimum.limits.items()
        },
        "multipliers": {
            name: {"elasticity": float(price.elasticity), "price": float(price.price), "price_unit": price.price_unit}
            for name, price in optimum.prices.items()
        },
        "active": list(optimum.active),
        "varied": list(optimum.varied),
        "found": dict(optimum.found),
        "saving": {"unit": optimum.value_unit, "parts": dict(optimum.saving), "total": sum(optimum.saving.values())},
        "layouts_considered": int(optimum.layouts_considered),
        "layouts_feasible": int(optimum.layouts_feasible),
        "runner_up": runner_up and {"layout": layout_json(runner_up.layout), "excess": float(runner_up.excess)},
        "saving_at_risk": risk
        and {
            "interval": list(risk.saving_interval),
            "deviation": risk.deviation,
            "own_deviation": risk.own_deviation,
            "saving_deviation": risk.saving_deviation,
            "prior_deviation": risk.prior_deviation,
            "resting_on_priors": risk.resting_on_priors,
            "prior_variance": risk.prior_variance,
            "shares": dict(risk.shares),
            "priors_without_spread": risk.without,
        },
        "tolerance": optimum.scenario.optimize.tolerance,
        "refinements": [
            {
                "knots": one.added.knots,
                "stages": list(one.added.stages),
                "saving": {"value": one.saving, "unit": optimum.value_unit},
                "converged": one.converged,
                "beside": plan_json(one.plan, optimum.scenario),
            }
            for one in optimum.refinements
        ],
        "near_tie": tie
        and {
            "saved": tie.saved,
            "cost": tie.cost,
            "saving": tie.saving,
            "taken": tie.taken,
            "exact": {"plan": plan_json(tie.plan, optimum.scenario), "outcome": outcome_json(tie.outcome)},
        },
        "conflicts": [
            {"limit": one.limit, "asked": float(one.asked), "nearest": float(one.nearest), "unit": one.unit}
            for one in optimum.conflicts
        ],
    }


def dumps(tree: Mapping[str, Any]) -> str:
    """Strict JSON: what is not finite is null, and `warnings` says where and why."""
    clean, dropped = strict(tree)
    warnings = list(clean.get("warnings", []))
    warnings += [f"{path} is {value} and stands as null" for path, value in dropped]
    return json.dumps({**clean, "warnings": warnings}, indent=2, ensure_ascii=False, allow_nan=False)


def strict(tree: Any, path: str = "") -> tuple[Any, list[tuple[str, float]]]:
    """A tree without NaN and infinity, and where they were."""
    if isinstance(tree, Mapping):
        parts = {key: strict(value, f"{path}.{key}" if path else str(key)) for key, value in tree.items()}
        return {key: part[0] for key, part in parts.items()}, [one for part in parts.values() for one in part[1]]
    if isinstance(tree, list | tuple):
        items = [strict(value, f"{path}[{index}]") for index, value in enumerate(tree)]
        return [item[0] for item in items], [one for item in items for one in item[1]]
    if isinstance(tree, float) and not math.isfinite(tree):
        return None, [(path, tree)]
    return tree, []


def csv_row(tree: Mapping[str, Any]) -> str:
    """One header and one row: columns are the dotted keys of the JSON, the scenario only by its name."""
    scenario = tree.get("scenario", {})
    rest = {key: value for key, value in tree.items() if key != "scenario"}
    columns = {"scenario": scenario.get("name", ""), **_columns(strict(rest)[0])}
    return csv_text([columns, columns.values()])


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Lines of CSV; what is missing stays empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(["" if cell is None else cell for cell in row] for row in rows)
    return text.getvalue()


def _columns(tree: Any, path: str = "") -> Tree:
    if isinstance(tree, Mapping):
        pairs = [(f"{path}.{key}" if path else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list):
        pairs = [(f"{path}[{index}]", value) for index, value in enumerate(tree)]
    else:
        return {path: tree}
    return {key: value for where, part in pairs for key, value in _columns(part, where).items()}


def _flat(component: eqx.Module) -> Tree:
    return {field.key: field.value for field in outcome_fields(component)}


def _numbers(component: eqx.Module) -> Tree:
    return {
        plan_key(name, declared.metadata["unit"]): float(getattr(component, name))
        for name, declared in type(component).__dataclass_fields__.items()
    }
