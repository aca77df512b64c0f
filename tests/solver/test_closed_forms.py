"""The constrained solver on problems with a closed form: docs/physics.md, section C."""

import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver import RESULTS, SolverOptions
from solver.problems import ended, fast


def test_clock_of_least_energy_and_of_least_energy_delay():
    """T1: P = a f^3 + P_i; E/op = P/f at f = (P_i / 2a)^(1/3), energy times delay P/f^2 at a f^3 = 2 P_i."""

    def energy_delay(x, n):
        f = jnp.exp(x)
        return jnp.log(200 * f**3 + 100.0) - (1 + n) * x

    energy = fast(energy_delay, 0.5, args=(0.0,), bounds=(-3.0, 1.0))
    np.testing.assert_allclose(jnp.exp(energy.x), 0.62996, atol=5e-6)
    np.testing.assert_allclose(jnp.exp(energy.value), 238.11, atol=5e-3)
    np.testing.assert_allclose(jnp.exp(fast(energy_delay, 0.5, args=(1.0,), bounds=(-3.0, 1.0)).x), 1.0, atol=1e-8)
    # General n < 2: a f^3 = P_i (n + 1) / (2 - n); at n >= 2 the highest clock.
    general = fast(energy_delay, 0.5, args=(0.5,), bounds=(-3.0, 1.0))
    np.testing.assert_allclose(200 * jnp.exp(3 * general.x), 100 * 1.5 / 1.5, rtol=1e-8)
    np.testing.assert_allclose(fast(energy_delay, 0.5, args=(2.0,), bounds=(-3.0, 1.0)).x, 1.0, atol=1e-8)


def test_search_lands_on_the_knee_of_the_voltage_floor():
    """T2: below the knee P = P_s + k phi, so slower costs more; above it the voltage rises, faster costs more."""

    def energy(phi):
        voltage = jnp.where(phi > 0.6, 0.7 + 2.0 * (phi - 0.6), 0.7)
        return (140.0 + 660.0 * phi * voltage**2) / phi

    # Right of the knee dE/dphi = -140/phi^2 + 660 * 2 * 0.7 * 2 > 0, left of it -140/phi^2 < 0: a true kink.
    for start in (0.35, 0.9):
        solution = fast(energy, start, bounds=(0.2, 1.0), options=SolverOptions(max_iterations=200))
        np.testing.assert_allclose(solution.x, 0.6, atol=1e-3)
    # With an epigraph variable for the voltage the kink is a constraint, and the search converges on it.
    smooth = fast(
        lambda x: (140.0 + 660.0 * x[0] * x[1] ** 2) / x[0],
        jnp.array([0.9, 1.4]),
        bounds=(0.2, 2.0),
        inequalities=lambda x: jnp.stack([0.7 - x[1], 0.7 + 2.0 * (x[0] - 0.6) - x[1]]),
    )
    assert ended(smooth, RESULTS.successful)
    np.testing.assert_allclose(smooth.x, [0.6, 0.7], atol=1e-8)


@pytest.mark.parametrize(
    ("beta", "gamma", "critical", "fixed", "share", "batch"),
    [
        (0.8, 0.6, 4e6, 2.5e5, 1.0, 8.3534e5),
        (1.0, 1.0, 4e6, 2.5e5, 1.0, 1.000e6),
        (1.0, 1.0, 4e6, 2.5e5, 0.3, 5.4772e5),
    ],
)
def test_optimal_batch(beta, gamma, critical, fixed, share, batch):
    """T3: tokens (1 + B/B_c)^beta times time per token (1 + B_h/B)^gamma, with a share of the power always on."""

    def cost(x):
        b = jnp.exp(x)
        # Power P_i + P_d R/R0 times the time: the idle share pays for (1 + B_h/B), the rest for the work alone.
        time = (1 + fixed / b) ** gamma
        return beta * jnp.log1p(b / critical) + jnp.log(share * time + (1 - share))

    solution = fast(cost, np.log(1e5), bounds=(np.log(1e3), np.log(1e9)))
    np.testing.assert_allclose(jnp.exp(solution.x), batch, rtol=6e-5)
    if share == 1.0 and beta == 1.0:
        np.testing.assert_allclose(jnp.exp(solution.value), 1.5625, rtol=1e-8)


def test_compute_optimal_model_and_its_dual():
    """T4: least loss at C = 5.76e23 FLOP, and least compute at a loss of 2.0, with the constants of B1."""
    E0, A, alpha, b, beta = 1.8172, 482.01, 0.3478, 2085.43, 0.3658

    def gap(x):
        return A * jnp.exp(-alpha * x[0]) + b * jnp.exp(-beta * x[1])

    x0 = jnp.log(jnp.array([1e10, 1e12]))
    budget = fast(lambda x: jnp.log(gap(x)), x0, inequalities=lambda x: jnp.log(6.0) + jnp.sum(x) - jnp.log(5.76e23))
    np.testing.assert_allclose(jnp.exp(budget.x), [7.225e10, 1.329e12], rtol=4e-4)
    target = fast(lambda x: jnp.log(6.0) + jnp.sum(x), x0, inequalities=lambda x: jnp.log(gap(x) / (2.0 - E0)))
    np.testing.assert_allclose(jnp.exp(target.x), [4.686e10, 8.803e11], rtol=2e-4)
    np.testing.assert_allclose(jnp.exp(target.value), 2.4748e23, rtol=3e-5)


def test_water_filling_of_square_root_devices():
    """T5: max sum c sqrt(P), sum P = 60: P proportional to c^2, value sqrt(60 * 98)."""
    c = jnp.array([1.0, 4.0, 9.0])
    solution = fast(
        lambda p: -c @ jnp.sqrt(p), jnp.full(3, 20.0), bounds=(0.0, None), inequalities=lambda p: jnp.sum(p) - 60.0
    )
    np.testing.assert_allclose(solution.x, [0.6122, 9.7959, 49.5918], atol=6e-5)
    np.testing.assert_allclose(-solution.value, 76.6812, atol=5e-5)
    np.testing.assert_allclose(solution.multipliers.inequalities, 0.5 * np.sqrt(98 / 60), rtol=1e-7)


def test_water_filling_of_cube_root_devices():
    """T5: throughput k (P - s)^(1/3), s = 10, sum P = 90: P - s proportional to k^(3/2)."""
    k = jnp.array([1.0, 2.0, 4.0])
    solution = fast(
        lambda p: -k @ jnp.cbrt(p - 10.0),
        jnp.full(3, 30.0),
        bounds=(10.0, 90.0),
        equalities=lambda p: jnp.sum(p) - 90.0,
    )
    np.testing.assert_allclose(solution.x, [15.0725, 24.3473, 50.5802], atol=6e-5)
    np.testing.assert_allclose(-solution.value, 20.3237, atol=6e-5)


def test_water_filling_with_an_idle_channel():
    """T5: max sum ln(1 + g P), sum P = 6: level 4.5, the third channel gets nothing."""
    g = jnp.array([1.0, 0.5, 0.2])
    solution = fast(
        lambda p: -jnp.sum(jnp.log1p(g * p)),
        jnp.full(3, 2.0),
        bounds=(0.0, None),
        equalities=lambda p: jnp.sum(p) - 6.0,
    )
    np.testing.assert_allclose(solution.x, [3.5, 2.5, 0.0], atol=1e-8)
    np.testing.assert_allclose(-solution.value, 2.31501, atol=5e-6)
    np.testing.assert_allclose(solution.multipliers.equalities, 1 / 4.5, rtol=1e-8)
    np.testing.assert_allclose(solution.multipliers.lower[2], 1 / 4.5 - 0.2, rtol=1e-6)


@pytest.mark.parametrize(
    ("cost", "start", "best", "value"),
    [
        # T6: checkpoint overhead delta/tau + tau/2M; T7: line size; T9: link width; T10: cache size; T13: fan speed.
        (lambda x: jnp.log(30.0 / jnp.exp(x) + jnp.exp(x) / (2 * 11135.1)), 5.0, 817.377, None),
        (lambda x: jnp.log1p(jnp.exp(x) / 256) + jnp.log1p(24 * jnp.exp(-x)), 3.0, 78.3837, None),
        (lambda x: jnp.log((1 + 0.005 * jnp.exp(x)) * (1 + 8 * jnp.exp(-x))), 1.0, 40.0, 1.44),
        (lambda x: jnp.log(200 * jnp.exp(-x / 2) + 0.1 * jnp.exp(x / 2) / 64), 9.0, 1.28e5, None),
        (lambda x: jnp.log(20 * jnp.exp(3 * x) + 10 * jnp.exp(-x)), 0.0, 0.638943, None),
    ],
    ids=["T6", "T7", "T9", "T10", "T13"],
)
def test_one_dimensional_optima(cost, start, best, value):
    solution = fast(cost, start)
    assert ended(solution, RESULTS.successful)
    np.testing.assert_allclose(jnp.exp(solution.x), best, rtol=1e-6)
    if value is not None:
        np.testing.assert_allclose(jnp.exp(solution.value), value, rtol=1e-9)
