"""Time and energy of a run forecast from its own course, by the share that has run.

`em.replan` along a metered run, against the plan made once, and against the mean power so far for the whole run.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import energymodel as em
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.replan import rest_of
from energymodel.system.evaluate import evaluate_once

sys.path.insert(0, str(Path(__file__).parents[1] / "04_metered_runs"))
import gpt3  # pyright: ignore[reportMissingImports]
import metered_runs  # pyright: ignore[reportMissingImports]

MOMENTS = (0.05, 0.10, 0.25, 0.50, 0.75)
"""Shares of the run at which it is planned anew."""


def planned() -> Scenario:
    """The run as planned: tokens of the reference convergence point, evaluations as others have them, no switches."""
    scenario = load_scenario(gpt3.SCENARIO)
    sequence = float(scenario.system.workload.sequence)
    tokens = gpt3.reference_tokens(float(np.ravel(scenario.plan.batch)[0]) / sequence, sequence)
    share = gpt3.evaluation_share()
    changes = {
        "plan.goal": {"tokens": f"{tokens} token"},
        "system.other_stages": share / (1.0 - share),
        "system.network.switch_lane_power": "0 W",  # the meters are those of the nodes
        "system.network.hop_energy": "0 pJ/bit",
    }
    return load_scenario(gpt3.SCENARIO, changes)


def trace() -> tuple[np.ndarray, np.ndarray]:
    """Time since the start of the run [s] and mean power of a node [W]."""
    rows = [
        (float(row["t_since_run_start_s"]), float(row["mean_node_power_w"]))
        for row in metered_runs.rows_of("mlperf_power_traces.csv")
        if row["system"] == gpt3.SYSTEM
        and row["benchmark"] == gpt3.BENCHMARK
        and row["submitter"] == metered_runs.METERS["AC"]
    ]
    time, power = np.array(sorted(rows)).T
    return time, power


def compute() -> list[dict[str, Any]]:
    """Time and energy of the whole run as forecast at each moment, beside the meter and the mean power so far.

    The baseline of constant power, `E(t) T / t`, needs no model: only the share of the tokens that are done.
    """
    scenario = planned()
    measured = gpt3.measured_run(metered_runs.runs())
    time, power = trace()
    length, nodes = float(measured["time_s"]), float(measured["nodes"])
    tokens = float(scenario.plan.goal.tokens)  # pyright: ignore[reportAttributeAccessIssue]
    # The trace is of one of the three runs that the meter's mean is of: it tells the shape, the mean its level.
    during = (time >= 0.0) & (time <= length)
    level = measured["energy_j"] / (np.trapezoid(power[during], time[during]) * length / np.ptp(time[during]) * nodes)
    with jax.enable_x64(True):
        first = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
    rows = [row(0.0, float(first.time), float(first.energy.total / first.pue), measured)]
    for share in MOMENTS:
        until = (time >= 0.0) & (time <= share * length)
        mean = level * np.trapezoid(power[until], time[until]) / np.ptp(time[until]) * nodes
        state = em.MeasuredRun(tokens=share * tokens, time=share * length, equipment_power=float(mean), failures=0)
        rest = rest_of(scenario, state)
        with jax.enable_x64(True):
            left = jax.tree.map(np.asarray, evaluate_once(rest.scenario.system, rest.scenario.plan))
        result = rest.forecast(left)
        forecast_row = row(share, result["time"].value, result["energy"].value / float(left.pue), measured)
        # Intervals of the site's energy: its cooling is as uncertain as before, for no meter has seen it.
        for name, total in (("time", length), ("energy", measured["energy_j"] * float(left.pue))):
            forecast_row[f"{name}_low"] = result[name].lower / total - 1.0
            forecast_row[f"{name}_high"] = result[name].upper / total - 1.0
        forecast_row["constant_power_error"] = float(mean) * length / measured["energy_j"] - 1.0
        forecast_row["most_moved"] = rest.updates[0].path if rest.updates else ""
        rows.append(forecast_row)
    return rows


def row(share: float, time: float, energy: float, measured: dict[str, Any]) -> dict[str, Any]:
    """A forecast at a share of the run, and its errors."""
    return {
        "share_of_run": share,
        "time_s": time,
        "energy_j": energy,
        "time_error": time / measured["time_s"] - 1.0,
        "energy_error": energy / measured["energy_j"] - 1.0,
    }
