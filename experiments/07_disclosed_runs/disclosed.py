"""Predictions for disclosed training runs from their size, tokens and hardware."""

import csv
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from energymodel.runtime.compilation import compiler_options
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.evaluate import evaluate
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs
from fastest_layout import fastest_layout

DATA = Path(__file__).parents[1] / "data" / "disclosed_training_runs.csv"
CASES = Path(__file__).with_name("cases.toml")
HOUR, MWH, TONNE = 3600.0, 3.6e9, 1e3
METERED, NOMINAL = "metered", "hours times rated power"
METERS = "T5, Gopher, OLMo, OLMo 2"


def disclosed() -> list[dict[str, str]]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cases() -> dict[str, Any]:
    with CASES.open("rb") as file:
        return tomllib.load(file)


def row_of(rows: list[dict[str, str]], model: str, source: str = "") -> dict[str, str]:
    """The row of a model, by a word of its source where there are several."""
    return next(row for row in rows if row["model"] == model and source in row["source"])


def number(row: dict[str, str], key: str) -> float | None:
    return float(row[key]) if row.get(key) else None


def basis(row: dict[str, str], rated: float) -> str:
    """Whether the energy of a row was metered, or is hours times the power that the chips are rated for.

    Figures without a word on it that equal hours times rated power within a percent count as that.
    """
    text, hours, energy = row["energy_basis"].lower(), number(row, "chip_hours"), number(row, "energy_mwh")
    if "sampled" in text or "measured" in text:
        return METERED
    nominal = hours * HOUR * rated / MWH if hours else None
    if "tdp" in text or "chip_hours x" in text or (energy and nominal and abs(energy / nominal - 1.0) < 0.01):
        return NOMINAL
    return "not stated" if energy or number(row, "gpu_energy_mwh") else "none"


def scenario_of(row: dict[str, str], case: dict[str, Any], hardware: dict[str, Any]) -> Scenario:
    """The scenario of a row: its preset, or hardware, shape, chips, batch and tokens."""
    tokens = float(row["tokens"])
    if "scenario" in case:
        return load_scenario(case["scenario"], {"plan.goal": {"tokens": f"{tokens} token"}})
    plan: dict[str, Any] = {
        "chips": number(row, "n_chips") or float(case["chips"]),
        "goal": {"tokens": f"{tokens} token"},
        "batch": "1 Ti tokens",
        # Where the search begins.
        "layout": {"tensor": 4.0, "pipeline": case.get("layout", {}).get("pipeline", 1.0)},
    }
    system = {"workload": case["workload"]} | hardware[row["hardware"]]
    if "empty_slots" in case:
        system["software"] = {"preset": "megatron", "empty_slots": case["empty_slots"]}
    tables = {"name": row["model"], "base": "_common", "system": system, "plan": plan}
    sequence = float(load_scenario(tables).system.workload.sequence)
    batch = case.get("batch") or number(row, "batch_tokens") or 4194304.0
    sequences = batch / sequence
    if "layout" not in case:  # nearest power of two, so that it divides over any count of chips
        sequences = 2.0 ** round(np.log2(sequences))
    return load_scenario(tables, {"plan.batch": f"{sequences * sequence} token"})


@eqx.filter_jit(compiler_options=compiler_options(once=True))  # pyright: ignore[reportCallIssue]
def _evaluate(system: TrainingSystem, plan: TrainingPlan) -> TrainingOutcome:
    return evaluate(system, plan)


def known_of_layout(case: dict[str, Any], system: TrainingSystem) -> dict[str, tuple[float, float]]:
    """Ranges of what is known of a layout: its disclosed fields, and full recomputation without a fused attention.

    Without such a kernel attention scores take most of the memory, and frameworks of that time recomputed all layers.
    """
    degrees = {key: (value, value) for key, value in case.get("layout", {}).items()}
    return degrees | ({} if float(system.workload.flash) else {"recompute_full": (1.0, 1.0)})


def predict(row: dict[str, str], case: dict[str, Any], hardware: dict[str, Any]) -> dict[str, Any]:
    """Chip hours [h], energy of the chips and of the site [J], and carbon [kg] of a run."""
    scenario = scenario_of(row, case, hardware)
    system, plan = scenario.system, scenario.plan
    if "scenario" not in case:
        plan = fastest_layout(system, plan, known_of_layout(case, system))
    outcome = jax.tree.map(float, _evaluate(system, plan))
    energy, layout = outcome.energy, plan.layout
    chips = energy.dynamic + energy.static + energy.memory + energy.idle_wait
    # At the stated ratio of site to equipment, and the stated carbon, where there are such.
    site = energy.total * (number(row, "pue") or outcome.pue) / outcome.pue
    intensity = number(row, "carbon_intensity_kg_per_kwh")
    per_joule = outcome.carbon_operational / energy.total if intensity is None else intensity / 3.6e6
    return {
        "layout": f"tensor {float(layout.tensor):g}, pipeline {float(layout.pipeline):g}",
        "mfu": outcome.mfu,
        "slowdown": float(system.production_slowdown),
        "chip_hours": outcome.chip_time / HOUR,
        "rated_w": float(system.accelerator.rated_power),
        "chips_j": chips,
        "site_j": site,
        "carbon_kg": site * per_joule,
        "intensity_stated": intensity is not None,
        "usd_per_chip_hour": outcome.money / (outcome.chip_time / HOUR),
    }


def compare(row: dict[str, str], case: dict[str, Any], hardware: dict[str, Any], energies: dict[str, str]) -> Any:
    """A row of the tables: disclosed and predicted, and how they differ."""
    prediction = predict(row, case, hardware)
    days, chips = number(row, "duration_days"), number(row, "n_chips")
    hours = number(row, "chip_hours") or (days * 24.0 * chips if days and chips else None)
    kind = basis(energies, prediction["rated_w"])
    alone = case.get("energy") == "chips" or not number(energies, "energy_mwh")
    disclosed_energy = number(energies, "gpu_energy_mwh" if alone else "energy_mwh")
    if alone and disclosed_energy is None:
        disclosed_energy = number(energies, "energy_mwh") or number(energies, "energy_mwh_derived")
    predicted = prediction["chips_j" if alone or kind == NOMINAL else "site_j"]
    if kind == NOMINAL and not alone:
        predicted *= number(row, "pue") or 1.0
    carbon = number(row, "carbon_tco2e")
    power = disclosed_energy * MWH / (hours * HOUR) if disclosed_energy and hours else None
    price = case["epoch_usd"] / hours if hours and "epoch_usd" in case else None
    result: dict[str, Any] = {
        "model": row["model"],
        "organization": case["organization"],
        "hardware": row["hardware"],
        "verification": row["verification"].split(",")[0],
        "layout": prediction["layout"],
        "mfu": prediction["mfu"],
        "slowdown": prediction["slowdown"],
        "tokens_per_parameter": float(row["tokens"]) / float(row["params_total"]),
        "chip_hours": hours,
        "chip_hours_predicted": prediction["chip_hours"],
        "chip_hours_error": prediction["chip_hours"] / hours - 1.0 if hours else None,
        "energy_of": ("chips" if alone else "chips times PUE") if kind == NOMINAL or alone else "site",
        "basis": kind,
        "energy_j": disclosed_energy * MWH if disclosed_energy else None,
        "energy_j_predicted": predicted,
        "energy_error": predicted / (disclosed_energy * MWH) - 1.0 if disclosed_energy else None,
        "power_w": power,
        "power_w_predicted": predicted / (prediction["chip_hours"] * HOUR),
        "power_error": predicted / (prediction["chip_hours"] * HOUR) / power - 1.0 if power else None,
        "carbon_kg": carbon * TONNE if carbon else None,
        "carbon_kg_predicted": prediction["carbon_kg"],
        "carbon_error": prediction["carbon_kg"] / (carbon * TONNE) - 1.0 if carbon else None,
        "intensity": "stated" if prediction["intensity_stated"] else "assumed",
        "usd_per_chip_hour": price,
        "usd_per_chip_hour_predicted": prediction["usd_per_chip_hour"],
        "price_error": prediction["usd_per_chip_hour"] / price - 1.0 if price else None,
    }
    return result


def compute(models: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """Disclosed and predicted, of all runs in `cases.toml` or some."""
    rows, all_cases = disclosed(), cases()
    result = []
    with jax.enable_x64(True):
        for case in all_cases["run"]:
            if models is None or case["model"] in models:
                row = row_of(rows, case["model"], case.get("source", ""))
                energies = row_of(rows, case["model"], case.get("energy_source", case.get("source", "")))
                result.append(compare(row, case, all_cases["hardware"], energies))
    return result


def summary(compared: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Median of predicted over disclosed, of hours, power per chip and energy, by what the energy rests on."""
    rows = []
    for kind in (METERED, NOMINAL, "not stated", "none"):
        group = [row for row in compared if row["basis"] == kind]
        if not group:
            continue
        line: dict[str, Any] = {"basis": kind, "runs": len(group)}
        for key in ("chip_hours", "power", "energy", "carbon"):
            errors = [row[f"{key}_error"] for row in group if row[f"{key}_error"] is not None]
            line[f"{key}_ratio"] = 1.0 + float(np.median(errors)) if errors else None
        rows.append(line)
    return rows


def accuracy(compared: list[dict[str, Any]], held_out: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Errors of hours with the team's own rate and without any of its runs, and of metered power and energy."""
    laws = {row["model"]: row["law_without"] for row in held_out}
    own = {row["model"] for row in compared if row["slowdown"] == 1.0}
    runs = "runs of 7 to 280 billion parameters, A100, H100, MI250X and TPU; hours also hold what is not training"

    def errors(key: str, chosen: Callable[[dict[str, Any]], bool]) -> list[float]:
        return [row[key] for row in compared if row[key] is not None and chosen(row)]

    return [
        outputs.accuracy(
            "chip hours of a published run, layout disclosed",
            errors("chip_hours_error", lambda row: row["model"] in own),
            "nothing; their published rates are met without a slowdown",
            "Llama 3.1 405B and DeepSeek-V3",
        ),
        outputs.accuracy(
            "chip hours (or metered energy) of a published run of another team",
            [row["error"] for row in held_out],
            "organization; one constant, the slowdown of production runs",
            runs,
            f"without a slowdown: {100.0 * np.mean([abs(1.0 / row['slowdown'] - 1.0) for row in held_out]):.0f} %",
        ),
        outputs.accuracy(
            "the same, slowed down by tokens per parameter",
            [row["law_error"] for row in held_out],
            "organization; one constant, an exponent; the law was chosen on these runs",
            "1 to 1900 tokens per parameter",
        ),
        outputs.accuracy(
            "power per chip of a published run with a meter",
            errors("power_error", lambda row: row["basis"] == METERED),
            "everything: nothing is fitted to power",
            "T5 and Gopher on TPU",
        ),
        outputs.accuracy(
            "energy of a published run with a meter",
            errors("energy_error", lambda row: row["basis"] == METERED),
            "nothing: these runs are among those that the slowdown is fitted to",
            METERS,
        ),
        outputs.accuracy(
            "the same, slowed down by tokens per parameter",
            [
                (1.0 + row["energy_error"]) * laws[row["model"]] / row["slowdown"] - 1.0
                for row in compared
                if row["basis"] == METERED
            ],
            "organization; one constant, an exponent; the law was chosen on these runs",
            METERS,
        ),
        outputs.accuracy(
            "price of an hour of a chip that a team owns",
            errors("price_error", lambda row: True),
            "everything: nothing is fitted to them",
            "A100, H100 and TPU v3, against what Epoch AI estimates for the run, over its disclosed hours",
        ),
    ]


def skipped() -> list[dict[str, Any]]:
    """Rows without a prediction, and why."""
    return [{"model": model, "reason": reason} for model, reason in cases()["skipped"].items()]
