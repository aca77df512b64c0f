"""Time, node power and energy of a metered GPT-3 175B run on 512 H100, by what is known beforehand."""

import statistics
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from metered_runs import METERS, rows_of

from energymodel.calibration.node_power import node_power
from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.step import training_step
from energymodel.system.training_system import TrainingSystem

sys.path.insert(0, str(Path(__file__).parents[1]))
from fastest_layout import fastest_layout

SCENARIO, BENCHMARK, SYSTEM = "gpt3-175b-h100", "gpt3", "64xSMC-H100-SXM-80GB"


def reference_tokens(batch_sequences: float, sequence: float) -> float:
    """Tokens to converge that the benchmark's owners measured at this batch, not this submission [token]."""
    rows = [
        float(row["converge_mean_sequences"])
        for row in rows_of("mlperf_rcp.csv")
        if row["benchmark"] == BENCHMARK
        and float(row["global_batch_size"]) == batch_sequences
        and row["repeat_of_earlier_round"] == "0"
        and not row["suspect"]
    ]
    return statistics.fmean(rows) * sequence


def evaluation_share() -> float:
    """Share of a run that other submitters spend in evaluations [1]."""
    return statistics.median(
        float(row["eval_time_mean_s"]) / float(row["time_to_train_mean_s"])
        for row in rows_of("mlperf_training_summary.csv")
        if row["benchmark"] == BENCHMARK
        and "smc" not in row["submitter"].lower()
        and row["eval_time_mean_s"]
        and float(row["eval_time_mean_s"]) > 0.0
    )


@eqx.filter_jit(compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
def _step(system: TrainingSystem, plan: Any) -> Any:
    return training_step(system, plan, plan.batch[0])


def nodes_power(step: Any, system: TrainingSystem, efficiency: float) -> float:
    """Mean power of a node at its meter [W] with nothing but presets: chips, host and fans, without network."""
    power = step.power
    return float(system.node.chips * (power.total - power.network) / efficiency)


def compute(measured: dict[str, Any], constants: dict[str, float]) -> list[dict[str, Any]]:
    """Predictions beside the meter: layout as disclosed, layout searched, and time as measured.

    **Arguments:**

    - `measured`: the row of this run.
    - `constants`: `idle_node_w`, `supply_efficiency`, measured on other benchmarks.
    """
    with jax.enable_x64(True):
        scenario = load_scenario(SCENARIO)
        system, plan = scenario.system, scenario.plan
        chip, nodes = system.accelerator, float(plan.chips / system.node.chips)
        batch = float(np.ravel(plan.batch)[0])
        sequence = float(system.workload.sequence)
        tokens, share = reference_tokens(batch / sequence, sequence), evaluation_share()
        rated = float(chip.rated_power)
        rows = []
        searched = fastest_layout(system, plan)
        measured_step = measured["time_s"] * (1.0 - share) * batch / tokens
        for knowledge, chosen, step in (
            ("system, model, batch", searched, None),
            ("and layout", plan, None),
            ("and measured time", plan, measured_step),
        ):
            result = _step(system, chosen)
            terms, parts = result.time, result.power
            busy, predicted = float(terms.compute + terms.memory + terms.optimizer), float(terms.total)
            step = step or predicted
            time = step * tokens / batch / (1.0 - share)
            chips_power = float(parts.dynamic + parts.static + parts.memory + parts.idle_wait)
            # What a measured step takes more or less than the predicted one, its chips wait.
            mean = (chips_power * predicted + float(result.waiting_power) * (step - predicted)) / step / rated
            power = float(
                node_power(
                    constants["idle_node_w"],
                    float(system.node.chips),
                    rated,
                    mean,
                    float(chip.idle_power) / rated,
                    constants["supply_efficiency"],
                )
            )
            layout = chosen.layout
            degrees = [round(float(degree)) for degree in (layout.tensor, layout.pipeline, layout.microbatch)]
            preset = nodes_power(result, system, constants["supply_efficiency"])
            row: dict[str, Any] = {
                "known": knowledge,
                "layout": "tensor {}, pipeline {}, micro-batch {}".format(*degrees),
                "busy_share": busy / step,
                "time_s": time,
                "node_power_w": power,
                "energy_j": power * time * nodes,
                "preset_energy_error": preset * time * nodes / measured["energy_j"] - 1.0
                if step == predicted
                else None,
            }
            for key in ("time_s", "node_power_w", "energy_j"):
                row[key.rsplit("_", 1)[0] + "_error"] = row[key] / measured[key] - 1.0
            rows.append(row)
        rows.append(
            {"known": "metered", "layout": "", "busy_share": None}
            | {key: measured[key] for key in ("time_s", "node_power_w", "energy_j")}
        )
        return rows


def measured_run(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The metered run, at the meter before the power supplies."""
    return next(
        row
        for row in runs
        if row["benchmark"] == BENCHMARK and row["system"] == SYSTEM and row["submitter"] == METERS["AC"]
    )
