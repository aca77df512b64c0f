"""How is a run shown whose configuration a user brought: does it fit, how long is a step, what does it cost?"""

from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report.fields import Field, total
from energymodel.report.intervals import ends, rounded
from energymodel.report.json_tree import run_json
from energymodel.report.tables import INTERVALS, plan_table, provenance_notes
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.outcome import TrainingOutcome
from energymodel.units import format_quantity


class RunPrediction(NamedTuple):
    """A scenario that was made of a user's files, its outcome, and how far its memory is from the chip's.

    - `of_whole_run`: whether anybody said how many tokens the run has; else only shares of it are shown.
    """

    scenario: Scenario
    outcome: TrainingOutcome
    spread: OutcomeSpread
    of_whole_run: bool

    @property
    def capacity(self) -> float:
        """Memory of a chip [B]."""
        return float(self.scenario.system.accelerator.memory_capacity)

    @property
    def fits(self) -> bool:
        """Whether the plan needs no more memory than there is."""
        return float(self.outcome.memory_per_chip) <= self.capacity

    @property
    def verdict(self) -> str:
        """One sentence: it fits, or what it lacks and what to do."""
        need, room = float(self.outcome.memory_per_chip), self.capacity
        amounts = f"{format_quantity(need, 'B')} of {format_quantity(room, 'B')} per chip"
        if self.fits:
            return f"It fits: {amounts}."
        return (
            f"It does not fit: {amounts}. Raise the tensor or pipeline degree or the sharding, recompute activations, "
            "or take more chips; `energymodel optimize` with the same words finds a layout that fits."
        )


def run_prediction_json(found: RunPrediction) -> dict[str, Any]:
    """The tree of `evaluate`, and whether it fits."""
    memory = {
        "fits": found.fits,
        "memory_per_chip_b": float(found.outcome.memory_per_chip),
        "capacity_b": found.capacity,
    }
    tree = run_json(found.scenario, found.scenario.plan, found.outcome, found.spread)
    return {**tree, "prediction": {**memory, "of_whole_run": found.of_whole_run}}


def run_prediction_report(found: RunPrediction) -> RenderableType:
    """The verdict on memory, the plan beside step time and speed, and what steps, tokens and the run cost."""
    side_by_side = Table.grid(padding=(0, 4))
    side_by_side.add_row(plan_table(found.scenario, found.scenario.plan), prediction_table(found))
    return Group(
        Text(found.scenario.title, style="bold"),
        Text(found.verdict),
        "",
        side_by_side,
        "",
        Text(INTERVALS),
        provenance_notes(found.scenario),
    )


def prediction_table(found: RunPrediction) -> Table:
    """What steps, tokens and the run take, with intervals."""
    outcome = found.outcome
    steps, tokens = float(outcome.steps), float(outcome.tokens)
    energy, chips = total(outcome.energy), float(found.scenario.plan.chips)
    batch = tokens / steps
    rows = [
        Field("memory_per_chip", "", "memory per chip", "B", float(outcome.memory_per_chip)),
        Field("step_time", "", "step time", "s", total(outcome.step_time)),
        Field("step_time", "", "tokens per second", "token/s", batch / total(outcome.step_time)),
        Field("step_time", "", "tokens per second and chip", "token/s", batch / total(outcome.step_time) / chips),
        Field("mfu", "", "model FLOP utilization", "1", float(outcome.mfu)),
        Field("power_busy", "", "busy chip power", "W", float(outcome.power_busy)),
        Field("energy", "", "energy per step", "J", energy / steps),
        Field("money", "", "money per step", "USD", float(outcome.money) / steps),
        Field("energy", "", "energy per 1e9 tokens", "J", 1e9 * energy / tokens),
        Field("money", "", "money per 1e9 tokens", "USD", 1e9 * float(outcome.money) / tokens),
    ]
    if found.of_whole_run:
        rows += [
            Field("tokens", "", "tokens of the run", "token", tokens),
            Field("time", "", "time of the run", "s", float(outcome.time)),
            Field("energy", "", "energy of the run", "J", energy),
            Field("money", "", "money of the run", "USD", float(outcome.money)),
            Field("carbon", "", "carbon of the run", "kg", float(np.asarray(outcome.carbon))),
            Field("loss", "", "final loss", "nat/token", float(outcome.loss)),
        ]
    table = Table(box=None, title="Prediction, and its 90 % interval", title_justify="left", title_style="bold")
    table.show_header, table.pad_edge = False, False
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for field in rows:
        interval = _relative_interval(field, found)
        table.add_row(field.title, rounded(field, *interval), ends(field, *interval))
    return table


def _relative_interval(field: Field, found: RunPrediction) -> tuple[float, float]:
    """The interval of an output, scaled to what is shown of it; of a rate, that of the time, turned over."""
    outcome = found.outcome
    parts = {"step_time": outcome.step_time, "energy": outcome.energy}
    middle = total(parts[field.name]) if field.name in parts else float(getattr(outcome, field.name))
    low, high = found.spread.interval(field.name)
    if field.unit == "token/s":
        return field.value * middle / high, field.value * middle / low
    return field.value * low / middle, field.value * high / middle
