"""Operations of a program, as one list: without repetitions, with other primitives, or with barriers between them.

Formulas call each other, and each computes anew what it needs: many operations of a whole run stand in it more than
once. Derivatives and batches of them would multiply all of it.

XLA merges elementwise operations into kernels. A result that several kernels read is computed anew in each of them
where its operations are cheap, and so are the results that it is made of: derivatives of a long formula become ten
times as long, and take longer still to compile. A barrier at such a result keeps it in memory instead.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from energymodel.runtime.placement import accelerated

CALLS = frozenset({"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"})
"""Operations that only call a function."""
_BODIES = ("jaxpr", "cond_jaxpr", "body_jaxpr", "branches")
"""Parameters of loops and branches that hold functions."""
Substitutes = Mapping[str, Callable[..., Any]]
"""What computes a primitive, by its name."""

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


class Operation(NamedTuple):
    """An equation, with the values that it reads (numbered, or literals) and writes (numbered)."""

    equation: Any
    reads: list[Any]
    writes: list[int]

    def bind(self, values: Sequence[Any], parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Results of the operation, with other parameters if they are given."""
        primitive = self.equation.primitive
        chosen = self.equation.params if parameters is None else parameters
        results = primitive.bind(*values, **primitive.get_bind_params(chosen))
        return list(results) if primitive.multiple_results else [results]


class Listing(NamedTuple):
    """Operations of a function in order, those of the functions that it calls among them; its arguments come first."""

    operations: list[Operation]
    constants: dict[int, Any]
    results: list[Any]


def evaluate_operations(
    listing: Listing, arguments: Sequence[Any], bind: Callable[[Operation, Sequence[Any]], Sequence[Any]]
) -> list[Any]:
    """Results of a function, each of whose operations is carried out by `bind`."""
    values: dict[int, Any] = {**dict(enumerate(arguments)), **listing.constants}

    def read(atom: Any) -> Any:
        return values[atom] if isinstance(atom, int) else atom.val

    for operation in listing.operations:
        values.update(zip(operation.writes, bind(operation, [*map(read, operation.reads)]), strict=True))
    return [read(atom) for atom in listing.results]


def list_operations(closed: ClosedJaxpr) -> Listing:
    """The operations of a function and of all that it calls."""
    operations: list[Operation] = []
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
            if equation.primitive.name in CALLS:
                called: Any = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
                is_closed = isinstance(called, ClosedJaxpr)
                writes = walk(*((called.jaxpr, called.consts) if is_closed else (called, ())), reads)
            else:
                writes = [number() for _ in equation.outvars]
                operations.append(Operation(equation, reads, writes))
            places.update(zip(equation.outvars, writes, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    results = walk(closed.jaxpr, closed.consts, range(size))
    return Listing(operations, constants, results)


def with_bodies(parameters: Mapping[str, Any], evaluated: Callable[[ClosedJaxpr, Any], Any]) -> dict[str, Any]:
    """The parameters of an operation, with another evaluation of the functions in its loops and branches."""

    def rewritten(body: Any) -> Any:
        if isinstance(body, tuple):
            return tuple(map(rewritten, body))
        if not isinstance(body, ClosedJaxpr):
            return body
        return jax.make_jaxpr(lambda *arguments: evaluated(body, arguments))(*body.in_avals)

    return {name: rewritten(value) if name in _BODIES else value for name, value in parameters.items()}


def portable(function: Callable[..., Any], substitutes: Substitutes) -> Callable[..., Any]:
    """The same function of arrays with other primitives; outside of any `vmap`."""
    if not substitutes:
        return function

    def run(*args: Any) -> Any:
        closed, result = jax.make_jaxpr(function, return_shape=True)(*args)
        return jax.tree.unflatten(jax.tree.structure(result), evaluate(closed, jax.tree.leaves(args), substitutes))

    return run


def evaluate(closed: ClosedJaxpr, arguments: Sequence[Any], substitutes: Substitutes | None = None) -> list[Any]:
    """Results of a traced function, its primitives replaced, also inside loops and branches."""

    def bind(operation: Operation, reads: Sequence[Any]) -> list[Any]:
        name, parameters = operation.equation.primitive.name, operation.equation.params
        if not substitutes:
            return operation.bind(reads)
        if name in substitutes:
            return [substitutes[name](*map(jnp.asarray, reads), **parameters)]
        return operation.bind(reads, with_bodies(parameters, lambda body, inner: evaluate(body, inner, substitutes)))

    return evaluate_operations(list_operations(closed), arguments, bind)


def without_repeats(listing: Listing) -> Listing:
    """The same without operations that repeat earlier ones or that no result needs."""
    same: dict[int, Any] = {}
    computed: dict[Hashable, list[int]] = {}
    distinct: list[Operation] = []

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [same.get(atom, atom) if isinstance(atom, int) else atom for atom in atoms]

    for equation, reads, writes in listing.operations:
        operation = Operation(equation, renamed(reads), writes)
        key = _key(operation)
        if key in computed:
            same.update(zip(writes, computed[key], strict=True))
            continue
        distinct.append(operation)
        if key is not None:
            computed[key] = writes
    results = renamed(listing.results)
    needed = {atom for atom in results if isinstance(atom, int)}
    used: list[Operation] = []
    for operation in reversed(distinct):
        if operation.equation.effects or not needed.isdisjoint(operation.writes):
            used.append(operation)
            needed.update(atom for atom in operation.reads if isinstance(atom, int))
    return Listing(used[::-1], listing.constants, results)


def _key(operation: Operation) -> Hashable:
    """What an operation computes; none where it does more than that, or where that is not known."""
    equation = operation.equation
    if equation.effects:
        return None
    reads = [atom if isinstance(atom, int) else (str(atom.aval), repr(atom.val)) for atom in operation.reads]
    key = (equation.primitive, tuple(reads), tuple(sorted(equation.params.items(), key=lambda item: item[0])))
    try:
        hash(key)
    except TypeError:  # a parameter that is no value
        return None
    return key


def with_barriers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays, for `jax.jit` with the option `KEEP_BARRIERS` on CPU; elsewhere the function itself.

    Nothing but compile time changes, and rounding.
    """

    @wraps(function)
    def barred(*arguments: Any, **keywords: Any) -> Any:
        if accelerated():
            return function(*arguments, **keywords)
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments, **keywords)
        return jax.tree.unflatten(
            jax.tree.structure(shape), _evaluate_barred(closed, jax.tree.leaves((arguments, keywords)))
        )

    return barred


def _evaluate_barred(closed: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    listing = without_repeats(list_operations(closed))
    barred = _barred(listing)

    def bind(operation: Operation, reads: Sequence[Any]) -> list[Any]:
        results = operation.bind(reads, with_bodies(operation.equation.params, _evaluate_barred))
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
