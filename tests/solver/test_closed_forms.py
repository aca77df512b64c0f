"""The constrained solver on problems with a closed form: docs/physics.md, section C."""

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.solver import RESULTS, SolverOptions, minimize
from solver.problems import ended, fast


def test_clock_of_least_energy_and_of_least_energy_delay():
    """T1: P = a f^3 + P_i; E/op = P/f at f = (P_i / 2a)^(1/3), energy times delay P/f^2 at a f^3 = 2 P_i."""

    def energy_delay(x, n):
        f = jnp.exp(x)
        return jnp.log(200 * f**3 + 100.0) - (1 + n) * x

    n = jnp.array([0.0, 1.0, 0.5, 2.0])
    solution = jax.jit(jax.vmap(lambda n: minimize(energy_delay, 0.5, args=(n,), bounds=(-3.0, 1.0))))(n)
    np.testing.assert_allclose(jnp.exp(solution.x[0]), 0.62996, atol=5e-6)
    np.testing.assert_allclose(jnp.exp(solution.value[0]), 238.11, atol=5e-3)
    np.testing.assert_allclose(jnp.exp(solution.x[1]), 1.0, atol=1e-8)
    # General n < 2: a f^3 = P_i (n + 1) / (2 - n); at n >= 2 the highest clock.
    np.testing.assert_allclose(200 * jnp.exp(3 * solution.x[2]), 100 * 1.5 / 1.5, rtol=1e-8)
    np.testing.assert_allclose(solution.x[3], 1.0, atol=1e-8)


def test_search_lands_on_the_knee_of_the_voltage_floor():
    """T2: below the knee P = P_s + k phi, so slower costs more; above it the voltage rises, faster costs more."""

    def energy(phi):
        voltage = jnp.where(phi > 0.6, 0.7 + 2.0 * (phi - 0.6), 0.7)
        return (140.0 + 660.0 * phi * voltage**2) / phi

    # Right of the knee dE/dphi = -140/phi^2 + 660 * 2 * 0.7 * 2 > 0, left of it -140/phi^2 < 0: a true kink.
    options = SolverOptions(max_iterations=200)
    search = jax.vmap(lambda start: minimize(energy, start, bounds=(0.2, 1.0), options=options))
    np.testing.assert_allclose(jax.jit(search)(jnp.array([0.35, 0.9])).x, 0.6, atol=1e-3)
    # With an epigraph variable for the voltage the kink is a constraint, and the search converges on it.
    smooth = fast(
        lambda x: (140.0 + 660.0 * x[0] * x[1] ** 2) / x[0],
        jnp.array([0.9, 1.4]),
        bounds=(0.2, 2.0),
        inequalities=lambda x: jnp.stack([0.7 - x[1], 0.7 + 2.0 * (x[0] - 0.6) - x[1]]),
    )
    assert ended(smooth, RESULTS.successful)
    np.testing.assert_allclose(smooth.x, [0.6, 0.7], atol=1e-8)


def test_optimal_batch():
    """T3: tokens (1 + B/B_c)^beta times time per token (1 + B_h/B)^gamma, with a share of the power always on."""
    critical, fixed = 4e6, 2.5e5

    def cost(x, beta, gamma, share):
        b = jnp.exp(x)
        # Power P_i + P_d R/R0 times the time: the idle share pays for (1 + B_h/B), the rest for the work alone.
        time = (1 + fixed / b) ** gamma
        return beta * jnp.log1p(b / critical) + jnp.log(share * time + (1 - share))

    cases = jnp.array([[0.8, 0.6, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.3]])
    solution = jax.jit(
        jax.vmap(lambda case: minimize(cost, np.log(1e5), args=tuple(case), bounds=(np.log(1e3), np.log(1e9))))
    )(cases)
    np.testing.assert_allclose(jnp.exp(solution.x), [8.3534e5, 1.000e6, 5.4772e5], rtol=6e-5)
    np.testing.assert_allclose(jnp.exp(solution.value[1]), 1.5625, rtol=1e-8)


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


def test_one_dimensional_optima():
    """T6: checkpoint overhead delta/tau + tau/2M; T7: line size; T9: link width; T10: cache size; T13: fan speed."""
    starts = jnp.array([5.0, 3.0, 1.0, 9.0, 0.0])

    def costs(x):
        return [
            30.0 / jnp.exp(x) + jnp.exp(x) / (2 * 11135.1),
            (1 + jnp.exp(x) / 256) * (1 + 24 * jnp.exp(-x)),
            (1 + 0.005 * jnp.exp(x)) * (1 + 8 * jnp.exp(-x)),
            200 * jnp.exp(-x / 2) + 0.1 * jnp.exp(x / 2) / 64,
            20 * jnp.exp(3 * x) + 10 * jnp.exp(-x),
        ]

    def cost(x, chosen):
        return jnp.log(chosen @ jnp.stack(costs(x)))

    search = jax.vmap(lambda start, chosen: minimize(cost, start, args=(chosen,), bounds=(-20.0, 20.0)))
    solution = jax.jit(search)(starts, jnp.eye(5))
    assert np.all(np.asarray(solution.result == RESULTS.successful))
    np.testing.assert_allclose(jnp.exp(solution.x), [817.377, 78.3837, 40.0, 1.28e5, 0.638943], rtol=1e-6)
    np.testing.assert_allclose(jnp.exp(solution.value[2]), 1.44, rtol=1e-9)
