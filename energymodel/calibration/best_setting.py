"""Batch and power limit of lowest energy of a workload on a device, with intervals, by a fit of its power."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr, ndtri

from energymodel.calibration.device_power import Profiles
from energymodel.calibration.intervals import LEVEL
from energymodel.calibration.least_squares import FitResult
from energymodel.calibration.power_population import Architecture

LOWEST_HELD = 0.48
"""Share of the rated power below which cards may fall to a lower performance state, where the error of the
time is 10 % or more [prior: four cards of experiments/02_power_limits]."""
ABOVE_LIMIT = 1.02  # of a limit, that a card which holds it may draw
STEPS = 10  # of the range between, where a card was measured at its highest limit alone
ROUND = 5.0  # limits are whole numbers of these [W]
NEAR = 0.2  # of the highest speed
POINTS = 25  # of a curve
NORMAL = 1.25  # standard deviations in a mean absolute error [definition: sqrt(pi / 2)]
OCTAVES = 2.0  # of the batch, after which energies are hardly alike [prior]
FAILED = np.log(1.3)  # that a batch which misses the target counts above the worst that reached it [prior]
LOWEST_NOISE = 0.01  # of the logarithm of an energy [prior]
LOWEST_SCALE = 0.3  # of the logarithm of energies over batches


class PowerSetting(NamedTuple):
    """Time, energy and power of a workload at a setting of a device, with 90 % intervals.

    Those of a best setting are over those of the same batch at the highest limit or clock [1]; those of a setting that
    was asked about, in a `line` of the table, in s, J and W.
    """

    device: str
    workload: str
    batch: float
    limit: float | None  # [W]
    clock: float | None  # over the profile's [1]
    time: float
    energy: float
    power: float
    time_interval: tuple[float, float]
    energy_interval: tuple[float, float]
    power_interval: tuple[float, float]
    line: int = 0

    @property
    def speed(self) -> float:
        """The limit [W], or the clock [1]."""
        return float(self.limit if self.limit is not None else self.clock or 1.0)

    @property
    def saves(self) -> bool:
        """Whether it takes less energy than the highest limit or clock."""
        return self.energy < 1.0


class EnergyCurve(NamedTuple):
    """Energy of a best setting's work and batch over limits [W] or clocks [1], over that at the highest [1], with the
    90 % interval and what was measured.
    """

    speed: Float[np.ndarray, " points"]
    energy: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    measured_speed: Float[np.ndarray, " rows"]
    measured: Float[np.ndarray, " rows"]


class Recommendation(NamedTuple):
    """The best settings, the curve about each, and the settings that were asked about."""

    settings: tuple[PowerSetting, ...] = ()
    curves: tuple[EnergyCurve, ...] = ()
    runs: tuple[tuple[str, str, float], ...] = ()  # device, workload, batch to try where epochs to a target are known
    asked: tuple[PowerSetting, ...] = ()


class Settings(NamedTuple):
    """Measured settings of devices by row, and words for them.

    Epochs are the times that a run to its target does the work that was timed: infinite where it does not reach it, 1
    where none is stated. What is asked is a line of the file, the row of its profile, and a limit [W] or a clock over
    the profile's [1].
    """

    runs: Profiles
    is_profile: Bool[np.ndarray, " rows"]
    workload: np.ndarray
    batch: Float[np.ndarray, " rows"]
    devices: tuple[str, ...]
    epochs: Float[np.ndarray, " rows"]
    noise: float = 0.0  # standard deviation of the logarithm of the energy of a repeated run [1]
    asked: Sequence[tuple[int, int, float]] = ()
    architectures: tuple[Architecture | None, ...] = ()  # of the devices
    idle_guesses: tuple[str, ...] = ()  # where idle powers of the devices are from, unless they were measured

    @property
    def several(self) -> bool:
        """Whether there is more than one device."""
        return len(self.devices) > 1

    @property
    def limits(self) -> Float[np.ndarray, " limits"]:
        """Limits that were set, in order [W]."""
        return np.unique(self.runs.limit[np.isfinite(self.runs.limit)])

    @property
    def has_architectures(self) -> bool:
        """Whether the architecture of every device is known."""
        return all(architecture is not None for architecture in self.architectures)

    def setting(self, row: int, speed: float, estimates: Float[np.ndarray, "3 3"], line: int = 0) -> PowerSetting:
        """The workload of a row at a speed, from time, energy and power (columns) with their ends (rows)."""
        whose = self.devices[self.runs.device[row]], str(self.workload[row]), float(self.batch[row])
        at = (speed, None) if self.runs.by_limit else (None, speed)
        (time, energy, power), *ends = estimates.tolist()
        times, energies, powers = zip(*ends, strict=True)
        return PowerSetting(*whose, *at, time, energy, power, times, energies, powers, line)


def lowest_energy(
    energy: Float[np.ndarray, " settings"], is_profile: Bool[np.ndarray, " settings"], error: float
) -> int:
    """The setting of lowest energy; a predicted one must save more than its error to beat a measured one.

    The lowest of many predictions is too low, the more so the larger their error: a workload that leaves its device
    waiting has the same energy at all limits but for noise, and a lower limit can only cost it time.

    **Arguments:** energies for the same work, measured of profiles and predicted of all others [J]; the usual
    logarithmic error of predictions [1].

    **Returns:** its index.
    """
    return int(np.argmin(np.where(is_profile, energy, energy * np.exp(error))))


def lowest_limits(settings: Settings) -> Float[np.ndarray, " rows"]:
    """By row the lowest limit of its device that may be chosen, 0 if only clocks were set [W].

    None is one that the device was measured to exceed, in most rows that it holds back, nor one below `LOWEST_HELD` of
    its rated power, unless it was measured to hold that.
    """
    runs = settings.runs
    lowest = np.zeros(len(runs.clock))
    device, limit = np.asarray(runs.device), np.asarray(runs.limit)
    for number in np.unique(device) if runs.by_limit else ():
        own = device == number
        limits, above = np.unique(limit[own & np.isfinite(limit)]), 0.0
        for at in limits:
            reached = own & (limit == at) & (np.asarray(runs.reference_power) > limit)  # rows that the limit holds back
            if np.any(reached) and np.median(np.asarray(runs.power)[reached] / at) > ABOVE_LIMIT:
                above = float(at)
        measured = float(limits[limits > above][0]) if np.any(limits > above) else float(limits[-1])
        usual = LOWEST_HELD * float(np.max(runs.rated_power[own]))
        lowest[own] = min(measured, max(usual, np.nextafter(above, np.inf)))
    return lowest


def _changes(fitted: FitResult, settings: Settings, row: np.ndarray, speed: np.ndarray, error: float) -> np.ndarray:
    """Ratios of time, energy and power to those of profiles, and the ends of their 90 % intervals: (3, settings, 3)."""
    runs = settings.runs
    table = runs.at_speeds(row, speed)
    at_fit = fitted.at(table._replace(time=table.reference_time, power=table.reference_power))
    sums = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    log, slopes = at_fit.errors[0] @ sums, np.einsum("roi,oa->rai", at_fit.slopes[0], sums)
    # At the highest speed the profile itself is known; from NEAR below it on errors are what they usually are.
    highest = np.where(np.isfinite(top := runs.speeds[row]), top, np.asarray(runs.rated_power)[row])
    usual = NORMAL * error * np.clip((1.0 - speed / highest) / NEAR, 0.0, 1.0)
    variance = np.einsum("rai,ij,raj->ra", slopes, fitted.covariance, slopes) + usual[:, None] ** 2
    half = float(ndtri(0.5 + 0.5 * LEVEL)) * np.sqrt(variance)
    return np.exp([log, log - half, log + half])


def recommendation(
    fitted: FitResult, settings: Settings, error: float, most_slowdown: float = np.inf
) -> Recommendation:
    """The best among all profiled batches and limits (or clocks), by device and workload, for the same work.

    Limits are those that were measured; where only the highest was, steps between it and the lowest that is held. A
    larger batch needs more work to the same loss: `Settings.epochs` says so, else `calibrate batch` and `optimize`.

    **Arguments:**

    - `error`: see `lowest_energy`; repeated runs of one setting differ by `Settings.noise`, which adds to it.
    - `most_slowdown`: time over that of the same batch at the highest limit or clock that is allowed [1].
    """
    runs, error = settings.runs, float(np.hypot(error, settings.noise))
    row, speed = _candidates(settings)
    measured = speed == runs.speeds[row]
    change = np.where(measured[:, None], 1.0, _changes(fitted, settings, row, speed, error))
    energy = (np.asarray(runs.time * runs.power) * settings.epochs)[row] * change[0, :, 1]
    allowed = measured | (change[0, :, 0] <= most_slowdown)
    device = np.asarray(runs.device)[row]
    best, curves, next_runs = [], [], []
    for number, workload in dict.fromkeys(zip(runs.device.tolist(), settings.workload.tolist(), strict=True)):
        own = np.flatnonzero((device == number) & (settings.workload[row] == workload) & allowed)
        lowest = int(own[lowest_energy(energy[own], measured[own], error)])
        best.append(settings.setting(row[lowest], float(speed[lowest]), change[:, lowest]))
        curves.append(_curve(fitted, settings, best[-1], int(row[lowest]), error))
        if np.any(settings.epochs[row[own]] != 1.0):
            batches = settings.batch[row[own]]
            tried = {float(size): float(np.min(energy[own][batches == size])) for size in np.unique(batches)}
            near = {round(size * factor) for size in tried for factor in (0.5, 2.0)}
            options = sorted({*tried, *(float(size) for size in near if size >= 1)})
            following = next_batch(options, tried, best[-1].batch, 2, settings.noise)
            next_runs += [] if following is None else [(best[-1].device, workload, following)]
    asked = []
    for line, profile, own in settings.asked:
        time, power = float(runs.reference_time[profile]), float(runs.reference_power[profile])
        (estimates,) = np.moveaxis(_changes(fitted, settings, np.array([profile]), np.array([own]), error), 1, 0)
        asked.append(settings.setting(profile, own, estimates * [time, time * power, power], line))
    return Recommendation(tuple(best), tuple(curves), tuple(next_runs), tuple(asked))


def _curve(fitted: FitResult, settings: Settings, best: PowerSetting, profile: int, error: float) -> EnergyCurve:
    """Energy at the batch of a best setting, from the lowest speed that was measured or may be chosen."""
    runs, speeds = settings.runs, settings.runs.speeds
    same = (np.asarray(runs.device) == runs.device[profile]) & (settings.workload == best.workload)
    same &= (settings.batch == best.batch) & np.isfinite(speeds)
    highest = float(speeds[profile]) if np.isfinite(speeds[profile]) else float(runs.rated_power[profile])
    lowest = min(LOWEST_HELD * highest, float(np.min(speeds[same], initial=np.inf)))
    speed = np.linspace(lowest, highest, POINTS)
    change = _changes(fitted, settings, np.full(POINTS, profile), speed, error)
    energy = np.asarray(runs.time * runs.power) / float(runs.time[profile] * runs.power[profile])
    middle, low, high = change[:, :, 1]
    return EnergyCurve(speed, middle, low, high, speeds[same], energy[same])


def _candidates(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Rows of profiles, each with all speeds of its device up to its own that may be chosen."""
    runs, is_profile = settings.runs, settings.is_profile
    speed, device, lowest = runs.speeds, np.asarray(runs.device), lowest_limits(settings)
    rows, speeds = [], []
    for profile in np.flatnonzero(is_profile):
        lower = np.unique(speed[~is_profile & (device == device[profile]) & np.isfinite(speed)])
        if not len(lower) and np.isfinite(speed[profile]):
            lower = steps_below(float(speed[profile]), float(lowest[profile]) if runs.by_limit else LOWEST_HELD)
        speeds += [speed[profile], *lower[(lower >= lowest[profile]) & (lower < speed[profile])]]
        rows += [profile] * (len(speeds) - len(rows))
    return np.array(rows), np.array(speeds)


def steps_below(highest: float, lowest: float) -> Float[np.ndarray, " steps"]:
    """Speeds to choose from below the highest: limits in whole steps of 5 W, or shares of a clock."""
    even = np.linspace(lowest, highest, STEPS, endpoint=False)
    return np.round(even, 2) if highest <= 1.0 else np.unique(np.ceil(even / ROUND) * ROUND)


def next_batch(
    batches: Sequence[float], tried: Mapping[float, float], first: float, runs_left: int, noise: float = 0.0
) -> float | None:
    """The batch that a job, which is trained again and again, tries next to reach its target with the lowest energy.

    That of the largest expected improvement [Jones et al. 1998], under a Gaussian process over the logarithm of the
    batch: energies may have more than one minimum. The last runs are for the neighbors of the best, on both sides. In a
    run every limit is read for a while, so that it shows the energy at the best of them [You et al. 2023, sec. 4.2].

    **Arguments:**

    - `batches`: that may be run, above 0.
    - `tried`: energy to the target by batch, all among `batches` [J]; infinite where it was not reached.
    - `first`: batch to begin with; the nearest of `batches` is taken.
    - `runs_left`: including the one that is asked for.
    - `noise`: standard deviation of the logarithm of the energy of a repeated run [1].

    **Returns:** one of `batches`, or `None` if no run or no batch is left.
    """
    grid = np.unique(np.asarray(batches, np.float64))
    energy = np.array([tried.get(batch, np.nan) for batch in grid.tolist()])
    untried, done = np.flatnonzero(np.isnan(energy)).tolist(), np.flatnonzero(~np.isnan(energy)).tolist()
    if runs_left < 1 or not untried:
        return None
    if not tried:
        return float(grid[np.argmin(np.abs(np.log(grid / first)))])
    energy = energy[done]
    reached = np.isfinite(energy)
    if not np.any(reached):
        # Far from all that failed.
        distance = np.abs(np.log(grid[untried][:, None] / grid[done][None])).min(axis=1)
        return float(grid[untried[int(np.argmax(distance))]])
    best = done[int(np.argmin(energy))]
    beside = [at for at in (best - 1, best + 1) if at in untried]
    log = np.log(np.where(reached, energy, np.max(energy[reached])))
    log = np.where(reached, log, np.max(log) + FAILED)
    gain = _expected_improvement(np.log2(grid), done, log, max(noise, LOWEST_NOISE))
    options = beside if beside and runs_left <= len(beside) else untried
    return float(grid[max(options, key=lambda at: gain[at])])


def _expected_improvement(x: np.ndarray, done: list[int], log: np.ndarray, noise: float) -> np.ndarray:
    """At all x, below the lowest that is known, with a process of Matern's kernel with smoothness 5/2."""
    scale = max(float(np.std(log)), LOWEST_SCALE)
    distance = np.sqrt(5.0) * np.abs(x[:, None] - x[None]) / OCTAVES
    kernel = scale**2 * (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    gain = kernel[:, done] @ np.linalg.inv(kernel[np.ix_(done, done)] + noise**2 * np.eye(len(done)))
    mean = np.mean(log) + gain @ (log - np.mean(log))
    spread = np.sqrt(np.maximum(np.diag(kernel) - np.sum(gain * kernel[:, done], axis=1), 1e-12))
    below = float(np.min(log)) - mean
    z = below / spread
    return below * ndtr(z) + spread * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
