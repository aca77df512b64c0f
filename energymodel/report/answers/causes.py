"""What moves an output: elasticities by every number of the system, and shares of its variance."""

import jax
import numpy as np

from energymodel.report.answer import FULL, Chart, Column, Quantity, Sentence, Table
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of, in_float64, spread_along
from energymodel.system.plan import TrainingPlan

BARS = 12
SMALLEST = 5e-4  # elasticity that is shown
SMALLEST_SHARE = 0.005  # share of the variance of a cause that is shown
MODEL = "system.workload."  # another model is another question
ASSUMED, MEASURED = "assumed (prior)", "measured or published"


def elasticities_of_plan(scenario: Scenario, plan: TrainingPlan, objective: str) -> dict[str, float]:
    """Elasticity `d ln y / d ln x` of an output or objective by each number x of the system but the model's.

    The plan stays. Absolute temperatures and zeros have no elasticity.
    """
    with jax.enable_x64(True):
        run = in_float64(TrainingRun(scenario.system, plan))
        paths = [
            path
            for path, value in run.values.items()
            if path.startswith("system.") and not path.startswith(MODEL) and np.isfinite(value) and value
            if scenario.provenance[path].unit != "K" or path in run.differences
        ]
        steps = np.zeros((len(paths), len(run.vector)))
        for step, path in zip(steps, paths, strict=True):
            step[run.places[path]] = run.vector[run.places[path]]
        return dict(zip(paths, map(float, spread_along(run, steps).relative(objective)), strict=True))


def elasticities(known: dict[str, float], of: str, subtitle: str) -> tuple[Table, Chart | None]:
    """Elasticities, the largest first, and bars of the largest; no chart where all are zero."""
    word = of.replace("_", " ")
    order = sorted(
        ((path, value) for path, value in known.items() if abs(value) >= SMALLEST), key=lambda pair: -abs(pair[1])
    )
    columns = [Column("number", "number", kind="words"), Column("elasticity", "percent per percent", digits="two")]
    rows = [[path.removeprefix("system."), Quantity(value)] for path, value in order]
    table = Table("elasticities", f"What one percent changes: {word}", columns, rows, level=FULL)
    if not rows:
        return table, None
    change = {"change": (Column("", "", kind="change"), Quantity(order[0][1] / 100.0))}
    title = Sentence(f"1 % more {rows[0][0]} changes {word} by {{change}}", change)
    largest = [str(row[0]) for row in rows[:BARS]]
    axis = f"{word}: percent per percent of the number"
    return table, Chart("bars", title, table.name, "number", ["elasticity"], subtitle, only=largest, axis=axis)


def causes(scenario: Scenario, spread: OutcomeSpread, name: str) -> tuple[Table, Chart | None]:
    """Which uncertain numbers make an output uncertain, by their share of its variance."""
    with jax.enable_x64(True):
        directions = directions_of(scenario, in_float64(TrainingRun(scenario.system, scenario.plan)))
    word, moved = name.replace("_", " "), spread.relative(name)
    whole = float((moved**2).sum())
    shares: dict[str, float] = {}
    if whole and len(moved) == len(directions.names):
        for cause, change in zip(directions.names, moved, strict=True):
            shares[cause] = shares.get(cause, 0.0) + float(change) ** 2 / whole
    columns = [
        Column("number", "number", kind="words"),
        Column("share", "share of the variance", kind="share"),
        Column("origin", "", kind="words"),
    ]
    rows = [
        [cause.removeprefix("system."), Quantity(share), ASSUMED if directions.is_prior[cause] else MEASURED]
        for cause, share in sorted(shares.items(), key=lambda pair: -pair[1])
    ]
    table = Table("causes", f"What makes the {word} uncertain", columns, rows, level=FULL)
    largest = [str(cause) for cause, share, _ in rows if isinstance(share, Quantity) and share.value >= SMALLEST_SHARE]
    if not largest:
        return table, None
    of_priors = sum(share for cause, share in shares.items() if directions.is_prior[cause])
    numbers = {"share": (Column("", "", kind="share", digits="two"), Quantity(of_priors))}
    title = Sentence(f"{{share}} of the variance of {word} comes from numbers that nobody measured", numbers)
    subtitle = f"Share of the variance of {word}, to first order"
    chart = Chart(
        "bars",
        title,
        "causes",
        "number",
        ["share"],
        subtitle,
        "origin",
        only=largest[:BARS],
        axis="share of the variance",
    )
    return table, chart
