"""`exp`, `log` and `pow` of millions of float32 numbers with few operations in a row.

XLA for CPU evaluates long polynomials term after term, so that vector units wait for each other's results, and takes
about three times as long for `pow` as `exp(y log x)` takes with these functions. Here the argument is reduced by
operations on its bits, and short minimax polynomials are evaluated in pairs of terms [Muller 2016, ch. 3 and 11].
Errors stay below 2 units in the last place (ulp) for every float. As in XLA for CPU, a subnormal argument counts as
zero, and a result below 2^-126 is zero. They have no derivatives: they replace primitives of what was differentiated.
`python benchmarks/sweep/minimax.py` prints the coefficients.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Float32 = Any
_LOG2_E = np.float32(1.4426950408889634)
_LN_2 = np.float32(0.6931471805599453)
_LN_2_HIGH = np.float32(0.693359375)
"""Logarithm of 2 in 9 bits, so that its product with an exponent is exact."""
_LN_2_LOW = np.float32(-2.121944400546906e-4)
_ROUND = np.float32(1.5 * 2.0**23)
"""Added to a whole number, it leaves the number in the last bits of the mantissa."""
_SMALLEST = np.float32(2.0**-126)
_INFINITE, _NONE = np.float32(np.inf), np.float32(np.nan)
_EXP_LOWEST, _EXP_ABOVE = np.float32(-87.33654), np.float32(88.72284)
"""Lowest argument whose exponential is a normal number, and highest one whose exponential is finite."""
_TWO_THIRDS = np.int32(0x3F2AAAAB)  # bits of 2/3, at which the mantissa of a logarithm starts
_EXPONENT = np.int32(-0x800000)  # bits of sign and exponent
_MANTISSA_BITS = np.int32(23)

_EXP = tuple(map(np.float32, (0.49999994, 0.16666521, 0.04166839, 0.008368745, 0.0013814549)))
"""`q` of `e^r = 1 + r + r^2 q(r)` for `|r| <= ln(2) / 2`; relative error 3e-9."""
_LOG = tuple(
    map(np.float32, (0.33333215, -0.24999797, 0.20010406, -0.16680487, 0.1400587, -0.12184263, 0.13984437, -0.12891679))
)
"""`q` of `ln(1 + f) = f - f^2 / 2 + f^3 q(f)` for `|f| <= 1/3`; relative error 5e-9."""
_ARTANH_TERMS = 7
"""Terms of `ln(m) = 2 artanh(s)`, `s = (m - 1) / (m + 1)`, in float64; relative error 1e-11 for m from 2/3 to 4/3."""


def _bits(x: Float32) -> Any:
    return lax.bitcast_convert_type(x, jnp.int32)


def _of_bits(bits: Any) -> Float32:
    return lax.bitcast_convert_type(bits, jnp.float32)


def _exp_near_zero(r: Float32) -> Float32:
    """`e^r` for `|r| <= ln(2) / 2`."""
    square = r * r
    q = (_EXP[0] + _EXP[1] * r) + square * ((_EXP[2] + _EXP[3] * r) + square * _EXP[4])
    return (r + np.float32(1.0)) + square * q


def _times_power_of_two(x: Float32, exponent: Float32) -> Float32:
    """`x 2^n` for a whole number n, where the result is a normal number."""
    return _of_bits(_bits(x) + (_bits(exponent + _ROUND) << _MANTISSA_BITS))


def exp32(x: Float32) -> Float32:
    """`e^x` of float32 numbers, below 2 ulp [definition]."""
    # Rounding by adding and subtracting `_ROUND` would take one operation less; XLA cancels the two.
    n = lax.round(x * _LOG2_E, lax.RoundingMethod.TO_NEAREST_EVEN)
    r = (x - n * _LN_2_HIGH) - n * _LN_2_LOW
    value = _times_power_of_two(_exp_near_zero(r), n)
    value = jnp.where(x >= _EXP_LOWEST, value, np.float32(0.0))
    return jnp.where(x < _EXP_ABOVE, value, x + _INFINITE)  # no number stays none


def log32(x: Float32) -> Float32:
    """`ln x` of float32 numbers, below 2 ulp; -infinite at zero, and no number below it [definition]."""
    bits = _bits(x)
    exponent = (bits - _TWO_THIRDS) & _EXPONENT
    f = _of_bits(bits - exponent) - np.float32(1.0)
    n = lax.convert_element_type(exponent >> _MANTISSA_BITS, np.float32)
    square = f * f
    low = (_LOG[0] + _LOG[1] * f) + square * (_LOG[2] + _LOG[3] * f)
    high = (_LOG[4] + _LOG[5] * f) + square * (_LOG[6] + _LOG[7] * f)
    cubic = (f * square) * (low + (square * square) * high)
    value = (f + (cubic + (n * _LN_2_LOW - square * np.float32(0.5)))) + n * _LN_2_HIGH
    edge = jnp.where(x == _INFINITE, x, jnp.where(x < _SMALLEST, jnp.where(x <= -_SMALLEST, _NONE, -_INFINITE), x))
    return jnp.where((x >= _SMALLEST) & (x < _INFINITE), value, edge)


def pow32(x: Float32, y: Float32) -> Float32:
    """`x^y` of float32 numbers, below 2 ulp, with the special values of C's `powf` [IEEE 754-2019, sec. 9.2.1].

    The logarithm of the base is taken in float64: times the exponent, its error would otherwise be 128 times as large.
    """
    size = jnp.abs(x)
    bits = _bits(size)
    exponent = (bits - _TWO_THIRDS) & _EXPONENT
    with jax.enable_x64(True):
        m = lax.convert_element_type(_of_bits(bits - exponent), np.float64)
        s = (m - 1.0) / (m + 1.0)
        square = s * s
        series = jnp.full_like(square, 1.0 / (2 * _ARTANH_TERMS - 1))
        for term in reversed(range(_ARTANH_TERMS - 1)):
            series = series * square + 1.0 / (2 * term + 1)
        log2 = lax.convert_element_type(exponent >> _MANTISSA_BITS, np.float64) + s * series * (2.0 / np.log(2.0))
        product = jnp.clip(lax.convert_element_type(y, np.float64) * log2, -200.0, 200.0)
        integer = lax.round(product, lax.RoundingMethod.TO_NEAREST_EVEN)
        is_normal, is_finite = product >= -126.0, product < 128.0
        n, rest = (lax.convert_element_type(part, np.float32) for part in (integer, product - integer))
    value = _times_power_of_two(_exp_near_zero(rest * _LN_2), n)
    value = jnp.where(is_normal, value, np.float32(0.0))
    value = jnp.where(is_finite, value, _INFINITE)
    # Bases without a logarithm: zero (a subnormal number counts as zero) and infinity.
    rises, flat = y > 0.0, y == 0.0
    value = jnp.where(size < _SMALLEST, jnp.where(rises, np.float32(0.0), _INFINITE), value)
    value = jnp.where(size == _INFINITE, jnp.where(rises, _INFINITE, np.float32(0.0)), value)
    # Infinite exponents.
    grows = (size > 1.0) == rises
    value = jnp.where(jnp.abs(y) == _INFINITE, jnp.where(grows, _INFINITE, np.float32(0.0)), value)
    # Negative bases, of which -0 is one, have powers where the exponent is whole; from 2^24 on it is even.
    half = y * np.float32(0.5)
    is_whole = jnp.floor(y) == y
    is_odd = is_whole & (jnp.floor(half) != half)
    negative = bits != _bits(x)
    value = jnp.where(negative & is_odd, -value, value)
    value = jnp.where((x < 0.0) & (x > -_INFINITE) & ~is_whole & (size >= _SMALLEST), _NONE, value)
    value = jnp.where((x != x) | (y != y), _NONE, value)
    return jnp.where(flat | (x == 1.0) | ((x == -1.0) & (jnp.abs(y) == _INFINITE)), np.float32(1.0), value)


def ordered_bits(value: Any) -> Any:
    """An integer that orders like a float32 number."""
    bits = _bits(jnp.asarray(value, jnp.float32))
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative numbers order the other way


def substitutes() -> dict[str, Callable[..., Any]]:
    """What stands for primitives of JAX on a CPU, by name; numbers that are not float32 keep JAX's own functions."""
    return {
        "exp": lambda x, **options: exp32(x) if x.dtype == np.float32 else lax.exp_p.bind(x, **options),
        "log": lambda x, **options: log32(x) if x.dtype == np.float32 else lax.log_p.bind(x, **options),
        "pow": lambda x, y, **options: (
            pow32(x, y) if x.dtype == y.dtype == np.float32 else lax.pow_p.bind(x, y, **options)
        ),
    }
