"""What does the page of the best plan say?"""

import dataclasses
import math

import jax

from energymodel.report.charts import AbstractChart, Bar, GroupedBars, Part
from energymodel.report.intervals import with_interval
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.elasticities import elasticities_chart, elasticities_of_plan
from energymodel.report.page.evaluate_page import MAIN_OUTPUTS
from energymodel.report.page.limits_parts import binding_sentence, prices_chart, rooms_chart
from energymodel.report.page.markup import beside, bullets, folded, paragraph, paragraphs, terminal_table
from energymodel.report.page.spending import FOUND, OWN, Runs, energy_bars, money_bars, spending_section, time_bars
from energymodel.report.page.step_parts import step_section
from energymodel.report.page.sureness import sureness_section
from energymodel.report.plan_report import (
    energies_table,
    evaluate_command,
    failure_line,
    found_plans_table,
    headline,
    limit_lines,
    outcomes_table,
    search_lines,
)
from energymodel.report.saving_report import MOST, SMALLEST, risk_lines
from energymodel.scenarios.scenario import Scenario
from energymodel.search.result import Optimum
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import LEVEL

CAUSES = 8


def optimum_page(optimum: Optimum, risk: SavingAtRisk | None, command: str) -> Page:
    """The page of a search: both plans, where things go, a step, limits and prices, the saving, layouts, how sure."""
    scenario = optimum.scenario
    runs = _runs(optimum)
    by_energy = "energy" in optimum.minimize or optimum.minimize == "etp"
    return Page(
        title=scenario.title,
        answer=f"The plan with the lowest {optimum.minimize}"
        if optimum.success
        else "No plan was found that can be trusted",
        summary=_sentences(optimum, risk),
        figure=summary_figure(optimum),
        sections=[
            _plans(optimum, risk),
            spending_section(scenario, runs, energy=not by_energy),
            step_section(_scenario_found(optimum), optimum.plan),
            _limits(optimum, risk),
            _saving(optimum, risk),
            layouts_section(optimum),
            *([sureness_section(scenario, risk.found)] if risk and risk.found else []),
        ],
        command=command,
        also=[("This command evaluates the plan that was found:", evaluate_command(optimum))]
        if optimum.success
        else [],
    )


def _runs(optimum: Optimum) -> Runs:
    return {OWN: (optimum.scenario.plan, optimum.baseline), FOUND: (optimum.plan, optimum.outcome)}


def _sentences(optimum: Optimum, risk: SavingAtRisk | None) -> list[str]:
    if not optimum.success:
        return [f"{headline(optimum, risk)}.", failure_line(optimum)]
    sentences = [f"{headline(optimum, risk)}.", binding_sentence(optimum, risk)]
    if risk is None:
        return sentences
    saving = with_interval(risk.saving, *risk.saving_interval, optimum.value_unit, LEVEL)
    named = [name.removeprefix("system.") for name, share in risk.shares.items() if share >= SMALLEST][:MOST]
    measure = f"; measure {', '.join(named)} first" if named else ""
    rests = f"{100.0 * risk.resting_on_priors:.0f} % of that rests on numbers that nobody measured"
    return [*sentences, f"The plan saves {saving}, and {rests}{measure}."]


def summary_figure(optimum: Optimum) -> AbstractChart:
    """Both plans by what is minimized, where it has parts; else by energy."""
    runs = _runs(optimum)
    if optimum.minimize == "time":
        return time_bars(runs)
    return (money_bars(optimum.scenario, runs) if optimum.minimize == "money" else None) or energy_bars(runs)


def _scenario_found(optimum: Optimum) -> Scenario:
    """The scenario with the numbers of the system that the search has chosen."""
    run = TrainingRun(optimum.scenario.system, optimum.plan)
    with jax.enable_x64(True):
        for path, value in optimum.found.items():
            if path.startswith("system."):
                run = run.at(run.changed(path, value))
    return dataclasses.replace(optimum.scenario, system=run.system)


def _plans(optimum: Optimum, risk: SavingAtRisk | None) -> Section:
    tables = beside(
        terminal_table(found_plans_table(optimum)),
        terminal_table(energies_table(optimum.baseline, optimum.outcome, risk)),
    )
    outcomes = outcomes_table(optimum.baseline, optimum.outcome, risk)
    return Section(
        "The plan beside the scenario's own",
        tables
        + terminal_table(outcomes, only=MAIN_OUTPUTS)
        + folded("All outputs", terminal_table(outcomes, title=False)),
    )


def _limits(optimum: Optimum, risk: SavingAtRisk | None) -> Section:
    room, prices = rooms_chart(optimum.outcome), prices_chart(optimum)
    first, *rest = limit_lines(optimum, risk)
    prices_listed = [line.strip() for line in rest if line.startswith("  ")]
    sentences = [line for line in rest if not line.startswith("  ")]
    known = elasticities_of_plan(_scenario_found(optimum), optimum.plan, optimum.minimize)
    elasticities = elasticities_chart(known.items(), optimum.minimize, "Largest elasticities, the found plan held")
    return Section(
        "What binds, and what it is worth",
        paragraph(first)
        + (figure(prices) if prices is not None else "")
        + paragraphs(sentences)
        + bullets(prices_listed)
        + (figure(elasticities) if elasticities is not None else "")
        + (figure(room) if room is not None else ""),
    )


def _saving(optimum: Optimum, risk: SavingAtRisk | None) -> Section:
    """What each change saves, and which numbers make the saving unsure."""
    whole = sum(optimum.saving.values())
    parts = []
    if whole:
        order = sorted(optimum.saving, key=lambda cause: -abs(optimum.saving[cause]))
        groups = tuple(Bar(cause, (Part("", optimum.saving[cause]),)) for cause in order)
        share = 100.0 * optimum.saving[order[0]] / whole
        title = f"The {order[0]} brings {share:.0f} % of the saving"
        subtitle = f"Saving of {optimum.minimize} by what is changed"
        parts.append(
            figure(GroupedBars(title, optimum.value_unit, groups, subtitle, f"{optimum.minimize} saved", digits=2))
        )
    if risk is not None and optimum.success:
        parts.append(paragraphs(risk_lines(optimum, risk)))
        shares = {name: share for name, share in risk.shares.items() if share >= SMALLEST}
        if shares:
            groups = tuple(
                Bar(name.removeprefix("system."), (Part("", share),)) for name, share in list(shares.items())[:CAUSES]
            )
            first, share = next(iter(shares.items()))
            title = f"{first.removeprefix('system.')} causes {100.0 * share:.0f} % of the variance of the saving"
            subtitle = "Numbers that nobody measured, by their share of the variance of the saving"
            parts.append(figure(GroupedBars(title, "%", groups, subtitle, "share of the variance", digits=2)))
    return Section("What the change saves, and how sure that is", "".join(parts))


def layouts_section(optimum: Optimum) -> Section:
    """The best layout beside the second best and a bound for all others."""
    known: dict[str, float] = {}
    if optimum.runner_up is not None:
        known["second-best layout"] = optimum.runner_up.excess
    others = float(optimum.statistics.get("others_excess", math.nan))
    if not optimum.statistics.get("layouts_left") and math.isfinite(others) and others > 0.0:
        known["all layouts that were not searched, at least"] = others
    parts = []
    if known:
        title = f"Another layout takes at least {100.0 * min(known.values()):.2g} % more {optimum.minimize}"
        groups = tuple(Bar(name, (Part("", excess),)) for name, excess in known.items())
        subtitle = f"{optimum.minimize.capitalize()} above that of the best layout"
        parts.append(figure(GroupedBars(title, "%", groups, subtitle, f"more {optimum.minimize}", digits=2)))
    return Section("Layouts compared", "".join(parts) + paragraphs(search_lines(optimum)))
