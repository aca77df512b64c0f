"""How is a run over time shown: as a table, as rows, as a figure?"""

from typing import Any

import numpy as np
from rich.table import Table

from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.system.trajectory import RunTrajectory
from energymodel.units import format_quantity

COLUMNS = {
    "time": "time_s",
    "progress": "progress",
    "batch": "batch_tokens",
    "tokens": "tokens",
    "token_rate": "tokens_per_s",
    "loss": "loss_nat_per_token",
    "loss_rate": "loss_rate_nat_per_token_s",
    "information": "information_bit",
    "information_rate": "information_rate_bit_per_s",
    "power": "power_w",
    "energy": "energy_j",
    "energy_per_bit": "energy_per_bit_j_per_bit",
    "money": "money_usd",
    "carbon": "carbon_kg",
}
"""Name of each column in files, with its unit."""

DAY = 86_400.0  # [s]
NOTE = "The loss is that of a run that ends there, with its learning rate decayed."


def trajectory_table(run: RunTrajectory) -> Table:
    """Rows of the run over time."""
    table = Table(title="Run over time", title_justify="left", caption=NOTE, caption_justify="left", box=None)
    shown = {"time": (run.time, "s"), "tokens": (run.tokens, "token")}
    if np.ptp(run.batch) > 0.0:
        shown["batch"] = (run.batch, "token")
    shown |= {
        "learned": (run.information_rate, "bit/s"),
        "power": (run.power, "W"),
        "energy": (run.energy, "J"),
        "next bit": (run.energy_per_bit, "J/bit"),
        "money": (run.money, "USD"),
        "carbon": (run.carbon, "kg"),
    }
    table.add_column("loss", justify="right", no_wrap=True)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for row, loss in enumerate(run.loss):
        cells = (format_quantity(float(column[row]), unit) for column, unit in shown.values())
        table.add_row(f"{float(loss):.4f}", *cells)
    return table


def trajectory_json(run: RunTrajectory) -> dict[str, Any]:
    """Each column as a list, with its unit in the key."""
    return {COLUMNS[name]: np.asarray(column).tolist() for name, column in run._asdict().items()}


def trajectory_csv(run: RunTrajectory) -> str:
    """A line for each time."""
    rows = zip(*(np.asarray(column).tolist() for column in run), strict=True)
    return csv_text([[COLUMNS[name] for name in run._fields], *rows])


def trajectory_figure(run: RunTrajectory, kind: str) -> bytes:
    """Loss, information rate, power, and energy with money against time, as "svg" or "png"."""
    drawn = figure.new_figure(8.0, 5.5)
    days = np.asarray(run.time) / DAY
    panels = (
        ("loss [nat/token]", run.loss),
        ("information absorbed [kbit/s]", np.asarray(run.information_rate) / 1e3),
        ("power of the building [MW]", np.asarray(run.power) / 1e6),
        ("energy of the next bit [J/bit]", run.energy_per_bit),
    )
    for place, (title, values) in enumerate(panels, 1):
        axes = figure.add_axes(drawn, 2, 2, place)
        axes.plot(days, values, "o-", markersize=3, color=figure.BLUE)
        axes.set_title(title, loc="left")
        axes.set_xlim(0.0, days[-1])
        if place > 2:
            axes.set_xlabel("time [days]")
        else:
            axes.tick_params(labelbottom=False)
        if title.startswith("power"):
            axes.set_ylim(0.0, 1.15 * float(np.max(values)))
    return figure.save(drawn, kind)
