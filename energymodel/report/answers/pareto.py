"""The answers of `pareto`, `compare` and `frontier`: efficient plans, combinations of hardware, process generations."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers import run_tables
from energymodel.report.answers.details import detail_parts, parts_chart
from energymodel.report.answers.plan_fields import command_of, kind_of, part_fields, plan_fields
from energymodel.report.answers.run_tables import Run, outcome_table
from energymodel.report.cells import Column, Level, Number, Quantity, attributes, declared, number, share, spaced, words
from energymodel.search.compare import GENERATIONS, Comparison, Frontier, FrontierStep
from energymodel.search.layouts import layout_label
from energymodel.search.result import Front
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread
from energymodel.system.outputs import objective_title, objective_value, output, unit_of

KNEE = "plan at the knee"
ROWS = 12
"""Plans of the short form."""
MOST_LAYOUTS = 4  # that have a mark of their own
_COMMON = {"chips", "clock", "batch", "coolant_temperature"}


def pareto_answer(
    front: Front, spread: OutcomeSpread | None = None, own: OutcomeSpread | None = None, *, details: bool = False
) -> Answer:
    """A front in numbers.

    **Arguments:**

    - `spread`: of the plan at the knee; the objectives of all plans are as uncertain.
    - `own`: of the scenario's own plan, for the interval of what the knee changes.
    - `details`: with the spending of the plan at the knee, as pages have it.
    """
    names, points, knee, scenario = front.minimize, front.points, front.points[front.knee], front.scenario
    first, second = names[:2]
    plans, numbers = plans_table(front, spread), _numbers(front, spread, own)
    outcomes = run_tables.outcome_table(
        {str(index): Run(point.plan, point.outcome) for index, point in enumerate(points)}
    )
    outcomes = dataclasses.replace(outcomes, name="outcomes", title="Outcome of each plan", level="data")
    search: dict[Column, Any] = {
        Column(f"baseline_{name}", unit=front.units[name]): _objective(name, front.baseline[name], spread)
        for name in names
    }
    search |= attributes(front, "1", "layouts_considered", "layouts_searched")
    tables = [plans, outcomes, Table.facts("search", "The search", search, "data"), run_tables.priors_table(scenario)]
    charts, notes = [_front_chart(front, plans), *_exchange_charts(front, plans)], []
    if details:
        runs = {KNEE: Run(knee.plan, knee.outcome, spread)}
        energy = run_tables.parts_table("energy", "Energy of the plan at the knee", runs, "full")
        more, drawings, notes = detail_parts(scenario, runs, first)
        tables = [*tables, dataclasses.replace(run_tables.outcome_table(runs), level="full"), energy, *more]
        charts += [parts_chart(energy, "energy", "Energy of the plan at the knee"), *drawings]
    rate = f", where 1 % more {second} saves {{rate}} {first}" if second in knee.exchange else ""
    at = " and ".join(f"{{{name}:i}} of {name}" for name in names)
    changes = " and ".join(f"{name} {{change_{name}:i}}" for name in names if f"change_{name}" in numbers)
    sentences = (
        f"Efficient plans range from {{low_{second}}} of {second} at {{low_{first}}} of {first} to {{high_{second}}} "
        f"at {{high_{first}}}; the scenario's own plan takes {' and '.join(f'{{own_{name}}}' for name in names)}.",
        f"{'The front bends most' if len(names) == 2 else 'The product of all is lowest'} at {at}{rate}.",
        f"Against the scenario's own plan that changes {changes}; all plans move together.",
    )
    volume = (
        f"{front.layouts_considered:,} layouts compared, {front.layouts_searched} of them on the front or next to it."
    )
    notes = [*notes, Sentence(volume, numbers), *([Sentence(front.message)] if front.message else [])]
    return Answer.of(
        scenario,
        "pareto",
        Sentence(f"{len(points)} plans trade {' against '.join(names)}"),
        [Sentence(text, numbers) for text in sentences[: 2 if "layout" in scenario.chosen else 3]],
        tables,
        charts=charts,
        notes=[*notes, run_tables.prior_count(scenario)],
        also=[("The plan at the knee", command_of(scenario, knee.plan, {}))],
        result=str(front.result),
        message=front.message,
    )


def plans_table(front: Front, spread: OutcomeSpread | None = None) -> Table:
    """A row for each plan: objectives, their changes against the scenario's own plan, exchange rates, decisions."""
    names, columns = front.minimize, []
    for name in names:
        columns.append(Column(name, name, front.units[name], digits="rows"))
        columns.append(Column(f"{name}_change", "change", kind="change"))
    columns += [Column(f"exchange_{name}", f"1 % more {name} saves", kind="change") for name in names[1:]]
    fields = {field.name: field for point in front.points for field in plan_fields(point.plan)}
    paths = [path for path in fields if path.split("[")[0] != "plan.goal"]
    for path in paths:
        field, name = fields[path], path.removeprefix("plan.")
        short = name.split("[")[0] in _COMMON - {"coolant_temperature"}
        digits = "rows" if name.startswith(("clock", "coolant")) else "interval"
        level = "short" if short else "full" if name in _COMMON else "data"
        columns.append(Column(name, field.title, field.unit, kind_of(path), digits, level))
    columns += [words("layout"), words("mark", ""), words("mark_of_layout", "layouts", "data")]
    labels = [layout_label(point.plan.layout) for point in front.points]
    common = sorted(set(labels), key=lambda label: (-labels.count(label), labels.index(label)))[:MOST_LAYOUTS]
    rows: list[list[Any]] = []
    for index, (point, label) in enumerate(zip(front.points, labels, strict=True)):
        cells: dict[str, Any] = {field.name.removeprefix("plan."): field.value for field in plan_fields(point.plan)}
        for name, value in point.values.items():
            own = front.baseline[name]
            cells |= {name: _objective(name, value, spread), f"{name}_change": value / own - 1.0 if own else None}
        cells |= {f"exchange_{name}": rate / 100.0 for name, rate in point.exchange.items()}
        marks = {"knee": index == front.knee, "new layout": index > 0 and labels[index - 1] != label}
        cells |= {"layout": label, "mark": ", ".join(name for name, holds in marks.items() if holds)}
        cells["mark_of_layout"] = f"layout {label}" if label in common else "other layouts"
        rows.append([cells.get(column.name) for column in columns])
    count = len(rows)
    short = sorted({*range(0, count, max(1, -(-count // ROWS))), count - 1, front.knee})
    title = f"{len(short)} of {count} plans" if len(short) < count else f"{count} plans"
    note = 'The columns "change" compare with the scenario\'s own plan.'
    return Table("plans", title, columns, rows, short=short, note=note)


def _objective(name: str, value: float, spread: OutcomeSpread | None) -> Any:
    """An objective of a plan whose logarithm is as uncertain as at the knee."""
    return Quantity.around(value, None if spread is None else DEVIATIONS * spread.deviation(name))


def _numbers(front: Front, spread: OutcomeSpread | None, own: OutcomeSpread | None) -> dict[str, Number]:
    """Numbers of the sentences."""
    knee, second = front.points[front.knee], front.minimize[1]
    numbers: dict[str, Number] = {}
    plans: dict[str, Mapping[str, float]] = {"": knee.values, "low_": front.points[0].values}
    plans |= {"high_": front.points[-1].values, "own_": front.baseline}
    for name in front.minimize:
        digits = "interval" if spread is not None else "two"
        for plan, values in plans.items():
            cell = _objective(name, values[name], spread)
            numbers[f"{plan}{name}"] = number(cell, front.units[name], digits=digits)
        if before := front.baseline[name]:
            change = run_tables.ratio_change(knee.values[name] / before, name, own, spread)
            numbers[f"change_{name}"] = number(change, kind="change")
    if second in knee.exchange:
        numbers["rate"] = share(knee.exchange[second] / 100.0)
    return numbers


def _front_chart(front: Front, plans: Table) -> Chart:
    """The first objective against the second, marked by layout; hovering shows the plan."""
    first, second = front.minimize[:2]
    low, high = front.points[0].values, front.points[-1].values
    times = high[second] / low[second]
    numbers = {"saved": share(1.0 - high[first] / low[first]), "more": share(times - 1.0)}
    numbers["times"] = number(times, digits="two")
    more = f"{{times}} times the {second}" if times > 2.0 else f"{{more}} more {second}"
    title = Sentence(f"{more} saves {{saved}} {first} from end to end of the front", numbers)
    subtitle, names = f"Plans of lowest {first} at each {second}; hover for the plan", plans.names
    hover = [*front.minimize, "chips", "clock", "batch", "coolant_temperature", "layout"]
    look = {"series": "mark_of_layout", "label": "mark", "hover": [name for name in hover if name in names]}
    return Chart("plane", title, "plans", second, [first], subtitle, log=front.minimize, **look)


def _exchange_charts(front: Front, plans: Table) -> list[Chart]:
    """What 1 % more of the second objective saves of the first, along the front."""
    first, second = front.minimize[:2]
    rates = [cell.value for _, _, cell in plans.series(f"exchange_{second}")]
    if len(rates) < 2:
        return []
    numbers = {"low": share(min(rates)), "high": share(max(rates))}
    title = Sentence(f"1 % more {second} saves from {{high}} to {{low}} {first} along the front", numbers)
    axis, subtitle = f"{first} saved by 1 % more {second}", f"Exchange rates of {first} against {second}"
    y = [f"exchange_{second}"]
    return [Chart("plane", title, "plans", second, y, subtitle, lines=True, log=[second], axis=axis)]


OWN = "own plan"
"""Name of the row of the scenario's own plan."""
_CHOICES = ("accelerator", "precision", "network", "topology")
_OUTPUTS = ("clock", "time", "energy", "power_average", "money", "carbon")
_NUMBERS = declared("combinations")


def compare_answer(comparison: Comparison, spreads: Mapping[str, OutcomeSpread] | None = None) -> Answer:
    """A comparison in numbers, the best combination first; one without a plan has the reason.

    - `spreads`: of the best plans and the scenario's own, by name of the row, along the same directions.
    """
    of, candidates, solved = comparison.minimize, comparison.candidates, comparison.solved
    tables, charts = [combinations_table(comparison, spreads)], []
    if solved:
        rows = outcome_table({name: Run(best.plan, best.outcome) for name, best in solved.items()})
        outcomes = {"name": "outcomes", "title": "Outcome of each plan", "rows": rows.rows[: len(solved)], "kinds": ()}
        tables.append(dataclasses.replace(rows, **outcomes, level="data", labels=tuple(solved)))
        title = Sentence(f"Each combination with its plan of the lowest {objective_title(of)}")
        charts.append(Chart("bars", title, "combinations", "name", ["value"], axis=of))
    held = {name: number(value, unit_of(name)) for name, value in comparison.limits.items()}
    within = ", ".join(f"{spaced(name)} {{{name}}}" for name in held)
    return Answer(
        "compare",
        f"Plans of the lowest {objective_title(of)}",
        Sentence(f"{next(iter(solved))} is best" if solved else "No combination has a plan within the limits"),
        [
            *(Sentence(f"{candidate.name}: {candidate.reason}") for candidate in candidates if candidate.reason),
            Sentence(f"Limits of all: {within}.", held),
        ],
        tables,
        charts,
        rows="combinations",
        result="successful" if solved else "infeasible",
        message="" if solved else "no combination has a plan.",
    )


def combinations_table(comparison: Comparison, spreads: Mapping[str, OutcomeSpread] | None = None) -> Table:
    """A row for each combination, and one for the scenario's own plan."""
    candidates, of, spreads = comparison.candidates, comparison.minimize, spreads or {}
    optima = {each.name: each.optimum for each in candidates if each.optimum is not None}
    origins = (optimum.scenario.provenance for optimum in reversed(optima.values()))
    units = {path: origin.unit for provenance in origins for path, origin in provenance.items()}
    columns = [
        words("name", ""),
        *(words(name, level="data") for name in _CHOICES),
        *(dataclasses.replace(each, digits="interval") if each.name == of and spreads else each for each in _NUMBERS),
        *(Column(path, path.rpartition(".")[2], units[path], "amount") for path in comparison.varied),
        Column("value", of, comparison.unit, digits="interval" if spreads else "rows", level="data"),
        Column("more", kind="change"),
        words("reason", level="data"),
    ]
    rows: dict[str, dict[str, Any]] = {
        each.name: {name: getattr(each, name) or "" for name in ("name", *_CHOICES, "reason")} for each in candidates
    }
    plans = {name: (best.plan, best.outcome, best.value) for name, best in optima.items()}
    if comparison.own is not None and comparison.baseline is not None:
        own = comparison.own.plan, comparison.baseline, float(objective_value(comparison.baseline, of))
        rows[OWN], plans[OWN] = {"name": OWN}, own
    first, best = next(iter(comparison.solved.items()), ("", None))
    for name, (plan, outcome, value) in plans.items():
        degrees = (plan.layout.tensor, plan.layout.pipeline, plan.layout.context)
        cells = {"chips": plan.chips, "layout": " x ".join(f"{float(degree):g}" for degree in degrees)}
        cells |= {output_name: output(outcome, output_name) for output_name in _OUTPUTS} | {
            "batch": np.ravel(plan.batch)[0]
        }
        cells |= dict.fromkeys(("value", of) if of in cells else ("value",), _objective(of, value, spreads.get(name)))
        if best is not None and (name in comparison.solved or name == OWN):
            cells["more"] = run_tables.ratio_change(value / best.value, of, spreads.get(first), spreads.get(name))
        rows[name] |= cells | (dict(optima[name].found) if name in optima else {})
    for each in candidates:
        rows[each.name]["most_chips"] = each.chips
    short = [index for index, row in enumerate(rows.values()) if not row.get("reason")]
    cells = [[row.get(column.name) for column in columns] for row in rows.values()]
    return Table("combinations", "Each with its best plan", columns, cells, short=short)


NOTE = (
    "Process generations of system.chip_design, with hosts and links (docs/hardware.md): an extrapolation, most of "
    "whose constants are priors. Nothing says that such chips can be made. Cooling stays as it is."
)
_MONEY = (
    "Money rises from {lowest} at {first:i} to {end} at {last:i} generations, since later wafers cost more "
    "(system.chip_design.cost.price_growth) and the objective does not count them: --limit money=... bounds it."
)
_PARTS: dict[str, tuple[str, Level]] = {
    "energy": ("Energy by part", "short"),
    "step_time": ("Time of a step by part", "full"),
}
_RATIOS = ("time", "energy", "power_average")
_STEPS = declared("frontier")


def frontier_answer(frontier: Frontier) -> Answer:
    """A frontier in numbers."""
    totals = [_totals(step) for step in frontier.steps]
    solved = [(step, step.optimum) for step in frontier.steps if step.optimum is not None]
    today = next((of for of in totals if "time" in of), {})
    across, ratios = "landauer_multiple", [f"{name}_ratio" for name in _RATIOS]
    title = Sentence("Best plans on the way to the limits of physics")
    subtitle = "Against the energy of an operation over Landauer's bound of its bits"
    look = {"lines": True, "log": [across, *ratios], "axis": "over today's best plan"}
    rows, notes = [], [Sentence(NOTE)]
    for step, of in zip(frontier.steps, totals, strict=True):
        cells = {**of, **{f"{name}_ratio": of[name] / today[name] for name in _RATIOS if "time" in of}}
        rows.append([cells.get(column.name, getattr(step, column.name, None)) for column in _STEPS])
    tables = [Table("steps", "Steps", _STEPS, rows)]
    for name, (heading, level) in _PARTS.items() if solved else ():
        parts = {step.generations: part_fields(getattr(best.outcome, name)) for step, best in solved}
        columns = [Column(of.name, of.title, of.unit, digits="two") for of in next(iter(parts.values()))]
        cells = [[generations, *(of.value for of in fields)] for generations, fields in parts.items()]
        tables.append(Table(f"{name}_by_generation", heading, [_STEPS[0], *columns], cells, level=level))
    money = [(float(best.outcome.money), step.generations) for step, best in solved]
    if money and (low := min(money)) != money[-1] and "money" not in {frontier.minimize, *frontier.limits}:
        named = zip(("lowest", "first", "end", "last"), (*low, *money[-1]), ("USD", "1") * 2, strict=True)
        notes.append(Sentence(_MONEY, {name: number(value, unit, digits="two") for name, value, unit in named}))
    unsure = [f"{step.generations:g}" for step in frontier.steps if step.reason]
    return Answer(
        "frontier",
        f"Plans of the lowest {objective_title(frontier.minimize)}",
        title,
        notes,
        tables,
        [Chart("plane", title, "steps", across, ratios, subtitle, **look)] if today else [],
        [Sentence(f"{step.generations:g} generations: {step.reason}") for step in frontier.steps if step.reason],
        rows="steps",
        result="not trusted" if unsure else "successful",
        message=f"no plan is shown to be the best at {', '.join(unsure)} generations." if unsure else "",
    )


def _totals(step: FrontierStep) -> dict[str, Any]:
    """What the best plan of a step takes, and its binding constraints by price."""
    if (optimum := step.optimum) is None:
        return {"binds": "no plan"}
    plan, outcome, prices = optimum.plan, optimum.outcome, optimum.prices
    binding = sorted(optimum.active, key=lambda name: -prices[name].elasticity if name in prices else 0.0)
    totals = {name: float(np.asarray(output(outcome, name))) for name in (*_RATIOS, "money", "clock")}
    totals |= {"chips": plan.chips, "batch": np.ravel(plan.batch)[0], "process": optimum.found.get(GENERATIONS)}
    return {**totals, "binds": ", ".join(binding)}
