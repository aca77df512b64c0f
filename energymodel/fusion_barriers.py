"""How does XLA compile thousands of small operations without writing each of them down many times?

XLA merges elementwise operations into kernels. A result that several kernels read is computed anew in each of them
where its operations are cheap, and so are the results that it is made of: derivatives of a long formula become ten
times as long, and take longer still to compile. A barrier at such a result keeps it in memory instead.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

KEEP_BARRIERS: Mapping[str, Any] = {"xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting"}
"""Option of XLA for CPU, which otherwise removes barriers before it merges operations. A short loop that it makes one
kernel of could not hold any, and takes minutes to compile where its body is a whole run."""
MOST_REPEATED = 4
"""Operations that every kernel may compute anew for a result that it reads."""
_CALLS = {"jit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Operations that only call a function, which XLA puts in their place, and the parameter that holds it."""
_LOOPS = ("jaxpr", "cond_jaxpr", "body_jaxpr", "branches")
"""Parameters of loops and branches that hold functions."""
_TRANSCENDENTAL = (
    *("exp", "exp2", "expm1", "log", "log1p", "logistic", "pow", "sqrt", "rsqrt", "cbrt", "erf", "erf_inv", "lgamma"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_COMPUTED_ONCE = frozenset(
    (*_TRANSCENDENTAL, "div", "rem", "dot_general", "sort", "cond", "scan", "shard_map", "while")
)
"""Operations whose results XLA computes once, because they are expensive or no part of a kernel."""


class _Operation(NamedTuple):
    """An equation, with the values that it reads (numbered, or literals) and writes (numbered)."""

    equation: Any
    reads: list[Any]
    writes: list[int]


class _Listing(NamedTuple):
    """Operations of a function in order, those of the functions that it calls among them; its arguments come first."""

    operations: list[_Operation]
    constants: dict[int, Any]
    results: list[Any]


def with_barriers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays, for `jax.jit` with the option `KEEP_BARRIERS` on CPU; elsewhere the function itself.

    Nothing but compile time changes, and rounding.
    """

    @wraps(function)
    def barred(*arguments: Any) -> Any:
        if jax.default_backend() != "cpu":
            return function(*arguments)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return jax.tree.unflatten(jax.tree.structure(shape), _evaluate(closed, jax.tree.leaves(arguments)))

    return barred


def _evaluate(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    listing = _listing(closed)
    kept = _kept(listing)
    values: dict[int, Any] = {**dict(enumerate(arguments)), **listing.constants}

    def read(atom: Any) -> Any:
        return values[atom] if isinstance(atom, int) else atom.val

    for equation, reads, writes in listing.operations:
        primitive = equation.primitive
        found = primitive.bind(*map(read, reads), **primitive.get_bind_params(_inner(equation.params)))
        for place, result in zip(writes, found if primitive.multiple_results else [found], strict=True):
            values[place] = jax.lax.optimization_barrier(result) if place in kept else result
    return [read(atom) for atom in listing.results]


def _inner(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an operation, with barriers in its loops and branches."""

    def barred(inner: Any) -> Any:
        if isinstance(inner, tuple):
            return tuple(map(barred, inner))
        if not isinstance(inner, ClosedJaxpr):
            return inner
        return jax.make_jaxpr(lambda *arguments: _evaluate(inner, arguments))(*inner.in_avals)

    return {name: barred(value) if name in _LOOPS else value for name, value in parameters.items()}


def _listing(closed: ClosedJaxpr) -> _Listing:
    operations: list[_Operation] = []
    constants: dict[int, Any] = {}
    size = len(closed.jaxpr.invars)

    def number() -> int:
        nonlocal size
        size += 1
        return size - 1

    def walk(jaxpr: Jaxpr, held: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        places: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, value in zip(jaxpr.constvars, held, strict=True):
            places[variable] = number()
            constants[places[variable]] = value

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, Literal) else places[atom]

        for equation in jaxpr.eqns:
            reads = [read(atom) for atom in equation.invars]
            called = equation.params.get(_CALLS.get(equation.primitive.name, ""))
            if isinstance(called, ClosedJaxpr):
                writes = walk(called.jaxpr, called.consts, reads)
            else:
                writes = [number() for _ in equation.outvars]
                operations.append(_Operation(equation, reads, writes))
            places.update(zip(equation.outvars, writes, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    results = walk(closed.jaxpr, closed.consts, range(size))
    return _Listing(operations, constants, results)


def _kept(listing: _Listing) -> frozenset[int]:
    """Results at which a barrier stands: read more than once, and made of too many operations to compute them anew."""
    uses = Counter(atom for operation in listing.operations for atom in operation.reads if isinstance(atom, int))
    uses.update(atom for atom in listing.results if isinstance(atom, int))
    repeated: dict[int, int] = {}  # operations that a kernel computes for a result that it reads
    kept = set()
    for equation, reads, writes in listing.operations:
        count = 1 + sum(repeated.get(atom, 0) for atom in reads if isinstance(atom, int))
        for place in writes:
            if uses[place] < 2:
                repeated[place] = count
            elif equation.primitive.name in _COMPUTED_ONCE:
                continue
            elif count > MOST_REPEATED:
                kept.add(place)
            else:
                repeated[place] = count
    return frozenset(kept)
