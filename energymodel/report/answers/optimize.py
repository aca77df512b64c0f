"""The answers of `optimize` and `design-chip`: the plan found beside the scenario's own, what limits cost, the chip."""

import dataclasses
import math

import jax

from energymodel.report.answer import DATA, Answer, Column, Quantity, Sentence, Table, attributes, number, present
from energymodel.report.answers import details as where
from energymodel.report.answers import run_tables, search_notes, search_tables
from energymodel.report.answers.evaluate import intervals_chart, limits_chart
from energymodel.report.answers.run_tables import FOUND, OWN, Run
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
    scenario, minimize, success = optimum.scenario, optimum.minimize, optimum.success
    spreads = (risk.own, risk.found) if risk and risk.own and risk.found else (None, None)
    own, best = Run(scenario.plan, optimum.baseline, spreads[0]), Run(optimum.plan, optimum.outcome, spreads[1])
    runs = {OWN: own, FOUND: best}
    outcome, limits, prices = (
        run_tables.outcome_table(runs),
        run_tables.limits_table(best),
        search_tables.prices_table(optimum, risk),
    )
    (energy, step), drawn = where.spent(runs)
    saving, (layouts, nearest) = search_tables.saving_table(optimum, risk), search_tables.layouts_compared(optimum)
    why, bars = search_tables.saving_causes(risk) if risk is not None and success else (None, None)
    tables = [plans_table(optimum), outcome, energy, step, prices, saving, limits, layouts]
    charts = drawn[::-1] if minimize == "time" else drawn
    money = where.money_table(scenario, runs) if minimize == "money" else None
    if money is not None and money.rows:
        tables.append(money)
        charts = [where.parts_chart(money, "money", "Money of the run by what it pays for"), *charts]
    charts += present(search_tables.saving_chart(optimum, saving), search_tables.prices_chart(optimum, prices))
    charts += present(
        nearest, bars, *limits_chart(limits), intervals_chart(outcome, row=FOUND) if best.spread else None
    )
    notes = [*search_notes.limits_asked(optimum), *search_notes.search_sentences(optimum)]
    at_risk = search_tables.risk_sentences(optimum, risk) if risk is not None and success else []
    more: list[Table] = []
    if details:
        subtitle, pays = "Largest elasticities, the plan found held", money is None
        more, drawings, sentences = where.detail_parts(scenario_found(optimum), runs, minimize, subtitle, money=pays)
        charts, notes = [*charts, *drawings], [*notes, *sentences]
    tables += [*present(why), *more, *search_tables.search_tables(optimum, risk), run_tables.priors_table(scenario)]
    what = f"The plan with the lowest {minimize}" if success else "No plan was found that can be trusted"
    why_none = "" if success else search_notes.failure(optimum)
    answered = [search_tables.binding_sentence(optimum, prices), *at_risk[:1]] if success else [Sentence(why_none)]
    return Answer.of(
        scenario,
        "optimize",
        Sentence(what),
        [headline(optimum, risk), *answered],
        [table for table in tables if table.rows],
        charts=charts,
        notes=[
            *notes,
            *at_risk[1:],
            *where.batch_sentences(scenario, optimum.plan, optimum.outcome),
            *run_tables.provenance_notes(scenario),
        ],
        also=[("To evaluate this plan", search_notes.evaluate_command(optimum))] if success else [],
        rows="outcome",
        result=str(optimum.result),
        message=why_none,
    )


def plans_table(optimum: Optimum) -> Table:
    """Both plans, and the numbers of the system that the search has chosen."""
    table = run_tables.plan_table(optimum.scenario, {OWN: optimum.scenario.plan, FOUND: optimum.plan}, optimum.varied)
    chosen = search_notes.chosen_of_system(optimum)
    columns = [Column(path, path.removeprefix("system."), own.unit) for path, (own, _) in chosen.items()]
    pairs = [[Quantity(field.value) for field in fields] for fields in chosen.values()]
    added = [[*pair, run_tables.changed(column, *pair)] for column, pair in zip(columns, pairs, strict=True)]
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
        "change": number(run_tables.ratio_change(ratio, optimum.minimize, *spreads), kind="change"),
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
    Column("reference_clock", "clock 1", "Hz"),
    Column("reference_voltage", "supply at clock 1", "V"),
    Column("die_area", unit="m^2"),
    Column("cache_size", "last cache", "B"),
    Column("memory_capacity", "memory", "B"),
    Column("memory_bandwidth", unit="B/s"),
    Column("rated_power", unit="W"),
    Column("idle_power", unit="W"),
    Column("price", unit="USD"),
    Column("embodied_carbon", unit="kg"),
)


def design_chip_answer(designed: DesignedOptimum, risk: SavingAtRisk | None = None) -> Answer:
    """The chip beside its reference, then the plan for it and what its limits cost."""
    answer, sizes = optimize_answer(designed.optimum, risk), designed.caches._asdict()
    caches = Sentence(
        "Closed forms for large products alone: operands take the lowest energy with a cache of {lowest_energy}; below "
        "{balance} memory limits them. Registers of {registers} a core move them at the lowest energy.",
        {name: number(size, "B") for name, size in sizes.items()},
    )
    closed = Table.facts(
        "cache_by_closed_form", "Caches by closed form", attributes(designed.caches, "B", *sizes), DATA
    )
    chips = {"reference": designed.reference, "design": designed.chip}
    rows = {name: [getattr(chip, column.name) for column in _CHIP] for name, chip in chips.items()}
    return dataclasses.replace(
        answer,
        command="design-chip",
        sentences=[*answer.sentences, caches],
        tables=[run_tables.compared("chip", "Chip", _CHIP, rows), *answer.tables, closed],
    )
