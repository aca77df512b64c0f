"""The plans that the controls of a page stand for: numbers and a layout, rounded to what can be run."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from energymodel.explorer.knobs import BATCH, CHIPS, DESIGN, LAYOUT, knobs_of
from energymodel.explorer.view import View
from energymodel.readers.expressions import data_file
from energymodel.report.answers.run_tables import Run
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.outcome_spread import OutcomeSpread
from energymodel.system.chip_design import CatalogChip
from energymodel.system.layouts import FIELDS, candidates
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.plan import ParallelLayout
from energymodel.system.plan_rules import multiple_count, torus_chips, torus_fault

_OWN = "as in the scenario"
_ELSEWHERE = 10.0  # a switch that differs counts as much as a degree that is so many times another
_SAME = 1e-12  # relative difference of a number that nobody moved
_WHOLE = 1e-6


class LayoutField(NamedTuple):
    """A field of the page: its label, the fields of a layout that it sets, and what its names mean, if not numbers."""

    label: str
    sets: tuple[str, ...]
    meanings: Mapping[str, tuple[float, ...]] = {}

    @property
    def columns(self) -> list[int]:
        """Where its numbers are in a layout."""
        return [FIELDS.index(name) for name in self.sets]

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """What a name sets; None where it leaves the numbers as they are."""
        return self.meanings.get(name) if self.meanings else (_degree(name) or 1.0,)

    def name(self, numbers: Sequence[float] | np.ndarray) -> str:
        """The name for its numbers."""
        if not self.meanings:
            return f"{numbers[0]:g}"
        return next((name for name, meaning in self.meanings.items() if meaning == tuple(numbers)), _OWN)

    def has(self, name: str) -> bool:
        """Whether it can have a name; which software runs it is another question."""
        return name in (*self.meanings, _OWN) if self.meanings else _degree(name) >= 1.0


LAYOUT_FIELDS: Mapping[str, LayoutField] = {
    name: LayoutField(
        about["label"],
        tuple(about.get("sets", (name,))),
        {word: tuple(numbers) for word, numbers in about.get("meanings", {}).items()},
    )
    for name, about in data_file(__file__, "layout_fields.toml").items()
}
"""Fields of the layout on the page, by name."""


class LayoutChoice:
    """The layouts that a software runs, as rows of a table whose columns are the fields of a `ParallelLayout`."""

    def __init__(self, run: TrainingRun, most_chips: float) -> None:
        lattice = candidates(run.system, run.plan.layout, most_chips)
        self.own = np.array([float(getattr(run.plan.layout, name)) for name in FIELDS])
        self._table = np.stack([getattr(lattice, name) for name in FIELDS], axis=1)
        has_fp8 = float(run.system.accelerator.peak_flops_fp8) > 0.0
        self.fields = {name: field for name, field in LAYOUT_FIELDS.items() if has_fp8 or name != "fp8"}
        self.choices = functools.lru_cache(self._choices)  # most sliders leave them as they are

    def _dividing(self, chips: float) -> Bool[np.ndarray, " layouts"]:
        """Layouts of whole replicas on so many chips, over which the experts divide."""
        names = ("tensor", "pipeline", "context", "expert")
        tensor, pipeline, context, expert = (self._table[:, FIELDS.index(name)] for name in names)
        data = chips / (tensor * pipeline * context)
        spread = data * context / expert
        return (np.abs(data - np.round(data)) < _WHOLE) & (np.abs(spread - np.round(spread)) < _WHOLE) & (data >= 1.0)

    def names(self, row: Float[np.ndarray, " fields"]) -> dict[str, str]:
        """The choice that a layout is, by field of the page."""
        return {name: field.name(row[field.columns]) for name, field in self.fields.items()}

    def nearest(
        self, names: Mapping[str, str], chips: float, moved: str = ""
    ) -> tuple[Float[np.ndarray, " fields"], bool]:
        """The layout that is as chosen, or else the nearest one that the software runs.

        **Arguments:**

        - `names`: the choice by field of the page; the scenario's own where a field is missing.
        - `moved`: the field that was just changed: it keeps its value, and the others follow the chips. Where no field
          was changed, the chips have to follow the layout.

        **Returns:** the layout, and whether it divides the chips.
        """
        wanted = self.own.copy()
        for name in names.keys() & self.fields.keys():
            field = self.fields[name]
            wanted[field.columns] = field.numbers(names[name]) or wanted[field.columns]
        ruled = {name: field for name, field in LAYOUT_FIELDS.items() if name != "fp8"}  # which every layout can have
        away = np.zeros(len(self._table))
        for field in ruled.values():
            rows, values = self._table[:, field.columns], wanted[field.columns]
            away += (
                np.log(_ELSEWHERE) * np.abs(rows - values) if field.meanings else np.abs(np.log(rows / values))
            ).sum(axis=1)
        divides = self._dividing(chips)
        if moved in ruled:
            columns = ruled[moved].columns
            same = np.all(self._table[:, columns] == wanted[columns], axis=1)
            allowed = next((rows for rows in (same & divides, same, divides) if rows.any()), None)
            away = away if allowed is None else np.where(allowed, away, np.inf)
        best = int(np.argmin(away))
        row = self._table[best].copy()
        row[FIELDS.index("fp8")] = wanted[FIELDS.index("fp8")]
        return row, bool(divides[best])

    def _choices(self, row: tuple[float, ...], chips: float) -> list[tuple[str, str, list[tuple[str, bool]]]]:
        """Fields with their labels and possible names on so many chips, each with whether it is chosen.

        A degree with one value is left out.
        """
        table, choices = self._table[self._dividing(chips)], []
        for name, field in self.fields.items():
            chosen = field.name([row[column] for column in field.columns])
            names = {chosen, *map(field.name, set(map(tuple, table[:, field.columns].tolist())))}
            names |= set(field.meanings) if name == "fp8" else set()
            ordered = [option for option in (*field.meanings, _OWN) if option in names]
            ordered = ordered if field.meanings else sorted(names, key=float)
            if field.meanings or len(names) > 1:
                choices.append((name, field.label, [(option, option == chosen) for option in ordered]))
        return choices


def _degree(name: str) -> float:
    """A number, or nothing where a text is none."""
    try:
        value = float(name)
    except ValueError:
        return 0.0
    return value if np.isfinite(value) else 0.0


class Asked(NamedTuple):
    """Where the controls of the page stand: values in SI by path, names of the layout by field, what moved last."""

    values: Mapping[str, float]
    layout: Mapping[str, str]
    moved: str = ""


class PagePlan(NamedTuple):
    """A plan that the controls settle at, and what is drawn of it.

    - `vector`: all its numbers; `values` that differ from the scenario's own; `layout`, a row of its fields.
    - `scenario`: with the numbers as a search takes them; its tables are still those of the own plan.
    - `view`: once it is evaluated; `spread`: how uncertain the outcome is, where that is known.
    """

    vector: Float[np.ndarray, " numbers"]
    scenario: Scenario
    values: dict[str, float]
    layout: Float[np.ndarray, " fields"]
    chips: float
    batch_step: float
    view: View = None  # type: ignore[assignment]
    spread: OutcomeSpread | None = None

    @property
    def training_run(self) -> TrainingRun:
        """System and plan."""
        return TrainingRun(self.scenario.system, self.scenario.plan)

    @property
    def outcome(self) -> TrainingOutcome:
        """What the run yields."""
        return self.view.outcome

    @property
    def run(self) -> Run:
        """The plan with its outcome."""
        return Run(self.scenario.plan, self.outcome, self.spread)

    @property
    def replicas(self) -> float:
        """Copies of the model on its chips."""
        return self.chips / _group(ParallelLayout(*self.layout))

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
        designed = isinstance(own.system.chip_design, CatalogChip)
        self.scenario = load_scenario(own.named_tables, {DESIGN.removesuffix("."): "scaled"}) if designed else own
        self.run = TrainingRun(self.scenario.system, self.scenario.plan)
        self.knobs = knobs_of(self.scenario)
        self.layouts = LayoutChoice(self.run, self.knobs[CHIPS].high)
        self._vector, self._slices = self.run.vector, self.run.places
        self._counts = functools.lru_cache(self._counts_of)  # most sliders leave them as they are

    def settle(self, asked: Asked) -> PagePlan:
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
        return PagePlan(vector, scenario, values, row, chips, step)

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

    def searched(self, plan: PagePlan) -> Scenario:
        """The scenario of a plan as a search takes it: with the chip of the own one, unless its design was moved.

        The programs of the search are then those of `energymodel optimize`, which may be compiled already.
        """
        scenario = plan.scenario
        if plan.is_designed:
            return scenario
        system = dataclasses.replace(scenario.system, chip_design=self.own.system.chip_design)
        return dataclasses.replace(scenario, system=system)

    def tables_at(self, plan: PagePlan) -> Scenario:
        """The scenario with the numbers of a plan in its tables too, as a file that a command reads.

        **Raises:** `InputError` for what cannot be read back.
        """
        changes: dict[str, Any] = {}
        for path in plan.values:
            about = {"unit": self.knobs[path].unit, "kind": "given", "source": "energymodel explore"}
            numbers = [{"value": float(value), **about} for value in plan.vector[self._slices[path]]]
            changes[path] = numbers if len(numbers) > 1 else numbers[0]
        for name, value, own in zip(FIELDS, plan.layout, self.layouts.own, strict=True):
            if value != own:
                changes[LAYOUT + name] = float(value)
        return load_scenario((self.scenario if plan.is_designed else self.own).named_tables, changes)


def _group(layout: ParallelLayout) -> float:
    return float(layout.tensor * layout.pipeline * layout.context)
