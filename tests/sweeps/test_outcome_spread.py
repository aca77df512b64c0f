"""Spread of every output by the uncertain numbers of its system."""

import dataclasses
import math

import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.report.answers.plan_fields import total
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import DEVIATIONS, outcome_spread
from energymodel.system.evaluate import evaluate_once

SCENARIO = em.load_scenario("test-1b-h100")
INTENSITY = "system.market.carbon.intensity"


def spread_of(**uncertainty):
    return outcome_spread(dataclasses.replace(SCENARIO, uncertainty=uncertainty))


def test_carbon_is_as_uncertain_as_the_grid_and_energy_is_not():
    # Half of what lies between the quantiles at one standard deviation of a lognormal 0.1: sinh(0.1).
    spread = spread_of(**{INTENSITY: "lognormal 0.1"})
    assert spread.deviation("carbon_operational") == pytest.approx(math.sinh(0.1), rel=1e-6)
    assert spread.deviation("carbon_operational^2*energy") == pytest.approx(2.0 * math.sinh(0.1), rel=1e-6)
    assert spread.deviation("energy") == 0.0
    low, high = spread.interval("carbon_operational")
    assert math.sqrt(low * high) == pytest.approx(float(spread.outcome.carbon_operational))
    assert math.log(high / low) == pytest.approx(2.0 * DEVIATIONS * math.sinh(0.1), rel=1e-6)


def test_a_change_is_the_slope_times_one_deviation():
    path = "system.accelerator.gemm_efficiency"
    spread = spread_of(**{path: "normal 0.05"})
    with jax.enable_x64(True):
        run = TrainingRun(SCENARIO.system, SCENARIO.plan)
        value = run.values[path]
        ends = [run.at(run.changed(path, value * (1.0 + step))) for step in (1e-5, -1e-5)]
        energies = [total(evaluate_once(end.system, end.plan).energy) for end in ends]
    slope = (energies[0] - energies[1]) / (2e-5 * value)
    np.testing.assert_allclose(spread.change("energy"), [0.05 * slope], rtol=1e-3)


def test_parts_move_as_their_total():
    spread = outcome_spread(SCENARIO)
    parts = sum(np.asarray(part) for part in jax.tree.leaves(spread.moved.energy))
    np.testing.assert_allclose(parts, spread.change("energy"))
    assert len(spread.change("energy")) > 20


def test_a_share_is_at_most_one():
    spread = spread_of(**{"system.accelerator.gemm_efficiency": "normal 5"})
    assert spread.interval("mfu")[1] == 1.0
    assert spread.interval("token_rate")[1] > float(spread.outcome.token_rate)


def test_nothing_uncertain_is_exact():
    spread = spread_of()
    energy = total(spread.outcome.energy)
    assert spread.interval("energy") == (energy, energy)
