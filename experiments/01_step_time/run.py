"""Predict published step times and memory with constants fitted to other groups of all clusters, and say the error.

`python experiments/01_step_time/run.py [--data FOLDER] [--write-presets] [--choice]`
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import held_out_groups
import memory_labels
import numpy as np
from held_out_groups import Error
from layout_choice import choices, regrets

from energymodel.calibration.step_prediction import predict
from energymodel.report import toml_text
from energymodel.scenarios.files import ROOT, read_toml

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import COLORS, GRAY, add_axes, new_figure

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
ONLY_HERE = ("release", "degraded")  # what the table of `predict` has no column for
KNOWN = ("group held out", "no row", "few rows")  # of a cluster
BUSY = "nanotron, MFU > 25 %"
MODEL = "model"
OFF = (0.7, 0.9, 1.0, 1.1, 1.3)  # predicted over measured, along the lines of the figure
LOOKS = [(mark, color) for mark in "o^s" for color in COLORS if color != GRAY]  # of sets
SETS = {
    "korthikanti": (MODEL, "Megatron-LM, 22B to 1T on 8 to 512 A100", "Calculon 3.65 %, largest 8.87 %"),
    "vtrain-single": ("hidden size and depth", "Megatron-DeepSpeed on 2 to 8 A100", "Calculon 42 %, llm-analysis 60 %"),
    "vtrain-multi": ("hidden size and pipeline degree", "Megatron-DeepSpeed on 64 to 512 A100", "Calculon 12.9 %"),
    "nanotron": ("hidden size and GPU count", "nanotron on 8 to 512 H100", "Calculon 67 % in the median"),
    BUSY: ("hidden size and GPU count", "the same, measured utilization above a quarter", "Calculon 16 %"),
    "mpt": (MODEL, "llm-foundry on 8 to 512 A100 and H100", ""),
    "megatron-bridge": (MODEL, "Megatron-Bridge on H100, B200, B300, GB200, GB300", ""),
    "torchtitan": ("model; long sequences apart", "torchtitan on H100 at 500 W", ""),
    "maxtext": (MODEL, "MaxText on TPU v5p, v5e and v6e", ""),
    "nemo": (MODEL, "NeMo on H100 and B200", ""),
    "dgxc": (MODEL, "dgxc-benchmarking on H100 and GB200", ""),
    "narayanan": (MODEL, "Megatron-LM, weak scaling, 1.7B to 1T on A100", ""),
    "mt-nlg": ("all rows of the cluster", "MT-NLG 530B on A100", ""),
    "verification cards": (MODEL, "Megatron-Bridge on H100, GB200, GB300: support and performance runs", ""),
    "megatron tests": ("layers and layout", "Megatron-LM on eight A100, H100 or GB200 that wait for the host", ""),
    "automodel": (MODEL, "NeMo Automodel on H100, dense and with experts", ""),
    "mlperf gpt3": ("GPU count", "MLPerf GPT-3 175B on H100 in 8 bits", ""),
}
"""What was held out of the fit of each set, what it covers, and what peers achieve on the same rows, on the mean."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the CSV files")
    parser.add_argument("--write-presets", action="store_true", help="write memory constants to the cluster presets")
    parser.add_argument("--choice", action="store_true", help="print only what a chosen layout loses")
    chosen = parser.parse_args()
    rows = held_out_groups.measured_runs.read_all(chosen.data)
    preset_errors, risks = with_presets(rows)
    choice = regrets(preset_errors, "all rows")
    print("time over that of the fastest layout, less one\n" + outputs.table(choice), flush=True)
    clusters = {error.row["cluster"] for group in choices(preset_errors) for error in group} if chosen.choice else ()
    errors = list(held_out_groups.held_out_errors(rows, clusters))
    choice = [row for known in KNOWN for row in regrets(errors, known)] + choice
    print(outputs.table(choice))
    if chosen.choice:
        return
    sets, preset_sets = by_set(errors), by_set(preset_errors)
    for name, own in sets.items():
        print_set(name, own)
    tables: outputs.Tables = {
        "accuracy": [
            outputs.accuracy(f"time of a training step, {name}", np.expm1([error.log for error in own]), *SETS[name])
            for name, own in sets.items()
        ],
        "sets": [{"set": name, **summary(own)} for name, own in sets.items()],
        "sets_with_presets": [{"set": name, **summary(preset_sets[name])} for name in sets],
        "layout_choice": choice,
        "false_out_of_memory": risks,
    }
    print("\nwith the presets, which know all rows\n" + outputs.table(tables["sets_with_presets"]))
    print("\nruns that ran, and the share whose predicted risk is above\n" + outputs.table(risks))
    remembered, memory_constants = [row for row in rows if row["set"] == "nanotron"], {}
    if remembered:
        check, memory_constants = memory_labels.check(remembered)
        tables["accuracy"].append(
            outputs.accuracy("memory of a training step, nanotron", check.errors, *SETS["nanotron"][:2])
        )
        tables["out_of_memory"] = [
            {"runs": len(check.risk), "accuracy_percent": 100 * check.label_accuracy, "brier": check.brier}
        ]
        tables["risk"] = check.by_risk()
    outputs.keep(tables, HERE)
    draw(sets)
    if chosen.write_presets:
        write_memory(memory_constants)


def with_presets(rows: list[dict[str, Any]]) -> tuple[list[Error], list[dict[str, Any]]]:
    """Errors of the cluster presets, which are fitted to all timed rows, and the risks of these runs, which all ran."""
    timed = [row for row in rows if row["step_time_s"] != "" and not row.get("degraded")]
    inputs = [{key: value for key, value in row.items() if key not in ONLY_HERE} for row in timed]
    predicted = predict(inputs).table()
    log = np.log(predicted["step_time_s"]) - np.log([float(row["step_time_s"]) for row in timed])
    names = np.array([row["set"] for row in timed])
    risks = []
    for name in dict.fromkeys(names.tolist()):
        own = predicted["out_of_memory_probability"][names == name]
        shares = {f"above_{level}_percent": 100.0 * float(np.mean(own > level / 100)) for level in (50, 5)}
        risks.append({"set": name, "runs": len(own), **shares})
    return [Error(row, error) for row, error in zip(timed, log.tolist(), strict=True)], risks


def write_memory(constants: dict[str, dict[str, float]]) -> None:
    """The memory constants of clusters, into their presets."""
    for name, own in constants.items():
        path = ROOT / "clusters" / f"{name}.toml"
        preset = read_toml(path)
        software = preset["system"]["software"]
        for constant, value in own.items():
            key = constant.removeprefix("software.")
            software[key] = {**software[key], "value": float(f"{value:.5g}")}
        path.write_text(toml_text.dumps(preset), encoding="utf-8")


def by_set(errors: list[Error]) -> dict[str, list[Error]]:
    """Errors by set; those of nanotron also where the measured utilization is above a quarter."""
    result: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        result[error.row["set"]].append(error)
        if error.row["set"] == "nanotron" and error.row["mfu_measured"] > 0.25:
            result[BUSY].append(error)
    return dict(result)


def summary(errors: list[Error]) -> dict[str, float]:
    log = np.asarray([error.log for error in errors])
    absolute = np.abs(np.expm1(log))
    return {
        "rows": len(log),
        "mean_percent": 100 * absolute.mean(),
        "median_percent": 100 * np.median(absolute),
        "largest_percent": 100 * absolute.max(),
        "mean_log_ratio": float(log.mean()),
    }


def print_set(name: str, errors: list[Error]) -> None:
    """Errors by group, and the five largest."""
    groups: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        groups[error.row["group"]].append(error)
    print(f"\n{name}\n" + outputs.table([{"group": group, **summary(own)} for group, own in sorted(groups.items())]))
    keys = ("chips", "tensor", "pipeline", "microbatch", "batch_sequences", "hidden")
    for row, log, *_ in sorted(errors, key=lambda error: -abs(error.log))[:5]:
        where = ", ".join(f"{key} {row.get(key, 1)}" for key in keys)
        word = "slower than any resource explains" if log < 0 else "faster than predicted"
        print(f"  worst: {np.expm1(log):+.0%} at {where}: measured {float(row['step_time_s']):.3g} s, {word}")


def draw(sets: dict[str, list[Error]]) -> None:
    """Predicted against measured time of every set, and the spread of errors of fitted and of unseen clusters."""
    figure = new_figure(4.6, 7.8)
    above, below = add_axes(figure, 2, 1, 1), add_axes(figure, 2, 1, 2)
    sets = {name: errors for name, errors in sets.items() if name != BUSY}
    ends = np.asarray([0.03, 500.0])
    for off in OFF:
        look = {"color": GRAY, "lw": 1.0} if off == 1.0 else {"color": GRAY, "lw": 0.6, "ls": "--"}
        above.loglog(ends, ends * off, **look)
        below.axvline(off, **look)
    for index, ((name, errors), (mark, color)) in enumerate(zip(sets.items(), LOOKS, strict=False)):
        measured = np.asarray([float(error.row["step_time_s"]) for error in errors])
        fitted, unfitted = (np.exp([getattr(error, known) for error in errors]) for known in ("log", "unfitted"))
        above.loglog(measured, measured * fitted, mark, ms=2.5, color=color, label=name)
        for ratio, height, own in ((fitted, index - 0.15, color), (unfitted, index + 0.2, GRAY)):
            for share, width in ((0.9, 1.0), (0.5, 3.5)):
                below.plot(
                    np.quantile(ratio, [0.5 - share / 2, 0.5 + share / 2]), [height, height], color=own, lw=width
                )
            below.plot(np.median(ratio), height, mark, ms=5, color=own)
    above.set(xlabel="measured step time [s]", ylabel="predicted [s], group of runs held out", xlim=ends, ylim=ends)
    below.set_yticks(range(len(sets)), list(sets))
    below.set(xscale="log", xlim=(0.45, 2.2), ylim=(len(sets) - 0.5, -0.5), xlabel="predicted over measured")
    below.set_title("in color: group of runs held out; gray: all of the cluster", fontsize=9)
    ticks = (0.5, 0.7, 0.9, 1.1, 1.3, 2.0)
    below.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    below.set_xticks([], minor=True)
    outputs.draw(figure, HERE, "predicted")


if __name__ == "__main__":
    sys.exit(main())
