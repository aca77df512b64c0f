"""Kind `power`: constants of devices from times and powers at power limits or clocks, and settings of lowest energy.

The law has three forms. `voltage-floor` and `posynomial` (`device_power`) carry a profile to lower limits and clocks;
`counters` (`kernel_clock`) carries kernels to lower clocks by the share of time in which the memory transfers.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.best_setting import LOWEST_HELD, Settings, lowest_limits, recommendation
from energymodel.calibration.calibration_case import (
    CHIP,
    CalibrationCase,
    Candidates,
    ChosenForm,
    Grouping,
    WrittenNumber,
)
from energymodel.calibration.constant_priors import ConstantPriors, JointPrior, joint_prior
from energymodel.calibration.device_power import (
    FORMS,
    LEAKAGE,
    NOISE,
    OPTIONS,
    clock_at_limit,
    power_constants,
    power_errors,
)
from energymodel.calibration.kernel_clock import CONSTANTS, kernel_errors
from energymodel.calibration.kinds.power_table import ACTIVITY, NO_NAME, OF_PRIOR, averaged, settings_of, split_asked
from energymodel.calibration.least_squares import FitProblem
from energymodel.calibration.power_population import KERNELS, architecture_of, likenesses, power_population
from energymodel.errors import InputError
from energymodel.readers.table import Measurements
from energymodel.scenarios.scenario import Scenario
from energymodel.system.step import training_step

COUNTERS = "counters"
POWER_FORMS = (*FORMS, COUNTERS)
FEWEST_LIMITS = 3  # below the highest, in a workload, that floor and knee of the voltage need
SPLITS = 8  # of the range of limits or clocks, where candidates lie
SAME = 0.95  # of the rated power of a device: closer, it counts as the same where neither has a name
LOWEST_CLOCK = 0.35
"""Of the highest: below it the voltage has another floor, and cores do not run at the clock that is set."""
APART = 0.1  # of the busy power, between which the line is drawn
NO_CAP = 10.0  # [rated power]


def power_case(table: Measurements, prior: Scenario | None, form: str | None = None) -> CalibrationCase:
    """Time and power of devices at power limits or clocks, in one form of the law.

    Where every row is at the highest limit nothing is fitted: the constants are those of other cards or of the prior.
    By default the form is that of kernels where their counters are there, else the one of `chosen_form`.

    **Raises:** `InputError` for a table that cannot have the form, or of a device of which nothing is known.
    """
    has_counter = ACTIVITY in table.columns and "clock_hz" in table.columns and "power_limit_w" not in table.columns
    counters = form == COUNTERS or (form is None and has_counter)
    if counters and not has_counter:
        raise InputError(
            f"{table.path}, line 1: form {COUNTERS} needs columns clock_hz [Hz] and {ACTIVITY} [1], and no "
            "power_limit_w."
        )
    table, asked = split_asked(table)
    table, noise = averaged(table)
    settings = settings_of(table, asked, prior, noise)
    runs, is_profile = settings.runs, settings.is_profile
    if counters and settings.several:
        raise InputError(
            f'{table.path}: column "gpu" holds {", ".join(settings.devices)}; form {COUNTERS} is of one device. Choose '
            f"it with --where gpu={settings.devices[0]}."
        )
    if not counters and np.all(is_profile) and not settings.has_architectures and prior is None:
        raise InputError(
            f"{table.path}: each workload and batch was measured at one limit or clock only, on a device of which "
            "nothing is known. Measure some at a lower limit as well, or name the device in a column `gpu`, such as "
            "RTX 6000, or with --prior."
        )
    if form is not None:
        chosen = ChosenForm(form, "it was asked for")
    elif counters:
        chosen = ChosenForm(COUNTERS, f"the table has the counter {ACTIVITY}")
    else:
        chosen = chosen_form(settings, prior)
    case = _kernels(table, settings, prior) if counters else _profiles(settings, prior, chosen.name)
    limits, clocks = (table.columns.get(name, np.zeros(0)) for name in ("power_limit_w", "clock_hz"))
    return CalibrationCase(
        outputs={"time": (1.0, 0.0), "power": (0.0, 1.0), "energy": (1.0, 1.0)},
        along=("power limit [W]", limits) if runs.by_limit else ("clock [MHz]", clocks / 1e6),
        law_needs=(),
        best=lambda fitted, error, slowdown: recommendation(fitted, settings, error["energy"], slowdown),
        form=chosen,
        **{**case, "notes": (*table.notes, *case["notes"])},
    )


def _profiles(settings: Settings, prior: Scenario | None, form: str) -> dict[str, Any]:
    """What is of the forms with profiles: nine constants of each device, see `device_power.predict_power`."""
    runs, devices, notes, single = settings.runs, settings.devices, [], not settings.several
    constants, others = _priors(prior, settings, form)
    if np.all(settings.is_profile):
        whose = "other cards" if settings.has_architectures else "the prior"
        notes.append(f"Nothing was measured below the highest limit or clock: all constants are those of {whose}.")
    names = [name for name, architecture in zip(devices, settings.architectures, strict=True) if architecture is None]
    if names and names != [NO_NAME]:
        notes.append(f"No card similar to {', '.join(names)} is known: the priors are those of any card.")
    lowest_of = lowest_limits(settings)
    for number, (name, guess) in enumerate(zip(devices, settings.idle_guesses, strict=True)):
        rows = np.asarray(runs.device) == number
        rated, lowest = float(runs.rated_power[rows][0]), lowest_of[rows][0]
        if guess not in ("", OF_PRIOR):
            idle = f"{float(runs.idle_power[rows][0]):.4g} W, {guess}"
            notes.append(f"Idle power of {name} is taken as {idle}: better give idle_power_w.")
        if not runs.by_limit:
            continue
        own = np.unique(np.asarray(runs.limit)[rows])
        if exceeded := ", ".join(f"{limit:g} W" for limit in own[own < lowest]):
            notes.append(
                f"{name} draws more than some of its limits: it does not hold {exceeded}, which are not chosen."
            )
        notes.append(
            f"No limit of {name} below {lowest:.0f} W is chosen: below {100 * LOWEST_HELD:.0f} % of the rated power "
            f"({rated:g} W) cards may fall to a lower performance state, unless a limit was measured to hold."
        )
    rated, idle = float(runs.rated_power[0]), float(runs.idle_power[0])
    if prior is not None and single:
        prior_rated = float(prior.system.accelerator.rated_power)
        if not 0.8 < rated / prior_rated < 1.25:
            notes.append(
                f"The highest limit, {rated:g} W, is not the rated power of the prior's accelerator, {prior_rated:g} "
                "W: give --prior the same device if there is one."
            )
        if form != "posynomial" and not _has_floor(prior):
            notes.append("The prior's voltage has neither floor nor knee: the scenario keeps it, without those fitted.")
    bounds: dict[str, float | str] = {"rated_power": rated}
    if len(settings.limits) > 1:
        bounds = {"lowest_power_cap": float(settings.limits[0])} | bounds
    labels = [
        f"{devices[device]}: {word}" if settings.several else word
        for device, word in zip(runs.device.tolist(), settings.workload.tolist(), strict=True)
    ]
    groups = Grouping(np.array(labels), "workload")
    if len({*labels}) == 1:
        groups = Grouping(np.array([f"batch {size:g}" for size in settings.batch]), "batch")
    weights = np.where(settings.is_profile, 0.0, 1.0)
    case = {
        "fit": FitProblem(power_errors, constants, runs, weights, NOISE, OPTIONS, others),
        "groups": groups,
        "candidates": _candidates(settings),
        "notes": notes,
        "range": bounds | ({} if devices == (NO_NAME,) else {"gpu": ", ".join(devices)}),
        "devices": devices if settings.several else (),
        "unlike": partial(_unlike, settings, constants),
        "usual_errors": power_population().errors,
    }
    if settings.several:
        return case
    limited = "the highest limit that was set" if runs.by_limit else "the highest power that was measured"
    return case | {
        "numbers": {
            f"{CHIP}.rated_power": WrittenNumber("W", rated, assumed=limited),
            f"{CHIP}.idle_power": WrittenNumber("W", idle, assumed=settings.idle_guesses[0]),
            **_fitted_numbers(settings, prior, form),
        },
        "law": partial(_lowest_clock, settings),
        "words": {f"{CHIP}.voltage.component": "PosynomialVoltage"} if form == "posynomial" else {},
    }


def _kernels(table: Measurements, settings: Settings, prior: Scenario | None) -> dict[str, Any]:
    """What is of the form of kernels: nine constants of a device, see `kernel_clock.split_power`."""
    runs, is_profile = settings.runs, settings.is_profile
    activity, (card,) = np.asarray(runs.memory_activity), settings.devices
    bad = is_profile & ~(activity <= 1.0)
    if np.any(bad):
        row = int(np.argmax(bad))
        empty, high = "empty at the highest clock of a kernel.", "a share of time is at most 1, not a percentage."
        raise table.error(row, high if np.isfinite(activity[row]) else empty, ACTIVITY)
    tested = ~is_profile & (np.asarray(runs.clock) >= LOWEST_CLOCK)
    population, benchmark = power_population(KERNELS), table.columns.get("benchmark", settings.workload)
    rated, lowest = float(runs.rated_power[0]), float(np.min(np.asarray(runs.clock)[tested], initial=1.0))
    static, voltage = {"leakage.power": LEAKAGE, "fixed_power": 1.0 - LEAKAGE}, ("floor", "knee")
    numbers = {f"{CHIP}.{name}": WrittenNumber("W", 0.0, "static", share * rated) for name, share in static.items()}
    numbers |= {f"{CHIP}.voltage.{name}": WrittenNumber("1", constant=f"voltage_{name}") for name in voltage}
    notes = [
        f"Shares of device power are of the highest power that was measured, {rated:g} W.",
        f"Clocks below {100 * LOWEST_CLOCK:.0f} % of the highest are not fitted.",
    ]
    if not np.any(tested):
        notes.append("Nothing was measured at lower clocks: all constants are those of other cards.")
    others = population.of(settings.architectures)
    several = len({*benchmark.tolist()}) > 1
    return {
        "fit": FitProblem(kernel_errors, CONSTANTS, runs, tested.astype(float), NOISE, OPTIONS, others),
        "groups": Grouping(benchmark, "benchmark") if several else Grouping(settings.workload, "kernel"),
        "candidates": _candidates(settings, LOWEST_CLOCK),
        "numbers": numbers if prior is None or _has_floor(prior) else {},
        "notes": notes,
        "law": lambda _: _minimum_clock(lowest, "the lowest clock that was fitted"),
        "range": {} if card == NO_NAME else {"gpu": card},
        "usual_errors": population.errors,
    }


def _priors(prior: Scenario | None, settings: Settings, form: str) -> tuple[ConstantPriors, JointPrior | None]:
    """Constants with their priors, and what measured cards say of them where the architecture is known."""
    if form == "voltage-floor" and (settings.has_architectures or settings.several):
        constants = power_constants(devices=settings.devices if settings.several else ())
        joint = power_population().of(settings.architectures)
        return constants, joint._replace(names=joint_prior(constants).names)
    voltage_form = "posynomial" if form == "posynomial" else "voltage-floor"
    if prior is None:
        return power_constants(form=voltage_form), None
    chip = prior.system.accelerator
    static = float(chip.leakage.power) + float(chip.fixed_power)
    medians = {
        "lowest_clock": float(chip.minimum_clock),
        "static_above_idle": max((static - float(chip.idle_power)) / float(chip.rated_power), 0.02),
    }
    for name, of_chip in (("voltage_floor", "floor"), ("voltage_knee", "knee"), ("cubic_share", "cubic_share")):
        if hasattr(chip.voltage, of_chip):
            medians[name] = float(getattr(chip.voltage, of_chip))
    return power_constants(medians, form=voltage_form), None


def _unlike(settings: Settings, constants: ConstantPriors, earlier: Mapping[str, Any]) -> tuple[np.ndarray, str] | None:
    """Variance of the difference of two cards, `2 (1 - c) s^2` with their likeness c [definition], and a note."""
    name, rated = str(earlier.get("gpu", "")), float(settings.runs.rated_power[0])
    before, own = float(earlier.get("rated_power", rated)), settings.devices[0]
    if name == own if name and own != NO_NAME else SAME < rated / before < 1.0 / SAME:
        return None
    likeness = likenesses([architecture_of(name)], settings.architectures[:1])[0, 0]
    what = f"of {name}" if name else f"of a device of {before:g} W"
    note = f"The prior was measured on another device ({what}): its constants are as much less certain."
    return 2.0 * (1.0 - likeness) * joint_prior(constants).spread ** 2, note


def chosen_form(settings: Settings, prior: Scenario | None) -> ChosenForm:
    """The form that measurements can determine [docs/physics.md B2.1].

    That of an earlier calibration; else floor and knee of the voltage if similar cards were measured, if the prior
    knows them and does not assume them, or if there are enough settings below the profiles to determine them; else the
    posynomial form, which has one constant in their place.
    """
    if prior is not None:
        earlier = prior.tables.get("calibration", {}).get("power", {}).get("names", ())
        for name, constant in zip(FORMS, ("voltage_floor", "cubic_share"), strict=True):
            if constant in earlier:
                return ChosenForm(name, "the prior was calibrated with it")
        floor = prior.provenance.get(f"{CHIP}.voltage.floor")
        if floor is not None and not floor.is_prior:
            return ChosenForm("voltage-floor", "the prior's voltage floor and knee are known")
    if settings.has_architectures or settings.several:
        measured = ", ".join(power_population().cards)
        return ChosenForm("voltage-floor", f"floor and knee of the voltage of other cards are known ({measured})")
    runs, lower = settings.runs, ~settings.is_profile
    works = {name: lower & (settings.workload == name) for name in settings.workload.tolist()}
    most = max(len(np.unique(runs.speeds[rows])) for rows in works.values())
    below, rows, needed = "below its highest limit or clock", np.sum(lower), len(power_constants())
    if most < FEWEST_LIMITS:
        few = f"no workload has more than {most} setting{'s' if most > 1 else ''} {below}"
        return ChosenForm("posynomial", f"{few}; floor and knee of the voltage need {FEWEST_LIMITS}")
    if rows < needed:
        return ChosenForm("posynomial", f"{rows} rows below the highest limit or clock are fewer than {needed}")
    return ChosenForm("voltage-floor", f"a workload has {most} settings {below}")


def _candidates(settings: Settings, lowest_clock: float | None = None) -> Candidates:
    """Settings between the lowest and the highest limit (or clock) of every profile."""
    runs, device = settings.runs, np.asarray(settings.runs.device)
    holding, pairs = lowest_limits(settings), []
    for row in np.flatnonzero(settings.is_profile):
        own = runs.speeds[(device == device[row]) & np.isfinite(runs.speeds)]
        highest = float(np.max(own)) if len(own) else float(runs.rated_power[row])
        lowest = float(np.min(own)) if len(own) and np.min(own) < highest else LOWEST_HELD * highest
        lowest = max(lowest, holding[row]) if lowest_clock is None else lowest_clock
        pairs += [(row, speed) for speed in np.linspace(lowest, highest, SPLITS, endpoint=False)]
    pairs = Candidates.thinned(pairs)
    unit = "W" if runs.by_limit else "of the profile's clock"
    words = [
        (f"{settings.devices[device[row]]}, " if settings.several else "")
        + f"{settings.workload[row]}, batch {settings.batch[row]:g}, at {speed:.3g} {unit}"
        for row, speed in pairs
    ]
    rows, speeds = (np.array(column) for column in zip(*pairs, strict=True))
    return Candidates(runs.at_speeds(rows, speeds), words)


def _has_floor(scenario: Scenario) -> bool:
    return hasattr(scenario.system.accelerator.voltage, "floor")


def _fitted_numbers(settings: Settings, prior: Scenario | None, form: str) -> dict[str, WrittenNumber]:
    """Numbers of a scenario that follow from constants of the forms with profiles."""
    rated, idle = float(settings.runs.rated_power[0]), float(settings.runs.idle_power[0])
    intercept, slope = (0.0, 1.0) if prior is None else busy_line(prior)
    numbers = {f"{CHIP}.busy_power": WrittenNumber("W", -intercept / slope, "busy_power", rated / slope)}
    for name, share in (("leakage.power", LEAKAGE), ("fixed_power", 1.0 - LEAKAGE)):
        numbers[f"{CHIP}.{name}"] = WrittenNumber("W", share * idle, "static_above_idle", share * rated)
    if form == "posynomial":
        numbers[f"{CHIP}.voltage.cubic_share"] = WrittenNumber("1", constant="cubic_share")
    elif prior is None or _has_floor(prior):
        for name in ("floor", "knee"):
            numbers[f"{CHIP}.voltage.{name}"] = WrittenNumber("1", constant=f"voltage_{name}")
    return numbers


def busy_line(scenario: Scenario) -> tuple[float, float]:
    """Power of a chip at work in a scenario at clock 1 by its `accelerator.busy_power` b, `a + s b` [W]: a and s.

    Training works on attention, memory and small products as well as on large ones, so that a chip draws less in it:
    a power that was measured in training belongs to a higher `busy_power`. The line goes through two busy powers;
    switching energy per operation is in proportion to what is left of b.
    """
    chip = scenario.system.accelerator
    powers = float(chip.busy_power) * jnp.array([1.0 - APART, 1.0 + APART])

    def in_training(power: Float[Array, ""]) -> Float[Array, ""]:
        system = eqx.tree_at(lambda tree: tree.accelerator.busy_power, scenario.system, power)
        unlimited = (jnp.asarray(NO_CAP * chip.rated_power), jnp.ones(()))
        plan = eqx.tree_at(lambda tree: (tree.power_cap, tree.clock), scenario.plan, unlimited)
        return training_step(system, plan, jnp.max(jnp.asarray(plan.batch))).point.busy_power

    low, high = (float(power) for power in np.asarray(jax.jit(jax.vmap(in_training))(powers)))
    slope = (high - low) / float(powers[1] - powers[0])
    return high - slope * float(powers[1]), slope


def _lowest_clock(settings: Settings, values: Mapping[str, float]) -> dict[str, WrittenNumber]:
    """Clock of a busy device at the lowest limit that was measured; a plan may not go below it."""
    runs, limits = settings.runs, settings.limits
    lowest, rated = float(np.min(runs.clock)), float(runs.rated_power[0])
    if len(limits) > 1:
        static = float(runs.idle_power[0]) + values["static_above_idle"] * rated
        with jax.enable_x64(True):
            clock = clock_at_limit(limits[0], static, values["busy_power"] * rated - static, values)
        lowest = min(lowest, float(clock))
    return _minimum_clock(lowest, "that of the lowest limit or clock that was measured")


def _minimum_clock(lowest: float, assumed: str) -> dict[str, WrittenNumber]:
    return {} if lowest == 1.0 else {f"{CHIP}.minimum_clock": WrittenNumber("1", lowest, assumed=assumed)}
