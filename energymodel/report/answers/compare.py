"""The answers of `compare` and `frontier`: combinations of hardware, and process generations, with their best plans."""

import dataclasses
import math
from typing import Any

import numpy as np

from energymodel.report.answer import DATA, Answer, Chart, Column, Sentence, Table, words
from energymodel.report.answers.run_tables import Run, outcome_table
from energymodel.search.compare import Comparison, Frontier, FrontierStep
from energymodel.system.outputs import output

_CHOICES = ("accelerator", "precision", "network", "topology")
_OUTPUTS = ("clock", "time", "energy", "power_average", "money", "carbon")
_NUMBERS = (
    Column("most_chips", kind="count", level=DATA),
    Column("chips", kind="count"),
    words("layout", "t x p x c"),
    Column("clock", digits="rows"),
    Column("batch", unit="token", digits="rows", level=DATA),
    Column("time", unit="s", digits="rows"),
    Column("energy", unit="J", digits="rows"),
    Column("power_average", "power", "W", digits="rows"),
    Column("money", unit="USD", digits="rows"),
    Column("carbon", unit="kg", digits="rows", level=DATA),
)


def compare_answer(comparison: Comparison) -> Answer:
    """A comparison in numbers, the best combination first; one without a plan has the reason."""
    of, candidates = comparison.minimize, comparison.candidates
    solved = {each.name: each.optimum for each in candidates if each.optimum is not None and not each.reason}
    tables, charts = [combinations_table(comparison)], []
    if solved:
        rows = outcome_table({name: Run(best.plan, best.outcome) for name, best in solved.items()})
        outcomes = {"name": "outcomes", "title": "Outcome of each plan", "rows": rows.rows[: len(solved)], "kinds": ()}
        tables.append(dataclasses.replace(rows, **outcomes, level=DATA, labels=tuple(solved)))
        title = Sentence(f"Each combination with its plan of the lowest {of}")
        charts.append(Chart("bars", title, "combinations", "name", ["value"], axis=of))
    return Answer(
        "compare",
        f"Plans of the lowest {of}",
        Sentence(f"{next(iter(solved))} is best" if solved else "No combination has a plan within the limits"),
        [Sentence(f"{candidate.name}: {candidate.reason}") for candidate in candidates if candidate.reason],
        tables,
        charts,
        rows="combinations",
        result="successful" if solved else "infeasible",
        message="" if solved else "no combination has a plan.",
    )


def combinations_table(comparison: Comparison) -> Table:
    """A row for each combination."""
    candidates = comparison.candidates
    scenarios = [of.optimum.scenario for of in candidates if of.optimum is not None]
    units = {path: origin.unit for scenario in reversed(scenarios) for path, origin in scenario.provenance.items()}
    columns = [
        words("name", ""),
        *(words(name, level=DATA) for name in _CHOICES),
        *_NUMBERS,
        *(Column(path, path.rpartition(".")[2], units[path], "amount") for path in comparison.varied),
        Column("value", comparison.minimize, comparison.unit, digits="rows", level=DATA),
        Column("more", kind="change"),
        words("reason", level=DATA),
    ]
    best = next((of.optimum.value for of in candidates if of.optimum is not None and not of.reason), math.nan)
    rows = []
    for of in candidates:
        cells: dict[str, Any] = {name: getattr(of, name) or "" for name in ("name", *_CHOICES, "reason")}
        cells["most_chips"] = of.chips
        if (optimum := of.optimum) is not None:
            plan, outcome = optimum.plan, optimum.outcome
            degrees = (plan.layout.tensor, plan.layout.pipeline, plan.layout.context)
            cells |= {"chips": plan.chips, "layout": " x ".join(f"{float(degree):g}" for degree in degrees)}
            cells |= {name: output(outcome, name) for name in _OUTPUTS} | {"batch": np.ravel(plan.batch)[0]}
            cells |= {**optimum.found, "value": optimum.value}
            cells["more"] = None if of.reason else optimum.value / best - 1.0
        rows.append([cells.get(column.name) for column in columns])
    short = [index for index, candidate in enumerate(candidates) if not candidate.reason]
    return Table("combinations", "Each with its best plan", columns, rows, short=short)


NOTE = (
    "Process generations of system.chip_design (docs/hardware.md): an extrapolation, most of whose constants are "
    "priors. Nothing says that such chips can be made."
)
_RATIOS = ("time", "energy", "power_average")
_STEPS = (
    Column("generations", digits="rows"),
    Column("operation_energy", "operation", "J/FLOP"),
    Column("landauer_multiple", "x Landauer"),
    Column("time", unit="s", digits="two"),
    Column("energy", unit="J", digits="two"),
    Column("power_average", "power", "W", digits="two"),
    Column("money", unit="USD", digits="two", level=DATA),
    Column("chips", kind="count"),
    Column("batch", unit="token", digits="two", level=DATA),
    Column("clock", digits="two", level=DATA),
    words("binds"),
    words("reason", level=DATA),
    *(Column(f"{name}_ratio", name.replace("_", " "), digits="two", level=DATA) for name in _RATIOS),
)


def frontier_answer(frontier: Frontier) -> Answer:
    """A frontier in numbers."""
    totals = [_totals(step) for step in frontier.steps]
    today = next((of for of in totals if "time" in of), {})
    ratios, title = [f"{name}_ratio" for name in _RATIOS], "Best plans on the way to the limits of physics"
    chart = Chart(
        "plane",
        Sentence(title),
        "steps",
        "landauer_multiple",
        ratios,
        "Against the energy of an operation over Landauer's bound of its bits",
        lines=True,
        log=["landauer_multiple", *ratios],
        axis="over today's best plan",
    )
    rows = []
    for step, of in zip(frontier.steps, totals, strict=True):
        cells = {**of, **{f"{name}_ratio": of[name] / today[name] for name in _RATIOS if "time" in of}}
        rows.append([cells.get(column.name, getattr(step, column.name, None)) for column in _STEPS])
    return Answer(
        "frontier",
        f"Plans of the lowest {frontier.minimize}",
        Sentence(title),
        [Sentence(NOTE)],
        [Table("steps", "Steps", _STEPS, rows)],
        [chart] if today else [],
        [Sentence(f"{step.generations:g} generations: {step.reason}") for step in frontier.steps if step.reason],
        rows="steps",
    )


def _totals(step: FrontierStep) -> dict[str, Any]:
    """What the best plan of a step takes, and its binding constraints by price."""
    if (optimum := step.optimum) is None:
        return {"binds": "no plan"}
    plan, outcome, prices = optimum.plan, optimum.outcome, optimum.prices
    binding = sorted(optimum.active, key=lambda name: -prices[name].elasticity if name in prices else 0.0)
    totals = {name: float(np.asarray(output(outcome, name))) for name in (*_RATIOS, "money", "clock")}
    return {**totals, "chips": plan.chips, "batch": np.ravel(plan.batch)[0], "binds": ", ".join(binding)}
