"""Derivatives in tests: of a small formula checked by differences, of a whole run whose operations run one by one.

Compiling is what takes most of the time of such a test. A formula of ten operations has hundreds of small programs in
its derivatives; without `jit` each primitive is a program that all checks share. So it is with the ten thousand
operations of the gradient of a whole run, which are traced in 1 s, run in 0.5 s, and compiled as one program in 10 s.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.test_util

from energymodel.runtime.compilation import compiler_options
from energymodel.runtime.operations import Operation, evaluate_operations, list_operations


def check_grads(
    function: Callable[..., Any], args: Sequence[Any], *, order: int, loops: bool = False, **options: Any
) -> None:
    """`jax.test_util.check_grads` outside of `jit`, unless the formula `loops`, which takes long outside of it."""
    with jax.disable_jit(not loops):
        jax.test_util.check_grads(function, args, order=order, **options)


def compiled_once(function, *args):
    return jax.jit(function, compiler_options=compiler_options(once=True))(*args)


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays, traced once for arguments of a kind, its operations run one by one."""
    traced = {}

    def run(*args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        kind = structure, *((jax.numpy.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves)
        if kind not in traced:
            closed, result = jax.make_jaxpr(function, return_shape=True)(*args)
            traced[kind] = list_operations(closed), jax.tree.structure(result)
        listing, result = traced[kind]
        return jax.tree.unflatten(result, evaluate_operations(listing, leaves, Operation.bind))

    return run
