"""Which numbers of a system move an output most while the plan stays: by how many percent for one percent of each?"""

from collections.abc import Iterable

import jax
import numpy as np

from energymodel.report.charts import Bar, GroupedBars, Part
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import in_float64, spread_along
from energymodel.system.plan import TrainingPlan

BARS = 12
SMALLEST = 5e-4  # elasticity that is shown
MODEL = "system.workload."  # another model is another question


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


def elasticities_chart(known: Iterable[tuple[str, float]], of: str, subtitle: str) -> GroupedBars | None:
    """The largest elasticities as bars, from pairs of path and value; nothing where all are zero."""
    large = [(path.removeprefix("system."), value) for path, value in known if abs(value) >= SMALLEST]
    order = sorted(large, key=lambda pair: -abs(pair[1]))[:BARS]
    if not order:
        return None
    word = of.replace("_", " ")
    groups = tuple(Bar(path, (Part("", value),)) for path, value in order)
    path, value = order[0]
    title = f"1 % more {path} changes {word} by {value:+.2g} %"
    return GroupedBars(title, "1", groups, subtitle, f"{word}: percent per percent of the number")
