"""How far does an interior point go along its direction: all step lengths at once, straight on and along an arc."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from energymodel.solver.newton_system import Aim, Direction, Iterate, NewtonSystem, longest_steps, row_residual

_ARMIJO = 1e-4  # [Wachter & Biegler 2006]
_TRIALS = 6  # step lengths tried at once
_BOTH_WAYS = (1.0, -1.0, 0.125, -0.125, 2.0**-6, -(2.0**-6))  # and those of a probe
_LOWER = 1e-8  # a point must lie by so much below a stationary one for that to be no minimum


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

    merit: Float[Array, "*trials"]
    x: Float[Array, "*trials n"]
    slack: Float[Array, "*trials mm"]
    c: Float[Array, "*trials m"]


class Found(NamedTuple):
    """Where a line search ends: the steps that it takes of variables and gaps, and of multipliers and prices."""

    trial: Trial
    alpha: Float[Array, ""]
    beta: Float[Array, ""]
    long: Bool[Array, ""]  # one of the three longest steps passes


def line_search(
    scaled: Callable[[Array], Array],
    system: NewtonSystem,
    aim: Aim,
    equality: Bool[Array, " m"],
    probe: Bool[Array, ""],
) -> Found:
    """The longest trial that lowers the merit enough; `scaled` evaluates scaled objective and rows at scaled x.

    A probe looks both ways from a stationary point for one where objective and violations together are lower; none
    found is a step of zero.
    """
    at, along = system.at, aim.direction
    weight = 1.5 * jnp.max(jnp.abs(jnp.concatenate([at.y, at.y + along.y])), initial=0.0)
    merit = Merit(at.costs, weight, aim.barrier)
    alphas = aim.reach[0] * 2.0 ** -(jnp.arange(_TRIALS, dtype=at.x.dtype) ** 1.4)
    alphas = jnp.where(probe, jnp.asarray(_BOTH_WAYS, at.x.dtype), alphas)
    aim = aim._replace(reach=jnp.where(probe, 1.0, aim.reach))

    def exact(f: Array, c: Array) -> Array:
        return f + at.penalty * jnp.sum(jnp.where(equality, jnp.abs(c), jnp.maximum(c, 0.0)), axis=-1)

    trials, values = _trials(scaled, system, aim, merit, alphas)
    trials = trials._replace(merit=jnp.where(probe, exact(values, trials.c), trials.merit))
    alphas = jnp.repeat(alphas, 2)
    here = merit.value(at.f, at.c, at.gap)
    rounding = jnp.abs(at.f) + jnp.abs(here) + at.penalty * at.violation + 1.0
    rounding = 20 * jnp.finfo(at.x.dtype).eps * rounding
    usable = jnp.isfinite(trials.merit)
    level = exact(at.f, at.c)
    lower = usable & (trials.merit < level - _LOWER * jnp.maximum(1.0, jnp.abs(level)))
    passed = usable & (trials.merit <= here + _ARMIJO * alphas * jnp.minimum(merit.slope(at, along), 0.0) + rounding)
    # Where none passes, the shortest step that does little harm, or no step at all.
    harmless = usable & (trials.merit <= here + 0.1 * jnp.abs(here) + 1.0)
    passed, harmless = jnp.where(probe, lower, passed), jnp.where(probe, lower, harmless)
    some, any_harmless = jnp.any(passed), jnp.any(harmless)
    chosen = jnp.where(some, jnp.argmax(passed), alphas.size - 1 - jnp.argmax(harmless[::-1]))
    return Found(
        trial=Trial(*(leaf[chosen] for leaf in trials)),
        alpha=jnp.where(any_harmless, alphas[chosen], 0.0),
        beta=jnp.where(any_harmless, aim.reach[1], 0.0),
        long=some & (chosen < 6),
    )


def _trials(
    scaled: Callable[[Array], Array], system: NewtonSystem, aim: Aim, merit: Merit, alphas: Float[Array, " trials"]
) -> tuple[Trial, Float[Array, " both"]]:
    """Trials of all step lengths, the longest first; of two equal ones the arc. And the objective at each.

    First straight on, then along an arc: what the rows do beyond their linear part bends the step, or curved
    constraints would stall it [Maratos 1978; second-order correction, Nocedal & Wright 2006, section 18.3]. One loop
    over both holds one copy of the problem, which is what compiling costs.
    """
    at, full = system.at, aim.reach[0]
    dx, _, dgap, _ = aim.direction

    def attempt(arc: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Trial, Array]]:
        dx2, dgap2 = arc

        def move(alpha: Array) -> tuple[Trial, Array]:
            x = at.x + alpha * dx + alpha**2 * dx2
            new = scaled(x)
            slack = (at.gap + alpha * dgap + alpha**2 * dgap2)[: 2 * at.c.size]
            value = merit.value(new[0], new[1:], jnp.concatenate([slack, at.box.distances(x)]))
            return Trial(value, x, slack, new[1:]), new[0]

        moves = jax.vmap(move)(alphas)
        return _arc(system, aim, moves[0].c[0] - at.c - full * (at.J @ dx)), moves

    def interleave(leaf: Array) -> Array:
        return jnp.swapaxes(leaf[::-1], 0, 1).reshape(2 * _TRIALS, *leaf.shape[2:])

    _, moves = jax.lax.scan(attempt, (jnp.zeros_like(at.x), jnp.zeros_like(at.gap)), None, length=2)
    return jax.tree.map(interleave, moves)


def _arc(system: NewtonSystem, aim: Aim, bend: Float[Array, " m"]) -> tuple[Array, Array]:
    """Second-order correction of x and gaps, per square of the step length, for what the full step bends the rows."""
    at, full = system.at, aim.reach[0]
    dx, _, dgap, _ = aim.direction
    bend = jnp.where(jnp.isfinite(jnp.sum(bend)), bend, 0.0)
    dx2, dy2 = system.solve(jnp.zeros_like(at.x), bend)
    dgap2 = jnp.concatenate([-system.ratio * jnp.concatenate([dy2, -dy2]), at.box.changes(dx2)])
    share = longest_steps(0.9, at.gap + full * dgap, dgap2)
    # A correction as long as the step itself is no correction.
    share = jnp.where(jnp.max(jnp.abs(dx2)) > full * jnp.max(jnp.abs(dx)), 0.0, share) / full**2
    return share * dx2, share * dgap2
