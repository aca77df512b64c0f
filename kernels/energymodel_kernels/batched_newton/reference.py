"""A Newton step in plain JAX: the linear algebra of the interior point itself."""

from typing import Any

import jax
import jax.numpy as jnp

from energymodel.solver.newton_system import factorize
from energymodel_kernels.batched_newton.system import Step, System


def solve(systems: System) -> Step:
    """Steps of all problems."""
    return jax.vmap(_solve)(systems)


def _solve(system: Any) -> Step:
    J, S = system.jacobian, system.compliance
    W = jnp.tril(system.hessian) + jnp.tril(system.hessian, -1).T
    A = W + jnp.diag(system.stiffness) + (J.T * S) @ J
    factor, damping, saddle = factorize(A, system.size, jnp.ones_like(system.size), system.damping)
    dx = jax.scipy.linalg.cho_solve((factor, True), system.force - J.T @ (S * system.shift))
    return Step(dx, S * (J @ dx + system.shift), damping, saddle)
