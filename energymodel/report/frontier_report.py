"""How is the way to the limit of physics shown: as a table, as rows, as a figure?"""

from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.search.compare import Frontier, FrontierStep
from energymodel.units import format_quantity

COLUMNS = (
    *("generations", "operation_energy_j_per_flop", "landauer_multiple", "time_s", "energy_j", "power_average_w"),
    *("money_usd", "chips", "batch_tokens", "clock", "binds", "reason"),
)
NOTE = (
    "Process generations of system.chip_design (docs/hardware.md): an extrapolation, most of whose constants are "
    "priors. Nothing says that such chips can be made."
)


def frontier_report(frontier: Frontier) -> RenderableType:
    """Each step with its best plan and the limits that bind."""
    table = Table(title=f"Plans of the lowest {frontier.minimize}", title_justify="left", box=None)
    for name in ("generations", "operation", "x Landauer", "time", "energy", "power", "chips"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("binds")
    for step in frontier.steps:
        cells = [
            f"{step.generations:g}",
            format_quantity(step.operation_energy, "J/FLOP"),
            f"{step.landauer_multiple:.3g}",
        ]
        if step.optimum is None:
            table.add_row(*cells, "", "", "", "", "no plan")
            continue
        outcome = step.optimum.outcome
        table.add_row(
            *cells,
            format_quantity(float(outcome.time), "s"),
            format_quantity(float(np.asarray(outcome.energy.total)), "J"),
            format_quantity(float(outcome.power_average), "W"),
            f"{float(step.optimum.plan.chips):,.0f}",
            _binds(step),
        )
    reasons = [Text(f"{step.generations:g} generations: {step.reason}") for step in frontier.steps if step.reason]
    return Group(table, "", Text(NOTE), *reasons)


def _binds(step: FrontierStep) -> str:
    """Limits with a price, the dearest first."""
    if step.optimum is None:
        return ""
    prices = step.optimum.prices
    return ", ".join(sorted(step.optimum.active, key=lambda name: -prices[name].elasticity if name in prices else 0.0))


def _row(step: FrontierStep) -> list[Any]:
    start = [step.generations, step.operation_energy, step.landauer_multiple]
    if step.optimum is None:
        return [*start, *[""] * (len(COLUMNS) - 4), step.reason]
    plan, outcome = step.optimum.plan, step.optimum.outcome
    totals = (outcome.time, outcome.energy.total, outcome.power_average, outcome.money, plan.chips)
    numbers = [float(np.asarray(one)) for one in totals]
    return [*start, *numbers, float(np.ravel(plan.batch)[0]), float(outcome.clock), _binds(step), step.reason]


def frontier_json(frontier: Frontier) -> dict[str, Any]:
    """All steps."""
    return {
        "minimize": frontier.minimize,
        "note": NOTE,
        "steps": [dict(zip(COLUMNS, _row(step), strict=True)) for step in frontier.steps],
    }


def frontier_csv(frontier: Frontier) -> str:
    """A line for each step."""
    return csv_text([COLUMNS, *(_row(step) for step in frontier.steps)])


def frontier_figure(frontier: Frontier, kind: str) -> bytes:
    """Energy, time and power of the best plans against the energy of an operation, as "svg" or "png"."""
    found = [step for step in frontier.steps if step.optimum is not None]
    outcomes = [step.optimum.outcome for step in found if step.optimum is not None]
    multiples = [step.landauer_multiple for step in found]
    drawn = figure.new_figure(7.0, 4.2)
    axes = figure.add_axes(drawn)
    for (name, values), color in zip(
        {
            "energy": [float(np.asarray(one.energy.total)) for one in outcomes],
            "time": [float(one.time) for one in outcomes],
            "average power": [float(one.power_average) for one in outcomes],
        }.items(),
        figure.COLORS,
        strict=False,
    ):
        axes.plot(multiples, np.asarray(values) / values[0], "o-", markersize=3.5, color=color, label=name)
    for name in ("x", "y"):
        figure.log_axis(axes, name)
    axes.invert_xaxis()
    axes.set_xlabel("energy of an operation over Landauer's bound of its bits")
    axes.set_ylabel("over today's best plan")
    axes.set_title("Best plans on the way to the limit", loc="left")
    axes.legend()
    return figure.save(drawn, kind)
