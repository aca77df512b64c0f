"""Predicted levels of power of chips and nodes whose power over time was measured."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import energymodel as em
from energymodel.system.step import Step, training_step

DATA = Path(__file__).parents[1] / "data"
NODE = 8  # chips
IDLE_READING = 2.0  # percent of the readings of all traces that are of idle nodes
BUSY_READING = 90.0  # percentile of the readings of a trace that is of nodes at work

# GPT of 24 layers of 1,024, as the trace says "350M"; sequence and vocabulary are those of its family, assumed.
GPT_350M: Mapping[str, Any] = {
    "system.workload.layers": 24,
    "system.workload.hidden": 1024,
    "system.workload.heads": 16,
    "system.workload.kv_heads": 16,
    "system.workload.head_size": 64,
    "system.workload.feed_forward": 4096,
    "system.workload.dense_feed_forward": 4096,
    "system.workload.gated": 0,
    "system.workload.sequence": "1024 tokens",
}


def step_of(scenario: em.Scenario) -> Step:
    """One step at the first batch of a scenario."""
    with jax.enable_x64(True):
        step = jax.jit(lambda system, plan: training_step(system, plan, plan.batch[0]))(scenario.system, scenario.plan)
        return jax.tree.map(np.asarray, step)


def small_model(step_time: float) -> tuple[int, Step]:
    """The 350M model on 8 H100, with the sequences per chip, which nobody states, nearest to a step time [s]."""
    result = []
    for sequences in (8, 16, 24, 32, 40, 48):
        batch = {"plan.layout.microbatch": sequences, "plan.batch": f"{NODE * sequences * 1024} tokens"}
        step = step_of(em.load_scenario("test-1b-h100", {**GPT_350M, **batch}))
        result.append((abs(float(np.log(step.time.total / step_time))), sequences, step))
    return min(result, key=lambda entry: entry[0])[1:]


class Node(NamedTuple):
    """A metered node at rest and at work [W]."""

    stopped: float
    working: float


def predicted_node(scenario: em.Scenario) -> Node:
    """A node at its own meter, before its power supplies; switches are outside."""
    step, system = step_of(scenario), scenario.system
    idle_host = float(system.host_power(step.levels.stopped, step.coolant))
    loads = (float(step.levels.stopped) + idle_host, float(step.levels.working + step.power.host))
    stopped, working = (NODE * float(system.facility.power_supply.input_power(load)) for load in loads)
    return Node(stopped, working)


def metered_nodes() -> list[dict[str, Any]]:
    """Levels and steepest changes of each trace of MLPerf at the meter before the supplies."""
    traces: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with (DATA / "mlperf_power_traces.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["submitter"] == "smc-ac-power":
                reading = (float(row["t_since_run_start_s"]), float(row["mean_node_power_w"]))
                traces.setdefault((row["system"], row["benchmark"]), []).append(reading)
    rows = []
    for (system, benchmark), readings in traces.items():
        time, power = np.array(readings).T
        slopes = np.diff(power) / np.diff(time)
        rows.append(
            {
                "nodes": int(system.split("x")[0]),
                "benchmark": benchmark,
                "seconds_a_reading": float(np.median(np.diff(time))),
                "lowest_w": float(power.min()),
                "busy_w": float(np.percentile(power, BUSY_READING)),
                "steepest_rise_w_per_s": float(slopes.max()),
                "steepest_fall_w_per_s": float(slopes.min()),
            }
        )
    return rows


def fleet() -> dict[str, dict[float, float]]:
    """Power [W] below which a share of the readings of a fleet of A100 lies [%], by quantity."""
    result: dict[str, dict[float, float]] = {}
    with (DATA / "acme_fleet_cdf.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            result.setdefault(row["quantity"], {})[float(row["percent_below"])] = float(row["value"])
    return result
