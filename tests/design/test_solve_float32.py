"""The solver in float32: it stops where rounding allows."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from energymodel.design.solve import RESULTS, minimize

PRECISION = 32


def test_hock_schittkowski_71_in_float32():
    """[Hock & Schittkowski 1981, no. 71]: optimum 17.0140173."""
    quick = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
    fast = eqx.filter_jit(minimize, compiler_options=quick)  # pyright: ignore[reportCallIssue]
    solution = fast(
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        jnp.array([1.0, 5.0, 5.0, 1.0]),
        bounds=(1.0, 5.0),
        inequalities=lambda x: 25.0 - jnp.prod(x),
        equalities=lambda x: x @ x - 40.0,
    )
    assert bool(solution.result == RESULTS.successful)
    assert solution.value.dtype == jnp.float32
    np.testing.assert_allclose(solution.value, 17.0140173, rtol=2e-4)
