"""Line search of an interior point: straight on or along an arc, the longest step first."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from energymodel.solver.newton_system import (
    Aim,
    Direction,
    Iterate,
    NewtonSystem,
    longest_steps,
    only_if,
    row_residual,
    select,
)

_ARMIJO = 1e-4  # [Wachter & Biegler 2006]
_TRIALS = 6  # step lengths
_PAIR = 2  # trials of a length: straight on and along an arc
_BOTH_WAYS = (1.0, -1.0, 0.125, -0.125, 2.0**-6, -(2.0**-6))  # and those of a probe
_LOWER = 1e-8  # a point must lie by so much below a stationary one for that to be no minimum


_Arc = tuple[Array, Array]
"""What bends a step of x and gaps, per square of its length."""


class Merit(NamedTuple):
    """Merit of a point, `f + costs . gap + weight |c + s - t|_1 - barrier sum ln gap`.

    [Nocedal & Wright 2006, eq. 19.26]
    """

    costs: Float[Array, " g"]
    weight: Float[Array, ""]
    barrier: Float[Array, ""]

    def value(self, f: Float[Array, ""], c: Float[Array, " m"], gap: Float[Array, " g"]) -> Float[Array, ""]:
        """At the objective, rows and gaps of a point."""
        left = jnp.sum(jnp.abs(row_residual(c, gap)))
        return f + self.costs @ gap + self.weight * left - self.barrier * jnp.sum(jnp.log(gap))

    def slope(self, at: Iterate, along: Direction) -> Float[Array, ""]:
        """Along a direction at whose end the linearized rows hold."""
        gaps = (self.costs - self.barrier / at.gap) @ along.gap
        return at.gradient @ along.x + gaps - self.weight * jnp.sum(jnp.abs(at.r))


class Trial(NamedTuple):
    """Where a step length leads."""

    x: Float[Array, "*trials n"]
    slack: Float[Array, "*trials mm"]
    c: Float[Array, "*trials m"]


class LineSearchEnd(NamedTuple):
    """Where a line search ends: the steps that it takes of variables and gaps, and of multipliers and prices."""

    trial: Trial
    alpha: Float[Array, ""]
    beta: Float[Array, ""]
    long: Bool[Array, ""]  # one of the three longest steps passes


class _Rules(NamedTuple):
    """What a trial is measured by, and where it passes or does little harm."""

    at: Iterate
    merit: Merit
    equality: Bool[Array, " m"]
    probe: Bool[Array, ""]
    here: Float[Array, ""]
    slope: Float[Array, ""]

    def judge(self, trial: Trial, f: Array, alpha: Array) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether the merit of a trial, whose objective is f, falls enough, and whether it rises only a little."""
        at, here = self.at, self.here
        value = self.merit.value(f, trial.c, jnp.concatenate([trial.slack, at.box.distances(trial.x)]))
        rounding = jnp.abs(at.f) + jnp.abs(here) + at.penalty * at.violation + 1.0
        rounding = 20 * jnp.finfo(at.x.dtype).eps * rounding
        passed = value <= here + _ARMIJO * alpha * self.slope + rounding
        harmless = value <= here + 0.1 * jnp.abs(here) + 1.0
        level, lowered = self.exact(at.f, at.c), self.exact(f, trial.c)
        lower = lowered < level - _LOWER * jnp.maximum(1.0, jnp.abs(level))
        usable = jnp.isfinite(jnp.where(self.probe, lowered, value))
        passed, harmless = jnp.where(self.probe, lower, passed), jnp.where(self.probe, lower, harmless | passed)
        return usable & passed, usable & harmless

    def exact(self, f: Array, c: Array) -> Array:
        """Objective and violations together, which a probe looks for less of."""
        return f + self.at.penalty * jnp.sum(jnp.where(self.equality, jnp.abs(c), jnp.maximum(c, 0.0)))


def line_search(
    scaled: Callable[[Array], Array],
    system: NewtonSystem,
    aim: Aim,
    equality: Bool[Array, " m"],
    probe: Bool[Array, ""],
    needed: Bool[Array, ""],
    *,
    at_once: bool = False,
) -> LineSearchEnd:
    """The longest trial that lowers the merit enough; `scaled` evaluates scaled objective and rows at scaled x.

    A probe looks both ways from a stationary point for one where objective and violations together are lower; none
    found is a step of zero, as is what is not needed.

    Of each length, first straight on, then along an arc: what the rows do beyond their linear part bends the step, or
    curved constraints would stall it [Maratos 1978; second-order correction, Nocedal & Wright 2006, section 18.3]. Of
    two equal ones the arc. Where none passes, the shortest step that does little harm, or no step at all. Nearly every
    search ends with its first pair; the others are evaluated together, if a lane needs them. `at_once` is for a problem
    that no loop can hold: it asks for the values at a point that is not a number where it needs none.
    """
    at, along = system.at, aim.direction
    weight = 1.5 * jnp.max(jnp.abs(jnp.concatenate([at.y, at.y + along.y])), initial=0.0)
    merit = Merit(at.costs, weight, aim.barrier)
    here, slope = merit.value(at.f, at.c, at.gap), jnp.minimum(merit.slope(at, along), 0.0)
    rules = _Rules(at, merit, equality, probe, here, slope)
    alphas = aim.reach[0] * 2.0 ** -(jnp.arange(_TRIALS, dtype=at.x.dtype) ** 1.4)
    alphas = jnp.where(probe, jnp.asarray(_BOTH_WAYS, at.x.dtype), alphas)
    aim = aim._replace(reach=jnp.where(probe, 1.0, aim.reach))

    def trial(alpha: Array, arc: _Arc, wanted: Array) -> tuple[Array, Array, Array]:
        """Rows at a step length, and how it is judged."""
        x, gap = _moved(system, aim, arc, alpha)
        new = scaled(jnp.where(wanted, x, jnp.nan) if at_once else x)
        return new[1:], *rules.judge(Trial(x, gap[: 2 * at.c.size], new[1:]), new[0], alpha)

    def others(alphas: Array, arc: _Arc) -> tuple[Array, Array, Array]:
        arcs = jax.tree.map(lambda leaf: jnp.stack([jnp.zeros_like(leaf), leaf]), arc)
        pair = jax.vmap(trial, in_axes=(None, 0, None))
        return jax.vmap(pair, in_axes=(0, None, None))(alphas[1:], arcs, going)

    straight = jnp.zeros_like(at.x), jnp.zeros_like(at.gap)
    first = trial(alphas[0], straight, needed)
    arc = _arc(system, aim, first[0])
    first = jax.tree.map(lambda a, b: jnp.stack([a, b])[None], first, trial(alphas[0], arc, needed))
    going = needed & ~jnp.any(first[1])
    if at_once:
        rest = others(alphas, arc)
    else:
        shapes = jax.eval_shape(others, alphas, arc)
        rest = only_if(going, others, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), alphas, arc)
    rows, passes, harmless = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, rest)
    ended = jnp.cumsum(jnp.any(passes, axis=1)) > jnp.any(passes, axis=1)  # by a longer pair
    taken = jnp.stack([harmless[:, 0], passes[:, 1] | (harmless[:, 1] & ~harmless[:, 0])], axis=1)
    taken = (taken & needed & ~ended[:, None]).ravel()
    last = taken.size - 1 - jnp.argmax(taken[::-1])
    moved, pair, bent = jnp.any(taken), last // _PAIR, last % _PAIR == 1
    alpha = jnp.where(moved, alphas[pair], 0.0)
    x, gap = _moved(system, aim, select(bent, arc, straight), alpha)
    reached = jnp.where(moved, rows.reshape(taken.size, -1)[last], at.c)
    long = moved & passes.ravel()[last] & (last < _TRIALS)
    return LineSearchEnd(Trial(x, gap[: 2 * at.c.size], reached), alpha, jnp.where(moved, aim.reach[1], 0.0), long)


def _moved(system: NewtonSystem, aim: Aim, arc: _Arc, alpha: Array) -> tuple[Array, Array]:
    """Variables and gaps at a step length along an arc."""
    dx, _, dgap, _ = aim.direction
    return system.at.x + alpha * dx + alpha**2 * arc[0], system.at.gap + alpha * dgap + alpha**2 * arc[1]


def _arc(system: NewtonSystem, aim: Aim, reached: Float[Array, " m"]) -> tuple[Array, Array]:
    """Second-order correction of x and gaps, per square of the step length, for what the full step bends the rows."""
    at, full = system.at, aim.reach[0]
    dx, _, dgap, _ = aim.direction
    bend = reached - at.c - full * (at.J @ dx)
    bend = jnp.where(jnp.isfinite(jnp.sum(bend)), bend, 0.0)
    dx2, dy2 = system.solve(jnp.zeros_like(at.x), bend)
    dgap2 = jnp.concatenate([-system.ratio * jnp.concatenate([dy2, -dy2]), at.box.changes(dx2)])
    share = longest_steps(0.9, at.gap + full * dgap, dgap2)
    # A correction as long as the step itself is no correction.
    share = jnp.where(jnp.max(jnp.abs(dx2)) > full * jnp.max(jnp.abs(dx)), 0.0, share) / full**2
    return share * dx2, share * dgap2
