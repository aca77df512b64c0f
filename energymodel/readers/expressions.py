"""Expressions in the data files of this package, such as "tensor > 1 and on('sequence_parallel')"."""

from collections.abc import Mapping
from functools import cache
from typing import Any


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression of a data file of this package; values of users are its operands only.

    **Returns:** None also where the expression fails because one of its names is None.
    """
    code = _compiled(expression)
    try:
        return eval(code, {**names, "__builtins__": {}})
    except TypeError:
        if any(names.get(name, "") is None for name in code.co_names):
            return None
        raise


@cache
def _compiled(expression: str) -> Any:
    return compile(expression, expression, "eval")
