"""Answers of a sensitivity analysis, put together by hand for the small scenario."""

import dataclasses
from functools import lru_cache

import energymodel as em
from energymodel.scenarios.scenario import distributions
from energymodel.search.sensitivity import Effect, Limit, NumberEffects, Sensitivity
from energymodel.search.training_run import TrainingRun
from report.reference_optimum import optimum

SMALL = "test-1b-h100"


@lru_cache(maxsize=1)
def sensitivity() -> Sensitivity:
    """Energy of 100 J and a loss of 2 nat/token; powers of the numbers, so that all effects are known."""
    scenario = em.load_scenario(SMALL)
    run = TrainingRun(scenario.system, scenario.plan)
    spreads = distributions(scenario, run.values)
    chosen = {  # action, low, high, energy at low and high, loss at low and high
        "system.accelerator.gemm_efficiency": ("measure", 0.6, 0.8, -0.9, (110.0, 92.0), (2.0, 2.0)),
        "system.facility.cooling.coil_approach": ("measure", 5.0, 15.0, 0.05, (99.0, 103.0), (2.0, 2.0)),
        "system.learning.loss_law.data_exponent": ("measure", None, None, 0.0, (None, None), (None, None)),
        "system.workload.hidden": ("measure", None, None, 1.5, (None, None), (None, None)),
        "system.accelerator.peak_flops": ("given", None, None, -0.9, (None, None), (None, None)),
        "system.market.price.delay_cost": ("measure", None, None, None, (None, None), (None, None)),
        "plan.clock": ("change", 0.9, None, 0.5, (95.0, None), (2.0, None)),
        "plan.layout.microbatch": ("change", 2.0, 8.0, 0.1, (104.0, 80.0), (2.0, 2.0)),
    }
    rows = []
    for path, (action, low, high, elasticity, energy, loss) in chosen.items():
        value = run.values[path]
        slope = 7.0 if elasticity is None else elasticity * 100.0 / value
        effects = {"energy": Effect(slope, elasticity, *energy), "loss": Effect(0.0, elasticity and 0.0, *loss)}
        breaks = ((), ("memory",)) if path == "plan.layout.microbatch" else ((), ())
        origin, unlike = scenario.provenance[path], path in run.differences
        row = NumberEffects(
            path, value, origin, spreads.get(path), action, low, high, effects, breaks, is_difference=unlike
        )
        rows.append(row)
    return Sensitivity(scenario, {"energy": 100.0, "loss": 2.0}, tuple(rows))


@lru_cache(maxsize=1)
def of_optimum() -> Sensitivity:
    best, analysis = optimum(), sensitivity()
    rows = []
    for row in analysis.rows:
        effect = dataclasses.replace(row.effects["energy"], exact=row.path.endswith("efficiency"))
        action = "free" if row.action == "change" else row.action
        rows.append(dataclasses.replace(row, action=action, effects={"energy": effect}))
    limits = (
        Limit("time", 86400.0, "s", -0.25, -0.25 * 100.0 / 86400.0, True),
        Limit("facility_power", 20e3, "W", 0.0, 0.0, False),
    )
    return Sensitivity(best.scenario, {"energy": 100.0}, tuple(rows), best, limits)
