"""Energy, time and bottleneck of a run as hardware nears Landauer's bound, jointly optimized.

Prints its tables, draws `efficient_hardware.png`, and writes `result.json` beside this file.
"""

import operator
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hardware import CACHE_ACCESSES, ELEMENT, SRAM, TEMPERATURE, Choice, operation_energy, speed
from plan_search import AIMS, BROKEN, MULTIPLES, PLAN, STEPS, WORLDS, Found, Question, polished, question, search

import energymodel as em
from energymodel.constants import ZERO_CELSIUS
from energymodel.performance.caches import optimal_cache_size
from energymodel.physics.limits import landauer_energy
from energymodel.runtime.compilation import compiler_options
from energymodel.search.layouts import take

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED, add_axes, new_figure

HERE = Path(__file__).parent
DAY = 86400.0
PARTS = {  # parts of the energy, joined for the figure
    "arithmetic": ("dynamic",),
    "static, waiting": ("static", "idle_wait"),
    "memory": ("memory",),
    "links": ("network",),
    "host": ("host",),
    "conversion, cooling": ("delivery_loss", "cooling", "other"),
}
RATES = ("arithmetic", "memory", "links within", "links beyond", "latency", "control")
"""What limits the time: elasticities with respect to each rate (of latencies and control times: their inverse)."""
SMALL = 1e-4
Row = dict[str, Any]


def sped_up(system: Any, rates: Any) -> Any:
    """The same system with each of `RATES` multiplied."""
    arithmetic, memory, within, beyond, latency, control = rates
    rate_of = {
        "accelerator.peak_flops": arithmetic,
        "accelerator.memory_bandwidth": memory,
        "node.scale_up.lane_bandwidth": within,
        "network.link.lane_bandwidth": beyond,
    }
    time_of = {
        "node.scale_up.latency": latency,
        "network.link.latency": latency,
        "node.collectives.start_latency": latency,
        "node.collectives.protocol_latency": latency,
        "accelerator.product_latency": control,
        "accelerator.launch_overhead": control,
        "accelerator.overhead_time": control,
        "software.microbatch_time": control,
        "software.collective_latency": control,
    }

    def fields(s: Any) -> tuple[Any, ...]:
        return tuple(attrgetter(path)(s) for path in (*rate_of, *time_of))

    factors = (*rate_of.values(), *(1.0 / rate for rate in time_of.values()))
    return eqx.tree_at(fields, system, tuple(map(operator.mul, fields(system), factors)))


@eqx.filter_jit(compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
def evaluated(asked: Any, x: Any, layout: Any, target: Any, made: Any, run: Any) -> Any:
    """System, plan and outcome at a point, and the elasticity of the rate of training to each of `RATES`."""
    system, plan = asked.system_and_plan(x, layout, target, made, run)

    def time(rates: Any) -> Any:
        return jnp.log(em.evaluate(sped_up(system, rates), plan).time)

    up, down = (jax.vmap(time)(jnp.exp(sign * SMALL * jnp.eye(len(RATES)))) for sign in (1.0, -1.0))
    return system, plan, em.evaluate(system, plan), (down - up) / (2.0 * SMALL)


def rows_of(asked: Question, lattice: Any, optima: Found) -> list[Row]:
    """What the best plan and hardware of each step are, and what they cost."""
    chip, rows = asked.problem.run.system.accelerator, []
    optima, gains = polished(asked, lattice, optima)
    low, high = asked.box
    for index, step in enumerate(STEPS):
        x, layout, made = optima.x[index], take(lattice, np.asarray(optima.layout[index])), step.technology
        evaluation = evaluated(asked.design, x, layout, asked.target(step), made, asked.problem.run)
        system, plan, outcome, elasticities = evaluation
        limits = asked.problem.formulation.rows
        reached = [name for name, y in zip(limits, optima.multipliers[index], strict=False) if y > BROKEN]
        reached += [n for n, v, a, b in zip(asked.names, x, low, high, strict=True) if min(v - a, b - v) < SMALL]
        choice = Choice(*np.exp(x[len(PLAN) :]))
        rows.append(
            {
                **step._asdict(),
                **described(system, plan, outcome),
                "operation_multiple": float(operation_energy(chip, made, choice) / landauer_energy(1.0, TEMPERATURE)),
                "voltage_v": float(choice.voltage),
                "clock_ghz": float(chip.reference_clock * speed(choice.voltage, chip.reference_voltage)) / 1e9,
                "size": float(choice.size),
                "cache_mb": float(choice.cache) / 1e6,
                "inner_lanes": float(choice.inner_lanes),
                "outer_lanes": float(choice.outer_lanes),
                "layout": {name: float(value) for name, value in vars(layout).items()},
                "time_limits": dict(zip(RATES, elasticities.tolist(), strict=True)),
                "at_limit": reached,
                "solved": bool(optima.solved[index]),
                "gain_nearby": float(gains[index]),
                "point": dict(zip(asked.names, np.exp(x).tolist(), strict=True)),
            }
        )
        rows[-1]["time_bottleneck"] = max(RATES, key=lambda name: rows[-1]["time_limits"][name])
    return rows


def described(system: Any, plan: Any, outcome: Any) -> Row:
    """Outcome of a run as numbers."""
    energy = {name: float(value) for name, value in vars(outcome.energy).items()}
    time = {name: float(value) for name, value in vars(outcome.step_time).items()}
    total, run = sum(energy.values()), sum(time.values())
    parts = {part: sum(energy[name] for name in names) / total for part, names in PARTS.items()}
    return {
        "energy_j": total,
        "time_s": float(outcome.time),
        "j_per_token": total / float(outcome.tokens),
        "j_per_bit": total / float(outcome.information),
        "run_multiple": float(outcome.landauer_multiple),
        "steps": float(outcome.steps),
        "batch_mtok": float(jnp.reshape(plan.batch, ())) / 1e6,
        "chips": float(plan.chips),
        "chip_w": float(outcome.power_busy),
        "site_w": float(outcome.power_peak),
        "coolant_c": float(plan.coolant_temperature) - ZERO_CELSIUS,
        "chip_c": float(outcome.temperature) - ZERO_CELSIUS,
        "flow": float(system.facility.cooling.loop.flow),
        "supply_w": float(system.facility.power_supply.rated_power),
        "peak_flops": float(system.accelerator.peak_flops),
        "mfu": float(outcome.mfu),
        "energy_parts": parts,
        "energy_bottleneck": max(parts, key=lambda name: parts[name]),
        "time_shares": {name: value / run for name, value in time.items()},
        "longest_term": max(time, key=lambda name: time[name]),
    }


def compute() -> dict[str, Any]:
    """All steps, and today's plan on today's hardware."""
    with jax.enable_x64(True):
        asked = question()
        lattice, result = search(asked)
        chip = asked.scenario.system.accelerator
        bound = landauer_energy(chip.bits_per_flop, TEMPERATURE) * 6.0 * asked.scenario.system.workload.parameters
        return {
            "today": described(asked.scenario.system, asked.scenario.plan, asked.today),
            "bound_j": float(bound * asked.today.tokens),
            "closed_form_cache_mb": closed_form_cache(float(chip.memory_energy)) / 1e6,
            "steps": rows_of(asked, lattice, result),
        }


def closed_form_cache(memory_energy: float) -> float:
    """Cache of least operand energy where memory and logic improve alike, docs/physics.md B4 [B]."""
    elements = optimal_cache_size(
        8.0 * ELEMENT * memory_energy, ELEMENT * SRAM.reference_energy, SRAM.reference_size / ELEMENT, CACHE_ACCESSES
    )
    return float(ELEMENT * elements)


def of(result: dict[str, Any], aim: str, world: str) -> list[Row]:
    """Rows of one series, from today to the bound."""
    return [row for row in result["steps"] if (row["aim"], row["world"]) == (aim, world)]


TITLES = {"logic": "only logic improves", "all": "everything improves"}
PART_COLORS = dict(zip(PARTS, (BLUE, GRAY, GREEN, ORANGE, PURPLE, RED), strict=True))
LIMIT_COLORS = {"arithmetic": BLUE, "memory": GREEN, "links": ORANGE, "latency, control": "#222222"}
LABELED = {"logic": (0, 2, 5, 7, 10), "all": (0, 3, 5, 7, 8, 10)}  # steps whose batch and chips stand beside the time


def draw(result: dict[str, Any]) -> Any:
    """Energy by part, time, and what limits the time, against the multiple of the bound, for both worlds."""
    figure = new_figure(7.2, 7.6)
    for column, world in enumerate(WORLDS):
        rows, thrifty = of(result, "etp", world), of(result, "energy", world)
        multiple = np.array([row["multiple"] for row in rows])
        energy = add_axes(figure, 3, 2, 1 + column)
        _draw_energy(energy, rows, thrifty, result["bound_j"])
        energy.set_title(f"{'ab'[column]}  {TITLES[world]}: energy of the run")

        time = add_axes(figure, 3, 2, 3 + column)
        seconds = np.array([row["time_s"] for row in rows])
        limits = {name: np.array([_limit(row, name) for row in rows]) for name in LIMIT_COLORS}
        largest = [max(limits, key=lambda name, index=index: limits[name][index]) for index in range(len(rows))]
        time.loglog(multiple, seconds, "-", color="black", lw=1.5)
        time.scatter(multiple, seconds, s=28, color=[LIMIT_COLORS[name] for name in largest], zorder=3)
        time.set_title(f"{'cd'[column]}  time, with batch in tokens and chips")
        time.set_yticks([1.0, 60.0, 3600.0, DAY, 30 * DAY], ["1 s", "1 min", "1 h", "1 d", "30 d"])
        time.set_ylim(1.0, 2e8)
        for index in LABELED[world]:
            text = f"{rows[index]['batch_mtok']:.0f} M\n{rows[index]['chips']:,.0f}"
            align, drop = {0: ("left", 6), len(rows) - 1: ("right", -20)}.get(index, ("left", 4))
            where = (multiple[index], seconds[index])
            time.annotate(text, where, (0, drop), textcoords="offset points", ha=align, fontsize=6.5)

        share = add_axes(figure, 3, 2, 5 + column)
        stacked = np.array(list(limits.values()))
        share.stackplot(
            multiple, stacked / stacked.sum(axis=0), labels=list(limits), colors=LIMIT_COLORS.values(), lw=0
        )
        share.set(ylim=(0, 1), xscale="log", xlabel="energy of an operation [$k_B T \\ln 2$]")
        share.set_title(f"{'ef'[column]}  what limits the time")
        share.grid(visible=False)
        for axes in (energy, time, share):
            axes.set_xlim(1.2e9, 60.0)
            axes.set_xticks([10.0**power for power in range(9, 1, -1)])
            axes.minorticks_off()
            axes.title.set_fontsize(8.5)
        if column == 0:
            energy.set_ylabel("energy [J]")
            energy.legend(fontsize=6.5, loc="lower left", labelspacing=0.3)
            share.set_ylabel("share of the elasticities")
            share.legend(fontsize=7, loc="center right", frameon=True, framealpha=1.0)
    return figure


def _draw_energy(axes: Any, rows: list[Row], thrifty: list[Row], bound: float) -> None:
    """All energy with its largest part marked, the parts, the least energy, and the bound."""
    multiple, total = (np.array([row[name] for row in rows]) for name in ("multiple", "energy_j"))
    axes.loglog(multiple, total, "-", color="black", lw=1.8, label="all (dots: largest part)")
    axes.scatter(multiple, total, s=28, color=[PART_COLORS[row["energy_bottleneck"]] for row in rows], zorder=3)
    for part, color in PART_COLORS.items():
        axes.loglog(multiple, total * [row["energy_parts"][part] for row in rows], "-", color=color, lw=1.1, label=part)
    axes.loglog(multiple, [row["energy_j"] for row in thrifty], "k--", lw=1.1, label="all, at least energy")
    axes.axhline(bound, color="black", ls=":", lw=1)
    axes.text(1e4, bound / 1.4, "bound: 32 bit per operation", fontsize=6.5, ha="center", va="top")
    axes.set_ylim(3e5, 6e14)


def _limit(row: Row, name: str) -> float:
    """Elasticities joined for the figure."""
    joined = {"links": ("links within", "links beyond"), "latency, control": ("latency", "control")}
    return sum(max(row["time_limits"][part], 0.0) for part in joined.get(name, (name,)))


def layout_text(layout: dict[str, float]) -> str:
    """A layout in a word: degrees of tensor, pipeline x virtual_stages, context; micro-batch; ZeRO 3; recomputation."""
    text = "t{tensor:g} p{pipeline:g}x{virtual_stages:g} c{context:g} b{microbatch:g}".format(**layout)
    return text + " z3" * bool(layout["shard_parameters"]) + " rec" * bool(layout["recompute_full"])


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as aligned text."""
    cells = [list(columns)] + [[_cell(name, row[name]) for name in columns] for row in rows]
    return outputs.aligned(cells)


def _cell(name: str, value: Any) -> str:
    if name == "layout":
        return layout_text(value)
    if isinstance(value, list):
        return ",".join(path.rpartition(".")[2] for path in value) or "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def report(result: dict[str, Any]) -> str:
    """The tables as text."""
    costs = (
        "multiple",
        "energy_j",
        "j_per_token",
        "j_per_bit",
        "run_multiple",
        "time_s",
        "energy_bottleneck",
        "time_bottleneck",
        "longest_term",
        "mfu",
        "solved",
        "gain_nearby",
    )
    choices = (
        "multiple",
        "operation_multiple",
        "batch_mtok",
        "chips",
        "layout",
        "voltage_v",
        "clock_ghz",
        "size",
        "peak_flops",
        "chip_w",
        "site_w",
        "cache_mb",
        "inner_lanes",
        "outer_lanes",
        "coolant_c",
        "chip_c",
        "flow",
        "supply_w",
        "at_limit",
    )
    today = {**result["today"], "multiple": MULTIPLES[0], "time_bottleneck": "", "solved": "", "gain_nearby": ""}
    parts = [
        f"Landauer bound of the run at 32 bit per operation: {result['bound_j']:.4g} J",
        f"cache of least operand energy, closed form: {result['closed_form_cache_mb']:.4g} MB",
    ]
    parts += ["published plan on H100\n" + table([today], costs)]
    for aim in AIMS:
        for world in WORLDS:
            rows = of(result, aim, world)
            shares = [{"multiple": row["multiple"], **row["energy_parts"]} for row in rows]
            limits = [{"multiple": row["multiple"], **row["time_limits"]} for row in rows]
            parts += [
                f"least {'energy x time' if aim == 'etp' else 'energy within the time of today'}, {TITLES[world]}\n"
                + "\n\n".join([table(rows, costs), table(rows, choices)]),
                "shares of the energy\n" + table(shares, tuple(shares[0])),
                "elasticities of the rate of training to other rates\n" + table(limits, tuple(limits[0])),
            ]
    return "\n\n".join(parts)


def main() -> None:
    result = compute()
    print(report(result))
    outputs.write(result, HERE)
    outputs.draw(draw(result), HERE, "efficient_hardware")


if __name__ == "__main__":
    main()
