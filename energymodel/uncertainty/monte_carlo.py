"""How sure is a plan: what do the uncertain numbers of a scenario do to its outputs, and which of them matter?"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.design.numbers import Numbers
from energymodel.errors import InputError, suggest
from energymodel.presets.distributions import distributions
from energymodel.presets.scenario import Scenario
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.engine import Tiles
from energymodel.sweeps.engines import Engine
from energymodel.sweeps.fingerprint import describe
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.reductions import AbstractReduction, Range
from energymodel.sweeps.reductions import Sampled as SampledGrid
from energymodel.sweeps.run import Swept, Task, limit_range, scenario_limits
from energymodel.sweeps.scenario_model import HARD_LIMITS, UNITS, ScenarioModel
from energymodel.sweeps.winners import sample
from energymodel.system.outputs import OUTPUTS
from energymodel.uncertainty.draws import Exchanged, Known, Sampled, Uncertain, lanes, parse_numbers, uncertain
from energymodel.uncertainty.samples import DEFINED, Chance, Samples, SampleSummary, Spread
from energymodel.uncertainty.sobol import Index, SobolIndices

OF = ("energy", "time", "money", "carbon", "loss")
SAMPLES = 2**17
LEAST_BLOCKS = 64
MOST_LANES = 2**12
LEAST_LANES = 2**4
CHUNK = 2**13
"""Points of a chunk: no operation is shared between samples, so that cache decides."""
TILE = 2**16
TILES = 4096  # of a long run, about
FEWEST = 64  # samples of each of the two of the indices


@dataclasses.dataclass(frozen=True)
class MonteCarlo:
    """What uncertain numbers do to the outputs of a model; all numbers in SI.

    - `of`: outputs of most interest, which have indices.
    - `samples`: number of samples; `spreads` are distributions by output, `chances` of each limit and "all".
    - `factors`: uncertain numbers, those of a joint distribution as one.
    - `indices`: Sobol's indices by output, in the order of the factors, empty if they were not asked for;
      `index_samples` is the number of samples of which each factor is exchanged.
    - `points`: evaluations of the model in `seconds`, compilation included.
    """

    of: tuple[str, ...]
    samples: int
    spreads: Mapping[str, Spread]
    chances: Mapping[str, Chance]
    factors: tuple[str, ...]
    indices: Mapping[str, Sequence[Index]]
    index_samples: int
    limits: Mapping[str, Range]
    units: Mapping[str, str]
    points: int
    seconds: float
    complete: bool
    message: str

    def by_total(self, output: str | None = None) -> list[Index]:
        """Indices of an output, largest total first; of the first output unless one is named."""
        return sorted(self.indices.get(output or self.of[0], ()), key=lambda one: -one.total)


@dataclasses.dataclass(frozen=True)
class Design:
    """Samples ready to be drawn: a task for the distributions, and one for the indices unless they are left out."""

    of: tuple[str, ...]
    numbers: Uncertain
    units: Mapping[str, str]
    distribution: Task
    exchanges: Task | None

    def run(
        self,
        progress: Callable[[str], None],
        *,
        resume: str | os.PathLike[str] | None = None,
        engine: str | Engine | None = None,
    ) -> MonteCarlo:
        """Draw all samples that are not drawn yet."""
        folder = None if resume is None else Path(resume)
        drawn = self.distribution.run(progress, resume=folder and folder / "samples", engine=engine)
        exchanged = None
        if self.exchanges is not None and drawn.complete:
            progress("exchanging one factor at a time for the indices ...")
            exchanged = self.exchanges.run(progress, resume=folder and folder / "indices", engine=engine)
        return self.conclude(drawn, exchanged)

    def conclude(self, drawn: Swept, exchanged: Swept | None) -> MonteCarlo:
        """Put both results together."""
        parts = [part for part in (drawn, exchanged) if part is not None]
        summary = drawn.result or SampleSummary(0, {}, {}, {})
        poor = {name: spread.undefined for name, spread in summary.spreads.items() if name in self.of}
        worst = max(poor, key=lambda name: poor[name], default=None)
        messages = [part.message for part in parts if part.message]
        if worst is not None and poor[worst] > 1.0 - DEFINED:
            messages.append(
                f"{worst} is not finite in {100.0 * poor[worst]:.3g} % of the samples, which are left out. "
                "Narrow the uncertainty of the numbers that reach what the model has no answer for."
            )
        return MonteCarlo(
            of=self.of,
            samples=summary.count,
            spreads=summary.spreads,
            chances=summary.chances,
            factors=self.numbers.factors,
            indices=(exchanged.result or {}) if exchanged is not None else {},
            index_samples=exchanged.points // (len(self.numbers.factors) + 2) if exchanged is not None else 0,
            limits=self.distribution.limits,
            units=self.units,
            points=sum(part.points for part in parts),
            seconds=sum(part.seconds for part in parts),
            complete=all(part.complete for part in parts) and (self.exchanges is None) == (exchanged is None),
            message=" ".join(messages),
        )


def monte_carlo(
    what: Scenario | Callable[..., Any],
    samples: int = SAMPLES,
    *,
    numbers: Mapping[str, Any] | None = None,
    of: Sequence[str] | None = None,
    limits: Mapping[str, Any] | None = None,
    indices: bool | int = True,
    seed: int = 0,
    precision: int = 32,
    resume: str | os.PathLike[str] | None = None,
    engine: str | Engine | None = None,
    progress: Callable[[str], None] | None = None,
) -> MonteCarlo:
    """Draw every uncertain number of a scenario at once, and say what that does to its outputs.

    Samples are Sobol points in independent random shifts [L'Ecuyer & Lemieux 2002]; they run on the engine of sweeps,
    with its ledger, and the same seed gives the same samples. Numbers of a joint distribution are drawn together; a
    positive number stays positive, a share below one.

    **Arguments:**

    - `what`: a scenario, or any pure function that takes the uncertain numbers by keyword.
    - `samples`: at least so many.
    - `numbers`: for a function, `{"x": "uniform 0 1", "y": (5.0, "lognormal 0.3")}`; for a scenario, distributions by
      path that replace its own.
    - `of`: outputs that get indices, for a scenario `energy, time, money, carbon, loss` unless given. Distributions are
      those of all outputs of a scenario, or of these of a function.
    - `limits`: as in `sweep`, with those of the scenario's `[optimize]`; the chance that each holds is estimated.
    - `indices`: estimate Sobol's indices from about as many evaluations, or from so many samples in each of which
      every factor is exchanged.
    - `seed`: of the random numbers.
    - `precision`, `resume`, `engine`, `progress`: as in `sweep`.

    **Returns:** `MonteCarlo`.

    **Raises:** `InputError` for an unknown output, limit or distribution, or where nothing is uncertain.
    """
    design = pose_samples(
        what, samples, numbers=numbers, of=of, limits=limits, indices=indices, seed=seed, precision=precision
    )
    return design.run(progress or (lambda sentence: None), resume=resume, engine=engine)


def pose_samples(
    what: Scenario | Callable[..., Any], samples: int = SAMPLES, *, numbers: Mapping[str, Any] | None = None,
    of: Sequence[str] | None = None, limits: Mapping[str, Any] | None = None, indices: bool | int = True, seed: int = 0,
    precision: int = 32,
) -> Design:  # fmt: skip
    """Make samples ready.

    **Raises:** `InputError`.
    """
    if samples < 1:
        raise InputError(f"samples: {samples:,} samples say nothing. Draw at least 1.")
    if precision not in (32, 64):
        raise InputError(f"precision: {precision} is neither 32 nor 64 bits.")
    tables: dict[str, Any] = {"seed": seed}
    if isinstance(what, Scenario):
        if what.plan.knots != 1:
            raise InputError("plan.batch: a schedule of several knots is not sampled; give one constant batch.")
        known = scenario_numbers(what, numbers or {})
        model: Callable[..., Any] = ScenarioModel(what.system, what.plan)
        ranges = {**HARD_LIMITS, **scenario_limits({**what.optimize.get("limits", {}), **(limits or {})})}
        of = tuple(of or OF)
        outputs, units = tuple(OUTPUTS), UNITS
        tables["scenario"] = what.tables
    else:
        known = parse_numbers(numbers or {})
        model = what
        ranges = {name: limit_range(name, limit) for name, limit in (limits or {}).items()}
        outputs = of = tuple(of or ())
        units = {}
        tables["function"] = describe(what)
    if not known:
        raise InputError("Nothing is uncertain. Give distributions, such as \"system.market.price.electricity\" = "
                         '"lognormal 0.15" in [uncertainty].')  # fmt: skip
    if not of:
        raise InputError('of: no output is named. Name one, such as "energy".')
    for name in of:
        if units and name not in outputs:
            raise InputError(f'of: unknown output "{name}". {suggest(name, outputs)}')
    tables["numbers"] = {one.path: describe(one) for one in known}
    drawn, large = uncertain(known), isinstance(what, Scenario)
    factors = len(drawn.factors)
    axes = sample_axes(samples, factors, seed)
    look = SampledGrid(lambda: checked(sample(Sampled(model, drawn, seed), axes), (*outputs, *ranges)))
    keep = Samples(outputs, ranges, alone=large).prepare(look)

    def task(function: Any, grid: Grid, reduction: AbstractReduction) -> Task:
        return Task(function, grid.axes, Tiles(function, grid, reduction, precision), ranges, None, tables)

    first = task(Sampled(model, drawn, seed), _grid(axes, 1), keep)
    if indices is False:
        return Design(of, drawn, units, first, None)
    number = math.ceil(samples / (factors + 2)) if indices is True else indices
    exchange = np.concatenate([np.zeros((1, factors)), np.ones((1, factors)), np.eye(factors)])
    more = (*sample_axes(max(FEWEST, number), 2 * factors, seed), Axis("exchange", exchange))
    second = task(
        Exchanged(model, drawn, seed),
        _grid(more, factors + 2),
        SobolIndices(of, drawn.factors, alone=large).prepare(look),
    )
    return Design(of, drawn, units, first, second)


def scenario_numbers(scenario: Scenario, changed: Mapping[str, Any]) -> list[Known]:
    """Uncertain numbers of a scenario, some with another distribution.

    **Raises:** `InputError` for an unknown path or a distribution that cannot be read.
    """
    for path in changed:
        if path not in scenario.provenance:
            raise InputError(f'uncertainty: unknown path "{path}". {suggest(path, scenario.provenance)}')
    scenario = dataclasses.replace(scenario, uncertainty={**scenario.uncertainty, **changed})
    values = Numbers(scenario.system, scenario.plan).values
    found = distributions(scenario, values)
    return [Known(path, values[path], scenario.provenance[path].unit, one) for path, one in found.items()]


def sample_axes(samples: int, dimensions: int, seed: int) -> tuple[Axis, Axis]:
    """Axes of at least so many samples: blocks, and within each the same Sobol points, a power of two."""
    wanted = samples // LEAST_BLOCKS
    count = min(MOST_LANES, max(LEAST_LANES, 2 ** max(0, wanted.bit_length() - 1)))
    return Axis.of("block", range(-(-samples // count))), Axis("lane", lanes(count, dimensions, seed))


def _grid(axes: Sequence[Axis], each: int) -> Grid:
    """A grid cut so that a chunk holds lanes of one block only, a power of two of them."""
    block = min(len(axes[1]), 2 ** max(0, (CHUNK // each).bit_length() - 1))
    chunks = len(axes[0]) * (len(axes[1]) // block)
    tile = max(1, TILE // (block * each), chunks // TILES)
    return Grid(tuple(axes), 1, block, tile)


def checked(outputs: Mapping[str, np.ndarray], names: Sequence[str]) -> Mapping[str, np.ndarray]:
    """The outputs, if all names are among them.

    **Raises:** `InputError` that suggests the nearest name.
    """
    for name in names:
        if name not in outputs:
            raise InputError(f'Unknown output "{name}". {suggest(name, outputs)}')
    return outputs
