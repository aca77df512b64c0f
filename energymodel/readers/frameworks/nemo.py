"""NeMo's sections as arguments of Megatron-LM, with the interpolations of OmegaConf worked out.

References (`${model.hidden_size}`, `${.hidden_size}`) and NeMo's arithmetic (`${multiply:a,b}`) are worked out from
the inside outwards, each value once, without reading the environment or following bombs. All else stays as a
placeholder, which a reader refuses where it needs the value.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.interpreter import Hook, Prepared
from energymodel.readers.training.keys import Keys, table_of

OVERLAPS = ("overlap_grad_sync", "overlap_param_sync")
INNERMOST = re.compile(r"\$\{([^${}]*)\}")
MOST_VALUES, MOST_INTERPOLATED = 20_000, 1_000
LONGEST = 400  # characters of a value
LINKS = 100  # of a chain of references
FUNCTIONS = {
    "multiply": lambda left, right: left * right,
    "divide_ceil": lambda left, right: math.ceil(left / right),
    "divide_floor": lambda left, right: math.floor(left / right),
    "add": lambda left, right: left + right,
}
"""NeMo's arithmetic."""


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The arguments of a file with `trainer` and `model`, alone or below `training`."""
    for name in ("trainer", "model"):
        table_of(table.get(name), where, name)
    interpolation = Interpolation(table, where)
    model, trainer = interpolation.copy("model"), Keys(interpolation.copy("trainer"), where, "trainer.")
    names = ("optim", "data", "peft", "tokenizer")
    optim, data, peft, tokenizer = (model[name] if isinstance(model.get(name), Mapping) else {} for name in names)
    optimizer = str(optim.get("name", ""))
    strategy = model.pop("fsdp_sharding_strategy", None)
    arguments = model | {key: value for key, value in optim.items() if key in OVERLAPS}
    arguments["use_distributed_optimizer"] = optimizer in ("mcore_distributed_optim", "distributed_fused_adam")
    arguments["optimizer"] = optimizer or None
    for key, value in (("encoder_seq_length", data.get("seq_length")), ("precision", trainer.get("precision"))):
        if arguments.get(key) is None:
            arguments[key] = value
    steps = trainer.count("max_steps", lowest=-1)
    arguments["max_steps"] = steps if steps and steps > 0 else None
    devices = trainer.raw("devices gpus")  # a number or a list; -1 is as many as there are
    if devices not in (-1, "auto", "-1"):
        count = len(devices) if isinstance(devices, list) else trainer.count("devices gpus")
        arguments |= {"#nodes": trainer.count("num_nodes") or 1, "#per_node": count} if count else {}
    accumulation = trainer.count("accumulate_grad_batches")
    if accumulation is not None and accumulation > 1:
        needed = "1: NeMo's Megatron models accumulate by global_batch_size"
        raise trainer.refuse("accumulate_grad_batches", accumulation, needed)
    kind, scheme = tokenizer.get("type"), peft.get("peft_scheme")
    words = {
        "tokenizer": kind if isinstance(kind, str) and "$" not in kind else None,
        "adapters": str(scheme)[:40] if scheme not in (None, "none", "null") else None,
        "gradients_alone": strategy == "grad",
    }
    return Prepared(arguments, words, prefix="model.")


class Interpolation:
    """The values of a table, by their paths; those with interpolations are worked out once each.

    **Raises:** `InputError` if the table has more values or interpolations than a configuration has.
    """

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self.table = table
        self.solved = dict(_values(table))
        self.texts = {path: v for path, v in self.solved.items() if isinstance(v, str) and "${" in v}
        if len(self.solved) > MOST_VALUES or len(self.texts) > MOST_INTERPOLATED:
            raise InputError(
                f'"{where}" holds more than {MOST_VALUES} values or {MOST_INTERPOLATED} interpolations; '
                "is it the right file?"
            )
        for path in self.texts:
            del self.solved[path]
        self.below = "training" in table  # a launcher puts its file below `training`
        for path in self.texts:
            self._solve(path, 0)

    def copy(self, name: str) -> dict[str, Any]:
        """A copy of a section with its values; those that cannot be worked out are placeholders."""

        def put(value: Any, path: tuple[str, ...]) -> Any:
            if isinstance(value, Mapping):
                return {str(key): put(item, (*path, str(key))) for key, item in value.items()}
            if path not in self.texts or self.solved[path] is not None:
                return self.solved.get(path, value)
            return f"<{re.sub(r'[^A-Za-z0-9_.]+', ' ', self.texts[path]).strip()[:50] or 'interpolation'}>"

        return put(self.table[name], (name,))

    def _solve(self, path: tuple[str, ...], depth: int) -> Any:
        """The value at a path: a switch, number or text; None where it cannot be worked out."""
        if path not in self.solved and path in self.texts:
            self.solved[path] = None  # while it is worked out: it may refer to itself
            text: Any = self.texts[path]
            text = text if self.below else re.sub(r"\$\{training\.(model|trainer|run)\.", r"${\1.", text)
            text = text[: LONGEST + 1]
            while isinstance(text, str) and len(text) <= LONGEST and (match := INNERMOST.search(text)):
                value = self._inner(match[1], path, depth) if depth <= LINKS else None
                if not isinstance(value, bool | int | float | str):
                    return None
                text = value if match[0] == text else f"{text[: match.start()]}{value}{text[match.end() :]}"
            self.solved[path] = None if isinstance(text, str) and (len(text) > LONGEST or "${" in text) else text
        return self.solved.get(path)

    def _inner(self, text: str, path: tuple[str, ...], depth: int) -> Any:
        """The value of what stands between the braces."""
        name, colon, arguments = text.partition(":")
        if colon:
            try:
                return FUNCTIONS[name.strip()](*(_number(part.strip()) for part in arguments.split(",")))
            except (KeyError, TypeError, ValueError, ArithmeticError):
                return None
        keys = text.strip().lstrip(".")
        dots = len(text.strip()) - len(keys)
        return self._solve((*(path[: len(path) - dots] if dots else ()), *keys.split(".")), depth + 1)


def _values(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All values by their paths; a list is one value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _values(item, (*path, str(key)))
    else:
        yield path, value


def _number(text: str) -> float | int:
    number = int(text) if re.fullmatch(r"-?\d{1,15}", text) else float(text)
    if not abs(number) < 1e15:
        raise ValueError("no number below 1e15")
    return number


HOOK = Hook(prepare)
