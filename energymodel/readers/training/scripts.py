"""Literals that a Python script hands to a trainer. Nothing of it is run."""

import ast
import operator
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.interpreter import Hook, Prepared, framework
from energymodel.readers.training.keys import at, quoted

OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Pow: operator.pow, ast.LShift: operator.lshift,
}  # fmt: skip
LARGEST = 1e18
MOST_BITS = 40  # of an exponent
MOST_NODES = 100_000
OBJECTS = ("model", "args", "tokenizer", "peft_config", "quantization_config")
"""Arguments that are made elsewhere in a script."""
LINKS = 20  # of names that stand for names


def read_script(text: str, where: str) -> dict[str, Any]:
    """Arguments of the calls of a script in the tables of their names, and its constants in capitals.

    `TransformerConfig.olmo2_7B(vocab_size=8)` is `{"TransformerConfig": {"olmo2_7B": {"vocab_size": 8}}}`; `first` is
    an argument without a name. What is no literal is a placeholder such as `<args.batch_size>`. Keys that begin with
    `#` are names of calls.

    **Raises:** `InputError` for what is no Python, and for a configuration that is made twice, otherwise.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f'"{where}" is no Python that can be read: {error}.') from None
    if len(nodes) > MOST_NODES:
        raise InputError(f'"{where}" is too long a script to be read. Give the arguments of its command.')
    names: dict[str, list[ast.expr]] = {}
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else []:
            if isinstance(target, ast.Name) and isinstance(value, ast.expr):
                # A name that is changed stands for nothing.
                names.setdefault(target.id, []).extend([value] * (2 if isinstance(node, ast.AugAssign) else 1))
    constants = {name: values[0] for name, values in names.items() if len({ast.dump(value) for value in values}) == 1}
    table: dict[str, Any] = {name: _value(value, constants) for name, value in constants.items() if name.isupper()}
    table = {name: value for name, value in table.items() if value is not None}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        path = _dotted(call.func).split(".")[-2:]
        if not path[0][:1].isupper():
            path = path[1:]
        if not path or not path[0][:1].isupper():
            continue
        arguments = {keyword.arg: _value(keyword.value, constants) for keyword in call.keywords if keyword.arg}
        arguments |= {"first": _value(call.args[0], constants)} if call.args else {}
        inner = table
        for name in path:
            below = inner.setdefault(name, {})
            inner = below if isinstance(below, dict) else {}
        for key, value in arguments.items():
            is_settings = path[-1].endswith(("Config", "Arguments")) and key != "first"
            if is_settings and inner.get(key, value) != value:
                raise InputError(
                    f'"{where}" calls {path[-1]} with {key} {quoted(inner[key])} and {quoted(value)}. '
                    "Keep the call of one run."
                )
            inner.setdefault(key, value)
        table[f"#{path[0]}"] = None
    return table


def _dotted(node: ast.AST) -> str:
    """The dotted name of a node; the last names only, where it hangs on something else."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr, constants: Mapping[str, ast.expr], depth: int = 0) -> Any:
    """The value of a literal, of a product or sum of literals, or of a name that stands for one; else a placeholder."""
    placeholder = f"<{''.join(part if part.isalnum() or part in '._-' else ' ' for part in ast.unparse(node))[:40]}>"
    if depth > LINKS:
        return placeholder
    match node:
        case ast.Constant(value=value):
            return value if isinstance(value, bool | int | float | str | None) else placeholder
        case ast.Name(id=name) if name in constants:
            return _value(constants[name], constants, depth + 1)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, constants, depth + 1) for item in items]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            flag = _value(operand, constants, depth + 1)
            return not flag if isinstance(flag, bool) else placeholder
        case ast.Call(func=func) if _dotted(func).endswith(("is_bfloat16_supported", "is_bf16_supported")):
            return True  # on every accelerator since 2020
        case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
            numbers = [_value(side, constants, depth + 1) for side in (left, right)]
            is_small = all(map(_is_count, numbers)) and numbers[1] <= MOST_BITS
            is_wide = isinstance(op, ast.Pow | ast.LShift) and not is_small
            is_divided = isinstance(op, ast.Div | ast.FloorDiv)
            if all(map(_is_number, numbers)) and (numbers[1] or not is_divided) and not is_wide:
                return OPERATORS[type(op)](*numbers)
        case ast.Call(func=func, args=[argument]):
            number = _value(argument, constants, depth + 1)
            if _is_number(number):
                return int(number) if _dotted(func) in ("int", "float") else f"{_dotted(func)}({number})"
        case ast.Attribute() if _dotted(node)[:1].isupper() or _dotted(node).startswith("torch."):
            return _dotted(node)
    return placeholder


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**20


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def prepare_trainer(table: dict[str, Any], where: str) -> Prepared:
    """Arguments of Hugging Face's trainer from a file, a command or the calls of a script, under their own names."""
    flat: dict[str, Any] = {}
    for path in framework("hf-trainer")["calls"].split():
        arguments = at(table, path)
        for key, value in arguments.items() if isinstance(arguments, Mapping) else ():
            is_object = isinstance(value, Mapping) or (key in OBJECTS and str(value).startswith("<"))
            if not is_object and (key != "first" or path.endswith("from_pretrained")):
                flat.setdefault(key, value)
    table = {**{key: value for key, value in table.items() if key.startswith("#")}, **flat} if flat else dict(table)
    zero = table.get("deepspeed")
    if isinstance(zero, Mapping):  # the table of a file of DeepSpeed in place of its name
        table |= {"zero_stage": at(zero, "zero_optimization.stage"), "deepspeed": None}
        table["offload_optimizer_device"] = at(zero, "zero_optimization.offload_optimizer.device")
        table["offload_param_device"] = at(zero, "zero_optimization.offload_param.device")
    inner = table.pop("fsdp_config", None)
    for key, value in inner.items() if isinstance(inner, Mapping) else ():
        table.setdefault(f"fsdp_{str(key).removeprefix('fsdp_')}", value)
    return Prepared(table)


def prepare_olmo(table: dict[str, Any], where: str) -> Prepared:
    """The literals of a script for OLMo-core; what is none is left out, and named."""
    left_out = []
    for name, inner in table.items():
        for key, value in list(inner.items()) if isinstance(inner, dict) else ():
            if str(value).startswith("<"):
                left_out += [] if str(value)[1:2].isupper() else [f"{name}.{key}"]
                del inner[key]
    names = [name for name, value in dict(table.get("TransformerConfig") or {}).items() if isinstance(value, Mapping)]
    if len(names) > 1:
        raise InputError(f'"{where}" makes several models, {" and ".join(names[:3])}. Keep one.')
    sentence = f"no literals, and not read: {', '.join(left_out[:6])}"
    words = {"model_name": names[0].replace("_", "-") if names else None}
    return Prepared(table, words, (sentence,) if left_out else ())


TRAINER_HOOK, OLMO_HOOK = Hook(prepare_trainer), Hook(prepare_olmo)
