"""Rollout engines: time of an iteration by hand, its limits, and slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.performance.post_training import IterationLoad, RolloutEngine
from energymodel.scenarios.components import build
from energymodel.scenarios.scenario import load_scenario

SMALL = "test-1b-h100"


@pytest.fixture(scope="module")
def load():
    """An engine of one chip with 128 answers."""
    return IterationLoad(
        *(load_scenario(SMALL).system.workload, 1.0, 1.0, 1e15, 2e12, 40e9),
        *(128.0, 100.0, 500.0, 2000.0),
        *(0.1, 2.0, 0.5, 0.0, 1.0, 0.0, 0.0),
    )


@pytest.fixture(scope="module")
def engine():
    return build("paged", RolloutEngine, "engine", {})


def test_an_iteration_by_hand(engine, load):
    """All answers at once: 2,000 steps that read the weights, and a cache of 100 + 250 tokens for each token."""
    model = load.model
    weights, token = 2.0 * float(model.parameters), 2.0 * float(model.cache_width)
    time = engine.iteration(load)
    traffic = (2000.0 * weights + 64e3 * 350.0 * token) / (0.8 * 2e12)
    arithmetic = 2.0 * float(model.active_parameters) / (0.5 * 1e15)
    assert traffic > 64e3 * arithmetic
    np.testing.assert_allclose(time.writing, traffic + 2000.0 * 0.004 + 64e3 * 2e-5, rtol=1e-9)
    np.testing.assert_allclose(time.reading, 128.0 * 100.0 * arithmetic, rtol=1e-9)
    np.testing.assert_allclose(time.actor, 1.4 * (0.1 * 600.0 + 2.0), rtol=1e-9)
    np.testing.assert_allclose(time.scoring, 1.4 * 0.5 * 0.1 * 600.0, rtol=1e-9)
    np.testing.assert_allclose(time.total, sum(time[:7]), rtol=1e-9)
    assert time.at_once == 128.0


def test_memory_bounds_the_answers_at_once(engine, load):
    token, weights = 2.0 * float(load.model.cache_width), 2.0 * float(load.model.parameters)
    tight = load._replace(memory=3e9 + weights + 32.0 * 600.0 * token)
    np.testing.assert_allclose(engine.iteration(tight).at_once, 32.0, rtol=1e-9)
    assert engine.iteration(tight).writing > engine.iteration(load).writing
    assert engine.iteration(load._replace(memory=weights)).at_once < 0.0  # no cache: nothing can be written


def test_chips_of_their_own_overlap(engine, load):
    apart, together = engine.iteration(load._replace(overlap=1.0)), engine.iteration(load)
    written, trained = together.reading + together.writing, together.scoring + together.actor
    np.testing.assert_allclose(apart.total, together.total - jnp.minimum(written, trained), rtol=1e-9)


@pytest.mark.parametrize("field", ["sequences", "prompt", "answer", "longest", "per_token", "transfer"])
def test_more_work_takes_longer_and_slopes_are_finite(engine, load, field):
    def total(value):
        return engine.iteration(load._replace(**{field: value})).total

    slope = jax.grad(total)(jnp.asarray(float(getattr(load, field))))
    assert 0.0 < slope < jnp.inf
