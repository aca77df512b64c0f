"""Switches of DeepSpeed that may be written as tables, and values that its trainer fills in."""

import re
from collections.abc import Mapping
from typing import Any

from energymodel.errors import InputError
from energymodel.readers.training.interpreter import Hook, Prepared
from energymodel.readers.training.keys import at

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
    asked = {key: automatic.get(key) for key in BATCHES if _is_automatic(table, key)}
    filled = {key: value for key, value in (dict(table) | asked).items() if key not in asked or value is not None}
    settled = any(isinstance(item := table.get(key), Mapping) and item.get("enabled") is True for key in PRECISIONS)
    for key in PRECISIONS:
        if _is_automatic(table, f"{key}.enabled"):
            filled[key] = {**table[key], "enabled": not settled}
            if not settled:
                filled["#note"] = f'{key}.enabled is "auto": taken as {"fp16" if key == "fp16" else "bf16"}'
            settled = True
    return filled


def prepare(table: dict[str, Any], where: str) -> Prepared:
    """The table without "auto", which is refused with all its keys in one message, and with underscores."""
    left = [path for path in WITH_EFFECT if _is_automatic(table, path)]
    if left:
        raise InputError(
            f'"{where}": {", ".join(left)} {"are" if len(left) > 1 else "is"} "auto", which the trainer fills in at '
            "launch; give --microbatch, --batch and --sequence, or write the values of the run in their place."
        )
    note = table.pop("#note", None)
    table = {str(key).replace("-", "_"): value for key, value in table.items()}
    for key in ("zero_optimization", *PRECISIONS):  # a switch may stand in place of its table
        if isinstance(table.get(key), bool):
            table[key] = {"stage": int(table[key])} if key == "zero_optimization" else {"enabled": table[key]}
    return Prepared(table, notes=(note,) if note else ())


def _is_automatic(table: Mapping[str, Any], path: str) -> bool:
    return str(at(table, path)).strip().lower() == "auto"


HOOK = Hook(prepare)
