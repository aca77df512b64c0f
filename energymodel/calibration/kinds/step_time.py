"""How does a file of measured layouts become a fit: `calibrate` kind `step-time`?

The columns are those of `energymodel predict` with the measured time of a step; the constants are those of a cluster.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration import fit, table
from energymodel.calibration.constants import Constant, Constants, Values
from energymodel.calibration.least_squares import Options
from energymodel.calibration.measurements import Column, Measurements, check_repeats
from energymodel.calibration.predict import predict_row
from energymodel.calibration.problem import BASE, MOST_CANDIDATES, Change, Problem
from energymodel.errors import InputError
from energymodel.presets.scenario import Scenario, load_scenario
from energymodel.system.training_system import TrainingSystem

ELSEWHERE = {
    "layers": ("num_layers",), "hidden": ("hidden_size",), "heads": ("num_heads",), "kv_heads": ("num_kv_heads",),
    "feed_forward": ("ffn_hidden_size",), "vocabulary": ("vocab_size",), "sequence": ("seq_len_tokens",),
    "tied": ("tie_word_embeddings",), "tensor": ("tp",), "pipeline": ("pp",), "context": ("cp",), "expert": ("ep",),
    "microbatch": ("microbatch_sequences", "micro_batch"), "chips": ("n_gpu", "n_accelerators", "gpus"),
    "batch_sequences": ("global_batch_sequences", "global_batch_size"), "zero": ("zero_stage",),
    "recomputation": ("recompute",),
}  # fmt: skip
"""Names under which public files have the columns of `predict`."""
MEASURED = Column("step_time_s", "s", "measured time of a step", others=("iteration_time_s",))
STEP_TIME_COLUMNS = (
    *(
        Column(one.name, "text", f"{one.meaning} [{one.unit}]", needed=False, others=ELSEWHERE.get(one.name, ()))
        for one in table.INPUTS
    ),
    Column("model", "text", "preset of a model, which gives its shape", needed=False),
    Column("zero", "text", "ZeRO stage, 0 to 3", needed=False, others=ELSEWHERE["zero"]),
    Column("recomputation", "text", "none, selective or full", needed=False, others=ELSEWHERE["recomputation"]),
    Column("cluster", "text", "name of the cluster; one in a file", needed=False),
    Column("group", "text", "what is held out and resampled together", needed=False),
    Column("run", "text", "number of a repeated measurement", needed=False, others=("job_id",)),
    MEASURED,
)
SETTING = tuple(one.name for one in STEP_TIME_COLUMNS if one is not MEASURED)

CONSTANTS: Constants = {
    "accelerator.gemm_efficiency": Constant(0.75, 0.1, 0.1, 1.0),
    "accelerator.launch_overhead": Constant(1e-3, 1.0, unit="s", widest=10.0),
    "node.scale_up.efficiency": Constant(0.7, 0.15, 0.1, 1.0),
    "node.scale_up.latency": Constant(1e-5, 1.5, unit="s", widest=10.0),
    "network.link.efficiency": Constant(0.6, 0.2, 0.02, 1.0),
    "network.link.latency": Constant(3e-5, 1.5, unit="s", widest=10.0),
    "software.microbatch_time": Constant(1e-3, 1.0, unit="s", widest=10.0),
}
"""Priors of the constants, by path in a system; medians are those of the prior scenario, where they are positive."""
MOST_FITTED = 256
"""Rows that are fitted; of a longer file evenly chosen ones, because a row takes many formulas."""
LEAST_SHARE = 0.02  # of the range of a bounded constant, that a median stays from its ends


class Steps(NamedTuple):
    """Measured steps: the system with all other constants, the columns of `predict` by name, and the time [s]."""

    system: TrainingSystem
    rows: Mapping[str, Float[Array | np.ndarray, " rows"]]
    time: Float[Array | np.ndarray, " rows"]


def errors(values: Values, steps: Any) -> Float[Array, "rows 1"]:
    """Logarithmic errors of the time of a step, for `least_squares.fit`."""
    paths = [fit.Constant(path, 0.0, 0.0, 0.0, 0.0) for path in values]
    system = fit.with_constants(steps.system, paths, list(values.values()))
    found = jax.vmap(lambda row: predict_row(system, row).step_time.total)(steps.rows)
    return jnp.log(found / steps.time)[:, None]


def step_time_problem(measured: Measurements, prior: Scenario | None) -> Problem:
    """Seven constants of a cluster: rates, latencies and times of the host, see `CONSTANTS`."""
    columns = measured.columns
    clusters = sorted({*measured.text("cluster", "").tolist()})
    if len(clusters) > 1:
        raise InputError(
            f'{measured.path}: column "cluster" holds {", ".join(clusters)}; constants belong to one cluster. Choose '
            f"it with --where cluster={clusters[0] or clusters[1]}."
        )
    check_repeats(measured, SETTING)
    everything = len(measured)
    if everything > MOST_FITTED:
        chosen = np.unique(np.linspace(0, everything - 1, MOST_FITTED).round().astype(int))
        columns = {name: values[chosen] for name, values in columns.items()}
        measured = Measurements(measured.path, columns, measured.lines[chosen])
    rows = _rows(measured)
    system = (prior or load_scenario(BASE)).system
    steps = Steps(system, rows, columns[MEASURED.name])
    groups, word = _groups(measured, rows)
    candidates, words = _candidates(steps)
    notes = [] if prior is not None else [f"The cluster is that of {BASE}: name yours with --prior."]
    if everything > len(measured):
        notes.append(f"{len(measured)} of {everything} rows, evenly chosen, are fitted.")
    return Problem(
        errors=errors, constants=_constants(system), table=steps, weights=np.ones(len(measured)), groups=groups,
        group_word=word, outputs={"step time": (1.0,)}, along=("accelerators", rows["chips"]), candidates=candidates,
        candidate_words=words, given={},
        changes={f"system.{path}": Change(path, 1.0, one.unit) for path, one in CONSTANTS.items()},
        notes=notes, noise=0.1,
        options=Options(starts=4, tolerance=1e-6, steps=60),
    )  # fmt: skip


def _rows(measured: Measurements) -> dict[str, np.ndarray]:
    """Columns of `predict`, with what is left out filled in; its messages name the line in the file."""
    given = [name for name in SETTING if name in measured.columns and name not in ("cluster", "group", "run")]
    found: dict[str, list[np.ndarray]] = {one.name: [] for one in table.INPUTS}
    for row, line in enumerate(measured.lines):
        words = {name: str(measured.columns[name][row]) for name in given} | {"cluster": "measured"}
        try:
            columns = table.layouts([words], measured.path).columns
        except InputError as error:
            raise InputError(str(error).replace("line 2", f"line {line}", 1)) from None
        for name, values in found.items():
            values.append(columns[name][0])
    return {name: np.asarray(values) for name, values in found.items()}


def _constants(system: TrainingSystem) -> Constants:
    constants = {}
    for path, one in CONSTANTS.items():
        value = float(reduce(getattr, path.split("."), system))
        if one.bounded:
            edge = LEAST_SHARE * (one.upper - one.lower)
            value = min(max(value, one.lower + edge), one.upper - edge)
        constants[path] = one._replace(median=value if value > 0.0 else one.median)
    return constants


def _groups(measured: Measurements, rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, str]:
    """What is held out together: the group of the file, else models, else layouts of one model."""
    if "group" in measured.columns:
        return measured.columns["group"], "group"
    models = np.array([f"{a:g} layers of {b:g}" for a, b in zip(rows["layers"], rows["hidden"], strict=True)])
    if len({*models.tolist()}) > 1:
        return models, "model"
    parts = zip(rows["chips"], rows["tensor"], rows["pipeline"], strict=True)
    return np.array([f"{chips:g} chips, tensor {t:g}, pipeline {p:g}" for chips, t, p in parts]), "layout"


def _candidates(steps: Steps) -> tuple[Steps, list[str]]:
    """Other divisions of the measured models over as many chips and over twice and four times as many."""
    rows = {name: np.asarray(values) for name, values in steps.rows.items()}
    shapes = np.stack([rows["layers"], rows["hidden"], rows["chips"], rows["batch_sequences"]], axis=1)
    _, first = np.unique(shapes, axis=0, return_index=True)
    chosen: list[tuple[int, float, float, float]] = []
    for row in first:
        for more, tensor, pipeline in product((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8)):
            chips = more * rows["chips"][row]
            ranks = tensor * pipeline * rows["context"][row]
            data = chips / ranks
            sequences = rows["batch_sequences"][row] / (data * rows["microbatch"][row])
            whole = all(one >= 1.0 and float(one).is_integer() for one in (data, sequences))
            if whole and rows["heads"][row] % tensor == 0 and rows["layers"][row] % pipeline == 0:
                chosen.append((int(row), float(chips), float(tensor), float(pipeline)))
    chosen = chosen[:: max(1, -(-len(chosen) // MOST_CANDIDATES))] or [
        (int(row), float(rows["chips"][row]), float(rows["tensor"][row]), float(rows["pipeline"][row])) for row in first
    ]
    at = np.array([row for row, *_ in chosen])
    table_ = {name: values[at] for name, values in rows.items()}
    for place, name in enumerate(("chips", "tensor", "pipeline")):
        table_[name] = np.array([one[place + 1] for one in chosen])
    for name in ("virtual_stages", "expert"):
        table_[name] = np.ones(len(at))
    words = [
        f"{rows['layers'][row]:g} layers of {rows['hidden'][row]:g} on {chips:g} chips, tensor {tensor:g}, "
        f"pipeline {pipeline:g}"
        for row, chips, tensor, pipeline in chosen
    ]
    return Steps(steps.system, table_, np.ones(len(at))), words
