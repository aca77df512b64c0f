"""Line search of an interior point: straight on or along an arc, the longest step first."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from energymodel.runtime.placement import accelerated
from energymodel.solver.newton_system import Aim, NewtonSystem, longest_steps, row_residual, select

_ARMIJO = 1e-4  # [Wachter & Biegler 2006]
_LENGTHS = 6  # of a step, each tried straight on and along an arc
_BOTH_WAYS = (1.0, -1.0, 0.125, -0.125, 2.0**-6, -(2.0**-6))  # and those of a probe
_LOWER = 1e-8  # a point must lie by so much below a stationary one for that to be no minimum


Arc = tuple[Array, Array]
"""What bends a step of x and gaps, per square of its length."""


class LineSearchEnd(NamedTuple):
    """Where a line search ends: variables, slacks and rows, and the steps of variables and gaps and of multipliers."""

    x: Float[Array, " n"]
    slack: Float[Array, " mm"]
    c: Float[Array, " m"]
    alpha: Float[Array, ""]
    beta: Float[Array, ""]
    long: Bool[Array, ""]  # one of the three longest steps passes


class Table(NamedTuple):
    """Trials with rows of problem, and where they pass or do little harm; pairs of a length, longest first."""

    rows: Float[Array, "*trials m"]
    passes: Bool[Array, "*trials"]
    harmless: Bool[Array, "*trials"]


class LineSearch(NamedTuple):
    """The search for the longest trial that lowers the merit enough.

    The merit of a point is `f + costs . gap + weight |c + s - t|_1 - barrier sum ln gap`
    [Nocedal & Wright 2006, eq. 19.26].

    A probe looks both ways from a stationary point for one where objective and violations together are lower; none
    found is a step of zero, as is what is not needed.

    Of each length, first straight on, then along an arc: what the rows do beyond their linear part bends the step, or
    curved constraints would stall it [Maratos 1978; second-order correction, Nocedal & Wright 2006, section 18.3]. Of
    two equal ones the arc. Where none passes, the shortest step that does little harm, or no step at all.
    """

    system: NewtonSystem
    aim: Aim
    weight: Float[Array, ""]
    equality: Bool[Array, " m"]
    probe: Bool[Array, ""]
    alphas: Float[Array, " lengths"]
    needed: Bool[Array, ""]

    def merit(self, f: Float[Array, ""], c: Float[Array, " m"], gap: Float[Array, " g"]) -> Float[Array, ""]:
        """At the objective, rows and gaps of a point."""
        left = jnp.sum(jnp.abs(row_residual(c, gap)))
        return f + self.system.at.costs @ gap + self.weight * left - self.aim.barrier * jnp.sum(jnp.log(gap))

    @property
    def slope(self) -> Float[Array, ""]:
        """Of the merit along the direction, at whose end the linearized rows hold."""
        at, along = self.system.at, self.aim.direction
        gaps = (at.costs - self.aim.barrier / at.gap) @ along.gap
        return jnp.minimum(at.gradient @ along.x + gaps - self.weight * jnp.sum(jnp.abs(at.r)), 0.0)

    @property
    def straight(self) -> Arc:
        """An arc that is none."""
        return jnp.zeros_like(self.system.at.x), jnp.zeros_like(self.system.at.gap)

    def point(self, alpha: Array, arc: Arc) -> tuple[Array, Array]:
        """Variables and gaps at a step length along an arc."""
        at, (dx, _, dgap, _) = self.system.at, self.aim.direction
        return at.x + alpha * dx + alpha**2 * arc[0], at.gap + alpha * dgap + alpha**2 * arc[1]

    def arc(self, reached: Float[Array, " m"]) -> Arc:
        """Second-order correction for what the full step bends the rows that it reached."""
        system, at, full = self.system, self.system.at, self.aim.reach[0]
        dx, _, dgap, _ = self.aim.direction
        bend = reached - at.c - full * (at.J @ dx)
        bend = jnp.where(jnp.isfinite(jnp.sum(bend)), bend, 0.0)
        dx2, dy2 = system.solve(jnp.zeros_like(at.x), bend)
        dgap2 = jnp.concatenate([-system.ratio * jnp.concatenate([dy2, -dy2]), at.box.changes(dx2)])
        share = longest_steps(0.9, at.gap + full * dgap, dgap2)
        # A correction as long as the step itself is no correction.
        share = jnp.where(jnp.max(jnp.abs(dx2)) > full * jnp.max(jnp.abs(dx)), 0.0, share) / full**2
        return share * dx2, share * dgap2

    def points(self, arc: Arc, alphas: Array) -> Float[Array, "lengths 2 n"]:
        """Variables at some lengths, straight on and along the arc."""
        return self._over_pairs(lambda alpha, arc: self.point(alpha, arc)[0], arc, alphas)

    def judged(self, arc: Arc, alphas: Array, values: Float[Array, "lengths 2 k"]) -> Table:
        """The trials there, given their scaled objectives and rows."""
        at, slope = self.system.at, self.slope
        here = self.merit(at.f, at.c, at.gap)

        def exact(f: Array, c: Array) -> Array:
            """Objective and violations together, which a probe looks for less of."""
            return f + at.penalty * jnp.sum(jnp.where(self.equality, jnp.abs(c), jnp.maximum(c, 0.0)))

        def judge(alpha: Array, arc: Arc, values: Array) -> Table:
            """Whether the merit falls enough, and whether it rises only a little."""
            (x, gap), f, c = self.point(alpha, arc), values[0], values[1:]
            value = self.merit(f, c, jnp.concatenate([gap[: 2 * c.size], at.box.distances(x)]))
            rounding = jnp.abs(at.f) + jnp.abs(here) + at.penalty * at.violation + 1.0
            rounding = 20 * jnp.finfo(at.x.dtype).eps * rounding
            passed = value <= here + _ARMIJO * alpha * slope + rounding
            harmless = value <= here + 0.1 * jnp.abs(here) + 1.0
            level, lowered = exact(at.f, at.c), exact(f, c)
            lower = lowered < level - _LOWER * jnp.maximum(1.0, jnp.abs(level))
            usable = jnp.isfinite(jnp.where(self.probe, lowered, value))
            passed, harmless = (jnp.where(self.probe, lower, own) & usable for own in (passed, harmless | passed))
            return Table(c, passed, harmless)

        return self._over_pairs(judge, arc, alphas, values)

    def _over_pairs(self, function: Callable[..., Any], arc: Arc, alphas: Array, *inputs: Array) -> Any:
        arcs = jax.tree.map(lambda a, b: jnp.stack([a, b]), self.straight, arc)
        own = [0] * len(inputs)
        pair = jax.vmap(function, in_axes=(None, 0, *own))
        return jax.vmap(pair, in_axes=(0, None, *own))(alphas, arcs, *inputs)

    def run(self, scaled: Callable[[Array], Array]) -> LineSearchEnd:
        """The end, where `scaled` evaluates scaled objective and rows at scaled x.

        Nearly every search ends with its first pair, so that a loop over pairs evaluates the problem twice instead of a
        dozen times; an accelerator evaluates the others together.
        """
        begun = scaled(self.point(self.alphas[0], self.straight)[0])
        arc = self.arc(begun[1:])
        bent = scaled(self.point(self.alphas[0], arc)[0])
        first = self.judged(arc, self.alphas[:1], jnp.stack([begun, bent])[None])

        def others(alphas: Array) -> Table:
            return self.judged(arc, alphas, jax.vmap(jax.vmap(scaled))(self.points(arc, alphas)))

        def turn(carry: Any) -> Any:
            number, _, table = carry
            new = others(self.alphas[number][None])
            table = jax.tree.map(lambda rows, row: rows.at[number - 1].set(row[0]), table, new)
            return number + 1, ~jnp.any(new.passes), table

        if accelerated():
            rest = others(self.alphas[1:])
        else:
            rest = jax.tree.map(lambda leaf: jnp.zeros((_LENGTHS - 1, *leaf.shape[1:]), leaf.dtype), first)
            start = jnp.ones((), jnp.int32), self.unfinished(first), rest
            rest = jax.lax.while_loop(lambda carry: carry[1] & (carry[0] < _LENGTHS), turn, start)[2]
        return self.end(arc, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, rest))

    def unfinished(self, table: Table) -> Bool[Array, ""]:
        """Whether other pairs than the first are asked for."""
        return self.needed & ~jnp.any(table.passes[0])

    def end(self, arc: Arc, table: Table) -> LineSearchEnd:
        """The end, among all pairs up to one that passes."""
        at, (rows, passes, harmless) = self.system.at, table
        passed = jnp.any(passes, axis=1)
        ended = jnp.cumsum(passed) > passed  # by a longer pair
        taken = jnp.stack([harmless[:, 0], passes[:, 1] | (harmless[:, 1] & ~harmless[:, 0])], axis=1)
        taken = (taken & self.needed & ~ended[:, None]).ravel()
        last = taken.size - 1 - jnp.argmax(taken[::-1])
        moved = jnp.any(taken)
        alpha = jnp.where(moved, self.alphas[last // 2], 0.0)
        x, gap = self.point(alpha, select(last % 2 == 1, arc, self.straight))
        reached = jnp.where(moved, rows.reshape(taken.size, -1)[last], at.c)
        long = moved & passes.ravel()[last] & (last < _LENGTHS)
        beta = jnp.where(moved, self.aim.reach[1], 0.0)
        return LineSearchEnd(x, gap[: 2 * at.c.size], reached, alpha, beta, long)


def line_search(
    system: NewtonSystem, aim: Aim, equality: Bool[Array, " m"], probe: Bool[Array, ""], needed: Bool[Array, ""]
) -> LineSearch:
    """The search along a direction."""
    at, along = system.at, aim.direction
    weight = 1.5 * jnp.max(jnp.abs(jnp.concatenate([at.y, at.y + along.y])), initial=0.0)
    alphas = aim.reach[0] * 2.0 ** -(jnp.arange(_LENGTHS, dtype=at.x.dtype) ** 1.4)
    alphas = jnp.where(probe, jnp.asarray(_BOTH_WAYS, at.x.dtype), alphas)
    return LineSearch(
        system, aim._replace(reach=jnp.where(probe, 1.0, aim.reach)), weight, equality, probe, alphas, needed
    )
