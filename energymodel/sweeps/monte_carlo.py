"""Samples of the uncertain numbers of a scenario: distributions of its outputs, and which numbers cause them."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from energymodel.errors import InputError, suggest
from energymodel.ranges import ends_of
from energymodel.runtime.placement import platform
from energymodel.scenarios.scenario import Scenario, distributions
from energymodel.search.training_run import TrainingRun
from energymodel.sweeps.axes import Axis, Range
from energymodel.sweeps.draws import SampledModel, UncertainNumber, number_sampler, parse_numbers, sobol_points
from energymodel.sweeps.engines import Engine
from energymodel.sweeps.grid import Grid
from energymodel.sweeps.points import GridSample
from energymodel.sweeps.prepared_sweep import PreparedSweep
from energymodel.sweeps.reductions import AbstractReduction
from energymodel.sweeps.sample_statistics import (
    Chance,
    SampleStatistics,
    SampleSummary,
    SobolIndex,
    SobolIndices,
    Spread,
)
from energymodel.sweeps.scenario_axes import UNITS, model_and_limits
from energymodel.sweeps.sweep_result import SweepCost
from energymodel.sweeps.tile_program import TileProgram
from energymodel.system.outputs import OUTPUTS

OF = ("energy", "time", "money", "carbon", "loss")
SAMPLES = 2**17
MOST_SAMPLES = 10**10
MIN_REPLICATES = 64
POINTS = (2**4, 2**12)
"""Fewest and most points of a replicate."""
CHUNK = 2**13
"""Samples of a chunk: samples share no operation, so that the cache decides."""
LARGE_CHUNK = 2**20
"""The same on an accelerator."""
TILES = 4096  # of a long run, about
MIN_INDEX_SAMPLES = 64
LONG_RUN = 2**21  # samples of a scenario for which it pays to compile longer (`benchmarks/sweep --only samples`)
MIN_DEFINED = 0.999
"""Share of the samples with a finite output, below which its distribution is not to be trusted."""


@dataclasses.dataclass(frozen=True)
class MonteCarlo:
    """What uncertain numbers do to the outputs of a model; all numbers in SI.

    - `of`: outputs of most interest, which have indices.
    - `samples`: number of samples; `spreads` are distributions by output, `chances` of each limit and "all".
    - `factors`: uncertain numbers, those of a joint distribution as one.
    - `indices`: Sobol's indices by output, in the order of the factors, empty if they were not asked for;
      `index_samples` is the number of samples of which each factor is resampled.
    - `points`: evaluations of the model in `seconds`, compilation included.
    """

    of: tuple[str, ...]
    samples: int
    spreads: Mapping[str, Spread]
    chances: Mapping[str, Chance]
    factors: tuple[str, ...]
    indices: Mapping[str, Sequence[SobolIndex]]
    index_samples: int
    limits: Mapping[str, Range]
    units: Mapping[str, str]
    points: int
    seconds: float
    complete: bool
    message: str

    def by_total(self, output: str | None = None) -> list[SobolIndex]:
        """Indices of an output, largest total first; of the first output unless one is named."""
        return sorted(self.indices.get(output or self.of[0], ()), key=lambda index: -index.total)


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
    """Draw every uncertain number of a scenario at once, and estimate what that does to its outputs.

    Samples are Sobol points in independent random shifts [L'Ecuyer & Lemieux 2002]; they run on the engines of sweeps,
    with their ledger, and the same seed gives the same samples. Numbers of a joint distribution are drawn together.
    A number of a scenario is drawn within the range that its field declares; in a function, a positive number whose
    distribution is normal stays positive.

    **Arguments:**

    - `what`: a scenario, or any pure function that takes the uncertain numbers by keyword.
    - `samples`: draw at least so many.
    - `numbers`: for a function, `{"x": "uniform 0 1", "y": (5.0, "lognormal 0.3")}`; for a scenario, distributions by
      path that replace its own.
    - `of`: outputs that get indices, for a scenario `energy, time, money, carbon, loss` unless given. Distributions are
      those of all outputs of a scenario, or of these of a function.
    - `limits`: as in `sweep`, with those of the scenario's `[optimize]`; the chance that each holds is estimated.
    - `indices`: estimate Sobol's indices from about as many evaluations, or from so many samples in each of which
      every factor is resampled.
    - `seed`: of the random numbers.
    - `precision`, `resume`, `engine`, `progress`: as in `sweep`.

    **Raises:** `InputError` for an unknown output, limit or distribution, or where nothing is uncertain.
    """
    prepared = prepare_monte_carlo(
        what, samples, numbers=numbers, of=of, limits=limits, indices=indices, seed=seed, precision=precision
    )
    return prepared.run(progress, resume=resume, engine=engine)


@dataclasses.dataclass(frozen=True)
class PreparedMonteCarlo:
    """Samples ready to be drawn: a sweep for the distributions, and one for the indices unless they are left out."""

    of: tuple[str, ...]
    factors: tuple[str, ...]
    distributions: PreparedSweep
    indices: PreparedSweep | None

    def cost(self) -> SweepCost:
        """What both sweeps would take."""
        costs = [part.cost() for part in (self.distributions, self.indices) if part is not None]
        return costs[0]._replace(
            points=sum(cost.points for cost in costs),
            tiles=sum(cost.tiles for cost in costs),
            memory=max(cost.memory for cost in costs),
            seconds=sum(cost.seconds for cost in costs),
        )

    def run(
        self,
        progress: Callable[[str], None] | None = None,
        *,
        resume: str | os.PathLike[str] | None = None,
        engine: str | Engine | None = None,
    ) -> MonteCarlo:
        """Draw all samples that are not drawn yet; arguments as in `monte_carlo`."""
        folder = None if resume is None else Path(resume)
        drawn = self.distributions.run(progress, resume=folder and folder / "samples", engine=engine)
        parts, indices, index_samples = [drawn], {}, 0
        if self.indices is not None and drawn.complete:
            if progress is not None:
                progress("resampling one factor at a time for the indices ...")
            parts.append(self.indices.run(progress, resume=folder and folder / "indices", engine=engine))
            indices, index_samples = parts[1].result or {}, parts[1].points // (len(self.factors) + 2)
        summary: SampleSummary = drawn.result or SampleSummary()
        messages = [part.message for part in parts]
        undefined = [(spread.undefined, name) for name, spread in summary.spreads.items() if name in self.of]
        share, worst = max(undefined, default=(0.0, ""))
        if share > 1.0 - MIN_DEFINED:
            messages.append(
                f"{worst} is not finite in {100.0 * share:.3g} % of the samples, which are left out. "
                "Narrow the uncertainty of the numbers that leave the model's range of validity."
            )
        return MonteCarlo(
            of=self.of,
            **summary._asdict(),
            factors=self.factors,
            indices=indices,
            index_samples=index_samples,
            limits=drawn.limits,
            units=drawn.units,
            points=sum(part.points for part in parts),
            seconds=sum(part.seconds for part in parts),
            complete=all(part.complete for part in parts),
            message=" ".join(filter(None, messages)),
        )


def prepare_monte_carlo(
    what: Scenario | Callable[..., Any],
    samples: int = SAMPLES,
    *,
    numbers: Mapping[str, Any] | None = None,
    of: Sequence[str] | None = None,
    limits: Mapping[str, Any] | None = None,
    indices: bool | int = True,
    seed: int = 0,
    precision: int = 32,
) -> PreparedMonteCarlo:
    """Parse the arguments of `monte_carlo`, and lay the samples out as grids."""
    if not 1 <= samples <= MOST_SAMPLES:
        raise InputError(f"samples: {samples:,} cannot be drawn. Give 1 to {MOST_SAMPLES:,}.")
    tables: dict[str, Any] = {"seed": seed}
    numbers, limits, units = numbers or {}, limits or {}, {}
    of = outputs = tuple(of or ())
    if isinstance(what, Scenario):
        uncertain, limits = scenario_numbers(what, numbers), {**what.optimize.limits, **limits}
        of, outputs, units, tables["scenario"] = of or OF, tuple(OUTPUTS), UNITS, what.tables
    else:
        uncertain = parse_numbers(numbers)
    function, ranges = model_and_limits(what, limits)
    if not uncertain:
        raise InputError(
            'Nothing is uncertain. Give distributions, such as "system.market.price.electricity" = "lognormal 0.15" '
            "in [uncertainty]."
        )
    if not of:
        raise InputError('of: no output is named. Name one, such as "energy".')
    check_names(of, outputs)
    tables["numbers"] = {number.path: repr(number) for number in uncertain}
    model = SampledModel(function, number_sampler(uncertain), seed)
    factors = len(model.sampler.factors)
    axes = sample_axes(samples, factors, seed)
    sample = GridSample(model, axes)
    check_names((*outputs, *ranges), sample.outputs)

    def prepared(axes: Sequence[Axis], each: int, reduction: AbstractReduction) -> PreparedSweep:
        grid = divide_samples(axes, each)
        quick = isinstance(what, Scenario) and grid.points < LONG_RUN
        program = TileProgram(model, axes, grid, reduction, precision, quick)
        return PreparedSweep(program, program.axes, ranges, None, units, tables)

    spans = [sample.range(name, {}) for name in outputs]
    first = prepared(axes, 1, SampleStatistics(outputs, ranges, spans, *sample.moments(outputs)))
    second = None
    if indices is not False:
        count = math.ceil(samples / (factors + 2)) if indices is True else indices
        from_b = np.concatenate([np.zeros((1, factors)), np.ones((1, factors)), np.eye(factors)])
        axes = (*sample_axes(max(MIN_INDEX_SAMPLES, count), 2 * factors, seed), Axis("from_b", from_b))
        second = prepared(axes, factors + 2, SobolIndices(of, model.sampler.factors, *sample.moments(of)))
    return PreparedMonteCarlo(of, model.sampler.factors, first, second)


def scenario_numbers(scenario: Scenario, changed: Mapping[str, Any]) -> list[UncertainNumber]:
    """Uncertain numbers of a scenario, some with another distribution."""
    for path in changed:
        if path not in scenario.provenance:
            raise InputError(f'uncertainty: unknown path "{path}". {suggest(path, scenario.provenance)}')
    scenario = dataclasses.replace(scenario, uncertainty={**scenario.uncertainty, **changed})
    values = TrainingRun(scenario.system, scenario.plan).values
    return [
        UncertainNumber(path, values[path], scenario.provenance[path].unit, distribution, ends_of(scenario, path))
        for path, distribution in distributions(scenario, values).items()
    ]


def sample_axes(samples: int, dimensions: int, seed: int) -> tuple[Axis, Axis]:
    """Axes of at least so many samples: replicates, and the Sobol points that they shift, a power of two."""
    fewest, most = POINTS
    count = min(most, max(fewest, 2 ** max(0, (samples // MIN_REPLICATES).bit_length() - 1)))
    points = Axis("point", sobol_points(count, dimensions, seed))
    return Axis.of("replicate", range(-(-samples // count))), points


def divide_samples(axes: Sequence[Axis], each: int) -> Grid:
    """A grid cut so that a chunk holds points of one replicate only, a power of two; a sample has `each` points."""
    names, sizes = tuple(axis.name for axis in axes), tuple(map(len, axes))
    chunk = CHUNK if platform() == "cpu" else LARGE_CHUNK
    block = min(sizes[1], 2 ** max(0, (chunk // each).bit_length() - 1))
    chunks = sizes[0] * (sizes[1] // block)
    return Grid(names, sizes, 1, block, max(1, 8 * chunk // (block * each), chunks // TILES))


def check_names(names: Sequence[str], outputs: Sequence[str] | Mapping[str, Any]) -> None:
    """All names are those of outputs."""
    for name in names:
        if name not in outputs:
            raise InputError(f'Unknown output "{name}". {suggest(name, outputs)}')
