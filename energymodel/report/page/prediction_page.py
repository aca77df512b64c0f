"""What does the page of predicted steps say: of one configuration, or of a table?"""

import numpy as np

from energymodel.calibration.step_prediction import TablePrediction
from energymodel.report.charts import Axis, Bar, GroupedBars, Lines, Part, Point, Series
from energymodel.report.fields import total
from energymodel.report.intervals import with_interval
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.evaluate_page import evaluate_page
from energymodel.report.page.limits_parts import rooms_chart
from energymodel.report.page.markup import bullets, paragraph, paragraphs, terminal_table
from energymodel.report.page.spending import OWN, time_bars
from energymodel.report.page.step_parts import step_section
from energymodel.report.page.sureness import sureness_section
from energymodel.report.prediction_report import error_lines, steps_table
from energymodel.report.run_prediction_report import RunPrediction, prediction_table
from energymodel.sweeps.outcome_spread import LEVEL
from energymodel.units import format_quantity

BARS = 20
ROWS = 500  # of the table
MOST_POINTS = 500  # of the figure; more are thinned out by their measured time
OF_A_STEP = ("step_time", "mfu", "power_busy", "power_average", "power_peak", "pue", "memory_per_chip")
"""Outputs that no number of tokens changes."""
FITS, RISKY = "fits in memory", "out-of-memory risk above 50 %"


def run_prediction_page(found: RunPrediction, command: str, notes: tuple[str, ...] = ()) -> Page:
    """The page of one configuration: whether it fits, what steps, tokens and the run take, and the rest of a run."""
    scenario, outcome = found.scenario, found.outcome
    first = Section("Prediction", terminal_table(prediction_table(found)) + bullets(notes))
    step = time_bars({OWN: (scenario.plan, outcome)})
    if found.of_whole_run:
        page = evaluate_page(scenario, outcome, found.spread, command)
        summary, sections = [found.verdict, *page.summary[:2]], [first, *page.sections]
        return page._replace(answer=_first(found), summary=summary, figure=step, sections=sections)
    low, high = found.spread.interval("step_time")
    time = with_interval(total(outcome.step_time), low, high, "s", LEVEL)
    room = rooms_chart(outcome, but="information")  # which follows from the tokens
    return Page(
        title=scenario.title,
        answer=_first(found),
        summary=[
            found.verdict,
            f"A step takes {time}.",
            "Nothing says how long the run is: costs are for each step and token.",
        ],
        figure=step,
        sections=[
            first,
            step_section(scenario, scenario.plan),
            Section("Room to the limits", figure(room) if room is not None else ""),
            sureness_section(scenario, found.spread, OF_A_STEP, "step_time"),
        ],
        command=command,
    )


def _first(found: RunPrediction) -> str:
    time = format_quantity(total(found.outcome.step_time), "s", digits=3)
    return f"A step takes {time}, at {100.0 * float(found.outcome.mfu):.0f} % model FLOP utilization"


def table_prediction_page(found: TablePrediction, source: str, command: str) -> Page:
    """The page of a table: predicted beside measured, errors, all rows."""
    chart = step_times_chart(found)
    errors = error_lines(found)
    rows = len(found.measured_time)
    risky = int(np.sum(found.predicted["out_of_memory_probability"] > 0.5))
    summary = [f"{rows:,} layouts are predicted; {risky:,} of them have an out-of-memory risk above 50 %.", *errors[:2]]
    table = steps_table(found, ROWS)
    more = f"{ROWS} of {rows:,} rows are shown; -o steps.csv writes all." if rows > ROWS else ""
    return Page(
        title=f"Predicted steps of {source}",
        answer=f"{rows:,} layouts",
        summary=summary,
        figure=chart,
        sections=[
            Section("Errors", paragraphs(errors)),
            Section("Rows", terminal_table(table, title=False) + paragraph(more)),
            Section("Notes", bullets(found.read.notes)),
        ],
        command=command,
    )


def step_times_chart(found: TablePrediction) -> Lines | GroupedBars:
    """Predicted beside measured step times; the fastest rows where none was measured."""
    return measured_chart(found) or steps_chart(found)


def measured_chart(found: TablePrediction) -> Lines | None:
    """Predicted against measured step times, beside the line where both are equal."""
    measured, predicted = found.measured_time, found.predicted["step_time_s"]
    places = [place for place in np.flatnonzero(np.isfinite(measured)) if measured[place] > 0.0]
    if not places:
        return None
    errors = [abs(predicted[place] / measured[place] - 1.0) for place in places]
    shown = sorted(places, key=lambda place: measured[place])
    shown = shown[:: -(-len(shown) // MOST_POINTS)]
    lows, highs = found.predicted["step_time_low_s"], found.predicted["step_time_high_s"]

    def row(place: int) -> Point:
        time, true = float(predicted[place]), float(measured[place])
        words = f"line {found.read.lines[place]}: predicted {format_quantity(time, 's')}, measured "
        words += f"{format_quantity(true, 's')} ({100.0 * (time / true - 1.0):+.1f} %)"
        ends = (float(lows[place]), float(highs[place])) if np.isfinite(lows[place]) else (None, None)
        return Point(true, time, words, "", *ends)

    points = tuple(row(int(place)) for place in shown)
    both = [value for point in points for value in (point.x, point.y)]
    ends = Point(min(both), min(both)), Point(max(both), max(both))
    title = f"Predicted step times are {100.0 * float(np.mean(errors)):.1f} % from measured ones in the mean"
    subtitle = f"{len(points):,} of {len(places):,} measured rows, with 90 % intervals where they are known"
    axes = Axis("measured step time", "s", log=True), Axis("predicted step time", "s", log=True)
    series = (Series("rows", points, "points"), Series("equal", ends))
    return Lines(title, *axes, series, subtitle)


def steps_chart(found: TablePrediction) -> GroupedBars:
    """Predicted step times of the fastest rows."""
    times, risks = found.predicted["step_time_s"], found.predicted["out_of_memory_probability"]
    order = np.argsort(times, kind="stable")[:BARS]

    def part(place: int) -> Part:
        ends = (float(found.predicted[f"step_time_{end}_s"][place]) for end in ("low", "high"))
        low, high = (None if np.isnan(end) else end for end in ends)
        return Part(RISKY if risks[place] > 0.5 else FITS, float(times[place]), low, high)

    groups = tuple(Bar(f"line {found.read.lines[place]}", (part(int(place)),)) for place in order)
    title = f"The fastest layout takes {format_quantity(float(times[order[0]]), 's')} for a step"
    return GroupedBars(title, "s", groups, f"Step times of the {len(order)} fastest rows", "step time")
