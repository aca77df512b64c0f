"""The answers of `predict`: one configuration of a user, or a table of layouts."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from energymodel.calibration.step_prediction import TablePrediction
from energymodel.calibration.step_table import PREDICTED
from energymodel.report.answer import DATA, FULL, Answer, Cell, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.causes import causes
from energymodel.report.answers.evaluate import evaluate_answer, intervals_chart, limits_chart
from energymodel.report.answers.run_tables import Run, kind_of, limits_table
from energymodel.report.answers.step import step_parts
from energymodel.report.fields import Field
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.outcome import TrainingOutcome

OF_A_STEP = ("step_time", "mfu", "power_busy", "power_average", "power_peak", "pue", "memory_per_chip")
"""Outputs that no number of tokens changes."""
BARS, ROWS = 20, 40
FITS, RISKY = "fits in memory", "out-of-memory risk above 50 %"
BYTES = Column("", "", "B")
SHARE = Column("", "", kind="share", digits="two")


class RunPrediction(NamedTuple):
    """A scenario that was made of a user's files, and its outcome.

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
    def run(self) -> Run:
        """The plan with its outcome."""
        return Run(self.scenario.plan, self.outcome, self.spread)


def run_prediction_answer(run: RunPrediction, assumed: Sequence[str] = (), *, details: bool = False) -> Answer:
    """Whether a configuration fits, what steps, tokens and the run take, and the rest of a run."""
    scenario, first, verdict = run.scenario, prediction_table(run), memory_sentence(run)
    whole = evaluate_answer(scenario, run.outcome, run.spread, details=details and run.of_whole_run)
    outputs, step = whole.table("outcome"), next(chart for chart in whole.charts if chart.table == "step_time_parts")
    headline = Sentence(
        "A step takes {step_time}, at {mfu} model FLOP utilization",
        {name: outputs.number(name) for name in ("step_time", "mfu")},
    )
    charts = [step, *(chart for chart in whole.charts if chart is not step)]
    answer = dataclasses.replace(
        whole,
        command="predict",
        headline=headline,
        sentences=[verdict, *whole.sentences[:2]],
        tables=[first, *whole.tables],
        charts=charts,
        notes=[*map(Sentence, assumed), *whole.notes],
        also=(),
        result="successful" if run.fits else "infeasible",
        message="" if run.fits else _text(verdict),
    )
    return answer if run.of_whole_run else _of_a_step(run, answer, details=details)


def _of_a_step(run: RunPrediction, answer: Answer, *, details: bool) -> Answer:
    """The same without what depends on the number of tokens."""
    limits = limits_table(run.run, but="information")  # which follows from the tokens
    outputs = answer.table("outcome")
    tables = [answer.table(name) for name in ("prediction", "plan", "step_time_parts")] + [limits]
    charts = [answer.charts[0], *limits_chart(limits), intervals_chart(outputs, OF_A_STEP)]
    notes = list(answer.notes[-1:])
    if details:
        passes, timeline, sentence = step_parts(run.scenario, run.run)
        why, shares = causes(run.scenario, run.spread, "step_time")
        tables += [table for table in (passes, why) if table is not None]
        charts += [chart for chart in (timeline, shares) if chart is not None]
        notes = [sentence, *notes]
    return dataclasses.replace(
        answer,
        sentences=[
            answer.sentences[0],
            Sentence("A step takes {step_time:i}.", {"step_time": outputs.number("step_time")}),
            Sentence("Nothing says how long the run is: costs are for each step and token."),
        ],
        tables=[*tables, dataclasses.replace(outputs, level=DATA), answer.table("priors")],
        charts=charts,
        notes=notes,
        warnings=[],
    )


def memory_sentence(run: RunPrediction) -> Sentence:
    """It fits, or what it lacks and what to do."""
    amounts = {"need": float(run.outcome.memory_per_chip), "capacity": run.capacity}
    numbers = {name: (BYTES, Quantity(amount)) for name, amount in amounts.items()}
    if run.fits:
        return Sentence("It fits: {need} of {capacity} per chip.", numbers)
    return Sentence(
        "It does not fit: {need} of {capacity} per chip. Raise the tensor or pipeline degree or the sharding, "
        "recompute activations, or take more chips; `energymodel optimize` with the same words finds a layout that "
        "fits.",
        numbers,
    )


def _text(words: Sentence) -> str:
    from energymodel.report.number import sentence

    return sentence(words)


def prediction_table(prediction: RunPrediction) -> Table:
    """What steps, tokens and the run take, with intervals."""
    run, outcome = prediction.run, prediction.outcome
    steps, tokens, chips = float(outcome.steps), float(outcome.tokens), float(prediction.scenario.plan.chips)
    columns = [Column("fits", "fits in memory", kind="words")]
    cells: list[Cell] = ["yes" if prediction.fits else "no"]

    def add(name: str, title: str, unit: str, of: str, factor: float = 1.0) -> None:
        columns.append(Column(name, title, unit, kind_of(Field(of, "", "", unit, 0.0))))
        cells.append(run.quantity(of).mapped(lambda end: factor * end))

    def rate(name: str, title: str, factor: float) -> None:
        value, low, high = (factor / end for end in run.quantity("step_time")[:3] if end)
        columns.append(Column(name, title, "token/s"))
        cells.append(Quantity(value, high, low))

    add("memory_per_chip", "memory per chip", "B", "memory_per_chip")
    columns.append(Column("capacity", "memory of a chip", "B"))
    cells.append(Quantity(prediction.capacity))
    add("step_time", "step time", "s", "step_time")
    rate("token_rate", "tokens per second", tokens / steps)
    rate("token_rate_per_chip", "tokens per second and chip", tokens / steps / chips)
    add("mfu", "model FLOP utilization", "1", "mfu")
    add("power_busy", "busy chip power", "W", "power_busy")
    for name, unit in (("energy", "J"), ("money", "USD")):
        add(f"{name}_per_step", f"{name} per step", unit, name, 1.0 / steps)
        add(f"{name}_per_giga_token", f"{name} per 1e9 tokens", unit, name, 1e9 / tokens)
    if prediction.of_whole_run:
        for name, unit in {"tokens": "token", "time": "s", "energy": "J", "money": "USD", "carbon": "kg"}.items():
            add(f"{name}_of_run", f"{name} of the run", unit, name)
        add("loss", "final loss", "nat/token", "loss")
    return Table("prediction", "Prediction, and its 90 % interval", columns, [cells], tall=True)


def table_prediction_answer(prediction: TablePrediction, source: str) -> Answer:
    """Predicted steps of a table of layouts, beside measured ones where there are any."""
    steps = steps_table(prediction)
    rows, risky = len(steps.rows), sum(cell == RISKY for cell in steps.column("memory_risk")[1])
    errors = error_sentences(prediction)
    return Answer(
        "predict",
        f"Predicted steps of {source}",
        Sentence(f"{rows:,} layouts"),
        [
            Sentence(f"{rows:,} layouts are predicted; {risky:,} of them have an out-of-memory risk above 50 %."),
            *errors,
        ],
        [steps, errors_table(prediction), input_table(prediction)],
        [measured_chart(prediction, steps) or fastest_chart(steps)],
        [Sentence(note) for note in prediction.read.notes],
        rows="input",
    )


def _error(predicted: Quantity, measured: float) -> Quantity:
    return predicted.mapped(lambda end: end / measured - 1.0)


def steps_table(prediction: TablePrediction) -> Table:
    """A row for each layout."""
    predicted, measured = prediction.predicted, prediction.measured_time
    timed, known = bool(np.any(np.isfinite(measured))), bool(np.any(np.isfinite(predicted["step_time_low_s"])))
    columns = [
        Column("line", "line", kind="words"),
        Column("step_time", "step time", "s", digits="interval" if known else "two"),
        *([Column("measured", "measured", "s"), Column("error", "error", kind="change")] if timed else []),
        Column("mfu", "MFU", kind="share", digits="two"),
        Column("token_rate", "throughput", "token/s", digits="two"),
        Column("memory", "memory", "B", digits="two"),
        Column("out_of_memory_probability", "out of memory", kind="share", digits="two"),
        Column("memory_risk", "", kind="words", level=DATA),
    ]
    rows = []
    for index, line in enumerate(prediction.read.lines):
        time = Quantity(float(predicted["step_time_s"][index]))
        if known:
            low, high = (float(predicted[f"step_time_{end}_s"][index]) for end in ("low", "high"))
            time = time._replace(low=low, high=high) if math.isfinite(low) and math.isfinite(high) else time
        beside: list[Cell] = [None, None] if timed else []
        if np.isfinite(measured[index]):
            beside = [Quantity(float(measured[index])), _error(time, float(measured[index]))]
        others = [
            Quantity(float(predicted[name][index]))
            for name in ("mfu", "tokens_per_s", "memory_b", "out_of_memory_probability")
        ]
        rows.append([f"line {line}", time, *beside, *others, RISKY if others[-1].value > 0.5 else FITS])
    return Table("steps", "Predicted steps", columns, rows, short=range(min(ROWS, len(rows))))


def input_table(prediction: TablePrediction) -> Table:
    """The columns of the input as they were, and after them the predictions, whose names begin with `predicted_`."""
    read, new = prediction.read, [PREDICTED + name for name in prediction.predicted]
    own = [index for index, name in enumerate(read.csv.header) if name not in new]
    columns = [Column(read.csv.header[index], "", kind="words") for index in own]
    columns += [Column(name, "", "") for name in new]
    values = np.array(list(prediction.predicted.values())).T
    rows = [
        [*(read.csv.rows[place][index] for index in own), *(Quantity(float(number)) for number in numbers)]
        for place, numbers in zip(read.rows, values, strict=True)
    ]
    return Table("input", "The table with its predictions", columns, rows, level=DATA)


def errors_table(prediction: TablePrediction) -> Table:
    """Errors over the rows that were measured, by what was measured."""
    errors = prediction.errors()
    columns = [
        Column("quantity", "", kind="words"),
        Column("rows", "rows", kind="count"),
        Column("mean", "mean error", kind="share"),
        Column("median", "median error", kind="share"),
        Column("bias", "bias", kind="change"),
        Column("inside", "in the 90 % interval", kind="count"),
        Column("right", "classified correctly", kind="count"),
        Column("failed", "failures", kind="count"),
        Column("right_failed", "failures found", kind="count"),
    ]

    def row(name: str, of: dict[str, float | int]) -> list[Cell]:
        shares = [of.get(f"{key}_percent") for key in ("mean", "median", "bias")]
        counts = [of.get(key) for key in ("inside_90", "right", "failed", "right_failed")]
        numbers = [None if share is None else share / 100.0 for share in shares] + counts
        return [name.replace("_", " "), Quantity(of["rows"]), *(None if n is None else Quantity(n) for n in numbers)]

    return Table("errors", "Errors", columns, [row(*pair) for pair in errors.items()], level=FULL)


def error_sentences(prediction: TablePrediction) -> list[Sentence]:
    """Errors over the rows that were measured, one sentence for each thing that was."""
    sentences, share = [], Column("", "", kind="share")
    errors = prediction.errors()
    for name in ("step_time", "memory"):
        if name in errors:
            of = errors[name]
            numbers = {key: (share, Quantity(of[f"{key}_percent"] / 100.0)) for key in ("mean", "median")}
            numbers["bias"] = Column("", "", kind="change"), Quantity(of["bias_percent"] / 100.0)
            words = (
                f"{name.replace('_', ' ').capitalize()} of {of['rows']:,} measured rows: mean error {{mean}}, median "
            )
            words += "{median}, bias {bias}."
            words += f" The 90 % interval holds {of['inside_90']:,} of them." if "inside_90" in of else ""
            sentences.append(Sentence(words, numbers))
    if of := errors.get("out_of_memory"):
        words = (
            f"Out of memory: {of['right']:,} of {of['rows']:,} rows classified correctly (risk above 50 %), among them "
        )
        sentences.append(Sentence(f"{words}{of['right_failed']:,} of {of['failed']:,} out-of-memory failures."))
    return sentences


def measured_chart(prediction: TablePrediction, steps: Table) -> Chart | None:
    """Predicted against measured step times, beside the line where both are equal."""
    errors = prediction.errors().get("step_time")
    if errors is None:
        return None
    mean = {"mean": (Column("", "", kind="share"), Quantity(errors["mean_percent"] / 100.0))}
    title = Sentence("Predicted step times are {mean} from measured ones in the mean", mean)
    subtitle = f"{errors['rows']:,} measured rows, with 90 % intervals where they are known"
    axis, hover, log = "predicted step time", ["line", "step_time", "measured", "error"], ["measured", "step_time"]
    y = ["step_time"]
    return Chart("plane", title, "steps", "measured", y, subtitle, hover=hover, log=log, axis=axis, diagonal="equal")


def fastest_chart(steps: Table) -> Chart:
    """Predicted step times of the fastest rows."""
    order = sorted(steps.series("step_time"), key=lambda row: row[2].value)[:BARS]
    title = Sentence("The fastest layout takes {time} for a step", {"time": order[0][1:]})
    subtitle, lines = f"Step times of the {len(order)} fastest rows", [label for label, *_ in order]
    y = ["step_time"]
    return Chart("bars", title, "steps", "line", y, subtitle, "memory_risk", only=lines, axis="step time")
