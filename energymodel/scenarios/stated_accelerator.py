"""An accelerator of which a person states a few numbers; priors over the accelerators that exist stand for the rest."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.ranges import check_field
from energymodel.readers.expressions import data_file
from energymodel.scenarios.components import quantity
from energymodel.scenarios.files import is_quantity, merge, names, read_preset
from energymodel.scenarios.layers import nested
from energymodel.system.accelerator import Accelerator

DATA = data_file(__file__, "stated_accelerator.toml")
"""Numbers that need not be stated, and which of the others each is in proportion to."""
NEEDED = ("peak_flops", "memory_capacity")
BASE = "_accelerator"
FIELDS = {field.name: field for field in dataclasses.fields(Accelerator) if "unit" in field.metadata}


def stated_accelerator(
    title: str, stated: Mapping[str, str | None], node: str | None = None, network: str | None = None
) -> dict[str, Any]:
    """Tables of a file that every command takes as an accelerator.

    A number y that is not stated is `y = x median(y_i / x_i)` over the accelerators i that have both, where x is the
    number that it is in proportion to; its prior is lognormal with the standard deviation of ln(y_i / x_i).

    **Arguments:**

    - `stated`: numbers of `Accelerator` with their unit, by name; at least `peak_flops` and `memory_capacity`. `None`
      is not stated.
    - `node`, `network`: presets.

    **Raises:** `InputError` for an unknown name, a number out of range, and where a needed one is missing.
    """
    given = {name: text for name, text in stated.items() if text is not None}
    if missing := [name for name in NEEDED if name not in given]:
        raise InputError(f'{missing[0]}: missing. Give at least --peak, such as "400 TFLOP/s", and --memory, "64 GB".')
    table: dict[str, Any] = {}
    for name, text in given.items():
        if name not in FIELDS:
            raise InputError(f'"{name}" is no number of an accelerator. {suggest(name, FIELDS)}')
        number = quantity(text, FIELDS[name].metadata["unit"], name)
        check_field(FIELDS[name], [number["value"]], name)
        table[name] = {**number, "source": "stated"}
    presets = (read_preset("hardware", name) for name in names("hardware"))
    chips = [preset for preset in presets if preset["component"] == Accelerator.__name__]
    for name, unit in DATA["absent"].items():
        prior = {"value": 0.0, "unit": unit, "kind": "prior", "source": "not stated: none"}
        table.setdefault(name, prior)
    for path, scale in DATA["proportional"].items():
        if path in table:
            continue
        pairs = [(_at(chip, path), _at(chip, scale) if scale else {"value": 1.0}) for chip in chips]
        ratios = np.array([own["value"] / of["value"] for own, of in pairs if own["value"] > 0.0])
        value = float(np.median(ratios)) * (_at(table, scale)["value"] if scale else 1.0)
        of_scale = f", in proportion to {scale}" if scale else ""
        number = {
            "value": float(f"{value:.3g}"),
            "unit": pairs[0][0]["unit"],
            "kind": "prior",
            "distribution": f"lognormal {np.std(np.log(ratios)):.2g}",
            "source": f"not stated: median of {len(ratios)} accelerators{of_scale}",
        }
        table = merge(table, nested(path, number))
    usual = DATA["machine"]
    machine = {"node": node or usual["node"], "network": network or usual["network"]}
    for part, name in machine.items():
        read_preset(f"{part}s", name)
    parts = {part: {"preset": name} for part, name in machine.items()}
    return {"system": {"accelerator": {"preset": BASE, "title": title, **table}, **parts}}


def _at(table: Any, path: str) -> Any:
    """The number at a dotted path."""
    for part in path.split("."):
        table = table[part]
    assert is_quantity(table)
    return table
