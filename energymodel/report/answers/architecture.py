"""The answer of `optimize --vary model.*`: the best shape of a model, and what other shapes cost."""

import dataclasses
import math

import equinox as eqx
import jax
import numpy as np

from energymodel.performance.workload import Transformer
from energymodel.report.answer import CHANGE, DATA, FULL, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.evaluate import detail_parts, intervals_chart
from energymodel.report.answers.run_tables import (
    CHANGED,
    FOUND,
    OWN,
    Run,
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
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import parse_objective
from energymodel.system.plan import TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem

COUNTS = (
    *("layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward", "dense_feed_forward"),
    *("experts", "active_experts"),
)
TOTALS = ("parameters", "active_parameters")
SHARE = Column("", "", kind="share", digits="two")


def architecture_answer(architecture: Architecture, *, details: bool = False) -> Answer:
    """Both shapes, what the best saves, and how flat the optimum is; `details` as for `optimize`."""
    shape, flatness = shape_table(architecture), flatness_table(architecture)
    depths = depths_table(architecture)
    scenario = dataclasses.replace(
        architecture.scenario, system=architecture.system, plan=realizable_plan(architecture)
    )
    own = Run(architecture.scenario.plan, _outcome(architecture.scenario.system, architecture.scenario.plan))
    runs = {OWN: own, FOUND: Run(scenario.plan, architecture.outcome)}
    tables = [shape, plan_table(scenario, {OWN: own.plan, FOUND: scenario.plan}), outcome_table(runs)]
    energy = parts_table("energy", "Energy", runs, FULL)
    tables += [energy, flatness, depths, search_table(architecture), priors_table(scenario)]
    charts = [flatness_chart(architecture), parts_chart(energy, "energy", "Energy of the run by where it goes")]
    charts += [depths_chart(architecture, depths)] if len(depths.rows) > 1 else []
    notes: list[Sentence] = []
    if details:
        known = {OWN: Run(*own[:2], outcome_spread(architecture.scenario))}
        known[FOUND] = Run(scenario.plan, architecture.outcome, outcome_spread(scenario))
        more, drawings, notes = detail_parts(scenario, known, architecture.minimize)
        tables, charts = [*tables, *more], [*charts, *drawings]
        tables[2] = outcome_table(known)
        charts.append(intervals_chart(tables[2], row=FOUND))
    found = f"The shape with the lowest {architecture.minimize}"
    return Answer(
        "optimize",
        architecture.scenario.title,
        Sentence(found if architecture.success else "No shape can be trusted"),
        shape_sentences(architecture),
        [table for table in tables if table.rows],
        charts,
        notes,
        also=[("To evaluate this shape", evaluate_shape(architecture))],
        inputs=architecture.scenario.named_tables,
        rows="shape",
        result="successful" if architecture.success else "not trusted",
        message="" if architecture.success else architecture.message,
    )


def _outcome(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(system, plan))


def search_table(architecture: Architecture) -> Table:
    """The objective of the shapes, the loss and what the shape adds to it, for other programs."""
    unit = parse_objective(architecture.minimize).unit
    names = {**dict.fromkeys(("value", "own_value", "baseline_value"), unit), "saving": "1"}
    names |= {"loss": "nat/token", "penalty": "nat/token"}
    columns = [Column(name, "", of) for name, of in names.items()] + [Column("at_bounds", "", kind="words")]
    numbers = [Quantity(float(getattr(architecture, name))) for name in names]
    return Table("search", "The search", columns, [[*numbers, ", ".join(architecture.at_bounds)]], level=DATA)


def _number(workload: Transformer, name: str) -> float:
    return float(np.asarray(getattr(workload, name)))


def _changed(own: Transformer, best: Transformer) -> list[str]:
    return [name for name in COUNTS if not math.isclose(_number(own, name), _number(best, name), rel_tol=1e-9)]


def shape_table(architecture: Architecture) -> Table:
    """Both shapes, what differs in the short form, and their sizes."""
    own, best = architecture.scenario.system.workload, architecture.system.workload
    differs = {*_changed(own, best), *TOTALS}
    columns = [
        Column(name, name.replace("_", " "), level=0 if name in differs else FULL, kind="amount")
        for name in (*COUNTS, *TOTALS)
    ]
    rows = [[Quantity(_number(workload, column.name)) for column in columns] for workload in (own, best)]
    changes: list[Cell] = [
        Quantity(after.value / before.value - 1.0) if before.value and before != after else None
        for before, after in zip(*rows, strict=True)
    ]
    labels, kinds = (OWN, FOUND, CHANGED), ("", "", CHANGE)
    return Table("shape", "Shape", columns, [*rows, changes], tall=True, labels=labels, kinds=kinds)


def shape_sentences(architecture: Architecture) -> list[Sentence]:
    """What the shape saves, what its loss rests on, and why it may not be trusted."""
    unit = parse_objective(architecture.minimize).unit
    column = Column(architecture.minimize, "", unit)
    values = {"value": architecture.value, "own": architecture.own_value, "baseline": architecture.baseline_value}
    numbers = {name: (column, Quantity(value)) for name, value in values.items()}
    numbers |= {"saving": (SHARE, Quantity(architecture.saving)), "loss": (LOSS, Quantity(architecture.loss))}
    numbers["penalty"] = dataclasses.replace(LOSS, digits="two"), Quantity(architecture.penalty)
    sentences = [
        Sentence(
            f"{architecture.minimize.capitalize()}: {{value}}, {{saving}} less than the own shape with its best plan "
            "({own}); the own plan takes {baseline}. All reach a loss of {loss}.",
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


LOSS = Column("", "", "nat/token")


def flatness_table(architecture: Architecture) -> Table:
    """What other shapes cost; nothing where no plan obeys the limits."""
    share = f"{100.0 * FLATNESS:g} %"
    columns = [Column("number", "", kind="words")]
    columns += [Column(name, f"{share} {name}", kind="change", digits="two") for name in ("less", "more")]
    rows: list[list[Cell]] = [
        [name.replace("_", " "), *(Quantity(float(end)) if math.isfinite(end) else None for end in ends)]
        for name, ends in architecture.flatness.items()
    ]
    title = f"What {share} less and more of each costs, all else decided anew"
    return Table("flatness", title, columns, rows)


def flatness_chart(architecture: Architecture) -> Chart:
    """What a smaller and a larger value of each number of the shape costs."""
    finite = {name: [abs(end) for end in ends if math.isfinite(end)] for name, ends in architecture.flatness.items()}
    order = sorted((name for name, ends in finite.items() if ends), key=lambda name: -max(finite[name]))
    title = Sentence("No other shape obeys the limits")
    if order:
        numbers = {"most": (SHARE, Quantity(max(finite[order[0]])))}
        first = order[0].replace("_", " ")
        title = Sentence(f"{100.0 * FLATNESS:g} % less or more of {first} costs at most {{most}}", numbers)
    subtitle = f"Change of {architecture.minimize} at another shape, all else decided anew"
    names, y = [name.replace("_", " ") for name in order], ["less", "more"]
    return Chart(
        "tornado", title, "flatness", "number", y, subtitle, only=names, axis=f"change of {architecture.minimize}"
    )


def depths_table(architecture: Architecture) -> Table:
    """The objective at each depth that divides over the pipeline, all else decided anew."""
    pairs = zip(architecture.depths, architecture.depth_values, strict=True)
    rows = [[Quantity(float(depth)), Quantity(float(value))] for depth, value in pairs if math.isfinite(value)]
    unit = parse_objective(architecture.minimize).unit
    columns = [
        Column("layers", "layers", kind="count"),
        Column(architecture.minimize, architecture.minimize, unit, digits="rows"),
    ]
    return Table("depths", "The best of each depth", columns, rows, level=FULL)


def depths_chart(architecture: Architecture, table: Table) -> Chart:
    """How flat the objective is in the depth."""
    pairs = [
        (depth.value, value.value)
        for depth, value in table.rows
        if isinstance(depth, Quantity) and isinstance(value, Quantity)
    ]
    best, lowest = min(pairs, key=lambda pair: pair[1])
    near = [depth for depth, value in pairs if value <= 1.01 * lowest]
    words = f"From {min(near):g} to {max(near):g} layers {architecture.minimize} stays within 1 % of its minimum"
    if len(near) == 1:
        words = f"{best:g} layers take the lowest {architecture.minimize}"
    own = float(np.asarray(architecture.scenario.system.workload.layers))
    subtitle, y = "Widths and plan decided anew at each depth", [architecture.minimize]
    limit = (own, "own depth", "x")
    return Chart("plane", Sentence(words), "depths", "layers", y, subtitle, lines=True, limit=limit)


def realizable_plan(architecture: Architecture) -> TrainingPlan:
    """The plan with the kind of goal that the scenario has."""
    if not isinstance(architecture.scenario.plan.goal, TokenBudget):
        return architecture.plan
    return eqx.tree_at(lambda plan: plan.goal, architecture.plan, TokenBudget(np.asarray(architecture.outcome.tokens)))


def evaluate_shape(architecture: Architecture) -> str:
    """The command that evaluates the shape with its plan."""
    own, best = architecture.scenario.system.workload, architecture.system.workload
    chosen = {f"system.workload.{name}": repr(_number(best, name)) for name in _changed(own, best)}
    return command_of(architecture.scenario, realizable_plan(architecture), chosen)
