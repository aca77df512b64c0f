"""Kind `power`: constants of devices from times and powers at power limits or clocks, and settings of lowest energy.

The law has three forms. `voltage-floor` and `posynomial` (`device_power`) carry a profile to lower limits and clocks;
`counters` (`kernel_clock`) carries kernels to lower clocks by the share of time in which the memory transfers.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from energymodel.calibration.best_setting import LOWEST_HELD, Settings, lowest_limits, recommendation
from energymodel.calibration.calibration_case import (
    CHIP,
    CalibrationCase,
    Candidates,
    ChosenForm,
    FittedNumber,
    Grouping,
)
from energymodel.calibration.constant_priors import ConstantPriors, JointPrior, joint_prior
from energymodel.calibration.device_power import FORMS, NOISE, OPTIONS, Profiles, power_constants, power_errors
from energymodel.calibration.kernel_clock import CONSTANTS, kernel_errors
from energymodel.calibration.kinds.power_runs import (
    NO_NAME,
    Cards,
    PowerRuns,
    cards_of,
    fitted_numbers,
    has_floor,
    known_numbers,
    lowest_clock,
    measured_range,
    minimum_clock,
    power_notes,
    power_runs,
)
from energymodel.calibration.kinds.power_table import ACTIVITY, averaged, check_limits, split_asked
from energymodel.calibration.least_squares import FitProblem
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.power_population import KERNELS, architecture_of, likenesses, power_population
from energymodel.errors import InputError
from energymodel.physics.voltage import PosynomialVoltage
from energymodel.scenarios.scenario import Scenario

COUNTERS = "counters"
POWER_FORMS = (*FORMS, COUNTERS)
FEWEST_LIMITS = 3  # below the highest, in a workload, that floor and knee of the voltage need
SPLITS = 8  # of the range of limits or clocks, where candidates lie
SAME = 0.95  # of the rated power of a device: closer, it counts as the same where neither has a name
LOWEST_CLOCK = 0.35
"""Of the highest: below it the voltage has another floor, and cores do not run at the clock that is set."""


def power_case(table: Measurements, prior: Scenario | None, form: str | None = None) -> CalibrationCase:
    """Time and power of devices at power limits or clocks, in one form of the law.

    Where every row is at the highest limit nothing is fitted: the constants are those of other cards or of the prior.

    **Arguments:**

    - `form`: one of `POWER_FORMS`; by default that of kernels where their counters are there, else the one of
      `chosen_form`.

    **Raises:** `InputError` for a table that cannot have the form, or of a device of which nothing is known.
    """
    table, asked = split_asked(table)
    has_counter = ACTIVITY in table.columns and "clock_hz" in table.columns and "power_limit_w" not in table.columns
    counters = form == COUNTERS or (form is None and has_counter)
    if counters and not has_counter:
        raise InputError(
            f"{table.path}, line 1: form {COUNTERS} needs columns clock_hz [Hz] and {ACTIVITY} [1], and no "
            "power_limit_w."
        )
    if "power_limit_w" not in table.columns and "clock_hz" not in table.columns:
        raise InputError(
            f'{table.path}, line 1: column "power_limit_w" [W] or "clock_hz" [Hz] is missing: the limit or clock that '
            "was set."
        )
    check_limits(table)
    table, noise, repeats = averaged(table)
    cards = cards_of(table, prior)
    if counters and cards.several:
        raise InputError(
            f'{table.path}: column "gpu" holds {", ".join(cards.names)}; form {COUNTERS} is of one device. Choose it '
            f"with --where gpu={cards.names[0]}."
        )
    data = power_runs(table, asked, cards, prior, noise or 0.0)
    runs, is_profile, workload = data.settings.runs, data.settings.is_profile, data.settings.workload
    if counters:
        reason = f"the table has the counter {ACTIVITY}" if form is None else "it was asked for"
        return _counters_case(table, data, ChosenForm(COUNTERS, reason), repeats)
    if np.all(is_profile) and not cards.known and prior is None:
        raise InputError(
            f"{table.path}: each workload and batch was measured at one limit or clock only, on a device of which "
            "nothing is known. Measure some at a lower limit as well, or name the device in a column `gpu`, such as "
            "RTX 6000, or with --prior."
        )
    chosen = chosen_form(runs, is_profile, prior, cards) if form is None else ChosenForm(form, "it was asked for")
    constants, others = _priors(prior, cards, chosen.name)
    labels = [f"{card}: {word}" if cards.several else word for card, word in zip(cards.by_row, workload, strict=True)]
    groups = Grouping(np.array(labels), "workload")
    if len({*labels}) == 1:
        groups = Grouping(np.array([f"batch {size:g}" for size in data.settings.batch]), "batch")
    simple = chosen.name == "posynomial"
    return _case(
        data,
        fit=FitProblem(power_errors, constants, runs, np.where(is_profile, 0.0, 1.0), NOISE, OPTIONS, others),
        groups=groups,
        candidates=_candidates(data.settings),
        fitted_numbers={} if cards.several else fitted_numbers(data, chosen.name),
        known_numbers={} if cards.several else known_numbers(data),
        notes=(*repeats, *power_notes(data, simple=simple)),
        law=None if cards.several else partial(lowest_clock, runs),
        range=measured_range(runs, cards),
        devices=cards.names if cards.several else (),
        unlike=partial(_unlike, cards, constants, data.rated),
        usual_errors=power_population().errors,
        form=chosen,
        components={f"{CHIP}.voltage": "PosynomialVoltage"} if simple else {},
    )


def _case(data: PowerRuns, **fields: Any) -> CalibrationCase:
    """A case with what all forms have in common."""
    by_limit = data.settings.runs.by_limit
    return CalibrationCase(
        outputs={"time": (1.0, 0.0), "power": (0.0, 1.0), "energy": (1.0, 1.0)},
        along=("power limit [W]", data.columns["power_limit_w"])
        if by_limit
        else ("clock [MHz]", data.columns["clock_hz"] / 1e6),
        law_needs=(),
        best=lambda fitted, error, slowdown: recommendation(fitted, data.settings, error["energy"], slowdown),
        **fields,
    )


def _counters_case(table: Measurements, data: PowerRuns, form: ChosenForm, repeats: tuple[str, ...]) -> CalibrationCase:
    """Nine constants of a device from its kernels at several clocks, see `kernel_clock.split_power`."""
    settings, runs, card = data.settings, data.settings.runs, data.cards.names[0]
    activity, is_profile = np.asarray(runs.memory_activity), settings.is_profile
    for bad, reason in (
        (~np.isfinite(activity), "empty at the highest clock of a kernel."),
        (activity > 1.0, "a share of time is at most 1, not a percentage."),
    ):
        if np.any(bad & is_profile):
            line = int(table.lines[np.flatnonzero(bad & is_profile)[0]])
            raise InputError(f'{table.path}, line {line}, column "{ACTIVITY}": {reason}')
    tested = ~is_profile & (np.asarray(runs.clock) >= LOWEST_CLOCK)
    population, benchmark = power_population(KERNELS), data.columns.get("benchmark", settings.workload)
    numbers = {
        **{
            f"{CHIP}.{name}": FittedNumber("static", 0.5 * data.rated, "W") for name in ("leakage.power", "fixed_power")
        },
        **{f"{CHIP}.voltage.{name}": FittedNumber(f"voltage_{name}", 1.0, "1") for name in ("floor", "knee")},
    }
    notes = [
        f"Shares of device power are of the highest power that was measured, {data.rated:g} W.",
        f"Clocks below {100 * LOWEST_CLOCK:.0f} % of the highest are not fitted.",
    ]
    if not np.any(tested):
        notes.append("Nothing was measured at lower clocks: all constants are those of other cards.")
    lowest = float(np.min(np.asarray(runs.clock)[tested], initial=1.0))
    several = len({*benchmark.tolist()}) > 1
    return _case(
        data,
        fit=FitProblem(
            kernel_errors,
            CONSTANTS,
            runs,
            tested.astype(float),
            NOISE,
            OPTIONS,
            population.of(data.cards.architectures),
        ),
        groups=Grouping(benchmark, "benchmark") if several else Grouping(settings.workload, "kernel"),
        candidates=_candidates(settings, LOWEST_CLOCK),
        fitted_numbers=numbers if data.prior is None or has_floor(data.prior) else {},
        notes=(*repeats, *notes),
        law=lambda _: minimum_clock(lowest, "the lowest clock that was fitted"),
        range={} if card == NO_NAME else {"gpu": card},
        usual_errors=population.errors,
        form=form,
    )


def _priors(prior: Scenario | None, cards: Cards, form: str) -> tuple[ConstantPriors, JointPrior | None]:
    """Constants with their priors, and what measured cards say of them where the architecture is known."""
    if form == "voltage-floor" and (cards.known or cards.several):
        constants = power_constants(devices=cards.names if cards.several else ())
        joint = power_population().of(cards.architectures)
        return constants, joint._replace(names=joint_prior(constants).names)
    simple = form == "posynomial"
    if prior is None:
        return power_constants(form="posynomial" if simple else "voltage-floor"), None
    chip = prior.system.accelerator
    static = float(chip.leakage.power) + float(chip.fixed_power)
    medians = {
        "voltage_floor": float(getattr(chip.voltage, "floor", 0.8)),
        "voltage_knee": float(getattr(chip.voltage, "knee", 0.6)),
        "lowest_clock": float(chip.minimum_clock),
        "static_above_idle": max((static - float(chip.idle_power)) / float(chip.rated_power), 0.02),
    }
    constants = power_constants(medians, form="posynomial" if simple else "voltage-floor")
    if simple and isinstance(chip.voltage, PosynomialVoltage):
        share = min(max(float(chip.voltage.cubic_share), 0.05), 0.95)
        constants = {**constants, "cubic_share": constants["cubic_share"]._replace(median=share)}
    return constants, None


def _unlike(
    cards: Cards, constants: ConstantPriors, rated: float, earlier: Mapping[str, Any]
) -> tuple[np.ndarray, str] | None:
    """Variance of the difference of two cards, `2 (1 - c) s^2` with their likeness c [definition], and a note."""
    name = str(earlier.get("gpu", ""))
    before = float(earlier.get("rated_power", rated))
    same = name == cards.names[0] if name and cards.names[0] != NO_NAME else SAME < rated / before < 1.0 / SAME
    if same:
        return None
    likeness = likenesses([architecture_of(name)], cards.architectures[:1])[0, 0]
    what = f"of {name}" if name else f"of a device of {before:g} W"
    note = f"The prior was measured on another device ({what}): its constants are as much less certain."
    return 2.0 * (1.0 - likeness) * joint_prior(constants).spread ** 2, note


def chosen_form(runs: Profiles, is_profile: np.ndarray, prior: Scenario | None, cards: Cards) -> ChosenForm:
    """The form that measurements can determine [docs/physics.md B2.1].

    That of an earlier calibration; else floor and knee of the voltage if similar cards were measured, if the prior
    knows them and does not assume them, or if there are enough settings below the profiles to determine them; else the
    posynomial form, which has one constant in their place.

    **Arguments:**

    - `runs`, `is_profile`: from `device_power.profiles`.
    - `prior`: the scenario behind `--prior`.
    """
    if prior is not None:
        earlier = prior.tables.get("calibration", {}).get("power", {}).get("names", ())
        for name, constant in zip(FORMS, ("voltage_floor", "cubic_share"), strict=True):
            if constant in earlier:
                return ChosenForm(name, "the prior was calibrated with it")
        floor = prior.provenance.get(f"{CHIP}.voltage.floor")
        if floor is not None and not floor.is_prior:
            return ChosenForm("voltage-floor", "the prior's voltage floor and knee are known")
    if cards.known or cards.several:
        measured = ", ".join(power_population().cards)
        return ChosenForm("voltage-floor", f"floor and knee of the voltage of other cards are known ({measured})")
    lower, workload = ~is_profile, np.asarray(runs.workload)
    most = max(len({*runs.speeds[lower & (workload == number)].tolist()}) for number in {*workload.tolist()})
    if most < FEWEST_LIMITS:
        words = f"{most} setting{'s' if most > 1 else ''}"
        return ChosenForm(
            "posynomial",
            f"no workload has more than {words} below its highest limit or clock; floor and knee of the voltage need "
            f"{FEWEST_LIMITS}",
        )
    rows, needed = np.sum(lower), len(power_constants())
    if rows < needed:
        return ChosenForm("posynomial", f"{rows} rows below the highest limit or clock are fewer than {needed}")
    return ChosenForm("voltage-floor", f"a workload has {most} settings below its highest limit or clock")


def _candidates(settings: Settings, lowest_clock: float | None = None) -> Candidates:
    """Settings between the lowest and the highest limit (or clock) of every profile."""
    runs, device, several = settings.runs, np.asarray(settings.runs.device), len(settings.devices) > 1
    holding, pairs = lowest_limits(settings), []
    for row in np.flatnonzero(settings.is_profile):
        own = runs.speeds[(device == device[row]) & np.isfinite(runs.speeds)]
        highest = float(np.max(own)) if len(own) else float(runs.rated_power[row])
        lowest = float(np.min(own)) if len(own) and np.min(own) < highest else LOWEST_HELD * highest
        lowest = max(lowest, holding[row]) if lowest_clock is None else lowest_clock
        pairs += [(row, speed) for speed in np.linspace(lowest, highest, SPLITS, endpoint=False)]
    pairs = Candidates.thinned(pairs)
    chosen, speeds = np.array([row for row, _ in pairs]), np.array([speed for _, speed in pairs])
    unit = "W" if runs.by_limit else "of the profile's clock"
    words = [
        (f"{settings.devices[device[row]]}, " if several else "")
        + f"{settings.workload[row]}, batch {settings.batch[row]:g}, at {speed:.3g} {unit}"
        for row, speed in pairs
    ]
    return Candidates(runs.at_speeds(chosen, speeds), words)
