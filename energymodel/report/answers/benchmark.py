"""The answer of `benchmark`: the fastest kernels beside what the preset says of them, and the calibration by them."""

import dataclasses
from typing import Any

import jax
import numpy as np

from energymodel.calibration.benchmark import Benchmark
from energymodel.calibration.kinds.kernels import FORMATS, TRAINING, kernel_work
from energymodel.calibration.step_prediction import with_constants
from energymodel.report.answer import Answer, Sentence, Table
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.report.answers.measure import rows_table
from energymodel.report.cells import Column, Quantity, number, words

PEAKS = {"elementwise": "memory_bandwidth", **dict.fromkeys(("attention", "attention-training"), "peak_flops")}
PEAKS |= {f"{name} product": path for name, (path, _) in FORMATS.items()}
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
        tables=[rates, numbers_table(result), *answer.tables, rows_table(result.rows)],
        screen=("rates", "numbers"),
        rows="rows",
    )


def rates_table(result: Benchmark) -> Table:
    """The fastest kernel of each kind: its rate with 90 % of the repetitions; of a preset's device also its share of
    the peak rate, and what the numbers of the preset say.
    """
    case, rows = result.calibration.case, [row for row in result.rows if row["kernel"] != "idle"]
    operations, moved = kernel_work(case.fit.table.rows)
    best: dict[str, tuple[float, list[Any]]] = {}
    for index, row in enumerate(rows):
        kind, unit = f"{row.get('precision', '')} {row['kernel']}".strip(), UNITS.get(row["kernel"], "FLOP/s")
        passes = TRAINING if row["kernel"] == "attention-training" else 1.0
        amount = float({"FLOP/s": passes * operations[index], "B/s": moved[index], "s": 1.0}[unit])
        ends = row["time_s"], row["time_low_s"], row["time_high_s"], float(result.by_preset[index])
        speed, high, low, preset = (amount / time for time in ends)
        if kind in best and speed <= best[kind][0]:
            continue
        peak = float(getattr(case.fit.table.system.accelerator, PEAKS.get(kind, ""), 0.0))
        share_of_peak = (speed / peak, low / peak, high / peak) if peak else None
        value, low, high, preset = ends if unit == "s" else (speed, low, high, preset)
        shape, measured = (
            str(case.groups.labels[index]).removeprefix(kind).strip(),
            Quantity(value, low, high, unit=unit),
        )
        best[kind] = speed, [kind, shape, measured, share_of_peak, Quantity(preset, unit=unit)]
    columns = [words("kernel"), words("shape"), Column("rate", "rate or time")]
    if not case.words:
        columns += [Column("share", "of the peak", kind="share"), Column("preset", f"by {result.like}")]
    return Table("rates", "Fastest kernels", columns, [row[: len(columns)] for _, row in best.values()])


def numbers_table(result: Benchmark) -> Table:
    """Numbers of the accelerator with their intervals, beside those of the preset."""
    constants = result.calibration.constants
    why = {of.name: "" if of.determined else "these kernels do not determine it" for of in constants}
    cells = {
        words("number"): [of.name.removeprefix("accelerator.").replace("_", " ") for of in constants],
        Column("value"): [Quantity(of.value, *(of.laplace or (None, None)), why[of.name], of.unit) for of in constants],
        Column("preset", f"by {result.like}"): [Quantity(of.prior, unit=of.unit) for of in constants],
    }
    return Table.of("numbers", "Numbers of the accelerator", cells)
