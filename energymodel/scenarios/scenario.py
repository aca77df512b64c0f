"""Scenarios: a system, a plan, and what may be optimized, read from a preset or a file."""

import dataclasses
import shlex
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.numerics import with_own_numbers
from energymodel.performance.adaptation import FineTuning
from energymodel.ranges import check_numbers
from energymodel.scenarios.checks import (
    NO_LOSS,
    check_ends,
    check_measured,
    check_plan,
    check_supplies,
    check_system,
    check_values,
)
from energymodel.scenarios.clock_scale import CLOCK, REFERENCE_CLOCK, ClockScale, is_frequency
from energymodel.scenarios.clusters import cluster_parts, sharding_it_runs
from energymodel.scenarios.components import Provenance, assemble, build, resolve
from energymodel.scenarios.distributions import NumberDistribution, distribution_of
from energymodel.scenarios.document import FLEET, parse_document
from energymodel.scenarios.files import is_quantity
from energymodel.scenarios.forms import listed, plain, text, word
from energymodel.scenarios.layers import (
    POWER,
    STAGES,
    batch_knots,
    lay,
    named_tables,
    nested,
    stage_power_table,
    title_of,
    with_bases,
    with_stage_power,
)
from energymodel.scenarios.question import BATCH, Limits, Minimize, Question, Ranges, asked, parse_question
from energymodel.scenarios.rents import with_rent
from energymodel.system.outputs import parse_objective
from energymodel.system.plan import TrainingPlan
from energymodel.system.training_system import TrainingSystem

SYSTEM = "system."
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
    chosen: tuple[str, ...] = ()
    """What of its plan nobody gave, "layout" and "batch", so that no saving is measured against it."""

    def with_question(
        self,
        minimize: Minimize | None = None,
        limits: Limits | None = None,
        vary: Ranges | None = None,
        fix: Sequence[str] = (),
        tolerance: float | str | None = None,
        block: int | str | None = None,
    ) -> "Scenario":
        """The same scenario with what is stated here laid over its `[optimize]` section.

        **Raises:** `InputError` as `parse_question` and `load_scenario`, also for numbers of system and plan that were
        changed since the scenario was read.
        """
        self.check()
        section = {"minimize": minimize, "limits": limits, "vary": vary, "fix": fix, "tolerance": tolerance}
        return _asking(self, {**section, "block": block})

    @property
    def is_fine_tuned(self) -> bool:
        """Whether a trained model is adapted, whose loss is not predicted."""
        return isinstance(self.system.adaptation, FineTuning)

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
        system, plan = with_own_numbers((self.system, self.plan))
        tables = self.tables.get("system", {})
        titles = {name: str(tables.get(name, {}).get("title", "")) for name in ("software", "accelerator")}
        with jax.enable_x64(True):  # numbers that were computed in float64 keep it, whatever the caller's precision
            check_system(system, plan)
            check_plan(system, plan, titles)
            check_measured(system, float(plan.power_cap), self.tables.get("calibration", {}))


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
    changed = tuple(change for path, value in pairs for change in _texts(path, value))
    command = "" if isinstance(source, Mapping) else shlex.quote(str(source))
    return dataclasses.replace(_build(name, tables), changes=changed, cluster=str(cluster or ""), source=command)


def _changes(changes: Sequence[str] | Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Paths and values of changes, each of a type that a file may hold."""
    if isinstance(changes, Mapping):
        return [(word(path, "a path"), plain(value, str(path))) for path, value in changes.items()]
    pairs = []
    for change in listed(text)([changes] if isinstance(changes, str) else changes, "changes"):
        path, _, value = (part.strip() for part in change.partition("="))
        if not path or not value:
            raise InputError(
                f'"{change}" is not PATH=VALUE. Write for example plan.clock=0.8 or "system.market=france".'
            )
        pairs.append((word(path, "a path"), value))
    return pairs


def _texts(path: str, value: Any) -> list[tuple[str, str]]:
    """A change as `PATH` and `VALUE` texts, of a table one for each of its numbers."""
    if is_quantity(value):
        return [(path, f"{value['value']} {value.get('unit', '1')}")]
    if isinstance(value, Mapping):
        return [change for key, part in value.items() for change in _texts(f"{path}.{key}", part)]
    return [(path, f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value))]


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
        if section not in tables:
            raise InputError(f'{name}: section [{section}] is missing. Start with base = "llama-3.1-405b-h100".')
    provenance: dict[str, Provenance] = {}
    system_tables = with_rent(resolve(tables["system"], TrainingSystem, "system"))
    system = assemble(system_tables, TrainingSystem, "system", provenance)
    plan_tables = _plan_tables(tables["plan"], system_tables, system, provenance)
    uncertainty, calibration = tables.get("uncertainty", {}), tables.get("calibration", {})
    scenario = Scenario(
        name=name,
        title=title_of(tables, name),
        system=system,
        plan=build(plan_tables, TrainingPlan, "plan", provenance),
        optimize=Question(),
        uncertainty={path: origin.distribution for path, origin in provenance.items() if origin.distribution}
        | uncertainty,
        provenance=provenance,
        tables={
            "title": title_of(tables, name),
            "system": system_tables,
            "plan": plan_tables,
            "optimize": tables.get("optimize", {}),
            "uncertainty": uncertainty,
            **({"calibration": calibration} if calibration else {}),
        },
        accelerator=tables["system"].get("accelerator"),
    )
    scenario.check_together()
    with jax.enable_x64(True):
        check_supplies(*with_own_numbers((system, scenario.plan)))
    _check_uncertain(scenario, calibration)
    return _asking(scenario, scenario.tables["optimize"])


def _plan_tables(
    table: Mapping[str, Any],
    system_tables: Mapping[str, Any],
    system: TrainingSystem,
    provenance: Mapping[str, Provenance],
) -> dict[str, Any]:
    """The table of a plan with what it may leave out, and its short words as the numbers that they stand for."""
    rated = system_tables["accelerator"]["rated_power"]
    defaults = {"clock": 1.0, "power_cap": rated, "layout": {}}
    plan = {**table, **{key: value for key, value in defaults.items() if key not in table}}
    scale = ClockScale.of(system.accelerator)
    if is_frequency(plan["clock"]) and provenance[REFERENCE_CLOCK].is_prior:
        warnings.warn(
            f"{CLOCK}: the accelerator's reference clock, {scale.megahertz(1.0)}, is a prior, so that MHz are only "
            f"about right. Set {REFERENCE_CLOCK} to what your chips report, or give a share of it.",
            stacklevel=1,
        )
    plan["clock"] = scale.share(plan["clock"], CLOCK)
    if "batch" in plan:
        plan["batch"] = batch_knots(plan["batch"])
    if "power" in plan:
        plan["power"] = stage_power_table(plan["power"], plan["power_cap"])
    if not isinstance(plan["layout"], dict):
        raise InputError(f"plan.layout: a table is needed, not {plan['layout']!r}.")
    goal = plan.get("goal", {"tokens": 0.0})
    if not isinstance(goal, dict) or goal.keys() - {"component"} not in ({"tokens"}, {"loss"}):
        raise InputError('plan.goal: give either tokens = "15.6 T tokens" or loss = "1.9 nat/token".')
    return plan


def _check_uncertain(scenario: Scenario, calibration: Mapping[str, Any]) -> None:
    """Check that distributions can be read and hold the values, and that calibrations are of numbers that there are."""
    for path, distribution in scenario.uncertainty.items():
        if path not in scenario.provenance:
            raise InputError(f'uncertainty: unknown path "{path}". {suggest(path, scenario.provenance)}')
        value = np.ravel(reduce(getattr, path.split("."), scenario))
        if len(value) > 1:
            raise InputError(f"uncertainty of {path}: it has {len(value)} values over the run. Give one value.")
        distribution_of(scenario, path, distribution, scenario.provenance[path].unit, float(value[0]))
    for kind, fit in calibration.items():
        for name in fit["names"] if "slopes" in fit else ():
            if (path := f"system.{name}") not in scenario.provenance:
                raise InputError(
                    f'calibration.{kind}.names: system has no "{name}". {suggest(path, scenario.provenance)}'
                )


def _asking(scenario: Scenario, section: Any) -> Scenario:
    """The scenario with a section laid over its question; its plan then has the numbers that the question varies."""
    section, plan = with_stage_power(asked(section), scenario.plan)
    system, provenance, tables = scenario.system, scenario.provenance, scenario.tables
    if plan is not scenario.plan:
        caps = {name: f"{float(getattr(plan.power, name))!r} W" for name in STAGES}
        tables = {**tables, "plan": {**tables["plan"], "power": stage_power_table(caps, plan.power_cap)}}
        provenance = {**provenance, **{f"{POWER}.{name}": provenance["plan.power_cap"] for name in STAGES}}
    units = {path: origin.unit for path, origin in provenance.items()}
    if unknown := section.get("vary", {}).keys() - units.keys():
        with_absent, _ = jax.tree_util.tree_flatten_with_path(system, is_leaf=lambda leaf: leaf is None)
        absent = {"system" + jax.tree_util.keystr(path) for path, leaf in with_absent if leaf is None}
        for path in absent & unknown:
            raise InputError(f"vary {path}: there is none. Give it first (--set {path}=VALUE), then vary it.")
    question = parse_question(section, units, scenario.optimize, ClockScale.of(system.accelerator))
    if scenario.is_fine_tuned:
        if "loss" in {*question.limits, *parse_objective(question.minimize).names()}:
            raise InputError(f"loss: {NO_LOSS} Minimize or limit time, energy, money or memory.")
        if BATCH not in question.vary and not question.knots:
            question = dataclasses.replace(question, fix=tuple(dict.fromkeys((*question.fix, BATCH))))
    for path, ends in question.vary.items():
        check_values(system, plan, path, ends, tables.get("calibration", {}), f"vary {path}")
    check_ends(system, plan, question.vary)
    tables = {**tables, "optimize": question.section(units)}
    return dataclasses.replace(scenario, plan=plan, optimize=question, provenance=provenance, tables=tables)


def leaf_paths(tree: Any, prefix: str) -> list[str]:
    """Dotted paths of all float leaves of a system or plan, in the order of `jax.tree.leaves`."""
    entries, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [prefix + jax.tree_util.keystr(path) for path, _ in entries]


def distributions(scenario: Scenario, values: Mapping[str, float]) -> dict[str, NumberDistribution]:
    """The distribution of each number of a scenario that has one; `values` in SI, both by dotted path.

    **Raises:** `InputError` for the first that cannot be read.
    """
    return {
        path: distribution_of(scenario, path, text, scenario.provenance[path].unit, values[path])
        for path, text in scenario.uncertainty.items()
    }


UNUSED = (
    ("accelerator.gate.fraction", 0.0, "accelerator.gate.", ("residual_fraction", "wake_energy", "wake_time")),
    ("workload.flash", 1.0, "software.", ("score_passes",)),
    ("workload.flash", 0.0, "accelerator.attention_", ("efficiency", "half_keys", "tail", "half_head", "backward")),
    ("workload.experts", 1.0, "", ("software.expert_overlap", "mixture_exponent")),
    ("workload.state_layers", 0.0, "workload.state_", ("rate", "chunk")),
)
"""A number of a system, a value of it, and what is without effect where it has that value."""


def priors(scenario: Scenario) -> Sequence[str]:
    """Paths of the numbers of the system that are recalled or assumed and that this scenario reads.

    Not those of `switched_off`, which no plan of the scenario can bring into play.
    """
    off = switched_off(scenario)
    assumed = [path for path, origin in scenario.provenance.items() if path.startswith(SYSTEM) and origin.is_prior]
    return [path for path in assumed if path not in off]


def switched_off(scenario: Scenario) -> Sequence[str]:
    """Paths of priors without effect on the scenario: of power gates, attention and experts that it has not."""
    off = [
        f"{SYSTEM}{start}{name}"
        for number, value, start, names in UNUSED
        for name in names
        if float(reduce(getattr, number.split("."), scenario.system)) == value
    ]
    return [path for path in off if path in scenario.provenance and scenario.provenance[path].is_prior]
