"""Components from tables of numbers, with the origin of every number."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.performance.switch_topologies import Dragonfly as Dragonfly  # known by its name
from energymodel.ranges import check_field, check_value
from energymodel.readers.expressions import data_file
from energymodel.scenarios.files import is_quantity, merge, names, read_preset
from energymodel.scenarios.forms import listed, word
from energymodel.scenarios.near_limit import NEAR_LIMIT_RANGES, near_limit_accelerator
from energymodel.system.cluster import Software
from energymodel.system.layouts import SWITCHES
from energymodel.system.training_system import TrainingSystem
from energymodel.units import convert, parse_quantity

CATEGORIES: Mapping[str, str] = data_file(__file__, "components.toml")
"""Categories of the presets of components by the name of their class, or of one above it."""
NEAR_LIMIT = "NearLimitAccelerator"
OFFERS = "switches"  # fields of a layout that a framework can switch on
QUANTITY_KEYS = frozenset({"value", "unit", "kind", "source", "distribution"})
STATE_SPACE = ("mamba", "ssm", "state_space")


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


def resolve(table: Any, kind: type, path: str, *, defaults: bool = False) -> dict[str, Any]:
    """Tables of a component and those below it, with every number in SI with its origin, in the order of the classes.

    Preset names are replaced by what their files say; arrays may be lists.

    **Arguments:**

    - `table`: as parsed, or the name of a preset.
    - `kind`: class of the component, or one above it.
    - `path`: what messages call it.
    - `defaults`: whether numbers and components that were not given are written out as well.

    **Raises:** `InputError` for an unknown preset, class or quantity, a missing one, or a bad number.
    """
    table = {"preset": table} if isinstance(table, str) else table
    if not isinstance(table, dict):
        raise InputError(f"{path}: a table or a preset name is needed, not {table!r}.")
    if "preset" in table:
        change = {key: value for key, value in table.items() if key != "preset"}
        if (category := category_of(kind)) is None:
            raise InputError(
                f'{path}: there are no presets for this component; give its numbers instead of "{table["preset"]}".'
            )
        preset = read_preset(category, table["preset"])
        near_limit = preset.get("component") == NEAR_LIMIT
        table = _near_limit(preset, change, path) if near_limit else merge(preset, change)
    final = component_class(kind, table.get("component") or _implied(table, kind), path)
    fields = {field.name: field for field in dataclasses.fields(final)}
    texts = ("title", OFFERS) if final is Software else ("title",)
    if unknown := sorted(table.keys() - fields.keys() - {"component", *texts}):
        refuse_state_space(unknown, path)
        raise InputError(f"{path}: {_unknown(unknown[0], final, kind, path)}")
    resolved: dict[str, Any] = {"component": final.__name__}
    resolved |= {key: table[key] for key in texts if table.get(key)}
    for name in listed(word)(resolved.get(OFFERS, ()), f"{path}.{OFFERS}"):
        if name not in SWITCHES:
            raise InputError(f'{path}.{OFFERS}: unknown switch "{name}". {suggest(name, SWITCHES)}')
    for name, field in fields.items():
        where = f"{path}.{name}"
        if name not in table:
            if field.default is dataclasses.MISSING:
                raise InputError(f"{path}: {name} is missing. Give it, or start from a preset.")
            resolved |= {name: _default(field, field.default)} if defaults and field.default is not None else {}
        elif name in component_fields(final):
            resolved[name] = resolve(table[name], field_class(final, name), where, defaults=defaults)
        else:
            is_list = isinstance(table[name], list) and field.metadata.get("array")
            marks = {mark: bool(field.metadata.get(mark)) for mark in ("difference", "signed")}
            values, unit = table[name] if is_list else [table[name]], field.metadata["unit"]
            numbers = [quantity(value, unit, where, **marks) for value in values]
            check_field(field, [number["value"] for number in numbers], where)
            resolved[name] = numbers if is_list else numbers[0]
    return resolved


def build(table: Any, kind: type, path: str, provenance: dict[str, Provenance]) -> Any:
    """Build a component from its table or preset and record where each number comes from.

    **Raises:** `InputError` as `resolve`.
    """
    return assemble(resolve(table, kind, path), kind, path, provenance)


def assemble(resolved: Mapping[str, Any], kind: type, path: str, provenance: dict[str, Provenance]) -> Any:
    """The component of tables as `resolve` gives them, and the origin of each number in `provenance`."""
    final = component_class(kind, resolved["component"], path)
    values = {}
    for field in dataclasses.fields(final):
        where = f"{path}.{field.name}"
        if field.name not in resolved and field.default is None:
            continue  # a part that is left out
        value = resolved[field.name] if field.name in resolved else _default(field, field.default)
        if field.name in component_fields(final):
            values[field.name] = assemble(value, field_class(final, field.name), where, provenance)
            continue
        knots = value if isinstance(value, list) else [value]
        first, is_array = knots[0], field.metadata.get("array", False)
        distribution = "" if is_array else first.get("distribution", "")
        provenance[where] = Provenance(first["unit"], first["kind"], first["source"], distribution)
        values[field.name] = np.array([knot["value"] for knot in knots]) if is_array else first["value"]
    return final(**values)


def category_of(kind: type) -> str | None:
    """Category of the presets of a component, if it has any."""
    return next((CATEGORIES[owner.__name__] for owner in kind.__mro__ if owner.__name__ in CATEGORIES), None)


def _implied(table: Mapping[str, Any], kind: type) -> str | None:
    """The class whose fields alone include all keys of a table, if there is one such class."""
    keys = table.keys() - {"title", OFFERS}
    fitting = [name for name, final in final_classes(kind).items() if keys <= set(_names(final))]
    return fitting[0] if keys and len(fitting) == 1 else None


def _unknown(name: str, final: type, kind: type, path: str) -> str:
    """A refused quantity: of which other class and presets it is, or the nearest name."""
    owners = [label for label, other in final_classes(kind).items() if name in _names(other)]
    if not owners:
        return f'unknown quantity "{name}". {suggest(name, _names(final))}'
    category = category_of(kind) or ""
    choices = [f"{path}={preset}" for preset in names(category) if read_preset(category, preset)["component"] in owners]
    choices = " or ".join(choices or [f"{path}.component={owner}" for owner in owners])
    return f"{name} is a quantity of {' and '.join(owners)}, not of {final.__name__}. Set {choices} first."


def refuse_state_space(keys: Iterable[str], where: str) -> None:
    """Refuse keys or columns that describe state-space layers by names of others.

    **Raises:** `InputError` for the first one.
    """
    for key in keys:
        if any(word in key.lower().replace("-", "_") for word in STATE_SPACE):
            raise InputError(
                f"{where}: {key} describes state-space layers, which are given here by state_layers, state_heads, "
                "state_key_heads, state_key_size, state_value_size and state_weights. Give these, or name a model: a "
                "preset, or the config.json of one."
            )


def chosen_numbers(table: Any) -> Mapping[str, str]:
    """Units by name of the few numbers from which the accelerator of a near-limit preset follows; none of another."""
    name = table.get("preset") if isinstance(table, Mapping) else table
    preset = read_preset("hardware", name) if isinstance(name, str) and name in names("hardware") else {}
    near_limit = preset.get("component") == NEAR_LIMIT
    return {key: number["unit"] for key, number in preset.items() if is_quantity(number)} if near_limit else {}


def _near_limit(preset: dict[str, Any], change: dict[str, Any], path: str) -> dict[str, Any]:
    """An accelerator from the few numbers that a near-limit preset chooses, some of which may be changed."""
    chosen = {
        key: quantity(value, preset[key]["unit"], f"{path}.{key}")
        for key, value in change.items()
        if is_quantity(preset.get(key))
    }
    for key, number in chosen.items():
        unit = number["unit"]
        check_value(number["value"], unit, NEAR_LIMIT_RANGES[key].within(unit), f"{path}.{key}")
    try:
        table = near_limit_accelerator({**preset, **chosen}, read_preset("hardware", preset["template"]))
    except (ArithmeticError, ValueError):
        numbers = ", ".join(f"{key} = {number['value']:g} {number['unit']}" for key, number in chosen.items())
        raise InputError(
            f"{path}: no accelerator follows from {numbers}: a number overflows. Change one of them."
        ) from None
    return merge(table, {key: value for key, value in change.items() if key not in chosen})


def quantity(value: Any, unit: str, path: str, *, difference: bool = False, signed: bool = False) -> dict[str, Any]:
    """One number as a table in SI, from text, a bare number or a table with its origin.

    **Raises:** `InputError` for what is no number of that unit, and for an unknown or missing key.
    """
    if not isinstance(value, Mapping):
        number = parse_quantity(value, unit, path, difference=difference, allow_negative=signed)
        return {"value": number, "unit": unit, "kind": "given", "source": "scenario"}
    if unknown := sorted(value.keys() - QUANTITY_KEYS):
        raise InputError(f'{path}: unknown key "{unknown[0]}" of a quantity. {suggest(unknown[0], QUANTITY_KEYS)}')
    if "value" not in value:
        raise InputError(f'{path}: value is missing. Write for example {{ value = 700, unit = "W" }}.')
    number = value["value"]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise InputError(f"{path}: value must be a number, not {number!r}.")
    converted = convert(float(number), value.get("unit", "1"), unit, path, difference=difference)
    number = parse_quantity(converted, "1", path, allow_negative=signed)
    origin = {"kind": value.get("kind", "given"), "source": value.get("source", "")}
    return {**value, "value": number, "unit": unit, **origin}


def _default(field: "dataclasses.Field[Any]", value: Any) -> dict[str, Any]:
    """A number or a component that was not given."""
    if dataclasses.is_dataclass(value):
        parts = {part.name: _default(part, getattr(value, part.name)) for part in dataclasses.fields(value)}
        return {"component": type(value).__name__, **parts}
    return {"value": float(value), "unit": field.metadata["unit"], "kind": "prior", "source": "default"}


def preset_in_si(category: str, name: str) -> dict[str, Any]:
    """A component preset with all its numbers, defaults too; of a near-limit accelerator those that are chosen."""
    preset = read_preset(category, name)
    final = classes_below(TrainingSystem).get(preset.get("component", ""))
    if final is not None and category_of(final) == category:
        return resolve(preset, final, name, defaults=True)
    return {key: number for key, number in preset.items() if is_quantity(number)}


def component_class(kind: type, name: str | None, path: str) -> type[eqx.Module]:
    """The final class called `name` under `kind`; the only one if no name is given.

    **Raises:** `InputError` for an unknown name, and for none where there are several classes.
    """
    finals = final_classes(kind)
    if name is None and len(finals) == 1:
        return next(iter(finals.values()))
    if name is None:
        raise InputError(f"{path}: missing component. Known: {', '.join(sorted(finals))}.")
    if name not in finals:
        raise InputError(f"{path}: unknown component {name!r}. {suggest(name, finals)}")
    return finals[name]


@cache
def final_classes(kind: type) -> dict[str, type[eqx.Module]]:
    """All concrete components under a class, by name."""
    subclasses = {name: final for sub in kind.__subclasses__() for name, final in final_classes(sub).items()}
    return subclasses if inspect.isabstract(kind) or subclasses else {kind.__name__: kind}


def classes_below(kind: type, classes: dict[str, type[eqx.Module]] | None = None) -> dict[str, type[eqx.Module]]:
    """All concrete components under a class and in their fields, by name, beside some `classes`, which it extends."""
    classes = {} if classes is None else classes
    for name, final in final_classes(kind).items():
        if name not in classes:
            classes[name] = final
            for field in component_fields(final):
                classes_below(field_class(final, field), classes)
    return classes


@cache
def component_fields(owner: type) -> tuple[str, ...]:
    """Names of the fields that hold components, which have no unit."""
    return tuple(field.name for field in dataclasses.fields(owner) if "unit" not in field.metadata)


@cache
def field_class(owner: type, name: str) -> type:
    """Class that a component is declared to have as a field of another."""
    return inspect.get_annotations(owner, eval_str=True)[name]


@cache
def _names(owner: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(owner))
