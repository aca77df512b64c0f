"""Megatron's release tests as their logs would tell them: scenario and records of each run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import loss_courses
import numpy as np

from energymodel.readers.log_records import LoggedStep
from energymodel.scenarios.pieces import scenario_of_pieces
from energymodel.scenarios.scenario import Scenario

FOLDER = Path(__file__).parent
SHAPES = {
    "nemotron_15b": "nemotron-15b",
    "mixtral_8x7b": "mixtral-8x7b",
    "deepseekv3_proxy_14l": "deepseek-v3-14-layers",
}
"""Models that a scenario can describe: not the state-space hybrid."""
ACCELERATORS = {"dgx_a100": "a100-sxm4-80gb", "dgx_h100": "h100-sxm", "dgx_gb200": "gb200"}
CHIPS = {"nemotron_15b": 256, "mixtral_8x7b": 128, "deepseekv3_proxy_14l": 128}
"""Not published: those at which the first step times are plausible (docs of the data: 256 for Nemotron)."""
CHANGES = {"deepseekv3_proxy_14l": ["plan.layout.virtual_stages=2", "plan.layout.embedding_balanced=1"]}
"""Its arguments draw the pipeline by hand: embedding, 14 layers and head in 8 equal slots."""
START = 1.7e9
"""When each replay begins [s since 1970]: the runs have no dates."""


class MeteredRun(NamedTuple):
    """A run to replay.

    - `truth`: time [s], energy of the nodes [J] and final loss [nat/token] as measured, those that are.
    """

    group: str
    name: str
    scenario: Scenario
    records: Sequence[Any]
    truth: dict[str, float]


def runs() -> Iterator[MeteredRun]:
    """All runs of known shape."""
    arguments = {(row["run"], row["platform"]): row for row in loss_courses.rows_of("megatron_release_runs.csv")}
    curves = {(curve.group, curve.run): curve for curve in loss_courses.megatron()}
    for key, run in arguments.items():
        if key[0] in SHAPES:
            records = list(_records(run))
            time = records[-1].time - START
            yield MeteredRun(*key, _scenario(run), records, {"time": time, "loss": curves[key].final})


def _scenario(run: dict[str, str]) -> Scenario:
    """By the arguments of the run; its batch is that of the part that was run."""
    batch = float(run["global_batch"].split()[0]) * float(run["seq"])
    steps = max(float(row["step_to"]) for row in _bins(run))
    layout = {"tensor": run["tp"], "pipeline": run["pp"], "expert": run["ep"], "microbatch": run["micro_batch"]}
    decays = float(run["lr_decay_samples"]) * float(run["seq"]) < 1.1 * batch * steps
    changes = [f"plan.layout.{name}={value}" for name, value in layout.items()]
    changes += ["plan.layout.zero=1", "plan.layout.recomputation=selective"]
    changes += CHANGES.get(run["run"], [])
    changes += [f"system.recipe.learning_rate={'cosine' if decays else 'constant'}", "system.production_slowdown=1"]
    return scenario_of_pieces(
        str(FOLDER / f"{SHAPES[run['run']]}.json"),
        ACCELERATORS[run["platform"]],
        CHIPS[run["run"]],
        f"{batch * steps!r} token",
        batch=f"{batch!r} token",
        sequence=f"{run['seq']} token",
        changes=changes,
        name=f"{run['run']}-{run['platform']}".replace("_", "-"),
    ).scenario


def _bins(run: dict[str, str]) -> list[dict[str, str]]:
    return [
        row
        for row in loss_courses.rows_of("megatron_release_curves.csv")
        if (row["run"], row["platform"]) == (run["run"], run["platform"])
    ]


def _records(run: dict[str, str]) -> Iterator[LoggedStep]:
    """Lines of a log: of each published range of steps as many as it has losses, with their mean and its median time.

    Ranges whose time is not published take the next one's.
    """
    rows, sequence = _bins(run), float(run["seq"])
    batch = float(run["global_batch"].split()[0]) * sequence
    times = np.array([float(row["iteration_time_median_s"] or "nan") for row in rows])
    now, before = START, 0
    for index, row in enumerate(rows):
        each = float(times[index:][np.isfinite(times[index:])][0]) if np.any(np.isfinite(times[index:])) else times[-1]
        last, lines = int(row["step_to"]), max(int(row["n_loss"] or 0), 1)
        for step in np.unique(np.linspace(before, last, lines + 1).astype(int)[1:]):
            now += (int(step) - before) * each
            rate = loss_courses.learning_rate(run, float(step) * batch)
            loss = float(row["loss_mean"] or "nan")
            yield LoggedStep(int(step), time=now, step_time=each, tokens=batch, loss=loss, learning_rate=rate)
            before = int(step)
