"""The best plans at sites of 5 to 150 MW, and the worth of a megawatt and a day there.

Prints three tables, draws `power_cap.png`, and writes `result.json` beside this file.
"""

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import energymodel as em
from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import Optimum
from energymodel.system.evaluate import evaluate_once
from energymodel.system.plan import TargetLoss

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, GRAY, GREEN, ORANGE, add_axes, new_figure

HERE = Path(__file__).parent
SCENARIO = "llama-3.1-405b-h100"
SITES = (5.0, 10.0, 15.0, 25.0, 40.0, 65.0, 100.0, 150.0)  # MW
MOST_CHIPS = 131072.0
PUBLISHED_BATCH = 16777216.0  # tokens
CHIP_POWER = 850.0  # W of the site for each chip, a guess: the search starts from chips between half and all of this
SLACK = 1.1  # deadline over the least time of the site
CHECKED_SITE = 25.0  # MW, where the deadline is varied
PRICED_SITE = 15.0  # MW, where the price is compared with problems solved again: its optimum is at no kink
DEADLINES = (1.02, 1.05, 1.1, 1.2, 1.4)  # over the least time, at that site
STEP = 0.01  # of the site, for the difference quotient
DAY, MEGAWATT, GWH = 86400.0, 1e6, 3.6e12
FAMILY = ("tensor", "pipeline", "virtual_stages", "context", "shard_gradients")
Family = tuple[float, ...]
Row = dict[str, Any]


def scenario_for(site: float) -> Scenario:
    """The scenario with about as many chips as the site feeds: whole replicas of the published plan."""
    replicas = 2 ** math.ceil(math.log2(site * MEGAWATT / CHIP_POWER / 128.0))
    chips = min(128 * replicas, MOST_CHIPS)
    # At least as many micro-batches as pipeline ranks, or the published layout does not run.
    batch = max(PUBLISHED_BATCH, chips / 128 * 16 * 8192.0)
    return em.load_scenario(SCENARIO, {"plan.chips": chips, "plan.batch": f"{batch} tokens"})


def best(
    site: float, loss: float, minimize: str, deadline: float | None = None, families: Sequence[Family] | None = None
) -> Optimum:
    """The best plan of a site, of all layouts or of some families; the time is free unless there is a deadline [s]."""
    limits = {"facility_power": site * MEGAWATT, "chips": MOST_CHIPS, "loss": loss}
    limits |= {} if deadline is None else {"time": deadline}
    scenario, result = scenario_for(site), []
    for family in [None] if families is None else families:
        vary = {} if family is None else {f"plan.layout.{name}": (n, n) for name, n in zip(FAMILY, family, strict=True)}
        result.append(em.optimize(scenario, minimize=minimize, limits=limits, vary=vary, tolerance=0.0))
    return least(result)


def least(optima: Sequence[Optimum]) -> Optimum:
    """The best of several answers."""
    return min(optima, key=lambda optimum: optimum.value if optimum.success else math.inf)


def families_of(optima: Sequence[Optimum]) -> list[Family]:
    """Degrees of the parallelism of some plans, with gradients sharded and whole: a search may miss one of the two."""
    degrees = {tuple(float(getattr(optimum.plan.layout, name)) for name in FAMILY[:-1]) for optimum in optima}
    return sorted((*split, sharded) for split in degrees for sharded in (0.0, 1.0))


def described(site: float, optimum: Optimum) -> Row:
    """The plan and what it costs."""
    plan, outcome, layout = optimum.plan, optimum.outcome, optimum.plan.layout
    return {
        "site_mw": site,
        "days": float(outcome.time) / DAY,
        "energy_gwh": float(np.asarray(outcome.energy.total)) / GWH,
        "money_musd": float(outcome.money) / 1e6,
        "peak_mw": float(outcome.power_peak) / MEGAWATT,
        "chips": float(plan.chips),
        "cap_w": float(outcome.power_busy),
        "clock": float(outcome.clock),
        "batch_mtok": float(plan.batch[0]) / 1e6,
        "coolant_c": float(plan.coolant_temperature) - 273.15,
        "chip_c": float(outcome.temperature) - 273.15,
        "mfu": float(outcome.mfu),
        "plan": {
            "batch": float(plan.batch[0]),
            "clock": float(plan.clock),
            "coolant_temperature": float(plan.coolant_temperature),
        },
        "layout": {name: float(getattr(layout, name)) for name in vars(layout)},
        "active": list(optimum.active),
        "gap": optimum.gap,
        "relaxed": optimum.relaxed_value,
        "runner_up": optimum.runner_up.excess if optimum.runner_up else None,
        "result": optimum.result,
    }


def published(sites: Sequence[float], loss: float) -> list[Row]:
    """The published layout, batch and full clock (700 W) with as many chips as each site feeds."""
    scenario = em.load_scenario(SCENARIO)
    own = evaluate_once(scenario.system, scenario.plan)
    replica_power = float(own.power_peak) / float(scenario.plan.chips) * 128.0
    goal = TargetLoss(np.asarray(loss))
    rows = []
    for site in sites:
        # The published batch stays where it makes whole rounds of micro-batches of so many replicas.
        replicas = math.floor(site * MEGAWATT / replica_power)
        chips, tokens = 128.0 * replicas, replicas * 8192.0
        batch = max(16, round(PUBLISHED_BATCH / tokens)) * tokens
        numbers = np.asarray(chips), np.asarray([batch]), goal
        plan = eqx.tree_at(lambda plan: (plan.chips, plan.batch, plan.goal), scenario.plan, numbers)
        outcome = evaluate_once(scenario.system, plan)
        rows.append(
            {
                "site_mw": site,
                "days": float(outcome.time) / DAY,
                "energy_gwh": float(np.asarray(outcome.energy.total)) / GWH,
                "money_musd": float(outcome.money) / 1e6,
                "chips": chips,
                "peak_mw": float(outcome.power_peak) / MEGAWATT,
            }
        )
    return rows


def elasticity(optimum: Optimum, limit: str) -> float:
    """Elasticity of the optimum to a limit, 0 where it does not bind."""
    return optimum.prices[limit].elasticity if limit in optimum.active else 0.0


def by_site(loss: float) -> dict[str, list[Row]]:
    """Least time at each site, and least energy and money with a tenth more time.

    The search over all layouts is followed by one within the families that won at this and the neighboring sites: what
    that gains, `gain`, says how much the first one missed.
    """
    fastest = _searched(loss, "time", dict.fromkeys(SITES))
    deadlines = {site: SLACK * float(optimum.outcome.time) for site, (optimum, _) in zip(SITES, fastest, strict=True)}
    rows: dict[str, list[Row]] = {"time": []}
    for site, (optimum, gain) in zip(SITES, fastest, strict=True):
        row = described(site, optimum) | {"gain": gain, "power_elasticity": elasticity(optimum, "facility_power")}
        row["days_per_mw"] = row["power_elasticity"] * row["days"] / site
        rows["time"].append(row)
    for minimize, value in (("energy", "energy_gwh"), ("money", "money_musd")):
        rows[minimize] = []
        for site, (optimum, gain) in zip(SITES, _searched(loss, minimize, deadlines), strict=True):
            row = described(site, optimum) | {"gain": gain}
            row["time_elasticity"] = elasticity(optimum, "time")
            row["power_elasticity"] = elasticity(optimum, "facility_power")
            row["per_day"] = row["time_elasticity"] * row[value] / (deadlines[site] / DAY)
            row["per_mw"] = row["power_elasticity"] * row[value] / site
            rows[minimize].append(row)
    return rows


def _searched(loss: float, minimize: str, deadlines: Mapping[float, float | None]) -> list[tuple[Optimum, float]]:
    """The best plan of each site, and by what share the search within families is better than that over all layouts."""
    first = [best(site, loss, minimize, deadlines[site]) for site in SITES]
    result = []
    for index, site in enumerate(SITES):
        families = families_of(first[max(0, index - 1) : index + 2])
        again = least([first[index], best(site, loss, minimize, deadlines[site], families)])
        result.append((again, first[index].value / again.value - 1.0))
        print(f"  least {minimize} at {site:g} MW done", flush=True)
    return result


def neighbors(rows: list[Row]) -> None:
    """Beside each price, what the multipliers of two neighbors say of the way between them, and what was found."""
    for row, following in itertools.pairwise(rows):
        ratio = math.log(following["site_mw"] / row["site_mw"])
        mean = 0.5 * (row["power_elasticity"] + following["power_elasticity"])
        row["next_by_prices"] = row["days"] * math.exp(-mean * ratio)
        row["next_found"] = following["days"]
        row["quotient"] = (row["days"] - following["days"]) / (following["site_mw"] - row["site_mw"])


def at_deadlines(loss: float, shortest: Row, families: Sequence[Family]) -> list[Row]:
    """Least money at one site for deadlines from just above the least time, within some families of layouts."""
    rows = []
    for ratio in DEADLINES:
        result = best(CHECKED_SITE, loss, "money", ratio * shortest["days"] * DAY, families)
        row = described(CHECKED_SITE, result)
        row |= {"deadline_ratio": ratio, "deadline_days": ratio * shortest["days"]}
        row["musd_per_day"] = elasticity(result, "time") * row["money_musd"] / row["deadline_days"]
        row["musd_per_mw"] = elasticity(result, "facility_power") * row["money_musd"] / CHECKED_SITE
        rows.append(row)
    return rows


def solved_again(loss: float, row: Row) -> Row:
    """Price of a megawatt against the central difference of the relaxed least time of the same family of layouts."""
    family = tuple(row["layout"][name] for name in FAMILY)
    low, middle, high = (
        best(PRICED_SITE * (1.0 + sign * STEP), loss, "time", None, [family]) for sign in (-1.0, 0.0, 1.0)
    )
    quotient = (low.relaxed_value - high.relaxed_value) / DAY / (2.0 * STEP * PRICED_SITE)
    price = elasticity(middle, "facility_power") * middle.value / DAY / PRICED_SITE
    return {"site_mw": PRICED_SITE, "price": price, "quotient": quotient}


def compute() -> dict[str, Any]:
    """All tables."""
    with jax.enable_x64(True):
        scenario = em.load_scenario(SCENARIO)
        loss = float(evaluate_once(scenario.system, scenario.plan).loss)
        old = published(SITES, loss)
        sites = by_site(loss)
        neighbors(sites["time"])
        index = SITES.index(CHECKED_SITE)
        checked = {minimize: rows[index] for minimize, rows in sites.items()}
        degrees = {tuple(checked[name]["layout"][degree] for degree in FAMILY[:-1]) for name in ("time", "money")}
        families = [(*split, sharded) for split in sorted(degrees) for sharded in (0.0, 1.0)]
        check = solved_again(loss, sites["time"][SITES.index(PRICED_SITE)])
        deadlines = at_deadlines(loss, checked["time"], families)
        return {"loss": loss, **sites, "published": old, "check": check, "deadlines": deadlines}


def layout_text(layout: Mapping[str, float]) -> str:
    """A layout in a word: degrees of tensor, pipeline x virtual_stages, context; micro-batch; ZeRO; recomputation."""
    text = "t{tensor:g} p{pipeline:g}x{virtual_stages:g} c{context:g} b{microbatch:g}".format(**layout)
    stage = sum(bool(layout[f"shard_{name}"]) for name in ("optimizer", "gradients", "parameters"))
    return f"{text} z{stage}" + " rec" * bool(layout["recompute_full"])


def table(rows: list[Row], columns: Sequence[str]) -> str:
    """Rows as aligned text."""
    cells = [list(columns)]
    for row in rows:
        line = {**row, "layout": layout_text(row["layout"]) if "layout" in row else ""}
        cells.append([_cell(line.get(name)) for name in columns])
    return outputs.aligned(cells)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(name for name in value if name != "loss") or "-"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) and value < 1e4 else f"{value}"


def draw(result: dict[str, Any]) -> Any:
    """Days, chips with their power cap, energy and prices against the power of the site."""
    figure = new_figure(7.0, 5.4)
    time, energy, money, old = (result[name] for name in ("time", "energy", "money", "published"))
    site = np.array([row["site_mw"] for row in time])

    def column(rows: list[Row], name: str) -> np.ndarray:
        return np.array([row[name] for row in rows])

    days = add_axes(figure, 2, 2, 1)
    days.loglog(site, column(old, "days"), "s--", color=GRAY, ms=4, label="published plan, scaled")
    days.loglog(site, column(time, "days"), "o-", color=BLUE, ms=4, label="best plan")
    days.loglog(site, days_if_proportional(time), ":", color="black", lw=1, label="in proportion to 1/power")
    days.set_title("a  time", loc="left", fontsize=9)
    days.set_ylabel("least time [d]")
    days.set_yticks([10, 20, 50, 100, 200, 300], ["10", "20", "50", "100", "200", "300"])

    chips = add_axes(figure, 2, 2, 2)
    chips.loglog(site, column(time, "chips"), "o-", color=BLUE, ms=4)
    chips.set_title("b  chips, and the power of each", loc="left", fontsize=9)
    chips.set_ylabel("chips")
    chips.set_yticks([5e3, 1e4, 2e4, 5e4, 1e5], ["5,000", "10,000", "20,000", "50,000", "100,000"])
    chips.set_ylim(4e3, 2e5)
    for x, y, cap in zip(site, column(time, "chips"), column(time, "cap_w"), strict=True):
        chips.annotate(f"{cap:.0f} W", (x, y), (5, -3), textcoords="offset points", ha="left", va="top", fontsize=7)

    use = add_axes(figure, 2, 2, 3)
    use.semilogx(site, column(old, "energy_gwh"), "s--", color=GRAY, ms=4, label="published plan, scaled")
    use.semilogx(site, column(time, "energy_gwh"), "o-", color=BLUE, ms=4, label="least time")
    use.semilogx(site, column(energy, "energy_gwh"), "^-", color=GREEN, ms=4, label="least energy, 10 % more time")
    use.set_title("c  energy", loc="left", fontsize=9)
    use.set(ylabel="energy [GWh]", xlabel="power of the site [MW]")

    price = add_axes(figure, 2, 2, 4)
    priced = [row for row in time if row["power_elasticity"]]  # at a kink there is no price
    price.loglog(
        column(priced, "site_mw"), column(priced, "days_per_mw"), "o-", color=BLUE, ms=4, label="a megawatt saves [d]"
    )
    middle = np.sqrt(site[1:] * site[:-1])
    price.loglog(middle, column(time[:-1], "quotient"), "x", color="black", ms=5, label="the same by solving again")
    price.loglog(site, column(money, "per_day"), "v-", color=ORANGE, ms=4, label="a day saves [million USD]")
    price.set_title("d  prices", loc="left", fontsize=9)
    price.set(ylabel="days, or million USD", xlabel="power of the site [MW]")
    price.set_yticks([0.03, 0.1, 0.3, 1, 3, 10, 30], ["0.03", "0.1", "0.3", "1", "3", "10", "30"])
    for axes in (days, chips, use, price):
        axes.set_xticks(SITES, [f"{site:g}" for site in SITES])
        axes.set_xlim(4.3, 230.0)
        axes.minorticks_off()
    for axes in (days, use, price):
        axes.legend(fontsize=7)
    return figure


def days_if_proportional(time: list[Row]) -> list[float]:
    """Days if time fell in proportion to the power of the site, from the smallest."""
    return [time[0]["days"] * time[0]["site_mw"] / row["site_mw"] for row in time]


PLAN = ("chips", "cap_w", "clock", "batch_mtok", "layout", "coolant_c", "chip_c", "mfu")


def report(result: dict[str, Any]) -> str:
    """The tables as text."""
    outcome = ("site_mw", "days", "energy_gwh", "money_musd")
    end = ("active", "gap", "result")
    parts = [
        f"loss {result['loss']:.6f} nat/token at every plan",
        "published layout, batch and clock\n" + table(result["published"], (*outcome, "chips", "peak_mw")),
        "least time\n" + table(result["time"], (*outcome, *PLAN, *end, "gain")),
        "price of a megawatt: days saved, against the next site\n"
        + table(
            result["time"],
            ("site_mw", "days", "power_elasticity", "days_per_mw", "quotient", "next_by_prices", "next_found"),
        ),
        "the price of a megawatt at {site_mw:g} MW: {price:.4f} d by the multiplier, {quotient:.4f} d by solving "
        "again 1 % below and above".format(**result["check"]),
        f"least energy with {SLACK:g} times the least time (per_day in GWh)\n"
        + table(result["energy"], (*outcome, "per_day", "per_mw", *PLAN, *end)),
        f"least money with {SLACK:g} times the least time (per_day in million USD)\n"
        + table(result["money"], (*outcome, "per_day", "per_mw", *PLAN, *end)),
        f"least money at {CHECKED_SITE:g} MW by deadline\n"
        + table(
            result["deadlines"],
            (
                "deadline_ratio",
                *outcome,
                "peak_mw",
                "musd_per_day",
                "musd_per_mw",
                "chips",
                "cap_w",
                "layout",
                "active",
                "gap",
                "result",
            ),
        ),
    ]
    return "\n\n".join(parts)


def main() -> None:
    result = compute()
    print(report(result))
    outputs.write(result, HERE)
    outputs.draw(draw(result), HERE, "power_cap")


if __name__ == "__main__":
    main()
