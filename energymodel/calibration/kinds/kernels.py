"""What do the times and powers of kernels at several clocks say of a device: form `counters` of `calibrate power`?

The constants are those of `kernel_clock`: a share of time in which the memory transfers, read from a counter at the
highest clock, determines how a kernel's time and power fall with the clock.
"""

from functools import partial

import numpy as np

from energymodel.calibration.best_setting import Settings, recommendation
from energymodel.calibration.calibration_case import (
    CHIP,
    CalibrationCase,
    Candidates,
    ChosenForm,
    FittedNumber,
    Grouping,
    KnownNumber,
)
from energymodel.calibration.device_family import architecture_of
from energymodel.calibration.device_power import NOISE, OPTIONS
from energymodel.calibration.kernel_clock import CONSTANTS, Kernels, kernel_errors
from energymodel.calibration.kinds.power_table import ACTIVITY, asked_settings, averaged, labels_of
from energymodel.calibration.least_squares import FitProblem
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.power_population import kernel_population
from energymodel.errors import InputError
from energymodel.scenarios.scenario import Scenario

FORM = "counters"
LOWEST = 0.35
"""Of the highest clock: below it the voltage has another floor, and cores do not run at the clock that is set."""
SPLITS = 8  # of the range of clocks, where candidates lie


def has_counters(table: Measurements) -> bool:
    """Whether a table is of clocks that were set, with the activity of the memory."""
    return ACTIVITY in table.columns and "clock_hz" in table.columns and "power_limit_w" not in table.columns


def kernel_case(table: Measurements, asked: Measurements, prior: Scenario | None, *, named: bool) -> CalibrationCase:
    """Nine constants of a device from its kernels at several clocks, see `kernel_clock.split_power`.

    **Arguments:**

    - `asked`: rows to be predicted.
    - `named`: whether the form was asked for by name.

    **Raises:** `InputError` for several devices, or where the counter is missing at the highest clock.
    """
    if not has_counters(table):
        raise InputError(
            f"{table.path}, line 1: form {FORM} needs columns clock_hz [Hz] and {ACTIVITY} [1], and no power_limit_w."
        )
    devices = [str(name) for name in dict.fromkeys(table.text("gpu", "").tolist())]
    if len(devices) > 1:
        raise InputError(
            f'{table.path}: column "gpu" holds {", ".join(devices)}; form {FORM} is of one device. Choose it with '
            f"--where gpu={devices[0]}."
        )
    table, noise, repeats = averaged(table)
    columns, count = table.columns, len(table)
    kernel, batch = labels_of(table), columns.get("batch", np.ones(count))
    runs, is_profile = _joined(table, kernel, batch)
    card = architecture_of(devices[0]) if devices[0] else None
    tested = ~is_profile & (np.asarray(runs.clock) >= LOWEST)
    population = kernel_population()
    words = columns.get("benchmark", kernel)
    groups = Grouping(words, "benchmark") if len({*words.tolist()}) > 1 else Grouping(kernel, "kernel")
    predicted = asked_settings(asked, table, kernel, is_profile, by_limit=False)
    settings = Settings(runs, is_profile, kernel, batch, tuple(devices), np.ones(count), noise or 0.0, predicted)
    reason = "it was asked for" if named else f"the table has the counter {ACTIVITY}"
    power = float(runs.device_power[0])
    highest = f"of the highest power that was measured, {power:g} W"
    numbers = {f"{CHIP}.{name}": FittedNumber("static", 0.5 * power, "W") for name in ("leakage.power", "fixed_power")}
    numbers |= {f"{CHIP}.voltage.{name}": FittedNumber(f"voltage_{name}", 1.0, "1") for name in ("floor", "knee")}
    if prior is not None and not hasattr(prior.system.accelerator.voltage, "floor"):
        numbers = {}
    notes = [
        f"Shares of device power are {highest}.",
        f"Clocks below {100 * LOWEST:.0f} % of the highest are not fitted.",
    ]
    if not np.any(tested):
        notes.append("Nothing was measured at lower clocks: all constants are those of other cards.")
    return CalibrationCase(
        fit=FitProblem(kernel_errors, CONSTANTS, runs, tested.astype(float), NOISE, OPTIONS, population.of([card])),
        groups=groups,
        outputs={"time": (1.0, 0.0), "power": (0.0, 1.0), "energy": (1.0, 1.0)},
        along=("clock [MHz]", columns["clock_hz"] / 1e6),
        candidates=_candidates(settings),
        fitted_numbers=numbers,
        notes=(*repeats, *notes),
        law=partial(_lowest_clock, float(np.min(np.asarray(runs.clock)[tested], initial=1.0))),
        law_needs=(),
        range={"gpu": devices[0]} if devices[0] else {},
        usual_errors=population.errors,
        form=ChosenForm(FORM, reason),
        best=lambda found, error, slowdown: recommendation(found, settings, error["energy"], slowdown),
    )


def _joined(table: Measurements, kernel: np.ndarray, batch: np.ndarray) -> tuple[Kernels, np.ndarray]:
    """Each row with the profile of its kernel, at the highest clock; and which rows are profiles."""
    columns, count = table.columns, len(table)
    clock, anchor = columns["clock_hz"], np.zeros(count, int)
    for name, size in dict.fromkeys(zip(kernel.tolist(), batch.tolist(), strict=True)):
        own = np.flatnonzero((kernel == name) & (batch == size))
        anchor[own] = own[np.argmax(clock[own])]
    activity = columns[ACTIVITY][anchor]
    if not np.all(np.isfinite(activity)):
        line = int(table.lines[anchor[np.flatnonzero(~np.isfinite(activity))[0]]])
        raise InputError(f'{table.path}, line {line}, column "{ACTIVITY}": empty at the highest clock of a kernel.')
    if np.any(activity > 1.0):
        line = int(table.lines[anchor[np.flatnonzero(activity > 1.0)[0]]])
        raise InputError(
            f'{table.path}, line {line}, column "{ACTIVITY}": a share of time is at most 1, not a percentage.'
        )
    runs = Kernels(
        clock=clock / clock[anchor],
        reference_time=columns["time_s"][anchor],
        reference_power=columns["power_w"][anchor],
        memory_activity=activity,
        second_clock=np.zeros(count),
        second_time=np.ones(count),
        device_power=np.full(count, np.max(columns["power_w"])),
        time=columns["time_s"],
        power=columns["power_w"],
    )
    return runs, anchor == np.arange(count)


def _lowest_clock(lowest: float, values: object) -> dict[str, KnownNumber]:
    if lowest == 1.0:
        return {}
    return {f"{CHIP}.minimum_clock": KnownNumber(lowest, "1", "the lowest clock that was fitted")}


def _candidates(settings: Settings) -> Candidates:
    """Clocks between the lowest that may be chosen and the highest, of every kernel."""
    steps = np.linspace(LOWEST, 1.0, SPLITS, endpoint=False)
    pairs = Candidates.thinned([(row, step) for row in np.flatnonzero(settings.is_profile) for step in steps])
    chosen, at = np.array([row for row, _ in pairs]), np.array([step for _, step in pairs])
    words = [f"{settings.workload[row]} at {step:.3g} of its highest clock" for row, step in pairs]
    return Candidates(settings.runs.at_speeds(chosen, at), words)
