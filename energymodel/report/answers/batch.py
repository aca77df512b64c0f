"""The answer of `batch`: runs to the same loss at several batches, and the best batch for each objective."""

import numpy as np

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Column, words
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.batch_curve import BatchCurve
from energymodel.system.outputs import output

RATIOS = {"time": "s", "energy": "J", "money": "USD"}
_EDGES = {
    -1: "the fewest micro-batches that the layout runs",
    0: "above it a larger batch stops to pay",
    1: "the largest batch tried, or a larger one",
}


def batch_answer(scenario: Scenario, curve: BatchCurve) -> Answer:
    """A batch curve in numbers."""
    best, sentences, is_given = best_table(curve), [], "batch" not in scenario.chosen
    for row, (name, optimum) in enumerate(curve.best.items()):
        saves = f"saves {'{saving}' if optimum.saving > 1e-6 else 'nothing'} beside the plan's own batch"
        text = (
            f"Lowest {name}: {{batch:i}}, {_EDGES[optimum.at_edge]}{f'; {saves}' if is_given else ''}. "
            "From {flat_low} to {flat_high} it is within 0.1 %."
        )
        sentences.append(Sentence(text, {name: best.number(name, row) for name in best.names[1:-1]}))
    title = Sentence("Runs to the same loss: time, energy and money over their lowest values")
    ratios, look = [f"{name}_ratio" for name in RATIOS], {"lines": True, "log": ["batch"]}
    subtitle, axis = "The same layout, chips and clock", "over the lowest value"
    return Answer.of(
        scenario,
        "batch",
        Sentence("To the same loss with the same layout, chips and clock"),
        sentences,
        [batches_table(curve), best],
        charts=[Chart("plane", title, "batches", "batch", ratios, subtitle, axis=axis, **look)],
        rows="batches",
    )


def best_table(curve: BatchCurve) -> Table:
    """The best batch for each objective, with an interval where the curve has a minimum inside."""
    best = curve.best.values()
    cells = {
        words("objective"): curve.best,
        Column("batch", unit="token"): [of.batch if of.at_edge else (of.batch, of.low, of.high) for of in best],
        Column("flat_low", "within 0.1 % from", "token", digits="two"): [of.flat[0] for of in best],
        Column("flat_high", "to", "token", digits="two"): [of.flat[1] for of in best],
        Column("saving", "saves beside the plan's own", kind="share", digits="two"): [of.saving for of in best],
        words("edge", "", "data"): [_EDGES[of.at_edge] for of in best],
    }
    return Table.of("best", "Best batches", cells)


def batches_table(curve: BatchCurve) -> Table:
    """A row for each batch."""
    outcome, own = curve.outcome, curve.own
    totals, mine = ({name: np.asarray(output(of, name)) for name in RATIOS} for of in (outcome, own))
    pays = {name: values < float(mine[name]) * (1.0 - 1e-9) for name, values in totals.items()}
    cells = {
        Column("batch", unit="token"): curve.batch,
        Column("tokens", unit="token", level="data"): outcome.tokens,
        Column("tokens_change", "tokens", kind="change"): outcome.tokens / own.tokens - 1.0,
        Column("steps", kind="count", level="data"): outcome.steps,
        **{Column(name, unit=unit): totals[name] for name, unit in RATIOS.items()},
        Column("carbon", unit="kg", level="data"): outcome.carbon,
        Column("power_average", "average power", "W", level="data"): outcome.power_average,
        Column("token_rate", "throughput", "token/s"): outcome.token_rate,
        Column("break_even_rate", "to break even", "token/s"): curve.break_even_rate,
        Column("break_even_power", "power to break even", "W", level="data"): curve.break_even_power,
        words("pays", "pays in"): [
            " ".join(name for name in RATIOS if pays[name][row]) or "nothing" for row in range(len(curve.batch))
        ],
        **{Column(f"{name}_ratio", name, level="data"): values / values.min() for name, values in totals.items()},
    }
    return Table.of("batches", "Batches", cells)
