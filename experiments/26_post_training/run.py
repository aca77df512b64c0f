"""Time and memory of published iterations of GRPO, predicted by what their authors state.

Prints its tables and writes `result.json` beside this file.
"""

import csv
import json
import sys
import tempfile
import tomllib
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

from energymodel.errors import InputError
from energymodel.scenarios.pieces import Pieces, scenario_of_pieces
from energymodel.sweeps.post_training import PostTraining, post_training

FOLDER = Path(__file__).parent
DATA = FOLDER.parent / "data" / "post_training.csv"
LARGE = ("235b", "deepseek")
MODELS = tomllib.loads((FOLDER / "models.toml").read_text(encoding="utf-8"))


def pieces(row: dict[str, str], model: str, batch: float | None, sequence: float, changes: tuple[str, ...]) -> Pieces:
    """The scenario of an update."""
    layout = [word if word.startswith("system.") else f"plan.layout.{word}" for word in row["layout"].split()]
    given = {"batch": batch, "sequence": sequence, "framework": row["framework"], "changes": [*layout, *changes]}
    given |= {"tuning": {"tuning": "full", "optimizer": "adamw"}} if row["bf16"] else {}
    return scenario_of_pieces(model, row["accelerator"], row["chips"], 1e12, **given)


def predicted(row: dict[str, str], models: Path) -> dict[str, Any]:
    """A published iteration beside what is predicted of it."""
    model = row["model"]
    if model in MODELS:
        path = models / f"{model}.json"
        path.write_text(json.dumps(MODELS[model]), encoding="utf-8")
        model = str(path)
    numbers: dict[str, Any] = {
        name: float(row[name]) if row[name] else None for name in ("answer_length", "longest_answer", "sequence")
    }
    numbers |= {name: float(row[name]) if row[name] else None for name in ("engine_chips", "engine_share")}
    sizes: dict[str, Any] = {
        name: float(row[name] or usual) for name, usual in (("prompts", 128), ("answers", 8), ("updates", 1))
    }
    asked = PostTraining(
        algorithm=row["algorithm"],
        prompt_length=float(row["prompt_length"]),
        rollout_chips=float(row["rollout_chips"]),
        overlap=row["overlap"] == "1",
        offload=row["offload"] == "1",
        **sizes,
        **numbers,
    )
    result: dict[str, Any] = {"source": row["source"], "case": row["case"], "fits": row["fits"] == "1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = post_training(asked, partial(pieces, row, model))
        except InputError as error:
            return {**result, "predicted_fits": False, "why": str(error)}
    time, half = run.time.total, run.halves.total
    result |= {"predicted_fits": not run.shortfall, "why": run.shortfall, "memory_b": dict(run.memory)}
    result |= {"predicted_s": time, "low_s": time * 2.718281828**-half, "high_s": time * 2.718281828**half}
    result |= {"parts_s": {name: round(part, 2) for name, part in run.time._asdict().items()}}
    if row["iteration_time_s"]:
        measured = float(row["iteration_time_s"])
        result |= {"measured_s": measured, "error": time / measured - 1.0}
    return result


def main() -> None:
    """Predict all rows, or those of the sources named on the command line, which are printed alone."""
    rows, only, results = list(csv.DictReader(DATA.open(encoding="utf-8"))), sys.argv[1:], []
    with tempfile.TemporaryDirectory() as folder, jax.enable_x64(True):
        for row in rows:
            if not only or row["source"] in only:
                results.append(predicted(row, Path(folder)))
                print(json.dumps(results[-1]), flush=True)
    timed = [row for row in results if "error" in row]
    of_moe = [row["error"] for row in timed if any(word in row["case"] for word in LARGE)]
    others = [row["error"] for row in timed if row["error"] not in of_moe]
    inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in timed)
    right = sum(row["fits"] == row["predicted_fits"] for row in results)
    print(f"{inside} of {len(timed)} in the 90 % interval; {right} of {len(results)} fit or not as published.")
    if only:
        return
    within = "GRPO on 8 to 64 H100 and GB200, dense 7B to 32B and 30B with experts"
    table = [
        outputs.accuracy("time of an iteration", others, "all rows, but for one prior set after some", within),
        outputs.accuracy("the same, 235B and 671B with experts", of_moe, "the same", "64 to 512 chips"),
    ]
    outputs.write({"rows": results, "inside_90": inside, "right": right, "accuracy": table}, FOLDER)


if __name__ == "__main__":
    main()
