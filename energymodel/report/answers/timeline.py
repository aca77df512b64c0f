"""The answers of `timeline`: a training step pass by pass, and the clocks of the ranks that save its energy."""

from collections.abc import Sequence

import numpy as np

from energymodel.report.answer import DATA, FULL, Answer, Chart, Column, Quantity, Sentence, Table
from energymodel.report.answers.step import passes_table, step_sentence, timeline_chart
from energymodel.scenarios.scenario import Scenario
from energymodel.search.pipeline import Timeline
from energymodel.search.pipeline_clocks import StageFront
from energymodel.solver import RESULTS, result_is

DIRECTIONS = ("forward", "backward")
_MOST_RANKS = 64
_MOST_KINDS = 4  # of operations of a rank that a table for people shows
_RANKS = (
    Column("rank", "rank", kind="count"),
    Column("layers", "layers"),
    Column("working", "working", "s"),
    Column("waiting", "waiting", "s"),
    Column("waiting_share", "of the time", kind="share"),
    Column("held", "micro-batches held"),
)
_TERMS = (Column("term", "term", kind="words"), Column("time", "time", "s"), Column("share", "share", kind="share"))
_TIMES = (Column("pipeline_time", "time of the passes", "s"), Column("closed_form_time", "by the closed form", "s"))
_FRONT = (
    Column("step_time", "step time", "s"),
    Column("longer", "longer", kind="change"),
    Column("energy", "energy", "J"),
    Column("one_clock_energy", "with one clock", "J"),
    Column("saved", "saved", kind="share"),
    Column("price", "price of time", "W"),
    Column("converged", "converged", kind="words", level=FULL),
)
_CLOCKS = (
    Column("step_time", "step time", "s"),
    Column("direction", "direction", kind="words"),
    Column("rank", "rank", kind="count"),
    Column("kind", "kind of operation", kind="count"),
    Column("clock", "clock"),
)


def timeline_answer(scenario: Scenario, timeline: Timeline) -> Answer:
    """Each pipeline rank, the terms of the step, and all passes."""
    ranks, stages = len(timeline.simulated.busy), len(timeline.layers)
    total = float(np.asarray(timeline.step_time.total))
    times = [[Quantity(timeline.pipeline_time), Quantity(timeline.closed_form_time)]]
    return Answer(
        "timeline",
        scenario.title,
        Sentence(f"Pipeline with schedule {timeline.schedule}, {ranks} ranks, {stages} virtual stages"),
        [step_sentence(timeline, Quantity(total))],
        [
            ranks_table(timeline),
            terms_table(timeline),
            Table("times", "Time of all passes", _TIMES, times, tall=True, level=FULL),
            passes_table(timeline),
        ],
        [timeline_chart(timeline)],
        inputs=scenario.named_tables,
        rows="passes",
    )


def ranks_table(timeline: Timeline) -> Table:
    """How long each rank works and waits, and the micro-batches that it holds, in those of a whole rank."""
    step, time, layers = timeline.simulated, timeline.pipeline_time, layers_of_ranks(timeline)
    whole = len(step.busy) / len(timeline.layers)
    rows = [
        [
            *(Quantity(rank), Quantity(float(layers[rank])), Quantity(float(busy)), Quantity(float(time - busy))),
            *(Quantity(float((time - busy) / time)), Quantity(float(step.held[rank] * whole))),
        ]
        for rank, busy in enumerate(step.busy)
    ]
    return Table("ranks", "Pipeline ranks", _RANKS, rows, short=_ends(len(rows), _MOST_RANKS))


def _ends(count: int, most: int) -> Sequence[int]:
    """Indices of the first and the last ranks, all where they are few."""
    return range(count) if count <= most else (*range(most // 2), *range(count - most // 2, count))


def layers_of_ranks(timeline: Timeline) -> np.ndarray:
    """Layers of each rank [1], of all its virtual stages."""
    layers = np.zeros(len(timeline.simulated.busy))
    for rank, stage in {(run.rank, run.operation.stage) for run in timeline.simulated.passes}:
        layers[rank] += timeline.layers[stage]
    return layers if timeline.schedule != "dualpipe" else np.full(len(layers), np.mean(layers))


def terms_table(timeline: Timeline) -> Table:
    """Terms of the step time and their shares."""
    terms = {name: float(value) for name, value in vars(timeline.step_time).items()}
    terms["total"] = total = float(np.asarray(timeline.step_time.total))
    rows = [[name.replace("_", " "), Quantity(value), Quantity(value / total)] for name, value in terms.items()]
    return Table("step_time", "Step time", _TERMS, rows)


def stage_clocks_answer(scenario: Scenario, front: StageFront) -> Answer:
    """The front, then the clocks of the ranks at the step time that saves most beside one clock."""
    best = int(np.argmax(front.saved))
    numbers = {
        "saved": (_FRONT[4], Quantity(float(front.saved[best]))),
        "time": (_FRONT[0], Quantity(float(front.clocks.step_time[best]))),
    }
    kinds = front.clocks.clock.shape[-1]
    more = [Sentence(f"-o FILE.csv has all {kinds} kinds of operations.")] if kinds > _MOST_KINDS else []
    return Answer(
        "timeline",
        scenario.title,
        Sentence("Clocks of the pipeline ranks with the lowest energy of a step"),
        [
            Sentence("Clocks by rank save up to {saved} of the energy that one clock takes, at {time}.", numbers),
            Sentence(f"The search needed {front.clocks.paths} paths through the schedule."),
            *more,
        ],
        [front_table(front), rank_clocks_table(front, best, scenario), clocks_table(front)],
        [
            Chart(
                "plane",
                Sentence("Clocks by rank save up to {saved}", numbers),
                "front",
                "step_time",
                ["energy", "one_clock_energy"],
                "Energy of the passes of a step on all chips, with clocks by rank and with one clock",
                lines=True,
                axis="energy",
            )
        ],
        warnings=_unconverged(front),
        inputs=scenario.named_tables,
        rows="clocks",
    )


def front_table(front: StageFront) -> Table:
    """Energy of the passes of a step on all chips against its time."""
    clocks, converged = front.clocks, result_is(front.clocks.result, RESULTS.successful)
    longer, price = clocks.step_time / clocks.step_time[0] - 1.0, np.maximum(0.0, clocks.price)
    columns = zip(
        *(clocks.step_time, longer, clocks.energy, front.one_clock_energy, front.saved, price), converged, strict=True
    )
    rows = [[*(Quantity(float(number)) for number in row), "yes" if done else "no"] for *row, done in columns]
    return Table("front", "Passes of a step, all chips", _FRONT, rows)


def _unconverged(front: StageFront) -> list[Sentence]:
    late = np.flatnonzero(~result_is(front.clocks.result, RESULTS.successful))
    numbers = {f"time{row}": (_FRONT[0], Quantity(float(front.clocks.step_time[row]))) for row in late}
    times = ", ".join(f"{{{name}}}" for name in numbers)
    words = f"Not converged at {times}: clocks that are as good or better may exist."
    return [Sentence(words, numbers)] if numbers else []


def rank_clocks_table(front: StageFront, row: int, scenario: Scenario) -> Table:
    """Clocks of each rank at one step time, as shares of the reference clock and as frequencies."""
    clocks = front.clocks.clock[row]
    _, ranks, kinds = clocks.shape
    columns, cells = [_RANKS[0]], [[Quantity(rank) for rank in range(ranks)]]
    reference = float(scenario.system.accelerator.reference_clock)
    for index, direction in enumerate(DIRECTIONS):
        for kind in range(min(kinds, _MOST_KINDS)):
            title = direction if kinds == 1 else f"{direction} {kind}"
            name = title.replace(" ", "_")
            columns += [Column(name, title), Column(f"{name}_frequency", "", "Hz")]
            own = [float(clock) for clock in clocks[index, :, kind]]
            cells += [[Quantity(clock) for clock in own], [Quantity(clock * reference) for clock in own]]
    rows = [list(line) for line in zip(*cells, strict=True)]
    title = "Clocks at the step time that saves most"
    return Table("rank_clocks", title, columns, rows, short=_ends(ranks, _MOST_RANKS // 2))


def clocks_table(front: StageFront) -> Table:
    """A row for each clock of each step time, as a share of the reference clock."""
    rows = [
        [Quantity(float(time)), DIRECTIONS[direction], Quantity(rank), Quantity(kind), Quantity(float(clock))]
        for time, of_time in zip(front.clocks.step_time, front.clocks.clock, strict=True)
        for (direction, rank, kind), clock in np.ndenumerate(of_time)
    ]
    return Table("clocks", "All clocks", _CLOCKS, rows, level=DATA)
