"""The answer of `compare`: combinations of accelerators, formats, networks and chips, each with its best plan."""

import math

import numpy as np

from energymodel.report.answer import DATA, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.run_tables import Run, outcome_table
from energymodel.search.compare import Candidate, Comparison
from energymodel.search.result import Optimum

_CHOICES = ("accelerator", "precision", "network", "topology")
_NUMBERS = (
    Column("most_chips", "most chips", kind="count", level=DATA),
    Column("chips", "chips", kind="count"),
    Column("layout", "t x p x c", kind="words"),
    Column("clock", "clock", digits="rows"),
    Column("batch", "batch", "token", digits="rows", level=DATA),
    Column("time", "time", "s", digits="rows"),
    Column("energy", "energy", "J", digits="rows"),
    Column("power_average", "power", "W", digits="rows"),
    Column("money", "money", "USD", digits="rows"),
    Column("carbon", "carbon", "kg", digits="rows", level=DATA),
)


def compare_answer(comparison: Comparison) -> Answer:
    """A comparison in numbers, the best combination first."""
    table = combinations_table(comparison)
    solved = optima(comparison)
    tables, charts = [table], []
    if solved:
        runs = {name: Run(optimum.plan, optimum.outcome) for name, optimum in solved.items()}
        outcomes = [outcome_table({name: run}) for name, run in runs.items()]
        columns, rows = outcomes[0].columns, [outcome.rows[0] for outcome in outcomes]
        tables.append(
            Table("outcomes", "Outcome of each plan", columns, rows, tall=True, labels=tuple(runs), level=DATA)
        )
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
    varied = [Column(path, path.rpartition(".")[2], _unit(comparison, path)) for path in comparison.varied]
    choices = [Column(name, name, kind="words", level=DATA) for name in _CHOICES]
    columns = [
        *(Column("name", "", kind="words"), *choices, *_NUMBERS, *varied),
        *(Column("value", comparison.minimize, comparison.unit, digits="rows", level=DATA),),
        *(Column("more", "more", kind="change"), Column("reason", "reason", kind="words", level=DATA)),
    ]
    best = next((optimum.value for optimum in optima(comparison).values()), math.nan)
    rows = [_row(candidate, comparison.varied, best) for candidate in comparison.candidates]
    short = [index for index, candidate in enumerate(comparison.candidates) if not candidate.reason]
    return Table("combinations", "Each with its best plan", columns, rows, short=short)


def _unit(comparison: Comparison, path: str) -> str:
    scenarios = (candidate.optimum.scenario for candidate in comparison.candidates if candidate.optimum is not None)
    return next(scenario.provenance[path].unit for scenario in scenarios if path in scenario.provenance)


def _row(candidate: Candidate, varied: tuple[str, ...], best: float) -> list[Cell]:
    most = None if candidate.chips is None else Quantity(float(candidate.chips))
    choices: list[Cell] = [candidate.name, *(getattr(candidate, name) or "" for name in _CHOICES), most]
    if candidate.optimum is None:
        return [*choices, *[None] * (len(_NUMBERS) - 1 + len(varied) + 2), candidate.reason]
    plan, outcome = candidate.optimum.plan, candidate.optimum.outcome
    layout = " x ".join(f"{float(getattr(plan.layout, name)):g}" for name in ("tensor", "pipeline", "context"))
    totals = (outcome.time, outcome.energy.total, outcome.power_average, outcome.money, outcome.carbon)
    numbers = (outcome.clock, np.ravel(plan.batch)[0], *totals)
    chosen = (candidate.optimum.found.get(path) for path in varied)
    return [
        *(*choices, Quantity(float(plan.chips)), layout, *(Quantity(float(np.asarray(number))) for number in numbers)),
        *(None if value is None else Quantity(value) for value in chosen),
        *(
            Quantity(candidate.optimum.value),
            None if candidate.reason else Quantity(candidate.optimum.value / best - 1.0),
            candidate.reason,
        ),
    ]
