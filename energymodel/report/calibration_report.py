"""How are fitted constants shown: tables, JSON, a scenario file, a figure of residuals?"""

from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from energymodel.calibration.best_setting import BestSetting
from energymodel.calibration.calibrate import Calibration
from energymodel.calibration.calibrated_scenario import FittedConstant
from energymodel.report import toml_text
from energymodel.report.figure import BLUE, add_axes, new_figure, save

SHOWN_GROUPS = 20
HEADER = (
    "# Written by `energymodel calibrate`; give it to evaluate, optimize, sweep or calibrate --prior as a scenario."
)
BEST_NOTE = "Changes from the same batch at the highest setting; a lower one must save more than the held-out error."


def calibration_report(found: Calibration) -> RenderableType:
    """Constants, errors of held-out groups, what to measure next."""
    form = found.case.form
    parts: list[RenderableType] = [
        Text(f"{found.kind}: {found.rows} rows of {found.source}, priors of {found.base}", style="bold")
    ]
    if form is not None:
        parts.append(Text(f"form: {form.name}, since {form.reason}"))
    parts += ["", _constants_table(found), "", _errors_table(found), ""]
    if found.best:
        parts += [_best_table(found), Text(BEST_NOTE, style="dim"), ""]
    if found.undetermined:
        parts.append(Text(f"Not determined by these measurements: {', '.join(found.undetermined)}."))
    gain = f"{100 * found.next_gain:.0f} %"
    parts.append(Text(f"Measure next: {found.next_setting}. It reduces the variance of predictions by {gain}."))
    parts += [Text(note, style="dim") for note in found.notes]
    return Group(*parts)


def _constants_table(found: Calibration) -> Table:
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


def _errors_table(found: Calibration) -> Table:
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
        table.add_row("all, held out", str(found.rows), *(f"{found.held_out_mean[name]:.2f}" for name in outputs))
    table.add_row("all, in the fit", str(found.rows), *(f"{found.in_fit[name]:.2f}" for name in outputs))
    return table


def _best_table(found: Calibration) -> Table:
    table = Table(title="Lowest energy for the same work", title_justify="left", box=None)
    table.add_column("workload")
    for name in ("batch", "limit" if found.best[0].clock is None else "clock", "energy", "time"):
        table.add_column(name, justify="right")
    for one in found.best[:SHOWN_GROUPS]:
        setting = f"{one.limit:g} W" if one.clock is None else f"{100 * one.clock:.0f} %"
        changes = (f"{100 * (ratio - 1):+.1f} %" for ratio in (one.energy, one.time))
        table.add_row(escape(one.workload), f"{one.batch:g}", setting, *changes)
    if len(found.best) > SHOWN_GROUPS:
        table.add_row(f"... {len(found.best) - SHOWN_GROUPS} more: --json", "", "", "", "")
    return table


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
        "next_measurement": {"setting": found.next_setting, "variance_reduction": found.next_gain},
        "least_energy": [_best_json(one) for one in found.best],
        "converged": found.converged,
        "notes": list(found.notes),
        "scenario": dict(found.tables),
    }


def _best_json(one: BestSetting) -> dict[str, Any]:
    setting = {"power_limit_w": one.limit} if one.clock is None else {"clock_share": one.clock}
    ratios = {"energy_ratio": one.energy, "time_ratio": one.time}
    return {"workload": one.workload, "batch": one.batch, **setting, **ratios}


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
    """A scenario file with the calibrated numbers over the prior's."""
    return f"{HEADER}\n{toml_text.dumps(found.tables)}"


def residual_figure(found: Calibration, kind: str) -> bytes:
    """Errors of the fit by row, one panel for each output, the median of each group's as a line."""
    figure = new_figure(4.0 * len(found.residuals), 3.6)
    label, along = found.along
    for place, (name, error) in enumerate(found.residuals.items()):
        axes = add_axes(figure, 1, len(found.residuals), place + 1)
        axes.plot(along, 100.0 * np.expm1(error), ".", color=BLUE, alpha=0.5)
        for word in dict.fromkeys(found.groups.tolist()):
            rows = found.groups == word
            places = np.unique(along[rows])
            medians = [100.0 * np.median(np.expm1(error[rows & (along == one)])) for one in places]
            axes.plot(places, medians, "-", lw=0.8, color="0.5")
        axes.axhline(0.0, color="black", lw=0.8)
        axes.set(xlabel=label, ylabel=f"predicted {name} over measured, less one [%]", title=name)
        if along.min() > 0 and along.max() / along.min() > 100:
            axes.set_xscale("log")
    return save(figure, kind)
