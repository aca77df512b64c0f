"""How are compared combinations shown: as a table, as rows, as a figure?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text, plan_json
from energymodel.search.compare import Candidate, Comparison
from energymodel.search.result import Optimum
from energymodel.units import format_quantity

COLUMNS = (
    *("accelerator", "precision", "network", "topology", "most_chips", "chips", "layout", "clock", "batch_tokens"),
    *("time_s", "energy_j", "power_average_w", "money_usd", "carbon_kg", "reason"),
)


def compare_report(comparison: Comparison) -> RenderableType:
    """Combinations with a plan, the best first, then the others with the reason."""
    title = f"Each with its plan of the lowest {comparison.minimize}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("", no_wrap=True)
    numbers = ("chips", "t x p x c", "clock", "time", "energy", "power", "money")
    for name in (*numbers, *map(_short, comparison.varied), "more"):
        table.add_column(name, justify="right", no_wrap=True)
    found = [one for one in comparison.candidates if one.optimum is not None and not one.reason]
    for one in found:
        assert one.optimum is not None
        assert found[0].optimum is not None
        outcome, more = one.optimum.outcome, one.optimum.value / found[0].optimum.value - 1.0
        table.add_row(
            one.name,
            f"{float(one.optimum.plan.chips):,.0f}",
            _layout(one.optimum),
            f"{float(outcome.clock):.3f}",
            format_quantity(float(outcome.time), "s"),
            format_quantity(float(np.asarray(outcome.energy.total)), "J"),
            format_quantity(float(outcome.power_average), "W"),
            format_quantity(float(outcome.money), "USD"),
            *(_varied(one.optimum, path) for path in comparison.varied),
            f"{100.0 * more:+.1f} %",
        )
    parts: list[RenderableType] = [table] if found else [Text("No combination has a plan within the limits.")]
    parts += ["", *(Text(f"{one.name}: {one.reason}") for one in comparison.candidates if one.reason)]
    return Group(*parts)


def _layout(optimum: Optimum) -> str:
    layout = optimum.plan.layout
    return " x ".join(f"{float(degree):g}" for degree in (layout.tensor, layout.pipeline, layout.context))


def _short(path: str) -> str:
    """Last word of a path, which heads a column."""
    return path.rpartition(".")[2]


def _varied(optimum: Optimum, path: str) -> str:
    """Value that a search found for a number of the system; empty where it does not vary."""
    if path not in optimum.found:
        return ""
    return format_quantity(optimum.found[path], optimum.scenario.provenance[path].unit)


def _row(one: Candidate, varied: Sequence[str] = ()) -> list[Any]:
    names = [name or "" for name in (one.accelerator, one.precision, one.network, one.topology)]
    asked = [*names, "" if one.chips is None else one.chips]
    if one.optimum is None:
        return [*asked, *[""] * (len(COLUMNS) - len(asked) - 1), one.reason, *[""] * len(varied)]
    plan, outcome = one.optimum.plan, one.optimum.outcome
    numbers = (outcome.time, outcome.energy.total, outcome.power_average, outcome.money, outcome.carbon)
    own = [float(plan.chips), _layout(one.optimum), float(outcome.clock), float(np.ravel(plan.batch)[0])]
    found = [one.optimum.found.get(path, "") for path in varied]
    return [*asked, *own, *(float(np.asarray(number)) for number in numbers), one.reason, *found]


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """All combinations with their plans, or the reason why there is none."""
    return {
        "minimize": comparison.minimize,
        "unit": comparison.unit,
        "candidates": [
            {
                **dict(zip([*COLUMNS, *comparison.varied], _row(one, comparison.varied), strict=True)),
                "value": one.optimum.value if one.optimum else None,
                "plan": plan_json(one.optimum.plan, one.optimum.scenario) if one.optimum else None,
            }
            for one in comparison.candidates
        ],
    }


def compare_csv(comparison: Comparison) -> str:
    """A line for each combination."""
    return csv_text([[*COLUMNS, *comparison.varied], *(_row(one, comparison.varied) for one in comparison.candidates)])


def compare_figure(comparison: Comparison, kind: str) -> bytes:
    """Energy of each combination as a bar, with its time, as "svg" or "png"."""
    found = [one for one in comparison.candidates if one.optimum is not None and not one.reason]
    drawn = figure.new_figure(7.0, 1.2 + 0.34 * max(1, len(found)))
    axes = figure.add_axes(drawn)
    values = [one.optimum.value for one in found if one.optimum]
    axes.barh(range(len(found)), values, color=figure.BLUE, height=0.7)
    for place, one in enumerate(found):
        assert one.optimum is not None
        axes.text(values[place], place, f" {format_quantity(float(one.optimum.outcome.time), 's')}", va="center")
    axes.set_yticks(range(len(found)), [one.name for one in found])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0.0, 1.2 * max(values, default=1.0))
    axes.set_xlabel(f"{comparison.minimize} [{comparison.unit}]; beside each bar its time")
    axes.set_title("Each combination with its best plan", loc="left")
    return figure.save(drawn, kind)
