"""The plan that the sliders stand for: numbers and a layout, rounded to what can be run and checked as a file is."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.explorer.knobs import BATCH, CHIPS, DESIGN, LAYOUT, knobs_of
from energymodel.explorer.layout_choice import LayoutChoice
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.layouts import FIELDS
from energymodel.search.training_run import TrainingRun
from energymodel.system.plan import ParallelLayout
from energymodel.system.plan_rules import multiple_count, torus_chips, torus_fault

_SAME = 1e-12  # relative difference of a number that nobody moved
_WHOLE = 1e-6


class Asked(NamedTuple):
    """Where the controls of the page stand: values in SI by path, names of the layout by field, what moved last."""

    values: Mapping[str, float]
    layout: Mapping[str, str]
    moved: str = ""


class Settled(NamedTuple):
    """A plan that the controls settle at: all its numbers, and the values that differ from the scenario's own.

    `scenario` has the numbers as a search takes them; its tables are still those of the own plan.
    """

    vector: Float[np.ndarray, " numbers"]
    scenario: Scenario
    values: dict[str, float]
    layout: Float[np.ndarray, " fields"]
    chips: float
    batch_step: float

    @property
    def run(self) -> TrainingRun:
        """System and plan."""
        return TrainingRun(self.scenario.system, self.scenario.plan)

    @property
    def is_designed(self) -> bool:
        """Whether a number of the design of its chip was moved."""
        return any(path.startswith(DESIGN) for path in self.values)


class PlanSpace:
    """All plans that the controls of a page can reach from a scenario.

    `scenario` has a chip that can be designed, so that one program serves today's and tomorrow's; while no number of
    the design moves, its chip is that of `own` to the last digit.
    """

    def __init__(self, own: Scenario) -> None:
        self.own = own
        designed = own.system.chip_design.is_catalog
        self.scenario = load_scenario(own.named_tables, {DESIGN.removesuffix("."): "scaled"}) if designed else own
        self.run = TrainingRun(self.scenario.system, self.scenario.plan)
        self.knobs = knobs_of(self.scenario)
        self.layouts = LayoutChoice(self.run, self.knobs[CHIPS].high)
        self._vector, self._slices = self.run.vector, self.run.places
        self._counts = functools.lru_cache(self._counts_of)  # most sliders leave them as they are

    def settle(self, asked: Asked) -> Settled:
        """The plan nearest to the controls whose chips are whole replicas and whose batch is whole micro-batches.

        **Raises:** `InputError` for a combination that cannot be run.
        """
        values = self._moved(asked.values)
        moved = asked.moved if asked.moved in asked.layout else ""
        chips = values.get(CHIPS, self.knobs[CHIPS].own)
        row, chips, step, fewest = self._counts(chips, moved, tuple(sorted(asked.layout.items())))
        batch = values.get(BATCH, self.knobs[BATCH].own)
        if BATCH in values or CHIPS in values or not np.array_equal(row, self.layouts.own):
            batch = step * max(fewest, round(batch / step))
        counts = {CHIPS: chips, BATCH: batch}
        values = {path: value for path, value in values.items() if path not in counts} | self._moved(counts)
        vector = self._vector.copy()
        for path, value in values.items():
            numbers = self._slices[path]
            several = numbers.stop - numbers.start > 1
            vector[numbers] = vector[numbers] * (value / self.knobs[path].own) if several else value
        for name, value in zip(FIELDS, row, strict=True):
            vector[self._slices[LAYOUT + name]] = value
        run = self.run.at(vector)
        scenario = dataclasses.replace(self.scenario, system=run.system, plan=run.plan)
        with jax.enable_x64(True):
            scenario.check_together()  # the ends of the knobs keep each number possible
        return Settled(vector, scenario, values, row, chips, step)

    def _moved(self, values: Mapping[str, float]) -> dict[str, float]:
        """Those that are not the scenario's own."""
        own = {path: self.knobs[path].own for path in values}
        return {
            path: float(value) for path, value in values.items() if not math.isclose(value, own[path], rel_tol=_SAME)
        }

    def _counts_of(
        self, chips: float, moved: str, names: tuple[tuple[str, str], ...]
    ) -> tuple[np.ndarray, float, float, int]:
        """Nearest layout and chips, tokens of a round of micro-batches on each replica, and the fewest rounds."""
        system = self.scenario.system
        row, divides = self.layouts.nearest(dict(names), chips, moved)
        layout = ParallelLayout(*row)
        if not (divides and abs(chips - round(chips)) < _WHOLE and torus_fault(system, chips) is None):
            chips = self._whole_chips(chips, layout)
        multiple, replicas = multiple_count(system, layout), chips / _group(layout)
        step = multiple * replicas * float(layout.microbatch) * float(system.workload.sequence)
        return row, chips, step, max(1, math.ceil(float(layout.fewest_microbatches) / multiple - _WHOLE))

    def _whole_chips(self, chips: float, layout: ParallelLayout) -> float:
        """The nearest number of chips of whole replicas, over which experts divide, in whole nodes where possible."""
        system, expert = self.scenario.system, round(float(layout.expert))
        node = round(float(system.node.chips))
        replica = round(_group(layout)) * (expert // math.gcd(expert, round(float(layout.context))))
        step = math.lcm(replica, node) if chips >= node else replica
        nearest = float(max(1, round(chips / step)) * step)
        if torus_fault(system, nearest):
            possible = torus_chips(system, chips, self.knobs[CHIPS].high, replica)
            nearest = min(possible, key=lambda count: abs(math.log(count / chips)), default=nearest)
        return nearest

    def searched(self, settled: Settled) -> Scenario:
        """The scenario of a plan as a search takes it: with the chip of the own one, unless its design was moved.

        The programs of the search are then those of `energymodel optimize`, which may be compiled already.
        """
        scenario = settled.scenario
        if settled.is_designed:
            return scenario
        system = dataclasses.replace(scenario.system, chip_design=self.own.system.chip_design)
        return dataclasses.replace(scenario, system=system)

    def tables_at(self, settled: Settled) -> Scenario:
        """The scenario with the numbers of a plan in its tables too, as a file that a command reads.

        **Raises:** `InputError` for what cannot be read back.
        """
        changes: dict[str, Any] = {}
        for path in settled.values:
            about = {"unit": self.knobs[path].unit, "kind": "given", "source": "energymodel explore"}
            numbers = [{"value": float(value), **about} for value in settled.vector[self._slices[path]]]
            changes[path] = numbers if len(numbers) > 1 else numbers[0]
        for name, value, own in zip(FIELDS, settled.layout, self.layouts.own, strict=True):
            if value != own:
                changes[LAYOUT + name] = float(value)
        return load_scenario((self.scenario if settled.is_designed else self.own).named_tables, changes)


def replicas_of(settled: Settled) -> float:
    """Copies of the model on the chips of a plan."""
    return settled.chips / _group(ParallelLayout(*settled.layout))


def _group(layout: ParallelLayout) -> float:
    return float(layout.tensor * layout.pipeline * layout.context)
