"""The answer of `frontier`: best plans at process generations from today's to the limits of physics."""

import numpy as np

from energymodel.report.answer import DATA, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.search.compare import Frontier, FrontierStep

NOTE = (
    "Process generations of system.chip_design (docs/hardware.md): an extrapolation, most of whose constants are "
    "priors. Nothing says that such chips can be made."
)
_RATIOS = ("time", "energy", "power_average")
_COLUMNS = (
    Column("generations", "generations", digits="rows"),
    Column("operation_energy", "operation", "J/FLOP"),
    Column("landauer_multiple", "x Landauer"),
    Column("time", "time", "s", digits="two"),
    Column("energy", "energy", "J", digits="two"),
    Column("power_average", "power", "W", digits="two"),
    Column("money", "money", "USD", digits="two", level=DATA),
    Column("chips", "chips", kind="count"),
    Column("batch", "batch", "token", digits="two", level=DATA),
    Column("clock", "clock", digits="two", level=DATA),
    Column("binds", "binds", kind="words"),
    Column("reason", "reason", kind="words", level=DATA),
    *(Column(f"{name}_ratio", name.replace("_", " "), digits="two", level=DATA) for name in _RATIOS),
)


def frontier_answer(frontier: Frontier) -> Answer:
    """A frontier in numbers."""
    first = next((step for step in frontier.steps if step.optimum is not None), None)
    today = _totals(first) if first else {}
    rows = [_row(step, today) for step in frontier.steps]
    chart = Chart(
        "plane",
        Sentence("Best plans on the way to the limits of physics"),
        "steps",
        "landauer_multiple",
        [f"{name}_ratio" for name in _RATIOS],
        "Against the energy of an operation over Landauer's bound of its bits",
        lines=True,
        log=["landauer_multiple", *(f"{name}_ratio" for name in _RATIOS)],
        axis="over today's best plan",
    )
    return Answer(
        "frontier",
        f"Plans of the lowest {frontier.minimize}",
        Sentence("Best plans on the way to the limits of physics"),
        [Sentence(NOTE)],
        [Table("steps", "Steps", _COLUMNS, rows)],
        [chart] if first else [],
        [Sentence(f"{step.generations:g} generations: {step.reason}") for step in frontier.steps if step.reason],
        rows="steps",
    )


def _totals(step: FrontierStep) -> dict[str, float]:
    assert step.optimum is not None
    outcome = step.optimum.outcome
    return {name: float(np.asarray(getattr(outcome, name))) for name in ("time", "power_average", "money")} | {
        "energy": float(np.asarray(outcome.energy.total))
    }


def binding(step: FrontierStep) -> str:
    """Binding constraints by price, the highest first."""
    if step.optimum is None:
        return ""
    prices = step.optimum.prices
    return ", ".join(sorted(step.optimum.active, key=lambda name: -prices[name].elasticity if name in prices else 0.0))


def _row(step: FrontierStep, today: dict[str, float]) -> list[Cell]:
    start: list[Cell] = [
        Quantity(number) for number in (step.generations, step.operation_energy, step.landauer_multiple)
    ]
    if step.optimum is None:
        return [*start, *[None] * 7, "no plan", step.reason, *[None] * len(_RATIOS)]
    plan, totals = step.optimum.plan, _totals(step)
    numbers = [totals[name] for name in (*_RATIOS, "money")]
    numbers += [float(plan.chips), float(np.ravel(plan.batch)[0]), float(step.optimum.outcome.clock)]
    ratios = (totals[name] / today[name] for name in _RATIOS)
    return [*start, *map(Quantity, numbers), binding(step), step.reason, *map(Quantity, ratios)]
