"""What does the page of a calibration say?"""

import numpy as np

from energymodel.calibration.calibrate import Calibration
from energymodel.report.calibration_report import (
    BEST_NOTE,
    asked_table,
    best_table,
    commands,
    constants_table,
    errors_table,
    predictions_table,
)
from energymodel.report.charts import AbstractChart, Axis, Bar, GroupedBars, Lines, Part, Point, Series
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.markup import bullets, paragraph, terminal_table

DRAWN_CURVES = 5
MOST_POINTS = 500  # of a figure
BARS = 15


def calibration_page(found: Calibration, command: str) -> Page:
    """The page of a fit: constants, errors of held-out groups, residuals, best settings, what to measure next."""
    errors, first = errors_chart(found), calibration_chart(found)
    residuals = [figure(residual_chart(found, name)) for name in (found.residuals if found.rows else {})]
    constants = figure(constants_chart(found)) if found.constants else ""
    return Page(
        title=f"Calibration of kind {found.kind}: {found.source}",
        answer=f"{found.rows:,} rows, priors of {found.base}",
        summary=calibration_sentences(found),
        figure=first,
        sections=[
            Section("Best settings", _best(found)),
            Section(
                "Constants", constants + terminal_table(constants_table(found), title=False) + _undetermined(found)
            ),
            Section(
                "Errors",
                (figure(errors) if errors is not None and errors != first else "")
                + (terminal_table(errors_table(found)) if found.rows else "")
                + "".join(residuals),
            ),
            Section("Predictions", _predictions(found)),
            Section("Notes", bullets(found.notes)),
        ],
        command=command,
    )


def calibration_chart(found: Calibration) -> AbstractChart:
    """Best settings where there are any, else errors of what was held out, else the constants."""
    return energy_chart(found) or errors_chart(found) or constants_chart(found)


def _best(found: Calibration) -> str:
    if not found.best.settings:
        return ""
    return terminal_table(best_table(found), title=False) + paragraph(BEST_NOTE, "em-muted") + bullets(commands(found))


def _undetermined(found: Calibration) -> str:
    if not (found.undetermined and found.rows):
        return ""
    return paragraph(f"Not determined by these measurements: {', '.join(found.undetermined)}.")


def _predictions(found: Calibration) -> str:
    amounts = terminal_table(predictions_table(found.predictions)) if found.predictions else ""
    return amounts + (terminal_table(asked_table(found)) if found.best.asked else "")


def calibration_sentences(found: Calibration) -> list[str]:
    """Three sentences: how well it predicts, what was learned, what to measure next."""
    means = found.held_out_mean or found.in_fit
    of = f"for a {found.group_word} that was held out" if found.held_out_mean else "in the fit"
    errors = ", ".join(f"{name} {error:.1f} %" for name, error in means.items())
    sentences = [f"The mean error {of} is: {errors}."] if errors else []
    if not found.converged:
        sentences.append(found.message)
    first = commands(found)[:1] if found.best.settings else []
    return [
        *sentences,
        *first,
        f"Measure next: {found.next_setting}; it reduces the variance of predictions by "
        f"{100.0 * found.next_gain:.0f} %.",
    ]


def constants_chart(found: Calibration) -> GroupedBars:
    """Constants with their intervals, over their priors."""
    kept = [one for one in found.constants if one.prior > 0.0 and one.value > 0.0][:BARS]

    def part(value: float, prior: float, interval: tuple[float, float] | None) -> Part:
        low, high = (None, None) if interval is None else (interval[0] / prior, interval[1] / prior)
        return Part("", value / prior, low, high)

    groups = tuple(Bar(one.name, (part(one.value, one.prior, one.laplace),)) for one in kept)
    moved = max(kept, key=lambda one: abs(np.log(one.value / one.prior))) if kept else None
    title = f"{moved.name} moved most, to {moved.value / moved.prior:.2g} times its prior" if moved else "Constants"
    subtitle = "Constants as multiples of their priors, with 90 % intervals"
    return GroupedBars(title, "1", groups, subtitle, "value over prior", (1.0, "prior"))


def errors_chart(found: Calibration) -> GroupedBars | None:
    """Mean error of each group that was held out."""
    if not found.held_out:
        return None
    kept = found.held_out[:BARS]
    groups = tuple(
        Bar(one.group, tuple(Part(name, error / 100.0) for name, error in one.errors.items())) for one in kept
    )
    means = ", ".join(f"{name} {error:.1f} %" for name, error in found.held_out_mean.items())
    title = f"Mean error of what was held out: {means}"
    subtitle = f"Mean absolute error of each {found.group_word} that the others predict"
    return GroupedBars(title, "%", groups, subtitle, "mean absolute error")


def residual_chart(found: Calibration, name: str) -> Lines:
    """Error of each row of an output."""
    label, along = found.along
    error = np.expm1(found.residuals[name])
    order = np.argsort(along, kind="stable")
    kept = order[:: -(-len(order) // MOST_POINTS)]
    points = tuple(Point(float(along[place]), float(error[place]), _words(found, int(place))) for place in kept)
    half = float(np.median(np.abs(error)))
    title = f"Half of the rows have an error of {name} below {100.0 * half:.1f} %"
    log = bool(along.min() > 0 and along.max() / along.min() > 100)
    subtitle = f"Predicted {name} over measured, less one: {len(points):,} of {len(order):,} rows of the fit"
    return Lines(
        title, Axis(label, "1", log=log), Axis("error", "%", zero=True), (Series(name, points, "points"),), subtitle
    )


def _words(found: Calibration, place: int) -> str:
    return f"{found.group_word} {found.groups[place]}"


def energy_chart(found: Calibration) -> AbstractChart | None:
    """Energy for the same work against the limit or clock, predicted with its interval, and measured."""
    curves = list(zip(found.best.curves, found.best.settings, strict=True))[:DRAWN_CURVES]
    if not curves:
        return None
    series = []
    for curve, _ in curves:
        name = f"{curve.workload}, batch {curve.batch:g}"
        name = f"{curve.device}, {name}" if found.case.devices else name
        rows = zip(curve.speed, curve.energy, curve.low, curve.high, strict=True)
        series.append(Series(name, tuple(Point(float(x), float(y), "", "", float(a), float(b)) for x, y, a, b in rows)))
    lowest = tuple(Point(best.speed, best.energy, f"{best.workload}: {100 * best.energy:.1f} %") for _, best in curves)
    series.append(Series("lowest energy", lowest, "points"))
    curve, best = curves[0]
    measured = zip(curve.measured_speed, curve.measured, strict=True)
    name = f"measured, {curve.workload}"
    series.append(Series(name, tuple(Point(float(x), float(y)) for x, y in measured), "points"))
    is_limit = best.clock is None
    axes = Axis("power limit", "W") if is_limit else Axis("clock, of the highest", "%"), Axis("energy", "%")
    setting, saved = "power limit" if is_limit else "clock", 1.0 - min(one.y for one in lowest)
    title = f"A lower {setting} saves up to {100.0 * saved:.0f} % of the energy"
    return Lines(title, *axes, tuple(series), "Energy for the same work, over that at the highest setting")
