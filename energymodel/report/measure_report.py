"""How are measured logs shown: rows, energy by phase, what was left out, and a figure of the run?"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.constants import ZERO_CELSIUS
from energymodel.readers.logged_run import PHASES, WAITING
from energymodel.readers.measured_log import MeasuredLogs, Measurement
from energymodel.readers.measured_power import BUSY, IDLE, PhaseEnergy, whole_energy
from energymodel.report import figure
from energymodel.units import format_quantity

COLOURS = {
    **dict.fromkeys((PHASES[0], BUSY), "#0072b2"),
    "warm-up": "#56b4e9",
    "evaluation": "#009e73",
    "checkpoint": "#e69f00",
    "restart": "#d55e00",
    "lost": "#cc79a7",
    WAITING: "#777777",
    IDLE: "#f0e442",
}
"""Of phases; a palette that colour-blind readers can tell apart."""
MARKERS = dict(zip(PHASES, ("o", "v", "s", "D", "^", "x"), strict=True))
"""Of the steps of a phase, where color is not enough."""
HEADROOM = 1.08
"""Top of an axis over the largest value."""
TIMES = ((3.0 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""Shortest span of a time axis for a unit [s], the unit [s], its name."""
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("steps", "steps", "1"),
    ("sequences", "batch (sequences)", "1"),
    ("step_time", "step time", "s"),
    ("step_scatter", "scatter", "%"),
    ("tokens", "tokens of a step", "token"),
    ("token_rate", "tokens/s of a chip", "token/s"),
    ("loss", "loss", "nat/token"),
    ("power", "power of a chip", "W"),
    ("energy", "energy of a chip and step", "J"),
    ("node_power", "power of a node", "W"),
    ("clock", "clock", "Hz"),
    ("temperature", "temperature", "K"),
    ("memory", "memory", "B"),
)
"""Number of a measurement, its title, its unit."""

MOST_PANELS = 12
"""Panels of a figure; further logs and groups of devices are left out."""
MOST_DEVICES = 16
"""Devices that the text shows."""
DEVICE_COLUMNS = {"energy": "J", "power": "W", "clock": "Hz", "temperature": "K", "power_limit": "W"}


def measure_report(found: MeasuredLogs) -> RenderableType:
    """A block for each batch of each log, energy by phase, and what was left out."""
    parts: list[RenderableType] = []
    for row in found.rows:
        how = (
            f" (power: {row.how}, {row.devices} device{'s' * (row.devices > 1)})"
            if row.devices
            else " (power: as logged)"
            if row.how
            else ""
        )
        parts += [Text(f"{row.source}{how}", style="bold"), _row_table(row), Text("")]
    if found.devices:
        parts += [_device_table(found), Text("")]
    if found.phases:
        parts += [_phase_table(found), Text("")]
    return Group(*parts, *(Text(note) for note in found.notes))


def _row_table(row: Measurement) -> Table:
    table = Table(box=None, show_header=False)
    table.pad_edge = False
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, title, unit in COLUMNS:
        value = float(getattr(row, name))
        if math.isfinite(value):
            table.add_row(title, _shown(value, unit))
    return table


def _shown(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100.0 * value:.2g} %"
    if unit == "1":
        return f"{value:,.0f}"
    if unit == "K":
        return f"{value - ZERO_CELSIUS:.1f} °C"
    return format_quantity(value, unit)


def _phase_table(found: MeasuredLogs) -> Table:
    table = Table(box=None, title="Energy by phase", title_justify="left", title_style="bold", pad_edge=False)
    several = len({one.group for one in found.phases}) > 1
    for name in (*(["of"] if several else []), "phase"):
        table.add_column(name, no_wrap=True)
    for name in ("spans", "duration", "energy", "power of a device", "measured"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in _with_sums(found.phases):
        table.add_row(
            *([one.group] if several else []),
            one.phase,
            f"{one.spans:,}",
            format_quantity(one.duration, "s"),
            format_quantity(one.energy, "J"),
            format_quantity(one.power, "W"),
            f"{100.0 * one.coverage:.0f} %",
        )
    return table


def _with_sums(phases: Sequence[PhaseEnergy]) -> list[PhaseEnergy]:
    """The phases, and behind those of a group their sum, if there are several."""
    found: list[PhaseEnergy] = []
    for group in dict.fromkeys(one.group for one in phases):
        own = [one for one in phases if one.group == group]
        found += [*own, whole_energy(own)] if len(own) > 1 else own
    return found


def _device_table(found: MeasuredLogs) -> Table:
    """Power and state of each device, of the first ones where there are many."""
    shown = found.devices[:MOST_DEVICES]
    table = Table(box=None, title="Devices", title_justify="left", title_style="bold", pad_edge=False)
    if len(found.devices) > len(shown):
        table.caption, table.caption_justify = f"and {len(found.devices) - len(shown)} more (--json has all)", "left"
    known = [name for name in DEVICE_COLUMNS if any(math.isfinite(getattr(one, name)) for one in shown)]
    table.add_column("", no_wrap=True)
    for name in ("readings", *known):
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for one in shown:
        cells = [(getattr(one, name), DEVICE_COLUMNS[name]) for name in known]
        values = [_shown(value, unit) if math.isfinite(value) else "" for value, unit in cells]
        table.add_row(one.device, f"{one.readings:,}", *values, one.how)
    return table


def measure_json(found: MeasuredLogs, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows as `calibrate` reads them, energy by phase, and the notes, in SI."""
    keys = {"duration": "duration_s", "energy": "energy_j", "power": "power_per_device_w"}
    phases = [{keys.get(key, key): value for key, value in one._asdict().items()} for one in found.phases]
    names = {"duration": "duration_s", **{key: f"{key}_{_key_unit(unit)}" for key, unit in DEVICE_COLUMNS.items()}}
    devices = [{names.get(key, key): _known(value) for key, value in one._asdict().items()} for one in found.devices]
    return {"rows": rows, "phases": phases, "devices": devices, "notes": list(found.notes)}


def _key_unit(unit: str) -> str:
    return {"Hz": "hz"}.get(unit, unit.lower())


def _known(value: object) -> object:
    """A value, or null for what was not measured."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def measure_figure(found: MeasuredLogs, kind: str) -> bytes:
    """Step times and mean power of a device over time, coloured by phase."""
    names = [*found.runs, *(name for name in found.power if name not in found.runs)]
    panels = [(name, what) for name in names for what in ("steps", "power") if _has(found, name, what)][:MOST_PANELS]
    drawn = figure.new_figure(7.2, 0.6 + 2.4 * max(len(panels), 1))
    for place, (name, what) in enumerate(panels):
        axes = figure.add_axes(drawn, len(panels), 1, place + 1)
        title = name.rsplit("/", 1)[-1] or "all devices"
        if what == "steps":
            _draw_steps(axes, found, name)
            axes.set_title(f"{title}: time of a step", loc="left", fontsize=9)
        else:
            _draw_power(axes, found, name)
            axes.set_title(f"{title}: mean power of a device", loc="left", fontsize=9)
    return figure.save(drawn, kind)


def _has(found: MeasuredLogs, name: str, what: str) -> bool:
    if what == "power":
        return name in found.power
    return name in found.runs and bool(np.any(np.isfinite(found.runs[name].columns["step_time"])))


def _draw_steps(axes: Any, found: MeasuredLogs, name: str) -> None:
    run = found.runs[name]
    largest = 0.0
    for phase in PHASES:
        own = run.of(phase) & np.isfinite(run.columns["step_time"])
        if np.any(own):
            step, time = run.columns["step"][own], run.columns["step_time"][own]
            largest = max(largest, float(np.max(time)))
            axes.plot(step, time, MARKERS[phase], markersize=3, color=COLOURS[phase], label=phase)
    axes.set_xlabel("step")
    axes.set_ylabel("step time [s]")
    axes.set_ylim(0.0, HEADROOM * largest)
    _legend(axes)


def _draw_power(axes: Any, found: MeasuredLogs, name: str) -> None:
    power = found.power[name]
    start, stop = float(power.time[0]), float(power.time[-1])
    unit, word = next((unit, word) for least, unit, word in TIMES if stop - start >= least)
    shown: set[str] = set()
    for span in found.spans[name]:
        label = None if span.phase in shown else span.phase
        shown.add(span.phase)
        colour = COLOURS.get(span.phase, "#777777")
        begin, end = (span.start - start) / unit, (span.stop - start) / unit
        axes.axvspan(begin, end, color=colour, alpha=0.3, linewidth=0, label=label)
    axes.plot((power.time - start) / unit, power.mean, color="#222222", linewidth=0.8)
    axes.set_xlim(0.0, (stop - start) / unit)
    axes.set_xlabel(f"time [{word}]")
    axes.set_ylabel("power [W]")
    known = power.mean[np.isfinite(power.mean)]
    axes.set_ylim(0.0, HEADROOM * float(np.max(known)) if len(known) else None)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Names of the phases above the axes, where they hide nothing."""
    axes.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=6, frameon=False, borderpad=0.2)
