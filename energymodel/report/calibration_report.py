"""How are fitted constants shown: tables, JSON, a scenario file, a figure of residuals?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from energymodel.calibration.best_setting import BestSetting, PredictedSetting
from energymodel.calibration.calibrate import Calibration
from energymodel.calibration.calibrated_scenario import FittedConstant
from energymodel.calibration.calibration_case import PredictedAmount
from energymodel.calibration.power_population import architecture_of
from energymodel.errors import InputError
from energymodel.report import toml_text
from energymodel.report.figure import BLUE, add_axes, log_axis, new_figure, save
from energymodel.units import counted

SHOWN_GROUPS = 20
DRAWN_CURVES = 7
SHOWN_PREDICTIONS = 16
COMMANDS = {
    "nvidia": ("nvidia-smi -pl", "nvidia-smi -lgc"),
    "amd": ("rocm-smi --setpoweroverdrive", "rocm-smi --setperfdeterminism"),
}
"""What sets a power limit [W] and a clock [MHz], by lineage."""
HEADER = (
    "# Written by `energymodel calibrate`; give it to evaluate, optimize, sweep or calibrate --prior as a scenario."
)
BEST_NOTE = "Changes from the same batch at the highest setting; a lower one must save more than the held-out error."


def calibration_report(found: Calibration) -> RenderableType:
    """Constants, errors of held-out groups, what to measure next."""
    form = found.case.form
    what = f"{counted(found.rows, 'row')} of {found.source}" if found.rows else f"nothing fitted to {found.source}"
    parts: list[RenderableType] = [Text(f"{found.kind}: {what}, priors of {found.base}", style="bold")]
    if form is not None:
        parts.append(Text(f"form: {form.name}, since {form.reason}"))
    parts += ["", constants_table(found), ""]
    if found.rows:
        parts += [errors_table(found), ""]
    if found.predictions:
        parts += [predictions_table(found.predictions), ""]
    if found.best.settings:
        parts += [best_table(found), Text(BEST_NOTE, style="dim"), "", *map(Text, commands(found))]
        parts += [Text(f"Next run of {one.workload} on {one.device}: batch {one.batch:g}.") for one in found.best.runs]
        parts.append("")
    if found.best.asked:
        parts += [asked_table(found), ""]
    if found.undetermined and found.rows:
        parts.append(Text(f"Not determined by these measurements: {', '.join(found.undetermined)}."))
    gain = f"{100 * found.next_gain:.0f} %"
    parts.append(Text(f"Measure next: {found.next_setting}. It reduces the variance of predictions by {gain}."))
    parts += [Text(note, style="dim") for note in found.notes]
    return Group(*parts)


def constants_table(found: Calibration) -> Table:
    """Fitted constants with their intervals beside the priors."""
    table = Table(title="Constants", title_justify="left", box=None)
    for name in ("constant", "value", "unit", "90 % interval", "by resampling", "prior"):
        table.add_column(name, justify="left" if name in ("constant", "unit") else "right", no_wrap=True)
    for one in found.constants:
        bootstrap = "" if one.bootstrap is None else _range(one.bootstrap)
        interval = _range(one.laplace) if one.laplace is not None else "not determined"
        table.add_row(escape(one.name), f"{one.value:.4g}", one.unit, interval, bootstrap, f"{one.prior:.4g}")
    return table


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"


def errors_table(found: Calibration) -> Table:
    """Mean error of each group that was held out, and of the fit."""
    table = Table(title="Mean absolute error [%]", title_justify="left", box=None)
    outputs = list(found.in_fit)
    table.add_column(f"{found.group_word} held out")
    for name in ("rows", *outputs):
        table.add_column(name, justify="right")
    for one in found.held_out[:SHOWN_GROUPS]:
        table.add_row(escape(one.group), str(one.rows), *(f"{one.errors[name]:.2f}" for name in outputs))
    if len(found.held_out) > SHOWN_GROUPS:
        table.add_row(f"... {len(found.held_out) - SHOWN_GROUPS} more: --json", "", *("" for _ in outputs))
    if found.held_out:
        counted = sum(one.rows for one in found.held_out)
        table.add_row("all, held out", str(counted), *(f"{found.held_out_mean[name]:.2f}" for name in outputs))
    table.add_row("all, in the fit", str(found.rows), *(f"{found.in_fit[name]:.2f}" for name in outputs))
    return table


def predictions_table(predictions: Sequence[PredictedAmount]) -> Table:
    """Amounts to the target at batches that were not measured."""
    table = Table(title="Predicted amount to the target", title_justify="left", box=None)
    table.add_column("group")
    for name in (f"batch [{predictions[0].unit}]", f"amount [{predictions[0].unit}]", "90 % interval"):
        table.add_column(name, justify="right")
    for one in predictions[:SHOWN_PREDICTIONS]:
        table.add_row(escape(one.group), f"{one.batch:.4g}", f"{one.amount:.4g}", _range((one.low, one.high)))
    if len(predictions) > SHOWN_PREDICTIONS:
        table.add_row(f"... {len(predictions) - SHOWN_PREDICTIONS} more: --json", "", "", "")
    return table


def best_table(found: Calibration) -> Table:
    """The setting of lowest energy of each workload."""
    best, several = found.best.settings, bool(found.case.devices)
    table = Table(title="Lowest energy for the same work, with 90 % intervals", title_justify="left", box=None)
    for name in (*(("device",) if several else ()), "workload"):
        table.add_column(name)
    for name in ("batch", "limit" if best[0].clock is None else "clock", "energy", "", "time", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for one in best[:SHOWN_GROUPS]:
        setting = f"{one.limit:g} W" if one.clock is None else f"{100 * one.clock:.0f} %"
        cells = (
            text
            for ratio, (low, high) in ((one.energy, one.energy_interval), (one.time, one.time_interval))
            for text in (_change(ratio), f"{_change(low)} to {_change(high)}" if one.saves else "")
        )
        named = (escape(one.device),) if several else ()
        table.add_row(*named, escape(one.workload), f"{one.batch:g}", setting, *cells)
    if len(best) > SHOWN_GROUPS:
        table.add_row(f"... {len(best) - SHOWN_GROUPS} more: --json")
    return table


def asked_table(found: Calibration) -> Table:
    """Time and power of the settings that were asked about."""
    table = Table(title="Predicted time and power, with 90 % intervals", title_justify="left", box=None)
    for name in ("line", "workload", "batch", "setting", "time [s]", "", "power [W]", ""):
        table.add_column(name, justify="left" if name == "workload" else "right", no_wrap=True)
    for one in found.best.asked[:SHOWN_PREDICTIONS]:
        setting = f"{one.limit:g} W" if one.clock is None else f"{100 * one.clock:.0f} %"
        ends = _range(one.time_interval), _range(one.power_interval)
        cells = (f"{one.time:.4g}", ends[0], f"{one.power:.4g}", ends[1])
        table.add_row(str(one.line), escape(one.workload), f"{one.batch:g}", setting, *cells)
    if len(found.best.asked) > SHOWN_PREDICTIONS:
        table.add_row("...", f"{len(found.best.asked) - SHOWN_PREDICTIONS} more: --json")
    return table


def _asked_json(one: PredictedSetting) -> dict[str, Any]:
    setting = {"power_limit_w": one.limit} if one.clock is None else {"clock_share": one.clock}
    values = {"time_s": one.time, "time_s_90": list(one.time_interval)}
    values |= {"power_w": one.power, "power_w_90": list(one.power_interval), "energy_j": one.time * one.power}
    return {"line": one.line, "device": one.device, "workload": one.workload, "batch": one.batch, **setting, **values}


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def commands(found: Calibration) -> list[str]:
    """What to type on each device for the setting that most of its workloads have as best."""
    lines = []
    for device in dict.fromkeys(one.device for one in found.best.settings):
        own = [one for one in found.best.settings if one.device == device and one.saves]
        whose = f"{device}: " if found.case.devices else ""
        if not own:
            lines.append(f"{whose}No lower setting is sure to save energy: leave the device as it is.")
            continue
        # Of several best settings the highest: it costs no workload more time than its own best.
        highest = max(own, key=lambda one: one.speed)
        command = _command(device, highest, float(np.max(found.case.along[1])))
        low, high = highest.energy_interval
        lines.append(
            f"{whose}{command} saves {100 * (1 - highest.energy):.0f} % of the energy of {highest.workload}, batch "
            f"{highest.batch:g} (90 % interval {100 * (1 - high):.0f} to {100 * (1 - low):.0f} %), for "
            f"{_change(highest.time)} time."
        )
    return lines


def _command(device: str, best: BestSetting, highest_clock: float) -> str:
    """What sets a limit [W], or a clock of which the highest is given [MHz]."""
    kind = architecture_of(device)
    if kind is not None and kind.lineage not in COMMANDS:
        return f"A limit of {best.speed:.0f} W" if best.clock is None else f"A clock of {100 * best.speed:.0f} %"
    limit, clock = COMMANDS["nvidia" if kind is None else kind.lineage]
    return f"{limit} {best.speed:.0f}" if best.clock is None else f"{clock} {best.speed * highest_clock:.0f}"


def calibration_json(found: Calibration) -> dict[str, Any]:
    """Everything as a tree."""
    return {
        "kind": found.kind,
        "source": found.source,
        "base": found.base,
        "rows": found.rows,
        **({} if found.case.form is None else {"form": found.case.form._asdict()}),
        "constants": {one.name: _constant_json(one) for one in found.constants},
        "undetermined": list(found.undetermined),
        "held_out_error_percent": {
            "by": found.group_word,
            "mean": dict(found.held_out_mean),
            "groups": {one.group: {"rows": one.rows, **one.errors} for one in found.held_out},
        },
        "in_fit_error_percent": dict(found.in_fit),
        **({"predictions": [one._asdict() for one in found.predictions]} if found.predictions else {}),
        **({"predictions": [_asked_json(one) for one in found.best.asked]} if found.best.asked else {}),
        "next_measurement": {"setting": found.next_setting, "variance_reduction": found.next_gain},
        "least_energy": [_best_json(one) for one in found.best.settings],
        **({"commands": commands(found)} if found.best.settings else {}),
        **({"next_runs": [one._asdict() for one in found.best.runs]} if found.best.runs else {}),
        "converged": found.converged,
        "notes": list(found.notes),
        "scenario": dict(found.tables),
    }


def _best_json(one: BestSetting) -> dict[str, Any]:
    setting = {"power_limit_w": one.limit} if one.clock is None else {"clock_share": one.clock}
    ratios = {"energy_ratio": one.energy, "time_ratio": one.time}
    intervals = {"energy_ratio_90": list(one.energy_interval), "time_ratio_90": list(one.time_interval)}
    return {"device": one.device, "workload": one.workload, "batch": one.batch, **setting, **ratios, **intervals}


def _constant_json(one: FittedConstant) -> dict[str, Any]:
    return {
        "value": one.value,
        "unit": one.unit,
        "prior": one.prior,
        "determined": one.determined,
        "laplace_90": None if one.laplace is None else list(one.laplace),
        "bootstrap_90": None if one.bootstrap is None else list(one.bootstrap),
    }


def calibration_toml(found: Calibration) -> str:
    """A scenario file with the calibrated numbers over the prior's.

    **Raises:** `InputError` for measurements of several devices, of which a scenario has one.
    """
    if found.case.devices:
        raise InputError(
            f"{found.source} holds {', '.join(found.case.devices)}; a scenario has one accelerator. Write it with "
            f"--where gpu={found.case.devices[0]}, or all results to a .json file."
        )
    return f"{HEADER}\n{toml_text.dumps(found.tables)}"


def residual_figure(found: Calibration, kind: str) -> bytes:
    """Errors of the fit by row, one panel for each output, the median of each group's as a line; of kind `power` the
    energy over limits or clocks as well.
    """
    residuals = found.residuals if found.rows else {}
    panels = len(residuals) + bool(found.best.curves)
    figure = new_figure(4.0 * max(panels, 1.5), 3.6)
    label, along = found.along
    for place, (name, error) in enumerate(residuals.items()):
        axes = add_axes(figure, 1, panels, place + 1)
        axes.plot(along, 100.0 * np.expm1(error), ".", color=BLUE, alpha=0.5)
        for word in dict.fromkeys(found.groups.tolist()):
            rows = found.groups == word
            places = np.unique(along[rows])
            medians = [100.0 * np.median(np.expm1(error[rows & (along == one)])) for one in places]
            axes.plot(places, medians, "-", lw=0.8, color="0.5")
        axes.axhline(0.0, color="black", lw=0.8)
        axes.set(xlabel=label, ylabel=f"predicted {name} over measured, less one [%]", title=name)
        if along.min() > 0 and along.max() / along.min() > 100:
            log_axis(axes, "x")
    if found.best.curves:
        _draw_energy(found, add_axes(figure, 1, panels, panels))
    return save(figure, kind)


def _draw_energy(found: Calibration, axes: Any) -> None:
    """Energy for the same work against the limit or clock, predicted with its interval and measured."""
    for place, (curve, best) in enumerate(
        list(zip(found.best.curves, found.best.settings, strict=True))[:DRAWN_CURVES]
    ):
        color = f"C{place}"
        named = f"{curve.device}, {curve.workload}" if found.case.devices else curve.workload
        axes.plot(curve.speed, curve.energy, "-", color=color, label=f"{named}, batch {curve.batch:g}")
        axes.fill_between(curve.speed, curve.low, curve.high, color=color, alpha=0.12, lw=0)
        axes.plot(curve.measured_speed, curve.measured, ".", color=color, ms=5)
        axes.plot([best.speed], [best.energy], "o", mfc="none", color=color, ms=9)
    unit = "power limit [W]" if found.best.settings[0].clock is None else "clock, of the highest"
    axes.set(xlabel=unit, ylabel="energy over that at the highest", title="Energy for the same work (circle: best)")
    axes.legend(fontsize=6, loc="lower right")
