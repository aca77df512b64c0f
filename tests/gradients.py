"""Derivatives in tests: of a small formula checked by differences, of a whole run compiled for a single use.

Compiling is what takes most of the time of such a test. A formula of ten operations has hundreds of small programs in
its derivatives; without `jit` each primitive is a program that all checks share.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.test_util

from energymodel.runtime.compilation import compiler_options


def check_grads(
    function: Callable[..., Any], args: Sequence[Any], *, order: int, loops: bool = False, **options: Any
) -> None:
    """`jax.test_util.check_grads` outside of `jit`, unless the formula `loops`, which takes long outside of it."""
    with jax.disable_jit(not loops):
        jax.test_util.check_grads(function, args, order=order, **options)


def compiled_once(function, *args):
    return jax.jit(function, compiler_options=compiler_options(once=True))(*args)


def derivative_once(derivative, function, *args):
    """`derivative(function)(*args)` of a whole run, whose operations are not merged."""
    return jax.jit(derivative(function), compiler_options=compiler_options(once=True, unfused=True))(*args)
