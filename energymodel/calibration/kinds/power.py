"""Which constants of a device do its times and powers give, and at which limit does it take the least energy?"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.best_setting import LOWEST_HELD, Settings, lowest_limits, recommendation
from energymodel.calibration.busy_power import busy_line
from energymodel.calibration.calibration_case import (
    CHIP,
    CalibrationCase,
    Candidates,
    ChosenForm,
    FittedNumber,
    Grouping,
    KnownNumber,
)
from energymodel.calibration.constant_priors import ConstantPriors, JointPrior, joint_prior
from energymodel.calibration.device_family import Architecture, architecture_of, family_variance
from energymodel.calibration.device_power import (
    FORMS,
    LOWEST_ABOVE,
    MOST_IDLE,
    NOISE,
    OPTIONS,
    USUAL_IDLE,
    DeviceMedians,
    Profiles,
    clock_at_power,
    power_constants,
    power_errors,
    profiles,
)
from energymodel.calibration.kinds.kernels import FORM as COUNTERS
from energymodel.calibration.kinds.kernels import has_counters, kernel_case
from energymodel.calibration.kinds.power_table import asked_settings, averaged, check_limits, labels_of, split_asked
from energymodel.calibration.least_squares import FitProblem
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.power_population import power_population
from energymodel.errors import InputError
from energymodel.physics.voltage import PosynomialVoltage
from energymodel.scenarios.scenario import Scenario

FEWEST_LIMITS = 3  # below the highest, in a workload, that floor and knee of the voltage need
SPLITS = 8  # of the range of limits, where candidates lie
POWER_FORMS = (*FORMS, COUNTERS)
SAME = 0.95  # of the rated power of a device: closer, it is taken for the same where neither has a name

NO_NAME = "this device"


class Cards(NamedTuple):
    """Which devices rows are of: a name by row, all names, and the architecture of each, if it is known."""

    by_row: np.ndarray
    names: tuple[str, ...]
    architectures: tuple[Architecture | None, ...]

    @property
    def known(self) -> bool:
        """Whether the architecture of all of them is."""
        return all(one is not None for one in self.architectures)


def power_case(table: Measurements, prior: Scenario | None, form: str | None = None) -> CalibrationCase:
    """Time and power of devices at power limits or clocks: nine constants of each, or eight, see `predict_power`.

    Where every row is at the highest limit nothing is fitted: the constants are those of its kin, or of the prior.

    **Arguments:**

    - `form`: one of `POWER_FORMS`; by default that of kernels where their counters are there, else the one of
      `chosen_form`.
    """
    table, asked = split_asked(table)
    if form == COUNTERS or (form is None and has_counters(table)):
        return kernel_case(table, asked, prior, named=form is not None)
    if "power_limit_w" not in table.columns and "clock_hz" not in table.columns:
        raise InputError(
            f'{table.path}, line 1: column "power_limit_w" [W] or "clock_hz" [Hz] is missing: the limit or clock that '
            "was set."
        )
    check_limits(table)
    table, noise, repeats = averaged(table)
    columns, count = table.columns, len(table)
    cards = _cards(table, prior)
    workload = labels_of(table)
    batch, time, watt = columns.get("batch", np.ones(count)), columns["time_s"], columns["power_w"]
    limit = columns.get("power_limit_w", np.full(count, np.inf))
    idle = columns.get("idle_power_w", np.full(count, np.nan))
    known_idle = _idle_of(prior) if len(cards.names) == 1 else None
    if known_idle is not None and np.all(np.isnan(idle)):
        idle = np.full(count, known_idle)
    runs, is_profile = profiles(
        workload, batch, limit, time, watt, clock=columns.get("clock_hz"), idle_power=idle, device=cards.by_row
    )
    predicted = asked_settings(asked, table, workload, is_profile, by_limit=runs.by_limit)
    if np.all(is_profile) and not cards.known and prior is None:
        raise InputError(
            f"{table.path}: each workload and batch was measured at one limit or clock only, on a device of which "
            "nothing is known. Measure some at a lower limit as well, or name the device in a column `gpu`, such as "
            "RTX 6000, or with --prior."
        )
    chosen = chosen_form(runs, is_profile, prior, cards) if form is None else ChosenForm(form, "it was asked for")
    constants, kin = _prior(prior, cards, simple=chosen.name == "posynomial")
    several = len(cards.names) > 1
    epochs = np.where(np.isfinite(given := columns.get("epochs", np.ones(count))), given, np.inf)
    settings = Settings(runs, is_profile, workload, batch, cards.names, epochs, noise or 0.0, predicted)
    labels = np.array([f"{one}: {word}" for one, word in zip(cards.by_row, workload, strict=True)])
    groups = Grouping(labels if several else workload, "workload")
    if len({*groups.labels.tolist()}) == 1:
        groups = Grouping(np.array([f"batch {one:g}" for one in batch]), "batch")
    along = ("power limit [W]", limit) if runs.by_limit else ("clock [MHz]", columns["clock_hz"] / 1e6)
    simple = chosen.name == "posynomial"
    fitted_numbers, known, law = {}, {}, None
    if not several:
        fitted_numbers, law = _fitted_numbers(runs, prior, simple=simple), partial(_lowest_clock, runs)
        known = _known_numbers(runs, columns, known_idle)
    return CalibrationCase(
        fit=FitProblem(power_errors, constants, runs, np.where(is_profile, 0.0, 1.0), NOISE, OPTIONS, kin),
        groups=groups,
        outputs={"time": (1.0, 0.0), "power": (0.0, 1.0), "energy": (1.0, 1.0)},
        along=along,
        candidates=_candidates(settings),
        fitted_numbers=fitted_numbers,
        known_numbers=known,
        notes=(*repeats, *_notes(runs, settings, cards, columns, prior, known_idle, simple=simple)),
        law=law,
        law_needs=(),
        range=_range(runs, cards),
        devices=cards.names if several else (),
        unlike=partial(_unlike, cards, constants, float(runs.rated_power[0])),
        usual_errors=power_population().errors,
        form=chosen,
        components={f"{CHIP}.voltage": "PosynomialVoltage"} if simple else {},
        best=lambda found, error, slowdown: recommendation(found, settings, error["energy"], slowdown),
    )


def _cards(table: Measurements, prior: Scenario | None) -> Cards:
    named = table.text("gpu", "")
    blank = named == ""
    if np.any(blank) and not np.all(blank):
        line = int(table.lines[np.flatnonzero(blank)[0]])
        raise InputError(f'{table.path}, line {line}, column "gpu": empty. Name the device of every row, or of none.')
    if not np.any(blank):
        names = tuple(dict.fromkeys(named.tolist()))
        return Cards(named, names, tuple(architecture_of(one) for one in names))
    kind = None
    if prior is not None:
        earlier = prior.tables.get("calibration", {}).get("power", {}).get("gpu", "")
        kind = architecture_of(str(earlier)) or architecture_of(_accelerator(prior))
    return Cards(np.full(len(table), NO_NAME), (NO_NAME,), (kind,))


def _accelerator(scenario: Scenario) -> str:
    """The preset of the accelerator of a scenario, if it names one."""
    named = scenario.tables.get("system", {}).get("accelerator", "")
    return str(named.get("preset", "") if isinstance(named, Mapping) else named)


def _prior(prior: Scenario | None, cards: Cards, *, simple: bool) -> tuple[ConstantPriors, JointPrior | None]:
    """Constants with their priors, and what the cards measured so far say of them, where the architecture is known."""
    if simple or not (cards.known or len(cards.names) > 1):
        return _constants(prior, simple=simple), None
    constants = power_constants(devices=cards.names if len(cards.names) > 1 else ())
    kin = power_population().of(cards.architectures)
    return constants, kin._replace(names=joint_prior(constants).names)


def _unlike(
    cards: Cards, constants: ConstantPriors, rated: float, earlier: Mapping[str, Any]
) -> tuple[np.ndarray, str] | None:
    """What an earlier calibration of another card does not know of this one: `device_family.family_variance`."""
    name = str(earlier.get("gpu", ""))
    before = float(earlier.get("rated_power", rated))
    same = name == cards.names[0] if name and cards.names[0] != NO_NAME else SAME < rated / before < 1.0 / SAME
    if same:
        return None
    variance = family_variance(joint_prior(constants), architecture_of(name), cards.architectures[0])
    what = f"of {name}" if name else f"of a device of {before:g} W"
    return variance, f"The prior was measured on another device ({what}): its constants are as much less certain."


def chosen_form(runs: Profiles, is_profile: np.ndarray, prior: Scenario | None, cards: Cards) -> ChosenForm:
    """The form that measurements can determine [docs/physics.md B2.1].

    That of an earlier calibration; else floor and knee of the voltage if its kin was measured, if the prior knows them
    and does not assume them, or if there are enough settings below the profiles to determine them; else the posynomial
    form, which has one constant in their place.

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
    if cards.known or len(cards.names) > 1:
        kin = ", ".join(power_population().cards)
        return ChosenForm("voltage-floor", f"floor and knee of the voltage of other cards are known ({kin})")
    speeds = np.asarray(runs.limit if runs.by_limit else runs.clock)
    lower, workload = ~is_profile, np.asarray(runs.workload)
    most = max(len({*speeds[lower & (workload == one)].tolist()}) for one in {*workload.tolist()})
    if most < FEWEST_LIMITS:
        words = f"{most} setting{'s' if most > 1 else ''}"
        return ChosenForm(
            "posynomial",
            f"no workload has more than {words} below its highest limit or clock; floor and knee of the voltage need "
            f"{FEWEST_LIMITS}",
        )
    needed = len(power_constants())
    if np.sum(lower) < needed:
        return ChosenForm(
            "posynomial", f"{np.sum(lower)} rows below the highest limit or clock are fewer than {needed}"
        )
    return ChosenForm("voltage-floor", f"a workload has {most} settings below its highest limit or clock")


def _notes(
    runs: Profiles,
    settings: Settings,
    cards: Cards,
    columns: Mapping[str, np.ndarray],
    prior: Scenario | None,
    known_idle: float | None,
    *,
    simple: bool,
) -> list[str]:
    notes = []
    if np.all(settings.is_profile):
        whose = "other cards" if cards.known else "the prior"
        notes.append(f"Nothing was measured below the highest limit or clock: all constants are those of {whose}.")
    unknown = [name for name, kind in zip(cards.names, cards.architectures, strict=True) if kind is None]
    if unknown and unknown != [NO_NAME]:
        notes.append(f"No kin of {', '.join(unknown)} is known: the priors are those of any card.")
    for place, name in enumerate(cards.names):
        rows = np.asarray(runs.device) == place
        idle = columns.get("idle_power_w", np.full(len(rows), np.nan))[rows]
        if known_idle is None and np.all(np.isnan(idle)):
            at = float(runs.idle_power[rows][0])
            notes.append(
                f"Idle power of {name} is taken as {at:.4g} W, {_idle_guess(runs, rows)}: better give idle_power_w."
            )
        if not runs.by_limit:
            continue
        rated, limits = float(runs.rated_power[rows][0]), np.asarray(runs.limit)[rows]
        lowest = float(lowest_limits(settings)[rows][0])
        poor = np.unique(limits[limits < lowest])
        if len(poor):
            shown = ", ".join(f"{one:g} W" for one in poor)
            notes.append(f"{name} draws more than some of its limits: it does not hold {shown}, which are not chosen.")
        notes.append(
            f"No limit of {name} below {lowest:.0f} W is chosen: below {100 * LOWEST_HELD:.0f} % of the rated power "
            f"({rated:g} W) cards may fall to a lower performance state, unless a limit was measured to hold."
        )
    if prior is None or len(cards.names) > 1:
        return notes
    chip, rated = prior.system.accelerator, float(runs.rated_power[0])
    if not 0.8 < rated / float(chip.rated_power) < 1.25:
        notes.append(
            f"The highest limit, {rated:g} W, is not the rated power of the prior's accelerator, "
            f"{float(chip.rated_power):g} W: give --prior the same device if there is one."
        )
    if not simple and not hasattr(chip.voltage, "floor"):
        notes.append("The prior's voltage has neither floor nor knee: the scenario keeps it, without the fitted ones.")
    return notes


def _idle_guess(runs: Profiles, rows: np.ndarray | slice = slice(None)) -> str:
    """Where an idle power of some rows comes from that nobody metered."""
    if np.min(np.asarray(runs.power)[rows]) <= MOST_IDLE * np.asarray(runs.rated_power)[rows][0]:
        return "just under the lowest power that was measured, an upper bound"
    return f"{100 * USUAL_IDLE:.0f} % of the highest limit: nothing that was measured is as low as an idle device"


def _idle_of(prior: Scenario | None) -> float | None:
    """Idle power of the prior's accelerator [W], where it is known: the rows know more than one that was assumed."""
    if prior is None:
        return None
    source = prior.provenance.get(f"{CHIP}.idle_power")
    return None if source is None or source.is_prior else float(prior.system.accelerator.idle_power)


def _known_numbers(
    runs: Profiles, columns: Mapping[str, np.ndarray], known_idle: float | None
) -> dict[str, KnownNumber]:
    """Rated and idle power, with what they are where no meter showed them."""
    rated, idle = float(runs.rated_power[0]), float(runs.idle_power[0])
    metered = np.any(np.isfinite(columns.get("idle_power_w", np.array([np.nan]))))
    guess = "" if metered else _idle_guess(runs)
    if not metered and idle == known_idle:
        guess = "that of the prior"
    limited = "the highest limit that was set" if runs.by_limit else "the highest power that was measured"
    return {
        f"{CHIP}.rated_power": KnownNumber(rated, "W", limited),
        f"{CHIP}.idle_power": KnownNumber(idle, "W", guess),
    }


def _constants(prior: Scenario | None, *, simple: bool) -> ConstantPriors:
    form = "posynomial" if simple else "voltage-floor"
    if prior is None:
        return power_constants(form=form)
    chip = prior.system.accelerator
    static = float(chip.leakage.power) + float(chip.fixed_power)
    above = (static - float(chip.idle_power)) / float(chip.rated_power)
    floor, knee = float(getattr(chip.voltage, "floor", 0.8)), float(getattr(chip.voltage, "knee", 0.6))
    constants = power_constants(DeviceMedians(floor, knee, float(chip.minimum_clock), max(above, 0.02)), form=form)
    if simple and isinstance(chip.voltage, PosynomialVoltage):
        share = min(max(float(chip.voltage.cubic_share), 0.05), 0.95)
        return {**constants, "cubic_share": constants["cubic_share"]._replace(median=share)}
    return constants


def _fitted_numbers(runs: Profiles, prior: Scenario | None, *, simple: bool) -> dict[str, FittedNumber]:
    rated, idle = float(runs.rated_power[0]), float(runs.idle_power[0])
    chip = prior.system.accelerator if prior else None
    leakage = 0.5 if chip is None else float(chip.leakage.power) / float(chip.leakage.power + chip.fixed_power)
    intercept, slope = (0.0, 1.0) if prior is None else busy_line(prior)
    numbers = {f"{CHIP}.busy_power": FittedNumber("busy_power", rated / slope, "W", -intercept / slope)}
    for name, share in (("leakage.power", leakage), ("fixed_power", 1.0 - leakage)):
        numbers[f"{CHIP}.{name}"] = FittedNumber("static_above_idle", share * rated, "W", share * idle)
    if simple:
        numbers[f"{CHIP}.voltage.cubic_share"] = FittedNumber("cubic_share", 1.0, "1")
    elif chip is None or hasattr(chip.voltage, "floor"):
        for name in ("floor", "knee"):
            numbers[f"{CHIP}.voltage.{name}"] = FittedNumber(f"voltage_{name}", 1.0, "1")
    return numbers


def _range(runs: Profiles, cards: Cards) -> dict[str, float | str]:
    finite = runs.limit[np.isfinite(runs.limit)]
    found: dict[str, float | str] = {"rated_power": float(runs.rated_power[0])}
    if len({*finite.tolist()}) > 1:
        found = {"lowest_power_cap": float(np.min(finite)), **found}
    return found if cards.names == (NO_NAME,) else {**found, "gpu": ", ".join(cards.names)}


def _lowest_clock(runs: Profiles, values: Mapping[str, float]) -> dict[str, KnownNumber]:
    """Clock of a busy device at the lowest limit that was measured; a plan may not go below it."""
    lowest, finite = float(np.min(runs.clock)), runs.limit[np.isfinite(runs.limit)]
    if len({*finite.tolist()}) > 1:
        rated, cap = float(runs.rated_power[0]), float(np.min(finite))
        static = float(runs.idle_power[0]) + values["static_above_idle"] * rated
        share = np.clip((cap - static) / (values["busy_power"] * rated - static), LOWEST_ABOVE, 1.0)
        with jax.enable_x64(True):
            clock = clock_at_power(jnp.asarray(share), values)
        lowest = min(lowest, max(float(clock), values["lowest_clock"]))
    if lowest == 1.0:
        return {}
    return {f"{CHIP}.minimum_clock": KnownNumber(lowest, "1", "that of the lowest limit or clock that was measured")}


def _candidates(settings: Settings) -> Candidates:
    """Settings between the lowest and the highest limit (or clock) of every profile."""
    runs, is_profile = settings.runs, settings.is_profile
    speed, device = np.asarray(runs.limit if runs.by_limit else runs.clock), np.asarray(runs.device)
    held, pairs = lowest_limits(settings), []
    for row in np.flatnonzero(is_profile):
        own = speed[(device == device[row]) & np.isfinite(speed)]
        highest = float(np.max(own)) if len(own) else float(runs.rated_power[row])
        lowest = float(np.min(own)) if len(own) and np.min(own) < highest else LOWEST_HELD * highest
        steps = np.linspace(max(lowest, held[row]), highest, SPLITS, endpoint=False)
        pairs += [(row, step) for step in steps]
    pairs = Candidates.thinned(pairs)
    chosen, at = np.array([row for row, _ in pairs]), np.array([step for _, step in pairs])
    unit = "W" if runs.by_limit else "of the profile's clock"
    several = len(settings.devices) > 1
    words = [
        (f"{settings.devices[device[row]]}, " if several else "")
        + f"{settings.workload[row]}, batch {settings.batch[row]:g}, at {step:.3g} {unit}"
        for row, step in pairs
    ]
    return Candidates(runs.at_speeds(chosen, at), words)
