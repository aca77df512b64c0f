"""Check derivatives of a small formula by differences, without compiling each step of each derivative.

A formula of ten operations has hundreds of small programs in its derivatives, and compiling them takes most of the
time of the check. Without `jit` each primitive is a program that all checks share.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.test_util


def check_grads(
    function: Callable[..., Any], args: Sequence[Any], *, order: int, loops: bool = False, **options: Any
) -> None:
    """`jax.test_util.check_grads` outside of `jit`, unless the formula `loops`, which takes long outside of it."""
    with jax.disable_jit(not loops):
        jax.test_util.check_grads(function, args, order=order, **options)
