"""Barriers by which XLA compiles thousands of small operations without writing each down many times.

XLA merges elementwise operations into kernels. A result that several kernels read is computed anew in each of them
where its operations are cheap, and so are the results that it is made of: derivatives of a long formula become ten
times as long, and take longer still to compile. A barrier at such a result keeps it in memory instead.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from energymodel.runtime.operations import (
    Listing,
    Operation,
    evaluate_operations,
    list_operations,
    with_bodies,
    without_repeats,
)
from energymodel.runtime.placement import accelerated

KEEP_BARRIERS: Mapping[str, Any] = {"xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting"}
"""Option of XLA for CPU, which otherwise removes barriers before it merges operations. A short loop that it makes one
kernel of could not hold any, and takes minutes to compile where its body is a whole run."""
MOST_REPEATED = 4
"""Operations that every kernel may compute anew for a result that it reads."""
_TRANSCENDENTAL = (
    *("exp", "exp2", "expm1", "log", "log1p", "logistic", "pow", "sqrt", "rsqrt", "cbrt", "erf", "erf_inv", "lgamma"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_COMPUTED_ONCE = frozenset(
    (*_TRANSCENDENTAL, "div", "rem", "dot_general", "sort", "cond", "scan", "shard_map", "while")
)
"""Operations whose results XLA computes once, because they are expensive or no part of a kernel."""


def with_barriers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays, for `jax.jit` with the option `KEEP_BARRIERS` on CPU; elsewhere the function itself.

    Nothing but compile time changes, and rounding.
    """

    @wraps(function)
    def barred(*arguments: Any, **keywords: Any) -> Any:
        if accelerated():
            return function(*arguments, **keywords)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments, **keywords)
        return jax.tree.unflatten(jax.tree.structure(shape), _evaluate(closed, jax.tree.leaves((arguments, keywords))))

    return barred


def _evaluate(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    listing = without_repeats(list_operations(closed))
    barred = _barred(listing)

    def bind(operation: Operation, reads: Sequence[Any]) -> list[Any]:
        results = operation.bind(reads, with_bodies(operation.equation.params, _evaluate))
        return [
            jax.lax.optimization_barrier(result) if index in barred else result
            for index, result in zip(operation.writes, results, strict=True)
        ]

    return evaluate_operations(listing, arguments, bind)


def _barred(listing: Listing) -> frozenset[int]:
    """Results at which a barrier stands: read more than once, and made of too many operations to compute them anew."""
    uses = Counter(atom for operation in listing.operations for atom in operation.reads if isinstance(atom, int))
    uses.update(atom for atom in listing.results if isinstance(atom, int))
    repeated: dict[int, int] = {}  # operations that a kernel computes for a result that it reads
    barred = set()
    for equation, reads, writes in listing.operations:
        count = 1 + sum(repeated.get(atom, 0) for atom in reads if isinstance(atom, int))
        for index in writes:
            if uses[index] < 2:
                repeated[index] = count
            elif equation.primitive.name in _COMPUTED_ONCE:
                continue
            elif count > MOST_REPEATED:
                barred.add(index)
            else:
                repeated[index] = count
    return frozenset(barred)
