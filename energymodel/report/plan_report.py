"""How does a person read the best plan: what changed, what it saves, what holds it back?"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from energymodel.report.answers.batch_penalty import batch_sentences
from energymodel.report.command_text import command_of, exact
from energymodel.report.fields import Field, outcome_fields, plan_fields, show, shown_outcomes, total
from energymodel.report.intervals import ends, half_of_change, interval_of, like, percent, rounded, with_interval
from energymodel.report.number import sentence
from energymodel.report.saving_report import risk_lines, saving_table
from energymodel.report.tables import PRIOR_MARK, data_parallel, given_priors, provenance_notes, show_plan, slack_table
from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import OBEYS_LIMITS_ASKED, Conflict, NearTie, Optimum, Refinement, SearchResult
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import DEVIATIONS, LEVEL, deviation
from energymodel.system.facility import NO_LIMIT
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_value
from energymodel.system.plan import TrainingPlan
from energymodel.units import format_quantity

# Steps of a limit that a person would consider, in SI, by its unit, the largest first.
_STEPS = {
    "s": ((86_400.0, "1 day"), (3_600.0, "1 hour"), (60.0, "1 minute")),
    "W": ((1e6, "1 MW"), (1e3, "1 kW"), (1.0, "1 W")),
    "USD": ((1e6, "1 M USD"), (1e3, "1000 USD"), (1.0, "1 USD")),
    "kg": ((1e6, "1 kt"), (1e3, "1 t"), (1.0, "1 kg")),
    "B": ((1e9, "1 GB"), (1e6, "1 MB")),
    "K": ((1.0, "1 K"),),
    "nat/token": ((0.01, "0.01 nat/token"),),
    "m^2": ((1e-4, "1 cm^2"), (1e-6, "1 mm^2")),
    "W/m^2": ((1e4, "1 W/cm^2"),),
    "1": ((1000.0, "1000"), (100.0, "100"), (10.0, "10"), (1.0, "1")),
}
_LARGEST_STEP = 0.1  # of the limit: a price holds for small changes
_SAME = 1e-4  # relative difference of an objective that no one minds
_LEFT_OUT = {
    *("token_rate", "hfu", "availability", "eei", "ppw", "euf"),
    *("information", "information_rate", "energy_per_bit"),
}
_BATCH = "plan.batch"
_TOLD = ("plan.chips", _BATCH, "plan.clock", "plan.coolant_temperature")
_INTERVALS = (
    "The intervals are those of the plan found. They hold with a probability of 90 %, to first order in the uncertain "
    "numbers of the system, if it trains to the loss that the own plan reaches with them. Both plans move together, so "
    "that changes are known better than numbers. Numbers have the digits that their intervals support; --json has all."
)
_DEGREES = ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")


def optimum_report(optimum: Optimum, risk: SavingAtRisk | None = None) -> RenderableType:
    """The found plan beside the scenario's own, the energy of both, what limits cost, how sure the search is.

    With the uncertainty of both plans, numbers have the digits that it supports, and their intervals.
    """
    return Group(
        Text(f"{optimum.scenario.title}\n{headline(optimum, risk)}", style="bold"),
        "",
        found_plans_table(optimum),
        "",
        outcomes_table(optimum.baseline, optimum.outcome, risk),
        "",
        energies_table(optimum.baseline, optimum.outcome, risk),
        "",
        *saving_lines(optimum, risk),
        slack_table(optimum.plan, optimum.outcome, risk.found if risk else None),
        "",
        Text("\n".join(limit_lines(optimum, risk))),
        "",
        Text("\n".join(search_lines(optimum))),
        "",
        *([Text(_INTERVALS), ""] if risk and risk.found else []),
        *(Text(line) for line in map(sentence, batch_sentences(optimum.scenario, optimum.plan, optimum.outcome))),
        provenance_notes(optimum.scenario),
        Text(f"To evaluate this plan: {evaluate_command(optimum)}", style="dim", no_wrap=True, overflow="ignore"),
    )


def saving_lines(optimum: Optimum, risk: SavingAtRisk | None) -> list[RenderableType]:
    """The saving by cause and how sure it is, each before an empty line; nothing where there is no saving to split."""
    table = saving_table(optimum, risk)
    if table is None:
        return []
    return [table, "", *([Text("\n".join(risk_lines(optimum, risk))), ""] if risk and optimum.success else [])]


def found_plans_table(optimum: Optimum) -> Table:
    """Both plans, and the numbers of the system that the search has chosen."""
    scenario = optimum.scenario
    table = plans_table(scenario, scenario.plan, optimum.plan, optimum.varied)
    for path, (own, found) in _chosen_of_system(optimum).items():
        table.add_row(escape(path.removeprefix("system.")), show(own), show(found), _ratio(own, found))
    return table


def _chosen_of_system(optimum: Optimum) -> dict[str, tuple[Field, Field]]:
    """Own and found value of the numbers of the system that were varied, by path."""
    run, origins = TrainingRun(optimum.scenario.system, optimum.scenario.plan), optimum.scenario.provenance

    def number(path: str, value: float) -> Field:
        return Field(path, path, path, origins[path].unit, value)

    return {
        path: (number(path, run.number(path)), number(path, found))
        for path, found in optimum.found.items()
        if path.startswith("system.")
    }


def headline(optimum: Optimum, risk: SavingAtRisk | None = None) -> str:
    """What was found, in one line."""
    change = optimum.value / optimum.baseline_value - 1.0 if optimum.baseline_value else math.nan
    what = f"Lowest-{optimum.minimize} plan"
    if not optimum.success:
        shown = "nearest" if optimum.result == SearchResult.infeasible else "best"
        what = f"{optimum.result.capitalize()}; {optimum.minimize} of the {shown} plan found"
    if risk is None or not math.isfinite(risk.saving_deviation):
        value = format_quantity(optimum.value, optimum.value_unit)
        return f"{what}: {value} ({percent(change, sign='+')} against the scenario's own plan)"
    value = with_interval(optimum.value, *risk.interval(optimum.value), optimum.value_unit, LEVEL)
    share = DEVIATIONS * risk.saving_deviation / optimum.baseline_value  # half of the interval of the change
    decimals = 0 if share >= 0.02 else 1
    return (
        f"{what}: {value}, {100.0 * change:+.{decimals}f} % against the scenario's own plan "
        f"({100.0 * LEVEL:g} %: {100.0 * (change - share):+.{decimals}f} to {100.0 * (change + share):+.{decimals}f} %)"
    )


def _comparison(title: str, *, intervals: bool = False) -> Table:
    table = Table(box=None, title=title, title_justify="left", title_style="bold", pad_edge=False, header_style="")
    table.add_column("", no_wrap=True)
    for heading in ("own plan", "found", *(["90 % interval"] if intervals else []), "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def plans_table(scenario: Scenario, own: TrainingPlan, found: TrainingPlan, varied: tuple[str, ...]) -> Table:
    """Numbers of both plans that differ or were free."""
    table = _comparison("Plan")
    priors = given_priors(scenario)
    before = {field.name: field for field in plan_fields(own)}
    for field in plan_fields(found):
        old = before.get(field.name)
        differs = old is None or old.value != field.value
        if differs or field.name.split("[")[0] in varied:
            mark = f" {PRIOR_MARK}" if old and field.name.split("[")[0] in priors else ""
            shown = show_plan(scenario, old) + mark if old else ""
            name = field.name.removeprefix("plan.").removeprefix("layout.").replace("_", " ")
            table.add_row(escape(name), shown, show_plan(scenario, field), _ratio(old, field) if differs else "")
    replicas = [data_parallel(plan) for plan in (own, found)]
    if replicas[0] != replicas[1]:
        table.add_row("data (follows)", *(f"{count:g}" for count in replicas), f"x {replicas[1] / replicas[0]:.3g}")
    return table


def outcomes_table(own: TrainingOutcome, found: TrainingOutcome, risk: SavingAtRisk | None = None) -> Table:
    """Main outcomes of both plans, with the 90 % interval of the found one."""
    table = _comparison("Outcome", intervals=_has_spreads(risk))
    before, after = shown_outcomes(own, found)
    table.add_row(*_compared(_total(own, "energy", "J"), _total(found, "energy", "J"), risk))
    for name in (name for name in before if name not in _LEFT_OUT):
        table.add_row(*_compared(before[name], after[name], risk))
        if name == "steps":
            table.add_row(*_compared(_total(own, "step_time", "s"), _total(found, "step_time", "s"), risk))
    return table


def energies_table(own: TrainingOutcome, found: TrainingOutcome, risk: SavingAtRisk | None = None) -> Table:
    """Where the energy of both plans goes."""
    table = _comparison("Energy", intervals=_has_spreads(risk))
    for before, after in zip(outcome_fields(own.energy), outcome_fields(found.energy), strict=True):
        table.add_row(*_compared(before, after, risk, "energy"))
    whole = [_total(one, "energy", "J")._replace(title="total") for one in (own, found)]
    table.add_row(*_compared(whole[0], whole[1], risk), style="bold")
    return table


def _has_spreads(risk: SavingAtRisk | None) -> bool:
    return risk is not None and risk.own is not None and risk.found is not None


def _total(outcome: TrainingOutcome, name: str, unit: str) -> Field:
    return Field(name, name, name.replace("_", " "), unit, total(getattr(outcome, name)))


def _compared(before: Field, after: Field, risk: SavingAtRisk | None, group: str = "") -> list[str]:
    """Title, both values, the interval of the second where it is known, and the change: in digits that are known."""
    own, found = (risk.own, risk.found) if risk else (None, None)
    intervals = interval_of(before, own, group), interval_of(after, found, group)
    row = [escape(before.title), rounded(before, *intervals[0]), rounded(after, *intervals[1])]
    if own is None or found is None:
        return [*row, _ratio(before, after)]
    name = f"{group}.{before.name}" if group else before.name
    half = half_of_change(own, found, name)
    if after.unit == "K":
        half = DEVIATIONS * deviation(found.change(name) - own.change(name))
    return [*row, ends(after, *intervals[1]), _ratio(before, after, half)]


def _ratio(before: Field | None, after: Field, half_width: float = 0.0) -> str:
    """Change of a number, in the digits of half the width of its interval: of its logarithm, or in K."""
    if before is None or before.value == 0.0 or after.value == 0.0 or not math.isfinite(before.value):
        return ""
    if after.unit == "K":
        difference = after.value - before.value
        return f"{difference:+.{0 if half_width >= 2.0 and abs(difference) >= 1.0 else 1}f} K"
    ratio = after.value / before.value
    return percent(ratio - 1.0, ratio * half_width, sign="+") if 0.5 < ratio < 2.0 else f"x {ratio:.3g}"


def limit_lines(optimum: Optimum, risk: SavingAtRisk | None = None) -> list[str]:
    """The limits, which of them bind, and what these cost. Limits of shares are 1, and stand in the table of room."""
    asked = ", ".join(
        f"{_word(name)} {format_quantity(value, optimum.limit_units[name])}"
        for name, value in optimum.limits.items()
        if name == "chips" or optimum.limit_units[name] != "1" or not math.isclose(value, 1.0, rel_tol=1e-6)
        if value < NO_LIMIT or optimum.limit_units[name] not in ("W", "W/s")
    )
    lines = [f"Limits: {asked}." if asked else "No limits."]
    lines += [optimum.message] if OBEYS_LIMITS_ASKED in optimum.message else []
    if not (optimum.prices or optimum.conflicts):
        return [*lines, "No shadow prices: the plan is at a kink of the model, or the limits leave no room about it."]
    if not optimum.active:
        return [*lines, "No constraint is binding."]
    lines.append("Binding constraints and their shadow prices:")
    return lines + [f"  {price_line(optimum, name, risk)}" for name in optimum.active]


def price_line(optimum: Optimum, name: str, risk: SavingAtRisk | None = None) -> str:
    """What one limit costs: "1 % more saves 0.3 % energy; 1 MW more saves 31 MWh".

    A price is taken to be as uncertain as the objective.
    """
    half = DEVIATIONS * risk.deviation if risk else 0.0
    word = _word(name)
    price = optimum.prices.get(name)
    if price is None or not math.isfinite(price.elasticity):
        return word
    # An elasticity compounds: 1 % more of a limit with elasticity 178 saves 83 %, not 178 %.
    share = -math.expm1(-price.elasticity * math.log1p(0.01))
    saves = _saving(f"{100 * abs(share):.{2 if half else 3}g} % {optimum.minimize}", price.elasticity)
    line = f"{word}: 1 % more {saves}"
    steps = _STEPS.get(optimum.limit_units.get(name, ""), ())
    if not steps or name not in optimum.limits or not math.isfinite(price.price) or price.price == 0.0:
        return line
    step, text = next((one for one in steps if one[0] <= _LARGEST_STEP * optimum.limits[name]), steps[-1])
    amount = -optimum.value * math.expm1(-price.elasticity * math.log1p(step / optimum.limits[name]))
    return f"{line}; {text} more {_saving(like(abs(amount), optimum.value_unit, half), price.price)}"


def _saving(amount: str, sign: float) -> str:
    return f"{'saves' if sign >= 0 else 'costs'} {amount}"


def _word(name: str) -> str:
    return name.replace("_", " ")


def _restarts_line(statistics: Mapping[str, Any]) -> str:
    count, agreeing, astray = (statistics[name] for name in ("restarts", "restarts_agreeing", "restarts_astray"))
    line = f"{agreeing} of {count} restarts of the best layout converge to the same optimum"
    if astray:
        line += f"; {astray} do not converge"
    if agreeing + astray < count:
        spread = math.expm1(statistics["restarts_spread"])
        end = f"less than {100.0 * _SAME:g} %" if spread < _SAME else f"at most {100.0 * spread:.2g} %"
        line += f"; the others end {end} above it"
    return f"{line}."


def search_lines(optimum: Optimum) -> list[str]:
    """How many layouts were compared, whether restarts agree, how far the second best is, what rounding costs."""
    statistics = optimum.statistics
    lines = [
        f"Layouts: {optimum.layouts_considered:,} compared, {optimum.layouts_feasible:,} fit in memory, "
        f"{statistics['layouts_searched']:,} searched."
    ]
    left, others = statistics["layouts_left"], statistics["others_excess"]
    if left:
        lines.append(f"No bound excludes {left:,} of the others: a better plan may be among them.")
    elif math.isfinite(others) and others > 0.0:
        bound = f"at least {_two_digits(100.0 * others)} % more {optimum.minimize}"
        lines.append(f"The others need {bound}: a lower bound, from the prices of the limits at the best plan.")
    if statistics["restarts"]:
        lines.append(_restarts_line(statistics))
    if optimum.runner_up is not None:
        layout = optimum.runner_up.layout
        degrees = {name: float(getattr(layout, name)) for name in _DEGREES}
        shown = ", ".join(f"{_word(name)} {degree:g}" for name, degree in degrees.items() if degree != 1.0)
        excess = f"{100.0 * optimum.runner_up.excess:.2g} % more {optimum.minimize} than the best"
        lines.append(f"The second-best layout ({shown or 'data parallelism alone'}) needs {excess}.")
    if math.isfinite(optimum.gap):
        cost = f"at most {100.0 * optimum.gap:.2g} %" if optimum.gap >= _SAME else f"less than {100.0 * _SAME:g} %"
        lines.append(f"Rounding to whole numbers costs {cost}.")
    if optimum.near_tie is not None:
        lines.append(near_tie_line(optimum, optimum.near_tie))
    lines += [refinement_line(optimum, one) for one in optimum.refinements]
    return lines


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):g}"


def refinement_line(optimum: Optimum, found: Refinement) -> str:
    """What a batch that follows the progress, or power by stage, saves beside the best plan without."""
    added, what = found.added, found.added.names.capitalize()
    batch, clock = format_quantity(float(np.ravel(found.plan.batch)[0]), "token"), float(found.outcome.clock)
    parts = [f"a batch of {batch}"] if added.knots else []
    plain = " and ".join([*parts, *[f"a clock of {clock:.3g}"] * bool(added.stages)])
    unsure = "" if found.converged else " Its search did not converge: a better one may exist."
    if found.saving <= 0.0:
        return f"{what} saves nothing beside the best plan with {plain}.{unsure}"
    share = 100.0 * found.saving / float(objective_value(found.outcome, optimum.minimize))
    return f"{what} saves {share:.2g} % {optimum.minimize} beside the best plan with {plain}.{unsure}"


def near_tie_line(optimum: Optimum, tie: NearTie) -> str:
    """What the last tenths of a percent of the objective cost in energy or money."""
    saving, cost = (f"{100.0 * share:.2g} %" for share in (tie.saving, max(tie.cost, 0.0)))
    near = f"{100.0 * tie.tolerance:.3g} % of the lowest {optimum.minimize}"
    if not tie.taken:
        return f"No plan within {near} saves more than {saving} {tie.saved}; that one takes {cost} more."
    exact = {field.name: field for field in plan_fields(tie.plan)}
    shown = [name for name in _TOLD if exact[name].value != _plan_value(optimum.plan, name)]
    differs = ", ".join(f"{exact[name].title} {show_plan(optimum.scenario, exact[name])}" for name in shown)
    return (
        f"Many plans come within {near}; of these, this one takes the least {tie.saved}. The plan of the lowest "
        f"{optimum.minimize}{f' ({differs})' if differs else ''} saves {cost} more {optimum.minimize}, and takes "
        f"{100.0 * tie.saving / (1.0 - tie.saving):.2g} % more {tie.saved}. --tolerance 0 finds it."
    )


def _plan_value(plan: TrainingPlan, name: str) -> float:
    """Number of a plan by its dotted path."""
    return next(field.value for field in plan_fields(plan) if field.name == name)


def failure_line(optimum: Optimum) -> str:
    """Why there is no trusted answer, and what to do next, in one line."""
    message = optimum.message or optimum.result
    parts = [message, *(conflict_text(one) for one in optimum.conflicts if one.limit not in message)]
    return " ".join(" ".join(part.split()) for part in parts)


def conflict_text(conflict: Conflict) -> str:
    """One limit that cannot hold with the others, and the nearest value that can."""
    asked, nearest = (format_quantity(value, conflict.unit, digits=6) for value in (conflict.asked, conflict.nearest))
    return f"{conflict.limit}: asked {asked}, nearest feasible {nearest}."


def evaluate_command(optimum: Optimum) -> str:
    """The command that evaluates the found plan."""
    chosen = {path: exact(found) for path, (_, found) in _chosen_of_system(optimum).items()}
    return command_of(optimum.scenario, optimum.plan, chosen)
