"""How does a person read the outcome of a run?"""

import dataclasses
from collections.abc import Iterable, Mapping

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from energymodel.report.fields import Field, plan_fields, show
from energymodel.scenarios.clock_scale import CLOCK, REFERENCE_CLOCK, ClockScale
from energymodel.scenarios.priors import SYSTEM, switched_off
from energymodel.scenarios.priors import priors as prior_numbers
from energymodel.scenarios.scenario import Scenario
from energymodel.system.plan import ParallelLayout, TrainingPlan

PRIOR_MARK = "†"
INTERVALS = (
    "The intervals hold with a probability of 90 %, to first order in the uncertain numbers of the system. Numbers "
    "have the digits that their intervals support; --json has all."
)
_BAR = 20
_BOUNDLESS = 14.0  # of a slack: a limit a million times beyond the value is none
_RECOMPUTATION = {(0.0, 0.0): "none", (1.0, 0.0): "selective", (0.0, 1.0): "full"}
_ALWAYS = {"tensor", "pipeline", "microbatch"}
_USUAL = {
    f"{path}.{field.name}": field.default
    for path, component in (("plan", TrainingPlan), ("plan.layout", ParallelLayout))
    for field in dataclasses.fields(component)
    if field.default is not dataclasses.MISSING
}
"""Numbers of a plan that say nothing at this value."""
_SWITCHES = {"shard_optimizer", "shard_gradients", "shard_parameters", "recompute_attention", "recompute_full"}


def pairs_table(title: str, rows: Iterable[tuple[str, ...]], columns: int = 2) -> Table:
    """Name and value, and what else each row holds."""
    table = Table(box=None, title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    for _ in range(columns - 1):
        table.add_column(justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def plan_table(scenario: Scenario, plan: TrainingPlan) -> Table:
    """What is decided; numbers that are priors are marked."""
    return pairs_table("Plan", plan_rows(scenario, plan))


def plan_rows(scenario: Scenario, plan: TrainingPlan) -> list[tuple[str, str]]:
    """Name and value of each number of a plan that says something, with the words of a scenario file."""
    rows, layout = [], plan.layout
    priors = given_priors(scenario)
    for field in plan_fields(plan):
        *_, parent, name = field.name.split(".")
        if (parent == "layout" and name in _SWITCHES) or (
            name not in _ALWAYS and field.value == _USUAL.get(field.name)
        ):
            continue
        mark = f" {PRIOR_MARK}" if field.name.split("[")[0] in priors else ""
        rows.append((_name(name, field), show_plan(scenario, field) + mark))
        if name == "pipeline":
            rows.append(("data", f"{data_parallel(plan):g}"))
    stages = [float(layout.shard_optimizer), float(layout.shard_gradients), float(layout.shard_parameters)]
    rows.append(("ZeRO stage", f"{sum(stages):g}"))
    recomputed = (float(layout.recompute_attention), float(layout.recompute_full))
    words = _RECOMPUTATION.get(recomputed, f"attention {recomputed[0]:g}, all {recomputed[1]:g}")
    rows.append(("recomputation", words))
    return rows


def show_plan(scenario: Scenario, field: Field) -> str:
    """A number of a plan as a person reads it; a clock also in MHz, marked where the reference clock is a prior."""
    if field.name != CLOCK:
        return show(field)
    prior = f" {PRIOR_MARK}" if scenario.provenance[REFERENCE_CLOCK].is_prior else ""
    return f"{show(field)} ({ClockScale.of(scenario.system.accelerator).megahertz(field.value)}{prior})"


def data_parallel(plan: TrainingPlan) -> float:
    """Replicas of the model."""
    layout = plan.layout
    return float(plan.chips) / float(layout.tensor * layout.pipeline * layout.context)


def _name(name: str, field: Field) -> str:
    return {
        "microbatch": "sequences per micro-batch",
        "fp8": "fp8 share",
        "fp4": "fp4 share",
        "tf32": "tf32 share",
        "fp32": "fp32 share",
        "loss": "target loss",
    }.get(name, field.title)


def given_priors(scenario: Scenario) -> Mapping[str, str]:
    """Path and source of the numbers of the plan that are recalled or assumed."""
    return {
        path: origin.source
        for path, origin in scenario.provenance.items()
        if path.startswith("plan.") and origin.is_prior and origin.source != "default"
    }


def provenance_notes(scenario: Scenario) -> RenderableType:
    """Which numbers are priors, and what the run's time holds beyond the run itself."""
    lines = []
    priors = given_priors(scenario)
    if priors:
        lines.append(f"{PRIOR_MARK} prior: assumed, not measured")
        lines += [f"  {path}: {source}" for path, source in priors.items()]
    stages = float(scenario.system.other_stages)
    if stages:
        origin = scenario.provenance["system.other_stages"]
        word = f" {PRIOR_MARK} prior" if origin.is_prior else ""
        lines.append(f"Time and energy include {100 * stages:g} % for other stages{word}: {origin.source}")
    slowdown = float(scenario.system.production_slowdown)
    if slowdown > 1.0:
        origin = scenario.provenance["system.production_slowdown"]
        lines.append(f"Steps take {slowdown:.3g} times as long as in tuned benchmarks: {origin.source}")
    lines.append(prior_count(scenario))
    return Text("\n".join(lines), style="dim")


def prior_count(scenario: Scenario) -> str:
    """How many numbers of the system nobody measured, and where to read which they are."""
    total_count = sum(path.startswith(SYSTEM) for path in scenario.provenance)
    off = len(switched_off(scenario))
    without = f" ({off} more belong to parts that are switched off)" if off else ""
    source = scenario.source
    is_stored = source and not source.startswith("--")
    where = f"`energymodel presets show {source}` lists each with its source, and " if is_stored else ""
    command = f"energymodel sensitivity {source}".strip()
    return (
        f"{len(prior_numbers(scenario))} of the {total_count} numbers of the system are priors{without}; "
        f"{where}`{command}` says what share of the variance rests on them."
    )
