"""Switches of DeepSpeed that may be written as tables, and values that its trainer fills in."""

import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.interpreter import Hook, Prepared

BARE = re.compile(r"\"([\w.]+)\"\s*:\s*([A-Z][A-Z0-9_]{2,})\s*[,}\n]")
BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
PRECISIONS = ("bf16", "bfloat16", "fp16")
WITH_EFFECT = (*BATCHES, "bf16.enabled", "fp16.enabled", "zero_optimization.stage", "bfloat16.enabled")


def refuse_placeholders(text: str, where: str) -> None:
    """Refuse a template whose values a script still has to write.

    **Raises:** `InputError` that names the keys and their placeholders.
    """
    if bare := BARE.findall(text[:200_000]):
        names = ", ".join(f"{key} ({value})" for key, value in bare[:6])
        raise InputError(
            f'"{where}" is a template with placeholders: {names}{", ..." if len(bare) > 6 else ""}. '
            "Write their values, or give the file that the script made of it."
        )


def answered(table: Mapping[str, Any], automatic: Mapping[str, int | None]) -> dict[str, Any]:
    """A copy of a file with values in place of "auto"; what is None is left out.

    **Arguments:**

    - `automatic`: what the trainer fills in where the file says "auto", by key (`BATCHES`) [1].
    """
    filled = {key: value for key, value in table.items() if not (key in BATCHES and _is_automatic(table, key))}
    filled |= {key: automatic[key] for key in BATCHES if _is_automatic(table, key) and automatic.get(key) is not None}
    open_precisions = [key for key in PRECISIONS if _is_automatic(table, f"{key}.enabled")]
    settled = any(isinstance(item := table.get(key), Mapping) and item.get("enabled") is True for key in PRECISIONS)
    for index, key in enumerate(open_precisions):
        on = index == 0 and not settled
        filled[key] = {**table[key], "enabled": on}
        if on:
            filled["#note"] = f'{key}.enabled is "auto": taken as {"fp16" if key == "fp16" else "bf16"}'
    return filled


def with_tables(table: dict[str, Any]) -> dict[str, Any]:
    """The table with the switches of ZeRO and precision as tables where they are written as one value."""
    for key, inner in (("zero_optimization", "stage"), *((key, "enabled") for key in PRECISIONS)):
        if isinstance(table.get(key), bool):
            table[key] = {inner: int(table[key]) if inner == "stage" else table[key]}
    return table


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The table without "auto", which is refused with all its keys in one message."""
    left = [path for path in WITH_EFFECT if _is_automatic(table, path)]
    if left:
        raise InputError(
            f'"{where}": {", ".join(left)} {"are" if len(left) > 1 else "is"} "auto", which the trainer fills in at '
            "launch; give --microbatch, --batch and --sequence, or write the values of the run in their place."
        )
    note = table.pop("#note", None)
    return Prepared(with_tables(table), notes=(note,) if note else ())


def _is_automatic(table: Mapping[str, Any], path: str) -> bool:
    value: Any = table
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return isinstance(value, str) and value.strip().lower() == "auto"


def with_underscores(table: dict[str, Any], _: str) -> Prepared:
    """GPT-NeoX's keys with underscores."""
    return Prepared(with_tables({str(key).replace("-", "_"): value for key, value in table.items()}))


HOOK = Hook(prepare)
NEOX = Hook(with_underscores)
