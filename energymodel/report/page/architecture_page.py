"""What does the page of the best shape of a model say?"""

import dataclasses
import math

import jax

from energymodel.report.architecture_report import (
    evaluate_shape,
    flatness_table,
    realizable_plan,
    shape_lines,
    shape_table,
)
from energymodel.report.charts import Axis, Level, Lines, Point, Series, Swing, Tornado
from energymodel.report.page.document import Page, Section, figure
from energymodel.report.page.evaluate_page import MAIN_OUTPUTS
from energymodel.report.page.markup import folded, terminal_table
from energymodel.report.page.spending import FOUND, OWN, spending_section
from energymodel.report.page.step_parts import step_section
from energymodel.report.page.sureness import sureness_section
from energymodel.report.plan_report import outcomes_table
from energymodel.search.architecture import FLATNESS, Architecture
from energymodel.sweeps.outcome_spread import outcome_spread
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import parse_objective
from energymodel.units import format_quantity

DEPTH = "layers"


def architecture_page(found: Architecture, command: str) -> Page:
    """The page of a search of shapes: both shapes, what other shapes cost, where things go, a step, how sure."""
    scenario = dataclasses.replace(found.scenario, system=found.system, plan=realizable_plan(found))
    with jax.enable_x64(True):
        own = jax.device_get(evaluate_once(found.scenario.system, found.scenario.plan))
        outcome = jax.device_get(evaluate_once(scenario.system, scenario.plan))
    runs = {OWN: (found.scenario.plan, own), FOUND: (scenario.plan, outcome)}
    outcomes = outcomes_table(own, outcome)
    depths = depths_chart(found)
    return Page(
        title=found.scenario.title,
        answer=f"The shape with the lowest {found.minimize}" if found.success else "No shape can be trusted",
        summary=_sentences(found),
        figure=flatness_chart(found),
        sections=[
            Section(
                "The shape beside the scenario's own",
                terminal_table(shape_table(found), title=False)
                + terminal_table(outcomes, only=MAIN_OUTPUTS)
                + folded("All outputs", terminal_table(outcomes, title=False)),
            ),
            Section(
                "What other shapes cost",
                (figure(depths) if depths is not None else "") + terminal_table(flatness_table(found)),
            ),
            spending_section(scenario, runs),
            step_section(scenario, scenario.plan),
            sureness_section(scenario, outcome_spread(scenario)),
        ],
        command=command,
        also=[("This command evaluates the shape with its plan:", evaluate_shape(found))],
    )


def _sentences(found: Architecture) -> list[str]:
    unit = parse_objective(found.minimize).unit
    value, own = (format_quantity(one, unit, digits=3) for one in (found.value, found.own_value))
    first = f"The shape takes {100.0 * found.saving:.2g} % less {found.minimize} than the own one with its best plan"
    lines = shape_lines(found)[1:]
    return [f"{first}: {value} against {own}, at a loss of {found.loss:.4f} nat/token.", *lines][:3]


def flatness_chart(found: Architecture) -> Tornado:
    """What a smaller and a larger value of each number of the shape costs."""
    share = f"{100.0 * FLATNESS:g} %"
    known = {name: ends for name, ends in found.flatness.items() if any(map(math.isfinite, ends))}
    order = sorted(known, key=lambda name: -max(abs(end) for end in known[name] if math.isfinite(end)))
    ends = {name: [end if math.isfinite(end) else 0.0 for end in known[name]] for name in order}
    swings = tuple(Swing(name.replace("_", " "), less, more) for name, (less, more) in ends.items())
    title = "No other shape obeys the limits"
    if order:
        most = max(map(abs, ends[order[0]]))
        title = f"{share} less or more of {swings[0].label} costs at most {100.0 * most:.2g} %"
    subtitle = f"Change of {found.minimize} at another shape, all else decided anew"
    return Tornado(title, swings, subtitle, f"change of {found.minimize}", names=(f"{share} less", f"{share} more"))


def depths_chart(found: Architecture) -> Lines | None:
    """The objective at each depth that divides over the pipeline, all else decided anew."""
    pairs = [(float(x), float(y)) for x, y in zip(found.depths, found.depth_values, strict=True) if math.isfinite(y)]
    if len(pairs) < 2:
        return None
    best, lowest = min(pairs, key=lambda pair: pair[1])
    near = [depth for depth, value in pairs if value <= 1.01 * lowest]
    title = f"From {min(near):.0f} to {max(near):.0f} layers {found.minimize} stays within 1 % of its minimum"
    if len(near) == 1:
        title = f"{best:.0f} layers take the least {found.minimize}"
    points = tuple(Point(depth, value) for depth, value in pairs)
    unit = parse_objective(found.minimize).unit
    own = float(found.scenario.system.workload.layers)
    return Lines(
        title,
        Axis(DEPTH, ""),
        Axis(found.minimize, unit),
        (Series("best of each depth", points, kind="both"),),
        "Widths and plan decided anew at each depth",
        levels=(Level(own, "own depth", of="x"),),
    )
