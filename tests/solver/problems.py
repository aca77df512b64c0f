"""Published and posed problems of the solver, read from their tables, and random linear programs."""

import string
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from energymodel.solver import Values, minimize
from solver import published_functions

NAMES = {
    **vars(published_functions),
    "PI": np.pi,
    "R2": np.sqrt(2.0),
    "R3": np.sqrt(3.0),
    "arctan": jnp.arctan,
    "both": lambda a, b: a**2 + b**2,
}


fast = eqx.filter_jit(minimize)


def ended(solution, result):
    """Whether all lanes end in a result."""
    return bool(np.all(solution.result == result))


HS71: dict[str, Any] = {
    "objective": lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
    "x0": np.array([1.0, 5.0, 5.0, 1.0]),
    "bounds": (1.0, 5.0),
    "inequalities": lambda x: 25.0 - jnp.prod(x),
    "equalities": lambda x: jnp.sum(x**2) - 40.0,
}
"""[Hock & Schittkowski 1981, no. 71]: optimum 17.0140173 at (1, 4.7429994, 3.8211503, 1.3794082)."""


TARGETS = np.random.default_rng(0).normal(size=(11, 3))


def bent_valley(x, target):
    """A bent valley, in which curvature is negative, with a limit that is curved and one that excludes some targets."""
    bent = x.at[1].add(x[0] ** 2) - target
    return Values(jnp.log1p(bent @ bent) + 0.1 * bent[2] ** 4, jnp.stack([x @ x - 2.0, x[0] - 0.5]))


class Problem(NamedTuple):
    """A problem as its table states it, for one size `s` of its variables."""

    name: str
    row: dict[str, Any]
    s: float | None = None

    def numbers(self, key: str, default: Any = 0.0) -> np.ndarray:
        """A number, or several, some of them as an expression."""
        entry = self.row.get(key, default)
        return np.asarray(eval(entry, {**NAMES, "s": self.s}) if isinstance(entry, str) else entry, float)

    def at(self, text: str, x) -> Any:
        """An expression of the variables a, b, c ..., or of all as x."""
        letters = dict(zip(string.ascii_lowercase, x, strict=False))
        return eval(text, {**NAMES, "s": self.s, **letters, "x": tuple(x)})

    def rows(self, key: str, x) -> Any:
        """Constraints in one vector, from an expression for each or for all."""
        entry = self.row.get(key, [])
        rows = self.at(entry, x) if isinstance(entry, str) else [self.at(text, x) for text in entry]
        return jnp.stack([jnp.asarray(row, float) for row in rows]) if len(rows) else jnp.zeros(0)

    @property
    def optima(self) -> np.ndarray:
        """The published optimum, then other local ones."""
        return np.append(self.numbers("value"), self.numbers("others", []))

    @property
    def x0(self) -> np.ndarray:
        return self.numbers("start")

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        lower, upper = self.numbers("lower", -np.inf), self.numbers("upper", np.inf)
        return np.broadcast_to(lower, self.x0.shape), np.broadcast_to(upper, self.x0.shape)

    def f(self, x):
        return jnp.asarray(self.at(self.row["objective"], x), float)

    def g(self, x):
        """Inequalities `g <= 0`."""
        return -self.rows("at_least", x)

    def h(self, x):
        return self.rows("equal", x)


def read(name: str) -> list[Problem]:
    """The problems of a table, one for each of their sizes."""
    table = tomllib.loads((Path(__file__).parent / f"{name}_problems.toml").read_text(encoding="utf-8"))
    sizes = [(key, row, s) for key, row in table.items() for s in row.get("sizes", [None])]
    return [Problem(key if s is None else key.format(s=s), row, s) for key, row, s in sizes]


def by_shape(problems: list[Problem]) -> dict[tuple[int, int, int], list[Problem]]:
    """Problems by their numbers of variables, inequalities and equalities: those of one shape share a program."""
    groups: dict[tuple[int, int, int], list[Problem]] = {}
    for problem in problems:
        x = problem.x0
        groups.setdefault((x.size, problem.g(x).size, problem.h(x).size), []).append(problem)
    return dict(sorted(groups.items()))


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
