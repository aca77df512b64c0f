"""A run at one moment, and its forms for machines: JSON lines, and Prometheus' text."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from energymodel.monitor.findings import Finding
from energymodel.monitor.forecast import RunForecast
from energymodel.monitor.run_state import RunState
from energymodel.search.replan import Replan

UNITS = {
    "time": ("s", "seconds"),
    "energy": ("j", "joules"),
    "equipment_energy": ("j", "joules"),
    "money": ("usd", "usd"),
    "carbon": ("kg", "kilograms"),
    "loss": ("nat_per_token",) * 2,
}
"""Units of totals in JSON and in Prometheus' text."""
STATE = {
    "progress": "progress_ratio",
    "tokens": "tokens",
    "time_s": "elapsed_seconds",
    "step_time_s": "step_time_seconds",
    "planned_step_time_s": "planned_step_time_seconds",
    "loss_nat_per_token": "loss_nat_per_token",
    "chip_power_w": "chip_power_watts",
    "node_power_w": "node_power_watts",
    "failures": "failures",
}
"""Numbers of a state in JSON and in Prometheus' text."""
PREFIX = "energymodel"


@dataclass(frozen=True)
class Status:
    """A run at one moment.

    - `state`: of the run.
    - `findings`: what is wrong.
    - `forecast`: its end, by the last forecast; nothing before the first.
    - `plan`: what a new plan for the rest changes and saves, if one was searched for.
    """

    state: RunState
    findings: tuple[Finding, ...]
    forecast: RunForecast | None
    plan: Replan | None = None


def status_tree(status: Status) -> dict[str, Any]:
    """A run at one moment, in SI; `so_far` is what `energymodel replan --so-far` reads."""
    state, forecast = status.state, status.forecast
    tree: dict[str, Any] = {
        "step": None if state.last is None else state.last.step,
        "progress": state.progress,
        "tokens": state.tokens,
        "time_s": state.time,
        "step_time_s": state.step_time,
        "planned_step_time_s": state.expected.step_time,
        "loss_nat_per_token": state.loss,
        "law_loss_nat_per_token": state.expected.loss(state.tokens) if state.tokens > 0.0 else None,
        "chip_power_w": state.chip_power,
        "node_power_w": state.node_power,
        "failures": state.failures,
        "findings": [finding._asdict() for finding in status.findings],
    }
    if forecast is not None:
        tree["used"] = {f"{name}_{UNITS[name][0]}": value for name, value in forecast.used.items() if name in UNITS}
        tree["forecast"] = {f"{name}_{UNITS[name][0]}": total._asdict() for name, total in forecast.totals.items()}
        tree["so_far"] = {name: value for name, value in forecast.measured._asdict().items() if value is not None}
    if status.plan is not None:
        optimum = status.plan.optimum
        tree["replan"] = {"saving": status.plan.saving, "result": optimum.result, "minimize": optimum.minimize}
    return _finite(tree)


def status_line(status: Status) -> str:
    """The same as one line of JSON."""
    return json.dumps(status_tree(status))


def _finite(tree: Any) -> Any:
    """The tree with null for what is not finite, which JSON has no word for."""
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def prometheus_text(status: Status) -> str:
    """Gauges in Prometheus' text format, for the text-file collector of a node exporter."""
    tree = status_tree(status)
    gauges: dict[str, Mapping[str, float | None]] = {name: {"": tree[key]} for key, name in STATE.items()}
    kinds = [finding.kind for finding in status.findings]
    gauges["finding"] = {f'{{kind="{kind}"}}': kinds.count(kind) for kind in dict.fromkeys(kinds)}
    if status.forecast is not None:
        for name, value in status.forecast.used.items():
            if name in UNITS:
                gauges[f"used_{name}_{UNITS[name][1]}"] = {"": value}
        for name, total in status.forecast.totals.items():
            for key, value in zip(("", "_lower", "_upper"), total, strict=True):
                gauges[f"forecast_{name}{key}_{UNITS[name][1]}"] = {"": value}
    lines = []
    for name, values in gauges.items():
        finite = {labels: value for labels, value in values.items() if value is not None and math.isfinite(value)}
        lines += [f"# TYPE {PREFIX}_{name} gauge"] if finite else []
        lines += [f"{PREFIX}_{name}{labels} {float(value)!r}" for labels, value in finite.items()]
    return "\n".join(lines) + "\n"
