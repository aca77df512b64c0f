"""Expressions and refusals of the data files of this package, and sums and lists that users write."""

import ast
import operator
import string
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from energymodel.errors import InputError
from energymodel.units import SI_UNITS, format_quantity

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}
LONGEST_LIST, LARGEST = 20_000, 10**15


@cache
def data_file(module: str, name: str) -> dict[str, Any]:
    """The table of a TOML file that lies beside a module of this package."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


def evaluate(expression: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression of a data file of this package; values of users are its operands only.

    **Returns:** None also where the expression fails because one of its names is None.
    """
    code = _compiled(expression)
    try:
        return eval(code, {**names, "__builtins__": {}})
    except (TypeError, AttributeError):
        if any(names.get(name, "") is None for name in code.co_names):
            return None
        raise


@cache
def _compiled(expression: str) -> Any:
    return compile(expression, expression, "eval")


class _Sentences(string.Formatter):
    """Sentences in which a number may have a unit in place of a format."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return format_quantity(value, format_spec) if format_spec in SI_UNITS else format(value, format_spec)


def refuse(rows: Iterable[Mapping[str, Any]], words: Mapping[str, Any], path: str = "") -> None:
    """Refuse what the first row whose expression `refuse` holds says may not be.

    **Arguments:**

    - `rows`: of a data file, each with the `text` of its message and perhaps a `path` before it, an expression of the
      `value` that it is about, or names of `each` of several.
    - `words`: of expressions and messages.
    - `path`: before the text of rows without one, such as a file of a user, whose name is no sentence.

    **Raises:** `InputError` with path and text.
    """
    for row in rows:
        for name in row.get("each", [""]):
            bound = {**words, "name": name} if name else words
            if value := name or row.get("value"):
                bound = {**bound, "value": evaluate(value, words)}
            if evaluate(row["refuse"], bound):
                before, text = (_Sentences().vformat(row.get(part, ""), (), bound) for part in ("path", "text"))
                raise InputError(": ".join(part for part in (before or path, text) if part))


def work_out(rules: Mapping[str, Any], words: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Words with those that follow: by an expression of the words before, unless a rule with `refuse` refuses them.

    **Raises:** `InputError` that begins with `path`, as `refuse`.
    """
    for name, rule in rules.items():
        if isinstance(rule, str):
            words[name] = evaluate(rule, words)
        else:
            refuse([rule], words, path)
    return words


def constant_of(text: str) -> int | list[int] | None:
    """The value of whole numbers and lists of them with + - * / (rounded down) and parentheses; None for all else."""
    try:
        return _constant(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _constant(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        return [_constant(item) for item in node.elts]
    if not isinstance(node, ast.BinOp):
        raise TypeError("no sum")
    left, right = _constant(node.left), _constant(node.right)
    counts = [value if isinstance(value, int) else len(value) for value in (left, right)]
    lists = [value for value in (left, right) if isinstance(value, list)]
    if lists and max(sum(counts), counts[0] * counts[1] * isinstance(node.op, ast.Mult)) > LONGEST_LIST:
        raise ValueError("a list beyond any model")
    value = OPERATORS[type(node.op)](left, right)
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise ValueError("no number below 1e15")
    return value
