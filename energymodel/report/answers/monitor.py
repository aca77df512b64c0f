"""The answer of `monitor`: a run beside its plan, its forecast, what is wrong, and a new plan for the rest."""

import dataclasses
import math

from energymodel.monitor.status import Status
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.details import detail_parts, parts_chart
from energymodel.report.answers.evaluate import intervals_chart
from energymodel.report.answers.optimize import headline, plans_table
from energymodel.report.answers.plan_fields import total
from energymodel.report.answers.run_tables import OWN, Run, outcome_table, parts_table
from energymodel.report.answers.scenario import whole_run_table
from energymodel.report.cells import Column, declared, number, words
from energymodel.report.number import known_ends, sentence
from energymodel.search.replan import Replan
from energymodel.sweeps.first_order import SavingAtRisk

_NOW = declared("monitored")
_FIRST = 0.05  # share of the run from which on the loss is drawn: before, it falls so fast that the rest looks flat
_FEWEST = 0.2  # of what is done, early in a run
_WELL = Sentence("Nothing is wrong that can be seen from here.")


def monitor_answer(
    status: Status,
    replanned: Replan | None = None,
    risk: SavingAtRisk | None = None,
    refusal: str = "",
    *,
    details: bool = False,
) -> Answer:
    """A run at one moment.

    **Arguments:**

    - `replanned`, `risk`, `refusal`: a new plan for the rest with the risk of its saving, or why there is none.
    - `details`: also where the plan spends, as pages have it.
    """
    state, expected = status.state, status.state.expected
    scenario, outcome = expected.scenario, expected.outcome
    now = {
        "progress": number(min(max(state.progress, 0.0), 1.0), kind="share"),
        "step": number(0 if state.last is None else state.last.step, kind="count"),
    }
    findings = [[finding.kind, finding.message] for finding in status.findings]
    sentences = [Sentence(f"{kind}: {message}") for kind, message in findings] or [_WELL]
    tables, charts = [now_table(status)], []
    if status.forecast is None:
        sentences.insert(0, Sentence("The run is too young for a forecast."))
    else:
        planned = {name: float(getattr(outcome, name)) for name in ("time", "money", "carbon", "loss")}
        planned["energy"] = total(outcome.energy)
        end = whole_run_table(status.forecast.used, status.forecast.totals, planned)
        tables.append(end)
        names = ("energy", *(name for name in end.names if name != "energy"))
        charts += [intervals_chart(end, names, "at the end")] if any(map(known_ends, end.rows[1])) else []
    if findings:
        tables.append(Table("findings", "What is wrong", [words("kind"), words("message")], findings, level="page"))
    losses = loss_table(status)
    if losses.rows:
        of_now = {"loss": number(state.loss, "nat/token"), "planned": number(expected.loss(state.tokens), "nat/token")}
        title = Sentence("The loss is {loss}; the plan expects {planned} for a run that ends here", of_now)
        look = {"series": "series", "lines": True}
        charts.append(Chart("plane", title, "losses", "tokens", ["loss"], "Loss against tokens", **look))
        tables.append(losses)
    if replanned is not None and replanned.optimum.success:
        plans = dataclasses.replace(plans_table(replanned.optimum), title="A new plan for the rest")
        tables.append(plans)
        sentences += [headline(replanned.optimum, risk)]
        sentences += [Sentence(replanned.rest.caution)] if replanned.rest.caution else []
    elif replanned is not None or refusal:
        sentences.append(Sentence(replanned.optimum.message if replanned is not None else refusal))
    if details:
        runs = {OWN: Run(scenario.plan, outcome)}
        energy = parts_table("energy", "Energy of the plan", runs, "full")
        more, drawings, _ = detail_parts(scenario, runs, "energy")
        own = dataclasses.replace(outcome_table(runs), title="Outcome of the plan", level="full")
        tables += [own, energy, *more]
        charts += [parts_chart(energy, "energy", "Energy of the plan by where it goes"), *drawings]
    return Answer.of(
        scenario,
        "monitor",
        Sentence("{progress}, step {step}", now),
        sentences,
        tables,
        charts,
        rows="now",
        intervals="Intervals hold with a probability of 90 %.",
    )


def now_table(status: Status) -> Table:
    """The run so far beside its plan; what was not measured is left out."""
    state, expected = status.state, status.state.expected
    outcome = expected.outcome
    planned = {"time": float(outcome.time) * state.progress, "step_time": expected.step_time}
    planned |= {"tokens_per_step": expected.batch, "chip_power": float(outcome.power_busy)}
    planned |= {"loss": expected.loss(state.tokens)} if state.tokens > 0.0 else {}
    measured = {column.name: float(getattr(state, column.name)) for column in _NOW}
    measured = {
        name: value for name, value in measured.items() if math.isfinite(value) and (value or name != "failures")
    }
    planned = {name: plan for name, plan in planned.items() if name in measured and math.isfinite(plan)}
    differences = {name: measured[name] / plan - 1.0 for name, plan in planned.items() if plan}
    rows = [[of.get(column.name) for column in _NOW] for of in (measured, planned, differences)]
    labels = ("measured", "plan", "difference")
    return Table("now", "Now", _NOW, rows, tall=True, labels=labels, kinds=("", "", "change"))


def loss_table(status: Status) -> Table:
    """Measured loss and that of the plan against the tokens."""
    state, expected = status.state, status.state.expected
    tokens, losses, *_ = state.course()
    measured = [
        (float(at), float(loss)) for at, loss in zip(tokens, losses, strict=True) if math.isfinite(loss) and at > 0.0
    ]
    start = min(_FIRST * expected.tokens, _FEWEST * measured[-1][0]) if measured else math.inf
    planned = zip(map(float, expected.course_tokens), map(float, expected.course_loss), strict=True)
    series = {"plan, of a run that ends there": planned, "measured": measured}
    rows = [[name, at, loss] for name, points in series.items() for at, loss in points if at >= start]
    columns = [words("series"), Column("tokens", "tokens", "token"), Column("loss", "loss", "nat/token")]
    return Table("losses", "Loss", columns, rows, level="data")


def forecast_line(status: Status) -> str:
    """One line for an output that is no terminal."""
    state = status.state
    numbers = {"progress": number(state.progress, kind="share")}
    measured = {"step_time": ("step", "s"), "loss": ("loss", "nat/token"), "chip_power": ("chip", "W")}
    parts = ["{progress}"]
    for name, (title, unit) in measured.items():
        if math.isfinite(value := float(getattr(state, name))):
            parts.append(f"{title} {{{name}}}")
            numbers[name] = number(value, unit)
    if status.forecast is not None:
        for name, unit in {"time": "s", "energy": "J", "loss": "nat/token"}.items():
            parts.append(f"{name} {{end_{name}:i}}")
            numbers[f"end_{name}"] = number(status.forecast.totals[name], unit)
    return sentence(Sentence(", ".join([*parts, *(f"[{finding.kind}]" for finding in status.findings)]), numbers))
