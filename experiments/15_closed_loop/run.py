"""Forecasts of `energymodel monitor` for the end of a run, and the saving of a new plan for its rest.

Replays recorded runs. Prints its tables, draws `closed_loop` and writes `result.json` beside this file; with
`--write-presets` also the preset `courses/own-run`.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import loss_courses
import megatron_runs
import mlperf_runs
import numpy as np
import replay
from figures import BLUE, GRAY, GREEN, ORANGE, add_axes, new_figure

from energymodel.monitor.expectation import CoursePrior, expectation_of
from energymodel.scenarios.files import ROOT

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

FOLDER = Path(__file__).parent
REPLANNED = {("nemotron_15b", "dgx_h100"), ("mixtral_8x7b", "dgx_h100"), ("deepseekv3_proxy_14l", "dgx_h100")} | {
    ("gpt3", "64xSMC-H100-SXM-80GB")
}
"""One run of each model that the scenario describes as it was."""
UNITS = {"gain": "nat/token", "gain_spread": "nat/token", "model_error": "nat/token"} | {
    "end_noise": "nat/token",
    "law_error": "nat/token",
}
PRESET = """title = "What other runs say of a run's own course"
kind = "derived"
source = "experiments/15_closed_loop"

"""


def compute() -> tuple[outputs.Tables, CoursePrior]:
    """All tables, and the prior from all runs."""
    curves = [curve for curve in loss_courses.curves() if curve.error(0.9, loss_courses.FLAT) is not None]
    trained, metered = list(megatron_runs.runs()), list(mlperf_runs.runs())
    law_errors = [(run.group, float(expectation_of(run.scenario).outcome.loss) - run.truth["loss"]) for run in trained]
    priors = loss_courses.priors(curves, law_errors)
    rows, plans = [], []
    for run in [*trained, *metered]:
        prior = priors.get(run.group, priors[""])
        prior = prior._replace(power_drift=mlperf_runs.power_drift((run.name, run.group)))
        result, plan = replay.watch(run, prior, replan=(run.group, run.name) in REPLANNED)
        rows += result
        plans += [] if plan is None else [plan]
    everything = priors[""]._replace(power_drift=mlperf_runs.power_drift())
    tables = {
        "prior": [{"left_out": group or "none", **prior._asdict()} for group, prior in priors.items()],
        "loss_courses": loss_courses.table(curves, priors),
        "forecasts": rows,
        "summary": replay.summary(rows),
        "replanned": plans,
    }
    tables["prior"][0] = {"left_out": "none", **everything._asdict()}
    tables["accuracy"] = list(_accuracy(rows))
    return tables, everything


def _accuracy(rows: list[dict[str, Any]]) -> Any:
    """For the page of trust: forecasts after a quarter of each run."""
    words = {
        "time": ("time of a whole run", "Megatron's runs of 20 to 100 billion tokens", "run"),
        "energy": ("energy of a whole run at the nodes", "MLPerf runs of 2 to 57 minutes on 8 to 512 H100", "run"),
        "loss": ("final loss of a run", "Megatron's runs of 20 to 100 billion tokens", "model"),
    }
    for name, (what, where, held_out) in words.items():
        for share in (0.25, 0.5):
            some = [row[f"{name}_error"] for row in rows if row["share_of_run"] == share and f"{name}_error" in row]
            yield outputs.accuracy(f"{what}, {100.0 * share:.0f} % of it watched", some, held_out, where)


def figure(tables: outputs.Tables) -> Any:
    """Forecast less what came, by the share of the run that was watched, with the held-out intervals."""
    drawn = new_figure(9.6, 3.2)
    titles = {"time": ("time", BLUE), "energy": ("energy at the nodes", ORANGE), "loss": ("final loss", GREEN)}
    for index, (name, (title, color)) in enumerate(titles.items(), 1):
        axes = add_axes(drawn, 1, 3, index)
        runs: dict[Any, list[tuple[float, ...]]] = defaultdict(list)
        for row in tables["forecasts"]:
            if f"{name}_error" in row and row["share_of_run"] > 0.0:
                values = (100.0 * row[f"{name}_{key}"] for key in ("error", "low", "high"))
                runs[row["run"], row["system"]].append((100.0 * row["share_of_run"], *values))
        for points in runs.values():
            share, error, low, high = np.array(points).T
            axes.fill_between(share, low, high, color=color, alpha=0.08, linewidth=0)
            axes.plot(share, error, "o-", color=color, linewidth=1.0, markersize=2.5)
        axes.axhline(0.0, color=GRAY, linewidth=0.9)
        axes.set_xlabel("share of the run watched [%]")
        axes.set_ylabel("forecast over measured - 1 [%]")
        axes.set_title(f"{title}: {len(runs)} runs", fontsize=9, loc="left")
    return drawn


def write_preset(prior: CoursePrior) -> None:
    """The preset `courses/own-run`."""
    lines = []
    for name, value in prior._asdict().items():
        number = f"{value:.3g}"
        lines.append(
            f'{name} = {{ value = {number}, unit = "{UNITS[name]}" }}' if name in UNITS else f"{name} = {number}"
        )
    (ROOT / "courses" / "own-run.toml").write_text(PRESET + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    tables, prior = compute()
    outputs.draw(figure(tables), FOLDER, "closed_loop")
    outputs.keep(tables, FOLDER)
    if "--write-presets" in sys.argv[1:]:
        write_preset(prior)


if __name__ == "__main__":
    main()
