"""What is asked? A system, a plan, and what may be optimized, read from a preset or a file."""

import dataclasses
import shlex
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.numerics import with_own_numbers
from energymodel.ranges import check_numbers
from energymodel.scenarios.bases import named_tables, with_bases
from energymodel.scenarios.batch_warmup import batch_knots
from energymodel.scenarios.clock_scale import CLOCK, REFERENCE_CLOCK, ClockScale, is_frequency
from energymodel.scenarios.cluster_parts import cluster_parts, sharding_it_runs
from energymodel.scenarios.components import Provenance, build, expand_presets, in_si
from energymodel.scenarios.distributions import distribution_of
from energymodel.scenarios.document import FLEET, parse_document
from energymodel.scenarios.files import is_quantity
from energymodel.scenarios.forms import listed, plain, text, word
from energymodel.scenarios.layers import lay, nested, title_of
from energymodel.scenarios.question import Limits, Minimize, Question, Ranges, asked, parse_question
from energymodel.scenarios.stage_power import PATH as POWER
from energymodel.scenarios.stage_power import STAGES, stage_power_table, with_stage_power
from energymodel.scenarios.validate import (
    check_ends,
    check_measured,
    check_plan,
    check_supplies,
    check_system,
    check_values,
)
from energymodel.system.plan import TargetLoss, TokenBudget, TrainingPlan
from energymodel.system.training_system import TrainingSystem

SHARDING_PATHS = ("plan.layout.zero", "plan.layout.shard_")
"""Begin the paths by which a person chooses a ZeRO stage."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A training run to plan: what is given, what is planned, what may change and how sure the numbers are.

    `provenance` maps the dotted path of each number to its unit, kind, source and distribution; it is not part
    of what is differentiated. `tables` is the fully resolved scenario, which gives the same scenario when read.
    `changes` were laid over the preset or file, and `cluster` was, if any; `source` is what names these on a command
    line, a preset, a file or options, and empty for tables.
    """

    name: str
    title: str
    system: TrainingSystem
    plan: TrainingPlan
    optimize: Question
    uncertainty: Mapping[str, str]
    provenance: Mapping[str, Provenance]
    tables: Mapping[str, Any]
    changes: tuple[tuple[str, str], ...] = ()
    cluster: str = ""
    source: str = ""
    accelerator: Any = None
    """Table of the accelerator before its preset is expanded, of which a near-limit one says more than its numbers."""

    def with_question(
        self,
        minimize: Minimize | None = None,
        limits: Limits | None = None,
        vary: Ranges | None = None,
        fix: Sequence[str] = (),
        tolerance: float | str | None = None,
    ) -> "Scenario":
        """The same scenario with what is stated here laid over its `[optimize]` section.

        **Raises:** `InputError` as `parse_question` and `load_scenario`, also for numbers of system and plan that were
        changed since the scenario was read.
        """
        self.check()
        section = {"minimize": minimize, "limits": limits, "vary": vary, "fix": fix, "tolerance": tolerance}
        return _asking(self, section)

    @property
    def named_tables(self) -> dict[str, Any]:
        """Name and tables; `load_scenario` makes the same scenario of them."""
        return {"name": self.name, **self.tables}

    def check(self) -> None:
        """Check system and plan as when they are read from a file.

        **Raises:** `InputError` for the first number that cannot be, and for what cannot be run.
        """
        check_numbers(self.system, "system")
        check_numbers(self.plan, "plan")
        self.check_together()

    def check_together(self) -> None:
        """Check what system and plan must be together, where each number by itself is known to be possible.

        **Raises:** `InputError` for what cannot be run.
        """
        _check(self.system, self.plan, self.tables)


def load_scenario(
    source: str | Path | Mapping[str, Any],
    changes: Sequence[str] | Mapping[str, Any] = (),
    cluster: str | Path | None = None,
) -> Scenario:
    """Read a scenario.

    **Arguments:**

    - `source`: name of a preset, path of a TOML file, or tables.
    - `changes`: `"path=value"` texts or a mapping from dotted path to value, laid over the source one after the
      other; a preset name at the path of a component replaces the component.
    - `cluster`: a cluster preset, or a file such as `energymodel calibrate step-time -o` writes it, whose accelerator,
      node, network, software and their numbers replace those of the source, below the changes.

    **Raises:** `InputError`, one line that names the thing, its value, its unit and the next step.
    """
    name, tables = named_tables(source)
    pairs = _changes(changes)
    tables = with_bases(tables, name)
    if FLEET in tables:
        raise InputError(f"{name}: its devices are unlike ([{FLEET}]). Use `energymodel fleet`, or `load_fleet`.")
    layers = [_layer(path, value) for path, value in pairs]
    if cluster is None:
        tables = lay(tables, *layers)
    else:
        parts = cluster_parts(cluster)
        title = parts.pop("title")
        tables = lay(lay(tables, parts), *layers)
        if not any(path.startswith(SHARDING_PATHS) for path, _ in pairs):
            tables = lay(tables, sharding_it_runs(tables, cluster))
        tables = {**tables, "title": f"{title_of(tables, name)} ({title})"}
    changed = tuple(one for path, value in pairs for one in _texts(path, value))
    word_for_it = "" if isinstance(source, Mapping) else shlex.quote(str(source))
    return dataclasses.replace(_build(name, tables), changes=changed, cluster=str(cluster or ""), source=word_for_it)


def _changes(given: Sequence[str] | Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Paths and values of changes, each of a type that a file may hold."""
    if isinstance(given, Mapping):
        return [(word(path, "a path"), plain(value, str(path))) for path, value in given.items()]
    return [_split(change) for change in listed(text)([given] if isinstance(given, str) else given, "changes")]


def _split(change: str) -> tuple[str, str]:
    path, separator, value = change.partition("=")
    if not separator or not path.strip() or not value.strip():
        raise InputError(f'"{change}" is not PATH=VALUE. Write for example plan.clock=0.8 or "system.market=france".')
    return word(path.strip(), "a path"), value.strip()


def _texts(path: str, value: Any) -> list[tuple[str, str]]:
    """A change as `PATH` and `VALUE` texts, of a table one for each of its numbers."""
    if is_quantity(value):
        return [(path, f"{value['value']} {value.get('unit', '1')}")]
    if isinstance(value, Mapping):
        return [one for key, part in value.items() for one in _texts(f"{path}.{key}", part)]
    if isinstance(value, list):
        return [(path, f"[{', '.join(str(part) for part in value)}]")]
    return [(path, str(value))]


def _layer(path: str, value: Any) -> dict[str, Any]:
    """The layer of one change."""
    if path.split(".")[0] not in ("system", "plan", "optimize", "uncertainty"):
        raise InputError(
            f'Unknown path "{path}". A path starts with system or plan, such as system.accelerator.rated_power.'
        )
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        value = [part.strip() for part in value[1:-1].split(",")]
    return parse_document(nested(path, value), path)


def _build(name: str, tables: dict[str, Any]) -> Scenario:
    for section in ("system", "plan"):
        if not isinstance(tables.get(section), dict):
            raise InputError(f'{name}: section [{section}] is missing. Start with base = "llama-3.1-405b-h100".')
    provenance: dict[str, Provenance] = {}
    system_tables = expand_presets(tables["system"], TrainingSystem, "system")
    system = build(system_tables, TrainingSystem, "system", provenance)
    plan_tables = dict(tables["plan"])
    for key, default in ("clock", 1.0), ("power_cap", system_tables["accelerator"]["rated_power"]), ("layout", {}):
        plan_tables.setdefault(key, default)
    plan_tables["clock"] = _clock_share(plan_tables["clock"], system, provenance)
    if "batch" in plan_tables:
        plan_tables["batch"] = batch_knots(plan_tables["batch"])
    if "power" in plan_tables:
        plan_tables["power"] = stage_power_table(plan_tables["power"], plan_tables["power_cap"])
    plan = _build_plan(plan_tables, provenance)
    _check(system, plan, {**tables, "system": system_tables})
    with jax.enable_x64(True):
        check_supplies(*with_own_numbers((system, plan)))
    calibration = tables.get("calibration", {})
    own_uncertainty = tables.get("uncertainty", {})
    uncertainty = {path: origin.distribution for path, origin in provenance.items() if origin.distribution}
    resolved = {
        "title": title_of(tables, name),
        "system": in_si(system_tables, TrainingSystem, "system"),
        "plan": plan_tables,
        "optimize": tables.get("optimize", {}),
        "uncertainty": own_uncertainty,
    } | ({"calibration": calibration} if calibration else {})
    uncertainty |= _uncertainty(own_uncertainty, provenance)
    _check_together(system, plan, uncertainty, provenance, calibration)
    scenario = Scenario(
        name=name,
        title=resolved["title"],
        system=system,
        plan=plan,
        optimize=Question(),
        uncertainty=uncertainty,
        provenance=provenance,
        tables=resolved,
        accelerator=tables["system"].get("accelerator"),
    )
    return _asking(scenario, resolved["optimize"])


def _check(system: TrainingSystem, plan: TrainingPlan, tables: Mapping[str, Any]) -> None:
    """Check what system and plan must be together; `tables` have the titles of components, and the calibration."""
    system, plan = with_own_numbers((system, plan))
    known = tables.get("system", {})
    titles = {name: str(known.get(name, {}).get("title", "")) for name in ("software", "accelerator")}
    with jax.enable_x64(True):  # numbers that were computed in float64 keep it, whatever the caller's precision
        check_system(system, plan)
        check_plan(system, plan, titles)
        check_measured(system, float(plan.power_cap), tables.get("calibration", {}))


def _check_together(
    system: TrainingSystem,
    plan: TrainingPlan,
    uncertainty: Mapping[str, str],
    provenance: Mapping[str, Provenance],
    calibration: Mapping[str, Any],
) -> None:
    """Check that distributions can be read and hold the values, and that calibrations are of numbers that there are.

    **Raises:** `InputError`.
    """
    whole = SimpleNamespace(system=system, plan=plan)
    for path, written in uncertainty.items():
        value = np.ravel(reduce(getattr, path.split("."), whole))
        if len(value) > 1:
            raise InputError(f"uncertainty of {path}: it has {len(value)} values over the run. Give one value.")
        distribution_of(whole, path, written, provenance[path].unit, float(value[0]))
    for kind, one in calibration.items():
        for name in one["names"] if "slopes" in one else ():
            if f"system.{name}" not in provenance:
                raise InputError(
                    f'calibration.{kind}.names: system has no "{name}". {suggest(f"system.{name}", provenance)}'
                )


def _clock_share(given: Any, system: TrainingSystem, provenance: Mapping[str, Provenance]) -> Any:
    """The clock of a plan as a share of the reference clock; warns where the MHz are those of a prior."""
    if is_frequency(given) and provenance[REFERENCE_CLOCK].is_prior:
        scale = ClockScale.of(system.accelerator)
        warnings.warn(
            f"{CLOCK}: the accelerator's reference clock, {scale.megahertz(1.0)}, is a prior, so that MHz are only "
            f"about right. Set {REFERENCE_CLOCK} to what your chips report, or give a share of it.",
            stacklevel=1,
        )
    return ClockScale.of(system.accelerator).share(given, CLOCK)


def _build_plan(tables: dict[str, Any], provenance: dict[str, Provenance]) -> TrainingPlan:
    layout, goal = tables["layout"], tables.get("goal")
    if not isinstance(layout, dict):
        raise InputError(f"plan.layout: a table is needed, not {layout!r}.")
    if goal is not None:
        keys = set(goal) - {"component"} if isinstance(goal, dict) else set()
        kind = next((one for one in (TargetLoss, TokenBudget) if keys == set(one.__dataclass_fields__)), None)
        if kind is None:
            raise InputError('plan.goal: give either tokens = "15.6 T tokens" or loss = "1.9 nat/token".')
        tables = {**tables, "goal": {**goal, "component": kind.__name__}}
    return build(tables, TrainingPlan, "plan", provenance)


def _asking(scenario: Scenario, section: Any) -> Scenario:
    """The scenario with a section laid over its question; its plan then has the numbers that the question varies."""
    section, plan = with_stage_power(asked(section), scenario.plan)
    provenance, tables = scenario.provenance, scenario.tables
    if plan is not scenario.plan:
        caps = {name: f"{float(getattr(plan.power, name))!r} W" for name in STAGES}
        tables = {**tables, "plan": {**tables["plan"], "power": stage_power_table(caps, plan.power_cap)}}
        origin = dict.fromkeys((f"{POWER}.{name}" for name in STAGES), provenance["plan.power_cap"])
        provenance = {**provenance, **origin}
    system, calibration = scenario.system, tables.get("calibration", {})
    units = {path: origin.unit for path, origin in provenance.items()}
    question = parse_question(section, units, scenario.optimize, ClockScale.of(system.accelerator))
    for path, ends in question.vary.items():
        check_values(system, plan, path, ends, calibration, f"vary {path}")
    check_ends(system, plan, question.vary)
    tables = {**tables, "optimize": question.section(units)}
    return dataclasses.replace(scenario, plan=plan, optimize=question, provenance=provenance, tables=tables)


def _uncertainty(given: Mapping[str, str], provenance: Mapping[str, Provenance]) -> dict[str, str]:
    for path in given:
        if path not in provenance:
            raise InputError(f'uncertainty: unknown path "{path}". {suggest(path, provenance)}')
    return dict(given)


def leaf_paths(tree: Any, prefix: str) -> list[str]:
    """Dotted paths of all float leaves of a system or plan, in the order of `jax.tree.leaves`."""
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [prefix + jax.tree_util.keystr(path) for path, _ in entries]
