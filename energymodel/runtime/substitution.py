"""Formulas in the words of a compiler: primitives of a traced function are replaced by others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core


class Dialect(NamedTuple):
    """What a compiler asks of a formula.

    - `substitutes`: what computes a primitive that it lacks, by name.
    - `pin`: puts lanes into the layout that its loops and branches carry.
    """

    substitutes: Mapping[str, Callable[..., Any]]
    pin: Callable[[Any], Any]


def portable(function: Callable[..., Any], dialect: Dialect) -> Callable[..., Any]:
    """The same function of arrays as a compiler asks for it; outside of any `vmap`."""
    if not dialect.substitutes:
        return function

    def run(*args: Any) -> Any:
        closed, result = jax.make_jaxpr(function, return_shape=True)(*args)
        results = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args), dialect)
        return jax.tree.unflatten(jax.tree.structure(result), results)

    return run


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], dialect: Dialect | None = None) -> list[Any]:
    """Results of a traced function, with its primitives as a compiler asks for them, also inside loops and branches.

    **Arguments:**

    - `jaxpr`: the trace, without its constants.
    - `consts`, `args`: values of its constants and arguments.
    - `dialect`: of the compiler; none changes nothing.
    """
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    substitutes = dialect.substitutes if dialect else {}

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        name, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        if name in substitutes:
            outputs = [substitutes[name](*map(jnp.asarray, inputs), **params)]
        elif name in _CALLS:
            consts, inner = (inner.consts, inner.jaxpr) if isinstance(inner, core.ClosedJaxpr) else ((), inner)
            outputs = evaluate(inner, consts, inputs, dialect)
        else:
            if dialect and any(isinstance(value, core.ClosedJaxpr) for value in params.values()):
                inputs = [_pinned(value, dialect) for value in inputs]
                params = {key: _rewritten(value, dialect) for key, value in params.items()}
            elif dialect and name == "cond":
                params = params | {"branches": tuple(_rewritten(value, dialect) for value in params["branches"])}
            outputs = equation.primitive.bind(*inputs, **params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


def _rewritten(value: Any, dialect: Dialect) -> Any:
    """The body of a loop or branch as the compiler asks for it; any other setting as it is."""
    if not isinstance(value, core.ClosedJaxpr):
        return value

    def body(*args: Any) -> list[Any]:
        return [_pinned(result, dialect) for result in evaluate(value.jaxpr, value.consts, args, dialect)]

    return jax.make_jaxpr(body)(*(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in value.in_avals))


def _pinned(value: Any, dialect: Dialect) -> Any:
    numeric = jnp.ndim(value) and jnp.result_type(value) != jnp.bool_
    return dialect.pin(value) if numeric else value
