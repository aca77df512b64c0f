"""The answer of `optimize --vary model.*`: the best shape of a model, and what other shapes cost."""

import dataclasses
import math

import equinox as eqx
import jax
import numpy as np

from energymodel.performance.workload import Transformer
from energymodel.report.answer import (
    DATA,
    FULL,
    Answer,
    Chart,
    Column,
    Sentence,
    Table,
    facts,
    number,
    share,
    spaced,
    words,
)
from energymodel.report.answers.evaluate import detail_parts, intervals_chart
from energymodel.report.answers.run_tables import (
    FOUND,
    OWN,
    Run,
    compared,
    outcome_table,
    parts_table,
    plan_table,
    priors_table,
)
from energymodel.report.answers.spending import parts_chart
from energymodel.report.command_text import command_of
from energymodel.search.architecture import FLATNESS, Architecture
from energymodel.sweeps.outcome_spread import outcome_spread
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import parse_objective
from energymodel.system.plan import TokenBudget

COUNTS = (
    *("layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward", "dense_feed_forward"),
    *("experts", "active_experts"),
)
TOTALS = ("parameters", "active_parameters")


def architecture_answer(architecture: Architecture, *, details: bool = False) -> Answer:
    """Both shapes, what the best saves, and how flat the optimum is; `details` as for `optimize`."""
    own, minimize = architecture.scenario, architecture.minimize
    plan = architecture.plan
    if isinstance(own.plan.goal, TokenBudget):  # the kind of goal that the scenario has
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(np.asarray(architecture.outcome.tokens)))
    best = dataclasses.replace(own, system=architecture.system, plan=plan)
    with jax.enable_x64(True):
        baseline = jax.device_get(evaluate_once(own.system, own.plan))
    spreads = [outcome_spread(scenario) if details else None for scenario in (own, best)]
    runs = {OWN: Run(own.plan, baseline, spreads[0]), FOUND: Run(plan, architecture.outcome, spreads[1])}
    energy, depths, outcome = (
        parts_table("energy", "Energy", runs, FULL),
        depths_table(architecture),
        outcome_table(runs),
    )
    tables = [shape_table(architecture), plan_table(best, {OWN: own.plan, FOUND: plan}), outcome, energy]
    tables += [flatness_table(architecture), depths, search_table(architecture), priors_table(best)]
    charts = [flatness_chart(architecture), parts_chart(energy, "energy", "Energy of the run by where it goes")]
    charts += [depths_chart(architecture, depths)] if len(depths.rows) > 1 else []
    notes: list[Sentence] = []
    if details:
        more, drawings, notes = detail_parts(best, runs, minimize)
        tables, charts = [*tables, *more], [*charts, *drawings, intervals_chart(outcome, row=FOUND)]
    success, sizes = architecture.success, (own.system.workload, architecture.system.workload)
    chosen = {f"system.workload.{name}": repr(_number(sizes[1], name)) for name in _changed(*sizes)}
    return Answer(
        "optimize",
        own.title,
        Sentence(f"The shape with the lowest {minimize}" if success else "No shape can be trusted"),
        shape_sentences(architecture),
        [table for table in tables if table.rows],
        charts,
        notes,
        also=[("To evaluate this shape", command_of(own, plan, chosen))],
        inputs=own.named_tables,
        rows="shape",
        result="successful" if success else "not trusted",
        message="" if success else architecture.message,
    )


def search_table(architecture: Architecture) -> Table:
    """The objective of the shapes, the loss and what the shape adds to it, for other programs."""
    unit = parse_objective(architecture.minimize).unit
    units = {**dict.fromkeys(("value", "own_value", "baseline_value"), unit), "saving": "1"}
    units |= {"loss": "nat/token", "penalty": "nat/token"}
    cells = {Column(name, "", of): getattr(architecture, name) for name, of in units.items()}
    cells[words("at_bounds", "")] = ", ".join(architecture.at_bounds)
    return dataclasses.replace(facts("search", "The search", cells, DATA), tall=False)


def _number(workload: Transformer, name: str) -> float:
    return float(np.asarray(getattr(workload, name)))


def _changed(own: Transformer, best: Transformer) -> list[str]:
    return [name for name in COUNTS if not math.isclose(_number(own, name), _number(best, name), rel_tol=1e-9)]


def shape_table(architecture: Architecture) -> Table:
    """Both shapes, what differs in the short form, and their sizes."""
    sizes = {OWN: architecture.scenario.system.workload, FOUND: architecture.system.workload}
    differs = {*_changed(*sizes.values()), *TOTALS}
    columns = [Column(name, level=0 if name in differs else FULL) for name in (*COUNTS, *TOTALS)]
    rows = {label: [_number(of, column.name) for column in columns] for label, of in sizes.items()}
    return compared("shape", "Shape", columns, rows)


def shape_sentences(architecture: Architecture) -> list[Sentence]:
    """What the shape saves, what its loss rests on, and why it may not be trusted."""
    unit = parse_objective(architecture.minimize).unit
    numbers = {name: number(getattr(architecture, name), unit) for name in ("value", "own_value", "baseline_value")}
    numbers |= {"saving": share(architecture.saving), "loss": number(architecture.loss, "nat/token")}
    numbers["penalty"] = number(architecture.penalty, "nat/token", digits="two")
    sentences = [
        Sentence(
            f"{architecture.minimize.capitalize()}: {{value}}, {{saving}} less than the own shape with its best plan "
            "({own_value}); the own plan takes {baseline_value}. All reach a loss of {loss}.",
            numbers,
        ),
        Sentence(
            "Of the loss, {penalty} is what the shape adds, by a prior: how much depends on the shape is not measured "
            "for models of this size, so that a small saving is none.",
            numbers,
        ),
    ]
    if architecture.at_bounds:
        at_bounds = ", ".join(architecture.at_bounds)
        sentences.append(Sentence(f"{at_bounds} would go further than a factor of 4 from the own shape."))
    return sentences if architecture.success else [*sentences, Sentence(architecture.message)]


def flatness_table(architecture: Architecture) -> Table:
    """What other shapes cost; nothing where no plan obeys the limits."""
    step = f"{100.0 * FLATNESS:g} %"
    columns = [words("number", "")]
    columns += [Column(name, f"{step} {name}", kind="change", digits="two") for name in ("less", "more")]
    rows = [
        [spaced(name), *(end if math.isfinite(end) else None for end in ends)]
        for name, ends in architecture.flatness.items()
    ]
    return Table("flatness", f"What {step} less and more of each costs, all else decided anew", columns, rows)


def flatness_chart(architecture: Architecture) -> Chart:
    """What a smaller and a larger value of each number of the shape costs."""
    most = {
        spaced(name): max(finite)
        for name, ends in architecture.flatness.items()
        if (finite := [abs(end) for end in ends if math.isfinite(end)])
    }
    order = sorted(most, key=lambda name: -most[name])
    title = Sentence("No other shape obeys the limits")
    if order:
        text = f"{100.0 * FLATNESS:g} % less or more of {order[0]} costs at most {{most}}"
        title = Sentence(text, {"most": share(most[order[0]])})
    axis, y = f"change of {architecture.minimize}", ["less", "more"]
    subtitle = f"{axis.capitalize()} at another shape, all else decided anew"
    return Chart("tornado", title, "flatness", "number", y, subtitle, only=order, axis=axis)


def depths_table(architecture: Architecture) -> Table:
    """The objective at each depth that divides over the pipeline, all else decided anew."""
    pairs = zip(architecture.depths, architecture.depth_values, strict=True)
    rows = [[depth, value] for depth, value in pairs if math.isfinite(value)]
    minimize = architecture.minimize
    columns = [
        Column("layers", kind="count"),
        Column(minimize, minimize, parse_objective(minimize).unit, digits="rows"),
    ]
    return Table("depths", "The best of each depth", columns, rows, level=FULL)


def depths_chart(architecture: Architecture, table: Table) -> Chart:
    """How flat the objective is in the depth."""
    pairs, minimize = [(depth.value, value.value) for depth, value in table.rows], architecture.minimize
    best, lowest = min(pairs, key=lambda pair: pair[1])
    near = [depth for depth, value in pairs if value <= 1.01 * lowest]
    title = f"From {min(near):g} to {max(near):g} layers {minimize} stays within 1 % of its minimum"
    if len(near) == 1:
        title = f"{best:g} layers take the lowest {minimize}"
    return Chart(
        *("plane", Sentence(title), "depths", "layers", [minimize], "Widths and plan decided anew at each depth"),
        lines=True,
        limit=(_number(architecture.scenario.system.workload, "layers"), "own depth", "x"),
    )
