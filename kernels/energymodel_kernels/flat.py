"""Formulas over a component as functions of a flat vector of numbers, which a kernel can take.

A kernel cannot capture arrays. The numbers of a component, and those that a formula closes over, become one vector; in
the kernel the formula runs on numbers read from it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from energymodel.runtime.operations import evaluate


class Flat(NamedTuple):
    """A formula without captured arrays, `function(varying, numbers)`, and the values of its numbers."""

    function: Callable[[Any, Sequence[Any]], Any]
    numbers: list[Array]


def flatten(formula: Callable[[Any, Any], Any], varying: Any, parameters: Any, dtype: Any) -> Flat:
    """Trace a scalar formula `formula(varying, parameters)` once, with all its constant numbers in a list.

    **Arguments:**

    - `formula`: pure, of scalars; numbers that it closes over count as parameters.
    - `varying`: pytree in the form of what differs from lane to lane; its values do not matter.
    - `parameters`: pytree of scalars, such as a component; whatever is not a number stays as it is.
    - `dtype`: precision of the kernel.

    **Returns:** the formula as a function of `varying` and of a sequence of numbers, and those numbers.

    **Raises:** `ValueError` naming a parameter that is not a scalar.
    """
    traced, static = eqx.partition(parameters, eqx.is_array_like)
    for path, leaf in jax.tree_util.tree_leaves_with_path(traced):
        if jnp.ndim(leaf):
            name = f"parameters{jax.tree_util.keystr(path)}"
            raise ValueError(
                f"{name} has shape {jnp.shape(leaf)}: a kernel takes scalars, pass its elements one by one"
            )
    leaves, structure = jax.tree.flatten(traced)

    def call(varying: Any, leaves: Sequence[Any]) -> Any:
        return formula(varying, eqx.combine(jax.tree.unflatten(structure, leaves), static))

    kinds = [_kind(leaf, dtype) for leaf in leaves]
    form = jax.tree.map(lambda _: jax.ShapeDtypeStruct((), dtype), varying)
    closed, result = jax.make_jaxpr(call, return_shape=True)(form, [jax.ShapeDtypeStruct((), kind) for kind in kinds])
    for const in closed.consts:
        if jnp.ndim(const):
            raise ValueError(f"the formula closes over an array of shape {jnp.shape(const)}: a kernel takes scalars")
    constants = [jnp.result_type(const) for const in closed.consts]

    def function(varying: Any, numbers: Sequence[Any]) -> Any:
        values = [number.astype(kind) for number, kind in zip(numbers, constants + kinds, strict=True)]
        arguments = [*jax.tree.leaves(varying), *values[len(constants) :]]
        results = evaluate(closed.replace(consts=values[: len(constants)]), arguments)
        return jax.tree.unflatten(jax.tree.structure(result), results)

    return Flat(function, [jnp.asarray(number).astype(dtype) for number in (*closed.consts, *leaves)])


def _kind(leaf: Any, dtype: Any) -> Any:
    """Precision of a number in the kernel."""
    kind = jnp.result_type(leaf)
    if jnp.issubdtype(kind, jnp.floating):
        return dtype
    return jnp.int32 if jnp.issubdtype(kind, jnp.integer) else kind
