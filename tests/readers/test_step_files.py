"""Numbers that readers get from real training logs, against those counted by hand.

The files are not part of the project: `ENERGYMODEL_USER_FILES` names a folder that holds them, logs in `logs`.
"""

import json
import math
import os
from pathlib import Path
from statistics import median

import pytest

from energymodel.errors import InputError
from energymodel.readers.log_records import LogEvent, LoggedStep
from energymodel.readers.step_log import read_steps

FOLDER = os.environ.get("ENERGYMODEL_USER_FILES", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FOLDER, reason="ENERGYMODEL_USER_FILES names no folder of logs")]
LOGS = Path(FOLDER) / "logs"


def read(name: str) -> tuple[str, list[LoggedStep], list[LogEvent]]:
    log = read_steps(LOGS / name)
    records = list(log)
    return (
        log.kind,
        [record for record in records if isinstance(record, LoggedStep)],
        [record for record in records if isinstance(record, LogEvent)],
    )


def behind(name: str, word: str) -> list[float]:
    """The numbers that stand behind a word in each line, cut out without any of the readers."""
    lines = [line for line in (LOGS / name).read_text().splitlines() if word in line]
    return [float(line.split(word, 1)[1].split()[0].rstrip(",%|").replace(",", "")) for line in lines]


@pytest.mark.parametrize("name", ["megatron_energy.log", "megatron_mixtral_16xh100.log"])
def test_megatron(name: str) -> None:
    kind, steps, events = read(name)
    assert (kind, events) == ("megatron", [])
    assert [step.step_time * 1e3 for step in steps] == pytest.approx(behind(name, "per iteration (ms):"))
    assert [step.flops_rate / 1e12 for step in steps] == pytest.approx(behind(name, "(TFLOP/s/GPU):"))
    assert [step.sequences for step in steps] == behind(name, "global batch size:")
    assert [step.loss for step in steps] == behind(name, "lm loss:")
    clock = [step.time for step in steps]
    passed = (clock[-1] - clock[0]) / (len(clock) - 1)
    assert passed == pytest.approx(median(step.step_time for step in steps), abs=0.1)
    if "energy" in name:
        assert [step.energy for step in steps] == behind(name, "(J/iter/GPU):")
        assert [step.power * step.step_time for step in steps] == pytest.approx([s.energy for s in steps], rel=1e-3)


def test_torchtitan() -> None:
    kind, steps, _ = read("torchtitan_b200_ranks.log")
    assert kind == "torchtitan"
    name = "torchtitan_b200_ranks.log"
    rates = dict(zip(behind(name, "step:"), behind(name, "tps:"), strict=True))
    assert [step.step for step in steps] == sorted(rates)
    assert median(step.token_rate for step in steps) == pytest.approx(median(rates.values()), rel=1e-3)
    assert steps[1].step_time == pytest.approx(19.145 - 17.508)


def test_maxtext() -> None:
    kind, steps, _ = read("maxtext.log")
    assert kind == "maxtext"
    assert median(step.step_time for step in steps) == median(behind("maxtext.log", "seconds:"))
    assert [step.token_rate for step in steps] == behind("maxtext.log", "Tokens/s/device:")


def test_mlperf() -> None:
    kind, steps, events = read("mlperf_lora_mi355x.txt")
    assert kind == "mlperf"
    text = (LOGS / "mlperf_lora_mi355x.txt").read_text().splitlines()
    entries = [json.loads(line.split(":::MLLOG", 1)[1]) for line in text if ":::MLLOG" in line]
    batch = next(entry["value"] for entry in entries if entry["key"] == "global_batch_size")
    starts = [entry for entry in entries if entry["key"] == "block_start"]
    stops = [entry for entry in entries if entry["key"] == "block_stop"]
    means = [
        (stop["time_ms"] - start["time_ms"]) * 1e-3 / (stop["metadata"]["curr_global_step"] - start_samples / batch)
        for start, stop in zip(starts, stops, strict=True)
        for start_samples in [start["metadata"]["samples_count"]]
    ]
    assert [step.step_time for step in steps] == pytest.approx(means)
    assert [step.step for step in steps] == [stop["metadata"]["curr_global_step"] for stop in stops]
    evaluations = [event for event in events if event.kind == "evaluation"]
    assert [event.value for event in evaluations] == [e["value"] for e in entries if e["key"] == "eval_accuracy"]
    stop = next(event for event in events if event.kind == "stop")
    assert stop.duration == pytest.approx(666.789, abs=0.01)


def test_tensorboard() -> None:
    kind, steps, _ = read("tensorboard_scalar.csv")
    assert (kind, [(step.step, step.time) for step in steps]) == ("tensorboard", [(1, 1698314503.5367975)])
    assert math.isnan(steps[0].loss)  # no name of a scalar in the name of the file


def test_power_readings_are_no_training_log() -> None:
    for name in ("nvidia_smi_8xh100.csv", "codecarbon_emissions_v2.csv", "dcgm_exporter_l40s.prom"):
        with pytest.raises(InputError, match="no line is one of a training log"):
            read_steps(LOGS / name)
