"""The answer of `optimize`: the plan found beside the scenario's own, what limits cost, how sure the saving is."""

import dataclasses
import math

import jax

from energymodel.report.answer import FULL, Answer, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.batch_penalty import batch_sentences
from energymodel.report.answers.evaluate import detail_parts, intervals_chart, limits_chart
from energymodel.report.answers.run_tables import (
    FOUND,
    OWN,
    Run,
    limits_table,
    outcome_table,
    parts_table,
    plan_table,
    priors_table,
    provenance_notes,
)
from energymodel.report.answers.search_tables import (
    binding_sentence,
    chosen_of_system,
    evaluate_command,
    failure,
    layouts_chart,
    layouts_table,
    limit_values,
    limits_asked,
    prices_chart,
    prices_table,
    risk_sentences,
    saving_causes,
    saving_chart,
    saving_table,
    search_sentences,
    search_tables,
)
from energymodel.report.answers.spending import money_table, parts_chart
from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import Optimum, SearchResult
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import DEVIATIONS, deviation


def optimize_answer(optimum: Optimum, risk: SavingAtRisk | None = None, *, details: bool = False) -> Answer:
    """Both plans, their outcomes with changes, what limits are worth, the saving by cause, layouts compared.

    **Arguments:**

    - `details`: with money by part, a step pass by pass, elasticities and causes of the uncertainty, as pages have
      them.
    """
    scenario, runs = optimum.scenario, runs_of(optimum, risk)
    outcome, energy = outcome_table(runs), parts_table("energy", "Energy", runs)
    step, limits = parts_table("step_time", "Time of one step", runs, FULL), limits_table(runs[FOUND])
    prices, saving, layouts = prices_table(optimum, risk), saving_table(optimum, risk), layouts_table(optimum)
    tables = [plans_table(optimum), outcome, energy, step, *([prices] if prices.rows else []), saving, limits, layouts]
    charts = _charts(optimum, tables)
    if risk is not None and optimum.success:
        why, bars = saving_causes(risk)
        tables.append(why)
        charts += [bars] if bars is not None else []
    charts += [*limits_chart(limits), *([intervals_chart(outcome, row=FOUND)] if risk and risk.found else [])]
    notes = [*limits_asked(optimum), *search_sentences(optimum)]
    if details:
        subtitle = "Largest elasticities, the plan found held"
        more, drawings, sentences = detail_parts(scenario_found(optimum), runs, optimum.minimize, subtitle)
        tables, notes = [*tables, *more], [*notes, *sentences]
        charts += [chart for chart in drawings if (chart.table, chart.kind) != (charts[0].table, charts[0].kind)]
    if risk is not None and optimum.success:
        notes += risk_sentences(optimum, risk)[1:]
    tables += [*search_tables(optimum, risk), limit_values(optimum), priors_table(scenario)]
    answered = f"The plan with the lowest {optimum.minimize}"
    return Answer(
        "optimize",
        scenario.title,
        Sentence(answered if optimum.success else "No plan was found that can be trusted"),
        _sentences(optimum, risk, prices),
        [table for table in tables if table.rows],
        charts,
        [*notes, *batch_sentences(scenario, optimum.plan, optimum.outcome), *provenance_notes(scenario)],
        also=[("To evaluate this plan", evaluate_command(optimum))] if optimum.success else [],
        inputs=scenario.named_tables,
        rows="outcome",
        result=str(optimum.result),
        message="" if optimum.success else failure(optimum),
    )


def runs_of(optimum: Optimum, risk: SavingAtRisk | None = None) -> dict[str, Run]:
    """The scenario's own plan and the one that was found."""
    spreads = (risk.own, risk.found) if risk and risk.own and risk.found else (None, None)
    return {
        OWN: Run(optimum.scenario.plan, optimum.baseline, spreads[0]),
        FOUND: Run(optimum.plan, optimum.outcome, spreads[1]),
    }


def plans_table(optimum: Optimum) -> Table:
    """Both plans, and the numbers of the system that the search has chosen."""
    table = plan_table(optimum.scenario, {OWN: optimum.scenario.plan, FOUND: optimum.plan}, optimum.varied)
    chosen = chosen_of_system(optimum)
    columns = [Column(path, path.removeprefix("system."), own.unit) for path, (own, _) in chosen.items()]
    pairs = [(Quantity(own.value), Quantity(value.value)) for own, value in chosen.values()]
    changes = [Quantity(after.value / before.value - 1.0) if before.value else None for before, after in pairs]
    added = [[before for before, _ in pairs], [after for _, after in pairs], changes]
    rows = [[*row, *more] for row, more in zip(table.rows, added, strict=True)]
    return dataclasses.replace(table, columns=[*table.columns, *columns], rows=rows)


def headline(optimum: Optimum, risk: SavingAtRisk | None = None) -> Sentence:
    """What was found, with the change against the scenario's own plan."""
    what = f"Lowest-{optimum.minimize} plan"
    if not optimum.success:
        kind = "nearest" if optimum.result == SearchResult.infeasible else "best"
        what = f"{str(optimum.result).capitalize()}; {optimum.minimize} of the {kind} plan found"
    ends = risk.interval(optimum.value) if risk is not None else (None, None)
    column = Column(optimum.minimize, optimum.minimize, optimum.value_unit, digits="interval" if risk else "two")
    numbers = {
        "value": (column, Quantity(optimum.value, *ends)),
        "change": (Column("change", "change", kind="change"), objective_change(optimum, risk)),
    }
    return Sentence(f"{what}: {{value:i}}, {{change:i}} against the scenario's own plan.", numbers)


def objective_change(optimum: Optimum, risk: SavingAtRisk | None) -> Quantity:
    """Change of what is minimized, as the table of outcomes has it."""
    ratio = optimum.value / optimum.baseline_value if optimum.baseline_value else math.nan
    if risk is None or risk.own is None or risk.found is None or not ratio > 0.0:
        return Quantity(ratio - 1.0)
    half = DEVIATIONS * deviation(risk.found.relative(optimum.minimize) - risk.own.relative(optimum.minimize))
    return Quantity(ratio - 1.0, ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0)


def _sentences(optimum: Optimum, risk: SavingAtRisk | None, prices: Table) -> list[Sentence]:
    first = headline(optimum, risk)
    if not optimum.success:
        return [first, Sentence(failure(optimum))]
    return [first, binding_sentence(optimum, prices), *(risk_sentences(optimum, risk)[:1] if risk is not None else [])]


def _charts(optimum: Optimum, tables: list[Table]) -> list[Chart]:
    """Both plans by what is minimized, where it has parts, else by energy; then the other charts."""
    named = {table.name: table for table in tables}
    by_energy = parts_chart(named["energy_parts"], "energy", "Energy of the run by where it goes")
    by_time = parts_chart(named["step_time_parts"], "step_time", "Time of one step by term")
    charts = [by_time, by_energy] if optimum.minimize == "time" else [by_energy, by_time]
    if optimum.minimize == "money":
        money = money_table(optimum.scenario, runs_of(optimum))
        if money.rows:
            tables.append(money)
            charts.insert(0, parts_chart(money, "money", "Money of the run by what it pays for"))
    if named["saving"].rows:
        charts.append(saving_chart(optimum, named["saving"]))
    bars = layouts_chart(optimum, named["layouts"])
    tornado = prices_chart(optimum, named["prices"]) if "prices" in named else None
    return [*charts, *(chart for chart in (tornado, bars) if chart is not None)]


def scenario_found(optimum: Optimum) -> Scenario:
    """The scenario with the numbers of the system that the search has chosen."""
    run = TrainingRun(optimum.scenario.system, optimum.plan)
    with jax.enable_x64(True):
        for path, value in optimum.found.items():
            if path.startswith("system."):
                run = run.at(run.changed(path, value))
    return dataclasses.replace(optimum.scenario, system=run.system)
