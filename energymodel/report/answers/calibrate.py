"""The answer of `calibrate`: constants, errors, best settings and what to measure next; and the scenario as a file."""

import numpy as np

from energymodel.calibration.best_setting import PowerSetting
from energymodel.calibration.calibrate import Calibration
from energymodel.calibration.power_population import architecture_of
from energymodel.errors import InputError
from energymodel.report import toml_text
from energymodel.report.answer import DATA, FULL, Answer, Cell, Chart, Column, Quantity, Sentence, Table
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
HEADER = (
    "# Written by `energymodel calibrate`; give it to evaluate, optimize, sweep or calibrate --prior as a scenario."
)
BEST_NOTE = "Changes from the same batch at the highest setting; a lower one must save more than the held-out error."
_RATIO = Column("ratio", "over its prior", level=DATA)
_CONSTANTS = (
    Column("constant", "constant", kind="words"),
    Column("value", "value"),
    Column("unit", "unit", kind="words"),
    Column("determined", "determined", kind="words"),
    Column("bootstrap_low", "by resampling, from", level=FULL),
    Column("bootstrap_high", "to", level=FULL),
    Column("prior", "prior"),
    _RATIO,
)
_SHARE = Column("", "", kind="share", digits="two")
_CHANGE = Column("", "", kind="change")


def calibrate_answer(fitted: Calibration) -> Answer:
    """Fitted constants in numbers."""
    best, tables, charts = fitted.best, [constants_table(fitted)], [_constants_chart(fitted)]
    if fitted.rows:
        tables.append(errors_table(fitted))
    if fitted.held_out:
        charts.insert(0, _errors_chart(fitted))
    if best.settings:
        tables += [best_table(fitted), curves_table(fitted)]
        charts.insert(0, _curves_chart(fitted))
    if fitted.predictions:
        tables.append(predictions_table(fitted))
    if best.asked:
        tables.append(asked_table(fitted))
    if fitted.rows and fitted.residuals:
        tables.append(residuals_table(fitted))
        charts += [_residuals_chart(fitted, name) for name in fitted.residuals]
    measured = f"{counted(fitted.rows, 'row')}" if fitted.rows else "nothing fitted"
    return Answer(
        "calibrate",
        f"Calibration of kind {fitted.kind}: {fitted.source}",
        Sentence(f"{measured}, priors of {fitted.base}"),
        _sentences(fitted),
        tables,
        charts,
        inputs=fitted.tables,
        result="successful" if fitted.converged else "not converged",
        message="" if fitted.converged else fitted.message,
    )


def _sentences(fitted: Calibration) -> list[Sentence]:
    """How well it predicts, what to set, what is not determined, what to measure next, and what was assumed."""
    means = fitted.held_out_mean or fitted.in_fit
    of = f"for a {fitted.group_word} that was held out" if fitted.held_out_mean else "in the fit"
    numbers = {name: (_SHARE, Quantity(error / 100.0)) for name, error in means.items()}
    errors = Sentence(f"The mean error {of} is: {', '.join(f'{name} {{{name}}}' for name in means)}.", numbers)
    form, undetermined = fitted.case.form, ", ".join(fitted.undetermined)
    gain = {"gain": (_SHARE, Quantity(fitted.next_gain))}
    return [
        *([errors] if means else []),
        *([] if form is None else [Sentence(f"Form: {form.name}, since {form.reason}")]),
        *commands(fitted),
        *(Sentence(f"Next run of {run.workload} on {run.device}: batch {run.batch:g}.") for run in fitted.best.runs),
        *([Sentence(f"Not determined by these measurements: {undetermined}.")] if undetermined and fitted.rows else []),
        Sentence(f"Measure next: {fitted.next_setting}. It reduces the variance of predictions by {{gain}}.", gain),
        *map(Sentence, fitted.notes),
    ]


def constants_table(fitted: Calibration) -> Table:
    """Fitted constants with their intervals beside the priors."""
    rows = [
        [
            constant.name,
            _quantity(constant.value, constant.laplace),
            constant.unit,
            "yes" if constant.determined else "no",
            *([None, None] if constant.bootstrap is None else map(Quantity, constant.bootstrap)),
            Quantity(constant.prior),
            _over_prior(constant.value, constant.prior, constant.laplace),
        ]
        for constant in fitted.constants
    ]
    return Table("constants", "Constants", _CONSTANTS, rows)


def _over_prior(value: float, prior: float, ends: tuple[float, float] | None) -> Quantity | None:
    if not (prior > 0.0 and value > 0.0):
        return None
    return _quantity(value / prior, None if ends is None else (ends[0] / prior, ends[1] / prior))


def _quantity(value: float, ends: tuple[float, float] | None) -> Quantity:
    low, high = ends or (None, None)
    return Quantity(value, low, high)


def _constants_chart(fitted: Calibration) -> Chart:
    """Constants with their intervals, over their priors."""
    drawn = [constant for constant in fitted.constants if constant.prior > 0.0 and constant.value > 0.0][:BARS]
    title = Sentence("Constants")
    if drawn:
        moved = max(drawn, key=lambda constant: abs(np.log(constant.value / constant.prior)))
        ratio = {"ratio": (_RATIO, Quantity(moved.value / moved.prior))}
        title = Sentence(f"{moved.name} moved most, to {{ratio}} times its prior", ratio)
    return Chart(
        "bars",
        title,
        "constants",
        "constant",
        ["ratio"],
        "Constants as multiples of their priors, with 90 % intervals",
        only=[constant.name for constant in drawn],
        limit=(1.0, "prior"),
        axis="value over prior",
    )


def errors_table(fitted: Calibration) -> Table:
    """Mean error of each group that was held out, and of the fit."""
    outputs = list(fitted.in_fit)
    columns = [
        Column("group", f"{fitted.group_word} held out", kind="words"),
        Column("rows", "rows", kind="count"),
        *(Column(name, name, kind="share", digits="two") for name in outputs),
    ]
    lines = [(group.group, group.rows, group.errors) for group in fitted.held_out]
    if fitted.held_out:
        lines.append(("all, held out", sum(group.rows for group in fitted.held_out), fitted.held_out_mean))
    lines.append(("all, in the fit", fitted.rows, fitted.in_fit))
    rows = [
        [name, Quantity(float(count)), *(Quantity(errors[output] / 100.0) for output in outputs)]
        for name, count, errors in lines
    ]
    count = len(fitted.held_out)
    short = [index for index in range(len(rows)) if index < MOST_GROUPS or index >= count]
    return Table("errors", "Mean absolute error", columns, rows, short=short)


def _errors_chart(fitted: Calibration) -> Chart:
    """Mean error of each group that was held out."""
    means = {name: (_SHARE, Quantity(error / 100.0)) for name, error in fitted.held_out_mean.items()}
    words = ", ".join(f"{name} {{{name}}}" for name in means)
    return Chart(
        "bars",
        Sentence(f"Mean error of what was held out: {words}", means),
        "errors",
        "group",
        list(means),
        f"Mean absolute error of each {fitted.group_word} that the others predict",
        only=[group.group for group in fitted.held_out[:BARS]],
        axis="mean absolute error",
    )


def predictions_table(fitted: Calibration) -> Table:
    """Amounts to the target at batches that were not measured."""
    unit = fitted.predictions[0].unit
    columns = [
        Column("group", "group", kind="words"),
        Column("batch", "batch"),
        Column("amount", "amount"),
        Column("unit", "", kind="words"),
    ]
    rows = [
        [amount.group, Quantity(amount.batch), Quantity(amount.amount, amount.low, amount.high), unit]
        for amount in fitted.predictions
    ]
    short = range(min(len(rows), MOST_PREDICTIONS))
    return Table("predictions", "Predicted amount to the target", columns, rows, short=short)


def _setting_columns(fitted: Calibration, *, by_limit: bool) -> list[Column]:
    return [
        Column("workload", "workload", kind="words"),
        Column("device", "device", kind="words", level=0 if fitted.case.devices else DATA),
        Column("batch", "batch", kind="count"),
        Column("limit", "limit", "W") if by_limit else Column("clock", "clock", kind="share"),
    ]


def _setting(setting: PowerSetting) -> list[Cell]:
    speed = setting.limit if setting.clock is None else setting.clock
    return [setting.workload, setting.device, Quantity(setting.batch), None if speed is None else Quantity(speed)]


def best_table(fitted: Calibration) -> Table:
    """The setting of lowest energy of each workload."""
    settings = fitted.best.settings
    columns = [
        *_setting_columns(fitted, by_limit=settings[0].clock is None),
        Column("energy", "energy", kind="change"),
        Column("time", "time", kind="change"),
    ]
    rows = [
        [
            *_setting(setting),
            _change(setting.energy, setting.energy_interval if setting.saves else None),
            _change(setting.time, setting.time_interval if setting.saves else None),
        ]
        for setting in settings
    ]
    short = range(min(len(rows), MOST_GROUPS))
    return Table("best", "Lowest energy for the same work", columns, rows, short=short, note=BEST_NOTE)


def _change(ratio: float, ends: tuple[float, float] | None) -> Quantity:
    return _quantity(ratio - 1.0, None if ends is None else (ends[0] - 1.0, ends[1] - 1.0))


def asked_table(fitted: Calibration) -> Table:
    """Time and power of the settings that were asked about."""
    asked = fitted.best.asked
    columns = [
        *_setting_columns(fitted, by_limit=asked[0].clock is None),
        Column("line", "line", kind="count"),
        Column("time", "time", "s"),
        Column("power", "power", "W"),
        Column("energy", "energy", "J", level=DATA),
    ]
    rows = [
        [
            *(*_setting(setting), Quantity(float(setting.line)), Quantity(setting.time, *setting.time_interval)),
            *(Quantity(setting.power, *setting.power_interval), Quantity(setting.energy)),
        ]
        for setting in asked
    ]
    short = range(min(len(rows), MOST_PREDICTIONS))
    return Table("settings", "Predicted time and power", columns, rows, short=short)


def curves_table(fitted: Calibration) -> Table:
    """Energy for the same work against the limit or clock of the first workloads: predicted, measured and lowest."""
    by_limit = fitted.best.settings[0].clock is None
    speed = Column("speed", "power limit", "W") if by_limit else Column("speed", "clock, of the highest", kind="share")
    columns = [Column("series", "", kind="words"), speed, Column("energy", "energy", kind="share")]
    rows: list[list[Cell]] = []
    for curve, best in list(zip(fitted.best.curves, fitted.best.settings, strict=True))[:DRAWN_CURVES]:
        device = f"{best.device}, " if fitted.case.devices else ""
        ends = zip(curve.low, curve.high, strict=True)
        points = list(zip(curve.speed, curve.energy, ends, strict=True))
        measured = sorted(zip(curve.measured_speed, curve.measured, strict=True))
        lines = {
            f"{device}{best.workload}, batch {best.batch:g}": points,
            f"measured, {device}{best.workload}": [(x, y, None) for x, y in measured],
            f"lowest, {device}{best.workload}": [(best.speed, best.energy, None)],
        }
        rows += [
            [name, Quantity(float(x)), _quantity(float(energy), ends)]
            for name, line in lines.items()
            for x, energy, ends in line
        ]
    return Table("curves", "Energy about the best settings", columns, rows, level=DATA)


def _curves_chart(fitted: Calibration) -> Chart:
    settings = fitted.best.settings
    setting = "power limit" if settings[0].clock is None else "clock"
    saving = {"saving": (_SHARE, Quantity(1.0 - min(best.energy for best in settings[:DRAWN_CURVES])))}
    return Chart(
        "plane",
        Sentence(f"A lower {setting} saves up to {{saving}} of the energy", saving),
        "curves",
        "speed",
        ["energy"],
        "Energy for the same work, over that at the highest setting",
        series="series",
        lines=True,
    )


def residuals_table(fitted: Calibration) -> Table:
    """Errors of the fit by row: prediction over measurement, less one."""
    label, along = fitted.along
    order = np.argsort(along, kind="stable")
    errors = [np.expm1(error) for error in fitted.residuals.values()]
    columns = [
        Column("group", fitted.group_word, kind="words"),
        Column("along", label),
        *(Column(name, name, kind="change") for name in fitted.residuals),
    ]
    rows = [
        [str(fitted.groups[row]), Quantity(float(along[row])), *(Quantity(float(error[row])) for error in errors)]
        for row in order[:: -(-len(order) // MOST_POINTS)]
    ]
    return Table("residuals", "Errors of the fit", columns, rows, level=DATA)


def _residuals_chart(fitted: Calibration, name: str) -> Chart:
    along, error = fitted.along[1], np.abs(np.expm1(fitted.residuals[name]))
    is_wide = along.min() > 0.0 and along.max() > LOG_SPAN * along.min()
    half = {"half": (_SHARE, Quantity(float(np.median(error))))}
    return Chart(
        "plane",
        Sentence(f"Half of the rows have an error of {name} below {{half}}", half),
        "residuals",
        "along",
        [name],
        f"Predicted {name} over measured, less one",
        hover=["group", name],
        log=["along"] if is_wide else [],
        axis="error",
    )


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
            "saving": (_SHARE, Quantity(1.0 - highest.energy, 1.0 - high, 1.0 - low)),
            "time": (_CHANGE, Quantity(highest.time - 1.0)),
        }
        lines.append(
            Sentence(
                f"{whose}{command} saves {{saving:i}} of the energy of {highest.workload}, batch {highest.batch:g}, "
                "for {time} time.",
                numbers,
            )
        )
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
