"""A calendar as a table beside the best constant power, as rows, and as a figure."""

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.search.calendar import OBJECTIVES, Calendar, CalendarRun
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
    "clock": "1",
    "price": "USD/J",
    "intensity": "kg/J",
}
LABELS = {
    "start": "starts in hour",
    "time": "calendar time",
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
    *("hour", "billing_month", "price_usd_per_j", "carbon_kg_per_j", "occupied", "clock", "token_rate_per_s"),
    *("power_w", "constant_power_w"),
)
PER_MWH, GRAM_PER_KWH = 3.6e9, 3.6e9


def calendar_report(answer: Calendar) -> RenderableType:
    """The calendar beside the best constant power, the saving, and what an hour's pause would need."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("constant power", "calendar", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, label in LABELS.items():
        values = [getattr(run, name) for run in (answer.constant, answer.hourly)]
        if any(value is None for value in values) or (name == "contract" and not any(values)):
            continue
        changes = name not in ("start", "tokens") and values[0] != 0.0
        change = f"{100.0 * (values[1] / values[0] - 1.0):+.2f} %" if changes else ""
        table.add_row(label, *(_text(name, value) for value in values), change)
    minimize = answer.terms.minimize
    words = WORDS.get(minimize, minimize) + (" with priced carbon" if answer.terms.carbon_price else "")
    title = f"{answer.scenario.title}: lowest {words} over the hours of {answer.hours.name}"
    return Group(
        Text(title, style="bold"), "", table, "", *(Text(line) for line in (*_lines(answer, words), *answer.notes))
    )


def _text(name: str, value: float | int) -> str:
    if name == "start":
        return f"{value:,.0f}"
    if name == "price":
        return f"{value * PER_MWH:.2f} USD/MWh"
    return format_quantity(value, UNITS[name])


def _lines(answer: Calendar, words: str) -> list[str]:
    saved = answer.constant.schedule.value - answer.hourly.schedule.value
    lines = [
        f"The calendar saves {format_quantity(saved, OBJECTIVES[answer.terms.minimize])} of {words} or "
        f"{100.0 * answer.saving:.2f} %; the deadline is {format_quantity(answer.deadline, 's')} after the start."
    ]
    if answer.pause_above is not None and answer.hours.price is not None:
        highest = float(np.max(answer.hours.price)) * PER_MWH
        lines.append(
            f"An hour's pause would pay above {answer.pause_above * PER_MWH:,.0f} USD/MWh; the highest price of the "
            f"run is {highest:,.0f} USD/MWh."
        )
    return lines


def calendar_json(answer: Calendar) -> dict[str, Any]:
    """Both runs and the saving, in SI."""
    return {
        "grid": answer.hours.name,
        "minimize": answer.terms.minimize,
        "carbon_price_usd_per_kg": answer.terms.carbon_price,
        "unit": OBJECTIVES[answer.terms.minimize],
        "deadline_s": answer.deadline,
        "calendar": _run_json(answer.hourly),
        "constant": _run_json(answer.constant),
        "saving": answer.saving,
        "pause_above_usd_per_j": answer.pause_above,
        "notes": list(answer.notes),
    }


def _run_json(run: CalendarRun) -> dict[str, Any]:
    suffixes = {"1": "", "h": "_hour", "token": "", "USD/J": "_usd_per_j", "kg/J": "_kg_per_j"}
    return {
        **{name + suffixes.get(unit, f"_{unit.lower()}"): getattr(run, name) for name, unit in UNITS.items()},
        "value": run.schedule.value,
    }


def calendar_csv(answer: Calendar) -> str:
    """A line for each hour of the calendar."""
    schedule, hours, levels = answer.hourly.schedule, answer.hours, answer.levels
    constant = _on_hours(answer)
    rows = [
        (
            hours.first + at,
            int(hours.month[at]) + 1,
            None if hours.price is None else float(hours.price[at]),
            None if hours.carbon is None else float(hours.carbon[at]),
            float(schedule.occupied[at]),
            float(levels.clock[speed]),
            float(levels.rate[speed] * schedule.occupied[at]),
            float(schedule.power[at]),
            float(constant[at]),
        )
        for at, speed in enumerate(schedule.speeds)
    ]
    return csv_text([COLUMNS, *rows])


def _on_hours(answer: Calendar) -> np.ndarray:
    """Power of the constant run in the hours of the calendar [W]."""
    own = answer.constant.schedule.power
    index = np.arange(len(answer.hourly.schedule.power)) + answer.hourly.start - answer.constant.start
    inside = (index >= 0) & (index < len(own))
    return np.where(inside, own[np.clip(index, 0, len(own) - 1)], 0.0)


def calendar_figure(answer: Calendar, kind: str) -> bytes:
    """Price, carbon intensity and power over the hours of the calendar, as "svg" or "png"."""
    power = answer.hourly.schedule.power
    hours, days = answer.hours, np.arange(len(power)) / 24.0
    minimize, drawn = answer.terms.minimize, figure.new_figure(8.0, 5.2)
    panels: list[tuple[str, Callable[[Any], None]]] = []
    price, carbon = hours.price, hours.carbon
    if price is not None:
        panels.append(("USD/MWh", lambda axes: axes.plot(days, price * PER_MWH, lw=0.6, color=figure.ORANGE)))
    if carbon is not None:
        panels.append(("g/kWh", lambda axes: axes.plot(days, carbon * GRAM_PER_KWH, lw=0.6, color=figure.GREEN)))

    def powers(axes: Any) -> None:
        axes.plot(days, _on_hours(answer) / 1e6, lw=0.8, color=figure.GRAY, label="best constant power")
        axes.plot(days, power / 1e6, lw=0.6, color=figure.BLUE, label="calendar")
        axes.legend(loc="lower left")

    panels.append(("MW", powers))
    all_axes = [figure.add_axes(drawn, len(panels), 1, number + 1) for number in range(len(panels))]
    for axes, (label, draw) in zip(all_axes, panels, strict=True):
        draw(axes)
        axes.set_ylabel(label)
    all_axes[0].set_title(f"Lowest {WORDS.get(minimize, minimize)}: {hours.name}", loc="left")
    all_axes[-1].set_xlabel(f"days after hour {answer.hourly.start}")
    return figure.save(drawn, kind)
