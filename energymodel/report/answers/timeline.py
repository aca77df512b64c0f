"""The answers of `timeline`: a training step pass by pass, and the clocks of the ranks that save its energy."""

from collections.abc import Sequence

import numpy as np

from energymodel.errors import InputError
from energymodel.performance.pipeline_simulator import SimulatedPass
from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.run_tables import Run
from energymodel.report.cells import Column, Quantity, declared, number, spaced, words
from energymodel.scenarios.scenario import Scenario
from energymodel.search.pipeline_clocks import StageClocks
from energymodel.solver import RESULTS, result_is
from energymodel.system.timeline import Timeline, step_timeline

NAMES = {"F": "forward", "B": "backward", "I": "backward (inputs)", "W": "backward (weights)"}
DIRECTIONS = ("forward", "backward")
_MOST_RANKS = 64
_MOST_KINDS = 4  # of operations of a rank that a table for people shows


def step_parts(scenario: Scenario, run: Run) -> tuple[Table | None, Chart | None, Sentence]:
    """The passes of a step as table and chart, and how they fill it; why there are none where none is simulated."""
    try:
        timeline = step_timeline(scenario.system, run.plan)
    except (InputError, ValueError) as error:
        return None, None, Sentence(str(error))
    return passes_table(timeline), timeline_chart(timeline), step_sentence(timeline, run.quantity("step_time"))


def passes_table(timeline: Timeline) -> Table:
    """Passes of all ranks; those that share a slot of a rank have lanes."""
    slots: dict[tuple[int, float], list[SimulatedPass]] = {}
    for of_rank in timeline.simulated.passes:
        slots.setdefault((of_rank.rank, of_rank.start), []).append(of_rank)
    passes = [(each, lane, len(slot)) for slot in slots.values() for lane, each in enumerate(slot)]
    rows = [
        [each.rank, NAMES[each.operation.kind], *each.operation[1:], each.start, each.end, lane, lanes]
        for each, lane, lanes in passes
    ]
    return Table("passes", "A step of the plan", declared("passes"), rows, level="data")


def timeline_chart(timeline: Timeline) -> Chart:
    """Passes of all ranks against time."""
    step = timeline.simulated
    waits = 1.0 - float(np.mean(step.busy)) / timeline.pipeline_time
    ranks, count = len(step.busy), max(each.operation.microbatch for each in step.passes) + 1
    title = "The mean rank waits {share} of the time of the passes"
    if ranks == 1:
        title = "Without a pipeline no rank waits for another"
    subtitle = (
        f"Passes of one replica through {ranks} pipeline rank{'s' * (ranks > 1)}, schedule {timeline.schedule}, "
        f"{count} micro-batch{'es' * (count > 1)}; what is empty is waiting"
    )
    mean, look = {"share": number(waits, kind="share")}, {"axis": "pipeline rank", "limit": (step.time, "end")}
    return Chart("timeline", Sentence(title, mean), "passes", subtitle=subtitle, **look)


def step_sentence(timeline: Timeline, step_time: Quantity) -> Sentence:
    """How the passes fill the step, and how far the closed form is from the simulation."""
    closed, simulated = timeline.closed_form_time, timeline.pipeline_time
    step = float(np.asarray(timeline.step_time.total))
    terms = {name: float(value) / step for name, value in vars(timeline.step_time).items()}
    exposed = sum(terms[name] for name in ("tensor", "context", "expert", "pipeline", "data"))
    times = {"step": step_time, "passes": simulated, "closed": closed}
    numbers = {name: number(time, "s") for name, time in times.items()}
    numbers |= {"exposed": number(exposed, kind="share"), "bubble": number(terms["bubble"], kind="share")}
    numbers["off"] = number(closed / simulated - 1.0, kind="change")
    return Sentence(
        "The step takes {step}; communication that computation does not hide is {exposed} of it, the pipeline bubble "
        "{bubble}. The passes take {passes} by simulation, and {closed} by the closed form that all other numbers rest "
        "on ({off}).",
        numbers,
    )


def timeline_answer(scenario: Scenario, timeline: Timeline) -> Answer:
    """Each pipeline rank, the terms of the step, and all passes."""
    ranks, total = len(timeline.simulated.busy), float(np.asarray(timeline.step_time.total))
    terms = {spaced(name): float(value) for name, value in vars(timeline.step_time).items()} | {"total": total}
    cells = {words("term"): terms, Column("time", unit="s"): terms.values()}
    cells[Column("share", kind="share")] = [term / total for term in terms.values()]
    times = {Column("pipeline_time", "time of the passes", "s"): timeline.pipeline_time}
    times[Column("closed_form_time", "by the closed form", "s")] = timeline.closed_form_time
    tables = [ranks_table(timeline), Table.of("step_time", "Step time", cells)]
    return Answer.of(
        scenario,
        "timeline",
        Sentence(f"Pipeline with schedule {timeline.schedule}, {ranks} ranks, {len(timeline.layers)} virtual stages"),
        [step_sentence(timeline, Quantity(total))],
        [*tables, Table.facts("times", "Time of all passes", times, "full"), passes_table(timeline)],
        charts=[timeline_chart(timeline)],
        rows="passes",
    )


def ranks_table(timeline: Timeline) -> Table:
    """How long each rank works and waits, and the micro-batches that it holds, in those of a whole rank."""
    step, time, layers = timeline.simulated, timeline.pipeline_time, np.zeros(len(timeline.simulated.busy))
    for rank, stage in {(run.rank, run.operation.stage) for run in step.passes}:
        layers[rank] += timeline.layers[stage]
    if timeline.schedule == "dualpipe":
        layers[:] = np.mean(layers)
    ranks, busy = len(layers), np.asarray(step.busy)
    held = np.asarray(step.held) * (ranks / len(timeline.layers))
    rows = [*zip(range(ranks), layers, busy, time - busy, (time - busy) / time, held, strict=True)]
    return Table("ranks", "Pipeline ranks", declared("ranks"), rows, short=_ends(ranks))


def _ends(count: int, most: int = _MOST_RANKS) -> Sequence[int]:
    """Indices of the first and the last ranks, all where they are few."""
    return range(count) if count <= most else (*range(most // 2), *range(count - most // 2, count))


def stage_clocks_answer(scenario: Scenario, clocks: StageClocks) -> Answer:
    """The front, then the clocks of the ranks at the step time that saves most beside one clock."""
    best, kinds = int(np.argmax(clocks.saved)), clocks.clock.shape[-1]
    is_found = np.asarray(result_is(clocks.result, RESULTS.successful))
    times = {f"time{row}": number(clocks.step_time[row], "s") for row in np.flatnonzero(~is_found)}
    longer, price = clocks.step_time / clocks.step_time[0] - 1.0, np.maximum(0.0, clocks.price)
    energies = clocks.energy, clocks.one_clock_energy
    front = zip(clocks.step_time, longer, *energies, clocks.saved, price, is_found, strict=True)
    all_clocks = [
        [time, DIRECTIONS[direction], rank, kind, clock]
        for time, of_time in zip(clocks.step_time, clocks.clock, strict=True)
        for (direction, rank, kind), clock in np.ndenumerate(of_time)
    ]
    numbers = {"saved": number(clocks.saved[best], kind="share"), "time": number(clocks.step_time[best], "s")}
    texts = ["Clocks by rank save up to {saved} of the energy that one clock takes, at {time}."]
    texts += [f"The search needed {clocks.paths} paths through the schedule."]
    texts += [f"-o FILE.csv has all {kinds} kinds of operations."] if kinds > _MOST_KINDS else []
    late = (
        f"Not converged at {', '.join(f'{{{name}}}' for name in times)}: clocks that are as good or better may exist."
    )
    subtitle = "Energy of the passes of a step on all chips, with clocks by rank and with one clock"
    title, y = Sentence("Clocks by rank save up to {saved}", numbers), ["energy", "one_clock_energy"]
    return Answer.of(
        scenario,
        "timeline",
        Sentence("Clocks of the pipeline ranks with the lowest energy of a step"),
        [Sentence(text, numbers) for text in texts],
        [
            Table("front", "Passes of a step, all chips", declared("clocks_front"), [*front]),
            rank_clocks_table(clocks.clock[best], float(scenario.system.accelerator.reference_clock)),
            Table("clocks", "All clocks", declared("clocks"), all_clocks, level="data"),
        ],
        charts=[Chart("plane", title, "front", "step_time", y, subtitle, lines=True, axis="energy")],
        warnings=[Sentence(late, times)] if times else [],
        rows="clocks",
    )


def rank_clocks_table(clocks: np.ndarray, reference: float) -> Table:
    """Clocks of each rank at one step time, as shares of the reference clock [Hz] and as frequencies."""
    _, ranks, kinds = clocks.shape
    cells = {Column("rank", kind="count"): np.arange(ranks)}
    for index, direction in enumerate(DIRECTIONS):
        for kind in range(min(kinds, _MOST_KINDS)):
            title = direction if kinds == 1 else f"{direction} {kind}"
            name, own = title.replace(" ", "_"), np.asarray(clocks[index, :, kind])
            cells |= {Column(name, title): own, Column(f"{name}_frequency", "", "Hz"): own * reference}
    title = "Clocks at the step time that saves most"
    return Table.of("rank_clocks", title, cells, short=_ends(ranks, _MOST_RANKS // 2))
