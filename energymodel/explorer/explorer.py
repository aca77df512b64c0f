"""What the page gets for a request: parts of the answer for a plan, files to save, or one sentence on what is wrong."""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from energymodel import __version__
from energymodel.errors import InputError
from energymodel.explorer import fragments
from energymodel.explorer.answer import FIGURES, Shown, explore_answer, operation_sentence
from energymodel.explorer.knobs import BATCH, BUSY_POWER, CHIPS, CLOCK, GENERATIONS
from energymodel.explorer.messages import Message, refused_pin
from energymodel.explorer.optimize_here import Improved, optimize_here
from energymodel.explorer.state import Asked, PlanSpace, Settled, replicas_of
from energymodel.explorer.view import BATCHES, CLOCKS, Evaluator
from energymodel.report import toml_text
from energymodel.report.answers.evaluate import evaluate_answer
from energymodel.report.number import plain, sentence
from energymodel.report.page import figure, page_html
from energymodel.scenarios.scenario import Scenario
from energymodel.search.training_run import STEP
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of, in_float64

_LOWEST_CLOCK = 0.6  # of the plans near one: slower ones take more time and more energy
_WIDEST_BATCH = 4.0  # of these plans, over the batch of the plan and under it


class Explorer:
    """A scenario with its compiled program; it is shared by all pages that are open.

    Building one traces and compiles the model, which takes seconds.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.space = PlanSpace(scenario)
        self.evaluator = Evaluator(self.space.run)
        self.own = self.plan_at(Asked({}, {}))
        self._searching = threading.Lock()

    def plan_at(self, asked: Asked) -> Shown:
        """The plan of the controls, evaluated; `InputError` for what cannot be run, or has no outcome."""
        settled = self.space.settle(asked)
        view = self.evaluator(settled.vector, *self.around(settled))
        outcome = view.outcome
        numbers = (outcome.loss, outcome.time, outcome.money, outcome.energy.total)
        if not all(np.all(np.isfinite(number)) for number in numbers):
            raise InputError("This combination has no finite outcome: energy, time or money grow beyond all bounds.")
        return Shown(settled, view)

    def around(self, settled: Settled) -> tuple[np.ndarray, np.ndarray]:
        """Batches of whole rounds of micro-batches around that of a plan, relative to it, and clocks [1]."""
        batch = settled.values.get(BATCH, self.space.knobs[BATCH].own)
        batches = batch * np.geomspace(1.0 / _WIDEST_BATCH, _WIDEST_BATCH, BATCHES)
        factors = settled.batch_step * np.maximum(1.0, np.round(batches / settled.batch_step)) / batch
        lowest = float(self.space.scenario.system.accelerator.minimum_clock)
        return factors, np.linspace(max(lowest, _LOWEST_CLOCK), 1.0, CLOCKS)

    def spread(self, plan: Shown) -> OutcomeSpread:
        """How uncertain the outputs of a plan are, as `outcome_spread`, with the program that draws it.

        **Raises:** `InputError` for a distribution that cannot be read.
        """
        settled, outcome = plan.settled, plan.view.outcome
        steps = directions_of(settled.scenario, in_float64(settled.run)).steps
        ends = [self.evaluator(settled.vector + STEP * step, *self.around(settled)).outcome for step in steps]

        def slope(middle: np.ndarray, *others: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # infinite outputs have no slope
                return (np.array(others) - middle) / STEP

        return OutcomeSpread(outcome, jax.tree.map(slope, outcome, *ends))

    @functools.cached_property
    def own_spread(self) -> OutcomeSpread:
        """How uncertain the scenario's own plan is."""
        return self.spread(self.own)

    def optimize(self, asked: Asked, minimize: str, tell: Callable[[str], None]) -> Improved:
        """The best plan from here in this layout, as `optimize_here`; one search at a time."""
        if self._searching.locked():
            tell("waiting for the search that runs")
        with self._searching:
            return optimize_here(self.space, self.plan_at, asked, minimize, tell)

    def warm(self) -> None:
        """Compile what the first search needs, of the chip as it is and of one that is designed."""
        for values in ({}, {GENERATIONS: 1.0}):
            if set(values) <= set(self.space.knobs):
                self.optimize(Asked(values, {}), "energy", lambda sentence: None)

    def scenario_toml(self, asked: Asked) -> str:
        """The scenario with the numbers of a plan as TOML; it evaluates to the numbers that the page shows.

        **Raises:** `InputError` for what cannot be run, or read back.
        """
        scenario = self.space.tables_at(self.plan_at(asked).settled)
        head = f"# Saved by energymodel explore, version {__version__}. Use: energymodel evaluate FILE\n"
        return head + toml_text.dumps(scenario.named_tables)

    def report_html(self, asked: Asked) -> str:
        """The report of a plan, as `energymodel evaluate FILE -o report.html` writes it for the scenario that is saved.

        **Raises:** `InputError` as `scenario_toml`.
        """
        plan = self.plan_at(asked)
        command = f"energymodel evaluate {self.file_name('toml')} -o {self.file_name('html')}"
        scenario = self.space.tables_at(plan.settled)
        return page_html(evaluate_answer(scenario, plan.view.outcome, self.spread(plan), details=True), command)

    def file_name(self, extension: str) -> str:
        """A name for a saved file: letters, digits and dashes of the scenario's name."""
        letters = (char if char.isalnum() and char.isascii() else "-" for char in self.space.own.name)
        return f"{''.join(letters).strip('-')[:60] or 'scenario'}-explored.{extension}"


class Page:
    """What one open page has been sent: only what changes is sent again."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._pins: dict[str, Shown] = {}
        self._sent: dict[str, str] = {}
        self._drawn: tuple[Shown, Message] | None = None
        self._estimated: Shown | None = None

    def pin(self, pins: Mapping[str, Asked]) -> None:
        """Replace the pinned plans; `RefusedPartError` for one that cannot be run."""
        pinned = {}
        for name, asked in pins.items():
            try:
                pinned[name] = self.explorer.plan_at(asked)
            except InputError as error:
                raise refused_pin(name, error) from None
        self._pins = pinned

    def picture(self, message: Message) -> dict[str, Any]:
        """The answer to a state: parts of the page that changed, the values that the controls settle at.

        **Raises:** `InputError` for a plan that cannot be shown.
        """
        started = time.perf_counter()
        plan = self.explorer.plan_at(message.asked)
        evaluated = time.perf_counter()
        self._drawn = plan, message
        parts, spoken = self._parts(plan, message)
        space, settled = self.explorer.space, plan.settled
        # Those that were moved, and chips and batch, which follow.
        paths = dict.fromkeys((*message.asked.values, *settled.values, CHIPS, BATCH))
        return {
            "kind": "picture",
            "number": message.number,
            "parts": parts,
            "values": {path: settled.values.get(path, space.knobs[path].own) for path in paths},
            "layout": space.layouts.choices(tuple(settled.layout), settled.chips),
            "ownLayout": space.layouts.names(space.layouts.own),
            "replicas": f"{replicas_of(settled):g}",
            "notes": self._notes(plan),
            "summary": spoken,
            "milliseconds": {"evaluate": 1e3 * (evaluated - started), "draw": 1e3 * (time.perf_counter() - evaluated)},
        }

    def estimate(self, message: Message) -> dict[str, Any]:
        """Find how uncertain a plan is, and keep it until that of another is found; there is nothing to send yet.

        **Raises:** `InputError` for a plan that cannot be shown.
        """
        plan = self.explorer.plan_at(message.asked)
        _ = self.explorer.own_spread
        self._estimated = plan._replace(spread=self.explorer.spread(plan))
        return {}

    def intervals(self) -> dict[str, Any]:
        """The parts of the plan that is drawn, with its intervals, if these have been found."""
        if self._drawn is None or self._spread_of(self._drawn[0]) is None:
            return {}
        return {"kind": "intervals", "parts": self._parts(*self._drawn)[0]}

    def _spread_of(self, plan: Shown) -> OutcomeSpread | None:
        estimated = self._estimated  # once: another thread may replace it
        if estimated is None or not np.array_equal(estimated.settled.vector, plan.settled.vector):
            return None
        return estimated.spread

    def _parts(self, plan: Shown, message: Message) -> tuple[dict[str, str], str]:
        """The parts of the page that are not as they were sent, and what those hear who do not see them."""
        own, spread = self.explorer.own, self._spread_of(plan)
        if spread is not None:
            own, plan = own._replace(spread=self.explorer.own_spread), plan._replace(spread=spread)
        answer = explore_answer(self.explorer.space, own, plan, self._pins, message.seen, message.front)
        drawn = {chart.table: figure(answer, chart, message.width, narrow=False) for chart in answer.charts}
        parts = {name: drawn.get(FIGURES[name], "") for name in message.seen} | fragments.parts(answer)
        changed = {name: part for name, part in parts.items() if self._sent.get(name) != part}
        self._sent.update(changed)
        return changed, " ".join(map(sentence, answer.sentences))

    def _notes(self, plan: Shown) -> dict[str, str]:
        """What some numbers mean in other units."""
        scenario = plan.settled.scenario
        hertz = float(scenario.system.accelerator.reference_clock) * float(scenario.plan.clock)
        words = sentence(operation_sentence(plan.view.operation))
        operations = {path: words for path in (GENERATIONS, BUSY_POWER) if path in self.explorer.space.knobs}
        return {CLOCK: plain(hertz, "Hz"), **operations}
