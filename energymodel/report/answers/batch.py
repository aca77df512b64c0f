"""The answer of `batch`: runs to the same loss at several batches, and the best batch for each objective."""

import numpy as np

from energymodel.report.answer import DATA, Answer, Chart, Column, Sentence, Table, words
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.batch_curve import BatchCurve
from energymodel.system.outputs import output

RATIOS = ("time", "energy", "money")
_COLUMNS = (
    Column("batch", unit="token"),
    Column("tokens", unit="token", level=DATA),
    Column("tokens_change", "tokens", kind="change"),
    Column("steps", kind="count", level=DATA),
    Column("time", unit="s"),
    Column("energy", unit="J"),
    Column("money", unit="USD"),
    Column("carbon", unit="kg", level=DATA),
    Column("power_average", "average power", "W", level=DATA),
    Column("token_rate", "throughput", "token/s"),
    Column("break_even_rate", "to break even", "token/s"),
    Column("break_even_power", "power to break even", "W", level=DATA),
    words("pays", "pays in"),
    *(Column(f"{name}_ratio", name, level=DATA) for name in RATIOS),
)
_BEST = (
    words("objective"),
    Column("batch", unit="token"),
    Column("flat_low", "within 0.1 % from", "token", digits="two"),
    Column("flat_high", "to", "token", digits="two"),
    Column("saving", "saves beside the plan's own", kind="share", digits="two"),
    words("edge", "", DATA),
)
_EDGES = {
    -1: "the fewest micro-batches that the layout runs",
    0: "above it a larger batch stops to pay",
    1: "the largest batch tried, or a larger one",
}


def batch_answer(scenario: Scenario, curve: BatchCurve) -> Answer:
    """A batch curve in numbers; the best batch has an interval where the curve has a minimum inside."""
    rows = [
        [
            name,
            (best.batch, best.low, best.high) if best.at_edge == 0 else best.batch,
            *best.flat,
            best.saving,
            _EDGES[best.at_edge],
        ]
        for name, best in curve.best.items()
    ]
    best, sentences = Table("best", "Best batches", _BEST, rows), []
    for row, (name, optimum) in enumerate(curve.best.items()):
        numbers = {name: best.number(name, row) for name in best.names[1:-1]}
        text = (
            f"Lowest {name}: {{batch:i}}, {_EDGES[optimum.at_edge]}; "
            f"saves {'{saving}' if optimum.saving > 1e-6 else 'nothing'} beside the plan's own batch. "
            "From {flat_low} to {flat_high} it is within 0.1 %."
        )
        sentences.append(Sentence(text, numbers))
    title = Sentence("Runs to the same loss: time, energy and money over their lowest values")
    ratios, subtitle = [f"{name}_ratio" for name in RATIOS], "The same layout, chips and clock"
    look = {"lines": True, "log": ["batch"], "axis": "over the lowest value"}
    return Answer.of(
        scenario,
        "batch",
        Sentence("To the same loss with the same layout, chips and clock"),
        sentences,
        [batches_table(curve), best],
        charts=[Chart("plane", title, "batches", "batch", ratios, subtitle, **look)],
        rows="batches",
    )


def batches_table(curve: BatchCurve) -> Table:
    """A row for each batch."""
    outcome, own = curve.outcome, curve.own
    totals, mine = ({name: np.asarray(output(of, name)) for name in RATIOS} for of in (outcome, own))
    pays = {name: values < float(mine[name]) * (1.0 - 1e-9) for name, values in totals.items()}
    names = [" ".join(name for name in RATIOS if pays[name][row]) or "nothing" for row in range(len(curve.batch))]
    columns = (
        curve.batch,
        outcome.tokens,
        outcome.tokens / own.tokens - 1.0,
        outcome.steps,
        *totals.values(),
        outcome.carbon,
        outcome.power_average,
        outcome.token_rate,
        curve.break_even_rate,
        curve.break_even_power,
        names,
        *(values / values.min() for values in totals.values()),
    )
    return Table("batches", "Batches", _COLUMNS, [*zip(*columns, strict=True)])
