"""What does the page of a set of efficient plans say?"""

import math

from energymodel.report.charts import Axis, Lines, Point, Series
from energymodel.report.command_text import command_of
from energymodel.report.front_report import front_table, interval_line, shown_objective
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.markup import paragraph, terminal_table
from energymodel.report.page.spending import spending_section
from energymodel.report.page.sureness import sureness_section
from energymodel.search.front import Front, FrontPoint
from energymodel.search.layouts import layout_label
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.units import format_quantity

_WIDE = 3.0  # ratio of the ends of an axis beyond which it is logarithmic
MOST_LAYOUTS = 4  # that have a mark of their own
KNEE = "plan at the knee"


def front_page(front: Front, spread: OutcomeSpread, command: str) -> Page:
    """The page of a front: the plans, exchange rates, where the plan at the knee spends, how sure it is."""
    knee = front.points[front.knee]
    runs = {KNEE: (knee.plan, knee.outcome)}
    table = terminal_table(front_table(front, range(len(front.points)), spread))
    rates = exchange_chart(front)
    spending = spending_section(front.scenario, runs)
    return Page(
        title=front.scenario.title,
        answer=f"{len(front.points)} plans trade {_listed(front.minimize)}",
        summary=front_sentences(front, spread),
        figure=front_chart(front, spread),
        sections=[
            Section("What one objective costs of the other", figure(rates) if rates is not None else ""),
            Section("All plans", table + paragraph(front.message)),
            spending._replace(title=f"{spending.title} at the knee"),
            sureness_section(front.scenario, spread),
        ],
        command=command,
        also=[("This command evaluates the plan at the knee:", command_of(front.scenario, knee.plan, {}))],
    )


def _listed(names: tuple[str, ...]) -> str:
    return " against ".join(names)


def front_sentences(front: Front, spread: OutcomeSpread | None) -> list[str]:
    """Three sentences: the ends of the front, its knee, and what the next percent costs there."""
    first, second = front.minimize[:2]
    low, high = front.points[0], front.points[-1]

    def shown(name: str, point: FrontPoint) -> str:
        return shown_objective(front, name, point.values[name], spread)

    own = " and ".join(shown_objective(front, name, front.baseline[name], spread) for name in front.minimize)
    sentences = [
        f"Efficient plans range from {shown(second, low)} of {second} at {shown(first, low)} of {first} to "
        f"{shown(second, high)} at {shown(first, high)}; the scenario's own plan takes {own}."
    ]
    knee = front.points[front.knee]
    rates = [
        f"1 % more {name} {'saves' if rate >= 0.0 else 'costs'} {abs(rate):.2g} % {first}"
        for name, rate in knee.exchange.items()
        if math.isfinite(rate)
    ]
    at = " and ".join(f"{shown(name, knee)} of {name}" for name in front.minimize)
    sentences.append(f"The front bends most at {at}{f', where {rates[0]}' if rates else ''}.")
    return [*sentences, interval_line(front, spread)] if spread is not None else sentences


def front_chart(front: Front, spread: OutcomeSpread | None = None) -> Lines:
    """The first objective against the second, marked by layout; hovering shows the plan."""
    first, second = front.minimize[:2]
    layouts = list(dict.fromkeys(layout_label(point.plan.layout) for point in front.points))
    kept = sorted(layouts, key=lambda one: -sum(layout_label(point.plan.layout) == one for point in front.points))
    kept = [one for one in layouts if one in kept[:MOST_LAYOUTS]]
    names = {one: f"layout {one}" if one in kept else "other layouts" for one in layouts}
    marked: dict[str, list[Point]] = {name: [] for name in dict.fromkeys(names.values())}
    for place, point in enumerate(front.points):
        label = "knee" if place == front.knee else ""
        where = point.values[second], point.values[first]
        marked[names[layout_label(point.plan.layout)]].append(Point(*where, plan_words(front, point, spread), label))
    series = [Series(name, tuple(points), "points") for name, points in marked.items()]
    own = Point(front.baseline[second], front.baseline[first], label="own plan")
    series.append(Series("the scenario's own plan", (own,), "points"))
    axes = [_axis(front, name) for name in (second, first)]
    low, high = front.points[0], front.points[-1]
    times, saved = (high.values[second] / low.values[second], 1.0 - high.values[first] / low.values[first])
    more = f"{times:.2g} times the {second}" if times > 2.0 else f"{100.0 * (times - 1.0):.0f} % more {second}"
    title = f"{more} saves {100.0 * saved:.0f} % {first} from end to end of the front"
    return Lines(
        title, axes[0], axes[1], tuple(series), f"Plans of lowest {first} at each {second}; hover for the plan"
    )


def _axis(front: Front, name: str) -> Axis:
    values = [*(point.values[name] for point in front.points), front.baseline[name]]
    return Axis(name, front.units[name], log=min(values) > 0.0 and max(values) > _WIDE * min(values))


def plan_words(front: Front, point: FrontPoint, spread: OutcomeSpread | None) -> str:
    """A plan in a few lines."""
    objectives = [f"{name} {shown_objective(front, name, point.values[name], spread)}" for name in front.minimize]
    plan = point.plan
    return "\n".join(
        [
            ", ".join(objectives),
            f"{float(plan.chips):,.0f} chips, clock {float(plan.clock):.3f}",
            f"batch {format_quantity(float(plan.batch[0]), 'token')}, coolant "
            f"{format_quantity(float(plan.coolant_temperature), 'K', digits=3)}",
            f"layout {layout_label(plan.layout)}",
        ]
    )


def exchange_chart(front: Front) -> Lines | None:
    """What 1 % more of the second objective saves of the first, along the front."""
    first, second = front.minimize[:2]
    points = tuple(
        Point(point.values[second], point.exchange[second] / 100.0)
        for point in front.points
        if math.isfinite(point.exchange.get(second, math.nan))
    )
    if len(points) < 2:
        return None
    rates = [100.0 * point.y for point in points]
    title = f"1 % more {second} saves from {max(rates):.2g} to {min(rates):.2g} % {first} along the front"
    axes = _axis(front, second), Axis(f"{first} saved by 1 % more {second}", "%", zero=True)
    return Lines(
        title, *axes, (Series("exchange rate", points, "both"),), f"Exchange rates of {first} against {second}"
    )
