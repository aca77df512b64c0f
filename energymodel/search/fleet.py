"""Groups of unlike devices that train one model together, read from a scenario and from texts."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.runtime.compilation import Compiled
from energymodel.scenarios.document import FLEET
from energymodel.scenarios.layers import named_tables, with_bases
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.scenarios.system_checks import check_ports
from energymodel.system.evaluate import evaluate_once
from energymodel.system.fleet import FleetOutcome, Group, Groups, evaluate_fleet
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import parse_number

MOST = 8  # groups
PATHS = {
    **{key: f"system.{key}" for key in ("accelerator", "node", "network")},
    **{key: f"plan.{key}" for key in ("clock", "power_cap")},
}
KEYS = (*PATHS, "chips")
OF_OWN_DEVICES = ("plan.chips", "plan.clock", "plan.power_cap")
FORM = 'a further group such as "a100-sxm4-80gb 1024"'

_evaluate = Compiled(evaluate_fleet, once=True)


class FleetGroup(NamedTuple):
    """Like devices of a fleet: their name, the scenario in which they train alone, and the table that stated them."""

    name: str
    scenario: Scenario
    table: Mapping[str, Any]

    @property
    def replicas(self) -> float:
        """Whole replicas of the model that the group holds [1]."""
        layout = self.scenario.plan.layout
        return float(self.scenario.plan.chips) / float(layout.tensor * layout.pipeline * layout.context)


class Fleet(NamedTuple):
    """Groups of unlike devices; the first one is that of the scenario, and its question is asked of all."""

    groups: tuple[FleetGroup, ...]

    @property
    def main(self) -> Scenario:
        """Scenario of the first group."""
        return self.groups[0].scenario

    @property
    def pairs(self) -> tuple[Group, ...]:
        """System and plan of each group."""
        return tuple((group.scenario.system, group.scenario.plan) for group in self.groups)

    @property
    def microbatches(self) -> float:
        """Micro-batches of the mean replica in a step of the plan [1]."""
        plan = self.main.plan
        tokens = float(plan.layout.microbatch) * float(self.main.system.workload.sequence)
        return float(np.reshape(plan.batch, ())) / (sum(group.replicas for group in self.groups) * tokens)

    @property
    def named_tables(self) -> dict[str, Any]:
        """Name and tables of the scenario with those of the further groups; `load_fleet` reads them."""
        return {**self.main.named_tables, FLEET: {group.name: group.table for group in self.groups[1:]}}

    def evaluate_alone(self) -> TrainingOutcome:
        """Outcome of the first group without the others, in float64."""
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, evaluate_once(*self.pairs[0]))

    def evaluate(self, work: Groups | np.ndarray | None = None) -> FleetOutcome:
        """`system.fleet.evaluate_fleet`, compiled, in float64."""
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, _evaluate(self.pairs, work))


def load_fleet(
    source: str | Path | Mapping[str, Any],
    groups: Sequence[str] = (),
    changes: Sequence[str] | Mapping[str, Any] = (),
    cluster: str | Path | None = None,
) -> Fleet:
    """Read a scenario with further groups of devices, from its tables `[fleet.NAME]` and from texts.

    A table holds `accelerator` and `chips`, and may hold `node` and `network` (by default those that belong to the
    accelerator), `clock` and `power_cap` (the highest clock and the rated power). Everything else is that of the
    scenario: model, layout, batch, goal, software, building, prices.

    **Arguments:**

    - `source`, `changes`, `cluster`: as in `load_scenario`; changes are those of the scenario's own devices, and of
      all where they name neither accelerator nor node nor network.
    - `groups`: accelerator and number of chips, such as `"a100-sxm4-80gb 1024"`, and what else a table may hold:
      `"a100-sxm4-80gb 1024 network=infiniband-400g power_cap=350W"`.

    **Raises:** `InputError` for a group that cannot be, has no whole replicas, or one too many; for a batch or a clock
    that changes with progress.
    """
    name, tables = named_tables(source)
    tables = with_bases(tables, name)
    further = {key: dict(table) for key, table in tables.pop(FLEET, {}).items()}
    for text in groups:
        group = _group(text)
        kind = group["accelerator"]
        names = [kind, *(f"{kind}-{number}" for number in range(2, MOST + 2))]
        further[next(name for name in names if name not in further)] = group
    if not 0 < len(further) < MOST:
        raise InputError(f"fleet: {len(further)} further groups of devices. Give 1 to {MOST - 1}: --group with {FORM}.")
    named = {"name": name, **tables}
    main = load_scenario(named, changes, cluster)
    if main.plan.knots > 1:
        raise InputError("plan.batch: a fleet needs one value for the whole run. Give one number.")
    devices = tables.get("system", {}).get("accelerator")
    if not isinstance(devices, str):
        devices = str(main.tables["system"]["accelerator"].get("title", "own devices"))
    members = [FleetGroup(devices, main, {})]
    members += [_loaded(key, table, named, changes, cluster) for key, table in further.items()]
    chips = sum(float(member.scenario.plan.chips) for member in members)
    for member in members:
        check_ports(member.scenario.system, chips)
        if abs(member.replicas - round(member.replicas)) > 1e-9 or member.replicas < 1.0:
            raise InputError(
                f"fleet.{member.name}.chips: {float(member.scenario.plan.chips):g} chips are {member.replicas:g} "
                "replicas in the layout of the plan. Give a multiple of tensor times pipeline times context."
            )
    fleet = Fleet(tuple(members))
    fewest = math.ceil(float(main.plan.layout.fewest_microbatches))
    if (each := fleet.microbatches) < fewest:
        raise InputError(
            f"plan.batch: {each:.4g} micro-batches for each replica of the fleet are fewer than {fewest}, which the "
            "schedule needs. Take a larger batch or fewer chips."
        )
    return fleet


def _group(text: str) -> dict[str, Any]:
    """The table of a group that is given as text."""
    words = text.split()
    options = [word.partition("=") for word in words[2:]]
    if len(words) < 2 or not all(key and value for key, _, value in options):
        raise InputError(f'fleet: "{text}" is not an accelerator and its number of chips. Give {FORM}.')
    return {"accelerator": words[0], "chips": words[1], **{key: value for key, _, value in options}}


def _loaded(
    name: str,
    table: Mapping[str, Any],
    source: Mapping[str, Any],
    changes: Sequence[str] | Mapping[str, Any],
    cluster: str | Path | None,
) -> FleetGroup:
    """A further group, as the scenario with its devices."""
    for key in table:
        if key not in KEYS:
            raise InputError(f'fleet.{name}: unknown key "{key}". {suggest(key, KEYS)}')
    for key in ("accelerator", "chips"):
        if key not in table:
            raise InputError(f"fleet.{name}: {key} is missing. A group has an accelerator and a number of chips.")
    pairs = changes.items() if isinstance(changes, Mapping) else (change.partition("=")[::2] for change in changes)
    own = {path.strip(): value for path, value in pairs if path.strip() not in OF_OWN_DEVICES}
    own |= {path: table[key] for key, path in PATHS.items() if key in table}
    plan = {key: value for key, value in source.get("plan", {}).items() if key not in ("clock", "power_cap")}
    try:
        scenario = load_scenario({**source, "plan": plan}, own, cluster)
    except InputError as error:
        raise InputError(f"fleet.{name}: {error}") from error
    chips = parse_number(table["chips"], "1", f"fleet.{name}.chips")
    if not (math.isfinite(chips) and chips >= 1.0):
        raise InputError(f"fleet.{name}.chips: {table['chips']} is not a number of chips. Give for example 1024.")
    plan = eqx.tree_at(lambda leaf: leaf.chips, scenario.plan, np.asarray(chips))
    return FleetGroup(name, dataclasses.replace(scenario, plan=plan), table)
