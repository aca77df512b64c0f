import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energymodel.runtime.substitution import Dialect, portable
from energymodel_kernels.portable import SUBSTITUTES

PRECISION = 32
DIALECT = Dialect(SUBSTITUTES, lambda lanes: lanes)
SIGNED = np.concatenate([-np.geomspace(1e-10, 50.0, 300), [0.0], np.geomspace(1e-10, 50.0, 300)]).astype(np.float32)
POSITIVE = np.geomspace(1e-30, 1e30, 700).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "exact", "x", "ulps"),
    [
        (jnp.sqrt, np.sqrt, np.append(POSITIVE, [0.0, np.inf]), 4),
        (jnp.expm1, np.expm1, SIGNED, 8),
        (jnp.log1p, np.log1p, np.append(SIGNED[SIGNED > -0.9], np.inf), 8),
        (jnp.floor, np.floor, np.append(1.37 * SIGNED, [3.0, -3.0, 1e20, np.inf, -np.inf]), 0),
        (jnp.ceil, np.ceil, np.append(1.37 * SIGNED, [3.0, -3.0, 1e20, np.inf, -np.inf]), 0),
        (lambda x: x**-3, lambda x: x**-3.0, POSITIVE[(POSITIVE > 1e-9) & (POSITIVE < 1e9)], 8),
        (lambda x: x**11, lambda x: x**11.0, SIGNED[np.abs(SIGNED) > 1e-3], 16),
        (lambda x: x ** jnp.float32(0.37), lambda x: x ** np.float64(np.float32(0.37)), POSITIVE, 128),
    ],
)
def test_substitute_keeps_its_digits(function, exact, x, ulps):
    x = x.astype(np.float32)
    result = jax.jit(portable(function, DIALECT))(x)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, exact(x.astype(np.float64)), rtol=ulps * 6e-8)


def test_no_number_stays_none():
    nan = np.asarray([np.nan], np.float32)
    for function in (jnp.sqrt, jnp.expm1, jnp.log1p, jnp.floor, lambda x: x ** jnp.float32(0.5)):
        assert np.isnan(portable(function, DIALECT)(nan))[0]
    assert np.isnan(portable(jnp.sqrt, DIALECT)(np.asarray([-1.0], np.float32)))[0]
    np.testing.assert_array_equal(
        portable(jnp.isfinite, DIALECT)(np.asarray([1.0, np.inf, np.nan], np.float32)), [1, 0, 0]
    )


def test_loops_and_branches_are_rewritten_too():
    def function(x):
        x = jax.lax.fori_loop(0, 3, lambda i, y: jnp.sqrt(y) + 1.0, x)
        x = jax.lax.while_loop(lambda y: jnp.max(y) > 1.5, lambda y: jnp.log1p(y), x)
        x = jax.lax.cond(jnp.min(x) > 0.0, jnp.expm1, jnp.sqrt, x)
        return jax.jit(jax.nn.relu)(x), jax.lax.stop_gradient(x)

    x = np.linspace(0.1, 9.0, 7, dtype=np.float32)
    rewritten = portable(function, DIALECT)
    for left, other in zip(rewritten(x), function(x), strict=True):
        np.testing.assert_allclose(left, other, rtol=1e-6)
    text = str(jax.make_jaxpr(rewritten)(x))
    assert not any(f" {name}" in text for name in ("sqrt", "log1p", "expm1", "stop_gradient", "custom_jvp"))
