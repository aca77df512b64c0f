"""Direction of an interior point: Newton's equations at a point, factorized once, and Mehrotra's corrector."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from energymodel.runtime.placement import accelerated
from energymodel.solver.box import Box

_LOWEST_TRUST = 0.1  # an affine step shorter than this spoils Mehrotra's corrector
_STEEP = 1e8  # scaled curvature of a variable beyond that of any smooth problem
DAMPINGS = (0.0, 1e-4, 1e-2, 0.1, 1.01)  # of the infinity norm of the Hessian: the last makes it positive definite
_WRITTEN_OUT = 48  # variables up to which a factorization is written out on accelerators
SADDLE = 3  # dampings, of which the last is a hundredth: where more are needed, some direction bends downwards


def only_if(needed: Bool[Array, ""], work: Callable[..., Any], otherwise: Any, *inputs: Any) -> Any:
    """`work(*inputs)` where it is needed, else `otherwise`, of the same shapes.

    Under `vmap` a branch computes both sides for all lanes; a loop of at most one turn computes nothing if no lane
    needs it. XLA moves out of a loop what does not change in it, so `inputs` are arrays that all costly work starts
    from. On an accelerator, where some of its many lanes always needs it, to ask the host costs more than the work.
    """
    if accelerated():
        return select(needed, work(*inputs), otherwise)

    def turn(carry: Any) -> Any:
        going = carry[0]
        changing = jax.tree.map(lambda leaf: jnp.where(going, leaf, jnp.zeros_like(leaf)), inputs)
        return jnp.zeros((), bool), work(*changing)

    return jax.lax.while_loop(lambda carry: carry[0], turn, (needed, otherwise))[1]


def select(choice: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees."""
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), yes, no)


def row_residual(c: Float[Array, " m"], gap: Float[Array, " g"]) -> Float[Array, " m"]:
    """What the slacks leave of the rows, `c + s - t`."""
    m = c.size
    return c + gap[:m] - gap[m : 2 * m]


class Iterate(NamedTuple):
    """A point of the elastic problem with its derivatives, in scaled units.

    Every slack and every distance to a bound is a gap with a price: s with u, t with v, x - lower and upper - x with
    the multipliers of the bounds.
    """

    box: Box
    free: Bool[Array, " n"]
    x: Float[Array, " n"]
    y: Float[Array, " m"]
    penalty: Float[Array, ""]
    f: Float[Array, ""]
    c: Float[Array, " m"]
    gradient: Float[Array, " n"]  # of f
    pull: Float[Array, " n"]  # gradient of f + y c
    J: Float[Array, "m n"]  # of the rows, by free variables
    W: Float[Array, "n n"]  # Hessian of f + y c, by free variables
    gap: Float[Array, " g"]
    price: Float[Array, " g"]
    costs: Float[Array, " g"]  # what the elastic objective charges for each gap
    finite: Bool[Array, ""]

    @property
    def r(self) -> Float[Array, " m"]:
        """Residual of the rows."""
        return row_residual(self.c, self.gap)

    @property
    def products(self) -> Float[Array, " g"]:
        """Complementarity: all equal to the barrier on the central path."""
        return self.gap * self.price

    @property
    def violation(self) -> Float[Array, ""]:
        """Largest slack that costs."""
        return jnp.max(jnp.where(self.costs > 0, self.gap, 0.0), initial=0.0)


class Direction(NamedTuple):
    """Changes of variables, multipliers, gaps and prices."""

    x: Float[Array, " n"]
    y: Float[Array, " m"]
    gap: Float[Array, " g"]
    price: Float[Array, " g"]


class NewtonSystem(NamedTuple):
    """Newton's equations at an iterate, condensed to the variables [Nocedal & Wright 2006, sec. 19.3].

    (W + J' S J + diag(stiff)) dx = force - J' S shift,   dy = S (J dx + shift)
    """

    at: Iterate
    S: Float[Array, " m"]
    ratio: Float[Array, " mm"]  # gap over price of the slacks
    stiff: Float[Array, " nn"]  # price over gap of the bounds
    factor: Float[Array, "n n"]
    damping: Float[Array, ""]
    saddle: Bool[Array, ""]
    again: Bool[Array, ""]  # the next damping is to be tried, in another turn

    def solve(self, force: Float[Array, " n"], shift: Float[Array, " m"]) -> tuple[Array, Array]:
        """Steps of x and y for a force on x and a residual of the rows."""
        J, S = self.at.J, self.S
        dx = cholesky_solve(self.factor, (force - J.T @ (S * shift)) * self.at.free)
        return dx, S * (J @ dx + shift)

    def direction(self, target: Float[Array, " g"]) -> Direction:
        """To where, by the linearized equations, every row holds and every product is at its target."""
        at, n, m = self.at, self.at.x.size, self.at.c.size
        slack, slack_price, dual = at.gap[: 2 * m], at.price[: 2 * m], at.price[2 * m :]
        ask, push = target[: 2 * m] / slack_price, jnp.where(at.box.bounded, target[2 * m :] / at.gap[2 * m :], 0.0)
        dx, dy = self.solve(push[:n] - push[n:] - at.pull, at.c + ask[:m] - ask[m:])
        row_price, bound_gap = jnp.concatenate([dy, -dy]), at.box.changes(dx)
        row_gap, bound_price = ask - slack - self.ratio * row_price, push - dual - self.stiff * bound_gap
        return Direction(dx, dy, jnp.concatenate([row_gap, bound_gap]), jnp.concatenate([row_price, bound_price]))


def newton_system(
    at: Iterate, damping: Float[Array, ""], needed: Bool[Array, ""], tries: Int[Array, ""]
) -> NewtonSystem:
    """The system at an iterate, with at least some damping, factorized where it is needed.

    On an accelerator only the damping after so many `tries` is looked at: lanes that need the next one take it in
    another turn, while others go on.
    """
    n, m, free, eps = at.x.size, at.c.size, at.free, jnp.finfo(at.x.dtype).eps
    ratio, stiff = at.gap[: 2 * m] / at.price[: 2 * m], at.price[2 * m :] / at.gap[2 * m :]
    # Damping where nothing bends: a step by a hundred times the variables then lowers the objective linearly.
    flat = 1e-2 * jnp.max(jnp.abs(at.pull)) / jnp.maximum(1.0, jnp.max(jnp.abs(at.x)))
    # The lowest compliance bounds what a stiff row may round away from the rest of the matrix; what it leaves of the
    # row, compliance times dy, the next iterations take [proximal multipliers: Rockafellar 1976].
    size = jnp.sum(jnp.abs(at.W), axis=1)
    # A variable at the edge of a root, where curvature has no limit, must not hold the others.
    steep = size > _STEEP
    size = jnp.where(steep, size, jnp.max(jnp.where(steep, 0.0, size)))
    S = 1.0 / (ratio[:m] + ratio[m:] + eps**0.55 / jnp.maximum(1.0, jnp.max(size)))
    A = at.W + (at.J.T * S) @ at.J + jnp.diag(stiff[:n] + stiff[n:] + ~free)
    parts = A, jnp.maximum(size, flat), free, damping
    if not accelerated():
        return NewtonSystem(at, S, ratio, stiff, *factorize(*parts, needed), again=jnp.zeros((), bool))
    factor, damping, good = factorize_once(*parts, tries)
    saddle, again = ~good | (tries >= SADDLE), ~good & (tries + 1 < len(DAMPINGS))
    return NewtonSystem(at, S, ratio, stiff, factor, damping, needed & saddle, needed & again)


def factorize(
    matrix: Array, size: Array, free: Array, damping: Array, needed: Bool[Array, ""] | bool = True
) -> tuple[Float[Array, "n n"], Float[Array, ""], Bool[Array, ""]]:
    """First good Cholesky factor among increasing dampings, and the damping it took.

    Also whether some direction bends downwards by more than a hundredth of the largest bend. A factor that is not
    needed is that of a diagonal matrix.
    """

    def turn(tried: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, last, _ = tried
        factor, _, good = factorize_once(matrix, size, free, damping, count)
        return count + 1, jnp.where(good, factor, last), good

    # Hardly any lane needs the second attempt, so that all at once would cost five times as much.
    needed, many = jnp.asarray(needed), len(DAMPINGS)
    begin = jnp.zeros((), jnp.int32), _diagonal_factor(matrix, size), ~needed
    tries, factor, good = jax.lax.while_loop(lambda tried: ~tried[2] & (tried[0] < many), turn, begin)
    return factor, _dampings(damping)[jnp.maximum(tries - 1, 0)], needed & (~good | (tries > SADDLE))


def factorize_once(
    matrix: Array, size: Array, free: Array, damping: Array, number: Array
) -> tuple[Float[Array, "n n"], Float[Array, ""], Bool[Array, ""]]:
    """Factor with one of the dampings, which that is, and whether it is good; if not, that of a diagonal matrix."""
    chosen, diagonal, eps = _dampings(damping)[number], jnp.abs(jnp.diag(matrix)), jnp.finfo(matrix.dtype).eps
    extra = size * free * chosen
    factor = cholesky(matrix + jnp.diag(extra))
    # A pivot that is nothing but rounding stands for a direction in which the matrix does not bend at all.
    good = jnp.all(jnp.diag(factor) ** 2 > eps * (diagonal + extra))
    return jnp.where(good, factor, _diagonal_factor(matrix, size)), chosen, good


def _dampings(lowest: Array) -> Float[Array, " dampings"]:
    return jnp.maximum(lowest, jnp.asarray(DAMPINGS, lowest.dtype))


def _diagonal_factor(matrix: Array, size: Array) -> Float[Array, "n n"]:
    return jnp.diag(jnp.sqrt(jnp.maximum(jnp.abs(jnp.diag(matrix)), jnp.where(size > 0, size, 1.0))))


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower factor of a positive definite matrix, not a number from the column where it is not.

    Libraries for GPUs factorize thousands of small matrices by way of tables of pointers. There, columns are written
    out one after the other, each for all lanes.
    """
    n = matrix.shape[0]
    if not accelerated() or n > _WRITTEN_OUT:
        return jnp.linalg.cholesky(matrix, symmetrize_input=False)
    columns, rest = [], matrix
    for first in range(n):
        column = rest[:, 0] / jnp.sqrt(rest[0, 0])
        columns.append(jnp.pad(column, (first, 0)))
        rest = rest[1:, 1:] - column[1:, None] * column[1:]
    return jnp.stack(columns, axis=1)


def cholesky_solve(factor: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solution of the equations whose matrix has this lower factor, see `cholesky`."""
    n = right.size
    if not accelerated() or n > _WRITTEN_OUT:
        return jax.scipy.linalg.cho_solve((factor, True), right)
    rest, half, solution = right, [], []
    for row in range(n):
        half.append(rest[0] / factor[row, row])
        rest = rest[1:] - factor[row + 1 :, row] * half[-1]
    rest = jnp.stack(half)
    for row in reversed(range(n)):
        solution.append(rest[row] / factor[row, row])
        rest = rest[:row] - factor[row, :row] * solution[-1]
    return jnp.stack(solution[::-1])


def longest_steps(shrink: Array | float, value: Array, change: Array) -> Array:
    """Longest steps in [0, 1], one per line, that leave every entry at least `(1 - shrink)` of itself.

    The fraction-to-the-boundary rule [Nocedal & Wright 2006, eq. 19.9].
    """
    falling = change < 0
    return jnp.min(jnp.where(falling, -shrink * value / jnp.where(falling, change, -1.0), 1.0), axis=-1, initial=1.0)


class Aim(NamedTuple):
    """A direction, the barrier that it aims at, and the longest steps of gaps and of prices along it."""

    direction: Direction
    barrier: Float[Array, ""]
    reach: Float[Array, " 2"]


def predictor_corrector(system: NewtonSystem, tolerance: float) -> Aim:
    """Mehrotra: an affine step shows how much the complementarity can fall and how far it is from linear."""
    at = system.at
    both = jnp.stack([at.gap, at.price])
    count = jnp.maximum(2 * at.c.size + jnp.sum(at.box.bounded), 1)
    barrier = jnp.sum(at.products) / count
    affine = system.direction(jnp.zeros_like(at.gap))
    alpha = longest_steps(1.0, both, jnp.stack([affine.gap, affine.price]))
    predicted = (at.gap + alpha[0] * affine.gap) @ (at.price + alpha[1] * affine.price) / count
    fall = predicted / jnp.where(barrier > 0, barrier, 1.0)
    target = jnp.maximum(jnp.clip(fall, 0.0, 2.0) ** 3 * barrier, 1e-3 * tolerance)
    # At the lowest barrier nothing is left to predict.
    trusted = (jnp.min(alpha) > _LOWEST_TRUST) & (barrier > 2e-3 * tolerance)
    corrector = jnp.where(trusted, affine.gap * affine.price, 0.0)
    products = jnp.clip(target - corrector, 0.1 * target, jnp.maximum(10 * target, barrier))
    direction = system.direction(products)
    longest = longest_steps(jnp.maximum(0.995, 1.0 - target), both, jnp.stack([direction.gap, direction.price]))
    return Aim(direction, target, longest)
