"""An answer of a design search, put together by hand from two plans of the small scenario."""

import dataclasses
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np

import energymodel as em
from energymodel.search.result import Conflict, Optimum, Price, RankedLayout, SearchResult, SwitchWorth
from energymodel.system.evaluate import evaluate_once

SMALL = "test-1b-h100"


@lru_cache(maxsize=1)
def optimum() -> Optimum:
    scenario = em.load_scenario(SMALL)
    plan = eqx.tree_at(lambda plan: (plan.clock, plan.batch), scenario.plan, (np.asarray(0.8), np.asarray([262144.0])))
    with jax.enable_x64(True):
        baseline, outcome = (jax.device_get(evaluate_once(scenario.system, plan)) for plan in (scenario.plan, plan))
        energies = [float(run.power_average * run.time) for run in (baseline, outcome)]
    return Optimum(
        scenario=scenario,
        plan=plan,
        outcome=outcome,
        baseline=baseline,
        value=energies[1],
        baseline_value=energies[0],
        value_unit="J",
        limits={"time": 60 * 86400.0, "facility_power": 20e3},
        limit_units={"time": "s", "facility_power": "W"},
        prices={
            "time": Price(elasticity=0.25, price=1000.0, price_unit="J/(s)"),
            "facility_power": Price(elasticity=0.0, price=0.0, price_unit="J/(W)"),
        },
        active=("time",),
        varied=("plan.clock", "plan.batch", "plan.chips"),
        layouts_considered=385,
        layouts_feasible=7,
        runner_up=RankedLayout(layout=scenario.plan.layout, excess=0.0125),
        relaxed_value=0.99 * energies[1],
        gap=0.01,
        result=SearchResult.successful,
        message="",
        conflicts=(),
        switches=(
            SwitchWorth("fp8", 0.25, True),
            SwitchWorth("cuda_graphs", 0.03, True),
            SwitchWorth("offload_optimizer", -0.1, False),
        ),
        statistics={
            "layouts_searched": 6,
            "layouts_left": 0,
            "others_excess": 0.25,
            "restarts": 32,
            "restarts_agreeing": 31,
            "restarts_astray": 0,
            "restarts_spread": 0.05,
        },
    )


def infeasible(**changes: Any) -> Optimum:
    return dataclasses.replace(
        optimum(),
        result=SearchResult.infeasible,
        message="No plan obeys these limits together.",
        conflicts=(Conflict("time", 86400.0, 2 * 86400.0, "s"),),
        gap=float("inf"),
        runner_up=None,
        **changes,
    )
