"""Which rows of a table of training steps were measured?"""

from pathlib import Path

import numpy as np

from energymodel.calibration.layout_table import INPUTS
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.step_table import read_step_table
from energymodel.errors import InputError
from energymodel.readers.columns import TableChoices
from energymodel.units import counted

THIS_CLUSTER = "measured"
"""Word for the cluster of rows that name none: `--prior` describes it."""


def measured_steps(path: Path, choices: TableChoices) -> Measurements:
    """Rows with a step time, in the columns of `layout_table`; runs that failed are counted in the notes.

    **Raises:** `InputError` as `read_step_table`, and if no row was measured.
    """
    read = read_step_table(path, choices, default_cluster=THIS_CLUSTER)
    time = read.layouts.columns["step_time_s"]
    timed = np.isfinite(time)
    if not np.any(timed):
        raise InputError(
            f'{path}: no row has a measured step time. Give a column "step_time_s" (or tokens_per_s, or '
            "model_tflops_per_gpu), or say which it is with --rename THEIRS=step_time_s."
        )
    notes = list(read.notes)
    if not np.all(timed):
        memory = int(np.sum(read.layouts.columns["out_of_memory"][~timed] > 0.0))
        failed = f", {memory:,} of them out-of-memory failures" if memory else ""
        notes.append(f"Not fitted: {counted(int(np.sum(~timed)), 'row')} without a step time{failed}.")
    columns = {one.name: read.layouts.columns[one.name][timed] for one in INPUTS}
    clusters = read.layouts.cluster[timed]
    if np.any(clusters != THIS_CLUSTER):
        columns["cluster"] = clusters
    columns |= {name: words[timed] for name, words in read.texts.items()}
    return Measurements(str(path), {**columns, "step_time_s": time[timed]}, read.lines[timed], tuple(notes))
