"""Traced functions some of whose primitives are replaced by others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

Substitutes = Mapping[str, Callable[..., Any]]
"""What computes a primitive, by its name."""
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


def portable(function: Callable[..., Any], substitutes: Substitutes) -> Callable[..., Any]:
    """The same function of arrays with other primitives; outside of any `vmap`."""
    if not substitutes:
        return function

    def run(*args: Any) -> Any:
        closed, result = jax.make_jaxpr(function, return_shape=True)(*args)
        results = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(args), substitutes)
        return jax.tree.unflatten(jax.tree.structure(result), results)

    return run


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], substitutes: Substitutes) -> list[Any]:
    """Results of a traced function, its primitives replaced, also inside loops and branches.

    **Arguments:**

    - `jaxpr`: the trace, without its constants.
    - `consts`, `args`: values of its constants and arguments.
    """
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    def replaced(value: Any) -> Any:
        """The body of a loop or branch; any other setting as it is."""
        if not isinstance(value, core.ClosedJaxpr):
            return value
        shapes = (jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in value.in_avals)
        return jax.make_jaxpr(lambda *args: evaluate(value.jaxpr, value.consts, args, substitutes))(*shapes)

    for equation in jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        name, params = equation.primitive.name, equation.params
        inner = params.get("jaxpr", params.get("call_jaxpr"))
        if name in substitutes:
            outputs = [substitutes[name](*map(jnp.asarray, inputs), **params)]
        elif name in _CALLS:
            constants, inner = (inner.consts, inner.jaxpr) if isinstance(inner, core.ClosedJaxpr) else ((), inner)
            outputs = evaluate(inner, constants, inputs, substitutes)
        else:
            if substitutes:
                params = {key: replaced(value) for key, value in params.items()}
                if name == "cond":
                    params["branches"] = tuple(map(replaced, params["branches"]))
            outputs = equation.primitive.bind(*inputs, **params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]
