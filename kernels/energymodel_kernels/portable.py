"""Formulas written once for compilers that know different functions.

A formula is traced, and what a backend lacks is replaced: `sqrt(x)` by `x / sqrt(x)` from the reciprocal root, `x^y` by
`exp(y log x)`, `log(1 + x)` and `e^x - 1` by forms that keep their digits at small x.
"""

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_NEAR = 0.3


def _sqrt(x: Any, **_: Any) -> Any:
    positive = (x > 0) & (x < jnp.inf)
    return jnp.where(positive, x * jax.lax.rsqrt(jnp.where(positive, x, 1.0)), jnp.where(x < 0, jnp.nan, x))


def _pow(x: Any, y: Any, **_: Any) -> Any:
    """For x >= 0: a negative base is not a number, whatever the exponent."""
    return _power(x, y, jnp.exp, jnp.log)


def _power(x: Any, y: Any, exp: Callable[..., Any], log: Callable[..., Any]) -> Any:
    y = y.astype(x.dtype)
    return jnp.where(y == 0, 1.0, exp(y * log(x)))


def _log1p(x: Any, **_: Any) -> Any:
    """Near zero `2 artanh(x / (2 + x))` by its series, to float32.

    The shorter `log(u) x / (u - 1)` with `u = 1 + x` does not survive a compiler that takes `(1 + x) - 1` for x.
    """
    near = jnp.abs(x) < _NEAR
    small = jnp.where(near, x, 0.0)
    s = small / (2.0 + small)
    series = 2.0 * s * _horner(s * s, [1.0 / (2 * k + 1) for k in range(7)])
    return jnp.where(near, series, jnp.log(jnp.where(near, 1.0, 1.0 + x)))


def _expm1(x: Any, **_: Any) -> Any:
    """Near zero by its series, to float32."""
    near = jnp.abs(x) < _NEAR
    small = jnp.where(near, x, 0.0)
    series = small * _horner(small, [1.0 / factorial(k + 1) for k in range(8)])
    return jnp.where(near, series, jnp.exp(x) - 1.0)


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def _floor(x: Any, **_: Any) -> Any:
    """Whole numbers beyond 2^23 are their own floor."""
    large = ~(jnp.abs(x) < 8388608.0)
    toward_zero = jnp.where(large, 0.0, x).astype(jnp.int32).astype(x.dtype)
    below = jnp.where(toward_zero > x, toward_zero - 1.0, toward_zero)
    return jnp.where(large, x, below)


def _ceil(x: Any, **_: Any) -> Any:
    return -_floor(-x)


def _integer_pow(x: Any, y: int) -> Any:
    """By repeated squaring."""
    power, square, left = None, x, abs(y)
    while left:
        if left & 1:
            power = square if power is None else power * square
        square, left = square * square, left >> 1
    power = jnp.ones_like(x) if power is None else power
    return 1.0 / power if y < 0 else power


def _is_finite(x: Any, **_: Any) -> Any:
    return jnp.abs(x) < jnp.inf


SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "sqrt": _sqrt,
    "pow": _pow,
    "integer_pow": _integer_pow,
    "log1p": _log1p,
    "expm1": _expm1,
    "floor": _floor,
    "ceil": _ceil,
    "is_finite": _is_finite,
    "stop_gradient": lambda x, **_: x,
    "add_any": lambda x, y, **_: x + y,
}
"""What stands for a primitive that a backend lacks, by its name."""


def select_of_constants(which: Any, *cases: Any) -> Any:
    """One of several values; constants among them get the type of the result, which Triton takes from `which`."""
    return jax.lax.select_n(which, *(case.astype(case.dtype) for case in cases))


def reshape(x: Any, new_sizes: Sequence[int], dimensions: Any = None, **_: Any) -> Any:
    """Another shape; the same one is left alone, which Mosaic for TPU does not do with a number."""
    return x if x.shape == tuple(new_sizes) else jax.lax.reshape(x, new_sizes, dimensions)


def exp_by_units(x: Any, **_: Any) -> Any:
    """`e^x` by the base-2 exponential of a GPU's special function units; relative error about |x| 1e-7.

    Numbers that all lanes share take the ordinary function: the instruction is for lanes.
    """
    return _special("ex2.approx.ftz.f32", x * _LOG2_E) if x.shape else jnp.exp(x)


def log_by_units(x: Any, **_: Any) -> Any:
    """`ln x` by the base-2 logarithm of a GPU's special function units; absolute error about 1e-7 near 1.

    Numbers that all lanes share take the ordinary function: the instruction is for lanes.
    """
    return _special("lg2.approx.ftz.f32", x) * _LN_2 if x.shape else jnp.log(x)


def pow_by_units(x: Any, y: Any, **_: Any) -> Any:
    """`x^y` by both, for x >= 0; relative error about |y log x| 1e-7."""
    return _power(x, y, exp_by_units, log_by_units)


def _special(instruction: str, x: Any) -> Any:
    from jax.experimental.pallas import triton

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (result,) = triton.elementwise_inline_asm(
        f"{instruction} $0, $1;", args=[x], constraints="=f,f", pack=1, result_shape_dtypes=[shape]
    )
    return result
