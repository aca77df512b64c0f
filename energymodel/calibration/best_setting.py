"""At which batch and power limit does a workload take the lowest energy on a device, as far as a fit can tell?"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from energymodel.calibration.constant_priors import Values
from energymodel.calibration.device_power import Profiles, predict_power


class BestSetting(NamedTuple):
    """The setting of lowest energy of a workload.

    - `batch`; `limit` [W], or `clock` over the profile's [1], whichever was measured.
    - `energy`, `time`: over those of the same batch at the highest limit or clock [1].
    """

    workload: str
    batch: float
    limit: float | None
    clock: float | None
    energy: float
    time: float


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


def best_settings(
    values: Values,
    runs: Profiles,
    is_profile: Bool[np.ndarray, " rows"],
    workload: Sequence[str] | np.ndarray,
    batch: Float[np.ndarray, " rows"],
    error: float,
) -> tuple[BestSetting, ...]:
    """The best among all profiled batches and measured limits (or clocks), by workload, for the same work.

    A larger batch needs more work to the same loss: what that costs is for `calibrate batch` and `optimize` to say.

    **Arguments:**

    - `values`, `runs`, `is_profile`: fitted constants, and profiles from `device_power.profiles`.
    - `workload`, `batch`: of the rows.
    - `error`: see `lowest_energy`.

    **Returns:** one setting for each workload.
    """
    by_limit = runs.by_limit
    speed = np.asarray(runs.limit if by_limit else runs.clock)
    profiles = np.flatnonzero(is_profile)
    lower = np.unique(speed[~is_profile & np.isfinite(speed)])
    row, at = (one.ravel() for one in np.meshgrid(profiles, lower, indexing="ij"))
    below = at < speed[row]
    row, at = np.concatenate([profiles, row[below]]), np.concatenate([speed[profiles], at[below]])
    measured, table = np.arange(len(row)) < len(profiles), runs.at_speeds(row, at)
    with jax.enable_x64(True):
        time, watt = (np.asarray(one, np.float64) for one in predict_power(values, table))
    time = np.where(measured, table.reference_time, time)
    energy = np.where(measured, table.reference_time * table.reference_power, time * watt)
    names, best = np.asarray(workload), []
    for name in dict.fromkeys(names.tolist()):
        places = np.flatnonzero(names[row] == name)
        place = int(places[lowest_energy(energy[places], measured[places], error)])
        profile = float(table.reference_time[place] * table.reference_power[place])
        speed_here = float(at[place])
        best.append(
            BestSetting(
                name,
                float(batch[row[place]]),
                speed_here if by_limit else None,
                None if by_limit else speed_here,
                float(energy[place]) / profile,
                float(time[place] / table.reference_time[place]),
            )
        )
    return tuple(best)
