"""Which names of an earlier version stand for which of this one?

Files, options and tables of the last version are still read, with a warning that names the new word. The next
version drops this file.
"""

import warnings
from collections.abc import Mapping
from typing import Any

RENAMED = {
    "interleaving": "virtual_stages",
    "eight_bit": "fp8",
    "four_bit": "fp4",
    "peak_flops_8bit": "peak_flops_fp8",
    "peak_flops_4bit": "peak_flops_fp4",
    "eight_bit_energy_ratio": "fp8_energy_ratio",
    "eight_bit_efficiency": "fp8_efficiency",
    "four_bit_efficiency": "fp4_efficiency",
    "host_time": "launch_overhead",
    "host_exponent": "launch_exponent",
    "late_exchange": "late_communication",
    "nanotron-h100-ring-unmended": "nanotron-h100-ring-before-fix",
}

MOVED = {
    "cooling": {
        "wet_bulb_temperature": ("weather", "wet_bulb"),
        "approach": ("rejection", "approach"),
        "blend_width": ("weather", "spread"),
    }
}
"""Numbers that another component of their table holds now."""

DROPPED = {
    "collective_steps": "node.collectives.start_latency, as measured, and software.collective_latency",
    "gemm_half_size": "accelerator.gemm_edge, as measured, and software.product_efficiency",
    "gemm_tile": "accelerator.gemm_edge and accelerator.expert_tile, as measured",
}
"""Numbers without a successor of the same unit, and what now says what they said."""


def current_name(name: str) -> str:
    """The name in this version of a key, a dotted path, a column or a preset; warns where it was another."""
    parts = [RENAMED.get(part, part) for part in name.split(".")]
    if len(parts) > 1:
        parts[-1:] = MOVED.get(parts[-2], {}).get(parts[-1], parts[-1:])
    current = ".".join(parts)
    if current != name:
        _warn(name, current)
    return current


def _warn(name: str, current: str) -> None:
    message = f'"{name}" is now called "{current}". The old name works in this version only: change it.'
    warnings.warn(message, FutureWarning, stacklevel=1)


def current_names(tables: Any) -> Any:
    """The same tables with every key, text and dotted path under its name in this version."""
    if isinstance(tables, Mapping):
        for key in DROPPED.keys() & tables.keys():
            message = f'"{key}" is not used any more; see {DROPPED[key]}. This version ignores it: remove it.'
            warnings.warn(message, FutureWarning, stacklevel=1)
        tables = {key: value for key, value in tables.items() if key not in DROPPED}
        return {
            current_name(key): _moved(key, current_names(value)) if key in MOVED else current_names(value)
            for key, value in tables.items()
        }
    if isinstance(tables, list | tuple):
        return [current_names(value) for value in tables]
    return current_name(tables) if isinstance(tables, str) else tables


def current_critical_batch(table: dict[str, Any]) -> dict[str, Any]:
    """A power law of the critical batch with its coefficient at the pivot; warns where it was at one token.

    The number may be text, a bare number or a table with its origin.
    """
    if table.get("component") != "PowerCriticalBatch" or "coefficient" not in table:
        return table
    message = (
        '"coefficient" of a PowerCriticalBatch, at one token, is now "at_pivot", the critical batch at "pivot" tokens. '
        "The old name works in this version only: change it."
    )
    warnings.warn(message, FutureWarning, stacklevel=1)
    others = {key: one for key, one in table.items() if key != "coefficient"}
    return {**others, "at_pivot": table["coefficient"], "pivot": {"value": 1.0, "unit": "token"}}


def current_system(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a system with the recipe that the last version did not have; warns where it is missing."""
    if "recipe" in tables:
        return tables
    message = 'system.recipe is missing: it is now needed and is taken to be "standard". Add recipe = "standard".'
    warnings.warn(message, FutureWarning, stacklevel=1)
    return {**tables, "recipe": "standard"}


def _moved(owner: str, table: Any) -> Any:
    """The table of a component with the numbers that another one holds now where they belong."""
    if not isinstance(table, Mapping):
        return table
    current = {key: value for key, value in table.items() if key not in MOVED[owner]}
    for key, (holder, name) in MOVED[owner].items():
        if key in table:
            _warn(f"{owner}.{key}", f"{owner}.{holder}.{name}")
            given = current.get(holder, {})
            current[holder] = {**(given if isinstance(given, Mapping) else {"preset": given}), name: table[key]}
    return current
