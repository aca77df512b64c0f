import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from energymodel.learning.information import information_absorbed, information_per_token, information_rate
from gradients import check_grads

B, BETA = 2085.43, 0.3658  # Besiroglu et al. 2024, docs/physics.md B1


@settings(max_examples=20, deadline=None)
@given(log_tokens=st.floats(20.0, 33.0))
def test_rate_is_the_derivative(log_tokens):
    tokens = jnp.exp(log_tokens)
    np.testing.assert_allclose(
        jax.grad(information_absorbed)(tokens, B, BETA), information_per_token(tokens, B, BETA), rtol=1e-10
    )


def test_absorbed_information_is_the_excess_code_length():
    # int_0^D (L(x) - L(D)) dx / ln 2 by quadrature in x = D u^4, which takes the singularity away.
    tokens = 1.4e12
    nodes, weights = np.polynomial.legendre.leggauss(64)
    u, w = 0.5 * (1 + nodes), 0.5 * weights
    excess = B * ((tokens * u**4) ** -BETA - tokens**-BETA)
    total = np.sum(w * excess * 4 * u**3) * tokens / np.log(2)
    np.testing.assert_allclose(information_absorbed(tokens, B, BETA), total, rtol=1e-6)


def test_nothing_is_absorbed_before_the_first_token():
    assert information_absorbed(0.0, B, BETA) == 0.0


def test_half_of_the_tokens_wasted_is_half_of_the_information():
    np.testing.assert_allclose(information_rate(0.04, 1e6, 0.5), 0.5 * information_rate(0.04, 1e6, 1.0), rtol=1e-14)


def test_gradients():
    check_grads(lambda d, c, e: jnp.log(information_absorbed(jnp.exp(d), jnp.exp(c), e)), (27.0, 7.6, 0.36), order=1)
    check_grads(lambda d, c, e: jnp.log(information_per_token(jnp.exp(d), jnp.exp(c), e)), (27.0, 7.6, 0.36), order=1)
    check_grads(information_rate, (0.04, 2.0, 0.5), order=1)
