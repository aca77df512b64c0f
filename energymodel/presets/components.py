"""How do tables of numbers become components, with the origin of every number kept?"""

import dataclasses
import inspect
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx

from energymodel.economics.carbon import Carbon
from energymodel.economics.cost import AbstractPrice
from energymodel.errors import InputError, suggest
from energymodel.learning.continued import ContinuedLearning
from energymodel.learning.critical_batch import AbstractCriticalBatch
from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import AbstractLossLaw
from energymodel.performance.reliability import Reliability
from energymodel.performance.workload import Transformer
from energymodel.presets.files import read_preset
from energymodel.presets.near_limit import expand
from energymodel.system.accelerator import Accelerator
from energymodel.system.cluster import Network, Node, Software
from energymodel.system.facility import Facility, Market
from energymodel.units import convert, parse_quantity

CATEGORY_OF: dict[type, str] = {
    Accelerator: "hardware",
    Node: "nodes",
    Network: "networks",
    Software: "software",
    Transformer: "models",
    Facility: "facilities",
    Market: "regions",
    AbstractPrice: "prices",
    Carbon: "carbon",
    AbstractLearning: "learning",
    ContinuedLearning: "learning",
    AbstractLossLaw: "laws",
    AbstractCriticalBatch: "laws",
    Reliability: "reliability",
}
QUANTITY_KEYS = {"value", "unit", "kind", "source", "distribution"}


class Provenance(NamedTuple):
    """Where a number comes from."""

    unit: str
    kind: str
    source: str
    distribution: str

    @property
    def is_prior(self) -> bool:
        """Whether the number is recalled or assumed, not measured or specified."""
        return self.kind == "prior"


def merge(base: Any, change: Any) -> Any:
    """Lay `change` over `base`: tables merge key by key; text, numbers, arrays and preset names replace.

    A table of another component replaces too: numbers of the one below mean nothing to it.
    """
    if not isinstance(change, dict) or "preset" in change or is_quantity(change):
        return change
    if isinstance(base, str):
        base = {"preset": base}
    if not isinstance(base, dict) or is_quantity(base):
        return change
    if "component" in base and change.get("component", base["component"]) != base["component"]:
        return change
    merged = dict(base)
    for key, value in change.items():
        merged[key] = merge(base[key], value) if key in base else value
    return merged


def is_quantity(table: Any) -> bool:
    """Whether a table is one number with unit and source."""
    return isinstance(table, dict) and "value" in table


def expand_presets(table: Any, kind: type, path: str) -> dict[str, Any]:
    """Replace preset names by what their files say, at this component and below."""
    category = _category(kind)
    if isinstance(table, str):
        table = {"preset": table}
    if not isinstance(table, dict):
        raise InputError(f"{path}: a table or a preset name is needed, not {table!r}.")
    table = dict(table)
    name = table.pop("preset", None)
    if name is not None:
        if category is None:
            raise InputError(f'{path}: there are no presets for this component; give its numbers instead of "{name}".')
        preset = read_preset(category, str(name))
        if preset.get("component") == "NearLimitAccelerator":
            table = _expand_near_limit(preset, table, path)
        else:
            table = merge({key: value for key, value in preset.items() if key != "title"}, table)
    final = component_class(kind, table.get("component"), path)
    for field in dataclasses.fields(final):
        if _is_component(field) and field.name in table:
            kind_below = field_class(final, field.name)
            table[field.name] = expand_presets(table[field.name], kind_below, f"{path}.{field.name}")
    return table


def _expand_near_limit(preset: dict[str, Any], change: dict[str, Any], path: str) -> dict[str, Any]:
    chosen = {key: change.pop(key) for key in list(change) if key in preset and key not in _ACCELERATOR_FIELDS}
    for key, value in chosen.items():
        preset[key] = quantity(value, preset[key]["unit"], f"{path}.{key}")
    both = [key for key in change if key in preset and key in _ACCELERATOR_FIELDS]
    for key in both:
        preset[key] = quantity(change.pop(key), preset[key]["unit"], f"{path}.{key}")
    table = expand(preset, read_preset("hardware", preset["template"]))
    return merge({key: value for key, value in table.items() if key != "title"}, change)


_ACCELERATOR_FIELDS = {field.name for field in dataclasses.fields(Accelerator)}


def quantity(given: Any, unit: str, path: str, *, difference: bool = False) -> dict[str, Any]:
    """One number as a table in SI, from text, a bare number or a table with its origin."""
    if not is_quantity(given):
        value = parse_quantity(given, unit, path, difference=difference)
        return {"value": value, "unit": unit, "kind": "given", "source": "scenario"}
    unknown = set(given) - QUANTITY_KEYS
    if unknown:
        word = sorted(unknown)[0]
        raise InputError(f'{path}: unknown key "{word}" of a quantity. {suggest(word, QUANTITY_KEYS)}')
    value, written = given["value"], given.get("unit", "1")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path}: value must be a number, not {value!r}.")
    value = convert(float(value), written, unit, path, difference=difference)
    value = parse_quantity(value, "1", path)
    return {
        **given,
        "value": value,
        "unit": unit,
        "kind": given.get("kind", "given"),
        "source": given.get("source", ""),
    }


def build(table: dict[str, Any], kind: type, path: str, provenance: dict[str, Provenance]) -> Any:
    """Build a component from expanded tables and record where each number comes from.

    **Raises:** `InputError` for an unknown or a missing quantity, or a bad number.
    """
    final = component_class(kind, table.get("component"), path)
    fields = {field.name: field for field in dataclasses.fields(final)}
    unknown = set(table) - set(fields) - {"component", "title"}
    if unknown:
        word = sorted(unknown)[0]
        raise InputError(f'{path}: unknown quantity "{word}". {suggest(word, fields)}')
    values = {}
    for name, field in fields.items():
        where = f"{path}.{name}"
        if name not in table:
            if field.default is dataclasses.MISSING:
                raise InputError(f"{path}: {name} is missing. Give it, or start from a preset.")
            values[name] = field.default
            provenance[where] = Provenance(field.metadata["unit"], "prior", "default", "")
        elif _is_component(field):
            values[name] = build(table[name], field_class(final, name), where, provenance)
        else:
            unit = field.metadata["unit"]
            number = quantity(table[name], unit, where, difference=field.metadata.get("difference", False))
            values[name] = number["value"]
            provenance[where] = Provenance(unit, number["kind"], number["source"], number.get("distribution", ""))
    return final(**values)


def component_class(kind: type, name: str | None, path: str) -> type[eqx.Module]:
    """The final class called `name` under `kind`; the only one if no name is given."""
    finals = final_classes(kind)
    if name is None and len(finals) == 1:
        return next(iter(finals.values()))
    if name not in finals:
        hint = suggest(str(name), finals) if name else f"Known: {', '.join(sorted(finals))}."
        raise InputError(f"{path}: {'unknown ' if name else 'missing '}component{f' {name!r}' if name else ''}. {hint}")
    return finals[name]


@cache
def final_classes(kind: type) -> dict[str, type[eqx.Module]]:
    """All concrete components under a class, by name."""
    subclasses = {name: one for sub in kind.__subclasses__() for name, one in final_classes(sub).items()}
    return subclasses if inspect.isabstract(kind) or subclasses else {kind.__name__: kind}


def _is_component(field: "dataclasses.Field[Any]") -> bool:
    return "unit" not in field.metadata


def field_class(owner: type, name: str) -> type:
    """Class that a component is declared to have as a field of another."""
    return inspect.get_annotations(owner, eval_str=True)[name]


def _category(kind: type) -> str | None:
    return next((category for known, category in CATEGORY_OF.items() if issubclass(kind, known)), None)
