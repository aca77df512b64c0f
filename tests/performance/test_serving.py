"""Serving: chip time by arithmetic or memory, what a life costs beside a run, and the model that it asks for."""

import numpy as np
import pytest

from energymodel.performance.serving import NoServing, writing_time
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.architecture import optimize_architecture
from outcomes import outcome_of

SMALL = "test-1b-h100"
SERVED = ("system.serving.read_tokens=2 T tokens", "system.serving.written_tokens=0.2 T tokens")


def test_without_served_tokens_the_life_is_the_run():
    own = outcome_of(SMALL)
    assert load_scenario(SMALL).system.serving == NoServing()
    assert own.serving_chip_time == 0.0
    np.testing.assert_allclose(own.lifetime_energy, own.energy.total, rtol=1e-12)
    np.testing.assert_allclose(own.lifetime_money, own.money, rtol=1e-12)
    np.testing.assert_allclose(own.lifetime_carbon, own.carbon, rtol=1e-12)


def test_a_life_costs_what_chips_cost_that_serve():
    own, served = outcome_of(SMALL), outcome_of(SMALL, *SERVED)
    assert served.time == own.time
    hours = served.serving_chip_time
    assert hours > 0.0
    np.testing.assert_allclose(
        served.lifetime_energy - own.lifetime_energy, own.energy.total * hours / own.chip_time, rtol=1e-9
    )
    np.testing.assert_allclose(served.lifetime_carbon - own.carbon, own.carbon * hours / own.chip_time, rtol=1e-6)
    # The price of chips and energy is in proportion to chip time; the value of time is of the run alone.
    np.testing.assert_allclose(served.lifetime_money - own.money, own.money * hours / own.chip_time, rtol=1e-6)


def test_serving_by_hand():
    workload, chip = load_scenario(SMALL).system.workload, load_scenario(SMALL).system.accelerator
    served = outcome_of(SMALL, "system.serving.read_tokens=1 T tokens", "system.serving.written_tokens=0 token")
    by_hand = 1e12 * 2.0 * float(workload.active_parameters) / (0.4 * float(chip.peak_flops) * float(served.clock))
    np.testing.assert_allclose(served.serving_chip_time, by_hand, rtol=1e-9)
    read = 1e-5
    assert writing_time(read, 2e9, 0.0, 1e9, 1e12) == read
    np.testing.assert_allclose(writing_time(read, 2e9, 0.0, 1.0, 1e12), 2e-3)


@pytest.mark.slow
def test_a_model_that_serves_much_is_smaller():
    """Sardana & Frankle 2023: who expects to serve much trains a smaller model on more tokens."""
    limits = {"time": "30 d"}
    trained = optimize_architecture(load_scenario(SMALL), "lifetime_energy", limits, names=["hidden"])
    read = "system.serving.read_tokens=10 T tokens", "system.serving.written_tokens=0 token"
    served = optimize_architecture(load_scenario(SMALL, read), "lifetime_energy", limits, names=["hidden"])
    assert served.optimum.system.workload.parameters < 0.9 * trained.optimum.system.workload.parameters
    assert served.optimum.outcome.tokens > trained.optimum.outcome.tokens


@pytest.mark.parametrize("change", ["system.serving.utilization=0", "system.serving.sequences=0"])
def test_impossible_serving_is_refused(change):
    with pytest.raises(Exception, match="is impossible"):
        load_scenario(SMALL, (*SERVED, change))
