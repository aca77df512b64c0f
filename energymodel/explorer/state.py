"""What plan do the sliders stand for: numbers and a layout, rounded to what can be run and checked as a file is?"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from energymodel.explorer.knobs import BATCH, CHIPS, DESIGN, LAYOUT, Knob, knobs_of
from energymodel.explorer.layout_choice import LayoutChoice
from energymodel.explorer.view import View
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.layouts import FIELDS
from energymodel.search.training_run import TrainingRun
from energymodel.system.plan import ParallelLayout
from energymodel.system.plan_rules import multiple_count, torus_chips, torus_fault

SAME = 1e-12  # relative difference of a number that nobody moved
WHOLE = 1e-6


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


class Shown(NamedTuple):
    """A plan that is shown, with what is drawn of it."""

    settled: Settled
    view: View


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
        self.knobs: dict[str, Knob] = knobs_of(self.scenario)
        self.layouts = LayoutChoice(self.run, self.knobs[CHIPS].high)
        self._last: tuple[tuple[Any, ...], tuple[np.ndarray, float, float, int]] | None = None
        self._vector, self._places = self.run.vector, self.run.places

    def settle(self, asked: Asked) -> Settled:
        """The plan nearest to the controls whose chips are whole replicas and whose batch is whole micro-batches.

        **Raises:** `InputError` for a combination that cannot be run.
        """
        values = {path: float(value) for path, value in asked.values.items() if not self._is_own(path, value)}
        chips = values.get(CHIPS, self.knobs[CHIPS].own)
        layout, chips, step, fewest = self._counts(asked, chips)
        as_own = bool(np.array_equal(layout, self.layouts.own))
        batch = values.get(BATCH, self.knobs[BATCH].own)
        if not (as_own and BATCH not in values and CHIPS not in values):
            batch = step * max(fewest, round(batch / step))
        for path, value in ((CHIPS, chips), (BATCH, batch)):
            values.pop(path, None)
            if not self._is_own(path, value):
                values[path] = value
        vector = self._filled(values, layout)
        run = self.run.at(vector)
        scenario = dataclasses.replace(self.scenario, system=run.system, plan=run.plan)
        with jax.enable_x64(True):
            scenario.check_together()  # the ends of the knobs keep each number possible
        return Settled(vector, scenario, values, layout, chips, step)

    def _counts(self, asked: Asked, chips: float) -> tuple[np.ndarray, float, float, int]:
        """Layout and chips that are nearest, and `_batch_step`; most sliders leave them as they are."""
        moved = asked.moved if asked.moved in asked.layout else ""
        key = (chips, moved, tuple(sorted(asked.layout.items())))
        last = self._last  # once: another thread may replace it
        if last is None or last[0] != key:
            layout, divides = self.layouts.nearest(asked.layout, chips, moved)
            if not (divides and self._buildable(chips)):
                chips = self._whole_chips(chips, layout)
            self._last = last = (key, (layout, chips, *self._batch_step(chips, layout)))
        return last[1]

    def _is_own(self, path: str, value: float) -> bool:
        own = self.knobs[path].own
        return abs(value - own) <= SAME * max(abs(own), abs(value))

    def _buildable(self, chips: float) -> bool:
        return abs(chips - round(chips)) < WHOLE and torus_fault(self.scenario.system, chips) is None

    def _whole_chips(self, chips: float, row: np.ndarray) -> float:
        """The nearest number of chips of whole replicas, over which experts divide, in whole nodes where possible."""
        layout = self._named(row)
        group = round(layout["tensor"] * layout["pipeline"] * layout["context"])
        experts = round(layout["expert"]) // math.gcd(round(layout["expert"]), round(layout["context"]))
        node = round(float(self.scenario.system.node.chips))
        whole = group * experts
        step = math.lcm(whole, node) if chips >= node else whole
        nearest = float(max(1, round(chips / step)) * step)
        if torus_fault(self.scenario.system, nearest):
            possible = torus_chips(self.scenario.system, chips, self.knobs[CHIPS].high, whole)
            nearest = min(possible, key=lambda one: abs(math.log(one / chips)), default=nearest)
        return nearest

    def _batch_step(self, chips: float, row: np.ndarray) -> tuple[float, int]:
        """Tokens by which a batch grows, a round of micro-batches on each replica, and the fewest rounds."""
        layout = ParallelLayout(*row)
        replicas = chips / float(layout.tensor * layout.pipeline * layout.context)
        multiple = multiple_count(self.scenario.system, layout)
        step = multiple * replicas * float(layout.microbatch) * float(self.scenario.system.workload.sequence)
        return step, max(1, math.ceil(float(layout.fewest_microbatches) / multiple - WHOLE))

    def _filled(self, values: Mapping[str, float], row: np.ndarray) -> np.ndarray:
        vector = self._vector.copy()
        for path, value in values.items():
            place = self._places[path]
            several = place.stop - place.start > 1
            vector[place] = vector[place] * (value / self.knobs[path].own) if several else value
        for name, value in zip(FIELDS, row, strict=True):
            vector[self._places[LAYOUT + name]] = value
        return vector

    @staticmethod
    def _named(row: np.ndarray) -> dict[str, float]:
        return dict(zip(FIELDS, map(float, row), strict=True))

    def searched(self, settled: Settled) -> Scenario:
        """The scenario of a plan as a search takes it: with the chip of the own one, unless its design was moved.

        The programs of the search are then those of `energymodel optimize`, which may be compiled already.
        """
        system, scenario = self.own.system, settled.scenario
        if any(path.startswith(DESIGN) for path in settled.values):
            return scenario
        return dataclasses.replace(
            scenario, system=dataclasses.replace(scenario.system, chip_design=system.chip_design)
        )

    def tables_at(self, settled: Settled) -> Scenario:
        """The scenario with the numbers of a plan in its tables too, as a file that a command reads.

        **Raises:** `InputError` for what cannot be read back.
        """
        designed = any(path.startswith(DESIGN) for path in settled.values)
        base = self.scenario if designed else self.own
        changes: dict[str, Any] = {}
        for path, value in settled.values.items():
            place, unit = self._places[path], self.knobs[path].unit
            if place.stop - place.start > 1:
                changes[path] = [_quantity(one, unit) for one in settled.vector[place]]
            else:
                changes[path] = _quantity(value, unit)
        own = self._named(self.layouts.own)
        for name, value in self._named(settled.layout).items():
            if value != own[name]:
                changes[LAYOUT + name] = value
        return load_scenario(base.named_tables, changes)


def _quantity(value: float, unit: str) -> dict[str, Any]:
    return {"value": float(value), "unit": unit, "kind": "given", "source": "energymodel explore"}
