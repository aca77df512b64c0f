"""How is a fleet of unlike devices shown: its groups, what they do together, and what each limit is worth?"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report import figure
from energymodel.report.json_tree import csv_text, outcome_json
from energymodel.search.fleet import Fleet
from energymodel.search.fleet_search import FleetOptimum
from energymodel.system.fleet import FleetOutcome
from energymodel.system.outcome import TrainingOutcome
from energymodel.units import format_quantity

QUANTITIES = {
    "time": ("s", lambda one: one.time),
    "energy": ("J", lambda one: one.energy.total),
    "money": ("USD", lambda one: one.money),
    "carbon": ("kg", lambda one: one.carbon),
    "average power": ("W", lambda one: one.power_average),
    "peak power": ("W", lambda one: one.power_peak),
    "step": ("s", lambda one: one.step_time.total),
}
NOTHING = 5e-4  # percent for a percent: a limit that does not bind


class ShownFleet(NamedTuple):
    """A fleet with its outcome, other outcomes to compare by what a column calls them, and the search if there was one.

    A replica of each group takes so many `microbatches` in a step, whole ones after a search.
    """

    fleet: Fleet
    outcome: FleetOutcome
    beside: Mapping[str, TrainingOutcome]
    optimum: FleetOptimum | None = None

    @property
    def microbatches(self) -> list[float]:
        """Micro-batches of a replica of each group in a step [1]."""
        plan, workload = self.fleet.main.plan, self.fleet.main.system.workload
        size = float(plan.layout.microbatch) * float(workload.sequence)
        tokens = float(np.reshape(plan.batch, ())) * np.asarray(self.outcome.share)
        return [float(one / (group.replicas * size)) for one, group in zip(tokens, self.fleet.groups, strict=True)]


def as_planned(fleet: Fleet) -> ShownFleet:
    """The fleet with its own clocks, beside even shares of a batch and the first group alone."""
    outcome = fleet.evaluate()
    even = fleet.evaluate(np.ones(len(fleet.groups)))
    alone = {f"{fleet.groups[0].name} alone": fleet.evaluate_alone()}
    return ShownFleet(fleet, outcome, {"even shares": even.whole, **alone})


def of_search(optimum: FleetOptimum) -> ShownFleet:
    """The plan found, beside the fleet as planned, even shares of a batch, and the first group alone."""
    beside = {"own clocks": optimum.own.whole, "even shares": optimum.even.whole}
    beside[f"{optimum.fleet.groups[0].name} alone"] = optimum.alone
    return ShownFleet(optimum.fleet, optimum.found, beside, optimum)


def fleet_report(shown: ShownFleet) -> RenderableType:
    """Groups, totals beside others, and prices of limits."""
    parts: list[RenderableType] = [Text(shown.fleet.main.title, style="bold"), "", _groups_table(shown), ""]
    batch = format_quantity(float(np.reshape(shown.fleet.main.plan.batch, ())), "token")
    parts += [_totals_table(shown), "", Text(f"The batch of all groups is {batch}.")]
    if shown.optimum:
        parts += [Text(line) for line in _price_lines(shown.optimum)]
    parts.append(
        Text(
            "Whoever ends a step early waits for the others; gradients are exchanged over the slowest network. Limits "
            "of memory and temperature hold for each group, those of the building for all together."
        )
    )
    return Group(*parts)


def _table(title: str) -> Table:
    return Table(box=None, title=title, title_justify="left", title_style="bold", pad_edge=False)


def _groups_table(shown: ShownFleet) -> Table:
    table = _table("Groups")
    table.add_column("", no_wrap=True)
    for row in fleet_rows(shown):
        table.add_column(row["group"], justify="right")
    rows = fleet_rows(shown)
    table.add_row("chips", *(f"{row['chips']:,.0f}" for row in rows))
    table.add_row("replicas", *(f"{row['replicas']:,.0f}" for row in rows))
    table.add_row("micro-batches of a replica", *(f"{row['microbatches']:.4g}" for row in rows))
    table.add_row("share of the tokens", *(f"{100.0 * row['token_share']:.1f} %" for row in rows))
    table.add_row("clock", *(f"{row['clock']:.3f}" for row in rows))
    table.add_row("power of a busy chip", *(format_quantity(row["busy_power_w"], "W") for row in rows))
    table.add_row("waits, of a step", *(f"{100.0 * row['waiting_share']:.1f} %" for row in rows))
    table.add_row("share of the energy", *(f"{100.0 * row['energy_share']:.1f} %" for row in rows))
    table.add_row("memory of a chip", *(format_quantity(row["memory_b"], "B") for row in rows))
    table.add_row("temperature", *(format_quantity(row["temperature_k"], "K") for row in rows))
    return table


def _totals_table(shown: ShownFleet) -> Table:
    table = _table("Together")
    columns = {"found" if shown.optimum else "fleet": shown.outcome.whole, **shown.beside}
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for name, (unit, read) in QUANTITIES.items():
        table.add_row(name, *(format_quantity(float(read(one)), unit) for one in columns.values()))
    return table


def _price_lines(optimum: FleetOptimum) -> list[str]:
    lines = [] if optimum.success else [optimum.message]
    for name, price in optimum.prices.items():
        worth = f"{price:.3g} % less {optimum.minimize}" if price > NOTHING else "nothing"
        lines.append(f"A limit of {name} higher by 1 % brings {worth}.")
    return lines


def fleet_rows(shown: ShownFleet) -> list[dict[str, Any]]:
    """A row for each group, in SI with the unit in each key."""
    found = shown.outcome
    chips = np.array([float(one.scenario.plan.chips) for one in shown.fleet.groups])
    shares = chips / np.sum(chips)
    energy = np.array([np.asarray(one.energy.total) for one in found.groups]) * shares
    exchange, step = np.asarray(found.whole.step_time.data), np.asarray(found.whole.step_time.total)
    return [
        {
            "group": group.name,
            "chips": float(chips[place]),
            "replicas": group.replicas,
            "microbatches": shown.microbatches[place],
            "token_share": float(found.share[place]),
            "clock": float(np.asarray(found.groups[place].clock)),
            "busy_power_w": float(np.asarray(found.groups[place].power_busy)),
            "waiting_share": max(0.0, 1.0 - (float(found.work_time[place]) + exchange) / step),
            "energy_share": float(energy[place] / np.sum(energy)),
            "memory_b": float(np.asarray(found.groups[place].memory_per_chip)),
            "temperature_k": float(np.asarray(found.groups[place].temperature)),
            "least_slack": min(float(np.asarray(one)) for one in vars(found.groups[place].slack).values()),
        }
        for place, group in enumerate(shown.fleet.groups)
    ]


def fleet_json(shown: ShownFleet) -> dict[str, Any]:
    """Groups, the outcome of all, those beside it, and the answer of the search."""
    tree: dict[str, Any] = {
        "groups": fleet_rows(shown),
        "batch_tokens": float(np.reshape(shown.fleet.main.plan.batch, ())),
        "outcome": outcome_json(shown.outcome.whole),
        "beside": {name: outcome_json(one) for name, one in shown.beside.items()},
    }
    if (optimum := shown.optimum) is not None:
        tree |= {"minimize": optimum.minimize, "limits": dict(optimum.limits), "prices": dict(optimum.prices)}
        tree |= {"success": optimum.success, "message": optimum.message}
    return tree


def fleet_csv(shown: ShownFleet) -> str:
    """The rows as CSV."""
    rows = fleet_rows(shown)
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])


def fleet_figure(shown: ShownFleet, kind: str) -> bytes:
    """Shares of chips, tokens and energy of each group, stacked, as "svg" or "png"."""
    rows = fleet_rows(shown)
    total = sum(row["chips"] for row in rows)
    shares = [[row["chips"] / total, row["token_share"], row["energy_share"]] for row in rows]
    drawn = figure.new_figure(6.4, 2.8)
    axes = figure.add_axes(drawn)
    places, below = np.arange(3), np.zeros(3)
    colors = (figure.COLORS * 2)[: len(rows)]
    for row, share, color in zip(rows, shares, colors, strict=True):
        axes.barh(places, 100.0 * np.array(share), 0.6, left=below, color=color, label=row["group"])
        below += 100.0 * np.array(share)
    axes.set_yticks(places, ["chips", "tokens", "energy"])
    axes.invert_yaxis()
    axes.set_xlabel("share [%]")
    axes.set_title("What each group has, does and takes", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure.save(drawn, kind)
