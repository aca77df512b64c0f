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
    attributes,
    number,
    share,
    spaced,
    words,
)
from energymodel.report.answers import run_tables
from energymodel.report.answers.details import detail_parts, parts_chart
from energymodel.report.answers.evaluate import intervals_chart
from energymodel.report.answers.run_tables import FOUND, OWN, Run
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
    own, minimize, plan = architecture.scenario, architecture.minimize, architecture.plan
    if isinstance(own.plan.goal, TokenBudget):  # the kind of goal that the scenario has
        plan = eqx.tree_at(lambda plan: plan.goal, plan, TokenBudget(np.asarray(architecture.outcome.tokens)))
    best = dataclasses.replace(own, system=architecture.system, plan=plan)
    with jax.enable_x64(True):
        baseline = jax.device_get(evaluate_once(own.system, own.plan))
    spreads = [outcome_spread(scenario) if details else None for scenario in (own, best)]
    runs = {OWN: Run(own.plan, baseline, spreads[0]), FOUND: Run(plan, architecture.outcome, spreads[1])}
    outcome, energy = run_tables.outcome_table(runs), run_tables.parts_table("energy", "Energy", runs, FULL)
    sizes = {OWN: own.system.workload, FOUND: architecture.system.workload}
    differs = [name for name in COUNTS if not math.isclose(*(_number(of, name) for of in sizes.values()), rel_tol=1e-9)]
    columns = [Column(name, level=0 if name in (*differs, *TOTALS) else FULL) for name in (*COUNTS, *TOTALS)]
    rows = {label: [_number(of, column.name) for column in columns] for label, of in sizes.items()}
    unit = parse_objective(minimize).unit
    search = attributes(architecture, unit, "value", "own_value", "baseline_value")
    search |= attributes(architecture, "1", "saving") | attributes(architecture, "nat/token", "loss", "penalty")
    search[words("at_bounds")] = ", ".join(architecture.at_bounds)
    flatness, flat = _flatness(architecture)
    depths, curve = _depths(architecture, unit)
    tables = [
        run_tables.compared("shape", "Shape", columns, rows),
        run_tables.plan_table(best, {OWN: own.plan, FOUND: plan}),
        outcome,
    ]
    tables += [
        energy,
        flatness,
        depths,
        Table.facts("search", "The search", search, DATA),
        run_tables.priors_table(best),
    ]
    charts = [flat, parts_chart(energy, "energy", "Energy of the run by where it goes"), *curve]
    notes: list[Sentence] = []
    if details:
        more, drawings, notes = detail_parts(best, runs, minimize)
        tables, charts = [*tables, *more], [*charts, *drawings, intervals_chart(outcome, row=FOUND)]
    success = architecture.success
    chosen = {f"system.workload.{name}": repr(_number(sizes[FOUND], name)) for name in differs}
    return Answer.of(
        own,
        "optimize",
        Sentence(f"The shape with the lowest {minimize}" if success else "No shape can be trusted"),
        _sentences(architecture, unit),
        [table for table in tables if table.rows],
        charts=charts,
        notes=notes,
        also=[("To evaluate this shape", command_of(own, plan, chosen))],
        rows="shape",
        result="successful" if success else "not trusted",
        message="" if success else architecture.message,
    )


def _number(workload: Transformer, name: str) -> float:
    return float(np.asarray(getattr(workload, name)))


def _sentences(architecture: Architecture, unit: str) -> list[Sentence]:
    """What the shape saves, what its loss rests on, and why it may not be trusted."""
    numbers = {name: number(getattr(architecture, name), unit) for name in ("value", "own_value", "baseline_value")}
    numbers |= {"saving": share(architecture.saving), "loss": number(architecture.loss, "nat/token")}
    numbers["penalty"] = number(architecture.penalty, "nat/token", digits="two")
    texts = [
        f"{architecture.minimize.capitalize()}: {{value}}, {{saving}} less than the own shape with its best plan "
        "({own_value}); the own plan takes {baseline_value}. All reach a loss of {loss}.",
        "Of the loss, {penalty} is what the shape adds, by a prior: how much depends on the shape is not measured "
        "for models of this size, so that a small saving is none.",
    ]
    if architecture.at_bounds:
        at_bounds = ", ".join(architecture.at_bounds)
        texts.append(f"{at_bounds} would go further than a factor of 4 from the own shape.")
    return [Sentence(text, numbers) for text in (*texts, *([] if architecture.success else [architecture.message]))]


def _flatness(architecture: Architecture) -> tuple[Table, Chart]:
    """What a smaller and a larger value of each number of the shape costs; nothing where no plan obeys the limits."""
    step, axis = f"{100.0 * FLATNESS:g} %", f"change of {architecture.minimize}"
    rows = [
        [spaced(name), *(end if math.isfinite(end) else None for end in ends)]
        for name, ends in architecture.flatness.items()
    ]
    finite = {name: [abs(end) for end in ends if end is not None] for name, *ends in rows}
    most = {name: max(ends) for name, ends in finite.items() if ends}
    order = sorted(most, key=lambda name: -most[name])
    title = Sentence("No other shape obeys the limits")
    if order:
        text = f"{step} less or more of {order[0]} costs at most {{most}}"
        title = Sentence(text, {"most": share(most[order[0]])})
    columns = [Column(name, f"{step} {name}", kind="change", digits="two") for name in ("less", "more")]
    what = f"What {step} less and more of each costs, all else decided anew"
    table = Table("flatness", what, [words("number", ""), *columns], rows)
    subtitle = f"{axis.capitalize()} at another shape, all else decided anew"
    return table, Chart("tornado", title, "flatness", "number", ["less", "more"], subtitle, only=order, axis=axis)


def _depths(architecture: Architecture, unit: str) -> tuple[Table, list[Chart]]:
    """The objective at each depth that divides over the pipeline, all else decided anew, and how flat it is."""
    minimize = architecture.minimize
    pairs = [*zip(map(float, architecture.depths), map(float, architecture.depth_values), strict=True)]
    pairs = [(depth, value) for depth, value in pairs if math.isfinite(value)]
    columns = [Column("layers", kind="count"), Column(minimize, minimize, unit, digits="rows")]
    table = Table("depths", "The best of each depth", columns, pairs, level=FULL)
    if len(pairs) < 2:
        return table, []
    best, lowest = min(pairs, key=lambda pair: pair[1])
    near = [depth for depth, value in pairs if value <= 1.01 * lowest]
    title = f"From {min(near):g} to {max(near):g} layers {minimize} stays within 1 % of its minimum"
    if len(near) == 1:
        title = f"{best:g} layers take the lowest {minimize}"
    own_depth = _number(architecture.scenario.system.workload, "layers"), "own depth", "x"
    subtitle, look = "Widths and plan decided anew at each depth", {"lines": True, "limit": own_depth}
    return table, [Chart("plane", Sentence(title), "depths", "layers", [minimize], subtitle, **look)]
