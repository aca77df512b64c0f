"""Presets with what they build on, the fields of their components, and their numbers."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import equinox as eqx

import energymodel
from energymodel.learning.recipe import Recipe
from energymodel.scenarios.components import NEAR_LIMIT, field_class, final_classes, resolve
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.near_limit import NEAR_LIMIT_RANGES
from energymodel.system.facility import Facility, Market

__all__ = ["ROOT", "fields_of", "names", "read", "value"]

ROOT = Path(energymodel.__file__).parent / "presets"


@cache
def fields_of(component: str) -> Mapping[str, str | set[str]]:
    """Unit of each number of a component; of each other field, the components that may stand there.

    What a part may leave out is not among them.
    """
    if component == NEAR_LIMIT:
        return dict.fromkeys(NEAR_LIMIT_RANGES, "1") | {
            "bits_per_flop": "bit/FLOP",
            "reference_voltage": "V",
            "temperature": "K",
            "rated_power": "W",
            "die_area": "m^2",
        }
    owner = next(kind for kind in modules(eqx.Module) if kind.__name__ == component)
    return {
        field.name: field.metadata.get("unit") or set(final_classes(field_class(owner, field.name)))
        for field in dataclasses.fields(owner)
        if not field.metadata.get("optional")
    }


def modules(kind):
    """Modules of this package below a class; other packages have classes of the same names."""
    for below in kind.__subclasses__():
        yield from modules(below)
    if kind.__module__.startswith("energymodel."):
        yield kind


def read(folder, name):
    """A preset with its base; a region, a facility or a recipe with the presets that it names."""
    tables = read_preset(folder, name)
    kind = {"regions": Market, "facilities": Facility, "recipes": Recipe}.get(folder)
    return resolve(tables, kind, name) if kind else tables


def value(tables, path):
    for part in path.split("."):
        tables = tables[part]
    return float(tables["value"])
