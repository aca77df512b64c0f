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
from energymodel.readers.training.interpreter import Hook, Prepared, framework
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
    worked_out = interpolated(table, where)
    below, notes = _laid_below(table, where)
    model, trainer = below | worked_out["model"], Keys(worked_out["trainer"], where, "trainer.")
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
    return Prepared(arguments, words, notes, prefix="model.")


def _laid_below(table: Mapping[str, Any], where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the configuration of a program of NeMo says of the model, over which its command lies, and a note on it."""
    names = [key[1:] for key in table if key.startswith("#megatron")]
    program = " ".join([*names, str(table.get("config_name", ""))]).strip()[:400]
    if match := re.search(framework("nemo")["unlike"], program):
        raise InputError(
            f'"{where}" starts {program}: the configuration of NeMo below its settings ({match[0]}) is not read. Give '
            "that YAML, with the settings of the command written into it."
        )
    for pattern, below in framework("nemo")["laid_below"].items():
        if re.search(pattern, program):
            stated = ", ".join(f"{key} {value}" for key, value in below.items())
            return dict(below), (f"of NeMo's configuration below {program} is taken: {stated}",)
    return {}, ()


def prepare_foundry(table: dict[str, Any], where: str) -> Prepared:
    """The settings of a file of LLM Foundry, which a file for MosaicML's platform holds as `parameters`."""
    inner = table_of(table.get("parameters", table), where, "parameters")
    platform = Keys(table, where)
    devices = platform.count("compute.gpus gpu_num") if inner is not table else None
    launched = {"#nodes": 1, "#per_node": devices} if devices else {}
    return Prepared(interpolated(inner, where) | launched, prefix="" if inner is table else "parameters.")


def interpolated(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A copy of a table with its interpolations worked out; those that cannot be are placeholders.

    **Raises:** `InputError` if the table has more values or interpolations than a configuration has.
    """
    values = dict(_values(table))
    texts = {path: value for path, value in values.items() if isinstance(value, str) and "${" in value}
    if len(values) > MOST_VALUES or len(texts) > MOST_INTERPOLATED:
        raise InputError(
            f'"{where}" holds more than {MOST_VALUES} values or {MOST_INTERPOLATED} interpolations; '
            "is it the right file?"
        )
    # A launcher puts its file below `training`.
    below = "" if "training" in table else r"\$\{training\.(model|trainer|run)\."
    left: dict[tuple[str, ...], Any] = {
        path: re.sub(below, r"${\1.", text) if below else text for path, text in texts.items()
    }
    values |= dict.fromkeys(texts)
    for _ in range(LINKS):
        for path, text in list(left.items()):
            left[path] = text = _filled(text, path, values)
            if not (isinstance(text, str) and (len(text) > LONGEST or "${" in text)):
                values[path] = left.pop(path)
    for path in left:
        values[path] = f"<{re.sub(r'[^A-Za-z0-9_.]+', ' ', texts[path]).strip()[:50] or 'interpolation'}>"

    def copy(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {str(key): copy(item, (*path, str(key))) for key, item in value.items()}
        return values.get(path, value)

    return copy(table, ())


def _filled(text: Any, path: tuple[str, ...], values: Mapping[tuple[str, ...], Any]) -> Any:
    """A text with its innermost interpolations in place, as far as their values are worked out: a text, or a number."""
    while isinstance(text, str) and len(text) <= LONGEST and (match := INNERMOST.search(text)):
        name, colon, arguments = match[1].partition(":")
        keys = match[1].strip().lstrip(".")
        dots = len(match[1].strip()) - len(keys)
        value = values.get((*(path[: len(path) - dots] if dots else ()), *keys.split(".")))
        if colon:
            try:
                value = FUNCTIONS[name.strip()](*(_number(part.strip()) for part in arguments.split(",")))
            except (KeyError, TypeError, ValueError, ArithmeticError):
                value = None
        if not isinstance(value, bool | int | float | str):
            break
        text = value if match[0] == text else f"{text[: match.start()]}{value}{text[match.end() :]}"
    return text


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


HOOK, FOUNDRY_HOOK = Hook(prepare), Hook(prepare_foundry)
INTERPOLATED_HOOK = Hook(lambda table, where: Prepared(interpolated(table, where)))
