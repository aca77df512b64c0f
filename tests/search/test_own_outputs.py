"""Functions of the outcome as objectives and limits: the same search, the same plan, and clear refusals."""

import jax.numpy as jnp
import numpy as np
import pytest

import energymodel
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.optimize import optimize
from energymodel.sweeps.first_order import saving_at_risk
from energymodel.system.outputs import own_output

SMALL = "test-1b-h100"


def joules(outcome):
    return outcome.energy.total


def price_of_token(outcome):
    return outcome.money / outcome.tokens


@pytest.fixture(scope="module")
def by_name():
    return optimize(load_scenario(SMALL), tolerance=0.0)


@pytest.fixture(scope="module")
def by_function():
    return optimize(load_scenario(SMALL), minimize=joules, tolerance=0.0)


@pytest.mark.slow
def test_a_function_that_is_an_output_gives_its_plan(by_name, by_function):
    assert by_function.minimize == "joules"
    np.testing.assert_allclose(by_function.value, by_name.value, rtol=1e-6)
    assert by_function.plan.layout == by_name.plan.layout
    for name, price in by_name.prices.items():
        assert by_function.prices[name].elasticity == pytest.approx(price.elasticity, abs=1e-4)


@pytest.mark.slow
def test_its_saving_has_the_same_interval(by_name, by_function):
    same, other = saving_at_risk(by_name), saving_at_risk(by_function)
    assert same.found is not None
    assert other.found is not None
    assert other.found.deviation("joules") == pytest.approx(same.found.deviation("energy"), rel=1e-6)


@pytest.mark.slow
def test_a_limit_on_a_function_binds():
    own = optimize(load_scenario(SMALL), limits={price_of_token: 8.67e-9}, tolerance=0.0)
    assert own.success, own.message
    assert float(own.outcome.money / own.outcome.tokens) <= 8.67e-9 * (1 + 1e-6)
    assert own.limits["price_of_token"] == 8.67e-9


def test_the_same_function_has_the_same_name():
    name = energymodel.own_output(lambda outcome: outcome.time, "s", "days_of_run")
    assert name == "days_of_run"
    with pytest.raises(InputError, match="another output has this name"):
        own_output(lambda outcome: 2.0 * outcome.time, "s", "days_of_run")
    with pytest.raises(InputError, match="another output has this name"):
        own_output(lambda outcome: 2.0 * outcome.time, "s", "time")
    with pytest.raises(InputError, match="letters, digits"):
        own_output(joules, "J", "my output")


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda outcome: -outcome.time, "needs a positive number"),
        (lambda outcome: outcome.nothing, "has no attribute 'nothing'"),
        (lambda outcome: float(outcome.time), "cannot be traced"),
        (lambda outcome: jnp.stack([outcome.time, outcome.money]), "is no output"),
    ],
)
def test_what_is_no_output_is_refused(function, match):
    with pytest.raises(InputError, match=match):
        optimize(load_scenario(SMALL), minimize=function)
