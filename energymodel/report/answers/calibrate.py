"""The answer of `calibrate`: constants, errors, best settings and what to measure next; and the scenario as a file."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from energymodel.calibration.best_setting import PowerSetting
from energymodel.calibration.calibrate import Calibration
from energymodel.calibration.power_population import architecture_of
from energymodel.errors import InputError
from energymodel.report import toml_text
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Column, number, present, share, words
from energymodel.units import counted

MOST_GROUPS = 20
MOST_PREDICTIONS = 16
DRAWN_CURVES = 5
BARS = 15
MOST_POINTS = 500  # of a figure of residuals
LOG_SPAN = 100.0  # of an axis, from which on it is logarithmic
COMMANDS = {
    "nvidia": ("nvidia-smi -pl", "nvidia-smi -lgc"),
    "amd": ("rocm-smi --setpoweroverdrive", "rocm-smi --setperfdeterminism"),
}
"""What sets a power limit [W] and a clock [MHz], by lineage."""
HEADER = "# Measured numbers over those of a preset: a scenario for evaluate, optimize and others, or an --accelerator."
BEST_NOTE = "Changes from the same batch at the highest setting; a lower one must save more than the held-out error."


def calibrate_answer(fitted: Calibration) -> Answer:
    """Fitted constants in numbers."""
    constants, ratios = constants_parts(fitted)
    tables, charts = [constants], [ratios]
    if fitted.rows:
        errors, of_groups = errors_parts(fitted)
        tables.append(errors)
        charts = [*present(of_groups), *charts]
    if fitted.best.settings:
        curves, of_curves = curves_parts(fitted)
        tables += [best_table(fitted), curves]
        charts = [of_curves, *charts]
    if fitted.predictions:
        cells = {
            words("group"): [of.group for of in fitted.predictions],
            Column("batch"): [of.batch for of in fitted.predictions],
            Column("amount"): [(of.amount, of.low, of.high) for of in fitted.predictions],
            words("unit", ""): [of.unit for of in fitted.predictions],
        }
        tables.append(Table.of("predictions", "Predicted amount to the target", cells, MOST_PREDICTIONS))
    if fitted.best.asked:
        tables.append(asked_table(fitted))
    if fitted.rows and fitted.residuals:
        residuals, of_rows = residuals_parts(fitted)
        tables, charts = [*tables, residuals], [*charts, *of_rows]
    return Answer(
        "calibrate",
        f"Calibration of kind {fitted.kind}: {fitted.source}",
        Sentence(f"{counted(fitted.rows, 'row') if fitted.rows else 'nothing fitted'}, priors of {fitted.base}"),
        _sentences(fitted),
        tables,
        charts,
        inputs=fitted.tables,
        result="successful" if fitted.converged else "not converged",
        message="" if fitted.converged else fitted.message,
    )


def _sentences(fitted: Calibration) -> list[Sentence]:
    """How well it predicts, what to set, what is no surer than before, what to measure next, and what was assumed."""
    means = fitted.held_out_mean or fitted.in_fit
    of = f"for a {fitted.group_word} that was held out" if fitted.held_out_mean else "in the fit"
    numbers = {name: share(error / 100.0) for name, error in means.items()}
    errors = Sentence(f"The mean error {of} is: {', '.join(f'{name} {{{name}}}' for name in means)}.", numbers)
    form, unchanged = fitted.case.form, ", ".join(of.name for of in fitted.constants if not of.updated)
    levels = {name: number(of) for name, of in zip(("after", "before"), fitted.common, strict=False)}
    common = f"{fitted.case.common} as a whole are {{after:i}} times those of the prior, which allowed {{before:i}}."
    return [
        *([errors] if means else []),
        *([] if form is None else [Sentence(f"Form: {form.name}, since {form.reason}")]),
        *commands(fitted),
        *(Sentence(f"Next run of {work} on {device}: batch {batch:g}.") for device, work, batch in fitted.best.runs),
        *([Sentence(common, levels)] if levels else []),
        *([Sentence(f"No surer than before these measurements: {unchanged}.")] if unchanged and fitted.rows else []),
        Sentence(
            f"Measure next: {fitted.next_setting}. It reduces the variance of {fitted.case.candidates.of} by {{gain}}.",
            {"gain": share(fitted.next_gain)},
        ),
        *map(Sentence, fitted.notes),
    ]


def constants_parts(fitted: Calibration) -> tuple[Table, Chart]:
    """Fitted constants with their intervals beside the priors, and as multiples of them."""
    constants, resampled = fitted.constants, [of.bootstrap or (None, None) for of in fitted.constants]
    amounts = [(of.value, *of.ends) for of in constants]
    is_scaled = [of.prior > 0.0 and of.value > 0.0 for of in constants]
    ratios = [
        tuple(amount / of.prior for amount in ends) if scaled else None
        for of, ends, scaled in zip(constants, amounts, is_scaled, strict=True)
    ]
    cells = {
        words("constant"): [of.name for of in constants],
        Column("value"): amounts,
        words("unit"): [of.unit for of in constants],
        words("updated", level="full"): [bool(of.updated) for of in constants],
        Column("bootstrap_low", "by resampling, from", level="full"): [low for low, _ in resampled],
        Column("bootstrap_high", "to", level="full"): [high for _, high in resampled],
        Column("prior"): [(of.prior, *of.before) for of in constants],
        Column("ratio", "over its prior", level="data"): ratios,
    }
    drawn, title = [of for of, scaled in zip(constants, is_scaled, strict=True) if scaled][:BARS], Sentence("Constants")
    if drawn:
        moved = max(drawn, key=lambda of: abs(np.log(of.value / of.prior)))
        ratio = {"ratio": number(moved.value / moved.prior)}
        title = Sentence(f"{moved.name} moved most, to {{ratio}} times its prior", ratio)
    subtitle, axis = "Constants as multiples of their priors, with 90 % intervals", "value over prior"
    look = {"only": [of.name for of in drawn], "limit": (1.0, "prior"), "axis": axis}
    chart = Chart("bars", title, "constants", "constant", ["ratio"], subtitle, **look)
    short = [row for row, of in enumerate(constants) if of.updated or not fitted.rows]
    return Table.of("constants", "Constants", cells, short=short), chart


def errors_parts(fitted: Calibration) -> tuple[Table, Chart | None]:
    """Mean error of each group that was held out, and of the fit."""
    columns = [words("group", f"{fitted.group_word} held out"), Column("rows", kind="count")]
    columns += [Column(name, name, kind="share", digits="two") for name in fitted.in_fit]
    lines = [(group.group, group.rows, group.errors) for group in fitted.held_out]
    if fitted.held_out:
        lines.append(("all, held out", sum(group.rows for group in fitted.held_out), fitted.held_out_mean))
    lines.append(("all, in the fit", fitted.rows, fitted.in_fit))
    rows = [[name, count, *(errors[of] / 100.0 for of in fitted.in_fit)] for name, count, errors in lines]
    short = [index for index in range(len(rows)) if index < MOST_GROUPS or index >= len(fitted.held_out)]
    table = Table("errors", "Mean absolute error", columns, rows, short=short)
    if not fitted.held_out:
        return table, None
    means = {name: share(error / 100.0) for name, error in fitted.held_out_mean.items()}
    listed = ", ".join(f"{name} {{{name}}}" for name in means)
    title = Sentence(f"Mean error of what was held out: {listed}", means)
    subtitle = f"Mean absolute error of each {fitted.group_word} that the others predict"
    only, axis = [group.group for group in fitted.held_out[:BARS]], "mean absolute error"
    return table, Chart("bars", title, "errors", "group", [*means], subtitle, only=only, axis=axis)


def _settings(fitted: Calibration, settings: Sequence[PowerSetting]) -> dict[Column, Any]:
    is_limit = settings[0].clock is None
    return {
        words("workload"): [of.workload for of in settings],
        words("device", level="short" if fitted.case.devices else "data"): [of.device for of in settings],
        Column("batch", kind="count"): [of.batch for of in settings],
        Column("limit", unit="W") if is_limit else Column("clock", kind="share"): [of.speed for of in settings],
    }


def best_table(fitted: Calibration) -> Table:
    """The setting of lowest energy of each workload."""
    settings = fitted.best.settings
    cells = _settings(fitted, settings)
    for name in ("energy", "time"):
        amounts = [(getattr(of, name), *(getattr(of, f"{name}_interval") if of.saves else ())) for of in settings]
        cells[Column(name, kind="change")] = [tuple(end - 1.0 for end in ends) for ends in amounts]
    return Table.of("best", "Lowest energy for the same work", cells, MOST_GROUPS, note=BEST_NOTE)


def asked_table(fitted: Calibration) -> Table:
    """Time and power of the settings that were asked about."""
    asked = fitted.best.asked
    cells = _settings(fitted, asked) | {
        Column("line", kind="count"): [of.line for of in asked],
        Column("time", unit="s"): [(of.time, *of.time_interval) for of in asked],
        Column("power", unit="W"): [(of.power, *of.power_interval) for of in asked],
        Column("energy", unit="J", level="data"): [of.energy for of in asked],
    }
    return Table.of("settings", "Predicted time and power", cells, MOST_PREDICTIONS)


def curves_parts(fitted: Calibration) -> tuple[Table, Chart]:
    """Energy for the same work against the limit or clock of the first workloads: predicted, measured and lowest."""
    settings, rows = fitted.best.settings[:DRAWN_CURVES], []
    for curve, best in zip(fitted.best.curves, settings, strict=False):
        workload = f"{f'{best.device}, ' if fitted.case.devices else ''}{best.workload}"
        predicted = zip(curve.speed, zip(curve.energy, curve.low, curve.high, strict=True), strict=True)
        rows += [[f"{workload}, batch {best.batch:g}", *point] for point in predicted]
        measured = sorted(zip(curve.measured_speed, curve.measured, strict=True))
        rows += [[f"measured, {workload}", *point] for point in measured]
        rows.append([f"lowest, {workload}", best.speed, best.energy])
    speed, setting = Column("speed", "clock, of the highest", kind="share"), "clock"
    if settings[0].clock is None:
        speed, setting = Column("speed", "power limit", "W"), "power limit"
    columns = [words("series", ""), speed, Column("energy", kind="share")]
    saving = {"saving": share(1.0 - min(best.energy for best in settings))}
    title = Sentence(f"A lower {setting} saves up to {{saving}} of the energy", saving)
    subtitle, look = "Energy for the same work, over that at the highest setting", {"series": "series", "lines": True}
    table = Table("curves", "Energy about the best settings", columns, rows, level="data")
    return table, Chart("plane", title, "curves", "speed", ["energy"], subtitle, **look)


def residuals_parts(fitted: Calibration) -> tuple[Table, list[Chart]]:
    """Errors of the fit by row: prediction over measurement, less one."""
    label, along = fitted.along
    errors = {name: np.expm1(error) for name, error in fitted.residuals.items()}
    order = np.argsort(along, kind="stable")
    order = order[:: -(-len(order) // MOST_POINTS)]
    cells: dict[Column, Any] = {words("group", fitted.group_word): [str(fitted.groups[row]) for row in order]}
    cells[Column("along", label)] = along[order]
    cells |= {Column(name, name, kind="change"): error[order] for name, error in errors.items()}
    log, charts = ["along"] if along.min() > 0.0 and along.max() > LOG_SPAN * along.min() else [], []
    for name, error in errors.items():
        half, look = {"half": share(np.median(np.abs(error)))}, {"hover": ["group", name], "log": log, "axis": "error"}
        title = f"Half of the rows have an error of {name} below {{half}}"
        subtitle = f"Predicted {name} over measured, less one"
        charts.append(Chart("plane", Sentence(title, half), "residuals", "along", [name], subtitle, **look))
    return Table.of("residuals", "Errors of the fit", cells, level="data"), charts


def commands(fitted: Calibration) -> list[Sentence]:
    """What to type on each device for the setting that most of its workloads have as best."""
    lines = []
    for device in dict.fromkeys(setting.device for setting in fitted.best.settings):
        own = [setting for setting in fitted.best.settings if setting.device == device and setting.saves]
        whose = f"{device}: " if fitted.case.devices else ""
        if not own:
            lines.append(Sentence(f"{whose}No lower setting is sure to save energy: leave the device as it is."))
            continue
        # Of several best settings the highest: it costs no workload more time than its own best.
        highest = max(own, key=lambda setting: setting.speed)
        command = _command(device, highest, float(np.max(fitted.case.along[1])))
        low, high = highest.energy_interval
        numbers = {
            "saving": share((1.0 - highest.energy, 1.0 - high, 1.0 - low)),
            "time": number(highest.time - 1.0, kind="change"),
        }
        text = f"{whose}{command} saves {{saving:i}} of the energy of {highest.workload}, batch {highest.batch:g}, for "
        lines.append(Sentence(f"{text}{{time}} time.", numbers))
    return lines


def _command(device: str, best: PowerSetting, highest_clock: float) -> str:
    """What sets a limit [W], or a clock of which the highest is given [MHz]."""
    kind = architecture_of(device)
    if kind is not None and kind.lineage not in COMMANDS:
        return f"A limit of {round(best.speed)} W" if best.clock is None else f"A clock of {round(100 * best.speed)} %"
    limit, clock = COMMANDS["nvidia" if kind is None else kind.lineage]
    return f"{limit} {round(best.speed)}" if best.clock is None else f"{clock} {round(best.speed * highest_clock)}"


def calibration_toml(fitted: Calibration) -> str:
    """A scenario file with the calibrated numbers over the prior's.

    **Raises:** `InputError` for measurements of several devices, of which a scenario has one.
    """
    if fitted.case.devices:
        raise InputError(
            f"{fitted.source} holds {', '.join(fitted.case.devices)}; a scenario has one accelerator. Write it with "
            f"--where gpu={fitted.case.devices[0]}, or all results to a .json file."
        )
    return f"{HEADER}\n{toml_text.dumps(fitted.tables)}"
