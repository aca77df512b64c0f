"""The answers of `predict`: one configuration of a user, or a table of layouts."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from energymodel.calibration.step_prediction import StepPredictions
from energymodel.calibration.step_table import PREDICTED
from energymodel.readers.table import CsvTable
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.details import causes
from energymodel.report.answers.evaluate import evaluate_answer, intervals_chart, limits_chart
from energymodel.report.answers.run_tables import Run, fits_in_memory, limits_table
from energymodel.report.answers.timeline import step_parts
from energymodel.report.cells import Column, Quantity, declared, number, present, spaced, words
from energymodel.report.number import sentence
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.memory import FAILING_RISK
from energymodel.system.outcome import TrainingOutcome

OF_A_STEP = ("step_time", "mfu", "power_busy", "power_average", "power_peak", "pue", "memory_per_chip")
"""Outputs that no number of tokens changes."""
BARS, ROWS = 20, 40
NO_TOKENS = "Nothing says how many tokens the run trains: costs are for a step and a token. --tokens adds the run."
ABOVE = f"risk above {100.0 * FAILING_RISK:g} %"
FITS, RISKY = "fits in memory", f"out-of-memory {ABOVE}"


def run_prediction_answer(
    scenario: Scenario,
    outcome: TrainingOutcome,
    spread: OutcomeSpread,
    assumed: Sequence[str] = (),
    *,
    of_whole_run: bool,
    details: bool = False,
) -> Answer:
    """Whether a configuration of a user fits, what steps, tokens and the run take, and the rest of a run.

    - `of_whole_run`: whether anybody said how many tokens the run has; else only shares of it are shown.
    """
    run, capacity = Run(scenario.plan, outcome, spread), float(scenario.system.accelerator.memory_capacity)
    of_run, fits = evaluate_answer(scenario, outcome, spread, details=details and of_whole_run), fits_in_memory(outcome)
    costs, parts, _, verdict = of_run.sentences
    has_loss = not scenario.is_fine_tuned
    outputs, step = of_run.table("outcome"), next(chart for chart in of_run.charts if chart.table == "step_time_parts")
    answer = dataclasses.replace(
        of_run,
        command="predict",
        headline=Sentence(
            "A step takes {step_time}, at {mfu} model FLOP utilization",
            {name: outputs.number(name) for name in ("step_time", "mfu")},
        ),
        sentences=[verdict, costs, parts],
        tables=[prediction_table(run, capacity, of_whole_run=of_whole_run, has_loss=has_loss), *of_run.tables],
        charts=[step, *(chart for chart in of_run.charts if chart is not step)],
        notes=[*map(Sentence, assumed), *of_run.notes],
        also=(),
        screen=(),
        result="successful" if fits else "infeasible",
        message="" if fits else sentence(verdict),
    )
    return answer if of_whole_run else _of_a_step(scenario, run, answer, details=details)


def _of_a_step(scenario: Scenario, run: Run, answer: Answer, *, details: bool) -> Answer:
    """The same without what depends on the number of tokens."""
    limits = limits_table(run, but="information")  # which follows from the tokens
    outputs, priors = answer.table("outcome"), answer.table("priors")
    tables = [*(answer.table(name) for name in ("prediction", "plan", "step_time_parts")), limits]
    charts = [answer.charts[0], *limits_chart(limits), intervals_chart(outputs, OF_A_STEP)]
    notes = list(answer.notes[-1:])
    if details and run.spread is not None:
        passes, timeline, of_step = step_parts(scenario, run)
        why, shares = causes(scenario, run.spread, "step_time")
        tables, charts = [*tables, *present(passes, why)], [*charts, *present(timeline, shares)]
        notes = [of_step, *notes]
    sentences = [
        answer.sentences[0],
        Sentence("A step takes {step_time:i}.", {"step_time": outputs.number("step_time")}),
        Sentence(NO_TOKENS),
    ]
    plan = tables[1]
    cells = {column: plan.column(column.name)[1] for column in plan.columns if column.name != "goal.tokens"}
    tables[1] = Table.of("plan", plan.title, cells, tall=True)
    tables = [*tables, dataclasses.replace(outputs, level="data"), priors]
    return dataclasses.replace(answer, sentences=sentences, tables=tables, charts=charts, notes=notes, warnings=[])


def prediction_table(run: Run, capacity: float, *, of_whole_run: bool, has_loss: bool) -> Table:
    """What steps, tokens and the run take, with intervals."""
    steps, tokens, chips = float(run.outcome.steps), float(run.outcome.tokens), float(run.plan.chips)
    time = run.quantity("step_time")

    def scaled(name: str, factor: float = 1.0) -> Quantity:
        return run.quantity(name).mapped(lambda end: factor * end)

    def rate(amount: float) -> tuple[float, ...]:
        return tuple(amount / end for end in (time.value, time.high, time.low) if end)

    cells: dict[Column, Any] = {
        words("fits", "fits in memory"): fits_in_memory(run.outcome),
        Column("memory_per_chip", "memory per chip", "B"): scaled("memory_per_chip"),
        Column("out_of_memory", "out of memory", kind="share", digits="two"): float(run.outcome.out_of_memory),
        Column("capacity", "memory of a chip", "B"): capacity,
        Column("step_time", unit="s", digits="three"): time,
        Column("token_rate", "tokens per second", "token/s", digits="three"): rate(tokens / steps),
        Column("token_rate_per_chip", "tokens per second and chip", "token/s", digits="three"): rate(
            tokens / steps / chips
        ),
        Column("mfu", "model FLOP utilization", kind="share"): scaled("mfu"),
        Column("power_busy", "busy chip power", "W"): scaled("power_busy"),
    }
    units = {"energy": "J", "money": "USD", "tokens": "token", "time": "s", "carbon": "kg"}
    for name in ("energy", "money"):
        cells[Column(f"{name}_per_step", f"{name} per step", units[name])] = scaled(name, 1.0 / steps)
        cells[Column(f"{name}_per_giga_token", f"{name} per 1e9 tokens", units[name])] = scaled(name, 1e9 / tokens)
    if of_whole_run:
        for name in ("tokens", "time", "energy", "money", "carbon"):
            cells[Column(f"{name}_of_run", f"{name} of the run", units[name])] = scaled(name)
        if has_loss:
            cells[Column("loss", "final loss", "nat/token")] = scaled("loss")
    return Table.facts("prediction", "Prediction, and its 90 % interval", cells)


def table_prediction_answer(csv: CsvTable, prediction: StepPredictions, source: str) -> Answer:
    """Predicted steps of a table of layouts, beside measured ones where there are any."""
    steps = steps_table(prediction)
    rows, risky = len(steps.rows), sum(cell == RISKY for cell in steps.column("memory_risk")[1])
    text = f"{rows:,} layouts are predicted; {risky:,} of them have an {RISKY}."
    return Answer(
        "predict",
        f"Predicted steps of {source}",
        Sentence(f"{rows:,} layouts"),
        [Sentence(text), *error_sentences(prediction)],
        [steps, errors_table(prediction), input_table(csv, prediction)],
        [steps_chart(prediction, steps)],
        [Sentence(note) for note in prediction.layouts.notes],
        rows="input",
    )


def steps_table(prediction: StepPredictions) -> Table:
    """A row for each layout."""
    predicted, measured = prediction.table(), prediction.layouts.columns["step_time_s"]
    timed, sure = bool(np.any(np.isfinite(measured))), bool(np.any(np.isfinite(predicted["step_time_low_s"])))
    columns = [*declared("predicted_steps")]
    columns[1] = dataclasses.replace(columns[1], digits="interval" if sure else "two")
    columns[2:4] = columns[2:4] if timed else []
    rows = []
    for index, line in enumerate(prediction.layouts.lines):
        of_row = {name: float(values[index]) for name, values in predicted.items()}
        ends = (of_row["step_time_low_s"], of_row["step_time_high_s"])
        time = Quantity(of_row["step_time_s"], *(ends if all(map(math.isfinite, ends)) else (None, None)))
        own = float(measured[index])
        error = [own, time.mapped(lambda end, own=own: end / own - 1.0)] if math.isfinite(own) else [None, None]
        others = [of_row[name] for name in ("mfu", "tokens_per_s", "memory_b", "out_of_memory_probability")]
        kind = RISKY if others[-1] > FAILING_RISK else FITS
        rows.append([f"line {line}", time, *(error if timed else ()), *others, kind])
    return Table("steps", "Predicted steps", columns, rows, short=range(min(ROWS, len(rows))))


def input_table(csv: CsvTable, prediction: StepPredictions) -> Table:
    """The columns of the input as they were, and after them the predictions, whose names begin with `predicted_`."""
    new = {PREDICTED + name: values for name, values in prediction.table().items()}
    written = dict(zip(csv.lines, csv.rows, strict=True))
    rows = [written[line] for line in prediction.layouts.lines.tolist()]
    own = [(words(name, ""), index) for index, name in enumerate(csv.header) if name not in new]
    cells: dict[Column, Any] = {column: [row[index] for row in rows] for column, index in own}
    cells |= {Column(name, "", ""): values for name, values in new.items()}
    return Table.of("input", "The table with its predictions", cells, level="data")


def errors_table(prediction: StepPredictions) -> Table:
    """Errors over the rows that were measured, by what was measured."""
    shares = {"mean": "mean error", "median": "median error", "bias": "bias"}
    counts = {"inside_90": "in the 90 % interval", "right": "classified correctly", "failed": "failures"}
    counts["right_failed"] = "failures found"
    columns = [words("quantity", ""), Column("rows", kind="count")]
    columns += [Column(name, title, kind="change" if name == "bias" else "share") for name, title in shares.items()]
    columns += [Column(name.removesuffix("_90"), title, kind="count") for name, title in counts.items()]
    rows: list[list[Any]] = []
    for name, of in prediction.errors().items():
        parts = [of[f"{key}_percent"] / 100.0 if f"{key}_percent" in of else None for key in shares]
        rows.append([spaced(name), of["rows"], *parts, *map(of.get, counts)])
    return Table("errors", "Errors", columns, rows, level="full")


def error_sentences(prediction: StepPredictions) -> list[Sentence]:
    """Errors over the rows that were measured, one sentence for each thing that was."""
    sentences, errors = [], prediction.errors()
    for name in ("step_time", "memory"):
        if name in errors:
            of = errors[name]
            numbers = {key: number(of[f"{key}_percent"] / 100.0, kind="share") for key in ("mean", "median")}
            numbers["bias"] = number(of["bias_percent"] / 100.0, kind="change")
            text = f"{spaced(name).capitalize()} of {of['rows']:,} measured rows: mean error {{mean}}, median "
            text += "{median}, bias {bias}."
            text += f" The 90 % interval holds {of['inside_90']:,} of them." if "inside_90" in of else ""
            sentences.append(Sentence(text, numbers))
    if of := errors.get("out_of_memory"):
        text = f"Out of memory: {of['right']:,} of {of['rows']:,} rows classified correctly ({ABOVE}), among "
        sentences.append(Sentence(f"{text}them {of['right_failed']:,} of {of['failed']:,} out-of-memory failures."))
    return sentences


def steps_chart(prediction: StepPredictions, steps: Table) -> Chart:
    """Predicted against measured step times, beside the line where both are equal; else those of the fastest rows."""
    y = ["step_time"]
    if errors := prediction.errors().get("step_time"):
        mean = {"mean": number(errors["mean_percent"] / 100.0, kind="share")}
        title = Sentence("Predicted step times are {mean} from measured ones in the mean", mean)
        subtitle = f"{errors['rows']:,} measured rows, with 90 % intervals where they are known"
        look: dict[str, Any] = {"log": ["measured", "step_time"], "axis": "predicted step time", "diagonal": "equal"}
        hover = ["line", "step_time", "measured", "error"]
        return Chart("plane", title, "steps", "measured", y, subtitle, hover=hover, **look)
    order = sorted(steps.series("step_time"), key=lambda row: row[2].value)[:BARS]
    title = Sentence("The fastest layout takes {time} for a step", {"time": order[0][1:]})
    subtitle, lines = f"Step times of the {len(order)} fastest rows", [label for label, *_ in order]
    return Chart("bars", title, "steps", "line", y, subtitle, "memory_risk", only=lines, axis="step time")
