"""Which presets does a category hold: their main numbers, and how many of all their numbers are priors?"""

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from energymodel.report.number import PRIOR_MARK
from energymodel.scenarios.files import CATEGORIES, companions, is_quantity, names, read_preset
from energymodel.units import format_quantity

Tree = dict[str, Any]
KINDS = ("measured", "published", "specification", "derived", "definition", "prior")
COLUMNS = {
    "hardware": {
        "peak_flops": "bf16",
        "memory_capacity": "memory",
        "memory_bandwidth": "bandwidth",
        "rated_power": "power",
        "reference_clock": "clock",
    },
    "nodes": {
        "chips": "chips",
        "scale_up.lanes": "lanes",
        "scale_up.lane_bandwidth": "a lane",
        "overhead_power": "host",
    },
}
"""Numbers that tell the presets of a category apart, and their headings."""
_NOTES = {
    "hardware": "bf16 is dense and accumulates in fp32; clock is that of the peak rate, 1 in plan.clock. Each belongs "
    "to the node that --set system.accelerator=NAME brings along; system.node=NAME takes another.",
    "nodes": "A lane is one direction of one link; host is the power of the node beside chips and fans.",
}


def category_json(category: str) -> Tree:
    """Presets of a category by name: title, main numbers with their kinds, how many numbers there are of each kind."""
    return {name: _one(category, name) for name in names(category)}


def _one(category: str, name: str) -> Tree:
    preset = read_preset(category, name)
    numbers = dict(_quantities(preset))
    found = Counter(str(one.get("kind", "given")) for one in numbers.values())
    main = {field: numbers[field] for field in COLUMNS.get(category, {}) if field in numbers}
    node = companions(name).get("node") if category == "hardware" else None
    return {
        "title": str(preset.get("title", "")),
        "numbers": {field: {key: one[key] for key in ("value", "unit", "kind")} for field, one in main.items()},
        "kinds": {kind: found[kind] for kind in KINDS if found[kind]},
        **({"node": node} if node else {}),
    }


def _quantities(table: Any, path: str = "") -> list[tuple[str, Tree]]:
    if is_quantity(table):
        return [(path, table)]
    if not isinstance(table, dict):
        return []
    return [one for key, value in table.items() for one in _quantities(value, f"{path}.{key}" if path else key)]


def category_report(category: str) -> RenderableType:
    """The same as a table; numbers that are priors are marked."""
    columns, presets = COLUMNS.get(category, {}), category_json(category)
    with_node = any("node" in one for one in presets.values())
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    if with_node:
        table.add_column("usual node", no_wrap=True)
    table.add_column("priors", justify="right", no_wrap=True)
    for name, one in presets.items():
        cells = [_cell(one["numbers"].get(field)) for field in columns]
        share = f"{one['kinds'].get('prior', 0)} of {sum(one['kinds'].values())}"
        table.add_row(name, *cells, *([one.get("node", "")] if with_node else []), share)
    marks = f"{PRIOR_MARK} a prior: recalled or assumed. The last column counts priors among all numbers of a preset."
    notes = [
        one for one in (_NOTES.get(category), marks, "`energymodel presets show NAME` says where each is from.") if one
    ]
    return Group(Text(f"{category}: {CATEGORIES[category]}", style="bold"), table, "", Text(" ".join(notes)))


def _cell(number: Tree | None) -> str:
    if number is None:
        return ""
    is_clock = number["unit"] == "Hz"  # as nvidia-smi has it
    shown = f"{number['value'] / 1e6:.0f} MHz" if is_clock else format_quantity(number["value"], number["unit"])
    return f"{shown} {PRIOR_MARK}" if number["kind"] == "prior" else f"{shown}  "
