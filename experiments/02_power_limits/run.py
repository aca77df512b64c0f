"""Time, power and energy at power limits that were not measured, and the best batch and limit in eight runs.

Prints six tables, draws `power_limits` and writes `result.json` beside this file.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import cards
import numpy as np
import power_limits
import through_evaluate
import zeus_job

from energymodel.calibration.power_population import LIMITS

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from figures import BLUE, add_axes, new_figure

FOLDER = Path(__file__).parent
HELD_OUT = {
    "transfer": ("profile at the highest limit known", "workload", "GPU-bound workloads of Zeus on V100, A40 and P100"),
    "other_cards": ("profile at the highest limit known", "card", "V100, A40 and P100, each from the two others"),
    "interpolation": ("other limits of the workload known", "every second limit", "the same"),
}


def compute(*, write: bool) -> dict[str, Any]:
    excess: list[float] = []
    epochs = power_limits.epochs_to_target()
    result: dict[str, Any] = {"transfer": {}, "interpolation": {}, "other_batches": {}, "regret": {}, "jobs": []}
    errors: dict[str, list[np.ndarray]] = {name: [] for name in HELD_OUT}
    every = {gpu: power_limits.traces(gpu) for gpu in power_limits.GPUS}
    for gpu, data in every.items():
        result["transfer"][gpu], blind, busy = power_limits.transfer(data)
        errors["transfer"].append(blind[busy])
        result["interpolation"][gpu], between = power_limits.interpolation(data)
        errors["interpolation"].append(between)
        result["other_batches"][gpu] = power_limits.other_batches(data)
        result["regret"][gpu] = power_limits.best_limit_regret(data, blind, epochs)
        result["jobs"] += zeus_job.play(gpu, data, epochs)
        excess += zeus_job.from_every_batch(data, epochs)
        print(f"{gpu} done", flush=True)
    result["jobs_from_every_batch"] = {
        "starts": len(excess),
        "mean_excess_percent": float(np.mean(excess)),
        "at_the_least_percent": 100.0 * float(np.mean(np.array(excess) < 1e-9)),
        "largest_excess_percent": float(np.max(excess)),
    }
    left_out = cards.left_out(every)
    result["other_cards"] = cards.table(every, left_out)
    errors["other_cards"] = list(left_out.values())
    if write:
        fit_result = cards.population(every, cards.usual_errors(list(left_out.values())))
        outputs.write_population(fit_result, LIMITS, "Constants of power at power limits of all measured cards", FOLDER)
    result["accuracy"] = [
        outputs.accuracy(
            f"{name} at a power limit, {knowledge}",
            np.expm1(np.concatenate(errors[way]) @ weights),
            held,
            within,
            five(name) if way == "transfer" else "",
        )
        for way, (knowledge, held, within) in HELD_OUT.items()
        for name, weights in (("time", [1.0, 0.0]), ("power", [0.0, 1.0]), ("energy", [1.0, 1.0]))
    ]
    constants, rows, blind = through_evaluate.tables(every)
    result["constants_through_evaluate"], result["through_evaluate"] = constants, rows
    result["accuracy"] += [
        outputs.accuracy(
            f"{name} at a power limit over that at the highest, through evaluate with the card's preset",
            errors,
            "data set; voltage and busy power from SQuAD on the same card",
            "BERT on Sentiment140 and ResNet-50 on V100, A40 and P100, limits of half the rated power and above",
        )
        for name, errors in blind.items()
    ]
    return result


def five(name: str) -> str:
    """What the form with five constants reaches from the highest limit [docs/physics.md B2.1]."""
    parts = [f"{power_limits.REFERENCE[gpu][name]:.1f} % {gpu}" for gpu in power_limits.GPUS]
    return "five constants: " + ", ".join(parts)


def three(errors: dict[str, float]) -> str:
    return " / ".join(f"{errors[name]:.2f}" for name in ("time", "power", "energy"))


def report(result: dict[str, Any]) -> str:
    lines = ["mean absolute error of time / power / energy [%], GPU-bound workloads"]
    for gpu in power_limits.GPUS:
        inner = result["interpolation"][gpu]
        lines.append(f"{gpu}: from the highest limit, workload held out  {three(result['transfer'][gpu]['busy'])}")
        lines.append(f"      the same, from other cards                  {three(result['other_cards'][gpu]['busy'])}")
        lines.append(f"      five constants (docs/physics.md B2.1)       {three(power_limits.REFERENCE[gpu])}")
        for word in ("one for all", "by workload"):
            lines.append(f"      alternate limits, {inner[word]['constants']} constants {word}  {three(inner[word])}")
        lines.append(f"      alternate batches                           {three(result['other_batches'][gpu])}")
        regret = result["regret"][gpu]
        lines.append(
            f"      regret of the chosen batch and limit: mean {np.mean(list(regret.values())):.2f}, "
            f"most {max(regret.values()):.2f}"
        )
    lines.append("")
    lines.append(outputs.table(result["jobs"]))
    lines.append(outputs.table([result["jobs_from_every_batch"]]))
    lines.append(outputs.table(result["constants_through_evaluate"]))
    lines.append(outputs.table(result["through_evaluate"]))
    return "\n".join(lines)


def draw(result: dict[str, Any]) -> Any:
    figure = new_figure(8.0, 3.4)
    axes = add_axes(figure, 1, 2, 1)
    for index, gpu in enumerate(power_limits.GPUS):
        for shift, errors, color in (
            (-0.2, power_limits.REFERENCE[gpu], "0.7"),
            (0.2, result["transfer"][gpu]["busy"], BLUE),
        ):
            names = ("time", "power", "energy")
            axes.bar([4 * index + bar + shift for bar in range(3)], [errors[name] for name in names], 0.4, color=color)
    axes.set_xticks(
        [4 * group + index for group in range(3) for index in range(3)],
        [f"{word}\n{gpu}" if word == "P" else word for gpu in power_limits.GPUS for word in ("t", "P", "E")],
    )
    axes.set(ylabel="mean absolute error [%]", title="from the highest limit (gray: five constants)")
    axes = add_axes(figure, 1, 2, 2)
    rows = result["jobs"]
    axes.barh(
        [str(row["gpu"]) + " " + row["workload"] for row in rows],
        [row["grid_saving_percent"] for row in rows],
        color="0.8",
    )
    axes.barh(
        [str(row["gpu"]) + " " + row["workload"] for row in rows],
        [row["saving_percent"] for row in rows],
        0.4,
        color=BLUE,
    )
    axes.tick_params(axis="y", labelsize=7)
    axes.set(xlabel="energy saved to the target [%]", title="at most 8 runs (gray: whole grid)")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-population", action="store_true", help="write what the cards say of another")
    result = compute(write=parser.parse_args().write_population)
    print(report(result))
    outputs.write(result, FOLDER)
    outputs.draw(draw(result), FOLDER, "power_limits")


if __name__ == "__main__":
    main()
