"""A lower clock between steps: what it saves, that switching costs, and that a search finds it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.optimize import optimize
from energymodel.system.evaluate import evaluate, evaluate_once
from energymodel.system.step import low_clock_share

SMALL = "test-1b-h100"


def outcome(*changes):
    scenario = load_scenario(SMALL, changes)
    with jax.enable_x64(True):
        return jax.device_get(evaluate_once(scenario.system, scenario.plan))


def test_a_wait_at_the_lowest_clock_changes_nothing():
    lowest = float(load_scenario(SMALL).system.accelerator.minimum_clock)
    own, same = (outcome(f"plan.clock={lowest}", f"plan.waiting_clock={share}") for share in (1.0, 0.5))
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12)  # there is no lower clock


def test_a_lower_clock_saves_waiting_energy_and_swings_more():
    own, low = outcome(), outcome("plan.waiting_clock=0.3")
    assert low.time == own.time
    assert low.energy.idle_wait < 0.8 * own.energy.idle_wait
    assert low.power_swing > own.power_swing
    assert low.checkpoint_swing > own.checkpoint_swing


def test_slow_switches_leave_nothing_to_save():
    own = outcome()
    slow = outcome("plan.waiting_clock=0.3", "system.accelerator.clock_switch_time=10 s")
    np.testing.assert_allclose(slow.energy.idle_wait, own.energy.idle_wait, rtol=0.02)  # but for checkpoints
    assert low_clock_share(0.5, 0.1) == pytest.approx(0.6)
    assert low_clock_share(0.1, 0.1) == 0.0
    assert low_clock_share(0.0, 0.1) == 0.0


def test_the_gradient_is_that_of_differences():
    scenario = load_scenario(SMALL, ["plan.waiting_clock=0.7"])

    def energy(clock):
        plan = jax.tree.map(np.asarray, scenario.plan)
        changed = type(plan)(**{**vars(plan), "waiting_clock": clock})
        return jnp.asarray(evaluate(scenario.system, changed).energy.total)

    with jax.enable_x64(True):
        slope = jax.grad(energy)(0.7)
        difference = (energy(0.7 + 1e-5) - energy(0.7 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-6)
    assert slope > 0.0


@pytest.mark.slow
def test_a_search_takes_the_lowest_clock_unless_the_swing_is_limited():
    free = optimize(load_scenario(SMALL), vary={"plan.waiting_clock": (0.3, 1.0)}, tolerance=0.0)
    assert free.found["plan.waiting_clock"] == pytest.approx(0.3, abs=1e-3)
    assert free.value < optimize(load_scenario(SMALL), tolerance=0.0).value
    most = float(free.outcome.power_swing) * 0.95
    held = optimize(
        load_scenario(SMALL), vary={"plan.waiting_clock": (0.3, 1.0)}, limits={"power_swing": most}, tolerance=0.0
    )
    assert float(held.outcome.power_swing) <= most * (1 + 1e-6)
    assert held.value > free.value


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match=r"plan\.waiting_clock: .* is impossible"):
        load_scenario(SMALL, [f"plan.waiting_clock={share}"])
    with pytest.raises(InputError, match="is impossible"):
        load_scenario(SMALL).with_question(vary={"plan.waiting_clock": (share, share + 0.1)})
