"""How does a person read a run that is watched: a table while it trains, and a report at its end?"""

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.monitor.status import Status
from energymodel.report.intervals import with_interval
from energymodel.report.plan_report import headline, plans_table
from energymodel.search.replan import Replan
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.units import format_quantity

UNITS = {"time": "s", "energy": "J", "equipment_energy": "J", "money": "USD", "carbon": "kg", "loss": "nat/token"}
TITLES = {"equipment_energy": "energy of nodes and switches", "loss": "final loss"}
BAR = 30
LEVEL = 0.9


def monitor_table(status: Status) -> RenderableType:
    """Progress, the run beside its plan, its end with intervals, and what is wrong."""
    parts: list[RenderableType] = [Text(_headline(status), style="bold"), "", now_table(status)]
    if status.forecast is not None:
        parts += ["", end_table(status)]
    parts += ["", *(Text(f"{one.kind}: {one.message}") for one in status.findings)]
    if not status.findings:
        parts.append(Text("Nothing is wrong that can be seen from here."))
    return Group(*parts)


def _headline(status: Status) -> str:
    state = status.state
    share = min(max(state.progress, 0.0), 1.0)
    bar = "█" * round(BAR * share) + "░" * (BAR - round(BAR * share))
    step = 0 if state.last is None else state.last.step
    return f"{state.expected.scenario.title}\n{bar} {100.0 * state.progress:.1f} %, step {step:,}"


def now_table(status: Status) -> Table:
    """The run so far beside its plan."""
    state, expected = status.state, status.state.expected
    outcome = expected.outcome
    table = Table(box=None, title="Now", title_justify="left", title_style="bold", pad_edge=False)
    for name in ("", "measured", "plan", "difference"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    planned_time = float(outcome.time) * state.progress
    rows = [
        ("time so far", state.time, planned_time, "s"),
        ("step time", state.step_time, expected.step_time, "s"),
        ("tokens of a step", state.tokens_per_step, expected.batch, "token"),
        ("loss", state.loss, expected.loss(state.tokens) if state.tokens > 0.0 else math.nan, "nat/token"),
        ("power of a chip", state.chip_power, float(outcome.power_busy), "W"),
        ("power of a node", state.node_power, math.nan, "W"),
    ]
    for title, measured, planned, unit in rows:
        if not math.isfinite(measured):
            continue
        beside = format_quantity(planned, unit) if math.isfinite(planned) else ""
        table.add_row(title, format_quantity(measured, unit), beside, _difference(measured, planned, unit))
    if state.failures:
        table.add_row("interruptions", str(state.failures), "", "")
    return table


def _difference(measured: float, planned: float, unit: str) -> str:
    if not math.isfinite(planned) or planned == 0.0:
        return ""
    if unit == "nat/token":
        return f"{measured - planned:+.3f}"
    return f"{100.0 * (measured / planned - 1.0):+.1f} %"


def end_table(status: Status) -> Table:
    """The end of the run with intervals, beside the plan."""
    found, outcome = status.forecast, status.state.expected.outcome
    assert found is not None
    table = Table(box=None, title="The whole run, if its plan is kept", title_justify="left", title_style="bold")
    table.pad_edge = False
    for name in ("", "so far", "at the end (90 %)", "plan"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    planned = {"energy": outcome.energy.total, "time": outcome.time, "money": outcome.money, "loss": outcome.loss}
    planned["carbon"] = outcome.carbon
    for name, one in found.totals.items():
        unit = UNITS[name]
        used = format_quantity(found.used[name], unit) if name in found.used else ""
        ends = with_interval(one.value, one.lower, one.upper, unit, LEVEL)
        beside = format_quantity(float(planned[name]), unit) if name in planned else ""  # pyright: ignore[reportArgumentType]
        table.add_row(TITLES.get(name, name), used, ends, beside)
    return table


def monitor_line(status: Status) -> str:
    """One line for an output that is no terminal."""
    state = status.state
    parts = [f"{100.0 * state.progress:5.1f} %"]
    if math.isfinite(state.step_time):
        parts.append(f"step {format_quantity(state.step_time, 's')}")
    if math.isfinite(state.loss):
        parts.append(f"loss {state.loss:.4f}")
    if math.isfinite(state.chip_power):
        parts.append(f"chip {format_quantity(state.chip_power, 'W')}")
    if status.forecast is not None:
        for name in ("time", "energy", "loss"):
            one = status.forecast.totals[name]
            parts.append(f"{name} {with_interval(one.value, one.lower, one.upper, UNITS[name], LEVEL)}")
    parts += [f"[{one.kind}]" for one in status.findings]
    return ", ".join(parts)


def monitor_report(
    status: Status, replanned: Replan | None = None, risk: SavingAtRisk | None = None, refusal: str = ""
) -> RenderableType:
    """The table at the end of the log, and what a new plan for the rest changes and saves, with its risk."""
    parts: list[RenderableType] = [monitor_table(status)]
    if replanned is not None:
        optimum = replanned.optimum
        parts += ["", Text("A new plan for the rest", style="bold")]
        if optimum.success:
            own = optimum.scenario.plan
            parts.append(Text(headline(optimum, risk)))
            parts += [Text(caution)] if (caution := replanned.rest.caution) else []
            parts.append(plans_table(optimum.scenario, own, optimum.plan, optimum.varied))
        else:
            parts.append(Text(optimum.message))
    elif refusal:
        parts += ["", Text(refusal)]
    return Group(*parts)
