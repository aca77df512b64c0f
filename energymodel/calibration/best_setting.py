"""At which batch and power limit does a workload take the lowest energy on a device, as far as a fit can tell?"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

from energymodel.calibration.device_power import Profiles
from energymodel.calibration.intervals import LEVEL
from energymodel.calibration.job_search import next_batch
from energymodel.calibration.kernel_clock import Kernels
from energymodel.calibration.least_squares import FitResult
from energymodel.calibration.next_measurement import linearized

LOWEST_HELD = 0.48
"""Share of the rated power below which cards may fall to a lower performance state, where the error of the
time is 10 % or more [prior: four cards of experiments/02_power_limits]."""
ABOVE_LIMIT = 1.02  # of a limit, that a card which holds it may draw
STEPS = 10  # of the range between, where a card was measured at its highest limit alone
ROUND = 5.0  # limits are whole numbers of these [W]
NEAR = 0.2  # of the highest speed
POINTS = 25  # of a curve
NORMAL = 1.25  # standard deviations in a mean absolute error [definition: sqrt(pi / 2)]


class BestSetting(NamedTuple):
    """The setting of lowest energy of a workload on a device.

    - `batch`; `limit` [W], or `clock` over the profile's [1], whichever was measured.
    - `energy`, `time`: over those of the same batch at the highest limit or clock [1], with 90 % intervals.
    """

    device: str
    workload: str
    batch: float
    limit: float | None
    clock: float | None
    energy: float
    time: float
    energy_interval: tuple[float, float]
    time_interval: tuple[float, float]

    @property
    def speed(self) -> float:
        """The limit [W], or the clock [1]."""
        return float(self.limit if self.limit is not None else self.clock or 1.0)

    @property
    def saves(self) -> bool:
        """Whether it is below the highest limit or clock."""
        return self.energy < 1.0


class EnergyCurve(NamedTuple):
    """Energy for the same work over limits [W] or clocks [1] at one batch, over that at the highest [1].

    - `low`, `high`: ends of the 90 % interval.
    - `measured_speed`, `measured`: what was measured.
    """

    device: str
    workload: str
    batch: float
    speed: Float[np.ndarray, " points"]
    energy: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    measured_speed: Float[np.ndarray, " rows"]
    measured: Float[np.ndarray, " rows"]


class Asked(NamedTuple):
    """A setting to be predicted: its line in the file, the row of its profile, and its limit [W] or clock over the
    profile's [1].
    """

    line: int
    profile: int
    speed: float


class PredictedSetting(NamedTuple):
    """Time [s] and mean power [W] of a setting that was not measured, with 90 % intervals."""

    line: int
    device: str
    workload: str
    batch: float
    limit: float | None
    clock: float | None
    time: float
    time_interval: tuple[float, float]
    power: float
    power_interval: tuple[float, float]


class NextRun(NamedTuple):
    """The batch that a job should be trained at next, to find the one that takes the least energy to its target."""

    device: str
    workload: str
    batch: float


class Recommendation(NamedTuple):
    """The best settings, the energy about them, which batches to try, where epochs to a target are known, and the
    settings that were asked for.
    """

    settings: tuple[BestSetting, ...] = ()
    curves: tuple[EnergyCurve, ...] = ()
    runs: tuple[NextRun, ...] = ()
    asked: tuple[PredictedSetting, ...] = ()


class Settings(NamedTuple):
    """What was measured, by row: profiles, and words for them.

    - `epochs`: times that a run to its target does the work that was timed, by row: infinite where it does not reach
      it, 1 where nobody says.
    - `noise`: standard deviation of the logarithm of the energy of a repeated run [1].
    - `asked`: settings to be predicted.
    """

    runs: Profiles | Kernels
    is_profile: Bool[np.ndarray, " rows"]
    workload: np.ndarray
    batch: Float[np.ndarray, " rows"]
    devices: tuple[str, ...]
    epochs: Float[np.ndarray, " rows"]
    noise: float = 0.0
    asked: tuple[Asked, ...] = ()


def lowest_energy(
    energy: Float[np.ndarray, " settings"], is_profile: Bool[np.ndarray, " settings"], error: float
) -> int:
    """The setting of lowest energy; a predicted one must save more than its error to beat a measured one.

    The lowest of many predictions is too low, the more so the larger their error: a workload that leaves its device
    waiting has the same energy at all limits but for noise, and a lower limit can only cost it time.

    **Arguments:**

    - `energy`: measured of profiles, predicted of all others, for the same work [J].
    - `is_profile`: which settings were measured.
    - `error`: usual logarithmic error of predictions [1].

    **Returns:** its place.
    """
    return int(np.argmin(np.where(is_profile, energy, energy * np.exp(error))))


def lowest_limits(settings: Settings) -> Float[np.ndarray, " rows"]:
    """By row the lowest limit of its device that may be chosen, 0 if only clocks were set [W].

    None is one that the device was measured to exceed, in most rows that it holds back, nor one below `LOWEST_HELD` of
    its rated power, unless it was measured to hold that.
    """
    runs = settings.runs
    lowest = np.zeros(len(runs.clock))
    if not runs.by_limit:
        return lowest
    device, limit = np.asarray(runs.device), np.asarray(runs.limit)
    for one in np.unique(device):
        rows = (device == one) & np.isfinite(limit)
        limits = np.unique(limit[rows])
        reached = rows & (np.asarray(runs.reference_power) > limit)  # rows that the limit holds back
        ratios = [np.asarray(runs.power)[reached & (limit == at)] / at for at in limits]
        exceeded = [
            at for at, ratio in zip(limits, ratios, strict=True) if len(ratio) and np.median(ratio) > ABOVE_LIMIT
        ]
        above = float(max(exceeded, default=0.0))
        measured = limits[limits > above]
        usual = LOWEST_HELD * float(np.max(runs.rated_power[device == one]))
        seen = float(measured[0]) if len(measured) else float(limits[-1])
        lowest[device == one] = min(seen, max(usual, np.nextafter(above, np.inf)))
    return lowest


class _Change(NamedTuple):
    """Logarithms of time, energy and power over those of the profile, by setting, and their standard deviations."""

    log: Float[np.ndarray, "settings 3"]
    spread: Float[np.ndarray, "settings 3"]

    def interval(self) -> Float[np.ndarray, "2 settings 3"]:
        """Ends of the 90 % interval of the ratios."""
        half = float(ndtri(0.5 + 0.5 * LEVEL)) * self.spread
        return np.exp(np.stack([self.log - half, self.log + half]))


def _change(found: FitResult, settings: Settings, row: np.ndarray, speed: np.ndarray, error: float) -> _Change:
    table = settings.runs.at_speeds(row, speed)
    errors, slopes = linearized(found, table._replace(time=table.reference_time, power=table.reference_power))
    slopes = np.stack([slopes[:, 0], slopes.sum(axis=1), slopes[:, 1]], axis=1)
    # At the highest speed the profile itself is known; from NEAR below it on errors are what they usually are.
    highest = np.where(np.isfinite(top := _speeds(settings.runs)[row]), top, np.asarray(settings.runs.rated_power)[row])
    usual = NORMAL * error * np.clip((1.0 - speed / highest) / NEAR, 0.0, 1.0)
    variance = np.einsum("rai,ij,raj->ra", slopes, found.covariance, slopes) + usual[:, None] ** 2
    return _Change(np.stack([errors[:, 0], errors.sum(axis=1), errors[:, 1]], axis=1), np.sqrt(variance))


def _asked(found: FitResult, settings: Settings, error: float) -> tuple[PredictedSetting, ...]:
    if not settings.asked:
        return ()
    runs, row = settings.runs, np.array([one.profile for one in settings.asked])
    speed = np.array([one.speed for one in settings.asked])
    change = _change(found, settings, row, speed, error)
    reference = np.stack([runs.reference_time, runs.reference_power], axis=1)[row]
    middle, ends = reference * np.exp(change.log[:, ::2]), reference * change.interval()[:, :, ::2]
    devices = _devices(settings)
    return tuple(
        PredictedSetting(
            line=one.line,
            device=devices[one.profile],
            workload=str(settings.workload[one.profile]),
            batch=float(settings.batch[one.profile]),
            limit=one.speed if runs.by_limit else None,
            clock=None if runs.by_limit else one.speed,
            time=float(middle[place, 0]),
            time_interval=(float(ends[0, place, 0]), float(ends[1, place, 0])),
            power=float(middle[place, 1]),
            power_interval=(float(ends[0, place, 1]), float(ends[1, place, 1])),
        )
        for place, one in enumerate(settings.asked)
    )


def recommendation(found: FitResult, settings: Settings, error: float, most_slowdown: float = np.inf) -> Recommendation:
    """The best among all profiled batches and limits (or clocks), by device and workload, for the same work.

    Limits are those that were measured; where only the highest was, steps between it and the lowest that is held. A
    larger batch needs more work to the same loss: `Settings.epochs` says so, else `calibrate batch` and `optimize`.

    **Arguments:**

    - `found`: fitted constants, or those of the prior.
    - `error`: see `lowest_energy`; repeated runs of one setting differ by `Settings.noise`, which adds to it.
    - `most_slowdown`: time over that of the same batch at the highest limit or clock that is allowed [1].

    **Returns:** one setting and one curve for each device and workload, and the settings that were asked for.
    """
    runs, error = settings.runs, float(np.hypot(error, settings.noise))
    row, at = _candidates(settings)
    measured = at == _speeds(runs)[row]
    change = _change(found, settings, row, at, error)
    log = np.where(measured[:, None], 0.0, change.log)
    ends = np.where(measured[:, None], 1.0, change.interval())
    profile = (np.asarray(runs.reference_time * runs.reference_power) * settings.epochs)[row]
    allowed = measured | (log[:, 0] <= np.log(most_slowdown))
    names = np.array(
        [f"{device}\n{word}" for device, word in zip(_devices(settings), settings.workload.tolist(), strict=True)]
    )
    best, curves, next_runs = [], [], []
    for name in dict.fromkeys(names.tolist()):
        places = np.flatnonzero((names[row] == name) & allowed)
        place = int(places[lowest_energy((profile * np.exp(log[:, 1]))[places], measured[places], error)])
        device, _, word = name.partition("\n")
        best.append(
            BestSetting(
                device=device,
                workload=word,
                batch=float(settings.batch[row[place]]),
                limit=float(at[place]) if runs.by_limit else None,
                clock=None if runs.by_limit else float(at[place]),
                energy=float(np.exp(log[place, 1])),
                time=float(np.exp(log[place, 0])),
                energy_interval=(float(ends[0, place, 1]), float(ends[1, place, 1])),
                time_interval=(float(ends[0, place, 0]), float(ends[1, place, 0])),
            )
        )
        curves.append(_curve(found, settings, best[-1], int(row[place]), error))
        if np.any(settings.epochs[row[places]] != 1.0):
            energy = (profile * np.exp(log[:, 1]))[places]
            own = settings.batch[row[places]]
            tried = {float(one): float(np.min(energy[own == one])) for one in np.unique(own)}
            if (batch := next_batch(_near(tried), tried, best[-1].batch, 2, settings.noise)) is not None:
                next_runs.append(NextRun(device, word, batch))
    return Recommendation(tuple(best), tuple(curves), tuple(next_runs), _asked(found, settings, error))


def _near(tried: Mapping[float, float]) -> list[float]:
    """Batches that were tried, and twice and half of each."""
    more = [round(one * factor) for one in tried for factor in (0.5, 2.0)]
    return sorted({*tried, *(float(one) for one in more if one >= 1)})


def _curve(found: FitResult, settings: Settings, best: BestSetting, profile: int, error: float) -> EnergyCurve:
    """Energy at the batch of a best setting, from the lowest speed that was measured or may be chosen."""
    runs, speeds = settings.runs, _speeds(settings.runs)
    same = (np.asarray(runs.device) == runs.device[profile]) & (settings.workload == best.workload)
    same &= (settings.batch == best.batch) & np.isfinite(speeds)
    highest = float(speeds[profile]) if np.isfinite(speeds[profile]) else float(runs.rated_power[profile])
    lowest = LOWEST_HELD * highest
    if np.any(same):
        lowest = min(lowest, float(np.min(speeds[same])))
    speed = np.linspace(lowest, highest, POINTS)
    change = _change(found, settings, np.full(POINTS, profile), speed, error)
    low, high = change.interval()[:, :, 1]
    energy = np.asarray(runs.time * runs.power) / float(runs.time[profile] * runs.power[profile])
    return EnergyCurve(
        best.device, best.workload, best.batch, speed, np.exp(change.log[:, 1]), low, high, speeds[same], energy[same]
    )


def _speeds(runs: Profiles | Kernels) -> Float[np.ndarray, " rows"]:
    """Limits [W], or clocks where only these were set [1]."""
    return np.asarray(runs.limit if runs.by_limit else runs.clock, np.float64)


def _devices(settings: Settings) -> list[str]:
    return [settings.devices[place] for place in np.asarray(settings.runs.device)]


def _candidates(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Rows of profiles, each with all speeds of its device up to its own that may be chosen."""
    runs, is_profile = settings.runs, settings.is_profile
    speed, device = _speeds(runs), np.asarray(runs.device)
    lowest, pairs = lowest_limits(settings), []
    for profile in np.flatnonzero(is_profile):
        own = ~is_profile & (device == device[profile]) & np.isfinite(speed)
        lower = np.unique(speed[own])
        if not len(lower) and np.isfinite(speed[profile]):
            lower = steps_below(float(speed[profile]), float(lowest[profile]) if runs.by_limit else LOWEST_HELD)
        lower = lower[(lower >= lowest[profile]) & (lower < speed[profile])]
        pairs += [(profile, speed[profile]), *((profile, one) for one in lower)]
    return np.array([row for row, _ in pairs]), np.array([at for _, at in pairs])


def steps_below(highest: float, lowest: float) -> Float[np.ndarray, " steps"]:
    """Speeds to choose from below the highest: limits in whole steps of 5 W, or shares of a clock."""
    even = np.linspace(lowest, highest, STEPS, endpoint=False)
    if highest <= 1.0:
        return np.round(even, 2)
    return np.unique(np.ceil(even / ROUND) * ROUND)
