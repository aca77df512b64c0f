"""Bounds of variables, as distances that must stay positive or through a change of variables."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Box(NamedTuple):
    """Bounds of variables; a fixed variable has equal bounds and takes no part."""

    lower: Float[Array, " n"]
    upper: Float[Array, " n"]

    @property
    def free(self) -> Bool[Array, " n"]:
        """Variables that may move."""
        return self.upper > self.lower

    @property
    def below(self) -> Bool[Array, " n"]:
        """Free variables with a finite lower bound."""
        return self.free & jnp.isfinite(self.lower)

    @property
    def above(self) -> Bool[Array, " n"]:
        """Free variables with a finite upper bound."""
        return self.free & jnp.isfinite(self.upper)

    @property
    def bounded(self) -> Bool[Array, " nn"]:
        """Which lower, then which upper bounds act."""
        return jnp.concatenate([self.below, self.above])

    def distances(self, x: Float[Array, " n"]) -> Float[Array, " nn"]:
        """Distances from lower, then upper bounds; one where there is none, never less than rounding can tell."""
        bound = jnp.concatenate([self.lower, self.upper])
        bound = jnp.where(self.bounded, bound, 0.0)
        gap = jnp.concatenate([x, -x]) + jnp.concatenate([-bound[: x.size], bound[x.size :]])
        return jnp.where(self.bounded, jnp.maximum(gap, self._least(bound)), 1.0)

    def strictly(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """The point, a rounding error off any bound that it has reached: a function may end there."""
        x = jnp.where(self.below, jnp.maximum(x, self.lower + self._least(self.lower)), x)
        x = jnp.where(self.above, jnp.minimum(x, self.upper - self._least(self.upper)), x)
        return jnp.clip(x, self.lower, self.upper)

    def touched(self, x: Float[Array, " n"]) -> Bool[Array, " nn"]:
        """Which lower, then which upper bounds are only rounding errors away."""
        low, high = x - self.lower <= 4 * self._least(self.lower), self.upper - x <= 4 * self._least(self.upper)
        return jnp.concatenate([self.below & low, self.above & high])

    @staticmethod
    def _least(bound: Array) -> Array:
        """Distance from a bound that rounding can tell; from zero it can tell any."""
        eps = jnp.finfo(bound.dtype).eps
        return eps * jnp.maximum(eps, jnp.abs(bound))

    def changes(self, dx: Float[Array, " n"]) -> Float[Array, " nn"]:
        """How a step of x changes the distances; those from no bound stay."""
        return jnp.where(self.bounded, jnp.concatenate([dx, -dx]), 0.0)

    def inside(self, x: Float[Array, " n"], push: float) -> Float[Array, " n"]:
        """Nearest point at least `push` (relative to range or bound) away from the bounds."""
        width = jnp.where(self.below & self.above, self.upper - self.lower, jnp.inf)
        low = push * jnp.minimum(width, jnp.maximum(1.0, jnp.abs(jnp.where(self.below, self.lower, 0.0))))
        high = push * jnp.minimum(width, jnp.maximum(1.0, jnp.abs(jnp.where(self.above, self.upper, 0.0))))
        x = jnp.where(self.below, jnp.maximum(x, self.lower + low), x)
        x = jnp.where(self.above, jnp.minimum(x, self.upper - high), x)
        return jnp.where(self.free, x, jnp.clip(x, self.lower, self.upper))


class UnboundedVariables(NamedTuple):
    """Variables z without bounds in place of x in a box: `x = middle + half sin(k z)`, or
    `low + s (sqrt(z^2+1) - 1)` with one bound, or `s z` with none [James & Roos 1975, sec. 3]. An active bound is an
    ordinary minimum in z.
    """

    box: Box
    scale: Float[Array, " n"]

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        low, high, free = self.box.below, self.box.above, self.box.free
        both, single = low & high, low ^ high
        start = jnp.where(low | ~free, self.box.lower, jnp.where(high, self.box.upper, 0.0))
        half = jnp.where(both, 0.5 * (self.box.upper - self.box.lower), 1.0)
        return both, single, start, half

    def z(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Unbounded variables of a point inside."""
        both, single, start, half = self._parts()
        share = jnp.clip(jnp.where(both, (x - start) / half - 1.0, 0.0), -1.0, 1.0)
        above = jnp.where(single, jnp.abs(x - start) / self.scale + 1.0, 1.0)
        root = jnp.sqrt(jnp.maximum(above**2 - 1.0, 0.0))
        return jnp.where(both, jnp.arcsin(share) * half / self.scale, jnp.where(single, root, (x - start) / self.scale))

    def x(self, z: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The point, and its slope `dx/dz`."""
        both, single, start, half = self._parts()
        angle = jnp.where(both, z * self.scale / half, 0.0)
        root = jnp.sqrt(z**2 + 1.0)
        sign = jnp.where(self.box.above, -1.0, 1.0)
        elsewhere = self.scale * jnp.where(single, sign * (root - 1.0), z)
        x = jnp.where(both, start + half * (1.0 + jnp.sin(angle)), start + elsewhere)
        slope = self.scale * jnp.where(both, jnp.cos(angle), jnp.where(single, sign * z / root, 1.0))
        free = self.box.free
        return jnp.where(free, x, self.box.lower), jnp.where(free, slope, 0.0)
