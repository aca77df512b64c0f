"""Figures of costs by batch and of energy by tokens."""

from typing import Any

import numpy as np
from figures import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, add_axes, new_figure

STYLES = {"energy": (GREEN, "-", "o"), "money": (ORANGE, (0, (5, 2)), "s"), "time": (BLUE, (0, (1.5, 1.5)), "^")}
TOP = 1.4
LINES = (
    ("landauer_operation_j", "Landauer: operations", BLUE, "-"),
    ("landauer_source_j", "Landauer: source's N H", PURPLE, (0, (5, 2))),
    ("cmos_wall_j", "CMOS wall", GRAY, "-"),
    ("landauer_overwrite_j", "Landauer: overwriting", RED, (0, (1.5, 1.5))),
    ("landauer_model_j", "Landauer: model bits", GREEN, (0, (6, 2, 1.5, 2))),
)
POWERS = {"1 kW": 1e3, "1 MW": 1e6, "1 GW": 1e9}
DEADLINE = 100.0 * 86400.0


def batch_figure(curves: list[Any]) -> Any:
    """Energy, money and time over their least, one panel for each scenario."""
    columns = 2
    rows = -(-len(curves) // columns)
    figure = new_figure(7.0, 1.75 * rows + 0.5)
    for number, curve in enumerate(curves):
        axes = add_axes(figure, rows, columns, number + 1)
        row = curve.row
        for name, (color, dashes, marker) in STYLES.items():
            axes.plot(curve.batch, curve.relative[name], color=color, linestyle=dashes, linewidth=1.6, label=name)
            axes.plot(row[f"{name}_token"], 1.0, marker, color=color, markersize=6, clip_on=False, zorder=5)
        axes.axvline(row["own_token"], color="black", linewidth=0.9, label="the run's own batch")
        axes.axvspan(
            curve.batch[0],
            row["least_token"],
            color="#bbbbbb",
            alpha=0.45,
            linewidth=0,
            label="below the smallest batch of the layout",
        )
        axes.set_xscale("log")
        axes.set_xlim(curve.batch[0], curve.batch[-1])
        axes.set_ylim(0.95, TOP)
        axes.set_title(curve.title, fontsize=9, loc="left")
        if number % columns == 0:
            axes.set_ylabel("cost over least")
        if number >= len(curves) - columns:
            axes.set_xlabel("batch [token]")
    labels = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(labels.values(), labels.keys(), loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    return figure


def ladder_figure(ladder: list[dict[str, Any]], runs: list[dict[str, Any]], exponents: dict[str, float]) -> Any:
    """Energy against tokens: plans of today above, bounds below."""
    figure = new_figure(7.0, 4.6)
    axes = add_axes(figure, 1, 1, 1)
    tokens = np.array([row["tokens_effective"] for row in ladder])

    def label(title: str, energies: Any, key: str, color: str) -> None:
        power = f"$D^{{{exponents[key]:.2f}}}$"
        axes.annotate(
            f"{title}, {power}",
            (tokens[-1], energies[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            color=color,
            va="center",
            fontsize=8,
            annotation_clip=False,
        )

    for name, color, marker in (("h100", ORANGE, "o"), ("b200", "black", "s")):
        own = [row for row in runs if row["hardware"] == name]
        energies = np.array([row["energy_j"] for row in own])
        axes.plot(tokens, energies, color=color, linewidth=1.6)
        for row in own:
            face = color if row["within_100_days"] else "white"
            axes.plot(row["tokens_effective"], row["energy_j"], marker, color=color, markerfacecolor=face, markersize=5)
        label(f"{name.upper()} today", energies * (2.5 if name == "h100" else 0.2), name, color)
    for key, title, color, dashes in LINES:
        energies = np.array([row[key] for row in ladder])
        axes.plot(tokens, energies, color=color, linestyle=dashes, linewidth=1.6)
        label(title, energies, key.removesuffix("_j"), color)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("effective tokens D, with the compute-optimal model")
    axes.set_ylabel("energy of the run [J]")
    axes.set_yticks(10.0 ** np.arange(-12, 19, 3))
    axes.minorticks_off()
    axes.set_xlim(7e8, 1.3e15)
    for name, power in POWERS.items():
        axes.axhline(power * DEADLINE, color="#999999", linewidth=0.8, linestyle=(0, (1, 3)), zorder=0)
        words = f"{name} for 100 days"
        axes.text(8e8, 1.3 * power * DEADLINE, words, color="#555555", fontsize=7.5, va="bottom")
    for words, face in (("within 100 days", "black"), ("takes years: failures", "white")):
        axes.plot([], [], "s", color="black", markerfacecolor=face, markersize=5, label=words)
    axes.legend(loc=(0.56, 0.2), fontsize=8, frameon=False)
    return figure
