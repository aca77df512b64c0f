"""The solver in float32: it stops where rounding allows, and says so."""

import jax.numpy as jnp
import numpy as np

from energymodel.solver import RESULTS, SolverOptions
from energymodel.solver.solution import reachable_tolerance
from solver.problems import HS71, fast

PRECISION = 32


def hock_schittkowski_71(**options):
    return fast(**{**HS71, "x0": HS71["x0"].astype(np.float32)}, **options)


def test_hock_schittkowski_71_is_rounded_in_float32():
    solution = hock_schittkowski_71(throw=True)
    assert bool(solution.result == RESULTS.rounded)
    assert "float64" in RESULTS[RESULTS.rounded]
    assert 1e-8 < float(solution.residual) <= reachable_tolerance(SolverOptions().tolerance, np.dtype(np.float32))
    assert solution.value.dtype == jnp.float32
    np.testing.assert_allclose(solution.value, 17.0140173, rtol=2e-4)


def test_a_tolerance_that_float32_reaches_is_success():
    solution = hock_schittkowski_71(options=SolverOptions(tolerance=1e-3))
    assert bool(solution.result == RESULTS.successful)
    np.testing.assert_allclose(solution.value, 17.0140173, rtol=2e-3)
