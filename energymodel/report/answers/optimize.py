"""The answers of `optimize` and `design-chip`: the plan found beside the scenario's own, what limits cost, the chip."""

import dataclasses
import math

import jax

from energymodel.report.answer import DATA, FULL, Answer, Chart, Column, Quantity, Sentence, Table, facts, number
from energymodel.report.answers.evaluate import detail_parts, intervals_chart, limits_chart
from energymodel.report.answers.run_tables import (
    FOUND,
    OWN,
    Run,
    changed,
    compared,
    limits_table,
    outcome_table,
    parts_table,
    plan_table,
    priors_table,
    provenance_notes,
    ratio_change,
)
from energymodel.report.answers.search_notes import (
    chosen_of_system,
    evaluate_command,
    failure,
    limits_asked,
    search_sentences,
    search_tables,
)
from energymodel.report.answers.search_tables import (
    binding_sentence,
    layouts_chart,
    layouts_table,
    prices_chart,
    prices_table,
    risk_sentences,
    saving_causes,
    saving_chart,
    saving_table,
)
from energymodel.report.answers.spending import money_table, parts_chart
from energymodel.report.answers.uncertainty import batch_sentences
from energymodel.scenarios.scenario import Scenario
from energymodel.search.compare import DesignedOptimum
from energymodel.search.result import Optimum, SearchResult
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk


def optimize_answer(optimum: Optimum, risk: SavingAtRisk | None = None, *, details: bool = False) -> Answer:
    """Both plans, their outcomes with changes, what limits are worth, the saving by cause, layouts compared.

    **Arguments:**

    - `details`: with money by part, a step pass by pass, elasticities and causes of the uncertainty, as pages have
      them.
    """
    scenario, minimize = optimum.scenario, optimum.minimize
    spreads = (risk.own, risk.found) if risk and risk.own and risk.found else (None, None)
    runs = {
        OWN: Run(scenario.plan, optimum.baseline, spreads[0]),
        FOUND: Run(optimum.plan, optimum.outcome, spreads[1]),
    }
    outcome, limits, prices = outcome_table(runs), limits_table(runs[FOUND]), prices_table(optimum, risk)
    energy, step = parts_table("energy", "Energy", runs), parts_table("step_time", "Time of one step", runs, FULL)
    saving, layouts = saving_table(optimum, risk), layouts_table(optimum)
    charts: list[Chart | None] = [
        parts_chart(energy, "energy", "Energy of the run by where it goes"),
        parts_chart(step, "step_time", "Time of one step by term"),
    ]
    tables = [plans_table(optimum), outcome, energy, step, prices, saving, limits, layouts]
    if minimize == "time":
        charts.reverse()
    elif minimize == "money" and (money := money_table(scenario, runs)).rows:
        tables.append(money)
        charts.insert(0, parts_chart(money, "money", "Money of the run by what it pays for"))
    charts += [saving_chart(optimum, saving) if saving.rows else None]
    charts += [prices_chart(optimum, prices), layouts_chart(optimum, layouts)]
    notes, at_risk = [*limits_asked(optimum), *search_sentences(optimum)], []
    if risk is not None and optimum.success:
        why, bars = saving_causes(risk)
        tables.append(why)
        charts.append(bars)
        at_risk = risk_sentences(optimum, risk)
    charts += [*limits_chart(limits), intervals_chart(outcome, row=FOUND) if risk and risk.found else None]
    if details:
        subtitle = "Largest elasticities, the plan found held"
        more, drawings, sentences = detail_parts(scenario_found(optimum), runs, minimize, subtitle)
        names = [table.name for table in tables]
        tables, notes = [*tables, *(table for table in more if table.name not in names)], [*notes, *sentences]
        charts += [chart for chart in drawings if chart.table != "money_parts" or chart.table not in names]
    first, what = headline(optimum, risk), f"The plan with the lowest {minimize}"
    answered = [first, binding_sentence(optimum, prices), *at_risk[:1]]
    return Answer(
        "optimize",
        scenario.title,
        Sentence(what if optimum.success else "No plan was found that can be trusted"),
        answered if optimum.success else [first, Sentence(failure(optimum))],
        [table for table in [*tables, *search_tables(optimum, risk), priors_table(scenario)] if table.rows],
        [chart for chart in charts if chart is not None],
        [
            *(*notes, *at_risk[1:], *batch_sentences(scenario, optimum.plan, optimum.outcome)),
            *provenance_notes(scenario),
        ],
        also=[("To evaluate this plan", evaluate_command(optimum))] if optimum.success else [],
        inputs=scenario.named_tables,
        rows="outcome",
        result=str(optimum.result),
        message="" if optimum.success else failure(optimum),
    )


def plans_table(optimum: Optimum) -> Table:
    """Both plans, and the numbers of the system that the search has chosen."""
    table = plan_table(optimum.scenario, {OWN: optimum.scenario.plan, FOUND: optimum.plan}, optimum.varied)
    chosen = chosen_of_system(optimum)
    columns = [Column(path, path.removeprefix("system."), own.unit) for path, (own, _) in chosen.items()]
    pairs = [[Quantity(field.value) for field in fields] for fields in chosen.values()]
    added = [[*pair, changed(column, *pair)] for column, pair in zip(columns, pairs, strict=True)]
    rows = [[*row, *(cells[index] for cells in added)] for index, row in enumerate(table.rows)]
    return dataclasses.replace(table, columns=[*table.columns, *columns], rows=rows)


def headline(optimum: Optimum, risk: SavingAtRisk | None = None) -> Sentence:
    """What was found, in one line, with the change of what is minimized as the table of outcomes has it."""
    what = f"Lowest-{optimum.minimize} plan"
    if not optimum.success:
        kind = "nearest" if optimum.result == SearchResult.infeasible else "best"
        what = f"{str(optimum.result).capitalize()}; {optimum.minimize} of the {kind} plan found"
    ends, digits = (risk.interval(optimum.value), "interval") if risk is not None else ((), "two")
    ratio = optimum.value / optimum.baseline_value if optimum.baseline_value else math.nan
    spreads = (risk.own, risk.found) if risk is not None else (None, None)
    numbers = {
        "value": number((optimum.value, *ends), optimum.value_unit, digits=digits),
        "change": number(ratio_change(ratio, optimum.minimize, *spreads), kind="change"),
    }
    return Sentence(f"{what}: {{value:i}}, {{change:i}} against the scenario's own plan.", numbers)


def scenario_found(optimum: Optimum) -> Scenario:
    """The scenario with the numbers of the system that the search has chosen."""
    run = TrainingRun(optimum.scenario.system, optimum.plan)
    with jax.enable_x64(True):
        for path, value in optimum.found.items():
            if path.startswith("system."):
                run = run.at(run.changed(path, value))
    return dataclasses.replace(optimum.scenario, system=run.system)


_CHIP = (
    Column("peak_flops", "peak rate, 16 bits", "FLOP/s"),
    Column("energy_per_flop", "switching energy of an operation", "J/FLOP"),
    *(Column("reference_clock", "clock 1", "Hz"), Column("reference_voltage", "supply at clock 1", "V")),
    *(
        Column("die_area", unit="m^2"),
        Column("cache_size", "last cache", "B"),
        Column("memory_capacity", "memory", "B"),
    ),
    *(Column("memory_bandwidth", unit="B/s"), Column("rated_power", unit="W"), Column("idle_power", unit="W")),
    *(Column("price", unit="USD"), Column("embodied_carbon", unit="kg")),
)


def design_chip_answer(designed: DesignedOptimum, risk: SavingAtRisk | None = None) -> Answer:
    """The chip, then the plan for it and what its limits cost."""
    answer, sizes = optimize_answer(designed.optimum, risk), designed.caches._asdict()
    caches = Sentence(
        "Closed forms for large products alone: operands take the lowest energy with a cache of {lowest_energy}; below "
        "{balance} memory limits them. Registers of {registers} a core move them at the lowest energy.",
        {name: number(size, "B") for name, size in sizes.items()},
    )
    columns = {Column(name, unit="B", level=DATA): size for name, size in sizes.items()}
    closed = facts("cache_by_closed_form", "Caches by closed form", columns, DATA)
    return dataclasses.replace(
        answer,
        command="design-chip",
        sentences=[*answer.sentences, caches],
        tables=[chip_table(designed), *answer.tables, closed],
    )


def chip_table(designed: DesignedOptimum) -> Table:
    """The chip beside its reference."""
    chips = {"reference": designed.reference, "design": designed.chip}
    rows = {name: [getattr(chip, column.name) for column in _CHIP] for name, chip in chips.items()}
    return compared("chip", "Chip", _CHIP, rows)
