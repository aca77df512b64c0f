"""How is the division of a site's power shown: as a table, as rows, as a figure?"""

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text
from energymodel.scenarios.scenario import Scenario
from energymodel.search.site import DividedPower, SiteSplit
from energymodel.units import format_quantity

PARTS = {
    "compute": "compute",
    "memory": "memory",
    "network": "links",
    "host": "host",
    "delivery_loss": "delivery",
    "cooling": "cooling",
    "other": "other",
}
"""Parts of the power of a site, and what a table calls them."""
NOTHING = 1e-6  # token/J: a limit that does not bind


def site_power_report(scenario: Scenario, divided: Sequence[DividedPower]) -> RenderableType:
    """A column for each limit: what it brings, the parts of the power, and the settings."""
    table = Table(box=None, title="The site's power, divided", title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("limit", no_wrap=True)
    for one in divided:
        table.add_column(format_quantity(one.limit, "W"), justify="right", no_wrap=True)
    for title, cells in _lines([one.split for one in divided]).items():
        table.add_row(title, *cells)
    note = (
        "A static division: every part may draw its share at any moment. The next watt brings the same throughput "
        "wherever it goes, in tokens per joule. Throughput is that of kernels, memory and links together, without "
        "bubbles, failures and fixed times; the widths of memory and links are powered shares."
    )
    return Group(Text(scenario.title, style="bold"), "", table, "", Text(note))


def _lines(splits: Sequence[SiteSplit]) -> dict[str, list[str]]:
    """Cells of each line of the table."""
    lines = {
        "throughput": [format_quantity(float(one.throughput), "token/s") for one in splits],
        "the next watt": [
            f"{float(one.price):.3g} token/J" if float(one.price) > NOTHING else "nothing" for one in splits
        ],
        "power": [format_quantity(float(one.power.total), "W") for one in splits],
    }
    for name, title in PARTS.items():
        shares = [float(getattr(one.power, name)) / float(one.power.total) for one in splits]
        lines[f"  {title}"] = [f"{100.0 * share:.3g} %" for share in shares]
    choices = [one.choice for one in splits]
    lines["clock"] = [f"{float(one.clock):.3f}" for one in choices]
    lines["width of memory"] = [f"{100.0 * float(one.memory_width):.0f} %" for one in choices]
    lines["width of links"] = [f"{100.0 * float(one.network_width):.0f} %" for one in choices]
    lines["coolant"] = [format_quantity(float(one.coolant_temperature), "K") for one in choices]
    return lines


def site_power_rows(divided: Sequence[DividedPower]) -> list[dict[str, float]]:
    """The same numbers in SI, with the unit in each key."""
    return [
        {
            "limit_w": one.limit,
            "throughput_token_per_s": float(one.split.throughput),
            "price_token_per_j": float(one.split.price),
            "clock": float(one.split.choice.clock),
            "memory_width": float(one.split.choice.memory_width),
            "network_width": float(one.split.choice.network_width),
            "coolant_temperature_k": float(one.split.choice.coolant_temperature),
            "temperature_k": float(one.split.choice.temperature),
            **{f"{name}_w": float(getattr(one.split.power, name)) for name in PARTS},
        }
        for one in divided
    ]


def site_power_csv(divided: Sequence[DividedPower]) -> str:
    """The rows as CSV."""
    rows = site_power_rows(divided)
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])


def site_power_figure(divided: Sequence[DividedPower], kind: str) -> bytes:
    """A stacked bar of the power at each limit, by where it goes, as "svg" or "png"."""
    ordered = sorted(divided, key=lambda one: one.limit)
    drawn = figure.new_figure(6.8, 4.2)
    axes = figure.add_axes(drawn)
    places, below = np.arange(len(ordered)), np.zeros(len(ordered))
    for (name, title), color in zip(PARTS.items(), (*figure.COLORS, "#bbbbbb"), strict=True):
        power = np.array([float(getattr(one.split.power, name)) for one in ordered]) / 1e6
        axes.bar(places, power, 0.7, bottom=below, color=color, label=title)
        below += power
    axes.set_xticks(places, [format_quantity(one.limit, "W") for one in ordered])
    axes.set_xlabel("limit of the site")
    axes.set_ylabel("power [MW]")
    axes.set_title("Division of highest throughput", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure.save(drawn, kind)
