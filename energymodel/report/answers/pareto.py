"""The answer of `pareto`: efficient plans, what each gives up for the other objectives, and where the front bends."""

import dataclasses
import math

from energymodel.report.answer import DATA, FULL, SHORT, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.evaluate import detail_parts
from energymodel.report.answers.run_tables import Run, kind_of, outcome_table, parts_table, prior_count, priors_table
from energymodel.report.answers.spending import parts_chart
from energymodel.report.command_text import command_of
from energymodel.report.fields import plan_fields
from energymodel.search.layouts import layout_label
from energymodel.search.result import Front
from energymodel.sweeps.outcome_spread import DEVIATIONS, OutcomeSpread, deviation

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
    names, points, knee = front.minimize, front.points, front.points[front.knee]
    first, second = names[:2]
    plans = plans_table(front, spread)
    numbers = _numbers(front, spread, own)
    runs = {KNEE: Run(knee.plan, knee.outcome, spread)}
    tables, charts, notes = [plans, _outcomes(front), priors_table(front.scenario)], [_front_chart(front)], []
    rates = [cell.value for cell in plans.column(f"exchange_{second}")[1] if isinstance(cell, Quantity)]
    if len(rates) > 1:
        charts.append(_exchange_chart(front, rates))
    if details:
        energy = parts_table("energy", "Energy of the plan at the knee", runs, FULL)
        more, drawings, notes = detail_parts(front.scenario, runs, first)
        tables = [*tables, dataclasses.replace(outcome_table(runs), level=FULL), energy, *more]
        charts += [parts_chart(energy, "energy", "Energy of the plan at the knee"), *drawings]
    rate = f", where 1 % more {second} saves {{rate}} {first}" if second in knee.exchange else ""
    at = " and ".join(f"{{{name}:i}} of {name}" for name in names)
    changes = " and ".join(f"{name} {{change_{name}:i}}" for name in names if f"change_{name}" in numbers)
    sentences = [
        Sentence(
            f"Efficient plans range from {{low_{second}}} of {second} at {{low_{first}}} of {first} to "
            f"{{high_{second}}} at {{high_{first}}}; the scenario's own plan takes "
            f"{' and '.join(f'{{own_{name}}}' for name in names)}.",
            numbers,
        ),
        Sentence(f"The front bends most at {at}{rate}.", numbers),
        Sentence(f"Against the scenario's own plan that changes {changes}; all plans move together.", numbers),
    ]
    return Answer(
        "pareto",
        front.scenario.title,
        Sentence(f"{len(points)} plans trade {' against '.join(names)}"),
        sentences,
        tables,
        charts,
        [
            *notes,
            Sentence(
                f"Hypervolume: {{hypervolume}} of the box between best and worst, in logarithms. "
                f"{front.layouts_considered:,} layouts compared, {front.layouts_searched} of them on the front or next "
                "to it.",
                numbers,
            ),
            *([Sentence(front.message)] if front.message else []),
            prior_count(front.scenario),
        ],
        also=[("The plan at the knee", command_of(front.scenario, knee.plan, {}))],
        inputs=front.scenario.named_tables,
        result=str(front.result),
        message=front.message,
    )


def objective_column(front: Front, name: str, title: str | None = None, digits: str = "rows") -> Column:
    """The column of an objective."""
    return Column(name, title or name, front.units[name], digits=digits)


def _objective(front: Front, name: str, values: dict[str, float], spread: OutcomeSpread | None) -> Quantity:
    """An objective of a plan whose logarithm is as uncertain as at the knee."""
    half = DEVIATIONS * spread.deviation(name) if spread is not None else None
    value = values[name]
    return Quantity(value) if half is None else Quantity(value, value * math.exp(-half), value * math.exp(half))


def plans_table(front: Front, spread: OutcomeSpread | None = None) -> Table:
    """A row for each plan: objectives, their changes against the scenario's own plan, exchange rates, decisions."""
    names = front.minimize
    columns: list[Column] = []
    for name in names:
        columns += [objective_column(front, name), Column(f"{name}_change", "change", kind="change")]
    columns += [Column(f"exchange_{name}", f"1 % more {name} saves", kind="change") for name in names[1:]]
    fields = {field.name: field for point in front.points for field in plan_fields(point.plan)}
    paths = [path for path in fields if path.split("[")[0] != "plan.goal"]
    for path in paths:
        field, name = fields[path], path.removeprefix("plan.")
        short = name.split("[")[0] in _COMMON - {"coolant_temperature"}
        digits = "rows" if name.startswith(("clock", "coolant")) else "interval"
        level = SHORT if short else FULL if name in _COMMON else DATA
        columns.append(Column(name, field.title, field.unit, kind_of(field), digits, level))
    columns += [
        Column("layout", "layout", kind="words"),
        Column("mark", "", kind="words"),
        Column("mark_of_layout", "layouts", kind="words", level=DATA),
    ]
    labels = [layout_label(point.plan.layout) for point in front.points]
    common = sorted(set(labels), key=lambda label: (-labels.count(label), labels.index(label)))[:MOST_LAYOUTS]
    rows: list[list[Cell]] = []
    for index, (point, label) in enumerate(zip(front.points, labels, strict=True)):
        row: list[Cell] = []
        for name in names:
            own = front.baseline[name]
            changed = Quantity(point.values[name] / own - 1.0) if own else None
            row += [_objective(front, name, dict(point.values), spread), changed]
        row += [Quantity(point.exchange[name] / 100.0) if name in point.exchange else None for name in names[1:]]
        of_plan = {field.name: field.value for field in plan_fields(point.plan)}
        row += [Quantity(of_plan[path]) if path in of_plan else None for path in paths]
        marks = {"knee": index == front.knee, "new layout": index > 0 and labels[index - 1] != label}
        mark = ", ".join(word for word, holds in marks.items() if holds)
        rows.append([*row, label, mark, f"layout {label}" if label in common else "other layouts"])
    count = len(rows)
    short = sorted({*range(0, count, max(1, -(-count // ROWS))), count - 1, front.knee})
    title = f"{len(short)} of {count} plans" if len(short) < count else f"{count} plans"
    note = 'The columns "change" compare with the scenario\'s own plan.'
    return Table("plans", title, columns, rows, short=short, note=note)


def _outcomes(front: Front) -> Table:
    """The outcome of each plan, for other programs."""
    runs = {str(index): Run(point.plan, point.outcome) for index, point in enumerate(front.points)}
    tables = [outcome_table({label: run}) for label, run in runs.items()]
    rows, title = [table.rows[0] for table in tables], "Outcome of each plan"
    return dataclasses.replace(tables[0], name="outcomes", title=title, rows=rows, labels=tuple(runs), level=DATA)


def _numbers(
    front: Front, spread: OutcomeSpread | None, own: OutcomeSpread | None
) -> dict[str, tuple[Column, Quantity]]:
    """Numbers of the sentences."""
    knee, low, high = front.points[front.knee], front.points[0], front.points[-1]
    numbers = {"hypervolume": (Column("", "", kind="share", digits="two"), Quantity(front.hypervolume))}
    digits = "interval" if spread is not None else "two"
    for name in front.minimize:
        column = objective_column(front, name, digits=digits)
        for word, values in {"": knee.values, "low_": low.values, "high_": high.values, "own_": front.baseline}.items():
            numbers[f"{word}{name}"] = column, _objective(front, name, dict(values), spread)
        if front.baseline[name]:
            ratio, change = knee.values[name] / front.baseline[name], Column("", "", kind="change")
            cell = Quantity(ratio - 1.0)
            if spread is not None and own is not None:
                half = DEVIATIONS * deviation(spread.relative(name) - own.relative(name))
                cell = Quantity(ratio - 1.0, ratio * math.exp(-half) - 1.0, ratio * math.exp(half) - 1.0)
            numbers[f"change_{name}"] = change, cell
    second = front.minimize[1]
    if second in knee.exchange:
        numbers["rate"] = Column("", "", kind="share", digits="two"), Quantity(knee.exchange[second] / 100.0)
    return numbers


def _front_chart(front: Front) -> Chart:
    """The first objective against the second, marked by layout; hovering shows the plan."""
    first, second = front.minimize[:2]
    low, high = front.points[0], front.points[-1]
    times, saved = high.values[second] / low.values[second], 1.0 - high.values[first] / low.values[first]
    share = Column("", "", kind="share", digits="two")
    numbers = {"saved": (share, Quantity(saved)), "more": (share, Quantity(times - 1.0))}
    numbers["times"] = Column("", "", digits="two"), Quantity(times)
    more = f"{{times}} times the {second}" if times > 2.0 else f"{{more}} more {second}"
    title = Sentence(f"{more} saves {{saved}} {first} from end to end of the front", numbers)
    hover = [*front.minimize, "chips", "clock", "batch", "coolant_temperature", "layout"]
    return Chart(
        "plane",
        title,
        "plans",
        second,
        [first],
        f"Plans of lowest {first} at each {second}; hover for the plan",
        "mark_of_layout",
        "mark",
        [name for name in hover if name in plans_names(front)],
        log=front.minimize,
    )


def plans_names(front: Front) -> set[str]:
    """Names of the columns of the plans."""
    return {
        *front.minimize,
        "layout",
        *(field.name.removeprefix("plan.") for field in plan_fields(front.points[0].plan)),
    }


def _exchange_chart(front: Front, rates: list[float]) -> Chart:
    """What 1 % more of the second objective saves of the first, along the front."""
    first, second = front.minimize[:2]
    share = Column("", "", kind="share", digits="two")
    numbers = {"low": (share, Quantity(min(rates))), "high": (share, Quantity(max(rates)))}
    title = Sentence(f"1 % more {second} saves from {{high}} to {{low}} {first} along the front", numbers)
    axis = f"{first} saved by 1 % more {second}"
    subtitle = f"Exchange rates of {first} against {second}"
    y = [f"exchange_{second}"]
    return Chart("plane", title, "plans", second, y, subtitle, lines=True, log=[second], axis=axis)
