"""Small problems whose true verdict is known by hand: saddles, endless descents, scales, edges, conflicts.

Functions take the variables one by one, `at_least` are `g >= 0` and `equal` are `h = 0`, as in `published_problems`.
`value` is the minimum where there is one. `SUCCESSFUL` problems have a minimum, `UNBOUNDED` ones fall for ever, be it
ever more slowly, and `INFEASIBLE` ones have no feasible point.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from energymodel.solver import RESULTS
from solver.published_problems import Published

INF = np.inf
exp, log, cos, sqrt, arctan = jnp.exp, jnp.log, jnp.cos, jnp.sqrt, jnp.arctan
SUCCESSFUL, UNBOUNDED, INFEASIBLE = RESULTS.successful, RESULTS.unbounded, RESULTS.infeasible


class Posed(NamedTuple):
    """A problem, its true verdict, and the minimizer where only one point has the optimal value to many digits."""

    problem: Published
    verdict: RESULTS
    best: tuple[float, ...] | None = None


def solved(
    name, value, start, objective, at_least=None, equal=None, lower: Any = -INF, upper: Any = INF, others=(), best=None
):
    """A problem with a minimum."""
    problem = Published(name, value, start, objective, at_least, equal, lower, upper, others)
    return Posed(problem, SUCCESSFUL, best)


def endless(name, start, objective, at_least=None, equal=None, lower: Any = -INF, upper: Any = INF):
    """A problem without a minimum."""
    return Posed(Published(name, -INF, start, objective, at_least, equal, lower, upper), UNBOUNDED)


def conflict(name, start, objective, at_least=None, equal=None, lower: Any = -INF, upper: Any = INF):
    """A problem without a feasible point."""
    return Posed(Published(name, INF, start, objective, at_least, equal, lower, upper), INFEASIBLE)


def sized(make: Callable[[float], Posed], *sizes: float) -> tuple[Posed, ...]:
    """The same problem with variables of several sizes, all of which start at one."""
    return tuple(make(size) for size in sizes)


def both(a: Any, b: Any) -> Any:
    return a**2 + b**2


LARGE, SMALL = (1e8, 1e12), (1e-8, 1e-12)

# fmt: off
STATIONARY_STARTS = (
    solved("well beside a flat summit", -4 / 27, (0,), lambda a: a**6 - a**4),
    solved("flat quartic", 0, (0,), lambda a: a**4),
    solved("well beside a summit", 0, (0,), lambda a: (a**2 - 1) ** 2),
    solved("cosine", -1, (0,), cos),
    solved("flat summit between bounds", -16, (0,), lambda a: -a**4, lower=-1, upper=2, others=(-1,)),
    solved("summit between bounds", -1, (0,), lambda a: -a**2, lower=-1, upper=1),
    solved("inflection above a bound", -8, (0,), lambda a: a**3, lower=-2),
    endless("inverted quartic", (0,), lambda a: -a**4),
    endless("inflection", (0,), lambda a: a**3),
    endless("flat inflection", (0,), lambda a: a**5),
    endless("monkey saddle", (0, 0), lambda a, b: a**3 - 3 * a * b**2),
    # In polar coordinates r^3 cos 3t + r^4, lowest at cos 3t = -1 and r = 3/4.
    solved("monkey saddle in a bowl", -27 / 256, (0, 0), lambda a, b: a**3 - 3 * a * b**2 + both(a, b) ** 2),
    endless("saddle", (0, 0), lambda a, b: a**2 - b**2),
    solved("saddle in a bowl", -0.25, (0, 0), lambda a, b: a**2 - b**2 + b**4),
    solved("saddle that bends little", -0.25, (0, 0), lambda a, b: 1e4 * a**2 - b**2 / 2 + b**4 / 4),
    endless("hyperbola", (0, 0), lambda a, b: a * b),
    solved("two flat quartics", 0, (0, 0), lambda a, b: a**4 + b**4),
    endless("flat saddle", (0, 0), lambda a, b: a**4 - b**4),
    solved("steep flat saddle", -4 / 27, (0, 0), lambda a, b: 100 * a**4 - b**4 + b**6),
    solved("summit of two cosines", -1, (0, 0), lambda a, b: cos(a) * cos(b)),
    solved("flat ridge in a box", -16, (0, 0), lambda a, b: -((a + b) ** 4), lower=-1, upper=1),
    solved("summit in a disk", -1, (0, 0), lambda a, b: -both(a, b), lambda a, b: (1 - both(a, b),)),
    solved("saddle in a disk", -1, (0, 0), lambda a, b: a * b, lambda a, b: (2 - both(a, b),)),
    solved("start where a row is stationary", 1, (0, 0), both, lambda a, b: (a**2 - 1,), lower=-2, upper=2),
    # On a + b = 1 the middle is the highest of stationary points.
    solved("middle of a simplex", 1, (0.5, 0.5), lambda a, b: sqrt(a) + sqrt(b), lambda a, b: (a + b - 1,), lower=0),
    endless("saddle on a line", (0, 0), lambda a, b: a**2 - b**2, equal=lambda a, b: (a,)),
    endless("hyperbola on a line", (0, 0), lambda a, b: a * b, equal=lambda a, b: (a + b,)),
    solved("hyperbola on a line in a box", -1, (0, 0), lambda a, b: a * b, equal=lambda a, b: (a + b,), lower=-1,
           upper=1),
    solved("flat summit on a line", -4 / 27, (0, 0), lambda a, b: b**6 - b**4, equal=lambda a, b: (a,)),
    endless("saddle of three", (0, 0, 0), lambda a, b, c: both(a, b) - c**2),
    solved("flat saddle of three", -1 / 4, (0, 0, 0), lambda a, b, c: a**4 + b**2 - c**2 + c**4),
)

ENDLESS = (
    endless("logarithm", (1,), lambda a: -log(a)),
    endless("logarithm above a bound", (1,), lambda a: -log(a), lower=1e-3),
    endless("root", (1,), lambda a: -sqrt(a), lower=0),
    endless("root without bound", (1,), lambda a: -sqrt(a)),
    endless("reciprocal", (1,), lambda a: 1 / a),
    endless("reciprocal above a bound", (1,), lambda a: 1 / a, lower=1e-3),
    endless("decay", (0,), lambda a: exp(-a)),
    endless("decay from afar", (100,), lambda a: exp(-a)),
    endless("growth", (0,), exp),
    endless("softplus", (0,), lambda a: log(1 + exp(-a))),
    endless("arc tangent", (1,), lambda a: -arctan(a)),
    endless("bell", (1,), lambda a: 1 / (1 + a**2)),
    endless("saturation", (1,), lambda a: -a / (1 + a), lower=0),
    endless("line", (3,), lambda a: -a),
    endless("line of small slope", (3,), lambda a: -1e-6 * a),
    endless("hyperbolic valley", (1, 2), lambda a, b: (a * b - 1) ** 2 + a**2),
    endless("parabola and decay", (1, 1), lambda a, b: a**2 + exp(-b)),
    endless("parabola and reciprocal", (1, 1), lambda a, b: a**2 + 1 / b),
    endless("two logarithms", (1, 1), lambda a, b: -log(a) - log(b), lower=0),
    endless("ray", (1, 1), lambda a, b: -a - b, lambda a, b: (1 + b - a,), lower=0),
    endless("behind a parabola", (1, 1), lambda a, b: -a, lambda a, b: (b**2 - a,)),
    endless("logarithm beside a row", (1, 1), lambda a, b: b - log(a), lambda a, b: (b - 1,), lower=0),
    endless("reciprocal below a line", (1, 1), lambda a, b: 1 / a, lambda a, b: (a - b,), lower=0),
    endless("decay on a line", (0, 0), lambda a, b: exp(-a), equal=lambda a, b: (a - b,)),
)

FLAT_BUT_BOUNDED = (
    solved("decay to a row", np.exp(-5), (0, 0), lambda a, b: exp(-a), lambda a, b: (5 - a,), upper=(INF, 1)),
    solved("decay to a bound", np.exp(-30), (0,), lambda a: exp(-a), upper=30),
    # 2 a = exp(-a) at a = 0.35173371.
    solved("decay against a parabola", 0.82718403, (0, 0), lambda a, b: exp(-a) + b**2, lambda a, b: (b - a,)),
    solved("inverted bell", -1, (3,), lambda a: -exp(-(a**2))),
    solved("logarithm of a parabola", 0, (3,), lambda a: log(1 + a**2)),
    solved("square of a logarithm", 0, (1e4,), lambda a: log(a) ** 2, lower=0),
    solved("twelfth power", 0, (1,), lambda a: a**12),
    solved("twentieth power", 0, (4,), lambda a: (a - 3) ** 20),
    solved("constant", 3, (1,), lambda a: 3.0 + 0 * a),
    solved("flat direction", 0, (1, 1), lambda a, b: (a + b) ** 2),
    solved("optimal face without end", 0, (1, 1), lambda a, b: a, lower=0),
    solved("crossed valleys", 0, (1, 1), lambda a, b: a**2 * b**2),
    solved("hyperboloid", 1, (3, 4), lambda a, b: sqrt(1 + a**2 + b**2)),
    solved("Himmelblau", 0, (0, 0), lambda a, b: (a**2 + b - 11) ** 2 + (a + b**2 - 7) ** 2),
)

SCALES = (
    *sized(lambda s: solved(f"parabola at {s:g}", 0, (1,), lambda a: (a / s - 1) ** 2, best=(s,)), *LARGE, *SMALL),
    *sized(lambda s: solved(f"steep parabola at {s:g}", 0, (1,), lambda a: (a - s) ** 2, best=(s,)), *LARGE),
    *sized(lambda s: solved(f"balance at {s:g}", 2, (1,), lambda a: a / s + s / a, lower=0, best=(s,)),
           *LARGE, *SMALL),
    *sized(lambda s: solved(f"logarithm at {s:g}", 0, (1,), lambda a: log(a / s) ** 2, lower=0, best=(s,)),
           *LARGE, *SMALL),
    *sized(lambda s: solved(f"product of {s:g}", 2 * s, (1, 1), lambda a, b: a + b, lambda a, b: (a * b / s**2 - 1,),
                            lower=0, best=(s, s)), *LARGE, 1e-8),
    *sized(lambda s: solved(f"at least {s:g}", s, (1, 1), lambda a, b: a + b**2, lambda a, b: (a - s,), best=(s, 0)),
           *LARGE),
    *sized(lambda s: solved(f"at least {s:g} in its unit", 1, (1, 1), lambda a, b: a / s + b**2,
                            lambda a, b: (a / s - 1,), best=(s, 0)), *LARGE, *SMALL),
    *sized(lambda s: solved(f"sum below {s:g}", -s, (1, 1), lambda a, b: -a - b, lambda a, b: (s - a - b,), lower=0),
           *LARGE),
    *sized(lambda s: solved(f"corner at {s:g}", -2 * s, (1, 1), lambda a, b: -a - b, lambda a, b: (s - a, s - b)),
           *LARGE),
    *sized(lambda s: solved(f"sum of {s:g}", s**2 / 2, (1, 1), both, equal=lambda a, b: (a + b - s,),
                            best=(s / 2, s / 2)), *LARGE),
    *sized(lambda s: solved(f"sum in units of {s:g}", 2, (1, 1), lambda a, b: (a / s) ** 2 + b**2,
                            equal=lambda a, b: (a / s + b - 2,), best=(s, 1)), *LARGE, *SMALL),
    solved("large and small", 0, (1, 1), lambda a, b: (a / 1e8 - 1) ** 2 + (b / 1e-8 - 1) ** 2, best=(1e8, 1e-8)),
    solved("chain of scales", 0, (1, 1), lambda a, b: (a / 1e12 - 1) ** 2 + (a / 1e12 - b) ** 2, best=(1e12, 1)),
    solved("two balances", 4, (1, 1), lambda a, b: a / 1e8 + 1e8 / a + b / 1e-6 + 1e-6 / b, lower=0, best=(1e8, 1e-6)),
)

EDGES = (
    solved("root at its edge", 0, (1,), sqrt, lower=0),
    solved("root at an edge of one", 1, (4,), lambda a: sqrt(a - 1) + a, lower=1),
    solved("half circle", 0, (0.5,), lambda a: sqrt(1 - a**2), lower=-1, upper=1),
    solved("lower half circle", -1, (0.9,), lambda a: -sqrt(1 - a**2), lower=-1, upper=1),
    solved("root against a line", -0.25, (4,), lambda a: a - sqrt(a), lower=0),
    solved("entropy", -np.exp(-1), (4,), lambda a: a * log(a), lower=0),
    solved("concave entropy", 0, (0.9,), lambda a: -a * log(a), lower=0, upper=1),
    solved("power of three halves", 0, (2,), lambda a: a * sqrt(a), lower=0),
    solved("sum of roots", 0, (1, 2), lambda a, b: sqrt(a) + sqrt(b), lower=0),
    solved("roots in a budget", -2, (0.1, 0.1), lambda a, b: -sqrt(a) - sqrt(b), lambda a, b: (2 - a - b,), lower=0),
    solved("below a root", 0, (2, 1), lambda a, b: a, lambda a, b: (sqrt(a) - b,), lower=0),
    solved("parabola at a bound", 0, (1,), lambda a: a**2, lower=0),
    solved("quartic at a bound", 0, (1,), lambda a: a**4, lower=0),
)

DEGENERATE = (
    solved("fixed variable", 9, (3,), lambda a: a**2, lower=3, upper=3),
    solved("one of two fixed", 5, (1, 2), lambda a, b: (a - b) ** 2 + 5, lower=(-INF, 2), upper=(INF, 2)),
    solved("twice the same equality", 0.5, (3, 0), both, equal=lambda a, b: (a + b - 1, a + b - 1)),
    solved("multiple of an equality", 0.5, (3, 0), both, equal=lambda a, b: (a + b - 1, 1e3 * (a + b - 1))),
    solved("twice the same row", 0.5, (3, 0), both, lambda a, b: (a + b - 1, a + b - 1)),
    solved("equality as two rows", 0.5, (3, 0), both, lambda a, b: (a + b - 1, 1 - a - b)),
    solved("sliver", 1, (3, 0), both, lambda a, b: (a - 1, 1 + 1e-6 - a)),
    solved("implied row", 2, (3, 0), lambda a, b: a + b, lambda a, b: (a + b - 2, a + b + 1), lower=0),
    solved("three rows in a corner", 0, (1, 2), lambda a, b: a + b, lambda a, b: (a, b, a + b)),
    solved("no corner", 1, (0, 3), lambda a, b: a + b, lambda a, b: (a + b - 1, 4 - a - b), lower=0),
    solved("two variables for two equalities", 5, (0, 0), both, equal=lambda a, b: (a + b - 3, a - b + 1)),
)

CONFLICTS = (
    conflict("sum below its bounds", (1, 1), lambda a, b: a + b, lambda a, b: (-1 - a - b,), lower=0),
    conflict("disk of negative radius", (1, 1), lambda a, b: a, lambda a, b: (-1 - both(a, b),)),
    conflict("circle of negative radius", (1, 1), lambda a, b: a, equal=lambda a, b: (both(a, b) + 1,)),
    conflict("row stationary at the start", (0, 0), both, lambda a, b: (a**2 - 1,), lower=-0.5, upper=0.5),
    *(conflict(f"rows {gap:g} apart", (3, 0), both, lambda a, b, gap=gap: (a - 1 - gap, 1 - a))
      for gap in (1.0, 1e-2, 1e-4, 1e-5, 1e-6)),
    *(conflict(f"equalities {gap:g} apart", (3, 0), both, equal=lambda a, b, gap=gap: (a + b - 1, a + b - 1 - gap))
      for gap in (1.0, 1e-2, 1e-4, 1e-5, 1e-6)),
    conflict("conflict far away", (1, 1), both, lambda a, b: (a - 2e8, 1e8 - a)),
    conflict("conflict with an endless objective", (1, 1), lambda a, b: -b, lambda a, b: (a - 2, 1 - a)),
)
# fmt: on

POSED = (*STATIONARY_STARTS, *ENDLESS, *FLAT_BUT_BOUNDED, *SCALES, *EDGES, *DEGENERATE, *CONFLICTS)


def programs(count: int, distance: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs c, rows A and sides b of random linear programs `min c x, A x <= b`, of 4 variables and 8 rows.

    Multipliers y >= 0 combine the rows to zero, and the sides to `-distance sum y`: so that no point violates all of
    them by less than `distance` [Farkas 1902]. A negative distance leaves a ball free.
    """
    random = np.random.default_rng(seed)
    n, m = 4, 8
    A, y = random.normal(size=(count, m, n)), random.uniform(0.2, 1.0, (count, m))
    A[:, -1] = -np.einsum("ki,kij->kj", y[:, :-1], A[:, :-1]) / y[:, -1:]
    inside = random.normal(size=(count, n))
    b = np.einsum("kij,kj->ki", A, inside) - distance
    return random.normal(size=(count, n)), A, b
