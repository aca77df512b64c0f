"""How is a training step shown: rank by rank as a table, pass by pass as a figure and as rows?"""

from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.performance.pipeline_simulator import SimulatedPass
from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.search.timeline import Timeline
from energymodel.units import format_quantity

NAMES = {"F": "forward", "B": "backward", "I": "backward (inputs)", "W": "backward (weights)"}
COLORS = {"F": figure.BLUE, "B": figure.ORANGE, "I": figure.ORANGE, "W": figure.GREEN}
MOST_ROWS = 64
HEIGHT = 0.84  # of a rank, of the distance between two
COLUMNS = ("rank", "pass", "virtual_stage", "micro_batch", "start_s", "end_s")


def timeline_report(timeline: Timeline) -> RenderableType:
    """Each pipeline rank, then the terms of the step."""
    step, time = timeline.simulated, timeline.pipeline_time
    ranks, layers = len(step.busy), _layers_of_ranks(timeline)
    title = f"Pipeline: {timeline.schedule}, {ranks} ranks, {len(timeline.layers)} virtual stages"
    of_ranks = Table(title=title, title_justify="left")
    for name in ("rank", "layers", "working", "waiting", "of the time", "micro-batches held"):
        of_ranks.add_column(name, justify="right")
    shown = range(ranks) if ranks <= MOST_ROWS else (*range(MOST_ROWS // 2), *range(ranks - MOST_ROWS // 2, ranks))
    for rank in shown:
        waits = time - step.busy[rank]
        held = step.held[rank] * ranks / len(timeline.layers)
        of_ranks.add_row(
            f"{rank}",
            f"{layers[rank]:g}",
            format_quantity(float(step.busy[rank]), "s"),
            format_quantity(float(waits), "s"),
            f"{100.0 * waits / time:.1f} %",
            f"{held:.3g}",
        )
    terms = Table(title="Step time", title_justify="left")
    terms.add_column("term")
    terms.add_column("time", justify="right")
    terms.add_column("share", justify="right")
    total = float(np.asarray(timeline.step_time.total))
    for name, value in vars(timeline.step_time).items():
        terms.add_row(name, format_quantity(float(value), "s"), f"{100.0 * float(value) / total:.1f} %")
    terms.add_section()
    terms.add_row("total", format_quantity(total, "s"), "100 %")
    return Group(of_ranks, Text(_comparison(timeline)), terms)


def _comparison(timeline: Timeline) -> str:
    closed_form, simulated = timeline.closed_form_time, timeline.pipeline_time
    return (
        f"All passes take {format_quantity(simulated, 's')} by simulation and {format_quantity(closed_form, 's')} by "
        f"the closed form of `evaluate` ({100.0 * (closed_form / simulated - 1.0):+.1f} %).\n"
    )


def _layers_of_ranks(timeline: Timeline) -> np.ndarray:
    """Layers of each rank [1], of all its virtual stages."""
    ranks, found = len(timeline.simulated.busy), np.zeros(len(timeline.simulated.busy))
    seen = {(one.rank, one.operation.stage) for one in timeline.simulated.passes}
    for rank, stage in seen:
        found[rank] += timeline.layers[stage]
    return found if timeline.schedule != "dualpipe" else np.full(ranks, found.sum() / ranks)


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Ranks, both times, and all passes."""
    step = timeline.simulated
    return {
        "schedule": timeline.schedule,
        "pipeline_time_s": timeline.pipeline_time,
        "stated_pipeline_time_s": timeline.closed_form_time,
        "step_time_s": {name: float(value) for name, value in vars(timeline.step_time).items()},
        "ranks": [
            {"rank": rank, "layers": float(layers), "working_s": float(step.busy[rank]), "held": float(step.held[rank])}
            for rank, layers in enumerate(_layers_of_ranks(timeline))
        ],
        "passes": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(timeline)],
    }


def timeline_csv(timeline: Timeline) -> str:
    """All passes, one a line."""
    return csv_text([COLUMNS, *_rows(timeline)])


def _rows(timeline: Timeline) -> list[tuple[int, str, int, int, float, float]]:
    return [
        (one.rank, NAMES[one.operation.kind], one.operation.stage, one.operation.microbatch, one.start, one.end)
        for one in timeline.simulated.passes
    ]


def timeline_figure(timeline: Timeline, kind: str) -> bytes:
    """All passes of all ranks against time, as "svg" or "png"."""
    from matplotlib.collections import PolyCollection

    step = timeline.simulated
    ranks = len(step.busy)
    drawn = figure.new_figure(9.0, min(1.5 + 0.28 * ranks, 9.0))
    axes = figure.add_axes(drawn)
    for letter, corners in _boxes(step.passes).items():
        look = {"facecolors": COLORS[letter], "edgecolors": "white", "linewidths": 0.2}
        axes.add_collection(PolyCollection(corners, label=NAMES[letter], **look))
    axes.grid(visible=False)
    axes.set_xlim(0.0, step.time)
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("pipeline rank")
    waits = 1.0 - float(np.mean(step.busy)) / timeline.pipeline_time
    axes.set_title(f"The mean rank waits {100.0 * waits:.1f} % of the time ({timeline.schedule})", loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)
    return figure.save(drawn, kind)


def _boxes(passes: list[SimulatedPass]) -> dict[str, list[list[tuple[float, float]]]]:
    """Corners of the boxes of all passes by kind; passes that overlap in a slot share its height."""
    slots: dict[tuple[int, float], list[SimulatedPass]] = {}
    for one in passes:
        slots.setdefault((one.rank, one.start), []).append(one)
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for (rank, start), together in slots.items():
        height = HEIGHT / len(together)
        for row, one in enumerate(together):
            low = rank - 0.5 * HEIGHT + row * height
            corners = [(start, low), (one.end, low), (one.end, low + height), (start, low + height)]
            found.setdefault(one.operation.kind, []).append(corners)
    return found
