"""How are the clocks of a pipeline's ranks shown: the front as a table and a figure, each clock as a row?"""

from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.scenarios.clock_scale import ClockScale
from energymodel.search.pipeline_clocks import StageFront
from energymodel.solver import RESULTS, result_is
from energymodel.system.accelerator import Accelerator
from energymodel.units import format_quantity

DIRECTIONS = ("forward", "backward")
COLUMNS = ("step_time_s", "direction", "rank", "kind", "clock")
MOST_ROWS = 32
MOST_KINDS = 4  # of operations of a rank that a table shows


def stage_clocks_report(front: StageFront, accelerator: Accelerator) -> RenderableType:
    """The front, then the clocks of the ranks at the step time that saves most beside one clock."""
    found = front.clocks
    table = Table(title="Passes of a step, all chips", title_justify="left")
    for name in ("step time", "", "energy", "with one clock", "saved", "price of time"):
        table.add_column(name, justify="right")
    for row, time in enumerate(found.step_time):
        table.add_row(
            format_quantity(float(time), "s"),
            f"{100.0 * (time / found.step_time[0] - 1.0):+.1f} %",
            format_quantity(float(found.energy[row]), "J"),
            format_quantity(float(front.one_clock_energy[row]), "J"),
            f"{100.0 * front.saved[row]:.2f} %",
            format_quantity(max(0.0, float(found.price[row])), "W"),
        )
    best = int(np.argmax(front.saved))
    lines = [*_unconverged(front), f"The search needed {found.paths} paths through the schedule."]
    return Group(table, Text("\n".join(lines) + "\n"), _clocks_table(front, best, accelerator))


def _unconverged(front: StageFront) -> list[str]:
    late = np.flatnonzero(~result_is(front.clocks.result, RESULTS.successful))
    times = ", ".join(format_quantity(float(front.clocks.step_time[row]), "s") for row in late)
    return [f"Not converged at {times}: clocks that are as good or better may exist."] if times else []


def _clocks_table(front: StageFront, row: int, accelerator: Accelerator) -> RenderableType:
    clocks = front.clocks.clock[row]
    _, ranks, kinds = clocks.shape
    time = format_quantity(float(front.clocks.step_time[row]), "s")
    table = Table(title=f"Clocks at {time}", title_justify="left")
    table.add_column("rank", justify="right")
    scale, shown = ClockScale.of(accelerator), min(kinds, MOST_KINDS)
    for direction in DIRECTIONS:
        for kind in range(shown):
            table.add_column(direction if kinds == 1 else f"{direction} {kind}", justify="right")
    half = MOST_ROWS // 2
    for rank in range(ranks) if ranks <= MOST_ROWS else (*range(half), *range(ranks - half, ranks)):
        own = clocks[:, rank, :shown].ravel()
        table.add_row(f"{rank}", *(f"{share:.3f} ({scale.megahertz(share)})" for share in own))
    return table if kinds <= MOST_KINDS else Group(table, Text(f"-o FILE.csv has all {kinds} kinds of operations."))


def stage_clocks_json(front: StageFront) -> dict[str, Any]:
    """The front, with the clocks by direction, rank and kind of operation at each step time."""
    found = front.clocks
    return {
        "ranks": front.schedule.ranks,
        "microbatches": front.schedule.microbatches,
        "paths": found.paths,
        "front": [
            {
                "step_time_s": float(found.step_time[row]),
                "energy_j": float(found.energy[row]),
                "one_clock_energy_j": float(front.one_clock_energy[row]),
                "saved": float(front.saved[row]),
                "price_w": float(found.price[row]),
                "converged": bool(result_is(found.result, RESULTS.successful)[row]),
                "clocks": dict(zip(DIRECTIONS, found.clock[row].tolist(), strict=True)),
            }
            for row in range(len(found.step_time))
        ],
    }


def stage_clocks_csv(front: StageFront) -> str:
    """A line for each clock: step time [s], direction, rank, kind of operation, clock as a share of the reference."""
    clocks = zip(front.clocks.step_time, front.clocks.clock, strict=True)
    rows = (
        (float(time), DIRECTIONS[direction], rank, kind, float(clock))
        for time, of_time in clocks
        for (direction, rank, kind), clock in np.ndenumerate(of_time)
    )
    return csv_text([COLUMNS, *rows])


def stage_clocks_figure(front: StageFront, kind: str) -> bytes:
    """Energy against step time, with clocks by rank and with one clock, as "svg" or "png"."""
    drawn = figure.new_figure()
    axes = figure.add_axes(drawn)
    found = front.clocks
    axes.plot(found.step_time, front.one_clock_energy / 1e6, "s--", color=figure.GRAY, label="one clock")
    axes.plot(found.step_time, found.energy / 1e6, "o-", color=figure.BLUE, label="clocks by rank")
    axes.set_xlabel("time of the passes of a step [s]")
    axes.set_ylabel("energy [MJ]")
    axes.set_title(f"Clocks by rank save up to {100.0 * float(np.max(front.saved)):.1f} %", loc="left")
    axes.legend()
    return figure.save(drawn, kind)
