"""What a search is worth: binding limits with their prices, the saving by cause and its risk, layouts compared."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from energymodel.report.answer import (
    DATA,
    FULL,
    Chart,
    Column,
    Quantity,
    Sentence,
    Table,
    attributes,
    number,
    share,
    spaced,
    words,
)
from energymodel.report.answers.run_tables import Run, outcome_table, plan_table
from energymodel.report.fields import plan_fields
from energymodel.search.layouts import layout_label
from energymodel.search.result import Optimum
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import DEVIATIONS

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
AIM = "loss"
"""What the run is for: a price of it beside those of resources would make these look like nothing."""
_ONE_PERCENT = math.log(1.01)
CAUSES, NAMED, SMALLEST = 8, 3, 0.01  # numbers in the chart and in a sentence, and the smallest share of the latter


def prices_table(optimum: Optimum, risk: SavingAtRisk | None) -> Table:
    """What each limit costs, the binding ones first: "1 % more saves 0.3 % energy; 1 MW more saves 31 MWh".

    A price is taken to be as uncertain as the objective.
    """
    of, unit = optimum.minimize, optimum.value_unit
    columns = [
        words("limit", "binding constraint"),
        Column("change", f"1 % more: {of}", kind="change"),
        words("step"),
        Column("saved", f"{of} saved by it", unit),
        words("name", "", DATA),
        Column("elasticity", level=DATA),
        Column("price", unit="", level=DATA),
        words("price_unit", level=DATA),
        words("binds", level=DATA),
    ]
    rows = []
    for name in sorted(optimum.prices, key=lambda name: name not in optimum.active):
        price, binds = optimum.prices[name], name in optimum.active
        # An elasticity compounds: 1 % more of a limit with elasticity 178 saves 83 %, not 178 %.
        more = math.expm1(-price.elasticity * _ONE_PERCENT)
        step, saved = price_step(optimum, name, DEVIATIONS * risk.deviation if risk else 0.0)
        rows.append([spaced(name), more, step, saved, name, price.elasticity, price.price, price.price_unit, binds])
    binding = range(sum(name in optimum.active for name in optimum.prices))
    return Table("prices", "Shadow prices of the limits", columns, rows, short=binding)


def price_step(optimum: Optimum, name: str, half: float) -> tuple[str, Quantity | None]:
    """A step of a limit in words, and what it saves of the objective."""
    price, steps = optimum.prices[name], _STEPS.get(optimum.limit_units.get(name, ""), ())
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
    worth = {name: abs(optimum.prices[name].elasticity) for name in optimum.active if name in optimum.prices}
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
    parts = sorted(optimum.saving.items(), key=lambda pair: -abs(pair[1])) if total else []
    parts += [("total", total)] if parts else []
    rows = [
        [cause, (saved, saved - half, saved + half) if half else saved, saved / abs(total)] for cause, saved in parts
    ]
    return Table("saving", "Saving by cause", columns, rows)


def saving_chart(optimum: Optimum, table: Table) -> Chart | None:
    """The causes of the saving as bars."""
    if not table.rows:
        return None
    title = Sentence(f"The {table.rows[0][0]} brings {{share}} of the saving", {"share": share(table.rows[0][2])})
    causes, subtitle = [row[0] for row in table.rows[:-1]], f"Saving of {optimum.minimize} by what is changed"
    axis = f"{optimum.minimize} saved"
    return Chart("bars", title, "saving", "cause", ["saved"], subtitle, only=causes, axis=axis)


def risk_sentences(optimum: Optimum, risk: SavingAtRisk) -> list[Sentence]:
    """How sure the saving is, and how much of it rests on numbers that nobody measured."""
    numbers = {
        "saving": number((risk.saving, *risk.saving_interval), optimum.value_unit),
        "resting": share(risk.resting_on_priors),
        "variance": share(risk.prior_variance),
    }
    named = [(name, part) for name, part in risk.shares.items() if part >= SMALLEST][:NAMED]
    numbers |= {f"share{index}": share(part) for index, (_, part) in enumerate(named)}
    listed = ", ".join(f"{name.removeprefix('system.')} ({{share{index}}})" for index, (name, _) in enumerate(named))
    measure = f" Measure these first (share of the variance): {listed}." if named else ""
    more = f" {risk.without} more such numbers have no stated spread; they are taken as exact." if risk.without else ""
    return [
        Sentence(
            f"The plan saves {{saving:i}}, and {{resting}} of that rests on numbers that nobody measured.{measure}",
            numbers,
        ),
        Sentence(
            "With a probability of 90 %, what is wrong with these numbers takes away or adds no more than {resting} of "
            f"the saving. They cause {{variance}} of its variance.{more}",
            numbers,
        ),
    ]


def saving_causes(risk: SavingAtRisk) -> tuple[Table, Chart | None]:
    """Numbers that nobody measured, by their share of the variance of the saving."""
    axis, title = "share of the variance", "Numbers that nobody measured, by what they do to the saving"
    rows = [[name.removeprefix("system."), part] for name, part in risk.shares.items()]
    large = [name for name, part in rows if part >= SMALLEST]
    columns = [words("number"), Column("share", axis, kind="share", digits="two")]
    table = Table("saving_causes", title, columns, rows, short=range(len(large)), level=FULL)
    if not large:
        return table, None
    first = Sentence(f"{large[0]} causes {{share}} of the variance of the saving", {"share": share(rows[0][1])})
    return table, Chart("bars", first, table.name, "number", ["share"], title, only=large[:CAUSES], axis=axis)


def layouts_compared(optimum: Optimum) -> tuple[Table, Chart | None]:
    """The second-best layout and a bound for all others, by what they take more of the objective."""
    of, others, rows = optimum.minimize, float(optimum.statistics.get("others_excess", math.nan)), []
    if (second := optimum.runner_up) is not None:
        rows.append(["second-best layout", second.excess, layout_label(second.layout)])
    if not optimum.statistics.get("layouts_left") and others > 0.0 and math.isfinite(others):
        rows.append(["all layouts that were not searched, at least", others, ""])
    excess = Column("excess", f"more {of} than the best", kind="share", digits="two")
    table = Table("layouts", "Layouts compared", [words("layout"), excess, words("label", "")], rows, level=FULL)
    if not rows:
        return table, None
    nearest = {"excess": share(min(row[1] for row in rows))}
    title, subtitle = f"Another layout takes at least {{excess}} more {of}", "above that of the best layout"
    first, axis = Sentence(title, nearest), f"more {of}"
    return table, Chart("bars", first, "layouts", "layout", ["excess"], f"{of.capitalize()} {subtitle}", axis=axis)


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
    yield Table.facts("search", "The search", search, DATA)
    units = {path: origin.unit for path, origin in scenario.provenance.items()}
    units |= {field.name.split("[")[0]: field.unit for field in plan_fields(optimum.plan)}
    variables = {Column(path, path, units.get(path.split("[")[0], "1")): of for path, of in optimum.found.items()}
    if variables:
        yield Table.facts("variables", "Variables", variables, DATA)
    limits = {Column(name, unit=optimum.limit_units.get(name, "1")): of for name, of in optimum.limits.items()}
    yield Table.facts("limit_values", "Limits of the search", limits, DATA)
    if second is not None:
        yield Table.facts("runner_up", "Second-best layout", attributes(second.layout, "1", *vars(second.layout)), DATA)
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
        yield Table("refinements", "Refinements", columns, rows, level=DATA)
    if tie is not None:
        cells = {words("saved"): tie.saved, words("taken"): tie.taken}
        yield Table.facts(
            "near_tie", "Plans as good", cells | attributes(tie, "1", "tolerance", "cost", "saving"), DATA
        )
        exact = outcome_table({"exact": Run(tie.plan, tie.outcome)})
        yield dataclasses.replace(exact, name="exact_outcome", level=DATA)
        plans["exact_plan"] = tie.plan
    for name, plan in plans.items():
        yield dataclasses.replace(plan_table(scenario, {name: plan}), name=name, level=DATA)
