"""What does the page of a run that is watched say?"""

import math

import numpy as np

from energymodel.monitor.status import Status
from energymodel.report.charts import Axis, Interval, Intervals, Lines, Point, Series
from energymodel.report.intervals import ends, quantity, rounded, with_interval
from energymodel.report.monitor_report import LEVEL, TITLES, UNITS, end_table, now_table
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.markup import bullets, paragraph, terminal_table
from energymodel.report.page.spending import OWN, spending_section
from energymodel.report.plan_report import headline, plans_table
from energymodel.search.replan import Replan
from energymodel.sweeps.first_order import SavingAtRisk

FIRST = 0.05  # share of the run from which on the loss is drawn: before, it falls so fast that the rest looks flat
FEWEST = 0.2  # of what is done, early in a run
MOST_POINTS = 300


def monitor_page(
    status: Status, replanned: Replan | None, risk: SavingAtRisk | None, refusal: str, command: str
) -> Page:
    """The page of a run: how far it is, its loss, its end with intervals, what is wrong, a better plan for the rest."""
    expected = status.state.expected
    scenario, outcome = expected.scenario, expected.outcome
    loss, ahead = loss_chart(status), forecast_chart(status)
    end = terminal_table(end_table(status)) if status.forecast is not None else ""
    return Page(
        title=scenario.title,
        answer=f"{100.0 * min(max(status.state.progress, 0.0), 1.0):.1f} % of the run is done",
        summary=_sentences(status, replanned, risk),
        figure=ahead if ahead is not None else loss,
        sections=[
            Section(
                "Now",
                terminal_table(now_table(status)) + (figure(loss) if loss is not None and ahead is not None else ""),
            ),
            Section("The end, if the plan is kept", end),
            Section("What is wrong", _findings(status)),
            Section("A new plan for the rest", _replanned(replanned, risk, refusal)),
            spending_section(scenario, {OWN: (scenario.plan, outcome)})._replace(title="Where the plan spends"),
        ],
        command=command,
    )


def _sentences(status: Status, replanned: Replan | None, risk: SavingAtRisk | None) -> list[str]:
    sentences = []
    if status.forecast is not None:
        shown = [_total(status, name) for name in ("time", "energy") if name in status.forecast.totals]
        loss = _total(status, "loss") if "loss" in status.forecast.totals else ""
        ending = f", and ends at a loss of {loss}" if loss else ""
        sentences.append(f"If its plan is kept, the run takes {' and '.join(shown)}{ending}.")
    else:
        sentences.append("The run is too young for a forecast.")
    count = len(status.findings)
    sentences.append(status.findings[0].message if count else "Nothing is wrong that can be seen from here.")
    if replanned is not None and replanned.optimum.success:
        sentences.append(f"A new plan for the rest: {headline(replanned.optimum, risk)}.")
    return sentences


def _total(status: Status, name: str) -> str:
    assert status.forecast is not None
    one = status.forecast.totals[name]
    return with_interval(one.value, one.lower, one.upper, UNITS[name], LEVEL)


def _findings(status: Status) -> str:
    words = [f"{one.kind}: {one.message}" for one in status.findings]
    return bullets(words) if words else paragraph("Nothing is wrong that can be seen from here.")


def _replanned(replanned: Replan | None, risk: SavingAtRisk | None, refusal: str) -> str:
    if replanned is None:
        return paragraph(refusal)
    optimum = replanned.optimum
    if not optimum.success:
        return paragraph(optimum.message)
    table = plans_table(optimum.scenario, optimum.scenario.plan, optimum.plan, optimum.varied)
    return paragraph(f"{headline(optimum, risk)}.") + terminal_table(table)


def loss_chart(status: Status) -> Lines | None:
    """Measured loss beside that of the plan, against the tokens."""
    expected = status.state.expected
    tokens, losses, *_ = status.state.course()
    known = [(float(x), float(y)) for x, y in zip(tokens, losses, strict=True) if math.isfinite(y) and x > 0.0]
    if not known:
        return None
    known = known[:: -(-len(known) // MOST_POINTS)]
    start = min(FIRST * expected.tokens, FEWEST * known[-1][0])
    planned = [
        Point(float(x), float(y))
        for x, y in zip(expected.course_tokens, expected.course_loss, strict=True)
        if x >= start
    ]
    measured = tuple(Point(x, y) for x, y in known if x >= start)
    if not measured:
        return None
    now, here = status.state.loss, status.state.tokens
    if not math.isfinite(now):
        here, now = measured[-1][:2]
    title = f"The loss is {now:.3f} nat/token; the plan foresees {expected.loss(here):.3f} for a run that ends here"
    series = (Series("plan, of a run that ends there", tuple(planned)), Series("measured", measured, "points"))
    return Lines(title, Axis("tokens", "token"), Axis("loss", "nat/token"), series, "Loss against tokens")


def forecast_chart(status: Status) -> Intervals | None:
    """Totals of the run with their intervals."""
    if status.forecast is None:
        return None
    rows = []
    for name, one in status.forecast.totals.items():
        field = quantity(one.value, UNITS[name])
        words = ends(field, one.lower, one.upper)
        if words and one.value > 0.0 and np.isfinite(one.upper):
            shown = rounded(field, one.lower, one.upper)
            rows.append(Interval(TITLES.get(name, name), one.value, one.lower, one.upper, UNITS[name], shown, words))
    if not rows:
        return None
    energy = next((row for row in rows if row.label == "energy"), rows[0])
    title = f"The whole run takes {energy.shown} (90 %: {energy.ends})"
    return Intervals(title, tuple(rows), "Forecast of the whole run, if its plan is kept", LEVEL)
