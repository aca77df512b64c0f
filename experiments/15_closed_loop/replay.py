"""Replay runs through `energymodel.monitor`: its forecasts beside what came, and what a new plan would save."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from megatron_runs import MeteredRun

from energymodel.errors import InputError
from energymodel.monitor.expectation import CoursePrior
from energymodel.monitor.monitor import Monitor
from energymodel.search.replan import Forecast
from energymodel.sweeps.first_order import saving_at_risk

SHARES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Of a run, after which it is forecast."""
REPLANNED = 0.25
"""Share of a run after which the rest is planned anew."""
NAMES = {"time": "time", "energy": "equipment_energy", "loss": "loss"}
"""What is measured, and the total that forecasts it: meters are at the nodes."""


def watch(run: MeteredRun, prior: CoursePrior, *, replan: bool) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Forecasts of a run after each share of it, and the new plan for its rest.

    **Arguments:**

    - `prior`: of the course of the loss, from other models.
    """
    monitor = Monitor(run.scenario, every=1.0)
    monitor.state.expected = dataclasses.replace(monitor.state.expected, course_prior=prior)
    rows = [_planned(run, monitor)]
    replanned, shares = None, list(SHARES)
    for record in run.records:
        monitor.add(record)
        if not shares or monitor.state.progress < shares[0]:
            continue
        share = shares.pop(0)
        result = monitor.update().forecast
        if result is None:
            continue
        rows.append(_row(run, share, {what: result.totals[name] for what, name in NAMES.items()}))
        if replan and share == REPLANNED:
            replanned = _replanned(run, monitor)
    return rows, replanned


def _planned(run: MeteredRun, monitor: Monitor) -> dict[str, Any]:
    """What the plan says before the run begins."""
    outcome = monitor.state.expected.outcome
    numbers = {"time": outcome.time, "energy": outcome.energy.total / outcome.pue, "loss": outcome.loss}
    result = {name: np.asarray(value, np.float64).item() for name, value in numbers.items()}
    return _row(run, 0.0, {name: Forecast(value, np.nan, np.nan) for name, value in result.items()})


def _row(run: MeteredRun, share: float, forecasts: dict[str, Forecast]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.group, "system": run.name, "share_of_run": share}
    for name, truth in run.truth.items():
        value, lower, upper = forecasts[name]
        row[f"{name}_error"] = value / truth - 1.0
        row[f"{name}_low"], row[f"{name}_high"] = (end / truth - 1.0 for end in (lower, upper))
    return row


def _replanned(run: MeteredRun, monitor: Monitor) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.group, "system": run.name}
    try:
        result = monitor.replan()
    except InputError as error:
        return row | {"says": str(error).split(".")[0]}
    assert result is not None
    optimum = result.optimum
    if not optimum.success:
        return row | {"says": optimum.message}
    risk = saving_at_risk(optimum)
    return row | {
        "minimized": optimum.minimize,
        "saving": result.saving,
        "spread": risk.saving_deviation / optimum.baseline_value,
        "rests_on_priors": risk.resting_on_priors,
        "time_over_model": result.rest.unexplained["time"],
        "says": "; ".join(f"{name} {before} to {after}" for name, before, after in _changes(optimum)),
    }


def _changes(optimum: Any) -> Iterable[tuple[str, str, str]]:
    own, new = optimum.scenario.plan, optimum.plan
    for name in ("clock", "batch", "chips"):
        before, after = (float(np.ravel(getattr(plan, name))[0]) for plan in (own, new))
        if abs(after / before - 1.0) > 1e-3:
            yield name, f"{before:.3g}", f"{after:.3g}"
    for name in ("tensor", "pipeline", "microbatch"):
        before, after = (round(float(getattr(plan.layout, name))) for plan in (own, new))
        if before != after:
            yield name, str(before), str(after)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and largest errors after each share of the runs, and how often the interval holds what came."""
    result = []
    for share in dict.fromkeys(row["share_of_run"] for row in rows):
        line: dict[str, Any] = {"share_of_run": share}
        for name in NAMES:
            some = [row for row in rows if row["share_of_run"] == share and f"{name}_error" in row]
            if not some:
                continue
            errors = np.abs([row[f"{name}_error"] for row in some])
            line |= {f"{name}_mean": float(np.mean(errors)), f"{name}_largest": float(np.max(errors))}
            if share > 0.0:
                inside = [row[f"{name}_low"] <= 0.0 <= row[f"{name}_high"] for row in some]
                line |= {f"{name}_inside": float(np.mean(inside)), f"{name}_runs": len(some)}
        result.append(line)
    return result
