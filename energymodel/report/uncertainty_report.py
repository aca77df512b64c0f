"""How are random samples shown: distributions, chances of limits, Sobol's indices as tables, JSON, CSV?"""

import csv
import dataclasses
import io
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from energymodel.report.intervals import quantity, rounded
from energymodel.report.json_tree import Tree
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.monte_carlo import MonteCarlo
from energymodel.sweeps.sample_statistics import Spread
from energymodel.sweeps.scenario_axes import HARD_LIMITS
from energymodel.units import format_quantity

TOP = 12
SHOWN = (0.05, 0.25, 0.5, 0.75, 0.95)
SMALLEST = 0.005  # total index of the factors of the table


def samples_report(scenario: Scenario, found: MonteCarlo, top: int = TOP) -> RenderableType:
    """Distributions of the outputs, chances of the limits, and the factors that matter."""
    title = Text(f"{scenario.title}: {found.samples:,} samples of {len(found.factors)} uncertain numbers", style="bold")
    parts: list[RenderableType] = [title, ""]
    if found.spreads:
        parts += [spreads_table(found), ""]
    if found.chances:
        parts += [chances_table(found), ""]
    for name in found.of if found.indices else ():
        parts += [indices_table(found, name, top), ""]
    lines = [f"{found.points:,} points in {found.seconds:.1f} s, compilation included.", found.message]
    return Group(*parts, Text("\n".join(line for line in lines if line)))


def spreads_table(found: MonteCarlo) -> Table:
    """Mean, deviation and quantiles of the outputs of most interest."""
    table = _table("")
    for heading in ("mean", "deviation", *(f"{100 * share:g} %" for share in SHOWN)):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in found.of:
        one, unit = found.spreads[name], found.units.get(name, "1")
        relative = 100.0 * one.deviation / abs(one.mean) if one.mean else math.nan
        low, high = one.quantiles[SHOWN[0]], one.quantiles[SHOWN[-1]]
        cells = [_number(one.mean, unit, low, high), f"{relative:.2g} %"]
        table.add_row(
            name.replace("_", " "), *cells, *(_number(one.quantiles[share], unit, low, high) for share in SHOWN)
        )
    return table


def chances_table(found: MonteCarlo) -> Table:
    """Chance of each limit that some sample breaks, and of all of them."""
    table = _table("Chance that the plan stays within")
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("chance", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    for name, one in found.chances.items():
        if one.share == 1.0 and name in HARD_LIMITS:
            continue
        bound = ""
        if name in found.limits and name not in HARD_LIMITS:
            (low, high), unit = found.limits[name], found.units.get(name, "1")
            bound = f"≤ {format_quantity(high, unit)}" if high < math.inf else f"≥ {format_quantity(low, unit)}"
        shown = "all limits" if name not in found.limits else name.removeprefix("slack.").replace("_", " ")
        table.add_row(shown, bound, _percent(one.share), f"{_percent(one.low)} to {_percent(one.high)}")
    return table


def indices_table(found: MonteCarlo, name: str, top: int = TOP) -> Table:
    """Factors with the largest total index of an output."""
    table = _table(f"What makes {name.replace('_', ' ')} uncertain: shares of its variance")
    for heading in ("first order", "±", "total", "±"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = [one for one in found.by_total(name) if one.total >= SMALLEST]
    for one in rows[:top]:
        numbers = (one.first, one.first_half, one.total, one.total_half)
        table.add_row(escape(one.factor), *(f"{100.0 * number:.1f} %" for number in numbers))
    return table


def _table(title: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    table.add_column("", no_wrap=True)
    return table


def _number(value: float, unit: str, low: float, high: float) -> str:
    return rounded(quantity(value, unit), low, high) if math.isfinite(value) else "undefined"


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g} %"


def samples_json(scenario: Scenario, found: MonteCarlo, asked: Mapping[str, Any]) -> Tree:
    """Everything in SI; `asked` repeats the run. What is undefined is null."""
    return {
        "scenario": scenario.named_tables,
        **asked,
        "samples": found.samples,
        "index_samples": found.index_samples,
        "points": found.points,
        "time_s": found.seconds,
        "complete": found.complete,
        "message": found.message,
        "units": {name: found.units.get(name, "1") for name in found.spreads},
        "outputs": {name: _spread(one) for name, one in found.spreads.items()},
        "chances": {
            name: {"least": _plain(low), "most": _plain(high), "share": one.share, "interval": [one.low, one.high]}
            for name, one in found.chances.items()
            for low, high in [found.limits.get(name, (-math.inf, math.inf))]
        },
        "indices": {
            name: [{key: _plain(value) for key, value in dataclasses.asdict(one).items()} for one in rows]
            for name, rows in found.indices.items()
        },
    }


def _spread(spread: Spread) -> Tree:
    return {
        "mean": _plain(spread.mean),
        "error": _plain(spread.error),
        "deviation": _plain(spread.deviation),
        "undefined": spread.undefined,
        "quantiles": {f"{share:g}": _plain(value) for share, value in spread.quantiles.items()},
        "intervals": {f"{share:g}": [_plain(end) for end in ends] for share, ends in spread.ranges.items()},
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def samples_csv(found: MonteCarlo) -> str:
    """One line for each output: unit, mean, its error, deviation, quantiles."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    shares = list(next(iter(found.spreads.values())).quantiles) if found.spreads else []
    headings = ("output", "unit", "mean", "error", "deviation", "undefined", *(f"quantile {one:g}" for one in shares))
    writer.writerow(headings)
    for name, one in found.spreads.items():
        numbers = (one.mean, one.error, one.deviation, one.undefined, *(one.quantiles[share] for share in shares))
        writer.writerow([name, found.units.get(name, "1"), *numbers])
    return buffer.getvalue()
