"""What is asked? A system, a plan, and what may be optimized, read from a preset or a file."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.presets.components import (
    Provenance,
    build,
    component_class,
    expand_presets,
    field_class,
    is_quantity,
    merge,
    quantity,
)
from energymodel.presets.files import names, read_preset, read_toml
from energymodel.presets.validate import check_measured, check_plan
from energymodel.system.plan import AbstractGoal, ParallelLayout, TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem
from energymodel.units import parse_quantity

SECTIONS = ("title", "base", "note", "abstract", "system", "plan", "optimize", "uncertainty", "calibration")
ZERO_STAGES = ("shard_optimizer", "shard_gradients", "shard_parameters")
RECOMPUTATION = {"none": (0.0, 0.0), "selective": (1.0, 0.0), "full": (0.0, 1.0)}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A training run to plan: what is given, what is planned, what may change and how sure the numbers are.

    `provenance` maps the dotted path of each number to its unit, kind, source and distribution; it is not part
    of what is differentiated. `tables` is the fully resolved scenario, which gives the same scenario when read.
    """

    name: str
    title: str
    system: TrainingSystem
    plan: TrainingPlan
    optimize: Mapping[str, Any]
    uncertainty: Mapping[str, str]
    provenance: Mapping[str, Provenance]
    tables: Mapping[str, Any]


def load_scenario(source: str | Path | Mapping[str, Any], changes: Sequence[str] | Mapping[str, Any] = ()) -> Scenario:
    """Read a scenario.

    **Arguments:**

    - `source`: name of a preset, path of a TOML file, or tables.
    - `changes`: `"path=value"` texts or a mapping from dotted path to value, applied last; a preset name at the
      path of a component replaces the component.

    **Raises:** `InputError`, one line that names the thing, its value, its unit and the next step.
    """
    if isinstance(source, Mapping):
        name, tables = str(source.get("name", "scenario")), dict(source)
    else:
        name, tables = _read(source)
    tables = _with_bases(tables, name)
    pairs = changes.items() if isinstance(changes, Mapping) else [_split(change) for change in changes]
    for path, value in pairs:
        tables = _set(tables, path, value)
    return _build(name, tables)


def _read(source: str | Path) -> tuple[str, dict[str, Any]]:
    text = str(source)
    if isinstance(source, Path) or text.endswith(".toml") or "/" in text:
        path = Path(source)
        return path.stem, read_toml(path)
    if text not in names("scenarios"):
        raise InputError(f'Unknown scenario "{text}". {suggest(text, names("scenarios"))}')
    return text, read_preset("scenarios", text)


def _with_bases(tables: dict[str, Any], name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    unknown = set(tables) - set(SECTIONS) - {"name"}
    if unknown:
        word = sorted(unknown)[0]
        raise InputError(f'{name}: unknown key "{word}". {suggest(word, SECTIONS)}')
    base = tables.get("base")
    own = {key: value for key, value in tables.items() if key != "base"}
    if base is None:
        return own
    if base in seen:
        raise InputError(f'{name}: base "{base}" refers to itself.')
    if not isinstance(base, str):
        raise InputError(f"{name}: base must be the name of a scenario, not {base!r}.")
    below = read_preset("scenarios", base) if base.startswith("_") else _read(base)[1]
    return _lay(_with_bases(below, base, (*seen, base)), own)


def _lay(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = merge(base, change)
    # Tokens and loss are two ways to say when a run ends: the later one stands alone.
    goal = change.get("plan", {}).get("goal") if isinstance(change.get("plan"), dict) else None
    if isinstance(goal, dict) and goal:
        merged["plan"]["goal"] = goal
    return merged


def _split(change: str) -> tuple[str, str]:
    path, separator, value = change.partition("=")
    if not separator or not path.strip() or not value.strip():
        raise InputError(f'"{change}" is not PATH=VALUE. Write for example plan.clock=0.8 or "system.market=france".')
    return path.strip(), value.strip()


def _set(tables: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    parts = path.split(".")
    if parts[0] not in ("system", "plan", "optimize", "uncertainty"):
        raise InputError(
            f'Unknown path "{path}". A path starts with system or plan, such as system.accelerator.rated_power.'
        )
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        value = [part.strip() for part in value[1:-1].split(",")]
    change: Any = value
    for part in reversed(parts):
        change = {part: change}
    return _lay(tables, change)


def _build(name: str, tables: dict[str, Any]) -> Scenario:
    for section in ("system", "plan"):
        if not isinstance(tables.get(section), dict):
            raise InputError(f'{name}: section [{section}] is missing. Start with base = "llama-3.1-405b-h100".')
    provenance: dict[str, Provenance] = {}
    system_tables = expand_presets(tables["system"], TrainingSystem, "system")
    system = build(system_tables, TrainingSystem, "system", provenance)
    plan_tables = _plan_tables(tables["plan"], system_tables)
    plan = _build_plan(plan_tables, provenance)
    check_plan(system, plan)
    calibration = tables.get("calibration", {})
    check_measured(system, float(plan.power_cap), calibration)
    uncertainty = {path: origin.distribution for path, origin in provenance.items() if origin.distribution}
    uncertainty |= _uncertainty(tables.get("uncertainty", {}), provenance)
    resolved = {
        "title": tables.get("title", name),
        "system": _quantities(system_tables, TrainingSystem, "system"),
        "plan": plan_tables,
        "optimize": tables.get("optimize", {}),
        "uncertainty": tables.get("uncertainty", {}),
    } | ({"calibration": calibration} if calibration else {})
    return Scenario(
        name=name,
        title=str(resolved["title"]),
        system=system,
        plan=plan,
        optimize=resolved["optimize"],
        uncertainty=uncertainty,
        provenance=provenance,
        tables=resolved,
    )


def _plan_tables(tables: dict[str, Any], system: dict[str, Any]) -> dict[str, Any]:
    """The plan with words ("zero = 2", "selective") turned into numbers, and its defaults."""
    plan = dict(tables)
    plan.setdefault("clock", 1.0)
    plan.setdefault("power_cap", system["accelerator"]["rated_power"])
    layout = plan.get("layout", {})
    if not isinstance(layout, dict):
        raise InputError(f"plan.layout: a table is needed, not {layout!r}.")
    layout = dict(layout)
    if "zero" in layout:
        stage = parse_quantity(layout.pop("zero"), "1", "plan.layout.zero")
        if stage not in (0.0, 1.0, 2.0, 3.0):
            raise InputError(f"plan.layout.zero: {stage:g} is not a ZeRO stage. Choose 0, 1, 2 or 3.")
        layout |= {key: float(stage > index) for index, key in enumerate(ZERO_STAGES)}
    if "recomputation" in layout:
        word = str(layout.pop("recomputation"))
        if word not in RECOMPUTATION:
            raise InputError(f'plan.layout.recomputation: unknown "{word}". {suggest(word, RECOMPUTATION)}')
        layout["recompute_attention"], layout["recompute_full"] = RECOMPUTATION[word]
    plan["layout"] = layout
    return plan


def _build_plan(tables: dict[str, Any], provenance: dict[str, Provenance]) -> TrainingPlan:
    fields = {field.name: field for field in dataclasses.fields(TrainingPlan)}
    unknown = set(tables) - set(fields)
    if unknown:
        word = sorted(unknown)[0]
        raise InputError(f'plan: unknown quantity "{word}". {suggest(word, fields)}')
    missing = set(fields) - set(tables)
    if missing:
        raise InputError(f"plan: {sorted(missing)[0]} is missing.")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        path, given = f"plan.{name}", tables[name]
        if name == "goal":
            values[name] = build(given, _goal_class(given), path, provenance)
        elif name == "layout":
            values[name] = build(given, ParallelLayout, path, provenance)
        elif name == "batch":
            knots = given if isinstance(given, list) else [given]
            numbers = [quantity(knot, "token", path) for knot in knots]
            values[name] = np.array([number["value"] for number in numbers])
            provenance[path] = Provenance("token", numbers[0]["kind"], numbers[0]["source"], "")
        else:
            number = quantity(given, field.metadata["unit"], path)
            values[name] = number["value"]
            provenance[path] = Provenance(
                field.metadata["unit"], number["kind"], number["source"], number.get("distribution", "")
            )
    return TrainingPlan(**values)


def _goal_class(given: Any) -> type[AbstractGoal]:
    keys = set(given) - {"component"} if isinstance(given, dict) else set()
    if keys == {"loss"}:
        return TargetLoss
    if keys == {"tokens"}:
        return TokenBudget
    raise InputError('plan.goal: give either tokens = "15.6 T tokens" or loss = "1.9 nat/token".')


def _uncertainty(given: Any, provenance: Mapping[str, Provenance]) -> dict[str, str]:
    if not isinstance(given, dict):
        raise InputError(f"uncertainty: a table of path = distribution is needed, not {given!r}.")
    for path in given:
        if path not in provenance:
            raise InputError(f'uncertainty: unknown path "{path}". {suggest(path, provenance)}')
    return {path: str(distribution) for path, distribution in given.items()}


def _quantities(tables: dict[str, Any], kind: type, path: str) -> dict[str, Any]:
    """Tables in which every number stands in SI with unit and source, so that they read back to the same system."""
    final = component_class(kind, tables.get("component"), path)
    resolved: dict[str, Any] = {"component": final.__name__}
    for field in dataclasses.fields(final):
        if field.name not in tables:
            continue
        given, where = tables[field.name], f"{path}.{field.name}"
        if isinstance(given, dict) and not is_quantity(given):
            resolved[field.name] = _quantities(given, field_class(final, field.name), where)
        else:
            resolved[field.name] = quantity(
                given, field.metadata["unit"], where, difference=field.metadata.get("difference", False)
            )
    return resolved


def leaf_paths(tree: Any, prefix: str) -> list[str]:
    """Dotted paths of all float leaves of a system or plan, in the order of `jax.tree.leaves`."""
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [prefix + jax.tree_util.keystr(path) for path, _ in entries]
