"""The sweep as a person calls it: its arguments, and the text of `keep`."""

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from energymodel.errors import InputError
from energymodel.runtime.placement import platform
from energymodel.scenarios.scenario import Scenario
from energymodel.sweeps.axes import Axis, Range, check_axes, parse_axis
from energymodel.sweeps.best_points import BestAlong, Top
from energymodel.sweeps.engines import Engine
from energymodel.sweeps.full_array import FullArray
from energymodel.sweeps.grid import divide
from energymodel.sweeps.histogram import Count, Histogram, quantiles
from energymodel.sweeps.pareto import Pareto
from energymodel.sweeps.points import GridSample, LogProduct, Output
from energymodel.sweeps.prepared_sweep import PreparedSweep
from energymodel.sweeps.reductions import AbstractReduction
from energymodel.sweeps.scenario_axes import UNITS, ScenarioModel, model_and_limits, scenario_axis
from energymodel.sweeps.sweep_result import SweepResult
from energymodel.sweeps.tile_program import SMALL, SmallGrid, TileProgram, best_order, row_lanes
from energymodel.system.outputs import parse_objective
from energymodel.units import whole_number

CHUNK = 2**18
"""Most points of a chunk on a CPU: a few arrays of them fit into cache, and operations are long against their start."""
LARGE_CHUNK = 2**24
"""The same on an accelerator: starting the operations of a chunk takes less time than they do."""
TILES = 4096
"""Tiles of a large grid, about; each is a file of a ledger, and a call of an accelerator."""
TILE_CHUNKS, LARGE_TILE_CHUNKS = 16, 4
"""Chunks of a tile, at least, on a CPU and on an accelerator."""
MOST_POINTS = 10**6
"""Points that `top` keeps: each is evaluated once more, and the state of every chunk holds them all."""
KINDS: Mapping[str, tuple[int, Callable[..., AbstractReduction] | None]] = {
    "best": (0, None),
    "top": (0, None),
    "along": (1, None),
    "pareto": (2, Pareto),
    "count": (0, lambda names, limits: Count(limits)),
    "histogram": (1, Histogram),
    "quantiles": (1, functools.partial(Histogram, summary=quantiles)),
    "full": (1, lambda names, limits: FullArray(names)),
}
"""Words of `keep`: how many names follow each, and the reduction of names and limits where nothing is minimized."""


def sweep(
    what: Scenario | Callable[..., Any],
    axes: Mapping[str, Any] | Sequence[Axis],
    keep: str | AbstractReduction = "best",
    *,
    minimize: Output | None = None,
    limits: Mapping[str, Any] | None = None,
    order: Sequence[str] | None = None,
    precision: int = 32,
    chunk: int | None = None,
    tile: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    engine: str | Engine | None = None,
    progress: Callable[[str], None] | None = None,
) -> SweepResult:
    """Evaluate a model on every point of a product of axes, and keep what a reduction asks for.

    Every point of a scenario trains to the limit of the loss, or else to the loss of the scenario's own plan: its
    tokens follow. Where `minimize` or `keep` names the loss, or an axis the goal, tokens are as the plan has them.

    No point is stored: chunks of the grid are evaluated by nested `vmap`, each operation only on the axes that it
    depends on, reduced, and forgotten. The scan runs in float32; the points that are kept are evaluated again in
    float64, which also decides their order. A small grid of a scenario is evaluated in float64 by a program that is
    kept for all its grids (`tile_program.SmallGrid`).

    **Arguments:**

    - `what`: a scenario, or any pure function that takes the axes by keyword and returns the outputs of one point as
      a mapping or named tuple.
    - `axes`: `{"plan.batch": "8..64 Mi token log 20", "system.accelerator": "h100-sxm, h200-sxm", "plan.layout": "64"}`
      or `Axis` objects.
    - `keep`: `"best"`, `"top:K"`, `"along:AXIS,..."` (the best along these axes, for each value of the others),
      `"pareto:X,Y,..."`, `"count"`, `"histogram:X,..."`, `"quantiles:X,..."`, `"full:X,..."`, or a reduction.
    - `minimize`: an output, for a scenario also a product of powers such as `"energy*time^2"`; default `"energy"`.
    - `limits`: of outputs: text with a unit or SI for a scenario, from below where more is better; for a function the
      largest value, or `(lowest, highest)`. Limits of the scenario's hardware and building always hold.
    - `order`: names of the axes, outermost first; by default the order in which the model is cheapest.
    - `precision`: 32 or 64 bits of the scan.
    - `chunk`, `tile`: most points of a step and of a tile; on an accelerator both are larger by default.
    - `resume`: folder that keeps finished tiles, made if it is missing; the same call continues where it stopped.
    - `engine`: `"process"` (threads), `"devices"` or `"distributed"` (a mesh of all JAX devices, also those of other
      processes), `"dask://address"`; the result is the same to the bit.
    - `progress`: called with a message about once a second.

    **Raises:** `InputError` for an axis, limit or objective that does not exist.
    """
    prepared = prepare_sweep(
        what, axes, keep, minimize, limits, order=order, precision=precision, chunk=chunk, tile=tile
    )
    return prepared.run(progress, resume=resume, engine=engine)


def prepare_sweep(
    what: Scenario | Callable[..., Any],
    axes: Mapping[str, Any] | Sequence[Axis],
    keep: str | AbstractReduction = "best",
    minimize: Output | None = None,
    limits: Mapping[str, Any] | None = None,
    *,
    order: Sequence[str] | None = None,
    precision: int = 32,
    chunk: int | None = None,
    tile: int | None = None,
) -> PreparedSweep:
    """Parse the arguments of `sweep`, choose the order of the axes, and divide the grid into tiles."""
    entries = list(axes.items()) if isinstance(axes, Mapping) else [(axis.name, axis) for axis in axes]
    names_loss = "loss" in re.findall(r"\w+", f"{keep} {minimize}")
    holds_loss = not names_loss and not any(path.startswith("plan.goal") for path, _ in entries)
    function, ranges = model_and_limits(what, limits or {}, holds_loss=holds_loss)
    units, tables = {}, None
    if isinstance(what, Scenario):
        ranked_by = minimize if isinstance(minimize, str) else "energy"
        parsed = tuple(scenario_axis(what, path, values, ranked_by) for path, values in entries)
        minimize, units, tables = _objective(minimize or "energy"), UNITS, what.tables
    else:
        parsed = tuple(parse_axis(name, values, allow_negative=True) for name, values in entries)
    check_axes(parsed)
    reduction = parse_keep(keep, minimize, ranges).scaled_to(GridSample(function, parsed))
    names = [axis.name for axis in parsed]
    points = math.prod(map(len, parsed))
    on_cpu = platform() == "cpu"
    chunk = chunk or (CHUNK if on_cpu else LARGE_CHUNK)
    small = points <= SMALL and isinstance(function, ScenarioModel)
    if order is None:
        numbers = range(len(parsed)) if small else best_order(function, parsed, reduction, chunk)
    elif sorted(order) == sorted(names):
        numbers = map(names.index, order)
    else:
        raise InputError(f"order: {', '.join(order)} are not the axes. Give each of {', '.join(names)} once.")
    ordered = [parsed[number] for number in numbers]
    tile = tile or max(chunk * (TILE_CHUNKS if on_cpu else LARGE_TILE_CHUNKS), points // TILES)
    grid = divide(ordered, chunk, tile, 1 if small or precision == 64 else row_lanes())
    program = (SmallGrid if small else TileProgram)(function, ordered, grid, reduction, precision, small)
    return PreparedSweep(program, parsed, ranges, minimize, units, tables)


def parse_keep(
    keep: str | AbstractReduction, minimize: Output | None, limits: Mapping[str, Range]
) -> AbstractReduction:
    """The reduction that a text asks for; a reduction is taken as it is.

    **Raises:** `InputError` for an unknown word or a bad argument, or where nothing says what to minimize.
    """
    if isinstance(keep, AbstractReduction):
        return keep
    word, _, argument = (part.strip() for part in keep.partition(":"))
    names = tuple(part.strip() for part in argument.split(",") if part.strip())
    if word not in KINDS:
        raise InputError(f'keep: unknown "{keep}". Choose from {", ".join(KINDS)}.')
    needed, kind = KINDS[word]
    if len(names) < needed:
        example = "plan.clock,plan.batch" if word == "along" else "energy,time"
        raise InputError(f'keep: "{keep}" names {len(names)}; it needs at least {needed}. Write {word}:{example}.')
    if kind is not None:
        return kind(names, limits)
    if minimize is None:
        raise InputError(f'minimize: keep "{keep}" needs to know which output to minimize. Name one.')
    if word == "along":
        return BestAlong(minimize, names, limits)
    count = 1 if word == "best" else whole_number(argument)
    if count is None or not 1 <= count <= MOST_POINTS:
        raise InputError(f'keep: "{keep}" has no number of points, 1 to {MOST_POINTS:,}. Write for example top:10.')
    return Top(minimize, count, limits)


def _objective(minimize: Output) -> Output:
    """An output by name; the logarithm of a product of several."""
    if callable(minimize):
        return minimize
    parsed = parse_objective(minimize)
    if len(parsed.factors) == 1 and parsed.factors[0][1] == 1.0:
        return parsed.factors[0][0]
    return LogProduct(parsed)
