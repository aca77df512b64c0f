import jax
import jax.numpy as jnp
import numpy as np

from energymodel.runtime.operations import portable
from energymodel_kernels.backends import expm1

PRECISION = 32
SUBSTITUTES = {"expm1": expm1, "sqrt": lambda x, **_: x * jax.lax.rsqrt(x), "log": lambda x, **_: jnp.log1p(x - 1.0)}
SIGNED = np.concatenate([-np.geomspace(1e-10, 50.0, 300), [0.0], np.geomspace(1e-10, 50.0, 300)]).astype(np.float32)


def test_expm1_keeps_its_digits():
    result = jax.jit(portable(jnp.expm1, SUBSTITUTES))(SIGNED)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, np.expm1(SIGNED.astype(np.float64)), rtol=8 * 6e-8)
    assert np.isnan(portable(jnp.expm1, SUBSTITUTES)(np.asarray([np.nan], np.float32)))[0]


def test_loops_and_branches_are_rewritten_too():
    def function(x):
        x = jax.lax.fori_loop(0, 3, lambda i, y: jnp.sqrt(y) + 1.0, x)
        x = jax.lax.while_loop(lambda y: jnp.max(y) > 1.5, lambda y: jnp.log(y + 1.0), x)
        x = jax.lax.cond(jnp.min(x) > 0.0, jnp.expm1, jnp.sqrt, x)
        return jax.jit(jax.nn.relu)(x), jax.lax.stop_gradient(x)

    x = np.linspace(0.1, 9.0, 7, dtype=np.float32)
    rewritten = portable(function, SUBSTITUTES)
    for left, other in zip(rewritten(x), function(x), strict=True):
        np.testing.assert_allclose(left, other, rtol=1e-6)
    text = str(jax.make_jaxpr(rewritten)(x))
    assert not any(f" {name}" in text for name in ("sqrt", "log ", "expm1", "custom_jvp"))
