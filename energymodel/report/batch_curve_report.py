"""How is a run at several batches shown: as a table with the best ones, as rows, as a figure?"""

from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.sweeps.batch_curve import BatchCurve, BestBatch
from energymodel.units import format_quantity

COLUMNS = (
    *("batch_tokens", "tokens", "steps", "time_s", "energy_j", "money_usd", "carbon_kg", "power_average_w"),
    *("tokens_per_s", "break_even_tokens_per_s", "break_even_power_w"),
)
BAR, HIGHEST = 0.03, 1.8  # of the lowest value: distance of the bars of a figure, and its upper end


def batch_curve_report(curve: BatchCurve) -> RenderableType:
    """Each batch, then the best one for each objective."""
    table = Table(
        title="To the same loss with the same layout, chips and clock; batch in tokens", title_justify="left", box=None
    )
    for name in ("batch", "tokens", "time", "energy", "money", "throughput", "to break even", "pays in"):
        table.add_column(name, justify="right", no_wrap=True)
    outcome, own = curve.outcome, curve.own
    energy, totals = np.asarray(outcome.energy.total), {}
    for name, values, mine in (
        ("time", outcome.time, own.time),
        ("energy", energy, own.energy.total),
        ("money", outcome.money, own.money),
    ):
        totals[name] = np.asarray(values) < float(np.asarray(mine)) * (1.0 - 1e-9)
    columns = zip(
        *(np.asarray(one) for one in (curve.batch, outcome.tokens, outcome.time, energy, outcome.money)),
        *(np.asarray(one) for one in (outcome.token_rate, curve.break_even_rate)),
        strict=True,
    )
    for row, (batch, tokens, time, joules, money, rate, needed) in enumerate(columns):
        table.add_row(
            _short(float(batch), "token"),
            f"{100.0 * (float(tokens / own.tokens) - 1.0):+.1f} %",
            format_quantity(float(time), "s"),
            format_quantity(float(joules), "J"),
            format_quantity(float(money), "USD"),
            _short(float(rate), "token/s"),
            _short(float(needed), "token/s"),
            " ".join(name for name, pays in totals.items() if pays[row]) or "nothing",
        )
    return Group(table, "", Text("\n".join(best_line(name, best) for name, best in curve.best.items())))


def _short(value: float, unit: str) -> str:
    """A count of tokens, or tokens per second, without the word."""
    return format_quantity(value, unit).replace(" tokens", "").replace(" token", "")


def best_line(name: str, best: BestBatch) -> str:
    """The batch with the lowest value of an objective, in one sentence."""
    shown = format_quantity(best.batch, "token")
    saves = f"saves {100.0 * best.saving:.2g} % beside the plan's own" if best.saving > 1e-6 else "saves nothing"
    low, high = (format_quantity(one, "token") for one in best.flat)
    flat = f"From {low} to {high} it is within 0.1 %."
    if best.at_edge < 0:
        return f"Lowest {name}: {shown}, the fewest micro-batches that the layout runs; {saves}. {flat}"
    if best.at_edge > 0:
        return f"Lowest {name}: {shown}, the largest batch tried, or a larger one; {saves}. {flat}"
    ends = " to ".join(format_quantity(one, "token") for one in (best.low, best.high))
    return f"Lowest {name}: {shown} (90 %: {ends}), above which a larger batch stops to pay; {saves}. {flat}"


def _rows(curve: BatchCurve) -> list[list[float]]:
    outcome = curve.outcome
    columns = (
        *(curve.batch, outcome.tokens, outcome.steps, outcome.time, outcome.energy.total, outcome.money),
        *(outcome.carbon, outcome.power_average, outcome.token_rate, curve.break_even_rate, curve.break_even_power),
    )
    return np.stack([np.asarray(column) for column in columns], axis=1).tolist()


def batch_curve_json(curve: BatchCurve) -> dict[str, Any]:
    """All batches, and the best one for each objective."""
    return {
        "batches": [dict(zip(COLUMNS, row, strict=True)) for row in _rows(curve)],
        "best": {
            name: {
                "batch_tokens": best.batch,
                "interval_tokens": [best.low, best.high],
                "within_0.1_percent_tokens": list(best.flat),
                "saving": best.saving,
                "edge": {-1: "fewest micro-batches", 0: None, 1: "largest tried"}[best.at_edge],
            }
            for name, best in curve.best.items()
        },
    }


def batch_curve_csv(curve: BatchCurve) -> str:
    """A line for each batch."""
    return csv_text([COLUMNS, *_rows(curve)])


def batch_curve_figure(curve: BatchCurve, kind: str) -> bytes:
    """Time, energy and money over their lowest values against batch, with the best batches, as "svg" or "png"."""
    drawn = figure.new_figure(6.8, 4.2)
    axes = figure.add_axes(drawn)
    outcome = curve.outcome
    totals = {"time": outcome.time, "energy": outcome.energy.total, "money": outcome.money}
    for place, ((name, values), color) in enumerate(zip(totals.items(), figure.COLORS, strict=False), 1):
        best, values = curve.best[name], np.asarray(values)
        axes.plot(curve.batch, values / values.min(), "o-", markersize=3, color=color, label=name)
        if best.at_edge == 0:
            below = 1.0 - BAR * place
            axes.plot([best.low, best.high], [below, below], color=color, linewidth=2.0)
            axes.plot([best.batch], [below], "D", markersize=4, color=color)
    axes.set_ylim(1.0 - 4.0 * BAR, HIGHEST)
    figure.log_axis(axes, "x")
    axes.set_xlim(curve.batch[0], curve.batch[-1])
    axes.set_xlabel("batch [token]; bars: the best one with its 90 % interval")
    axes.set_ylabel("over the lowest value")
    axes.set_title("Runs to the same loss", loc="left")
    axes.legend()
    return figure.save(drawn, kind)
