"""Line search of an interior point: straight on or along an arc, the longest step first."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from energymodel.solver.newton_system import Aim, Direction, Iterate, NewtonSystem, longest_steps, only_if, row_residual

_ARMIJO = 1e-4  # [Wachter & Biegler 2006]
_TRIALS = 6  # step lengths
_PAIR = 2  # trials of a length: straight on and along an arc
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


class _Search(NamedTuple):
    """A line search between two trials; a pair of them shares a step length."""

    turn: Int[Array, ""]
    arc: tuple[Float[Array, " n"], Float[Array, " g"]]
    end: LineSearchEnd
    passed: Bool[Array, ""]  # the taken trial passes, and ends the search
    straight: Bool[Array, ""]  # it is the first of its pair


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
    search ends with its first pair, so that a loop over trials evaluates the problem twice instead of a dozen times.
    `at_once` is for a problem that no loop can hold: it evaluates the first pair, then all other trials at once, and
    asks for the values at a point that is not a number where it needs none.
    """
    at, along = system.at, aim.direction
    weight = 1.5 * jnp.max(jnp.abs(jnp.concatenate([at.y, at.y + along.y])), initial=0.0)
    merit = Merit(at.costs, weight, aim.barrier)
    here, slope = merit.value(at.f, at.c, at.gap), jnp.minimum(merit.slope(at, along), 0.0)
    rules = _Rules(at, merit, equality, probe, here, slope)
    alphas = aim.reach[0] * 2.0 ** -(jnp.arange(_TRIALS, dtype=at.x.dtype) ** 1.4)
    alphas = jnp.where(probe, jnp.asarray(_BOTH_WAYS, at.x.dtype), alphas)
    aim = aim._replace(reach=jnp.where(probe, 1.0, aim.reach))

    def point(turn: Array, arc: tuple[Array, Array]) -> tuple[Array, Array]:
        return _moved(system, aim, arc, alphas[turn // _PAIR], turn % _PAIR == 1)

    def advance(search: _Search, evaluate: Callable[[Array, Array], Array]) -> _Search:
        turn, bent = search.turn, search.turn % _PAIR == 1
        alpha = alphas[turn // _PAIR]
        x, gap = point(turn, search.arc)
        new = evaluate(turn, x)
        trial = Trial(x, gap[: 2 * at.c.size], new[1:])
        passes, harmless = rules.judge(trial, new[0], alpha)
        straight = jnp.where(bent, search.straight, harmless)
        taken = jnp.where(bent, passes | (harmless & ~search.straight), harmless)
        end = LineSearchEnd(trial, alpha, aim.reach[1], passes & (turn < _TRIALS))
        end = jax.tree.map(partial(jnp.where, taken), end, search.end)
        arc = only_if(turn == 0, partial(_arc, system, aim), search.arc, new[1:])
        return _Search(turn + 1, arc, end, passes | (bent & search.passed), straight)

    def unfinished(search: _Search) -> Array:
        ended = (search.turn % _PAIR == 0) & (search.passed | (search.turn == _PAIR * _TRIALS))
        return needed & ~ended

    no, zero = jnp.zeros((), bool), jnp.zeros_like(at.f)
    end = LineSearchEnd(Trial(at.x, at.gap[: 2 * at.c.size], at.c), zero, zero, no)
    search = _Search(jnp.zeros((), jnp.int32), (jnp.zeros_like(at.x), jnp.zeros_like(at.gap)), end, no, no)
    if not at_once:
        return jax.lax.while_loop(unfinished, partial(advance, evaluate=lambda _, x: scaled(x)), search).end
    for _ in range(_PAIR):
        search = advance(search, lambda _, x: scaled(jnp.where(needed, x, jnp.nan)))
    going, arc = unfinished(search), search.arc
    rest = jax.vmap(lambda turn: jnp.where(going, point(turn, arc)[0], jnp.nan))(jnp.arange(_PAIR, _PAIR * _TRIALS))
    table = jax.vmap(scaled)(rest)
    return jax.lax.while_loop(unfinished, partial(advance, evaluate=lambda turn, _: table[turn - _PAIR]), search).end


def _moved(
    system: NewtonSystem, aim: Aim, arc: tuple[Array, Array], alpha: Array, bent: Bool[Array, ""]
) -> tuple[Array, Array]:
    """Variables and gaps at a step length, straight on or along the arc."""
    dx2, dgap2 = (jnp.where(bent, leaf, 0.0) for leaf in arc)
    dx, _, dgap, _ = aim.direction
    return system.at.x + alpha * dx + alpha**2 * dx2, system.at.gap + alpha * dgap + alpha**2 * dgap2


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
