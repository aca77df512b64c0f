"""How is a calendar shown: as a table beside the best constant power, as rows, as a figure?"""

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.economics.series import HOUR
from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.search.calendar import Calendar, CalendarRun
from energymodel.units import format_quantity

UNITS = {
    "start": "h",
    "time": "s",
    "tokens": "token",
    "energy": "J",
    "money": "USD",
    "held": "USD",
    "bought": "USD",
    "contract": "USD",
    "demand": "USD",
    "carbon_operational": "kg",
    "carbon_embodied": "kg",
    "peak": "W",
    "paused_time": "s",
    "restarts": "1",
    "clock": "1",
    "price": "USD/J",
    "intensity": "kg/J",
}
LABELS = {
    "start": "starts in hour",
    "time": "calendar time",
    "paused_time": "of which paused",
    "restarts": "restarts after pauses",
    "clock": "mean clock",
    "tokens": "tokens",
    "energy": "energy",
    "peak": "highest hour",
    "money": "money",
    "held": "  equipment over time",
    "bought": "  energy by the hour",
    "contract": "  contract",
    "demand": "  demand charge",
    "carbon_operational": "operational carbon",
    "carbon_embodied": "embodied carbon",
    "price": "price paid in the mean",
    "intensity": "carbon of a kWh in the mean",
}
WORDS = {"carbon_operational": "operational carbon"}
COLUMNS = (
    *("hour", "billing_month", "price_usd_per_j", "carbon_kg_per_j", "occupied", "paused", "clock", "token_rate_per_s"),
    *("power_w", "battery_j", "constant_power_w"),
)
PER_MWH, GRAM_PER_KWH = 3.6e9, 3.6e9


def calendar_report(found: Calendar) -> RenderableType:
    """The calendar beside the best constant power, the saving, and what an hour's pause would need."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("constant power", "calendar", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, label in LABELS.items():
        values = [getattr(run, name) for run in (found.constant, found.found)]
        if any(value is None for value in values) or (name in ("contract", "restarts") and not any(values)):
            continue
        changes = name not in ("start", "restarts", "paused_time", "tokens") and values[0] != 0.0
        change = f"{100.0 * (values[1] / values[0] - 1.0):+.2f} %" if changes else ""
        table.add_row(label, *(_shown(name, value) for value in values), change)
    words = WORDS.get(found.minimize, found.minimize) + (" with priced carbon" if found.carbon_price else "")
    return Group(
        Text(f"{found.scenario.title}: lowest {words} over the hours of {found.grid}", style="bold"),
        "",
        table,
        "",
        *(Text(line) for line in _lines(found, words)),
        *(Text(note) for note in found.notes),
    )


def _shown(name: str, value: float | int) -> str:
    if name == "start":
        return f"{value:,.0f}"
    if name == "price":
        return f"{value * PER_MWH:.2f} USD/MWh"
    return format_quantity(value, UNITS[name])


def _lines(found: Calendar, words: str) -> list[str]:
    unit, run = found.unit, found.found
    saved = found.constant.value - run.value
    lines = [
        f"The calendar saves {format_quantity(saved, unit)} of {words} or {100.0 * found.saving:.2f} %. No calendar of "
        f"these speeds {'from this start ' if found.problem.battery else ''}saves more than "
        f"{100.0 * (1.0 - found.bound / found.constant.value):.2f} %.",
        f"A million tokens more cost {format_quantity(1e6 * found.token_price, unit)}; the deadline is "
        f"{format_quantity(found.deadline, 's')} after the start.",
    ]
    if found.pause_above is not None and found.hours.price is not None:
        highest = float(np.max(found.hours.price)) * PER_MWH
        lines.append(
            f"An hour's pause would pay above {found.pause_above * PER_MWH:,.0f} USD/MWh; the highest price of the run "
            f"is {highest:,.0f} USD/MWh."
        )
    if found.battery_saving is not None and found.problem.battery:
        over = found.battery_saving / (run.time / (8760.0 * HOUR)) / found.problem.battery.energy
        lines.append(
            f"The battery saves {format_quantity(found.battery_saving, unit)}"
            + (f": it may cost {over * 3.6e6:.2f} USD per kWh and year." if unit == "USD" else ".")
        )
    return lines


def calendar_json(found: Calendar) -> dict[str, Any]:
    """Both runs, the saving and the bounds, in SI."""
    return {
        "grid": found.grid,
        "minimize": found.minimize,
        "carbon_price_usd_per_kg": found.carbon_price,
        "unit": found.unit,
        "deadline_s": found.deadline,
        "calendar": _run_json(found.found),
        "constant": _run_json(found.constant),
        "saving": found.saving,
        "gap": found.gap,
        "lower_bound": found.bound,
        "token_price": found.token_price,
        "pause_above_usd_per_j": found.pause_above,
        "battery_saving": found.battery_saving,
        "notes": list(found.notes),
    }


def _run_json(run: CalendarRun) -> dict[str, Any]:
    suffixes = {"1": "", "h": "_hour", "token": "", "USD/J": "_usd_per_j", "kg/J": "_kg_per_j"}
    return {
        **{name + suffixes.get(unit, f"_{unit.lower()}"): getattr(run, name) for name, unit in UNITS.items()},
        "value": run.value,
    }


def calendar_csv(found: Calendar) -> str:
    """A line for each hour of the calendar."""
    schedule, hours, rates = found.schedule, found.hours, found.problem.rates
    constant = _on_hours(found)
    running = schedule.shares.sum(axis=1)
    rows = []
    for at in range(len(schedule.occupied)):
        some = running[at] > 0.0
        rows.append(
            [
                hours.first + at,
                int(hours.month[at]) + 1,
                None if hours.price is None else float(hours.price[at]),
                None if hours.carbon is None else float(hours.carbon[at]),
                float(schedule.occupied[at]),
                float(schedule.paused[at]),
                float(schedule.shares[at] @ found.levels.clock / running[at]) if some else None,
                float(schedule.shares[at] @ rates),
                float(schedule.power[at]),
                float(schedule.stored[at]),
                float(constant[at]),
            ]
        )
    return csv_text([COLUMNS, *rows])


def _on_hours(found: Calendar) -> np.ndarray:
    """Power of the constant run in the hours of the calendar [W]."""
    own = found.constant_schedule.power
    index = np.arange(len(found.schedule.occupied)) + found.found.start - found.constant.start
    inside = (index >= 0) & (index < len(own))
    return np.where(inside, own[np.clip(index, 0, len(own) - 1)], 0.0)


def calendar_figure(found: Calendar, kind: str) -> bytes:
    """Price, carbon intensity and power over the hours of the calendar, as "svg" or "png"."""
    hours, days = found.hours, np.arange(len(found.schedule.occupied)) / 24.0
    drawn = figure.new_figure(8.0, 5.2)
    panels: list[tuple[str, Callable[[Any], None]]] = []
    price, carbon = hours.price, hours.carbon
    if price is not None:
        panels.append(("USD/MWh", lambda axes: axes.plot(days, price * PER_MWH, lw=0.6, color=figure.ORANGE)))
    if carbon is not None:
        panels.append(("g/kWh", lambda axes: axes.plot(days, carbon * GRAM_PER_KWH, lw=0.6, color=figure.GREEN)))

    def powers(axes: Any) -> None:
        axes.plot(days, _on_hours(found) / 1e6, lw=0.8, color=figure.GRAY, label="best constant power")
        axes.plot(days, found.schedule.power / 1e6, lw=0.6, color=figure.BLUE, label="calendar")
        axes.legend(loc="lower left")

    panels.append(("MW", powers))
    all_axes = [figure.add_axes(drawn, len(panels), 1, number + 1) for number in range(len(panels))]
    for axes, (label, draw) in zip(all_axes, panels, strict=True):
        draw(axes)
        axes.set_ylabel(label)
    all_axes[0].set_title(f"Lowest {WORDS.get(found.minimize, found.minimize)}: {found.grid}", loc="left")
    all_axes[-1].set_xlabel(f"days after hour {found.found.start}")
    return figure.save(drawn, kind)
