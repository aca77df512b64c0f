"""The answers of `optimize` and `design-chip`: the plan found beside the own, what limits cost, the shape, the chip."""

import dataclasses
import math
from collections.abc import Collection

import equinox as eqx
import jax
import numpy as np

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers import details as where
from energymodel.report.answers import run_tables, search_parts
from energymodel.report.answers.argument import five_sentences, is_near_limit
from energymodel.report.answers.evaluate import intervals_chart, limits_chart
from energymodel.report.answers.plan_fields import command_of
from energymodel.report.answers.run_tables import FOUND, OWN, Run
from energymodel.report.cells import Column, Quantity, attributes, declared, number, present, share, spaced, words
from energymodel.scenarios.scenario import Scenario
from energymodel.search.architecture import Architecture
from energymodel.search.compare import DesignedOptimum
from energymodel.search.layouts import layout_label
from energymodel.search.result import Optimum, SearchResult
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import outcome_spread
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import SCHEDULING
from energymodel.system.outputs import objective_title
from energymodel.system.plan import PRECISIONS, TokenBudget

DECIDED = ("chips", "batch", "clock")
MAIN_RESULTS = ("energy", "time", "money")
"""Numbers of a plan and outputs of the first screen."""


def optimize_answer(optimum: Optimum, risk: SavingAtRisk | None = None, *, details: bool = False) -> Answer:
    """Both plans, their outcomes with changes, what limits are worth, the saving by cause, layouts compared.

    Of a scenario whose layout nobody gave (`Scenario.chosen`) the plan found alone, and no saving.

    **Arguments:**

    - `details`: with money by part, a step pass by pass, elasticities and causes of the uncertainty, as pages have
      them.
    """
    scenario, minimize, success = optimum.scenario, optimum.minimize, optimum.success
    spreads = (risk.own, risk.found) if risk and risk.own and risk.found else (None, None)
    own, best = Run(scenario.plan, optimum.baseline, spreads[0]), Run(optimum.plan, optimum.outcome, spreads[1])
    runs = {OWN: own, FOUND: best} if optimum.has_own_plan else {FOUND: best}
    outcome, limits = run_tables.outcome_table(runs), run_tables.limits_table(best)
    prices, at_risk = search_parts.prices_table(optimum, risk), []
    (energy, step), drawn = where.spent(runs)
    saving, (layouts, nearest) = search_parts.saving_table(optimum, risk), search_parts.layouts_compared(optimum)
    why, bars, failure = None, None, "" if success else search_parts.failure(optimum)
    if risk is not None and success and optimum.has_own_plan and not optimum.keeps_plan:
        why, bars = search_parts.saving_causes(risk)
        at_risk = search_parts.risk_sentences(optimum, risk)
    plans, layout = plans_table(optimum), Column("layout_label", "layout", kind="words")
    labels = [*(layout_label(run.plan.layout) for run in runs.values()), *[None] * (len(plans.rows) - len(runs))]
    labelled = dataclasses.replace(plans, columns=[layout], rows=[[label] for label in labels])
    parts = (
        (labelled, ["layout_label"]),
        (plans, DECIDED),
        (outcome, [*MAIN_RESULTS, minimize, *["tokens"] * (minimize == "loss")]),
    )
    decision = run_tables.chosen_columns("decision", "In short", *parts)
    switches = search_parts.switches_table(optimum)
    tables = [plans, outcome, energy, step, prices, saving, limits, layouts, switches, decision]
    charts = drawn[::-1] if minimize == "time" else drawn
    money = where.money_table(scenario, runs) if minimize == "money" else None
    if money is not None and money.rows:
        tables.append(money)
        charts = [where.parts_chart(money, "money", "Money of the run by what it pays for"), *charts]
    charts += present(search_parts.saving_chart(optimum, saving), search_parts.prices_chart(optimum, prices))
    charts += [*present(nearest, bars), *limits_chart(limits)]
    charts += [intervals_chart(outcome, row=FOUND if optimum.has_own_plan else "")] if best.spread else []
    notes = [*search_parts.limits_asked(optimum), *search_parts.search_sentences(optimum)]
    more: list[Table] = []
    if details:
        subtitle, pays = "Largest elasticities, the plan found held", money is None
        more, drawings, sentences = where.detail_parts(optimum.scenario_found, runs, minimize, subtitle, money=pays)
        charts, notes = [*charts, *drawings], [*notes, *sentences]
    tables += [*present(why), *more, *search_parts.search_tables(optimum, risk), run_tables.priors_table(scenario)]
    lowest = f"The plan with the lowest {objective_title(minimize)}"
    what = lowest if success else "No plan was found that can be trusted"
    answered, binding = [Sentence(failure)], []
    if success:
        seen = {*decision.names, "tokens", "steps", "step_time", "swing_frequency", "power_average"}
        answered = [
            *([decision_sentence(plans, optimum)] if optimum.has_own_plan else []),
            *choice_sentences(optimum),
            *switches_sentence(optimum),
            *at_risk[:1],
            danger_sentence(best, limits),
            *(side_effects(outcome, seen) if optimum.has_own_plan else []),
        ]
        binding = [search_parts.binding_sentence(optimum, prices)]
        best_run = dataclasses.replace(optimum.scenario_found, plan=optimum.plan)
        if (is_near := is_near_limit(best_run)) or details:
            argument = five_sentences(best_run, optimum.outcome, float(np.mean(scenario.plan.batch)))
            (answered if is_near else notes).extend(argument)
    notes += [*binding, *at_risk[1:], *where.learning_sentences(scenario, optimum.plan, optimum.outcome)]
    return Answer.of(
        scenario,
        "optimize",
        Sentence(what),
        [headline(optimum, risk), *answered],
        [table for table in tables if table.rows],
        charts=charts,
        notes=[*notes, *run_tables.provenance_notes(scenario)],
        also=[("To evaluate this plan", search_parts.evaluate_command(optimum))] if success else [],
        screen=["decision"],
        rows="outcome",
        result=str(optimum.result),
        message=failure,
    )


def plans_table(optimum: Optimum) -> Table:
    """Both plans, and the numbers of the system that the search has chosen."""
    plans = {OWN: optimum.scenario.plan} if optimum.has_own_plan else {}
    table = run_tables.plan_table(optimum.scenario, {**plans, FOUND: optimum.plan}, optimum.varied)
    chosen, own = search_parts.chosen_of_system(optimum), TrainingRun(optimum.scenario.system, optimum.scenario.plan)
    columns = [Column(path, path.removeprefix("system."), field.unit) for path, field in chosen.items()]
    pairs = [[Quantity(own.number(path)), Quantity(field.value)] for path, field in chosen.items()]
    added = [[*pair, run_tables.changed(column, *pair)] for column, pair in zip(columns, pairs, strict=True)]
    added = added if plans else [pair[1:] for pair in pairs]
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
    if not optimum.has_own_plan:
        text = f"{what}: {{value:i}}. It starts from a layout that was chosen, not given: no saving is stated."
        if "time" in optimum.limits and "time" not in optimum.scenario.optimize.limits:
            text += " It takes at most 5 % longer than that one, the fastest; --limit time=... allows more."
        return Sentence(text, numbers)
    compared = "that of" if optimum.keeps_plan else "{change:i} against"
    return Sentence(f"{what}: {{value:i}}, {compared} the scenario's own plan.", numbers)


TRIED = 3  # layouts to try on the machine
_NOTICED, MOST_EFFECTS = 0.1, 2  # change of an output that is no side matter, and how many are listed
_CAUSES = {name: name for name in ("batch", "clock", "chips")} | {"coolant_temperature": "coolant"}
_WORTH_A_LINE, NAMED = 0.02, 2  # saving of a switch that is named, and how many are
_UNSEEN = 5e-4  # change of a number of a plan that is none
_FOLLOWS = {"goal.tokens", "layout.data", "clock_frequency", "zero_stage", "recomputation"}
"""Numbers of a plan that follow from others, or say them again."""


def decision_sentence(plan: Table, optimum: Optimum) -> Sentence:
    """What to change, with the share of the saving that it brings."""
    total = sum(optimum.saving.values())
    parts, numbers = [], {}
    for column, *cells in zip(plan.columns, *plan.rows, strict=True):
        before, after, change = (cell.value if isinstance(cell, Quantity) else None for cell in cells)
        turned = None not in (before, after) and (before == 0.0) != (after == 0.0)  # which has no relative change
        if column.name in _FOLLOWS or not (turned or abs(change or 0.0) >= _UNSEEN):
            continue
        cause = _CAUSES.get(column.name, "layout" if column.name.startswith("layout.") else "")
        numbers[column.name] = column, cells[1]
        parts.append(f"{column.title} to {{{column.name}}}")
        if total and cause in optimum.saving and f"{cause} share" not in numbers:
            numbers[f"{cause} share"] = share(optimum.saving[cause] / total)
            parts[-1] += f" ({{{cause} share}})"
    what = "Change, with shares of the saving" if total else "Change"
    return Sentence(f"{what}: {', '.join(parts)}." if parts else "Keep the plan as it is.", numbers)


def choice_sentences(optimum: Optimum) -> list[Sentence]:
    """Whether the best layout of the model is surely better than the own one, and what to try on the machine."""
    ranked, claim = optimum.choice
    if claim is None:
        return []
    numbers = {"gain": share(abs(claim.gain)), "sure": share(claim.probability)}
    text = f"saves {{gain}} {optimum.minimize} on average, anything with {{sure}}"
    if claim.taken:
        return [Sentence(f"Another layout {text}.", numbers)]
    if claim.gain <= 0.0:
        text = f"takes {{gain}} more {optimum.minimize} on average, though less with {{sure}}"
    on = [
        name for name in SCHEDULING if getattr(optimum.plan.layout, name) > getattr(optimum.scenario.plan.layout, name)
    ]
    stays = f"The own layout stays, with {' and '.join(on)} on" if on else "The own layout stays"
    nearest = sorted(ranked, key=lambda layout: layout.excess)[:TRIED]
    listed = ", ".join(layout_label(layout.layout) for layout in nearest)
    return [
        Sentence(
            f"{stays}: the best of the model {text} (90 % is asked). Run {listed} for 200 steps each, then "
            "`energymodel calibrate step-time`.",
            numbers,
        )
    ]


def switches_sentence(optimum: Optimum) -> list[Sentence]:
    """The switches that were not searched and would save most beside the plan found."""
    useful = [worth for worth in optimum.switches if worth.keeps_limits and worth.saving > _WORTH_A_LINE][:NAMED]
    if not useful:
        return []
    listed = (f"{of.switch} {{{of.switch}}}" + " (other numerics)" * (of.switch in PRECISIONS) for of in useful)
    text = f"Not searched, saves more: {', '.join(listed)}; --vary plan.layout.{useful[0].switch}=0:1 searches it."
    return [Sentence(text, {worth.switch: share(worth.saving) for worth in useful})]


def danger_sentence(best: Run, limits: Table) -> Sentence:
    """The probability to run out of memory, and the other limit that is most likely to be exceeded."""
    numbers = {"risk": share(best.outcome.out_of_memory)}
    text = "Risk to run out of memory {risk}"
    others = [column for column in limits.columns if column.name not in ("memory", "information")]
    if len(limits.rows) > 1 and others:
        text += f", to exceed another limit at most {{chance}} ({others[0].title})"
        numbers["chance"] = limits.number(others[0].name, 1)
    return Sentence(f"{text}.", numbers)


def side_effects(outcome: Table, but: Collection[str]) -> list[Sentence]:
    """Other outputs that change by more than a tenth, the most first."""
    changes = [
        (column, outcome.rows[2][index])
        for index, column in enumerate(outcome.columns)
        if column.level in ("short", "full") and column.name not in but and column.changed.kind == "change"
    ]
    large = [(column, cell) for column, cell in changes if isinstance(cell, Quantity) and abs(cell.value) > _NOTICED]
    large.sort(key=lambda pair: -abs(pair[1].value))
    large, more = large[:MOST_EFFECTS], len(large[MOST_EFFECTS:])
    numbers = {column.name: (column.changed, Quantity(cell.value)) for column, cell in large}
    listed = ", ".join(f"{column.title} {{{column.name}}}" for column, _ in large)
    rest = f", {more} more" if more else ""
    return [Sentence(f"Side effects: {listed}{rest}.", numbers)] if large else []


_CHIP = declared("chip")


def design_chip_answer(designed: DesignedOptimum, risk: SavingAtRisk | None = None) -> Answer:
    """The chip beside its reference, then the plan for it and what its limits cost."""
    answer, sizes = optimize_answer(designed.optimum, risk), designed.caches._asdict()
    caches = Sentence(
        "Closed forms for large products alone: operands take the lowest energy with a cache of {lowest_energy}; below "
        "{balance} memory limits them. Registers of {registers} a core move them at the lowest energy.",
        {name: number(size, "B") for name, size in sizes.items()},
    )
    closed = Table.facts(
        "cache_by_closed_form", "Caches by closed form", attributes(designed.caches, "B", *sizes), "data"
    )
    chips = {"reference": designed.reference, "design": designed.chip}
    rows = {name: [getattr(chip, column.name) for column in _CHIP] for name, chip in chips.items()}
    return dataclasses.replace(
        answer,
        command="design-chip",
        sentences=[*answer.sentences, caches],
        tables=[run_tables.compared("chip", "Chip", _CHIP, rows), *answer.tables, closed],
        screen=["chip", *answer.screen],
    )


COUNTS = (
    *("layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward", "dense_feed_forward"),
    *("experts", "active_experts"),
)
TOTALS = ("parameters", "active_parameters")


def architecture_answer(architecture: Architecture, *, details: bool = False) -> Answer:
    """The best shape with its plan beside the own one, what it gains, what its limits cost, and what each depth takes.

    `details` as for `optimize`.
    """
    own, optimum = architecture.scenario, architecture.optimum
    minimize, plan, outcome, success = optimum.minimize, optimum.plan, optimum.outcome, optimum.success
    unit, failed = optimum.value_unit, "" if success else search_parts.failure(optimum)
    seeks_loss = "loss" not in optimum.limits
    if isinstance(own.plan.goal, TokenBudget) or seeks_loss:  # the kind of goal that the scenario has
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(np.asarray(outcome.tokens)))
    best = dataclasses.replace(own, system=optimum.system, plan=plan)
    with jax.enable_x64(True):
        baseline = jax.device_get(evaluate_once(own.system, own.plan))
    spreads = [outcome_spread(scenario) if details else None for scenario in (own, best)]
    runs = {OWN: Run(own.plan, baseline, spreads[0]), FOUND: Run(plan, outcome, spreads[1])}
    outcomes, energy = run_tables.outcome_table(runs), run_tables.parts_table("energy", "Energy", runs, "full")
    before, after = (_sizes(scenario) for scenario in (own, best))
    differs = [name for name in COUNTS if not math.isclose(before[name], after[name], rel_tol=1e-9)]
    columns = [Column(name, level="short" if name in (*differs, *TOTALS) else "full") for name in before]
    shape = run_tables.compared("shape", "Shape", columns, {OWN: [*before.values()], FOUND: [*after.values()]})
    search = attributes(architecture, unit, "value", "own_value")
    search |= attributes(architecture, "1", "saving") | attributes(architecture, "nat/token", "loss", "penalty")
    search[words("at_bounds")] = ", ".join(architecture.at_bounds)
    depths, curve = _depths(architecture, unit)
    prices = search_parts.prices_table(optimum, None)
    tables = [shape, run_tables.plan_table(best, {OWN: own.plan, FOUND: plan}), outcomes, energy, depths, prices]
    tables += [Table.facts("search", "The search", search, "data"), run_tables.priors_table(best)]
    charts = [*curve, where.parts_chart(energy, "energy", "Energy of the run by where it goes")]
    notes: list[Sentence] = []
    if details:
        more, drawings, notes = where.detail_parts(best, runs, minimize)
        tables, charts = [*tables, *more], [*charts, *drawings, intervals_chart(outcomes, row=FOUND)]
    chosen = {f"system.workload.{name}": repr(after[name]) for name in differs}
    numbers = {name: number(getattr(architecture, name), unit) for name in ("value", "own_value")}
    numbers |= {name: (Column(name), Quantity(after[name])) for name in ("layers", "hidden", "heads", *TOTALS)}
    numbers |= {
        "gain": number(architecture.own_value - architecture.value, unit, digits="two"),
        "saving": share(architecture.saving),
        "loss": number(architecture.loss, "nat/token"),
        "penalty": number(architecture.penalty, "nat/token", digits="two"),
        "tokens": number(outcome.tokens, "token"),
        "each": number(float(outcome.tokens) / after["active_parameters"], digits="two"),
        "batch": number(np.max(plan.batch), "token"),
        "chips": (Column("chips", kind="count"), Quantity(float(plan.chips))),
    }
    gain = "{gain} less ({saving}) than the own shape with its best plan, {own_value}"
    if math.isnan(architecture.own_value):
        gain = "the own shape has no plan within the limits"
    texts = [
        f"Lowest {minimize}: {{value}}; {gain}.",
        "It has {layers} layers, {hidden} wide, with {heads} heads: {parameters} parameters. It takes {tokens}, {each} "
        f"per active parameter, in batches of {{batch}} on {{chips}} chips in layout {layout_label(plan.layout)}.",
        "Of the loss of {loss}, {penalty} is what the shape adds, by a prior: how much depends on the shape is not "
        "measured for models of this size. The tables are without it.",
    ]
    if architecture.at_bounds:
        names = ", ".join(map(spaced, architecture.at_bounds))
        texts.append(f"At the end of what is searched around the own shape: {names}. A nearer model goes further.")
    binding = [search_parts.binding_sentence(optimum, prices)] if success else [Sentence(failed)]
    return Answer.of(
        own,
        "optimize",
        Sentence(f"The shape with the lowest {minimize}" if success else "No shape can be trusted"),
        [*(Sentence(text, numbers) for text in texts), *search_parts.limits_asked(optimum), *binding],
        [table for table in tables if table.rows],
        charts=charts,
        notes=notes,
        also=[("To evaluate this shape", command_of(own, plan, chosen))],
        rows="shape",
        result="successful" if success else "not trusted",
        message=failed,
    )


def _sizes(scenario: Scenario) -> dict[str, float]:
    workload = scenario.system.workload
    return {name: float(np.asarray(getattr(workload, name))) for name in (*COUNTS, *TOTALS)}


def _depths(architecture: Architecture, unit: str) -> tuple[Table, list[Chart]]:
    """The objective at each depth that divides over the pipeline, all else decided anew, and how flat it is."""
    minimize = architecture.optimum.minimize
    pairs = [*zip(map(float, architecture.depths), map(float, architecture.depth_values), strict=True)]
    pairs = [(depth, value) for depth, value in pairs if math.isfinite(value)]
    columns = [Column("layers", kind="count"), Column(minimize, minimize, unit, digits="rows")]
    table = Table("depths", "The best of each depth", columns, pairs, level="full")
    if len(pairs) < 2:
        return table, []
    best, lowest = min(pairs, key=lambda pair: pair[1])
    near = [depth for depth, value in pairs if value <= 1.01 * lowest]
    title = f"From {min(near):g} to {max(near):g} layers {minimize} stays within 1 % of its minimum"
    if len(near) == 1:
        title = f"{best:g} layers take the lowest {minimize}"
    own_depth = _sizes(architecture.scenario)["layers"], "own depth", "x"
    subtitle, look = "Widths and plan decided anew at each depth", {"lines": True, "limit": own_depth}
    return table, [Chart("plane", Sentence(title), "depths", "layers", [minimize], subtitle, **look)]
