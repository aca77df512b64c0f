"""Many problems at once on the host: same answers, in rounds, with progress and interruption."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, minimize_many


def distance(x, target, power):
    return jnp.sum(jnp.abs(x - target) ** 2) + power * jnp.sum((x - target) ** 4)


def budget(x, target, power):
    return jnp.sum(x) - 1.0


TARGETS = np.random.default_rng(1).normal(size=(11, 3))


def search(**options):
    return minimize_many(
        distance,
        np.zeros((11, 3)),
        (TARGETS,),
        shared=(0.1,),
        bounds=(-1.0, None),
        inequalities=budget,
        chunk=4,
        **options,
    )


def test_lanes_satisfy_their_own_optimality_conditions():
    seen = []
    solution = search(devices=jax.devices(), progress=lambda done, total: seen.append((done, total)))
    assert np.all(solution.result == RESULTS.successful)
    assert seen[-1] == (11, 11)
    assert isinstance(solution.x, np.ndarray)
    assert solution.x.dtype == np.float64
    gradient = 2 * (solution.x - TARGETS) + 0.4 * (solution.x - TARGETS) ** 3
    gradient += solution.multipliers.inequalities[:, None] - solution.multipliers.lower
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7)
    assert np.all(solution.slacks.inequalities > -1e-8)
    warm = minimize_many(
        distance,
        solution.x,
        (TARGETS + 0.01,),
        shared=(0.1,),
        bounds=(-1.0, None),
        inequalities=budget,
        warm=solution.multipliers,
        chunk=4,
    )
    assert np.all(warm.result == RESULTS.successful)
    assert warm.iterations.max() <= 2 < solution.iterations.mean()


def valley(x, steepness):
    return steepness * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


STARTS, STEEPNESS = np.array([[-1.2, 1.0], [1.0, 1.0]]), np.array([100.0, 100.0])


def test_a_lane_goes_on_in_later_rounds():
    rounds = []
    solution = minimize_many(valley, STARTS, (STEEPNESS,), progress=lambda done, total: rounds.append(done))
    assert rounds[0] == 1 < rounds[-1]
    np.testing.assert_allclose(solution.x, 1.0, atol=1e-6)


def test_interruption_keeps_what_is_done():
    def stop(done, total):
        raise KeyboardInterrupt

    solution = minimize_many(valley, STARTS, (STEEPNESS,), progress=stop)
    np.testing.assert_array_equal(solution.result == RESULTS.interrupted, [True, False])
    np.testing.assert_array_equal(solution.result == RESULTS.successful, [False, True])


def test_interruption_keeps_the_chunks_of_the_first_round():
    """Ctrl-C after the first of three chunks of one round: its two lanes are done, of the others only x0 is known."""
    targets = np.linspace(-1.0, 1.0, 6)

    def stop(done, total):
        raise KeyboardInterrupt

    solution = minimize_many(parabola, np.full(6, 0.25), (targets,), progress=stop, chunk=2)
    done = np.asarray(solution.result == RESULTS.successful)
    assert done.sum() == 2
    np.testing.assert_array_equal(solution.result == RESULTS.interrupted, ~done)
    np.testing.assert_allclose(solution.x[done], targets[done], atol=1e-8)
    np.testing.assert_array_equal(solution.x[~done], 0.25)
    assert np.all(np.isnan(solution.value[~done]))
    assert threading.active_count() < 50


def parabola(x, target):
    return (x - target) ** 2


@pytest.mark.slow
def test_float32_lanes_say_that_they_are_rounded():
    solution = search(dtype=np.float32)
    exact = search()
    assert solution.x.dtype == np.float32
    rounded = np.asarray(solution.result == RESULTS.rounded)
    assert np.all(rounded | np.asarray(solution.result == RESULTS.successful))
    assert rounded.sum() >= 8
    assert np.all(solution.residual[rounded] > 1e-8)
    np.testing.assert_allclose(solution.x, exact.x, atol=2e-3)
    np.testing.assert_allclose(solution.value, exact.value, atol=1e-4)


DEVICES = """
import importlib
import jax, numpy as np

lanes = importlib.import_module("energymodel.solver.minimize_many")  # the package has the function under this name

assert len(jax.devices()) == 2
seen = set()
whole = lanes._iterate_chunk
def spy(family, lanes_, state, limit, mesh):
    seen.add(None if mesh is None else mesh.size)
    return whole(family, lanes_, state, limit, mesh)
lanes.round_all = lanes.Compiled(spy)

def cost(x, target, power):
    return jax.numpy.sum((x - target) ** 2) + power * jax.numpy.sum((x - target) ** 4)

targets = np.random.default_rng(1).normal(size=(11, 3))
def search(devices):
    return lanes.minimize_many(
        cost, np.zeros((11, 3)), (targets,), shared=(0.1,), bounds=(-1.0, None),
        inequalities=lambda x, target, power: jax.numpy.sum(x) - 1.0, chunk=4, devices=devices,
    )

both, one = search(None), search(jax.devices()[:1])
assert seen == {2, None}, seen
np.testing.assert_array_equal(both.iterations, one.iterations)
np.testing.assert_allclose(both.x, one.x, atol=1e-12)
np.testing.assert_allclose(both.multipliers.inequalities, one.multipliers.inequalities, atol=1e-10)
print("shared", both.iterations.sum())
"""


@pytest.mark.slow
def test_devices_share_the_lanes():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", DEVICES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shared")


def test_lanes_must_agree():
    with pytest.raises(ValueError, match="leading axis"):
        minimize_many(distance, np.zeros((3, 2)), (np.zeros((4, 2)), np.zeros(3)))
    with pytest.raises(ValueError, match="no lanes"):
        minimize_many(distance, np.zeros((0, 2)), (np.zeros((0, 2)), np.zeros(0)))
