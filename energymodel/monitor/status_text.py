"""What do machines read of a run that is watched: JSON lines, and Prometheus' text?"""

import json
import math
from typing import Any

from energymodel.monitor.status import Status

UNITS = {
    "time": "seconds",
    "energy": "joules",
    "equipment_energy": "joules",
    "money": "usd",
    "carbon": "kilograms",
    "loss": "nat_per_token",
}
KEYS = {"time": "s", "energy": "j", "equipment_energy": "j", "money": "usd", "carbon": "kg", "loss": "nat_per_token"}
PREFIX = "energymodel"


def status_tree(status: Status) -> dict[str, Any]:
    """A run at one moment, in SI; `so_far` is what `energymodel replan --so-far` reads."""
    state, found = status.state, status.forecast
    last = state.last
    tree: dict[str, Any] = {
        "step": None if last is None else last.step,
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
        "findings": [one._asdict() for one in status.findings],
    }
    if found is not None:
        tree["used"] = {f"{name}_{KEYS[name]}": value for name, value in found.used.items() if name in KEYS}
        tree["forecast"] = {f"{name}_{KEYS[name]}": one._asdict() for name, one in found.totals.items()}
        tree["so_far"] = {name: value for name, value in found.measured._asdict().items() if value is not None}
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
    state, found = status.state, status.forecast
    gauges: list[tuple[str, str, float]] = [
        ("progress_ratio", "", state.progress),
        ("tokens", "", state.tokens),
        ("elapsed_seconds", "", state.time),
        ("step_time_seconds", "", state.step_time),
        ("planned_step_time_seconds", "", state.expected.step_time),
        ("loss_nat_per_token", "", state.loss),
        ("chip_power_watts", "", state.chip_power),
        ("node_power_watts", "", state.node_power),
        ("failures", "", float(state.failures)),
        *(("finding", f'{{kind="{kind}"}}', float(count)) for kind, count in _counts(status).items()),
    ]
    if found is not None:
        gauges += [(f"used_{name}_{UNITS[name]}", "", value) for name, value in found.used.items() if name in UNITS]
        for name, one in found.totals.items():
            for key, value in zip(("", "_lower", "_upper"), one, strict=True):
                gauges.append((f"forecast_{name}{key}_{UNITS[name]}", "", value))
    finite = [one for one in gauges if math.isfinite(one[-1])]
    lines = []
    for name in dict.fromkeys(name for name, _, _ in finite):
        lines.append(f"# TYPE {PREFIX}_{name} gauge")
        lines += [f"{PREFIX}_{name}{labels} {value!r}" for other, labels, value in finite if other == name]
    return "\n".join(lines) + "\n"


def _counts(status: Status) -> dict[str, int]:
    kinds = [one.kind for one in status.findings]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
