"""What the page gets for a request: parts of the answer for a plan, files to save, or one sentence on what is wrong."""

import functools
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from energymodel import __version__
from energymodel.errors import InputError
from energymodel.explorer import fragments
from energymodel.explorer.answer import FIGURES, explore_answer, is_broken, operation_sentence
from energymodel.explorer.knobs import BATCH, BUSY_POWER, CHIPS, CLOCK, GENERATIONS, LAYOUT
from energymodel.explorer.messages import Message, refused_pin
from energymodel.explorer.state import Asked, PagePlan, PlanSpace
from energymodel.explorer.view import BATCHES, CLOCKS, Evaluator
from energymodel.report import toml_text
from energymodel.report.answer import Sentence
from energymodel.report.answers.evaluate import evaluate_answer
from energymodel.report.answers.run_tables import limits_sentence, limits_table
from energymodel.report.cells import Column, Quantity
from energymodel.report.number import plain, sentence
from energymodel.report.page import figure, page_html
from energymodel.scenarios.question import TOKENS
from energymodel.scenarios.scenario import Scenario
from energymodel.search.optimize import optimize
from energymodel.search.result import Optimum
from energymodel.search.training_run import STEP, in_float64
from energymodel.sweeps.outcome_spread import OutcomeSpread, directions_of
from energymodel.system.layouts import FIELDS
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.outputs import objective_title, objective_value, output

_LOWEST_CLOCK = 0.6  # of the plans near one: slower ones take more time and more energy
_WIDEST_BATCH = 4.0  # of these plans, over the batch of the plan and under it
_SAME = 1e-6
_SHARES, _CLOCKS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.12, 0.06), (1.0, 0.85, 0.7)
"""Chips and clocks, over those of the plan, at which a plan within the limits is looked for."""
_CONFLICTS = "looking for the limits"
"""How the search begins to say that no plan obeys the limits, and that it looks which of them exclude each other."""


class Improved(NamedTuple):
    """The result of a search: what it says, and where the controls go and what moves, which is nothing without a plan.

    `layout` is that of the plan, by field of the page: the controls may have moved meanwhile.
    """

    message: str
    values: dict[str, float] | None = None
    changes: tuple[str, ...] = ()
    layout: Mapping[str, str] | None = None


class _NoPlanError(Exception):
    """There is no plan within the limits."""


class Explorer:
    """A scenario with its compiled program; it is shared by all pages that are open.

    Building one traces and compiles the model, which takes seconds.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.space = PlanSpace(scenario)
        self.evaluator = Evaluator(self.space.run)
        self.own = self.plan_at(Asked({}, {}))
        self._searching = threading.Lock()

    def plan_at(self, asked: Asked) -> PagePlan:
        """The plan of the controls, evaluated; `InputError` for what cannot be run, or has no outcome."""
        plan = self.space.settle(asked)
        plan = plan._replace(view=self.evaluator(plan.vector, *self.around(plan)))
        outcome = plan.outcome
        numbers = (outcome.loss, outcome.time, outcome.money, outcome.energy.total)
        if not all(np.all(np.isfinite(number)) for number in numbers):
            raise InputError("This combination has no finite outcome: energy, time or money grow beyond all bounds.")
        return plan

    def around(self, plan: PagePlan) -> tuple[np.ndarray, np.ndarray]:
        """Batches of whole rounds of micro-batches around that of a plan, relative to it, and clocks [1]."""
        batch = plan.values.get(BATCH, self.space.knobs[BATCH].own)
        batches = batch * np.geomspace(1.0 / _WIDEST_BATCH, _WIDEST_BATCH, BATCHES)
        factors = plan.batch_step * np.maximum(1.0, np.round(batches / plan.batch_step)) / batch
        lowest = float(self.space.scenario.system.accelerator.minimum_clock)
        return factors, np.linspace(max(lowest, _LOWEST_CLOCK), 1.0, CLOCKS)

    def spread(self, plan: PagePlan) -> OutcomeSpread:
        """How uncertain the outputs of a plan are, as `outcome_spread`, with the program that draws it.

        **Raises:** `InputError` for a distribution that cannot be read.
        """
        outcome, around = plan.outcome, self.around(plan)
        steps = directions_of(plan.scenario, in_float64(plan.training_run)).steps
        ends = [self.evaluator(plan.vector + STEP * step, *around).outcome for step in steps]

        def slope(middle: np.ndarray, *others: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):  # infinite outputs have no slope
                return (np.array(others) - middle) / STEP

        return OutcomeSpread(outcome, jax.tree.map(slope, outcome, *ends))

    @functools.cached_property
    def own_spread(self) -> OutcomeSpread:
        """How uncertain the scenario's own plan is."""
        return self.spread(self.own)

    def optimize(self, asked: Asked, minimize: str, tell: Callable[[str], None]) -> Improved:
        """The best plan at the loss of the one that is shown, in no more time and with no more chips, in its layout.

        Where the plan breaks limits, the search starts at one with fewer chips or a lower clock that obeys them, and
        has the time that this one takes. One search runs at a time.

        **Raises:** `InputError` as `search.optimize`.
        """
        if self._searching.locked():
            tell("waiting for the search that runs")
        with self._searching:
            return self._optimized(asked, minimize, tell)

    def _optimized(self, asked: Asked, minimize: str, tell: Callable[[str], None]) -> Improved:
        def progress(words: str) -> None:
            if words.startswith(_CONFLICTS):  # which takes longer than a person waits
                raise _NoPlanError
            tell(words)

        started, here, limits = time.perf_counter(), self.plan_at(asked), {}
        before, start = here.outcome, here
        is_outside = is_broken(before)
        if is_outside:
            tell("looking for a plan within the limits")
            start = self._within_limits(asked, here)
            limits = {"loss": float(before.loss), "chips": here.chips}
        if start is None:
            return Improved(_no_plan(here))
        scenario = self.space.searched(start)
        limits = {name: value for name, value in limits.items() if name not in scenario.optimize.limits}
        fix = [*scenario.optimize.fix, *(LAYOUT + name for name in FIELDS)]
        try:
            optimum = optimize(scenario, minimize, limits, fix=fix, progress=progress, tolerance=0.0)
        except _NoPlanError:
            return Improved(_no_plan(here))
        if not optimum.success:
            return Improved(optimum.message)
        old, new = (float(objective_value(outcome, minimize)) for outcome in (before, optimum.outcome))
        change = new / old - 1.0 if old else 0.0
        words = objective_title(minimize)
        if not is_outside and change > -_SAME:
            return Improved(f"No plan in this layout takes less {words} at this loss.")
        message = f"{'Obeys every limit: ' if is_outside else ''}{_saving(optimum, before, words, change)}"
        message = f"{message[:1].upper()}{message[1:]} ({plain(round(time.perf_counter() - started, 1), 's')})"
        values, knobs = {**here.values, **optimum.found}, self.space.knobs
        if TOKENS in knobs:  # the search holds the loss, which takes other tokens at another batch
            values[TOKENS] = float(optimum.outcome.tokens)
        values = {path: knobs[path].clipped(value) for path, value in values.items() if path in knobs}
        moves = [
            (knobs[path].label, *map(knobs[path].words, (here.values.get(path, knobs[path].own), value)))
            for path, value in values.items()
        ]
        changes = tuple(f"{label}: {own} to {value}" for label, own, value in moves if own != value)
        return Improved(message, values, changes, self.space.layouts.names(start.layout))

    def _within_limits(self, asked: Asked, here: PagePlan) -> PagePlan | None:
        """A plan with fewer chips or a lower clock that obeys every limit, if one of these does."""
        own = {CHIPS: here.chips, CLOCK: asked.values.get(CLOCK, self.space.knobs[CLOCK].own)}
        for factors in itertools.product(_SHARES, _CLOCKS):
            moved = zip(own.items(), factors, strict=True)
            counts = {path: max(factor * value, self.space.knobs[path].low) for (path, value), factor in moved}
            try:
                plan = self.plan_at(Asked({**asked.values, **counts}, asked.layout))
            except InputError:  # too few chips for the layout
                continue
            if not is_broken(plan.outcome):
                return plan
        return None

    def warm(self) -> None:
        """Compile what the first search needs, of the chip as it is and of one that is designed."""
        for values in ({}, {GENERATIONS: 1.0}):
            if set(values) <= set(self.space.knobs):
                self.optimize(Asked(values, {}), "energy", lambda sentence: None)

    def scenario_toml(self, asked: Asked) -> str:
        """The scenario with the numbers of a plan as TOML; it evaluates to the numbers that the page shows.

        **Raises:** `InputError` for what cannot be run, or read back.
        """
        scenario = self.space.tables_at(self.plan_at(asked))
        head = f"# Saved by energymodel explore, version {__version__}. Use: energymodel evaluate FILE\n"
        return head + toml_text.dumps(scenario.named_tables)

    def report_html(self, asked: Asked) -> str:
        """The report of a plan, as `energymodel evaluate FILE -o report.html` writes it for the scenario that is saved.

        **Raises:** `InputError` as `scenario_toml`.
        """
        plan = self.plan_at(asked)
        command = f"energymodel evaluate {self.file_name('toml')} -o {self.file_name('html')}"
        scenario = self.space.tables_at(plan)
        return page_html(evaluate_answer(scenario, plan.outcome, self.spread(plan), details=True), command)

    def file_name(self, extension: str) -> str:
        """A name for a saved file: letters, digits and dashes of the scenario's name."""
        letters = (char if char.isalnum() and char.isascii() else "-" for char in self.space.own.name)
        return f"{''.join(letters).strip('-')[:60] or 'scenario'}-explored.{extension}"


def _saving(optimum: Optimum, before: TrainingOutcome, minimized: str, change: float) -> str:
    """What the best plan saves, and what it takes more of."""
    other, column = "time" if minimized == "energy" else "energy", Column("", "", kind="change")
    more = float(output(optimum.outcome, other)) / float(output(before, other)) - 1.0
    binding = ", ".join(name.replace("_", " ") for name in optimum.active)
    numbers = {"change": (column, Quantity(change)), "more": (column, Quantity(more))}
    words = f"{minimized} {{change}}, {other} {{more}}, at the same loss.{f' Binding: {binding}.' if binding else ''}"
    return sentence(Sentence(words, numbers))


def _no_plan(here: PagePlan) -> str:
    """Why there is no plan, and what to do."""
    because = sentence(limits_sentence(limits_table(here.run))) if is_broken(here.outcome) else ""
    return (
        f"No plan in this layout obeys every limit. {because} Choose another layout, allow more chips or a higher "
        "loss, or run `energymodel optimize` with the saved TOML: it says which limits exclude each other."
    )


class Page:
    """What one open page has been sent: only what changes is sent again."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self._pins: dict[str, PagePlan] = {}
        self._sent: dict[str, str] = {}
        self._drawn: tuple[PagePlan, Message] | None = None
        self._estimated: PagePlan | None = None

    def pin(self, message: Message) -> dict[str, Any]:
        """Replace the pinned plans; `RefusedPartError` for one that cannot be run."""
        pinned = {}
        for name, asked in message.pins.items():
            try:
                pinned[name] = self.explorer.plan_at(asked)
            except InputError as error:
                raise refused_pin(name, error) from None
        self._pins = pinned
        return {"kind": "pinned", "number": message.number}

    def picture(self, message: Message) -> dict[str, Any]:
        """The answer to a state: parts of the page that changed, the values that the controls settle at.

        **Raises:** `InputError` for a plan that cannot be shown.
        """
        started = time.perf_counter()
        plan = self.explorer.plan_at(message.asked)
        evaluated = time.perf_counter()
        self._drawn = plan, message
        parts, spoken = self._parts(plan, message)
        space = self.explorer.space
        # Those that were moved, and chips and batch, which follow.
        paths = dict.fromkeys((*message.asked.values, *plan.values, CHIPS, BATCH))
        return {
            "kind": "picture",
            "number": message.number,
            "parts": parts,
            "values": {path: plan.values.get(path, space.knobs[path].own) for path in paths},
            "layout": space.layouts.choices(tuple(plan.layout), plan.chips),
            "ownLayout": space.layouts.names(space.layouts.own),
            "replicas": f"{plan.replicas:g}",
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

    def _spread_of(self, plan: PagePlan) -> OutcomeSpread | None:
        estimated = self._estimated  # once: another thread may replace it
        if estimated is None or not np.array_equal(estimated.vector, plan.vector):
            return None
        return estimated.spread

    def _parts(self, plan: PagePlan, message: Message) -> tuple[dict[str, str], str]:
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

    def _notes(self, plan: PagePlan) -> dict[str, str]:
        """What some numbers mean in other units."""
        scenario = plan.scenario
        hertz = float(scenario.system.accelerator.reference_clock) * float(scenario.plan.clock)
        words = sentence(operation_sentence(plan.view.operation))
        operations = {path: words for path in (GENERATIONS, BUSY_POWER) if path in self.explorer.space.knobs}
        return {CLOCK: plain(hertz, "Hz"), **operations}
