"""What does the page get for a request: figures, readings and limits of a plan, or one sentence on what is wrong?"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.explorer.evaluator import Evaluator, is_finite
from energymodel.explorer.figures import NOW, OWN, Pinned, chart_of, operation_words
from energymodel.explorer.fragments import Plan, compare_html, figure_html, limits_html, outcome_html, strip_html
from energymodel.explorer.knobs import BATCH, BUSY_POWER, CHIPS, CLOCK, GENERATIONS
from energymodel.explorer.messages import Message, PinnedState, refused_pin
from energymodel.explorer.optimize_here import Found, optimize_here
from energymodel.explorer.readings import Reading, limits_sentence, readings, rooms, summary
from energymodel.explorer.state import Asked, PlanSpace, Settled, Shown
from energymodel.explorer.view import BATCHES, CLOCKS
from energymodel.report.answers.run_tables import prior_count
from energymodel.report.number import sentence
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import STEP, TrainingRun
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of, in_float64

LOWEST_CLOCK = 0.6  # of the plans near one: slower ones take more time and more energy
WIDEST_BATCH = 4.0  # of these plans, over the batch of the plan and under it


class Explorer:
    """A scenario with its compiled program; it is shared by all pages that are open.

    Building one traces and compiles the model, which takes seconds.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.space = PlanSpace(scenario)
        self.evaluator = Evaluator(self.space.run)
        self.own = self.shown(Asked({}, {}))
        self.priors = sentence(prior_count(scenario))
        self._searching = threading.Lock()

    def shown(self, asked: Asked) -> Shown:
        """The plan of the controls, evaluated.

        **Raises:** `InputError` for what cannot be run, or has no outcome.
        """
        settled = self.space.settle(asked)
        view = self.evaluator(settled.vector, *self.around(settled))
        if not is_finite(view):
            raise InputError("This combination has no finite outcome: energy, time or money grow beyond all bounds.")
        return Shown(settled, view)

    def around(self, settled: Settled) -> tuple[np.ndarray, np.ndarray]:
        """Batches of whole rounds of micro-batches around that of a plan, relative to it, and clocks [1]."""
        batch = settled.values.get(BATCH, self.space.knobs[BATCH].own)
        wanted = batch * np.geomspace(1.0 / WIDEST_BATCH, WIDEST_BATCH, BATCHES)
        factors = settled.batch_step * np.maximum(1.0, np.round(wanted / settled.batch_step)) / batch
        lowest = float(self.space.scenario.system.accelerator.minimum_clock)
        return factors, np.linspace(max(lowest, LOWEST_CLOCK), 1.0, CLOCKS)

    def spread(self, shown: Shown) -> OutcomeSpread:
        """How uncertain the outputs of a plan are, as `outcome_spread`, with the program that draws it.

        **Raises:** `InputError` for a distribution that cannot be read.
        """
        settled = shown.settled
        run = in_float64(TrainingRun(settled.scenario.system, settled.scenario.plan))
        around = self.around(settled)
        steps = directions_of(settled.scenario, run).steps
        ends = [self.evaluator(settled.vector + STEP * step, *around).outcome for step in steps]

        def slope(middle: np.ndarray, *others: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # infinite outputs have no slope
                return (np.array(others) - middle) / STEP

        outcome = shown.view.outcome
        return OutcomeSpread(outcome, jax.tree.map(slope, outcome, *ends))

    def optimize(self, asked: Asked, minimize: str, tell: Callable[[str], None]) -> Found:
        """The best plan from here in this layout; one search at a time.

        **Raises:** `InputError`.
        """
        if not self._searching.acquire(blocking=False):
            tell("waiting for the search that runs")
            self._searching.acquire()
        try:
            return optimize_here(self.space, self.shown, asked, minimize, tell)
        finally:
            self._searching.release()

    def warm(self) -> None:
        """Compile what the first search needs, of the chip as it is and of one that is designed."""
        for values in ({}, {GENERATIONS: 1.0}):
            if set(values) <= set(self.space.knobs):
                self.optimize(Asked(values, {}), "energy", lambda sentence: None)

    def plan(self, name: str, shown: Shown) -> Plan:
        """A plan for the table that compares."""
        return Plan(name, shown.settled.values, self.space.layouts.names(shown.settled.layout), shown.view)


class Page:
    """What one open page has been sent: only what changes is sent again."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._pins: list[Plan] = []
        self._sent: dict[str, str] = {}
        self._drawn: Shown | None = None
        self._estimated: tuple[Shown, OutcomeSpread] | None = None

    def pin(self, pins: Sequence[PinnedState]) -> None:
        """Replace the pinned plans.

        **Raises:** `RefusedPartError` for one that cannot be run.
        """
        self._pins = [self._pinned(one) for one in pins]

    def _pinned(self, one: PinnedState) -> Plan:
        try:
            return self.explorer.plan(one.name, self.explorer.shown(one.asked))
        except InputError as error:
            raise refused_pin(one.name, error) from None

    def picture(self, message: Message) -> dict[str, Any]:
        """The answer to a state: parts of the page that changed, the values that the controls settle at.

        **Raises:** `InputError` for a plan that cannot be shown.
        """
        started = time.perf_counter()
        shown = self._drawn = self.explorer.shown(message.asked)
        evaluated = time.perf_counter()
        parts, told = self._parts(shown, message)
        changed = self._changed(parts)
        space = self.explorer.space
        choices = space.layouts.choices(shown.settled.layout, shown.settled.chips)
        return {
            "kind": "picture",
            "number": message.number,
            "parts": changed,
            "values": self._controls(shown, message.asked.values),
            "layout": [[one.field, one.label, [list(option) for option in one.options]] for one in choices],
            "ownLayout": space.layouts.names(space.layouts.own),
            "replicas": f"{shown.settled.chips / self._group(shown):g}",
            "notes": self._notes(shown),
            "summary": told,
            "milliseconds": {"evaluate": 1e3 * (evaluated - started), "draw": 1e3 * (time.perf_counter() - evaluated)},
        }

    def estimate(self, message: Message) -> dict[str, Any]:
        """Find how uncertain a plan is, and keep it until that of another is found; there is nothing to send yet.

        **Raises:** `InputError` for a plan that cannot be shown.
        """
        shown = self.explorer.shown(message.asked)
        self._estimated = shown, self.explorer.spread(shown)
        return {}

    def intervals(self) -> dict[str, Any]:
        """The readings of the plan that is drawn with their intervals, if these have been found."""
        if self._drawn is None or (spread := self._spread_of(self._drawn)) is None:
            return {}
        part = outcome_html(self._readings(self._drawn, spread))
        return {"kind": "intervals", "parts": self._changed({"outcome": part})}

    def _changed(self, parts: Mapping[str, str]) -> dict[str, str]:
        changed = {name: part for name, part in parts.items() if self._sent.get(name) != part}
        self._sent.update(changed)
        return changed

    def _spread_of(self, shown: Shown) -> OutcomeSpread | None:
        estimated = self._estimated  # once: another thread may replace it
        if estimated is None or not np.array_equal(estimated[0].settled.vector, shown.settled.vector):
            return None
        return estimated[1]

    def _readings(self, shown: Shown, spread: OutcomeSpread | None = None) -> list[Reading]:
        return readings(shown.view.outcome, self.explorer.own.view.outcome, spread)

    def _parts(self, shown: Shown, message: Message) -> tuple[dict[str, str], str]:
        explorer, view = self.explorer, shown.view
        own = explorer.own.view
        told, limits, spread = self._readings(shown), rooms(view), self._spread_of(shown)
        sentence = limits_sentence(limits)
        pinned = [Pinned(plan.name, plan.view) for plan in self._pins]
        charts = {name: chart_of(name, view, own, pinned, message.front) for name in message.seen}
        parts = {name: figure_html(chart, message.width) for name, chart in charts.items()}
        parts["outcome"] = outcome_html(self._readings(shown, spread) if spread else told)
        parts["strip"] = strip_html(told)
        parts["limits"] = limits_html(limits, sentence)
        now = [explorer.plan(NOW, shown)]
        compared = [explorer.plan(OWN, explorer.own), *self._pins, *now] if self._pins else []
        parts["compare"] = compare_html(compared, explorer.space.knobs)
        return parts, summary(told, sentence)

    def _controls(self, shown: Shown, asked: Mapping[str, float]) -> dict[str, float]:
        """Where the controls stand: those that were moved, and chips and batch, which follow."""
        knobs, settled = self.explorer.space.knobs, shown.settled
        paths = dict.fromkeys((*asked, *settled.values, CHIPS, BATCH))
        return {path: settled.values.get(path, knobs[path].own) for path in paths}

    @staticmethod
    def _group(shown: Shown) -> float:
        layout = shown.settled.layout
        return float(layout[0] * layout[1] * layout[3])

    def _notes(self, shown: Shown) -> dict[str, str]:
        """What some numbers mean in other units."""
        scenario = shown.settled.scenario
        hertz = float(scenario.system.accelerator.reference_clock) * float(scenario.plan.clock)
        found = {CLOCK: f"{hertz / 1e6:,.0f} MHz"}
        words = operation_words(shown.view.operation)
        return found | {path: words for path in (GENERATIONS, BUSY_POWER) if path in self.explorer.space.knobs}
