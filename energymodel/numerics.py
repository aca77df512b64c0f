"""Roots, norms and ceilings whose values are exact and whose gradients are finite.

Everything here lowers in a Pallas kernel: no `while_loop`, no stacking.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, ArrayLike, Float

from energymodel.ranges import ANY, DEGREES, SHARE, SIGNED, Range

if TYPE_CHECKING:
    Real = Any  # the converter of `real` accepts Python numbers, which a type checker cannot know
    Part = Any  # as is what `part` returns
else:
    Real = Float[Array | np.ndarray, ""]
    """A scalar leaf of a component."""

    Part = Float[Array | np.ndarray | np.floating | float, "..."]
    """What `part` and `blend` make: numbers, or a constant where a part is known to be absent or there alone."""

Scalar = Float[Array, ""]
"""One number, as formulas return it."""

Numeric = Float[ArrayLike, "..."]
"""A number or an array of numbers of any shape: what formulas accept."""

Values = Float[Array, "..."]
"""Numbers of any shape: what formulas return."""

EVALUATIONS = 18
STRAIGHT = 40.0  # beyond, ln(1 + e^x) is x to rounding
_INTEGER_TOLERANCE = 1e-3


def as_real(value: Any) -> Any:
    """Convert Python and NumPy numbers to a NumPy float64 array; leave JAX arrays and tracers alone.

    `jnp.asarray` would round to float32 outside an x64 context; precision is decided where jit is entered.
    """
    if isinstance(value, bool | int | float | np.number | np.ndarray | list | tuple):
        return np.asarray(value, dtype=np.float64)
    return value


def with_own_numbers(tree: Any) -> Any:
    """The same with copies of its NumPy numbers.

    As long as a trace lives, JAX 0.10 takes what stands in it for a NumPy array wherever it meets that array again: in
    float64 it would be the float32 of a trace before.
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def real(
    unit: str,
    default: float | None = None,
    doc: str = "",
    *,
    within: Range = ANY,
    difference: bool = False,
    signed: bool = False,
    integer: bool = False,
    optional: bool = False,
) -> Any:
    """Declare a scalar field of a component: converted by `as_real`, with unit, meaning and range in the metadata.

    `difference` marks a temperature that is a difference, so that 5 °C is 5 K; `signed` a number that may be negative;
    `integer` a count, which searches round; `optional` one of a part that may be left out, None there.
    """
    allowed = SIGNED if signed and within == ANY else within
    metadata = {"unit": unit, "doc": doc, "range": allowed.within(unit)}
    metadata |= {"difference": difference, "signed": signed, "integer": integer, "optional": optional}
    if default is None and not optional:
        return eqx.field(converter=as_real, metadata=metadata)
    return eqx.field(converter=as_real, metadata=metadata, default=default)


def share(default: float | None = None, doc: str = "") -> Any:
    """Declare a share from 0 to 1, as `real`."""
    return real("1", default, doc, within=SHARE)


def degrees(default: float | None = None, doc: str = "") -> Any:
    """Declare a difference of temperatures [K], as `real`."""
    return real("K", default, doc, within=DEGREES, difference=True)


def vector(unit: str, *, within: Range = ANY) -> Any:
    """Declare a field that holds an array, converted as in `real`; the range is that of each number."""
    return eqx.field(converter=as_real, metadata={"unit": unit, "array": True, "range": within.within(unit)})


def component(default: eqx.Module | None = None) -> Any:
    """Declare a field that holds another component."""
    return eqx.field() if default is None else eqx.field(default=default)


def is_fixed(value: Any, constant: float) -> bool:
    """Whether a number is known to be a constant while a program is made, so that a part is absent or there alone."""
    return isinstance(value, int | float | np.number | np.ndarray) and bool(np.all(value == constant))


def part(share: Numeric, value: Callable[[], Any]) -> Any:
    """`s value()`, of a part that is not computed where it is known to be absent."""
    if is_fixed(share, 0.0):
        return 0.0
    return value() if is_fixed(share, 1.0) else share * value()


def blend(share: Numeric, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """`s first() + (1 - s) second()` of numbers or trees; one that is known to be absent is not computed."""
    if is_fixed(share, 0.0):
        return second()
    if is_fixed(share, 1.0):
        return first()
    return jax.tree.map(lambda with_it, without: share * with_it + (1.0 - share) * without, first(), second())


def at_most_one(value: Numeric) -> Any:
    """The lesser of a number and 1: a switch of what a number above zero turns on, known where the number is."""
    return jnp.minimum(value, 1.0) if isinstance(value, jax.Array) else np.asarray(np.minimum(value, 1.0))


def softplus(x: Numeric) -> Values:
    """Smooth ramp `ln(1 + e^x)`, without overflow and without primitives that a kernel lacks."""
    x = jnp.asarray(x)
    straight = x > STRAIGHT
    return jnp.where(straight, x, jnp.log1p(jnp.exp(jnp.where(straight, STRAIGHT, x))))


def sigmoid(x: Numeric) -> Values:
    """Smooth step `1 / (1 + e^-x)`, the derivative of `softplus`, without overflow."""
    return 0.5 * (1.0 + jnp.tanh(0.5 * jnp.asarray(x)))


def square_root(x: Numeric) -> Values:
    """`sqrt(x)`, and 0 with a gradient of 0 where x is not positive."""
    x = jnp.asarray(x)
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def power_law(x: Numeric, coefficient: Numeric, exponent: Numeric) -> Values:
    """`c x^m` with coefficient c and exponent m."""
    return jnp.asarray(coefficient) * jnp.power(jnp.asarray(x), exponent)


def p_norm(exponent: Numeric, *terms: Numeric) -> Values:
    """Join non-negative resource times, `(sum_i t_i^p)^(1/p)`, folded pairwise.

    p = 1 is serial execution (the sum), p -> infinity perfect overlap (the maximum); the excess over the
    maximum is at most `n^(1/p) - 1`. Zero terms are legal and have finite gradients.
    """

    def join(a: Array, b: Array) -> Array:
        return jnp.maximum(a, b) + _excess_over_larger(exponent, a, b)

    return reduce(join, map(jnp.asarray, terms))


def p_norm_excess(exponent: Numeric, first: Numeric, second: Numeric) -> Values:
    """What a second time adds to the first, `(a^p + b^p)^(1/p) - a`, exact also where it is much the smaller one."""
    first, second = jnp.asarray(first), jnp.asarray(second)
    return jnp.maximum(second - first, 0.0) + _excess_over_larger(exponent, first, second)


def _excess_over_larger(exponent: Numeric, a: Array, b: Array) -> Array:
    large, small = jnp.maximum(a, b), jnp.minimum(a, b)
    present = small > 0
    ratio = jnp.where(present, small, 1.0) / jnp.where(present, large, 1.0)
    log_power = exponent * jnp.log(ratio)
    excess = jnp.where(present, large, 1.0) * jnp.expm1(jnp.log1p(jnp.exp(log_power)) / exponent)
    # With p = 1 the smaller term adds in full even at zero, so its slope there is one; for p > 1 it is zero.
    return jnp.where(present, excess, jnp.where(exponent == 1.0, small, 0.0))


def ceil_count(x: Numeric) -> Values:
    """Least whole count that holds `x`, forgiving a relative excess of 1e-3.

    The forgiveness keeps rounding from turning 96 / (8 x 3) into five, and puts the jump beside whole
    numbers, so that the (zero) slope is right at every realizable count.
    """
    x = jnp.asarray(x)
    return jnp.ceil(x * (1.0 - _INTEGER_TOLERANCE))


def implicit_root(function: Callable[[Any, Any], Any], lower: Numeric, upper: Numeric, parameters: Any) -> Values:
    """Root in `[lower, upper]` of a function that increases with its first argument, differentiable in `parameters`.

    A fixed number of evaluations closes in on it; derivatives of any order follow from the implicit function theorem
    [Griewank & Walther 2008, ch. 15]. Where the function has no root in the bracket the nearer end is returned, with
    the gradient of that end.

    **Arguments:**

    - `function`: `f(x, parameters)`, increasing in `x`; closed-over values must not carry gradients.
    - `lower`, `upper`: bracket, same unit as `x`.
    - `parameters`: pytree of everything that `function` depends on.

    **Returns:** the root, same unit as `lower`.
    """
    leaves, structure = jax.tree.flatten(parameters)
    dtype = jnp.result_type(lower, upper, *leaves)
    low, high = jnp.broadcast_arrays(jnp.asarray(lower, dtype), jnp.asarray(upper, dtype))
    return _root(lambda x, *leaves: function(x, structure.unflatten(leaves)), low, high, *leaves)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(function: Callable[..., Array], low: Array, high: Array, *leaves: Any) -> Array:
    return _bracketed_root(lambda x: function(x, *leaves), low, high)


@partial(_root.defjvp, symbolic_zeros=True)
def _root_slope(function: Callable[..., Array], primals: Any, tangents: Any) -> tuple[Array, Array]:
    """`dx = -(df/dp dp) / (df/dx)`; at an end of the bracket, the tangent of that end."""
    low, high, *leaves = primals
    x = _root(function, low, high, *leaves)
    of_low, of_high = (jnp.zeros_like(x) if isinstance(t, SymbolicZero) else t for t in tangents[:2])
    live = {i: t for i, t in enumerate(tangents[2:]) if not isinstance(t, SymbolicZero)}

    def at(x: Array, *moved: Any) -> Array:
        values = dict(zip(live, moved, strict=True))
        return function(x, *(values.get(i, leaf) for i, leaf in enumerate(leaves)))

    moved = tuple(leaves[i] for i in live)
    # The tangent is an array of ones that no compiler of kernels takes for a literal.
    slope = jax.jvp(lambda x: at(x, *moved), (x,), (x * 0.0 + 1.0,))[1]
    shift = jax.jvp(partial(at, x), moved, tuple(live.values()))[1] if live else jnp.zeros_like(x)
    rising = slope > 0
    inside = jnp.where(rising, -shift / jnp.where(rising, slope, 1.0), 0.0)
    return x, jnp.where(x <= low, of_low, jnp.where(x >= high, of_high, inside))


def _bracketed_root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Inverse quadratic interpolation where the last three points bend little enough, else bisection.

    [Chandrupatla 1997; Scherer 2017, sec. 6.1.7.3]. The ends are the first two points of the loop, which thus holds
    the only copy of the function. Of smooth functions, 18 evaluations find the root to rounding.
    """

    def step(count: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, x1, y1, x2, y2, at_low, at_high = state
        # Compared as a real number: a kernel counts in fewer bits than whoever traces it.
        turn = count.astype(low.dtype)
        y = function(x)
        at_low, at_high = jnp.where(turn == 0.0, y, at_low), jnp.where(turn == 1.0, y, at_high)
        # The newest point comes first, the nearest on the other side of the root second.
        same = (y < 0) == (y1 < 0)
        x3, y3 = jnp.where(same, x1, x2), jnp.where(same, y1, y2)
        x2, y2 = jnp.where(same, x2, x1), jnp.where(same, y2, y1)
        x1, y1 = x, y
        # Where points coincide the quotients are no numbers, and no comparison with them holds.
        xi, phi = (x1 - x2) / (x3 - x2), (y1 - y2) / (y3 - y2)
        share = y1 / (y2 - y1) * y3 / (y2 - y3) + (x3 - x1) / (x2 - x1) * y1 / (y3 - y1) * y2 / (y3 - y2)
        gentle = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi) & (share > 0) & (share < 1)
        following = x1 + jnp.where(gentle, share, 0.5) * (x2 - x1)
        return jnp.where(turn == 0.0, high, following), x1, y1, x2, y2, at_low, at_high

    none = jnp.zeros_like(low)
    state = jax.lax.fori_loop(0, EVALUATIONS, step, (low, low, none, low, none, none, none))
    _, x1, y1, x2, y2, at_low, at_high = state
    nearest = jnp.where(jnp.abs(y1) < jnp.abs(y2), x1, x2)
    return jnp.where(at_low >= 0, low, jnp.where(at_high <= 0, high, nearest))
