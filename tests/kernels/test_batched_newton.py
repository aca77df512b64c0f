from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.solver.newton_system import DAMPINGS, factorize
from energymodel_kernels.batched_newton import Step, System, batched_newton
from energymodel_kernels.batched_newton.shapes import TESTED
from gradients import compiled_once


def systems(problems, n, m, dtype: Any = np.float64, seed=3):
    """Random problems; every third is not convex, and the last variable of each is fixed."""
    draw = np.random.default_rng(seed)
    root = draw.normal(size=(problems, n, n))
    hessian = root @ root.transpose(0, 2, 1) / n
    hessian[::3] -= np.eye(n) * draw.uniform(0.0, 3.0, size=(hessian[::3].shape[0], 1, 1))
    jacobian = draw.normal(size=(problems, m, n))
    free = np.ones((problems, n))
    if n > 1:
        free[:, -1] = 0.0
    hessian, jacobian = hessian * free[:, None] * free[:, :, None], jacobian * free[:, None]
    size = np.abs(hessian).sum(axis=2).max(axis=1)[:, None] * free
    parts = System(
        hessian=hessian,
        jacobian=jacobian,
        compliance=np.exp(draw.normal(-2.0, 1.0, size=(problems, m))),
        stiffness=np.where(free > 0, np.exp(draw.normal(-3.0, 1.0, size=(problems, n))), 1.0),
        size=size,
        damping=np.where(np.arange(problems) % 5 == 4, 1e-3, 0.0),
        force=draw.normal(size=(problems, n)) * free,
        shift=draw.normal(size=(problems, m)),
    )
    return jax.tree.map(lambda part: jnp.asarray(part, dtype), parts)


def solved(parts, implementation):
    return compiled_once(lambda parts: batched_newton(parts, implementation=implementation), parts)


def damped(parts, damping):
    """Condensed matrices in NumPy, float64."""
    W, J, S = (np.asarray(part, np.float64) for part in (parts.hessian, parts.jacobian, parts.compliance))
    diagonal = np.asarray(parts.stiffness, np.float64) + np.asarray(parts.size, np.float64) * damping[:, None]
    return W + np.einsum("pki,pk,pkj->pij", J, S, J) + np.einsum("pi,ij->pij", diagonal, np.eye(W.shape[1]))


def backward_error(parts, step):
    """Residual of the Newton equations relative to the size of their terms, in float64."""
    J, S = (np.asarray(part, np.float64) for part in (parts.jacobian, parts.compliance))
    A = damped(parts, np.asarray(step.damping, np.float64))
    dx, dy = np.asarray(step.dx, np.float64), np.asarray(step.dy, np.float64)
    pushed = np.einsum("pki,pk->pi", J, S * np.asarray(parts.shift, np.float64))
    right = np.asarray(parts.force, np.float64) - pushed
    norm = np.abs(A).sum(axis=2).max(axis=1) * np.abs(dx).max(axis=1)
    scale = norm + np.abs(right).max(axis=1) + np.abs(pushed).max(axis=1)
    residual = np.abs(np.einsum("pij,pj->pi", A, dx) - right).max(axis=1) / scale
    moved = S * (np.einsum("pki,pi->pk", J, dx) + np.asarray(parts.shift, np.float64))
    size = S * (np.einsum("pki,pi->pk", np.abs(J), np.abs(dx)) + np.abs(np.asarray(parts.shift, np.float64)))
    return max(residual.max(), (np.abs(dy - moved) / size).max())


@pytest.mark.parametrize("shape", TESTED)
def test_step_solves_the_newton_equations(implementation, shape):
    problems, n, m = TESTED[shape]
    parts = systems(problems, n, m, np.float32)
    step = solved(parts, implementation)
    assert step.dx.shape == (problems, n)
    assert step.dy.shape == (problems, m)
    assert backward_error(parts, step) < 4 * n * np.finfo(np.float32).eps
    assert np.all(np.asarray(step.dx)[:, -1] == 0.0)  # fixed
    positive = np.linalg.eigvalsh(damped(parts, np.asarray(step.damping, np.float64)))[:, 0]
    assert np.all(positive > 0)


@pytest.mark.parametrize("shape", ["ragged", "by program"])
def test_double_precision_is_the_linear_algebra_of_the_interior_point(shape):
    """Against `factorize` and the two equations of `respond`, problem by problem."""
    parts = systems(*TESTED[shape])
    step = solved(parts, "interpret")

    def respond(entry):
        A = entry.hessian + (entry.jacobian.T * entry.compliance) @ entry.jacobian + jnp.diag(entry.stiffness)
        factor, damping, saddle = factorize(A, entry.size, jnp.ones_like(entry.size), entry.damping)
        right = entry.force - entry.jacobian.T @ (entry.compliance * entry.shift)
        dx = jax.scipy.linalg.cho_solve((factor, True), right)
        return Step(dx, entry.compliance * (entry.jacobian @ dx + entry.shift), damping, saddle)

    expected = compiled_once(jax.vmap(respond), parts)
    np.testing.assert_array_equal(step.damping, expected.damping)
    np.testing.assert_array_equal(step.saddle, expected.saddle)
    assert len(set(np.asarray(step.damping).tolist())) > 1, "no problem needed damping"
    np.testing.assert_allclose(step.dx, expected.dx, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(step.dy, expected.dy, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n", [3, 14])
def test_matrix_that_no_damping_saves(implementation, n):
    parts = systems(2, n, 2, np.float32)
    parts = parts._replace(
        size=jnp.zeros_like(parts.size), hessian=parts.hessian - 100.0 * jnp.eye(n, dtype=jnp.float32)
    )
    step = solved(parts, implementation)
    J, S = parts.jacobian, parts.compliance
    diagonal = np.abs(np.einsum("pii->pi", damped(parts, np.zeros(2))))
    right = parts.force - jnp.einsum("pki,pk->pi", J, S * parts.shift)
    np.testing.assert_allclose(step.dx, right / np.maximum(diagonal, 1.0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(step.damping, np.maximum(DAMPINGS[-1], parts.damping), rtol=1e-6)
    assert np.all(step.saddle)


@pytest.mark.parametrize(("problems", "n", "m"), [(131, 12, 20), (2, 40, 45)])
def test_lowering(target, problems, n, m):
    assert target.is_called_by(
        lambda name, parts: batched_newton(parts, implementation=name), systems(problems, n, m, np.float32)
    )


def test_too_many_variables_are_named():
    with pytest.raises(ValueError, match="65 variables: a kernel solves 1 to 64; xla takes more"):
        batched_newton(systems(1, 65, 2), implementation="pallas_triton")


def test_mixed_precision_is_named():
    parts = systems(1, 2, 2)
    with pytest.raises(ValueError, match="'hessian': 'float64', 'jacobian': 'float32'"):
        batched_newton(parts._replace(jacobian=parts.jacobian.astype(jnp.float32)))
