"""Parts of the answer of a search: prices of limits, causes and risk of the saving, layouts, and how it went."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from energymodel.readers.expressions import data_file
from energymodel.report.answer import Chart, Sentence, Table
from energymodel.report.answers.plan_fields import Field, command_of, plan_fields, set_word
from energymodel.report.answers.run_tables import Run, outcome_table, plan_table
from energymodel.report.cells import Column, Number, Quantity, attributes, number, share, spaced, words
from energymodel.report.number import sentence
from energymodel.search.layouts import layout_label
from energymodel.search.result import OBEYS_LIMITS_ASKED, NearTie, Optimum, Refinement
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import DEVIATIONS
from energymodel.system.facility import NO_LIMIT
from energymodel.system.outputs import objective_value
from energymodel.system.plan import PRECISIONS

_STEPS = data_file(__file__, "limit_steps.toml")
"""Steps of a limit that a person would consider, in SI, by its unit, the largest first."""
_SAME = 1e-4  # relative difference of an objective that no one minds
_COMPARED = ("plan.chips", "plan.batch", "plan.clock", "plan.coolant_temperature")
_DEGREES = ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")
_LARGEST_STEP = 0.1  # of the limit: a price holds for small changes
AIM = "loss"
"""What the run is for: a price of it beside those of resources would make these look like nothing."""
_ONE_PERCENT = math.log(1.01)
CAUSES, NAMED, SMALLEST = 8, 3, 0.01  # numbers in the chart and in a sentence, and the smallest share of the latter


def prices_table(optimum: Optimum, risk: SavingAtRisk | None) -> Table:
    """What each limit costs, the binding ones first: "1 % more saves 0.3 % energy; 1 MW more saves 31 MWh".

    A price is taken to be as uncertain as the objective.
    """
    of, unit = optimum.minimize, optimum.value_unit
    names = sorted(optimum.prices, key=lambda name: name not in optimum.active)
    prices, half = [optimum.prices[name] for name in names], DEVIATIONS * risk.deviation if risk else 0.0
    steps = [price_step(optimum, name, half) for name in names]
    cells = {
        words("limit", "binding constraint"): map(spaced, names),
        # An elasticity compounds: 1 % more of a limit with elasticity 178 saves 83 %, not 178 %.
        Column("change", f"1 % more: {of}", kind="change"): [
            math.expm1(-price.elasticity * _ONE_PERCENT) for price in prices
        ],
        words("step"): [step for step, _ in steps],
        Column("saved", f"{of} saved by it", unit): [saved for _, saved in steps],
        words("name", "", "data"): names,
        Column("elasticity", level="data"): [price.elasticity for price in prices],
        Column("price", unit="", level="data"): [price.price for price in prices],
        words("price_unit", level="data"): [price.price_unit for price in prices],
        words("binds", level="data"): [name in optimum.active for name in names],
    }
    binding = range(sum(name in optimum.active for name in names))
    return Table.of("prices", "Shadow prices of the limits", cells, short=binding)


def price_step(optimum: Optimum, name: str, half: float) -> tuple[str, Quantity | None]:
    """A step of a limit in words, and what it saves of the objective."""
    price, steps = optimum.prices[name], _STEPS.get(optimum.limit_units.get(name, ""), [])
    if not steps or name not in optimum.limits or not math.isfinite(price.price) or price.price == 0.0:
        return "", None
    step, text = next((pair for pair in steps if pair[0] <= _LARGEST_STEP * optimum.limits[name]), steps[-1])
    saved = -optimum.value * math.expm1(-price.elasticity * math.log1p(step / optimum.limits[name]))
    cell = Quantity.around(saved, half or None)
    return f"{text} more", cell if saved > 0.0 else Quantity(saved, cell.high, cell.low)


def binding_sentence(optimum: Optimum, prices: Table) -> Sentence:
    """Which limits bind, and what the most valuable one is worth."""
    if not optimum.active:
        return Sentence("No constraint is binding.")
    *others, last = map(spaced, optimum.active)
    listed = f"{', '.join(others)} and {last} bind" if others else f"{last} binds"
    listed = f"{listed[:1].upper()}{listed[1:]}"
    if not optimum.prices:
        return Sentence(f"{listed}; there are no shadow prices at this plan.")
    worth = {name: abs(price.elasticity) for name, price in optimum.prices.items() if name in optimum.active}
    worth = {name: size for name, size in worth.items() if math.isfinite(size)}
    if not worth:
        return Sentence(f"{listed}.")
    first = min(worth, key=lambda name: (name == AIM, -worth[name]))
    row = next(row for row in prices.rows if row[4] == first)
    most = f"; {spaced(first)} is worth most" if len(worth) > 1 else ""
    verb, saved = "saves" if row[1].value <= 0.0 else "costs", row[3]
    numbers = {"change": share(abs(row[1].value))}
    text = f"{listed}{most}: 1 % more {verb} {{change}} {optimum.minimize}"
    if saved is not None:
        ends = () if saved.low is None else sorted((abs(saved.low), abs(saved.high)))
        numbers["saved"] = prices.column("saved")[0], Quantity(abs(saved.value), *ends)
        text += f"; {row[2]} {verb} {{saved}}"
    return Sentence(f"{text}.", numbers)


def prices_chart(optimum: Optimum, prices: Table) -> Chart | None:
    """What 1 % more of each binding limit changes."""
    binding = [spaced(name) for name in optimum.active]
    changes = {label: cell.value for label, _, cell in prices.series("change") if label in binding}
    changes = {label: change for label, change in changes.items() if math.isfinite(change) and change}
    subtitle = "Shadow prices of the binding limits"
    if not changes:
        return None
    if AIM in changes and len(changes) > 1:
        del changes[AIM]
        subtitle += "; that of the loss is in the table"
    order = sorted(changes, key=lambda label: -abs(changes[label]))
    first = changes[order[0]]
    title = f"1 % more {order[0]} {'saves' if first < 0.0 else 'costs'} {{share}} {optimum.minimize}"
    named, axis = Sentence(title, {"share": share(abs(first))}), f"change of {optimum.minimize}"
    return Chart("tornado", named, "prices", "limit", ["change"], subtitle, only=order, axis=axis)


def saving_table(optimum: Optimum, risk: SavingAtRisk | None) -> Table:
    """What each cause saves of the objective, with its share; no rows where the saving cannot be split.

    Where the uncertainty of the saving is known, all numbers have as many decimals as it supports.
    """
    total, half = sum(optimum.saving.values()), DEVIATIONS * risk.saving_deviation if risk else 0.0
    columns = [
        words("cause", ""),
        Column("saved", f"{optimum.minimize} saved", optimum.value_unit, digits="rows"),
        Column("share", kind="share", digits="two" if risk else "interval"),
    ]
    parts = sorted(optimum.saving.items(), key=lambda pair: -abs(pair[1])) if total and optimum.has_own_plan else []
    parts += [("total", total)] if parts else []
    rows = [
        [cause, (saved, saved - half, saved + half) if half else saved, saved / abs(total)] for cause, saved in parts
    ]
    return Table("saving", "Saving by cause", columns, rows)


def saving_chart(optimum: Optimum, table: Table) -> Chart | None:
    """The causes of the saving as bars."""
    largest = share(table.rows[0][2] if table.rows else 0.0)
    subtitle = f"Saving of {optimum.minimize} by what is changed"
    look = {"axis": f"{optimum.minimize} saved", "most": len(table.rows) - 1, "read": lambda _: largest}
    return Chart.ranked(table, "saved", "The {name} brings {largest} of the saving", subtitle, **look)


def risk_sentences(optimum: Optimum, risk: SavingAtRisk) -> list[Sentence]:
    """How sure the saving is, and how much of it rests on numbers that nobody measured."""
    numbers = {
        "saving": number((risk.saving, *risk.saving_interval), optimum.value_unit),
        "resting": share(risk.resting_on_priors),
        "variance": share(risk.prior_variance),
        "sure": share(risk.chance),
    }
    named = [(name, part) for name, part in risk.shares.items() if part >= SMALLEST][:NAMED]
    numbers |= {f"share{index}": share(part) for index, (_, part) in enumerate(named)}
    listed = ", ".join(f"{name.removeprefix('system.')} ({{share{index}}})" for index, (name, _) in enumerate(named))
    measure = f"Measure these first (share of the variance): {listed}. " if named else ""
    more = f" {risk.without} more such numbers have no stated spread; they are taken as exact." if risk.without else ""
    text = "It saves {saving:i}, anything at all with {sure}; {resting} rests on numbers that nobody measured."
    if risk.clock is not None:
        numbers["clock"] = number(risk.clock, kind="share")
        text += " The clock alone saves {clock:i}, by what is known of the chip's voltage."
    return [
        Sentence(text, numbers),
        Sentence(
            f"{measure}With a probability of 90 %, what is wrong with these numbers takes away or adds no more than "
            f"{{resting}} of the saving. They cause {{variance}} of its variance.{more}",
            numbers,
        ),
    ]


def saving_causes(risk: SavingAtRisk) -> tuple[Table, Chart | None]:
    """Numbers that nobody measured, by their share of the variance of the saving."""
    axis, title = "share of the variance", "Numbers that nobody measured, by what they do to the saving"
    rows = [[name.removeprefix("system."), part] for name, part in risk.shares.items()]
    columns = [words("number"), Column("share", axis, kind="share", digits="two")]
    large = sum(part >= SMALLEST for _, part in rows)
    table = Table("saving_causes", title, columns, rows, short=range(large), level="full")
    first = "{name} causes {largest} of the variance of the saving"
    return table, Chart.ranked(table, "share", first, title, axis, SMALLEST, CAUSES)


def layouts_compared(optimum: Optimum) -> tuple[Table, Chart | None]:
    """The layouts that may be the best, or the second-best one, and a bound for all others, by what they take more."""
    of, others = optimum.minimize, float(optimum.statistics.get("others_excess", math.nan))
    rows: list[list[Any]] = [[layout_label(of.layout), of.excess, of.probability] for of in optimum.choice.ranked]
    if not rows and (second := optimum.runner_up) is not None:
        rows.append([layout_label(second.layout), second.excess, None])
    if not optimum.statistics.get("layouts_left") and others > 0.0 and math.isfinite(others):
        rows.append(["all layouts that were not searched, at least", others, None])
    excess = Column("excess", f"more {of} than the best", kind="share", digits="two")
    best = Column("probability", "probability to be the best", kind="share", digits="two")
    table = Table("layouts", "Layouts compared", [words("layout"), excess, best], rows, level="full")
    title = f"Another layout takes at least {{largest}} more {of}"
    subtitle = f"{of.capitalize()} above that of the best layout"
    nearest = share(min((row[1] for row in rows), default=0.0))
    return table, Chart.ranked(table, "excess", title, subtitle, f"more {of}", read=lambda _: nearest)


def switches_table(optimum: Optimum) -> Table:
    """Switches of the framework that were not searched and act on the plan found, by what they save."""
    acting = [worth for worth in optimum.switches if abs(worth.saving) > _SAME]
    cells = {
        words("switch"): [f"plan.layout.{worth.switch}" for worth in acting],
        Column("saved", f"{optimum.minimize} saved", kind="share", digits="two"): [worth.saving for worth in acting],
        words("limits"): ["kept" if worth.keeps_limits else "exceeded" for worth in acting],
        words("numerics"): ["change" if worth.switch in PRECISIONS else "stay" for worth in acting],
    }
    return Table.of("switches", "Switches not searched, with the plan found as it is", cells, level="full")


def search_tables(optimum: Optimum, risk: SavingAtRisk | None) -> Iterable[Table]:
    """What other programs want to know of a search: its objective, variables, conflicts and refinements."""
    unit, scenario, second, tie = optimum.value_unit, optimum.scenario, optimum.runner_up, optimum.near_tie
    search: dict[Column, Any] = {words("minimize", "minimized"): optimum.minimize}
    search |= attributes(optimum, unit, "value", "baseline_value", "relaxed_value")
    search |= attributes(optimum, "1", "gap", "layouts_considered", "layouts_feasible")
    if scenario.optimize.tolerance is not None:
        search |= attributes(scenario.optimize, "1", "tolerance")
    if risk is not None:
        search |= attributes(risk, "1", "deviation", "own_deviation", "resting_on_priors", "prior_variance")
        search |= attributes(risk, unit, "saving_deviation", "prior_deviation")
        search |= {Column("saving", unit=unit): (risk.saving, *risk.saving_interval)}
        search |= {Column("priors_without_spread"): risk.without}
    yield Table.facts("search", "The search", search, "data")
    units = {path: origin.unit for path, origin in scenario.provenance.items()}
    units |= {field.name.split("[")[0]: field.unit for field in plan_fields(optimum.plan)}
    variables = {Column(path, path, units.get(path.split("[")[0], "1")): of for path, of in optimum.found.items()}
    if variables:
        yield Table.facts("variables", "Variables", variables, "data")
    limits = {Column(name, unit=optimum.limit_units.get(name, "1")): of for name, of in optimum.limits.items()}
    yield Table.facts("limit_values", "Limits of the search", limits, "data")
    if second is not None:
        yield Table.facts(
            "runner_up", "Second-best layout", attributes(second.layout, "1", *vars(second.layout)), "data"
        )
    if conflicts := optimum.conflicts:
        columns = [Column(conflict.limit, unit=conflict.unit) for conflict in conflicts]
        rows = [[getattr(conflict, name) for conflict in conflicts] for name in ("asked", "nearest")]
        title, labels = "Limits that exclude each other", ("asked", "nearest feasible")
        yield Table("conflicts", title, columns, rows, tall=True, labels=labels)
    plans = {f"refinement_{index}_beside": of.plan for index, of in enumerate(optimum.refinements)}
    if optimum.refinements:
        columns = [words("added"), Column("knots"), words("stages"), Column("saving", unit=unit), words("converged")]
        rows = [
            [of.added.names, of.added.knots, " ".join(of.added.stages), of.saving, of.converged]
            for of in optimum.refinements
        ]
        yield Table("refinements", "Refinements", columns, rows, level="data")
    if tie is not None:
        cells = {words("saved"): tie.saved, words("taken"): tie.taken}
        yield Table.facts(
            "near_tie", "Plans as good", cells | attributes(tie, "1", "tolerance", "cost", "saving"), "data"
        )
        exact = outcome_table({"exact": Run(tie.plan, tie.outcome)})
        yield dataclasses.replace(exact, name="exact_outcome", level="data")
        plans["exact_plan"] = tie.plan
    for name, plan in plans.items():
        yield dataclasses.replace(plan_table(scenario, {name: plan}), name=name, level="data")


def limits_asked(optimum: Optimum) -> list[Sentence]:
    """The limits of the search. Those of shares are 1, and stand in the table of margins."""
    units = optimum.limit_units
    numbers = {
        name: number(value, units.get(name, "1"))
        for name, value in optimum.limits.items()
        if name == "chips" or units[name] != "1" or not math.isclose(value, 1.0, rel_tol=1e-6)
        if value < NO_LIMIT or units[name] not in ("W", "W/s")
    }
    asked = ", ".join(f"{spaced(name)} {{{name}}}" for name in numbers)
    lines = [Sentence(f"Limits: {asked}." if asked else "No limits.", numbers)]
    return lines + ([Sentence(optimum.message)] if OBEYS_LIMITS_ASKED in optimum.message else [])


def search_sentences(optimum: Optimum) -> list[Sentence]:
    """How many layouts were compared, whether restarts agree, how far the second best is, what rounding costs."""
    statistics, minimize, second = optimum.statistics, optimum.minimize, optimum.runner_up
    left, others = statistics["layouts_left"], float(statistics["others_excess"])
    numbers: dict[str, Number] = {"others": share(others), "gap": share(optimum.gap)}
    texts = [
        f"Layouts: {optimum.layouts_considered:,} compared, {optimum.layouts_feasible:,} fit in memory, "
        f"{statistics['layouts_searched']:,} searched."
    ]
    if left:
        texts.append(f"No bound excludes {left:,} of the others: a better plan may be among them.")
    elif math.isfinite(others) and others > 0.0:
        text = f"The others need at least {{others}} more {minimize}: a lower bound, from the prices of the limits at "
        texts.append(f"{text}the best plan.")
    if statistics["restarts"]:
        texts.append(_restarts(statistics))
        numbers["spread"] = share(math.expm1(statistics["restarts_spread"]))
    if second is not None:
        degrees = {name: float(getattr(second.layout, name)) for name in _DEGREES}
        listed = ", ".join(f"{spaced(name)} {degree:g}" for name, degree in degrees.items() if degree != 1.0)
        layout = f"The second-best layout ({listed or 'data parallelism alone'})"
        texts.append(f"{layout} needs {{second}} more {minimize} than the best.")
        numbers["second"] = share(second.excess)
    if math.isfinite(optimum.gap):
        cost = "at most {gap}" if optimum.gap >= _SAME else "less than 0.01 %"
        texts.append(f"Rounding to whole numbers costs {cost}.")
    return [
        *(Sentence(text, numbers) for text in texts),
        *([near_tie_sentence(optimum, optimum.near_tie)] if optimum.near_tie is not None else []),
        *(refinement_sentence(optimum, refinement) for refinement in optimum.refinements),
    ]


def _restarts(statistics: Mapping[str, int | float]) -> str:
    count, agreeing, astray = (statistics[name] for name in ("restarts", "restarts_agreeing", "restarts_astray"))
    text = f"{agreeing} of {count} restarts of the best layout converge to the same optimum"
    text += f"; {astray} do not converge" if astray else ""
    if agreeing + astray < count:
        is_close = math.expm1(statistics["restarts_spread"]) < _SAME
        text += f"; the others end {'less than 0.01 %' if is_close else 'at most {spread}'} above it"
    return f"{text}."


def refinement_sentence(optimum: Optimum, refinement: Refinement) -> Sentence:
    """What a batch that follows the progress, or power by stage, saves beside the best plan without."""
    added = refinement.added
    numbers = {
        "batch": number(float(np.ravel(refinement.plan.batch)[0]), "token"),
        "clock": number(refinement.outcome.clock, kind="share"),
        "share": share(refinement.saving / float(objective_value(refinement.outcome, optimum.minimize))),
    }
    beside = " and ".join(["a batch of {batch}"] * bool(added.knots) + ["a clock of {clock}"] * bool(added.stages))
    unsure = "" if refinement.converged else " Its search did not converge: a better one may exist."
    saves = "nothing" if refinement.saving <= 0.0 else f"{{share}} {optimum.minimize}"
    return Sentence(f"{added.names.capitalize()} saves {saves} beside the best plan with {beside}.{unsure}", numbers)


def near_tie_sentence(optimum: Optimum, tie: NearTie) -> Sentence:
    """What the last tenths of a percent of the objective cost in energy or money."""
    shares = {"near": tie.tolerance, "saving": tie.saving, "cost": max(tie.cost, 0.0)}
    numbers = {name: share(part) for name, part in shares.items()}
    numbers["more"] = share(tie.saving / (1.0 - tie.saving))
    near = f"{{near}} of the lowest {optimum.minimize}"
    if not tie.taken:
        text = f"No plan within {near} saves more than {{saving}} {tie.saved}; that one takes {{cost}} more."
        return Sentence(text, numbers)
    fields = {field.name: field for field in plan_fields(tie.plan)}
    own = {field.name: field.value for field in plan_fields(optimum.plan)}
    differing = [fields[name] for name in _COMPARED if name in fields and fields[name].value != own[name]]
    for field in differing:
        numbers[field.name] = number(field.value, field.unit, "share" if field.name == "plan.clock" else "")
    differs = ", ".join(f"{field.title} {{{field.name}}}" for field in differing)
    return Sentence(
        f"Many plans come within {near}; of these, this one takes the lowest {tie.saved}. The plan of the lowest "
        f"{optimum.minimize}{f' ({differs})' if differs else ''} saves {{cost}} more {optimum.minimize}, and takes "
        f"{{more}} more {tie.saved}. --tolerance 0 finds it.",
        numbers,
    )


def failure(optimum: Optimum) -> str:
    """Why there is no trusted answer, and what to do next, in one line: limits that exclude each other."""
    parts = [optimum.message or str(optimum.result)]
    for conflict in optimum.conflicts:
        if conflict.limit not in parts[0]:
            numbers = {name: number(getattr(conflict, name), conflict.unit) for name in ("asked", "nearest")}
            text = f"{conflict.limit}: asked {{asked}}, nearest feasible {{nearest}}."
            parts.append(sentence(Sentence(text, numbers)))
    return " ".join(" ".join(part.split()) for part in parts)


def chosen_of_system(optimum: Optimum) -> dict[str, Field]:
    """Numbers of the system that the search has chosen, by path."""
    origins, chosen = optimum.scenario.provenance, optimum.found.items()
    return {path: Field(path, path, origins[path].unit, of) for path, of in chosen if path.startswith("system.")}


def evaluate_command(optimum: Optimum) -> str:
    """The command that evaluates the plan of a search."""
    chosen = {path: set_word(field) for path, field in chosen_of_system(optimum).items()}
    return command_of(optimum.scenario, optimum.plan, chosen)
