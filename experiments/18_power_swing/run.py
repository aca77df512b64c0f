"""Swings of the power of a job, predicted and measured, and the cost of smoothing.

Prints its tables and writes `result.json` beside this file. The traces of 8 H100 may not be copied here and are read
from a folder: `python experiments/18_power_swing/run.py FOLDER`. Without it their tables stay as they are.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import levels
import numpy as np
import traces

import energymodel as em
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outcome import TrainingOutcome

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, GRAY, GREEN, ORANGE, add_axes, new_figure

FOLDER = Path(__file__).parent
LARGE = "llama-3.1-405b-h100"
POWER, ENERGY = "system.facility.storage.power", "system.facility.storage.energy"
FLOORS = (0.5, 0.7, 0.85, 1.0)
STORAGES = (65.0, 250.0, 500.0)  # J per chip; GB300 NVL72 has 65
CONVERTER = 400.0  # W per chip
FLEET_LEVELS = {"stopped": 20.0, "writing": 50.0, "working": 90.0}  # percent of readings below


def of_traces(folder: Path) -> outputs.Tables:
    """The wave of the fitted traces, what it says of the others, and what the model says without any of them."""
    result = traces.read(folder)
    wave = traces.fit(result)
    window = traces.meter_window(traces.read_tenths(folder), wave)
    fitted = {"working_w": wave.working, "writing_w": wave.writing, "step_s": wave.step, "meter_window_s": window}
    rows = []
    for steps, seconds in result.items():
        writing, energy = traces.writing_level(seconds), float(np.median(traces.energies(seconds)))
        highest = float(np.median([max(second.high for second in run) for run in traces.intervals(seconds)]))
        expected = wave.highest(steps, window)
        rows.append(
            {
                "checkpoint_every": steps,
                "held_out": "" if steps in traces.FITTED else "yes",
                "stopped_w": traces.stopped_level(seconds),
                "writing_w": writing,
                "energy_j": energy,
                "energy_error": wave.energy(steps) / energy - 1.0,
                "highest_w": highest,
                "swing_error": (expected - wave.writing) / (highest - writing) - 1.0,
            }
        )
    sequences, step = levels.small_model(wave.step)
    measured = {
        "working": wave.working,
        "writing": float(np.median([row["writing_w"] for row in rows])),
        "stopped": float(np.median([row["stopped_w"] for row in rows])),
    }
    predicted = {name: levels.NODE * float(getattr(step.levels, name)) for name in measured}
    compared = [
        {"level": name, "predicted_w": predicted[name], "measured_w": value, "error": predicted[name] / value - 1.0}
        for name, value in measured.items()
    ]
    for low in ("writing", "stopped"):
        swing, seen = predicted["working"] - predicted[low], measured["working"] - measured[low]
        swing_row = {
            "level": f"working less {low}",
            "predicted_w": swing,
            "measured_w": seen,
            "error": swing / seen - 1.0,
        }
        compared.append(swing_row)
    assumed = [
        {
            "sequences_a_chip": sequences,
            "predicted_step_s": float(np.asarray(step.time.total)),
            "measured_step_s": wave.step,
        }
    ]
    return {"wave": [fitted], "traces": rows, "assumed_batch": assumed, "levels_8xh100": compared}


def of_nodes() -> outputs.Tables:
    """GPT-3 on 64 nodes at the nodes' meters, and the traces of other benchmarks."""
    rows = levels.metered_nodes()
    node = levels.predicted_node(em.load_scenario("gpt3-175b-h100"))
    gpt3 = next(row for row in rows if row["benchmark"] == "gpt3")
    measured = levels.Node(min(row["lowest_w"] for row in rows), gpt3["busy_w"])
    compared = [
        {"level": name, "predicted_w": value, "measured_w": seen, "error": value / seen - 1.0}
        for name, value, seen in zip(node._fields, node, measured, strict=True)
    ]
    swing, seen = node.working - node.stopped, measured.working - measured.stopped
    compared.append({"level": "swing", "predicted_w": swing, "measured_w": seen, "error": swing / seen - 1.0})
    return {"metered_nodes": rows, "levels_gpt3_node": compared}


def of_fleet() -> outputs.Tables:
    """Levels of an A100 beside the distribution of a fleet of them."""
    changes = {"system.accelerator": "a100-sxm4-80gb", "plan.power_cap": "400 W"}
    step = levels.step_of(em.load_scenario("test-1b-h100", changes))
    rows = []
    for quantity in ("Seren GPU power W", "Kalos GPU power W"):
        shares = levels.fleet()[quantity]
        for name, percent in FLEET_LEVELS.items():
            predicted, measured = float(getattr(step.levels, name)), shares[percent]
            row = {"cluster": quantity.split()[0], "level": name, "percent_below": percent, "predicted_w": predicted}
            rows.append(row | {"measured_w": measured, "error": predicted / measured - 1.0})
    return {"levels_fleet": rows}


def outcome(changes: Mapping[str, Any]) -> TrainingOutcome:
    """Outcome of the large run with changes."""
    scenario = em.load_scenario(LARGE, changes)
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))


def of_smoothing() -> outputs.Tables:
    """What floors and storage do to the swing of a run on 16,384 H100, and what they cost."""
    cases: dict[str, dict[str, Any]] = {"none": {}}
    cases |= {f"floor {floor:g}": {"plan.power_floor": floor} for floor in FLOORS}
    cases |= {f"storage {energy:g} J": {POWER: f"{CONVERTER} W", ENERGY: f"{energy} J"} for energy in STORAGES}
    both = {"plan.power_floor": 0.5, POWER: f"{CONVERTER} W", ENERGY: "65 J"}
    cases |= {"floor 0.5, storage 65 J": both}
    own = outcome({})
    energy, money = float(np.asarray(own.energy.total)), float(own.money)
    rows = []
    for name, changes in cases.items():
        run = outcome(changes)
        rows.append(
            {
                "smoothing": name,
                "swing_mw": float(run.power_swing) / 1e6,
                "ramp_mw_per_s": float(run.power_ramp) / 1e6,
                "checkpoint_swing_mw": float(run.checkpoint_swing) / 1e6,
                "stop_ramp_mw_per_s": float(run.stop_ramp) / 1e6,
                "energy_change": float(np.asarray(run.energy.total)) / energy - 1.0,
                "money_change": float(run.money) / money - 1.0,
            }
        )
    return {"smoothing": rows}


def accuracies(tables: outputs.Tables) -> list[dict[str, Any]]:
    """Held-out errors of all parts. Idle H100 and the GPT-3 node are left out: presets have numbers of both."""
    held = [row for row in tables["traces"] if row["held_out"]]
    within = "350M model on 8 H100, a checkpoint every 1 to 100 steps"
    chips = {row["level"]: row["error"] for row in tables["levels_8xh100"]}
    errors = {name: [row["error"] for row in tables["levels_fleet"] if row["level"] == name] for name in FLEET_LEVELS}
    everything = "all traces: nothing is fitted but the batch, to the time of a step"
    fleet_range = "A100, two clusters of a fleet (Acme), level by its place in the distribution"
    return [
        outputs.accuracy(
            "energy of an interval between checkpoints", [r["energy_error"] for r in held], "trace", within
        ),
        outputs.accuracy("swing that a meter of 1 s reads", [r["swing_error"] for r in held], "trace", within),
        outputs.accuracy("power of a working chip", [chips["working"]], everything, "350M model on 8 H100"),
        outputs.accuracy("power of a chip at a checkpoint", [chips["writing"]], everything, "350M model on 8 H100"),
        outputs.accuracy("swing at a checkpoint", [chips["working less writing"]], everything, "350M model on 8 H100"),
        outputs.accuracy("power of a working chip", errors["working"], "fleet", fleet_range),
        outputs.accuracy("power of a chip awake without kernels", errors["writing"], "fleet", fleet_range),
        outputs.accuracy("power of an idle chip", errors["stopped"], "fleet", fleet_range),
    ]


def draw(folder: Path, tables: outputs.Tables) -> None:
    """A trace beside its wave, and swing against cost."""
    wave = traces.Wave(*(tables["wave"][0][key] for key in ("working_w", "writing_w", "step_s")))
    window = tables["wave"][0]["meter_window_s"]
    figure = new_figure(9.0, 3.6)
    left, right = add_axes(figure, 1, 2, 1), add_axes(figure, 1, 2, 2)
    for steps, color in ((1, ORANGE), (10, BLUE)):
        power = [second.high / 1e3 for second in traces.training(traces.read(folder)[steps])][:120]
        left.plot(power, color=color, linewidth=1.0, label=f"checkpoint every {steps}")
        left.axhline(wave.highest(steps, window) / 1e3, color=color, linestyle="--", linewidth=0.8)
    left.axhline(wave.writing / 1e3, color=GRAY, linestyle="--", linewidth=0.8)
    left.set(xlabel="time, s", ylabel="highest reading in a second, kW", title="8 H100; dashed: fitted to other traces")
    left.legend(loc="center right")
    for word, color, key in (("floor", ORANGE, "energy_change"), ("storage", GREEN, "money_change")):
        rows = [row for row in tables["smoothing"] if row["smoothing"].startswith(("none", word + " "))]
        rows = [row for row in rows if "," not in row["smoothing"]]
        cost = [100.0 * row[key] for row in rows]
        right.plot(
            [row["swing_mw"] for row in rows], cost, "o-", color=color, label=f"{word}: more {key.split('_')[0]}"
        )
    right.set(xlabel="power swing within a step, MW", ylabel="cost, %", title="Llama 3.1 405B on 16,384 H100")
    right.legend()
    outputs.draw(figure, FOLDER, "power_swing")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    before = FOLDER / "result.json"
    tables: outputs.Tables = json.loads(before.read_text()) if before.is_file() else {}
    tables |= {**(of_traces(folder) if folder else {}), **of_nodes(), **of_fleet(), **of_smoothing()}
    tables["accuracy"] = accuracies(tables)
    outputs.keep(tables, FOLDER)
    if folder:
        draw(folder, tables)


if __name__ == "__main__":
    main()
