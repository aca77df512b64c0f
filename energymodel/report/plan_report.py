"""Plans beside each other as the tables of commands that have no answer of their own yet."""

import math

from rich.markup import escape
from rich.table import Table

from energymodel.report.answers import optimize
from energymodel.report.answers.run_tables import data_parallel, plan_priors
from energymodel.report.fields import Field, plan_fields, show
from energymodel.report.intervals import percent
from energymodel.report.number import PRIOR_MARK, sentence
from energymodel.scenarios.clock_scale import CLOCK, REFERENCE_CLOCK, ClockScale
from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import Optimum
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.system.plan import TrainingPlan


def headline(optimum: Optimum, risk: SavingAtRisk | None = None) -> str:
    """What was found, in one line."""
    return sentence(optimize.headline(optimum, risk)).removesuffix(".")


def _comparison(title: str, *, intervals: bool = False) -> Table:
    table = Table(box=None, title=title, title_justify="left", title_style="bold", pad_edge=False, header_style="")
    table.add_column("", no_wrap=True)
    for heading in ("own plan", "found", *(["90 % interval"] if intervals else []), "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def plans_table(scenario: Scenario, own: TrainingPlan, found: TrainingPlan, varied: tuple[str, ...]) -> Table:
    """Numbers of both plans that differ or were free."""
    table = _comparison("Plan")
    priors = plan_priors(scenario)
    before = {field.name: field for field in plan_fields(own)}
    for field in plan_fields(found):
        old = before.get(field.name)
        differs = old is None or old.value != field.value
        if differs or field.name.split("[")[0] in varied:
            mark = f" {PRIOR_MARK}" if old and field.name.split("[")[0] in priors else ""
            shown = _shown_plan(scenario, old) + mark if old else ""
            name = field.name.removeprefix("plan.").removeprefix("layout.").replace("_", " ")
            table.add_row(escape(name), shown, _shown_plan(scenario, field), _ratio(old, field) if differs else "")
    replicas = [data_parallel(plan) for plan in (own, found)]
    if replicas[0] != replicas[1]:
        table.add_row("data (follows)", *(f"{count:g}" for count in replicas), f"x {replicas[1] / replicas[0]:.3g}")
    return table


def _shown_plan(scenario: Scenario, field: Field) -> str:
    """A number of a plan as a person reads it; a clock also in MHz, marked where the reference clock is a prior."""
    if field.name != CLOCK:
        return show(field)
    prior = f" {PRIOR_MARK}" if scenario.provenance[REFERENCE_CLOCK].is_prior else ""
    return f"{show(field)} ({ClockScale.of(scenario.system.accelerator).megahertz(field.value)}{prior})"


def _ratio(before: Field | None, after: Field, half_width: float = 0.0) -> str:
    """Change of a number, in the digits of half the width of its interval: of its logarithm, or in K."""
    if before is None or before.value == 0.0 or after.value == 0.0 or not math.isfinite(before.value):
        return ""
    if after.unit == "K":
        difference = after.value - before.value
        return f"{difference:+.{0 if half_width >= 2.0 and abs(difference) >= 1.0 else 1}f} K"
    ratio = after.value / before.value
    return percent(ratio - 1.0, ratio * half_width, sign="+") if 0.5 < ratio < 2.0 else f"x {ratio:.3g}"
