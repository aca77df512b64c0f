"""Numbers of each scenario that nobody has measured: few, each with a spread."""

import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import energymodel as em
from energymodel.scenarios.files import names
from energymodel.scenarios.scenario import priors, switched_off

SCENARIOS = names("scenarios")
MOST = 68
# TPU v4 and B200: their makers publish neither power, efficiency nor prices, so that more is taken from other chips.
MORE = {"chinchilla-70b-tpu-v4": 94, "llama-3.1-70b-b200": 76}


@pytest.mark.parametrize("name", SCENARIOS)
def test_few_numbers_are_priors_and_each_has_a_spread(name):
    scenario = em.load_scenario(name)
    assumed = priors(scenario)
    assert 20 < len(assumed) <= MORE.get(name, MOST)
    every = [path for path, origin in scenario.provenance.items() if path.startswith("system.") and origin.is_prior]
    assert sorted([*assumed, *switched_off(scenario)]) == sorted(every)
    without = [path for path in every if not scenario.provenance[path].distribution]
    assert not without
    assert set(every) <= set(scenario.uncertainty)


def test_what_is_switched_off_has_no_effect():
    scenario = em.load_scenario("test-1b-h100")
    paths = switched_off(scenario)
    assert len(paths) == 4

    @eqx.filter_jit
    def outcome(system):
        result = em.evaluate(system, scenario.plan)
        return jnp.stack([sum(jax.tree.leaves(result.energy)), result.time, result.money, result.loss])

    def with_half(path):
        number = operator.attrgetter(path.removeprefix("system."))
        return eqx.tree_at(number, scenario.system, 0.5 * number(scenario.system))

    own = outcome(scenario.system)
    for path in paths:
        assert jnp.array_equal(outcome(with_half(path)), own), path
    assert not jnp.array_equal(outcome(with_half("system.accelerator.busy_power")), own)


def test_experts_bring_their_priors_into_play():
    assert "system.software.expert_overlap" in priors(em.load_scenario("deepseek-v3-h800"))
    dense = em.load_scenario("test-1b-h100")
    gated = em.load_scenario("test-1b-h100", {"system.accelerator.gate.fraction": 0.5})
    assert len(priors(gated)) == len(priors(dense)) + 3
