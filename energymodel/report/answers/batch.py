"""The answer of `batch`: runs to the same loss at several batches, and the best batch for each objective."""

import numpy as np

from energymodel.report.answer import DATA, Answer, Chart, Column, Quantity, Sentence, Table
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.batch_curve import BatchCurve, BestBatch
from energymodel.system.outcome import TrainingOutcome

RATIOS = ("time", "energy", "money")
_COLUMNS = (
    Column("batch", "batch", "token"),
    Column("tokens", "tokens", "token", level=DATA),
    Column("tokens_change", "tokens", kind="change"),
    Column("steps", "steps", kind="count", level=DATA),
    Column("time", "time", "s"),
    Column("energy", "energy", "J"),
    Column("money", "money", "USD"),
    Column("carbon", "carbon", "kg", level=DATA),
    Column("power_average", "average power", "W", level=DATA),
    Column("token_rate", "throughput", "token/s"),
    Column("break_even_rate", "to break even", "token/s"),
    Column("break_even_power", "power to break even", "W", level=DATA),
    Column("pays", "pays in", kind="words"),
    *(Column(f"{name}_ratio", name, level=DATA) for name in RATIOS),
)
_BEST = (
    Column("objective", "objective", kind="words"),
    Column("batch", "batch", "token"),
    Column("flat_low", "within 0.1 % from", "token", digits="two"),
    Column("flat_high", "to", "token", digits="two"),
    Column("saving", "saves beside the plan's own", kind="share", digits="two"),
    Column("edge", "", kind="words", level=DATA),
)
_EDGES = {
    -1: "the fewest micro-batches that the layout runs",
    0: "above it a larger batch stops to pay",
    1: "the largest batch tried, or a larger one",
}


def batch_answer(scenario: Scenario, curve: BatchCurve) -> Answer:
    """A batch curve in numbers."""
    best = best_table(curve)
    numbers = {
        f"{name}_{column.name}": (column, cell)
        for row, name in enumerate(curve.best)
        for column, cell in zip(best.columns, best.rows[row], strict=True)
        if isinstance(cell, Quantity)
    }
    sentences = [
        Sentence(
            f"Lowest {name}: {{{name}_batch:i}}, {_EDGES[optimum.at_edge]}; "
            f"saves {f'{{{name}_saving}}' if optimum.saving > 1e-6 else 'nothing'} beside the plan's own batch. "
            f"From {{{name}_flat_low}} to {{{name}_flat_high}} it is within 0.1 %.",
            numbers,
        )
        for name, optimum in curve.best.items()
    ]
    chart = Chart(
        "plane",
        Sentence("Runs to the same loss: time, energy and money over their lowest values"),
        "batches",
        "batch",
        [f"{name}_ratio" for name in RATIOS],
        "The same layout, chips and clock",
        lines=True,
        log=["batch"],
        axis="over the lowest value",
    )
    return Answer(
        "batch",
        scenario.title,
        Sentence("To the same loss with the same layout, chips and clock"),
        sentences,
        [batches_table(curve), best],
        [chart],
        inputs=scenario.named_tables,
        rows="batches",
    )


def batches_table(curve: BatchCurve) -> Table:
    """A row for each batch."""
    outcome, own = curve.outcome, curve.own
    totals = {name: _total(outcome, name) for name in RATIOS}
    pays = {name: values < float(_total(own, name)) * (1.0 - 1e-9) for name, values in totals.items()}
    numbers = (
        *(curve.batch, outcome.tokens, outcome.tokens / own.tokens - 1.0, outcome.steps, *totals.values()),
        *(outcome.carbon, outcome.power_average, outcome.token_rate, curve.break_even_rate, curve.break_even_power),
    )
    rows = [
        [
            *(Quantity(float(number)) for number in row),
            " ".join(name for name in RATIOS if pays[name][index]) or "nothing",
            *(Quantity(float(values[index] / values.min())) for values in totals.values()),
        ]
        for index, row in enumerate(zip(*map(np.asarray, numbers), strict=True))
    ]
    return Table("batches", "Batches", _COLUMNS, rows)


def _total(outcome: TrainingOutcome, name: str) -> np.ndarray:
    return np.asarray(outcome.energy.total if name == "energy" else getattr(outcome, name))


def best_table(curve: BatchCurve) -> Table:
    """The best batch for each objective, with its interval where the curve has a minimum inside."""
    return Table("best", "Best batches", _BEST, [_best_row(name, best) for name, best in curve.best.items()])


def _best_row(name: str, best: BestBatch) -> list[Quantity | str]:
    ends = (best.low, best.high) if best.at_edge == 0 else (None, None)
    flat = (Quantity(end) for end in best.flat)
    return [name, Quantity(best.batch, *ends), *flat, Quantity(best.saving), _EDGES[best.at_edge]]
