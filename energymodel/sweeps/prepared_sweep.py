"""The run of a sweep: tiles that are not finished go to an engine, their states merge in the order of the tiles."""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from energymodel.sweeps.axes import Axis, Range
from energymodel.sweeps.best_points import BestAlong, Top
from energymodel.sweeps.engines import Engine, engine_of, from_first_process, threads
from energymodel.sweeps.full_array import FullArray, write_store
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.ledger import Ledger, fingerprint
from energymodel.sweeps.points import Output
from energymodel.sweeps.reductions import AbstractPointReduction, AbstractReduction
from energymodel.sweeps.scenario_axes import ScenarioModel
from energymodel.sweeps.sweep_result import SweepCost, SweepResult, edges_of, rank_points
from energymodel.sweeps.tile_program import TileProgram
from energymodel.units import format_point_rate

PROGRESS_INTERVAL = 1.0  # seconds between two messages
Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class PreparedSweep:
    """A sweep ready to run: a program for its tiles, and how to rank the points that it keeps.

    `axes` are in the order of the caller. `tables` is what else a resumed sweep must share, such as the scenario.
    """

    program: TileProgram
    axes: tuple[Axis, ...]
    limits: Mapping[str, Range]
    minimize: Output | None
    units: Mapping[str, str]
    tables: Mapping[str, Any] | None = None

    def cost(self) -> SweepCost:
        """Time a chunk, and estimate what all of them would take."""
        program, grid = self.program, self.program.grid
        workers = min(threads(), grid.tiles)
        seconds = program.seconds_per_chunk() * grid.chunks / workers
        return SweepCost(grid.points, grid.volume, grid.tiles, program.memory() * workers, seconds, grid.names)

    def run(
        self,
        progress: Progress | None = None,
        *,
        resume: str | os.PathLike[str] | None = None,
        engine: str | Engine | None = None,
    ) -> SweepResult:
        """Run all tiles that are not finished, and evaluate in float64 what was kept; arguments as in `sweep`."""
        progress = progress or (lambda message: None)
        chosen = engine_of(engine)
        if resume is None or jax.process_index() > 0:  # the first process keeps the tiles of all
            return self._run(progress, chosen, None)
        with Ledger(resume, fingerprint(self.program, self.tables), self.program.state_shapes()) as ledger:
            return self._run(progress, chosen, ledger)

    def _run(self, progress: Progress, engine: Engine, ledger: Ledger | None) -> SweepResult:
        program, grid, keep = self.program, self.program.grid, self.program.reduction
        start, report = time.perf_counter(), ProgressReport(grid, progress)
        state, complete = self._run_tiles(report, engine, ledger)
        model, store, winners, edges = program.function, None, (), ()
        if isinstance(keep, FullArray) and ledger is not None and complete:
            tiles = map(ledger.read, range(grid.tiles))
            store = write_store(ledger.folder, keep, program.axes, grid, tiles, self.units)
        seconds = time.perf_counter() - start
        messages = [] if complete else [f"interrupted after {report.points:,} of {grid.points:,} points."]
        if isinstance(keep, AbstractPointReduction) and state is not None:
            points, order = keep.kept_points(state, grid), [grid.names.index(axis.name) for axis in self.axes]
            progress(f"evaluating {len(points)} points in float64 ...")
            indices = [tuple(point[number] for number in order) for point in points]
            winners = rank_points(model, self.axes, indices, self.minimize, self.limits, keep)
            messages.append(keep.warning(state))
            if not winners:
                messages.append("No point obeys all limits. Relax a limit, or extend an axis.")
                messages.append("Values beyond 3e38 need precision 64." if program.bits == 32 else "")
            if winners and self.minimize is not None and isinstance(model, ScenarioModel):
                searched = keep.axes if isinstance(keep, BestAlong) else grid.names if isinstance(keep, Top) else ()
                best = min(winners, key=lambda winner: winner.value)
                calibration = (self.tables or {}).get("calibration")
                edges = edges_of(model, self.axes, searched, best, self.minimize, self.limits, calibration)
        return SweepResult(
            axes=self.axes,
            grid=grid,
            keep=keep,
            limits=self.limits,
            result=None if state is None else keep.result(state, grid),
            winners=winners,
            points=report.points,
            seconds=seconds,
            complete=complete,
            message=" ".join(filter(None, messages)),
            units=self.units,
            store=store,
            edges=edges,
            loss=model.target_loss if isinstance(model, ScenarioModel) else None,
        )

    def _run_tiles(self, report: "ProgressReport", engine: Engine, ledger: Ledger | None) -> tuple[Any, bool]:
        """The merged state of all tiles, none where the files are the result, and whether they are complete."""
        program, grid, keep = self.program, self.program.grid, self.program.reduction
        stored = np.isin(range(grid.tiles), list(ledger.finished(grid.tiles)) if ledger is not None else [])
        stored = from_first_process(stored)
        finished, missing = np.flatnonzero(stored).tolist(), np.flatnonzero(~stored).tolist()
        report.resume(finished)
        merged, files_suffice = OrderedMerge(keep), isinstance(keep, FullArray) and ledger is not None
        awaited, complete = set(missing), True
        try:
            for number, state in engine(program, missing):
                if ledger is not None:
                    ledger.write(number, state)
                if not files_suffice:
                    merged.add(number, state)
                report.finish_tile(number)
                awaited.remove(number)
        except KeyboardInterrupt:
            complete = False
        if complete and awaited:
            raise RuntimeError(
                f"engine: it ended without {len(awaited)} of {grid.tiles} tiles, such as {min(awaited)}."
            )
        if files_suffice:
            return None, complete
        empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), program.state_shapes())
        for number in finished:
            merged.add(number, from_first_process(ledger.read(number) if ledger is not None else empty))
        return merged.finish(), complete


class OrderedMerge:
    """Merges the states of tiles in the order of their numbers, whatever the order in which they arrive."""

    def __init__(self, keep: AbstractReduction) -> None:
        self._keep, self._waiting, self._next, self._state = keep, dict[int, Any](), 0, None

    def add(self, number: int, state: Any) -> None:
        """Take the state of a tile."""
        self._waiting[number] = state
        while self._next in self._waiting:
            self._merge(self._next)
            self._next += 1

    def finish(self) -> Any:
        """The state of all tiles, also of those after a tile that never arrived; `None` if there are none."""
        for number in sorted(self._waiting):
            self._merge(number)
        return self._state

    def _merge(self, number: int) -> None:
        state = self._waiting.pop(number)
        self._state = state if self._state is None else self._keep.merge(self._state, state)


class ProgressReport:
    """Says about once a second how far a sweep is, how fast, and when it will end."""

    def __init__(self, grid: Grid, progress: Progress) -> None:
        self._grid, self._progress, self.points = grid, progress, 0

    def resume(self, finished: Sequence[int]) -> None:
        """The tiles that are not finished start to run."""
        self._progress("compiling the model ...")
        if finished:
            self._progress(f"{len(finished):,} of {self._grid.tiles:,} tiles are finished")
        self.points = self._before = sum(map(self._grid.points_of_tile, finished))
        self._start, self._last = time.perf_counter(), 0.0

    def finish_tile(self, number: int) -> None:
        """A tile is finished."""
        self.points += self._grid.points_of_tile(number)
        total, now = self._grid.points, time.perf_counter() - self._start
        if now - self._last < PROGRESS_INTERVAL and self.points < total:
            return
        self._last = now
        rate = (self.points - self._before) / now
        minutes, seconds = divmod(round((total - self.points) / rate), 60)
        left = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"
        self._progress(
            f"{100.0 * self.points / total:.0f} % of {total:.3g} points, {format_point_rate(rate)}, "
            f"{left.removeprefix('0 min ')} left"
        )
