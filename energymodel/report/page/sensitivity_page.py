"""What does the page of a sensitivity analysis say?"""

import math

from energymodel.report.charts import GroupedBars, Swing, Tornado
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.elasticities import elasticities_chart
from energymodel.report.page.markup import paragraphs, terminal_table
from energymodel.report.page.sureness import priors_markup
from energymodel.report.sensitivity_report import (
    change_table,
    choices,
    elasticity_table,
    headline,
    limits_table,
    measure_table,
    notes,
    prior_line,
    together_line,
)
from energymodel.search.sensitivity import FREE, SHARES, NumberEffects, Sensitivity
from energymodel.units import format_quantity

BARS = 12
ROWS = 40  # of tables


def sensitivity_page(found: Sensitivity, command: str) -> Page:
    """The page of a sensitivity analysis: what to measure, what to change, elasticities, priors."""
    if not found.rows:
        return Page(found.scenario.title, headline(found), [headline(found), found.message], None, [], command)
    measure = "".join(figure(tornado_chart(found, name)) for name in list(found.values)[1:])
    elasticities = elasticity_chart(found)
    change = limits_table(found) if found.optimum else change_table(found, ROWS)
    return Page(
        title=found.scenario.title,
        answer=f"What to measure or change next for {_what(found)}",
        summary=_sentences(found),
        figure=tornado_chart(found),
        sections=[
            Section(
                "What to measure next",
                terminal_table(measure_table(found, ROWS))
                + paragraphs([together_line(found), prior_line(found)])
                + measure,
            ),
            Section("What to change next", terminal_table(change)),
            Section(
                "Elasticities",
                (figure(elasticities) if elasticities is not None else "")
                + terminal_table(elasticity_table(found, ROWS))
                + paragraphs(notes(found), "em-muted"),
            ),
            Section("Priors", priors_markup(found.scenario)),
        ],
        command=command,
    )


def _what(found: Sensitivity) -> str:
    first = next(iter(found.values)).replace("_", " ")
    return f"the lowest {first}" if found.optimum else first


def _sentences(found: Sensitivity) -> list[str]:
    first = next(iter(found.values))
    sentences = [headline(found), _measure_sentence(found, first)]
    better = choices(found)
    if better and not found.optimum:
        one = better[0]
        value = format_quantity(one.value, one.row.unit, digits=3, difference=one.row.is_difference)
        sentences.append(
            f"Of the decisions, {one.row.path.removeprefix('plan.')} at {value} changes {first.replace('_', ' ')} "
            f"most: by {100.0 * one.changes[first]:+.1f} %."
        )
    return sentences


def _measure_sentence(found: Sensitivity, first: str) -> str:
    row = found.by_uncertainty(first)[0]
    share = found.shares(first).get(row.path, 0.0)
    return (
        f"Measure {row.path.removeprefix('system.')} first: its uncertainty causes {100.0 * share:.0f} % of the "
        f"variance of {first.replace('_', ' ')}; priors together cause {100.0 * found.prior_share(first):.0f} %."
    )


def tornado_chart(found: Sensitivity, output: str | None = None) -> Tornado:
    """Changes of an output, by default the first, at the quantiles of the numbers that move it most."""
    name = output or next(iter(found.values))
    value = found.values[name]
    rows = [row for row in found.by_uncertainty(name) if 0.0 < row.size(name, value) < math.inf][:BARS]
    swings = tuple(
        Swing(row.path.removeprefix("system."), *row.changes(name, value), _end(row, row.low), _end(row, row.high))
        for row in rows
    )
    word = name.replace("_", " ")
    title = f"{swings[0].label} moves {word} most" if swings else f"Nothing uncertain moves {word}"
    quantiles = [f"at its {100.0 * share:g} % quantile" for share in SHARES]
    subtitle = f"Change of {word} from {format_quantity(value, found.units[name])}, one number at a time"
    return Tornado(title, swings, subtitle, f"change of {word}", names=(quantiles[0], quantiles[1]))


def _end(row: NumberEffects, value: float | None) -> str:
    return "" if value is None else format_quantity(value, row.unit, digits=3, difference=row.is_difference)


def elasticity_chart(found: Sensitivity) -> GroupedBars | None:
    """Numbers with the largest elasticities of the first output."""
    name = next(iter(found.values))
    rows = [row for row in found.by_elasticity(name) if row.action != FREE and not row.path.startswith("plan.layout.")]
    known = [(row.path, row.effects[name].elasticity) for row in rows]
    return elasticities_chart(
        [(path, value) for path, value in known if value is not None], name, "Largest elasticities"
    )
