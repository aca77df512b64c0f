"""Bounds of variables, as distances that must stay positive."""

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
