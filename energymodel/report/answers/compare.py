"""The answers of `compare` and `frontier`: combinations of hardware, and process generations, with their best plans."""

import dataclasses
import math
from typing import Any

import numpy as np

from energymodel.report.answer import DATA, Answer, Chart, Column, Sentence, Table, words
from energymodel.report.answers.run_tables import Run, outcome_table
from energymodel.search.compare import Candidate, Comparison, Frontier, FrontierStep
from energymodel.search.result import Optimum

_CHOICES = ("accelerator", "precision", "network", "topology")
_NUMBERS = (
    *(Column("most_chips", kind="count", level=DATA), Column("chips", kind="count"), words("layout", "t x p x c")),
    *(Column("clock", digits="rows"), Column("batch", unit="token", digits="rows", level=DATA)),
    *(Column("time", unit="s", digits="rows"), Column("energy", unit="J", digits="rows")),
    *(Column("power_average", "power", "W", digits="rows"), Column("money", unit="USD", digits="rows")),
    Column("carbon", unit="kg", digits="rows", level=DATA),
)


def compare_answer(comparison: Comparison) -> Answer:
    """A comparison in numbers, the best combination first."""
    solved, tables, charts = optima(comparison), [combinations_table(comparison)], []
    if solved:
        outcomes = outcome_table({name: Run(optimum.plan, optimum.outcome) for name, optimum in solved.items()})
        rows = outcomes.rows[: len(solved)]
        outcomes = Table("outcomes", "Outcome of each plan", outcomes.columns, rows, tall=True, level=DATA)
        tables.append(dataclasses.replace(outcomes, labels=tuple(solved)))
        title = Sentence(f"Each combination with its plan of the lowest {comparison.minimize}")
        charts.append(Chart("bars", title, "combinations", "name", ["value"], axis=comparison.minimize))
    return Answer(
        "compare",
        f"Plans of the lowest {comparison.minimize}",
        Sentence(f"{next(iter(solved))} is best" if solved else "No combination has a plan within the limits"),
        [Sentence(f"{candidate.name}: {candidate.reason}") for candidate in comparison.candidates if candidate.reason],
        tables,
        charts,
        rows="combinations",
        result="successful" if solved else "infeasible",
        message="" if solved else "no combination has a plan.",
    )


def optima(comparison: Comparison) -> dict[str, Optimum]:
    """The optimum of each combination that has a plan, the best first, by the name of the combination."""
    return {
        candidate.name: candidate.optimum
        for candidate in comparison.candidates
        if candidate.optimum is not None and not candidate.reason
    }


def combinations_table(comparison: Comparison) -> Table:
    """A row for each combination; one without a plan has the reason."""
    solved = optima(comparison)
    scenarios = [of.optimum.scenario for of in comparison.candidates if of.optimum is not None]
    units = {path: origin.unit for scenario in reversed(scenarios) for path, origin in scenario.provenance.items()}
    columns = [
        *(words("name", ""), *(words(name, level=DATA) for name in _CHOICES), *_NUMBERS),
        *(Column(path, path.rpartition(".")[2], units[path], "amount") for path in comparison.varied),
        Column("value", comparison.minimize, comparison.unit, digits="rows", level=DATA),
        *(Column("more", kind="change"), words("reason", level=DATA)),
    ]
    best = next((optimum.value for optimum in solved.values()), math.nan)
    rows = [_row(candidate, comparison.varied, best) for candidate in comparison.candidates]
    short = [index for index, candidate in enumerate(comparison.candidates) if not candidate.reason]
    return Table("combinations", "Each with its best plan", columns, rows, short=short)


def _row(candidate: Candidate, varied: tuple[str, ...], best: float) -> list[Any]:
    choices = [candidate.name, *(getattr(candidate, name) or "" for name in _CHOICES), candidate.chips]
    if (optimum := candidate.optimum) is None:
        return [*choices, *[None] * (len(_NUMBERS) - 1 + len(varied) + 2), candidate.reason]
    plan, outcome = optimum.plan, optimum.outcome
    layout = " x ".join(f"{float(getattr(plan.layout, name)):g}" for name in ("tensor", "pipeline", "context"))
    return [
        *(*choices, plan.chips, layout, outcome.clock, np.ravel(plan.batch)[0]),
        *(outcome.time, outcome.energy.total, outcome.power_average, outcome.money, outcome.carbon),
        *(optimum.found.get(path) for path in varied),
        *(optimum.value, None if candidate.reason else optimum.value / best - 1.0, candidate.reason),
    ]


NOTE = (
    "Process generations of system.chip_design (docs/hardware.md): an extrapolation, most of whose constants are "
    "priors. Nothing says that such chips can be made."
)
_RATIOS = ("time", "energy", "power_average")
_STEPS = (
    *(Column("generations", digits="rows"), Column("operation_energy", "operation", "J/FLOP")),
    *(Column("landauer_multiple", "x Landauer"), Column("time", unit="s", digits="two")),
    *(Column("energy", unit="J", digits="two"), Column("power_average", "power", "W", digits="two")),
    *(Column("money", unit="USD", digits="two", level=DATA), Column("chips", kind="count")),
    *(Column("batch", unit="token", digits="two", level=DATA), Column("clock", digits="two", level=DATA)),
    *(words("binds"), words("reason", level=DATA)),
    *(Column(f"{name}_ratio", name.replace("_", " "), digits="two", level=DATA) for name in _RATIOS),
)


def frontier_answer(frontier: Frontier) -> Answer:
    """A frontier in numbers."""
    today = next((totals for step in frontier.steps if (totals := _totals(step))), {})
    ratios = [f"{name}_ratio" for name in _RATIOS]
    chart = Chart(
        *("plane", Sentence("Best plans on the way to the limits of physics"), "steps", "landauer_multiple", ratios),
        "Against the energy of an operation over Landauer's bound of its bits",
        lines=True,
        log=["landauer_multiple", *ratios],
        axis="over today's best plan",
    )
    return Answer(
        "frontier",
        f"Plans of the lowest {frontier.minimize}",
        Sentence("Best plans on the way to the limits of physics"),
        [Sentence(NOTE)],
        [Table("steps", "Steps", _STEPS, [_step_row(step, today) for step in frontier.steps])],
        [chart] if today else [],
        [Sentence(f"{step.generations:g} generations: {step.reason}") for step in frontier.steps if step.reason],
        rows="steps",
    )


def _totals(step: FrontierStep) -> dict[str, float]:
    if step.optimum is None:
        return {}
    outcome = step.optimum.outcome
    totals = {"energy": outcome.energy.total, "time": outcome.time, "power_average": outcome.power_average}
    return {name: float(np.asarray(total)) for name, total in (totals | {"money": outcome.money}).items()}


def _step_row(step: FrontierStep, today: dict[str, float]) -> list[Any]:
    """The numbers of a step, its binding constraints by price, and what it takes beside today's plan."""
    start = [step.generations, step.operation_energy, step.landauer_multiple]
    if (optimum := step.optimum) is None:
        return [*start, *[None] * 7, "no plan", step.reason, *[None] * len(_RATIOS)]
    totals, prices = _totals(step), optimum.prices
    binding = sorted(optimum.active, key=lambda name: -prices[name].elasticity if name in prices else 0.0)
    return [
        *(*start, *(totals[name] for name in (*_RATIOS, "money"))),
        *(optimum.plan.chips, np.ravel(optimum.plan.batch)[0], optimum.outcome.clock, ", ".join(binding), step.reason),
        *(totals[name] / today[name] for name in _RATIOS),
    ]
