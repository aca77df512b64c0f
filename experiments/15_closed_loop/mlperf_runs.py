"""Metered MLPerf runs as their logs and meters would tell them: scenario and records of each run."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from megatron_runs import START, MeteredRun

from energymodel.readers.log_records import LogEvent, LoggedStep, PowerReading
from energymodel.scenarios.scenario import Scenario, load_scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "04_metered_runs"))
import gpt3  # pyright: ignore[reportMissingImports]
import metered_runs  # pyright: ignore[reportMissingImports]

FOLDER = Path(__file__).parent
METER = "smc-ac-power"
STEPS = 400
"""Lines of the log of a replay; their tokens are spread evenly over the run, since none are published."""
LORA_SEQUENCE, BERT_SEQUENCE = 8192.0, 512.0
BERT_SAMPLES = 2.5e6  # sequences; the submitter's logs state none, and the reference needs 2 to 3 million
AFTER = 20.0
"""The traces go on for so long after the run [s]."""
DRIFT_SHARES = (0.05, 0.1, 0.25)
"""Of a run, after which its mean power is compared with that of the rest."""
CHECKPOINT = 4000.0 * 1536.0 * 2048.0
"""Tokens of the checkpoint from which the benchmark GPT-3 starts: 4,000 steps of 1,536 sequences (recalled)."""
CHANGES = {
    "system.network.switch_lane_power": "0 W",  # the meters are those of the nodes
    "system.network.hop_energy": "0 pJ/bit",
}


def runs() -> Iterator[MeteredRun]:
    """One run of each system and language benchmark, at the meter before the power supplies."""
    rows = metered_runs.rows_of("mlperf_power_runs.csv")
    begins = _begins()
    for (system, benchmark, run), trace in _traces().items():
        if benchmark == "resnet":  # no transformer
            continue
        (row,) = (row for row in rows if row["submitter"] == METER and row["run"] == run and row["system"] == system)
        time, energy = float(row["run_time_s"]), float(row["nodes_energy_j"])
        scenario = _scenario(row)
        records = _records(trace, begins[system, benchmark], time, scenario)
        yield MeteredRun(benchmark, system, scenario, records, {"energy": energy})


def power_drift(left_out: tuple[str, str] | None = None) -> float:
    """How far the mean power of the rest of a run lies from that so far [1]: root mean square, each run counted once.

    **Arguments:**

    - `left_out`: system and benchmark of a run that is not used.
    """
    result = []
    for (system, benchmark, _), trace in _traces().items():
        begin, end = _begins()[system, benchmark], trace[-1, 0] - AFTER
        if benchmark == "resnet" or (system, benchmark) == left_out:
            continue
        time, power = trace[(trace[:, 0] >= begin) & (trace[:, 0] <= end)].T
        parts = [(power[time < begin + share * (end - begin)], share) for share in DRIFT_SHARES]
        result.append(np.mean([(np.mean(power[len(part) :]) / np.mean(part) - 1.0) ** 2 for part, _ in parts]))
    return float(np.sqrt(np.mean(result)))


def _begins() -> dict[tuple[str, str], float]:
    """When the power of each run comes up, after its start [s]."""
    rows = metered_runs.traces()
    return {(row["system"], row["benchmark"]): row["start_s"] for row in rows if row["submitter"] == METER}


def _traces() -> dict[tuple[str, str, str], np.ndarray]:
    """Time since the start of the run [s] and mean power of a node [W]."""
    result: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in metered_runs.rows_of("mlperf_power_traces.csv"):
        if row["submitter"] == METER:
            point = float(row["t_since_run_start_s"]), float(row["mean_node_power_w"])
            result.setdefault((row["system"], row["benchmark"], row["run"]), []).append(point)
    return {key: np.array(sorted(points)) for key, points in result.items()}


def _scenario(row: dict[str, str]) -> Scenario:
    """The scenario of the same cluster, with model, chips and batch of the run.

    Fine-tuning by LoRA is described as full training of the model, BERT as a decoder of its shape: the monitor meets
    plans that are wrong by more than a factor.
    """
    benchmark, chips = row["benchmark"], float(row["n_accelerators"])
    if benchmark == gpt3.BENCHMARK:
        return load_scenario(gpt3.SCENARIO, {**CHANGES, **_gpt3_changes()})
    sequence = LORA_SEQUENCE if benchmark == "llama2_70b_lora" else BERT_SEQUENCE
    model = "llama-2-70b" if benchmark == "llama2_70b_lora" else str(FOLDER / "bert-large.json")
    batch = float(row["global_batch_size"]) * sequence
    samples = float(row["samples_count_at_stop"] or BERT_SAMPLES)
    tensor = min(chips, 8.0) if benchmark == "llama2_70b_lora" else 1.0
    layout = {"tensor": tensor, "pipeline": 1, "virtual_stages": 1, "microbatch": 1, "fp8": 0.9, "zero": 1}
    return load_scenario(
        gpt3.SCENARIO,
        {
            **CHANGES,
            "system.workload": {"preset": model, "sequence": f"{sequence} token"},
            "plan.chips": chips,
            "plan.batch": f"{batch} token",
            "plan.goal": {"tokens": f"{samples * sequence} token"},
            "plan.layout": layout,
        },
    )


def _gpt3_changes() -> dict[str, Any]:
    """Tokens of the reference convergence point, evaluations as other submitters have them, and the run before."""
    sequence = float(load_scenario(gpt3.SCENARIO).system.workload.sequence)
    share = gpt3.evaluation_share()
    return {
        "plan.goal": {"tokens": f"{gpt3.reference_tokens(2048.0, sequence)} token"},
        "system.tokens_seen": f"{CHECKPOINT} token",
        "system.other_stages": share / (1.0 - share),
    }


def _records(trace: np.ndarray, begin: float, time: float, scenario: Scenario) -> list[Any]:
    """Steps of equal time and tokens once the power has come up, and the readings of the meter, in order."""
    tokens = float(scenario.plan.goal.tokens)  # pyright: ignore[reportAttributeAccessIssue]
    every = (time - begin) / STEPS
    steps = [
        LoggedStep(step, START + begin + step * every, every, tokens / STEPS, step / STEPS * tokens)
        for step in range(1, STEPS + 1)
    ]
    readings = [
        PowerReading(START + moment, "mean:node", power=power) for moment, power in trace if 0.0 <= moment <= time
    ]
    return sorted([LogEvent("start", START), *readings, *steps], key=lambda event: event.time)
