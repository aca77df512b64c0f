"""How do tables of numbers become components, with the origin of every number kept?"""

import dataclasses
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from energymodel.economics.carbon import Carbon
from energymodel.economics.cost import AbstractPrice
from energymodel.errors import InputError, suggest
from energymodel.learning.continued import ContinuedLearning
from energymodel.learning.critical_batch import AbstractCriticalBatch
from energymodel.learning.learning import AbstractLearning
from energymodel.learning.loss_law import AbstractLossLaw
from energymodel.learning.recipe import LearningRate, Optimizer, Recipe
from energymodel.performance.core_memory import CoreMemory
from energymodel.performance.memory_access import AbstractMemoryAccess
from energymodel.performance.reliability import Reliability
from energymodel.performance.switch_topologies import Dragonfly as Dragonfly  # known by its name
from energymodel.performance.topology import AbstractTopology
from energymodel.performance.workload import Transformer
from energymodel.physics.cooling import InletClass
from energymodel.physics.delivery import AbstractRegulator
from energymodel.physics.weather import Weather
from energymodel.ranges import check_field, check_value
from energymodel.scenarios.attention_shape import refuse_state_space
from energymodel.scenarios.files import is_quantity, merge, names, read_preset
from energymodel.scenarios.near_limit import near_limit_accelerator
from energymodel.scenarios.ranges import NEAR_LIMIT_RANGES
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_design import AbstractChipDesign
from energymodel.system.cluster import Network, Node, Software
from energymodel.system.facility import Facility, Market
from energymodel.units import convert, parse_quantity

CATEGORY_OF: dict[type, str] = {
    Accelerator: "hardware",
    Node: "nodes",
    Network: "networks",
    AbstractTopology: "topologies",
    Software: "software",
    Transformer: "models",
    AbstractChipDesign: "designs",
    CoreMemory: "cores",
    AbstractMemoryAccess: "access",
    Facility: "facilities",
    AbstractRegulator: "regulators",
    Weather: "weather",
    InletClass: "inlets",
    Market: "regions",
    AbstractPrice: "prices",
    Carbon: "carbon",
    AbstractLearning: "learning",
    ContinuedLearning: "learning",
    Recipe: "recipes",
    Optimizer: "optimizers",
    LearningRate: "schedules",
    AbstractLossLaw: "laws",
    AbstractCriticalBatch: "laws",
    Reliability: "reliability",
}
NEAR_LIMIT = "NearLimitAccelerator"
QUANTITY_KEYS = frozenset({"value", "unit", "kind", "source", "distribution"})


class Provenance(NamedTuple):
    """Where a number comes from."""

    unit: str
    kind: str
    source: str
    distribution: str

    @property
    def is_prior(self) -> bool:
        """Whether the number is recalled or assumed: neither sourced nor a definition, which nobody could measure."""
        return self.kind == "prior"

    @property
    def is_definition(self) -> bool:
        """Whether the number is a convention of the model, which no measurement could change."""
        return self.kind == "definition"


def expand_presets(table: Any, kind: type, path: str) -> dict[str, Any]:
    """Replace preset names by what their files say, at this component and below."""
    if isinstance(table, str):
        table = {"preset": table}
    if not isinstance(table, dict):
        raise InputError(f"{path}: a table or a preset name is needed, not {table!r}.")
    if "preset" in table:
        change = {key: value for key, value in table.items() if key != "preset"}
        preset = _read_for(kind, str(table["preset"]), path)
        near_limit = preset.get("component") == NEAR_LIMIT
        table = _expand_near_limit(preset, change, path) if near_limit else merge(preset, change)
    table = _with_component(table, kind)
    final = component_class(kind, table.get("component"), path)
    below = {name: field_class(final, name) for name in component_fields(final) if name in table}
    return {**table, **{name: expand_presets(table[name], one, f"{path}.{name}") for name, one in below.items()}}


def _with_component(table: dict[str, Any], kind: type) -> dict[str, Any]:
    """The table of a component whose class follows from its keys, where one class alone has them all."""
    if "component" in table or not (keys := set(table) - {"title"}):
        return table
    fitting = [name for name, one in final_classes(kind).items() if keys <= {f.name for f in dataclasses.fields(one)}]
    return {**table, "component": fitting[0]} if len(fitting) == 1 else table


def _read_for(kind: type, name: str, path: str) -> dict[str, Any]:
    category = next((category for known, category in CATEGORY_OF.items() if issubclass(kind, known)), None)
    if category is None:
        raise InputError(f'{path}: there are no presets for this component; give its numbers instead of "{name}".')
    return read_preset(category, name)


def chosen_numbers(table: Any) -> Mapping[str, str]:
    """Units by name of the few numbers from which the accelerator of a near-limit preset follows; none of another."""
    name = table.get("preset") if isinstance(table, Mapping) else table
    preset = read_preset("hardware", name) if isinstance(name, str) and name in names("hardware") else {}
    near_limit = preset.get("component") == NEAR_LIMIT
    return {key: one["unit"] for key, one in preset.items() if is_quantity(one)} if near_limit else {}


def _expand_near_limit(preset: dict[str, Any], change: dict[str, Any], path: str) -> dict[str, Any]:
    """An accelerator from the few numbers that a near-limit preset chooses, some of which may be changed."""
    chosen = {
        key: quantity(value, preset[key]["unit"], f"{path}.{key}")
        for key, value in change.items()
        if is_quantity(preset.get(key))
    }
    for key, one in chosen.items():
        check_value(one["value"], one["unit"], NEAR_LIMIT_RANGES[key].within(one["unit"]), f"{path}.{key}")
    try:
        table = near_limit_accelerator({**preset, **chosen}, read_preset("hardware", preset["template"]))
    except (ArithmeticError, ValueError):
        known = ", ".join(f"{key} = {one['value']:g} {one['unit']}" for key, one in chosen.items())
        raise InputError(
            f"{path}: no accelerator follows from {known}: a number overflows. Change one of them."
        ) from None
    return merge(table, {key: value for key, value in change.items() if key not in chosen})


def quantity(given: Any, unit: str, path: str, *, difference: bool = False, signed: bool = False) -> dict[str, Any]:
    """One number as a table in SI, from text, a bare number or a table with its origin."""
    if not is_quantity(given):
        value = parse_quantity(given, unit, path, difference=difference, allow_negative=signed)
        return {"value": value, "unit": unit, "kind": "given", "source": "scenario"}
    if unknown := sorted(set(given) - QUANTITY_KEYS):
        raise InputError(f'{path}: unknown key "{unknown[0]}" of a quantity. {suggest(unknown[0], QUANTITY_KEYS)}')
    value = given["value"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{path}: value must be a number, not {value!r}.")
    converted = convert(float(value), given.get("unit", "1"), unit, path, difference=difference)
    value = parse_quantity(converted, "1", path, allow_negative=signed)
    origin = {"kind": given.get("kind", "given"), "source": given.get("source", "")}
    return {**given, "value": value, "unit": unit, **origin}


def field_quantity(given: Any, field: "dataclasses.Field[Any]", path: str) -> dict[str, Any]:
    """One number as a table in the unit of the field that it is given for."""
    marks = {mark: bool(field.metadata.get(mark)) for mark in ("difference", "signed")}
    return quantity(given, field.metadata["unit"], path, **marks)


def in_si(tables: dict[str, Any], kind: type, path: str, *, defaults: bool = False) -> dict[str, Any]:
    """Expanded tables with every number in SI with unit and source, in the order of the fields of their classes.

    **Arguments:**

    - `defaults`: whether numbers and components that were not given are written out as well.
    """
    final = component_class(kind, tables.get("component"), path)
    title = {"title": tables["title"]} if "title" in tables else {}
    resolved: dict[str, Any] = {"component": final.__name__, **title}
    for field in dataclasses.fields(final):
        if field.name in tables:
            given, where = tables[field.name], f"{path}.{field.name}"
            if field.name in component_fields(final):
                resolved[field.name] = in_si(given, field_class(final, field.name), where, defaults=defaults)
            else:
                resolved[field.name] = field_quantity(given, field, where)
        elif defaults and field.default is not dataclasses.MISSING:
            resolved[field.name] = _default_in_si(field, field.default)
    return resolved


def _default_in_si(field: "dataclasses.Field[Any]", value: Any) -> dict[str, Any]:
    """A number or a component that was not given."""
    if dataclasses.is_dataclass(value):
        below = {one.name: _default_in_si(one, getattr(value, one.name)) for one in dataclasses.fields(value)}
        return {"component": type(value).__name__, **below}
    origin = {"kind": "prior", "source": "default"}
    return {"value": float(value), "unit": field.metadata["unit"], **origin}


def build(table: dict[str, Any], kind: type, path: str, provenance: dict[str, Provenance]) -> Any:
    """Build a component from expanded tables and record where each number comes from; arrays may be lists.

    **Raises:** `InputError` for an unknown or a missing quantity, or a bad number.
    """
    final = component_class(kind, table.get("component"), path)
    fields = {field.name: field for field in dataclasses.fields(final)}
    if unknown := sorted(set(table) - set(fields) - {"component", "title"}):
        refuse_state_space(unknown, path)
        _refuse_other(unknown[0], final, kind, path)
        raise InputError(f'{path}: unknown quantity "{unknown[0]}". {suggest(unknown[0], fields)}')
    values = {}
    for name, field in fields.items():
        where = f"{path}.{name}"
        if name not in table:
            if field.default is dataclasses.MISSING:
                raise InputError(f"{path}: {name} is missing. Give it, or start from a preset.")
            values[name] = field.default
            _record_default(field, where, provenance)
        elif name in component_fields(final):
            values[name] = build(table[name], field_class(final, name), where, provenance)
        else:
            given, is_array = table[name], field.metadata.get("array", False)
            knots = given if is_array and isinstance(given, list) else [given]
            numbers = [field_quantity(one, field, where) for one in knots]
            check_field(field, [one["value"] for one in numbers], where)
            first = numbers[0]
            values[name] = np.array([one["value"] for one in numbers]) if is_array else first["value"]
            distribution = "" if is_array else first.get("distribution", "")
            provenance[where] = Provenance(first["unit"], first["kind"], first["source"], distribution)
    return final(**values)


def _refuse_other(name: str, final: type, kind: type, path: str) -> None:
    """Refuse a quantity that a component of another class has, which was not chosen.

    **Raises:** `InputError` that names that class and its presets.
    """
    owners = [label for label, one in final_classes(kind).items() if name in {f.name for f in dataclasses.fields(one)}]
    category = next((category for known, category in CATEGORY_OF.items() if issubclass(kind, known)), None)
    presets = [one for one in names(category) if read_preset(category, one)["component"] in owners] if category else []
    if owners:
        choices = " or ".join([f"{path}={one}" for one in presets] or [f"{path}.component={one}" for one in owners])
        raise InputError(
            f"{path}: {name} is a quantity of {' and '.join(owners)}, not of {final.__name__}. Set {choices} first."
        )


def _record_default(field: "dataclasses.Field[Any]", path: str, provenance: dict[str, Provenance]) -> None:
    """Record that a number, or each number of a component, was not given."""
    if not dataclasses.is_dataclass(field.default):
        provenance[path] = Provenance(field.metadata["unit"], "prior", "default", "")
        return
    for below in dataclasses.fields(field.default):
        _record_default(below, f"{path}.{below.name}", provenance)


def preset_in_si(category: str, name: str) -> dict[str, Any]:
    """A component preset with all its numbers, defaults too; of a near-limit accelerator those that are chosen."""
    preset = read_preset(category, name)
    kinds = [kind for kind, known in CATEGORY_OF.items() if known == category]
    for kind in kinds:
        if preset["component"] in final_classes(kind):
            return in_si(expand_presets(preset, kind, name), kind, name, defaults=True)
    return {key: number for key, number in preset.items() if is_quantity(number)}


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


@cache
def component_fields(owner: type) -> tuple[str, ...]:
    """Names of the fields that hold components, which have no unit."""
    return tuple(field.name for field in dataclasses.fields(owner) if "unit" not in field.metadata)


@cache
def field_class(owner: type, name: str) -> type:
    """Class that a component is declared to have as a field of another."""
    return inspect.get_annotations(owner, eval_str=True)[name]
