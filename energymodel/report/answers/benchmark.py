"""The answer of `benchmark`: the fastest kernels beside what the preset says of them, and the calibration by them."""

import dataclasses

import jax
import numpy as np

from energymodel.calibration.benchmark import Benchmark
from energymodel.calibration.kinds.kernels import kernel_work
from energymodel.calibration.step_prediction import with_constants
from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.report.answers.measure import rows_table
from energymodel.report.cells import Column, Quantity, number, words

UNITS = {"elementwise": "B/s", "all-reduce": "B/s", "launch": "s"}  # of the others FLOP/s


def benchmark_answer(result: Benchmark) -> Answer:
    """Measured kernels and the numbers of the accelerator that follow."""
    answer, rates, fit = calibrate_answer(result.calibration), rates_table(result), result.calibration.fit
    told = [f"Not measured: {'; '.join(result.missing)}."] if result.missing else []
    told.append(f"Numbers that are not measured are those of {result.like}, such as launch_overhead, a framework's.")
    sentences = [*map(Sentence, told), *answer.sentences]
    if "accelerator.busy_power" in fit.values:
        with jax.enable_x64(True):
            chip = with_constants(fit.problem.table.system, fit.values).accelerator
            flop, byte = np.asarray(chip.energy_per_flop), np.asarray(chip.traffic_energy)
        energies = {"flop": number(flop, "J/FLOP"), "byte": number(byte, "J/B")}
        sentences.insert(0, Sentence("An operation in bf16 takes {flop}, a byte of the memory {byte}.", energies))
    return dataclasses.replace(
        answer,
        command="benchmark",
        title=f"Benchmark of {result.device}",
        headline=Sentence("products in bf16 reach {rate}", {"rate": rates.number("rate")}),
        sentences=sentences,
        tables=[rates, *answer.tables, rows_table(result.rows)],
        screen=("rates", "constants"),
        rows="rows",
    )


def rates_table(result: Benchmark) -> Table:
    """The fastest kernel of each kind: its rate with 90 % of the repetitions, and that of the preset's numbers."""
    fit, case = result.calibration.fit, result.calibration.case
    table, labels = fit.problem.table, case.groups.labels
    operations, moved = kernel_work(table.rows)
    errors = fit.at(table, fit.prior.mean[None]).errors[0, :, 0]
    best: dict[str, tuple[float, list[str | Quantity]]] = {}
    for index, row in enumerate(row for row in result.rows if row["kernel"] != "idle"):
        kind, unit = f"{row.get('precision', '')} {row['kernel']}".strip(), UNITS.get(row["kernel"], "FLOP/s")
        amount = float({"FLOP/s": operations[index], "B/s": moved[index], "s": 1.0}[unit])
        times = [row["time_s"], row["time_high_s"], row["time_low_s"], row["time_s"] * np.exp(errors[index])]
        rate, low, high, preset = (amount / time for time in times)
        if unit == "s":
            rate, high, low, preset = times
        if kind not in best or amount / times[0] > best[kind][0]:
            shape = str(labels[index]).removeprefix(kind).strip()
            best[kind] = (
                amount / times[0],
                [kind, shape, Quantity(rate, low, high, unit=unit), Quantity(preset, unit=unit)],
            )
    columns = [words("kernel"), words("shape"), Column("rate", "rate or time"), Column("preset", f"by {result.like}")]
    columns = columns[:3] if case.words else columns  # of an unknown device, the numbers of a preset mean nothing
    return Table("rates", "Fastest kernels", columns, [row[: len(columns)] for _, row in best.values()])
