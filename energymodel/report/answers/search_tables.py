"""Tables and sentences of a search: what binds and what it is worth, the saving by cause, layouts compared."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from energymodel.report.answer import DATA, FULL, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.run_tables import Run, outcome_table, plan_table
from energymodel.report.command_text import command_of, exact
from energymodel.report.fields import Field, plan_fields
from energymodel.report.number import sentence
from energymodel.scenarios.scenario import Scenario
from energymodel.search.layouts import layout_label
from energymodel.search.result import OBEYS_LIMITS_ASKED, Conflict, NearTie, Optimum, Refinement
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.first_order import SavingAtRisk
from energymodel.sweeps.outcome_spread import DEVIATIONS
from energymodel.system.facility import NO_LIMIT
from energymodel.system.outputs import objective_value

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
_COMPARED = ("plan.chips", "plan.batch", "plan.clock", "plan.coolant_temperature")
_DEGREES = ("tensor", "pipeline", "virtual_stages", "context", "expert", "microbatch")
AIM = "loss"
"""What the run is for: a price of it beside those of resources would make these look like nothing."""
SHARE = Column("", "", kind="share", digits="two")
ONE_PERCENT = math.log(1.01)
CAUSES, NAMED, SMALLEST = 8, 3, 0.01  # numbers in the chart and in a sentence, and the smallest share of the latter


def words_of(name: str) -> str:
    """A name as a person reads it."""
    return name.replace("_", " ")


def limits_asked(optimum: Optimum) -> list[Sentence]:
    """The limits of the search. Those of shares are 1, and stand in the table of margins."""
    numbers = {
        name: (limit_column(optimum, name), Quantity(value))
        for name, value in optimum.limits.items()
        if name == "chips" or optimum.limit_units[name] != "1" or not math.isclose(value, 1.0, rel_tol=1e-6)
        if value < NO_LIMIT or optimum.limit_units[name] not in ("W", "W/s")
    }
    asked = ", ".join(f"{words_of(name)} {{{name}}}" for name in numbers)
    lines = [Sentence(f"Limits: {asked}." if asked else "No limits.", numbers)]
    return lines + ([Sentence(optimum.message)] if OBEYS_LIMITS_ASKED in optimum.message else [])


def limit_column(optimum: Optimum, name: str) -> Column:
    """The column of a limit."""
    unit = optimum.limit_units.get(name, "1")
    return Column(name, words_of(name), unit, "temperature" if unit == "K" else "amount")


def limit_values(optimum: Optimum) -> Table:
    """The value of each limit."""
    columns = [limit_column(optimum, name) for name in optimum.limits]
    rows = [[Quantity(float(value)) for value in optimum.limits.values()]]
    return Table("limit_values", "Limits of the search", columns, rows, tall=True, level=DATA)


def prices_table(optimum: Optimum, risk: SavingAtRisk | None) -> Table:
    """What each limit costs, the binding ones first: "1 % more saves 0.3 % energy; 1 MW more saves 31 MWh".

    A price is taken to be as uncertain as the objective.
    """
    half = DEVIATIONS * risk.deviation if risk else 0.0
    columns = [
        Column("limit", "binding constraint", kind="words"),
        Column("change", f"1 % more: {optimum.minimize}", kind="change"),
        Column("step", "step", kind="words"),
        Column("saved", f"{optimum.minimize} saved by it", optimum.value_unit),
        Column("name", "", kind="words", level=DATA),
        Column("elasticity", "elasticity", level=DATA),
        Column("price", "price", "", level=DATA),
        Column("price_unit", "unit of the price", kind="words", level=DATA),
        Column("binds", "binds", kind="words", level=DATA),
    ]
    rows = []
    for name in sorted(optimum.prices, key=lambda name: name not in optimum.active):
        price = optimum.prices[name]
        # An elasticity compounds: 1 % more of a limit with elasticity 178 saves 83 %, not 178 %.
        change = Quantity(math.expm1(-price.elasticity * ONE_PERCENT))
        step, saved = price_step(optimum, name, half)
        numbers: list[Cell] = [
            change,
            step,
            saved,
            name,
            Quantity(float(price.elasticity)),
            Quantity(float(price.price)),
        ]
        rows.append([words_of(name), *numbers, price.price_unit, "yes" if name in optimum.active else "no"])
    binding = range(sum(name in optimum.active for name in optimum.prices))
    return Table("prices", "Shadow prices of the limits", columns, rows, short=binding)


def price_step(optimum: Optimum, name: str, half: float) -> tuple[str, Quantity | None]:
    """A step of a limit in words, and what it saves of the objective."""
    price, steps = optimum.prices[name], _STEPS.get(optimum.limit_units.get(name, ""), ())
    if not steps or name not in optimum.limits or not math.isfinite(price.price) or price.price == 0.0:
        return "", None
    step, words = next((one for one in steps if one[0] <= _LARGEST_STEP * optimum.limits[name]), steps[-1])
    saved = -optimum.value * math.expm1(-price.elasticity * math.log1p(step / optimum.limits[name]))
    low, high = sorted((saved * math.exp(-half), saved * math.exp(half))) if half else (None, None)
    return f"{words} more", Quantity(saved, low, high)


def binding_sentence(optimum: Optimum, prices: Table) -> Sentence:
    """Which limits bind, and what the most valuable one is worth."""
    if not optimum.active:
        return Sentence("No constraint is binding.")
    names = [words_of(name) for name in optimum.active]
    listed = f"{', '.join(names[:-1])} and {names[-1]} bind" if len(names) > 1 else f"{names[0]} binds"
    listed = f"{listed[:1].upper()}{listed[1:]}"
    if not optimum.prices:
        return Sentence(f"{listed}; there are no shadow prices at this plan.")
    worth = sorted(
        (name for name in optimum.active if name in optimum.prices and math.isfinite(optimum.prices[name].elasticity)),
        key=lambda name: (name == AIM, -abs(optimum.prices[name].elasticity)),
    )
    if not worth:
        return Sentence(f"{listed}.")
    row = prices.column("name")[1].index(worth[0])
    change, step, saved = (prices.column(name)[1][row] for name in ("change", "step", "saved"))
    most = f"; {words_of(worth[0])} is worth most" if len(worth) > 1 else ""
    verb = "saves" if isinstance(change, Quantity) and change.value <= 0.0 else "costs"
    numbers = {"change": (SHARE, Quantity(abs(change.value)))} if isinstance(change, Quantity) else {}
    words = f"{listed}{most}: 1 % more {verb} {{change}} {optimum.minimize}"
    if isinstance(saved, Quantity):
        low, high = (
            (None, None) if saved.low is None or saved.high is None else sorted((abs(saved.low), abs(saved.high)))
        )
        numbers["saved"] = prices.column("saved")[0], Quantity(abs(saved.value), low, high)
        words += f"; {step} {verb} {{saved}}"
    return Sentence(f"{words}.", numbers)


def prices_chart(optimum: Optimum, prices: Table) -> Chart | None:
    """What 1 % more of each binding limit changes."""
    changes = {label: cell for label, _, cell in prices.series("change") if math.isfinite(cell.value) and cell.value}
    changes = {label: cell for label, cell in changes.items() if label in map(words_of, optimum.active)}
    subtitle = "Shadow prices of the binding limits"
    if not changes:
        return None
    if AIM in changes and len(changes) > 1:
        del changes[AIM]
        subtitle += "; that of the loss is in the table"
    order = sorted(changes, key=lambda label: -abs(changes[label].value))
    first = changes[order[0]].value
    verb = "saves" if first < 0.0 else "costs"
    title = Sentence(
        f"1 % more {order[0]} {verb} {{share}} {optimum.minimize}", {"share": (SHARE, Quantity(abs(first)))}
    )
    axis, y = f"change of {optimum.minimize}", ["change"]
    return Chart("tornado", title, "prices", "limit", y, subtitle, only=order, axis=axis)


def saving_table(optimum: Optimum, risk: SavingAtRisk | None) -> Table:
    """What each cause saves of the objective, with its share; no rows where the saving cannot be split.

    Where the uncertainty of the saving is known, all numbers have as many decimals as it supports.
    """
    whole = sum(optimum.saving.values())
    half = DEVIATIONS * risk.saving_deviation if risk else 0.0

    def amount(saved: float) -> Quantity:
        return Quantity(saved, saved - half, saved + half) if half else Quantity(saved)

    unit = optimum.value_unit
    columns = [
        Column("cause", "", kind="words"),
        Column("saved", f"{optimum.minimize} saved", unit, digits="rows"),
        Column("share", "share", kind="share", digits="two" if risk else "interval"),
    ]
    parts = sorted(optimum.saving.items(), key=lambda pair: -abs(pair[1])) if whole else []
    rows: list[list[Cell]] = [[cause, amount(saved), Quantity(saved / abs(whole))] for cause, saved in parts]
    if rows:
        rows.append(["total", amount(whole), Quantity(math.copysign(1.0, whole))])
    return Table("saving", "Saving by cause", columns, rows)


def saving_chart(optimum: Optimum, table: Table) -> Chart:
    """The causes of the saving as bars."""
    share = table.column("share")[1][0]
    numbers = {"share": (SHARE, share)} if isinstance(share, Quantity) else {}
    title = Sentence(f"The {table.rows[0][0]} brings {{share}} of the saving", numbers)
    causes = [str(row[0]) for row in table.rows[:-1]]
    subtitle = f"Saving of {optimum.minimize} by what is changed"
    y = ["saved"]
    return Chart("bars", title, "saving", "cause", y, subtitle, only=causes, axis=f"{optimum.minimize} saved")


def risk_sentences(optimum: Optimum, risk: SavingAtRisk) -> list[Sentence]:
    """How sure the saving is, and how much of it rests on numbers that nobody measured."""
    column = Column("saving", "", optimum.value_unit)
    numbers = {
        "saving": (column, Quantity(risk.saving, *risk.saving_interval)),
        "resting": (SHARE, Quantity(risk.resting_on_priors)),
        "variance": (SHARE, Quantity(risk.prior_variance)),
    }
    named = {name: share for name, share in risk.shares.items() if share >= SMALLEST}
    named = dict(list(named.items())[:NAMED])
    measure = ""
    if named:
        numbers |= {f"share{index}": (SHARE, Quantity(share)) for index, share in enumerate(named.values())}
        listed = ", ".join(f"{name.removeprefix('system.')} ({{share{index}}})" for index, name in enumerate(named))
        measure = f" Measure these first (share of the variance): {listed}."
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
    columns = [Column("number", "number", kind="words"), Column("share", "share of the variance", kind="share")]
    columns[1] = Column("share", "share of the variance", kind="share", digits="two")
    rows = [[name.removeprefix("system."), Quantity(share)] for name, share in risk.shares.items()]
    title = "Numbers that nobody measured, by what they do to the saving"
    large = [str(name) for name, share in rows if isinstance(share, Quantity) and share.value >= SMALLEST]
    table = Table("saving_causes", title, columns, rows, short=range(len(large)), level=FULL)
    if not large:
        return table, None
    words = Sentence(f"{large[0]} causes {{share}} of the variance of the saving", {"share": (SHARE, rows[0][1])})  # type: ignore[dict-item]
    y, axis = ["share"], "share of the variance"
    return table, Chart("bars", words, "saving_causes", "number", y, title, only=large[:CAUSES], axis=axis)


def layouts_table(optimum: Optimum) -> Table:
    """The second-best layout and a bound for all others, by what they take more of the objective."""
    columns = [
        Column("layout", "layout", kind="words"),
        Column("excess", f"more {optimum.minimize} than the best", kind="share", digits="two"),
        Column("label", "", kind="words"),
    ]
    rows: list[list[Cell]] = []
    if optimum.runner_up is not None:
        label = layout_label(optimum.runner_up.layout)
        rows.append(["second-best layout", Quantity(float(optimum.runner_up.excess)), label])
    others = float(optimum.statistics.get("others_excess", math.nan))
    if not optimum.statistics.get("layouts_left") and math.isfinite(others) and others > 0.0:
        rows.append(["all layouts that were not searched, at least", Quantity(others), ""])
    return Table("layouts", "Layouts compared", columns, rows, level=FULL)


def layouts_chart(optimum: Optimum, table: Table) -> Chart | None:
    """The excess of other layouts as bars."""
    excess = [cell for _, _, cell in table.series("excess")] if table.rows else []
    if not excess:
        return None
    numbers = {"excess": (SHARE, min(excess, key=lambda cell: cell.value))}
    title = Sentence(f"Another layout takes at least {{excess}} more {optimum.minimize}", numbers)
    subtitle = f"{optimum.minimize.capitalize()} above that of the best layout"
    return Chart("bars", title, "layouts", "layout", ["excess"], subtitle, axis=f"more {optimum.minimize}")


def search_sentences(optimum: Optimum) -> list[Sentence]:
    """How many layouts were compared, whether restarts agree, how far the second best is, what rounding costs."""
    statistics = optimum.statistics
    lines = [
        Sentence(
            f"Layouts: {optimum.layouts_considered:,} compared, {optimum.layouts_feasible:,} fit in memory, "
            f"{statistics['layouts_searched']:,} searched."
        )
    ]
    left, others = statistics["layouts_left"], float(statistics["others_excess"])
    if left:
        lines.append(Sentence(f"No bound excludes {left:,} of the others: a better plan may be among them."))
    elif math.isfinite(others) and others > 0.0:
        words = (
            f"The others need at least {{share}} more {optimum.minimize}: a lower bound, from the prices of the limits "
        )
        lines.append(Sentence(f"{words}at the best plan.", {"share": (SHARE, Quantity(others))}))
    if statistics["restarts"]:
        lines.append(_restarts(statistics))
    if optimum.runner_up is not None:
        layout = optimum.runner_up.layout
        degrees = {name: float(getattr(layout, name)) for name in _DEGREES}
        listed = ", ".join(f"{words_of(name)} {degree:g}" for name, degree in degrees.items() if degree != 1.0)
        words = (
            f"The second-best layout ({listed or 'data parallelism alone'}) needs {{excess}} more {optimum.minimize} "
        )
        lines.append(Sentence(f"{words}than the best.", {"excess": (SHARE, Quantity(float(optimum.runner_up.excess)))}))
    if math.isfinite(optimum.gap):
        cost = "at most {gap}" if optimum.gap >= _SAME else "less than 0.01 %"
        lines.append(Sentence(f"Rounding to whole numbers costs {cost}.", {"gap": (SHARE, Quantity(optimum.gap))}))
    if optimum.near_tie is not None:
        lines.append(near_tie_sentence(optimum, optimum.near_tie))
    return lines + [refinement_sentence(optimum, refinement) for refinement in optimum.refinements]


def _restarts(statistics: Mapping[str, int | float]) -> Sentence:
    count, agreeing, astray = (statistics[name] for name in ("restarts", "restarts_agreeing", "restarts_astray"))
    words = f"{agreeing} of {count} restarts of the best layout converge to the same optimum"
    words += f"; {astray} do not converge" if astray else ""
    spread = math.expm1(statistics["restarts_spread"])
    if agreeing + astray < count:
        words += f"; the others end {'less than 0.01 %' if spread < _SAME else 'at most {spread}'} above it"
    return Sentence(f"{words}.", {"spread": (SHARE, Quantity(spread))})


def refinement_sentence(optimum: Optimum, refinement: Refinement) -> Sentence:
    """What a batch that follows the progress, or power by stage, saves beside the best plan without."""
    added, what = refinement.added, refinement.added.names.capitalize()
    numbers = {
        "batch": (Column("", "", "token"), Quantity(float(np.ravel(refinement.plan.batch)[0]))),
        "clock": (Column("", "", kind="share"), Quantity(float(refinement.outcome.clock))),
        "share": (SHARE, Quantity(refinement.saving / float(objective_value(refinement.outcome, optimum.minimize)))),
    }
    parts = ["a batch of {batch}"] if added.knots else []
    beside = " and ".join([*parts, *["a clock of {clock}"] * bool(added.stages)])
    unsure = "" if refinement.converged else " Its search did not converge: a better one may exist."
    saves = "nothing" if refinement.saving <= 0.0 else f"{{share}} {optimum.minimize}"
    return Sentence(f"{what} saves {saves} beside the best plan with {beside}.{unsure}", numbers)


def near_tie_sentence(optimum: Optimum, tie: NearTie) -> Sentence:
    """What the last tenths of a percent of the objective cost in energy or money."""
    shares = {"near": tie.tolerance, "saving": tie.saving, "cost": max(tie.cost, 0.0)}
    shares["more"] = tie.saving / (1.0 - tie.saving)
    numbers = {name: (SHARE, Quantity(share)) for name, share in shares.items()}
    near = f"{{near}} of the lowest {optimum.minimize}"
    if not tie.taken:
        return Sentence(
            f"No plan within {near} saves more than {{saving}} {tie.saved}; that one takes {{cost}} more.", numbers
        )
    fields = {field.name: field for field in plan_fields(tie.plan)}
    own = {field.name: field.value for field in plan_fields(optimum.plan)}
    differing = [name for name in _COMPARED if name in fields and fields[name].value != own[name]]
    kinds = {"plan.clock": "share", "plan.coolant_temperature": "temperature"}
    for name in differing:
        column = Column(name, "", fields[name].unit, kinds.get(name, "amount"))
        numbers[name] = column, Quantity(fields[name].value)
    differs = ", ".join(f"{fields[name].title} {{{name}}}" for name in differing)
    return Sentence(
        f"Many plans come within {near}; of these, this one takes the lowest {tie.saved}. The plan of the lowest "
        f"{optimum.minimize}{f' ({differs})' if differs else ''} saves {{cost}} more {optimum.minimize}, and takes "
        f"{{more}} more {tie.saved}. --tolerance 0 finds it.",
        numbers,
    )


def failure(optimum: Optimum) -> str:
    """Why there is no trusted answer, and what to do next, in one line."""
    message = optimum.message or str(optimum.result)
    parts = [message, *(conflict_text(conflict) for conflict in optimum.conflicts if conflict.limit not in message)]
    return " ".join(" ".join(part.split()) for part in parts)


def conflict_text(conflict: Conflict) -> str:
    """One limit that cannot hold with the others, and the nearest value that can."""
    column = Column(conflict.limit, "", conflict.unit, "temperature" if conflict.unit == "K" else "amount")
    numbers = {"asked": (column, Quantity(conflict.asked)), "nearest": (column, Quantity(conflict.nearest))}
    return sentence(Sentence(f"{conflict.limit}: asked {{asked}}, nearest feasible {{nearest}}.", numbers))


def chosen_of_system(optimum: Optimum) -> dict[str, tuple[Field, Field]]:
    """Own and found value of the numbers of the system that were varied, by path."""
    run, origins = TrainingRun(optimum.scenario.system, optimum.scenario.plan), optimum.scenario.provenance

    def number(path: str, value: float) -> Field:
        return Field(path, path, path, origins[path].unit, value)

    return {
        path: (number(path, run.number(path)), number(path, value))
        for path, value in optimum.found.items()
        if path.startswith("system.")
    }


def evaluate_command(optimum: Optimum) -> str:
    """The command that evaluates the plan of a search."""
    chosen = {path: exact(value) for path, (_, value) in chosen_of_system(optimum).items()}
    return command_of(optimum.scenario, optimum.plan, chosen)


def search_tables(optimum: Optimum, risk: SavingAtRisk | None) -> list[Table]:
    """What other programs want to know of a search: its objective, variables, conflicts and refinements."""
    unit = optimum.value_unit
    numbers = {
        "value": (optimum.value, unit),
        "baseline_value": (optimum.baseline_value, unit),
        "relaxed_value": (optimum.relaxed_value, unit),
        "gap": (optimum.gap, "1"),
        "layouts_considered": (optimum.layouts_considered, "1"),
        "layouts_feasible": (optimum.layouts_feasible, "1"),
    }
    if optimum.scenario.optimize.tolerance is not None:
        numbers["tolerance"] = optimum.scenario.optimize.tolerance, "1"
    if risk is not None:
        numbers |= {name: (getattr(risk, name), "1") for name in ("deviation", "own_deviation", "resting_on_priors")}
        numbers |= {name: (getattr(risk, name), unit) for name in ("saving", "saving_deviation", "prior_deviation")}
        numbers |= {"prior_variance": (risk.prior_variance, "1"), "priors_without_spread": (risk.without, "1")}
    ends = risk.saving_interval if risk is not None else (None, None)
    columns = [
        Column("minimize", "minimized", kind="words"),
        *(Column(name, "", of) for name, (_, of) in numbers.items()),
    ]
    cells = [
        Quantity(float(value), *(ends if name == "saving" else (None, None))) for name, (value, _) in numbers.items()
    ]
    tables = [Table("search", "The search", columns, [[optimum.minimize, *cells]], tall=True, level=DATA)]
    units = {field.name.split("[")[0]: field.unit for field in plan_fields(optimum.plan)}
    units |= {
        path: optimum.scenario.provenance[path].unit for path in optimum.found if path in optimum.scenario.provenance
    }
    variables = [Column(path, path, units.get(path.split("[")[0], "1")) for path in optimum.found]
    values: list[Cell] = [Quantity(float(value)) for value in optimum.found.values()]
    tables += [Table("variables", "Variables", variables, [values], tall=True, level=DATA)] if variables else []
    if optimum.runner_up is not None:
        layout = vars(optimum.runner_up.layout)
        degrees = [Quantity(float(value)) for value in layout.values()]
        tables.append(
            Table("runner_up", "Second-best layout", [Column(name, name) for name in layout], [degrees], level=DATA)
        )
    if optimum.conflicts:
        of_limits = [Column(conflict.limit, words_of(conflict.limit), conflict.unit) for conflict in optimum.conflicts]
        asked = [[Quantity(float(getattr(one, name))) for one in optimum.conflicts] for name in ("asked", "nearest")]
        labels = ("asked", "nearest feasible")
        tables.append(Table("conflicts", "Limits that exclude each other", of_limits, asked, tall=True, labels=labels))
    if optimum.refinements:
        columns = [
            *(Column("added", "", kind="words"), Column("knots", "")),
            *(Column("stages", "", kind="words"), Column("saving", "", unit), Column("converged", "", kind="words")),
        ]
        rows = [
            [
                *(one.added.names, Quantity(one.added.knots)),
                *(" ".join(one.added.stages), Quantity(float(one.saving)), "yes" if one.converged else "no"),
            ]
            for one in optimum.refinements
        ]
        tables.append(Table("refinements", "Refinements", columns, rows, level=DATA))
    if tie := optimum.near_tie:
        columns = [Column("saved", "", kind="words"), Column("taken", "", kind="words")]
        columns += [Column(name, "") for name in ("tolerance", "cost", "saving")]
        row = [tie.saved, "yes" if tie.taken else "no", *map(Quantity, (tie.tolerance, tie.cost, tie.saving))]
        tables.append(Table("near_tie", "Plans as good", columns, [row], level=DATA))
        tables += _whole_run(optimum.scenario, "exact", Run(tie.plan, tie.outcome))
    for index, refinement in enumerate(optimum.refinements):
        plan = plan_table(optimum.scenario, {"beside": refinement.plan})
        tables.append(dataclasses.replace(plan, name=f"refinement_{index}_beside", level=DATA))
    return tables


def _whole_run(scenario: Scenario, name: str, run: Run) -> list[Table]:
    """Plan and outcome of another run, for other programs."""
    runs = {name: run}
    tables = [plan_table(scenario, {name: run.plan}), outcome_table(runs)]
    return [dataclasses.replace(table, name=f"{name}_{table.name}", level=DATA) for table in tables]
