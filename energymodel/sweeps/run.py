"""What is best over a whole grid? The sweep as a person calls it."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from energymodel.errors import InputError
from energymodel.presets.scenario import Scenario
from energymodel.sweeps.axes import Axis, check_axes, parse_axis, points
from energymodel.sweeps.engine import Tiles, best_order
from energymodel.sweeps.engines import Engine, engine_of, threads
from energymodel.sweeps.fingerprint import identity
from energymodel.sweeps.full import Full, dataset, open_store, store
from energymodel.sweeps.grid import CHUNK, Grid, divide
from energymodel.sweeps.ledger import Ledger
from energymodel.sweeps.parse_keep import reduction_of
from energymodel.sweeps.reductions import AbstractReduction, Range, Sampled
from energymodel.sweeps.scenario_model import HARD_LIMITS, UNITS, ScenarioModel, scenario_axis
from energymodel.sweeps.winners import Polished, Winner, polish, sample, winners
from energymodel.system.outputs import AT_LEAST, OUTPUTS, Objective, parse_limit, parse_objective

TILES = 4096
"""Tiles of a large grid, about; each is a file of a ledger."""
LEAST_TILE = 2**22
PROGRESS = 1.0  # seconds between two messages


@dataclasses.dataclass(frozen=True)
class Swept:
    """What a sweep found.

    `result` is what the reduction makes of its state; `winners` the points that it kept, best first, in float64;
    `polished` the solver's point near the first one. `axes` are in the order of the caller.
    """

    axes: tuple[Axis, ...]
    grid: Grid
    keep: AbstractReduction
    limits: Mapping[str, Range]
    result: Any
    winners: tuple[Winner, ...]
    polished: Polished | None
    points: int
    seconds: float
    complete: bool
    message: str
    units: Mapping[str, str]
    store: Path | None

    def to_xarray(self) -> Any:
        """The full array as an `xarray.Dataset` with units and coordinates, from its Zarr store if it has one.

        **Raises:** `InputError` for another reduction, or where xarray is not installed.
        """
        if not isinstance(self.keep, Full):
            raise InputError("to_xarray: only a full array is one. Keep full:energy,time.")
        return open_store(self.store) if self.store is not None else dataset(self.result, self.grid, self.units)

    @property
    def best(self) -> Winner:
        """The best point.

        **Raises:** `InputError` where no point obeys the limits.
        """
        if not self.winners:
            raise InputError(self.message)
        return self.winners[0]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a sweep would take: points, tiles, memory [B], and time [s] by a timed chunk."""

    points: int
    chunk: int
    tiles: int
    memory: int
    seconds: float
    order: tuple[str, ...]


def sweep(
    what: Scenario | Callable[..., Any],
    axes: Mapping[str, Any] | Sequence[Axis],
    keep: str | AbstractReduction = "best",
    *,
    minimize: str | Callable[[Any], Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    order: Sequence[str] | None = None,
    precision: int = 32,
    chunk: int = CHUNK,
    tile: int | None = None,
    polished: bool = False,
    resume: str | os.PathLike[str] | None = None,
    engine: str | Engine | None = None,
    progress: Callable[[str], None] | None = None,
) -> Swept:
    """Evaluate a model on every point of a product of axes, and keep what a reduction asks for.

    No point is stored: chunks of the grid are evaluated by nested `vmap`, each operation on the axes that it depends
    on only, reduced, and forgotten. The scan runs in float32; the points that are kept are evaluated again in
    float64, which also decides their order.

    **Arguments:**

    - `what`: a scenario, or any pure function that takes the axes by keyword and returns the outputs of one point as
      a mapping or named tuple.
    - `axes`: `{"plan.batch": "8..64 Mi token log 20", "system.accelerator": "h100-sxm, h200-sxm", "plan.layout": "64"}`
      or `Axis` objects.
    - `keep`: `"best"`, `"top:K"`, `"along:AXIS,..."` (the best along these axes, for each value of the others),
      `"pareto:X,Y,..."` (exact), `"bins:X,Y"` (a front as fine as its bins, cheaper), `"count"`, `"histogram:X,..."`,
      `"quantiles:X,..."`, `"full:X,..."`, or a reduction.
    - `minimize`: an output, for a scenario also a product of powers such as `"energy*time^2"`; default `"energy"`.
    - `limits`: of outputs: text with a unit or SI for a scenario, from below where more is better; for a function the
      largest value, or `(least, largest)`. Limits of the scenario's hardware and building always hold.
    - `order`: names of the axes, outermost first; by default the order in which the model is cheapest.
    - `precision`: 32 or 64 bits of the scan.
    - `chunk`, `tile`: points, at most, of a step and of a tile.
    - `polished`: search between the points of the grid from the best one, by `design.minimize`.
    - `resume`: folder that keeps finished tiles, made if it is missing; the same call goes on where it stopped.
    - `engine`: `"process"` (threads), `"devices"` or `"distributed"` (a mesh of all JAX devices, also those of other
      processes), `"dask://address"`; the result is the same to the bit.
    - `progress`: called with a sentence about once a second.

    **Returns:** `Swept`.

    **Raises:** `InputError` for an axis, limit or objective that does not exist.
    """
    task = pose(what, axes, keep, minimize, limits, order=order, precision=precision, chunk=chunk, tile=tile)
    return task.run(progress or (lambda sentence: None), polished=polished, resume=resume, engine=engine)


@dataclasses.dataclass(frozen=True)
class Task:
    """A sweep ready to run."""

    function: Callable[..., Any]
    axes: tuple[Axis, ...]
    tiles: Tiles
    limits: Mapping[str, Range]
    value: str | Callable[[Any], Any] | None
    tables: Mapping[str, Any] | None = None

    @property
    def units(self) -> Mapping[str, str]:
        """Units of the outputs."""
        return UNITS if isinstance(self.function, ScenarioModel) else {}

    def estimate(self) -> Estimate:
        """Compile, time a chunk, and say what the whole would take."""
        grid = self.tiles.grid
        self.tiles.compile()
        seconds = self.tiles.seconds_per_chunk()
        workers = min(threads(), grid.tiles)
        return Estimate(
            grid.points,
            grid.volume,
            grid.tiles,
            self.tiles.memory * workers,
            seconds * grid.chunks / workers,
            tuple(axis.name for axis in grid.axes),
        )

    def run(
        self,
        progress: Callable[[str], None],
        *,
        polished: bool = False,
        resume: str | os.PathLike[str] | None = None,
        engine: str | Engine | None = None,
    ) -> Swept:
        """Run all tiles that are not finished, and look again at what was kept."""
        chosen = engine_of(engine)
        if resume is None:
            return self._run(progress, polished, chosen, None)
        if jax.process_index() > 0:  # the first process keeps the tiles of all
            return self._run(progress, polished, chosen, None)
        with Ledger(resume, identity(self.tiles, self.tables), self.tiles.like()) as ledger:
            return self._run(progress, polished, chosen, ledger)

    def _run(self, progress: Callable[[str], None], polished: bool, engine: Engine, ledger: Ledger | None) -> Swept:
        grid, keep = self.tiles.grid, self.tiles.reduction
        finished = _agreed(ledger.finished(grid.tiles) if ledger is not None else set(), grid.tiles)
        missing = [number for number in range(grid.tiles) if number not in finished]
        progress("compiling the model ...")
        start = time.perf_counter()
        done = Ordered(keep)
        watch = Watch(grid, progress, sum(points_of_tile(grid, number) for number in finished))
        if finished:
            progress(f"{len(finished):,} of {grid.tiles:,} tiles are finished")
        complete, awaited = True, set(missing)
        try:
            for number, state in engine(self.tiles, missing):
                if ledger is not None:
                    ledger.write(number, state)
                if not (isinstance(keep, Full) and ledger is not None):  # its files are its result
                    done.add(number, state)
                watch.tile(number)
                awaited.remove(number)
        except KeyboardInterrupt:
            complete = False
        if complete and awaited:
            raise RuntimeError(
                f"the engine ended without {len(awaited)} of {grid.tiles} tiles, such as {min(awaited)}."
            )
        if isinstance(keep, Full) and ledger is not None and complete:
            path = store(ledger.folder, keep, grid, (ledger.read(number) for number in range(grid.tiles)), self.units)
            return self.conclude(None, watch.points, time.perf_counter() - start, complete, False, progress, path)
        for number in sorted(finished):
            done.add(number, _shared(ledger.read(number) if ledger is not None else self.tiles.like()))
        done.skip_gaps()
        return self.conclude(done.state, watch.points, time.perf_counter() - start, complete, polished, progress)

    def conclude(
        self, state: Any, seen: int, seconds: float, complete: bool, polished: bool, progress: Callable[[str], None],
        store: Path | None = None,
    ) -> Swept:  # fmt: skip
        """Evaluate in float64 what was kept, and say how the sweep went."""
        grid, keep = self.tiles.grid, self.tiles.reduction
        found: tuple[Winner, ...] = ()
        result, near = None, None
        if state is not None:
            result = keep.result(state, grid)
            kept = [self._own(index) for index in keep.kept_points(state, grid)]
            if kept:
                progress(f"evaluating {len(kept)} points in float64 ...")
            found = tuple(winners(self.function, self.axes, kept, self.value, self.limits, keep))
        if polished and found and self.value is not None:
            progress("searching between the points of the grid ...")
            near = polish(self.function, self.axes, found[0], self.value, self.limits)
        message = "" if complete else f"interrupted after {seen:,} of {grid.points:,} points. "
        message += keep.complaint(state) if state is not None else ""
        if keep.looks_for_points and not found:
            message += "No point obeys all limits. Relax a limit, or extend an axis."
            message += " Values beyond 3e38 need precision 64." if self.tiles.bits == 32 else ""
        return Swept(
            self.axes,
            grid,
            keep,
            self.limits,
            result,
            found,
            near,
            seen,
            seconds,
            complete,
            message.strip(),
            self.units,
            store,
        )

    def _own(self, index: Sequence[int]) -> tuple[int, ...]:
        """Indices in the order of the caller's axes."""
        by_name = dict(zip((axis.name for axis in self.tiles.grid.axes), index, strict=True))
        return tuple(by_name[axis.name] for axis in self.axes)


def pose(
    what: Scenario | Callable[..., Any], axes: Mapping[str, Any] | Sequence[Axis], keep: str | AbstractReduction,
    minimize: str | Callable[[Any], Any] | None, limits: Mapping[str, Any] | None, *,
    order: Sequence[str] | None = None, precision: int = 32, chunk: int = CHUNK, tile: int | None = None,
) -> Task:  # fmt: skip
    """Make a sweep ready: axes, limits, the order of the axes, tiles.

    **Raises:** `InputError`.
    """
    if precision not in (32, 64):
        raise InputError(f"precision: {precision} is neither 32 nor 64 bits.")
    given = dict(axes) if isinstance(axes, Mapping) else {axis.name: axis for axis in axes}
    if isinstance(what, Scenario):
        if what.plan.knots != 1:
            raise InputError("plan.batch: a schedule of several knots is not swept; give one constant batch.")
        ranker = minimize if isinstance(minimize, str) else "energy"
        parsed = tuple(scenario_axis(what, path, values, ranker) for path, values in given.items())
        function: Callable[..., Any] = ScenarioModel(what.system, what.plan)
        value = objective(minimize or "energy")
        ranges = {**HARD_LIMITS, **scenario_limits(limits or {})}
    else:
        function = what
        parsed = tuple(parse_axis(name, values, allow_negative=True) for name, values in given.items())
        value = minimize
        ranges = {name: limit_range(name, limit) for name, limit in (limits or {}).items()}
    check_axes(parsed if isinstance(axes, Mapping) else tuple(axes))
    reduction = reduction_of(keep, value, ranges)
    reduction = reduction.prepare(Sampled(lambda: sample(function, parsed)))
    names = [axis.name for axis in parsed]
    if order is None:
        places = best_order(function, parsed, reduction, chunk)
    elif sorted(order) != sorted(names):
        raise InputError(f"order: {', '.join(order)} are not the axes. Give each of {', '.join(names)} once.")
    else:
        places = tuple(names.index(name) for name in order)
    total = points(parsed)
    tile = max(LEAST_TILE, total // TILES) if tile is None else tile
    grid = divide([parsed[place] for place in places], chunk, tile)
    tables = what.tables if isinstance(what, Scenario) else None
    return Task(function, parsed, Tiles(function, grid, reduction, precision), ranges, value, tables)


@dataclasses.dataclass(frozen=True)
class LogProduct:
    """Logarithm of a product of powers of outputs, which float32 holds whatever the powers."""

    objective: Objective

    def __call__(self, outputs: Mapping[str, Any]) -> Any:
        """The logarithm at one point."""
        xp = np if all(isinstance(outputs[name], np.ndarray | float) for name in self.objective.names()) else jax.numpy
        return sum(power * xp.log(outputs[name]) for name, power in self.objective.factors)


def objective(minimize: str | Callable[[Any], Any]) -> str | Callable[[Any], Any]:
    """An output by name; the logarithm of a product of several.

    **Raises:** `InputError` for what is no objective.
    """
    if callable(minimize):
        return minimize
    parsed = parse_objective(minimize)
    if len(parsed.factors) == 1 and parsed.factors[0][1] == 1.0:
        return parsed.factors[0][0]
    return LogProduct(parsed)


def scenario_limits(limits: Mapping[str, Any]) -> dict[str, Range]:
    """Limits of a scenario's outputs in SI, from below where more is better.

    **Raises:** `InputError` for an unknown output or a value in another unit.
    """
    numbers = {name: parse_limit(name, value) for name, value in limits.items()}
    return {name: (one, math.inf) if name in AT_LEAST else (-math.inf, one) for name, one in numbers.items()}


def limit_range(name: str, limit: Any) -> Range:
    """Limits of an output of a function: its largest value, or both ends.

    **Raises:** `InputError` for what is no number.
    """
    if isinstance(limit, tuple | list):
        low, high = (float(end) for end in limit)
        return low, high
    try:
        return -math.inf, float(limit)
    except (TypeError, ValueError):
        raise InputError(f"limit {name}: {limit!r} is no number, nor (least, largest).") from None


def _agreed(finished: set[int], count: int) -> set[int]:
    """What the first process found finished, in all processes."""
    if jax.process_count() == 1:
        return finished
    from jax.experimental import multihost_utils

    own = np.array([number in finished for number in range(count)])
    return {int(number) for number in np.flatnonzero(multihost_utils.broadcast_one_to_all(own))}


def _shared(state: Any) -> Any:
    """The state of the first process, in all processes."""
    if jax.process_count() == 1:
        return state
    from jax.experimental import multihost_utils

    own = jax.tree.map(lambda leaf: leaf if isinstance(leaf, np.ndarray) else np.zeros(leaf.shape, leaf.dtype), state)
    return jax.tree.map(np.asarray, multihost_utils.broadcast_one_to_all(own))


class Ordered:
    """States merged in the order of their tiles, whatever the order in which they come."""

    def __init__(self, keep: AbstractReduction) -> None:
        self._keep, self._waiting, self._next = keep, dict[int, Any](), 0
        self.state: Any = None

    def add(self, number: int, state: Any) -> None:
        """Take the state of a tile."""
        self._waiting[number] = state
        while self._next in self._waiting:
            one = self._waiting.pop(self._next)
            self.state = self._keep.start(one) if self.state is None else self._keep.merge(self.state, one)
            self._next += 1

    def skip_gaps(self) -> None:
        """Take what waits for tiles that will not come, unless places depend on them."""
        while self._waiting and not self._keep.contiguous:
            self._next = min(self._waiting)
            self.add(self._next, self._waiting[self._next])


class Watch:
    """Says about once a second how far a sweep is, how fast, and when it will end."""

    def __init__(self, grid: Grid, tell: Callable[[str], None], ready: int = 0) -> None:
        self._grid, self._tell, self.points = grid, tell, ready
        self._ready, self._start, self._told = ready, time.perf_counter(), 0.0

    def tile(self, number: int) -> None:
        """A tile is done."""
        self.points += points_of_tile(self._grid, number)
        now = time.perf_counter() - self._start
        if now - self._told < PROGRESS and self.points < self._grid.points:
            return
        self._told = now
        rate = (self.points - self._ready) / now
        left = (self._grid.points - self.points) / rate
        share = 100.0 * self.points / self._grid.points
        self._tell(
            f"{share:.0f} % of {self._grid.points:.3g} points, {rate / 1e6:.3g} million points/s, {_clock(left)} left"
        )


def points_of_tile(grid: Grid, number: int) -> int:
    """Points of a tile without padding."""
    first, count = grid.tile(number)
    missing = grid.blocks * grid.block - len(grid.axes[grid.cut])
    last_blocks = (first + count) // grid.blocks - first // grid.blocks
    return count * grid.volume - last_blocks * missing * (grid.volume // grid.block)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


__all__ = ["OUTPUTS", "Estimate", "Swept", "sweep"]
