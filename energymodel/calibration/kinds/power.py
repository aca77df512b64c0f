"""Which constants of a device do its times and powers give: `calibrate` kind `power`?"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.best_setting import best_settings
from energymodel.calibration.calibration_case import (
    CalibrationCase,
    Candidates,
    ChosenForm,
    FittedNumber,
    Grouping,
    KnownNumber,
)
from energymodel.calibration.constant_priors import ConstantPriors
from energymodel.calibration.device_power import (
    FORMS,
    LOWEST_ABOVE,
    DeviceMedians,
    Profiles,
    clock_at_power,
    power_constants,
    power_errors,
    profiles,
)
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.calibration.measurements import Column, Measurements, check_repeats, optional
from energymodel.errors import InputError
from energymodel.physics.voltage import PosynomialVoltage
from energymodel.presets.scenario import Scenario

FEWEST_LIMITS = 3  # below the highest, in a workload, that floor and knee of the voltage need
SPLITS = 8  # of the range of limits, where candidates lie
CHIP = "system.accelerator"
OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100)
NOISE = 0.04

POWER_COLUMNS = (
    optional("workload", "text", "what was run"),
    optional("gpu", "text", "kind of device; one in a file"),
    optional("dataset", "text", "part of the workload"),
    optional("network", "text", "part of the workload"),
    optional("optimizer", "text", "part of the workload"),
    optional("run", "text", "number of a repeated measurement"),
    Column("batch", "1", "batch", others=("batch_size", "microbatch")),
    optional("power_limit_w", "W", "power limit"),
    optional("clock_hz", "Hz", "clock that was set", "core_clock_hz"),
    Column(
        "time_s",
        "s",
        "time of the same work at every setting of a workload, such as an epoch",
        others=("epoch_time_s", "elapsed_time_s"),
    ),
    Column("power_w", "W", "mean power of the device", others=("average_power_w", "mean_power_per_gpu_w")),
    optional("idle_power_w", "W", "power of the idle device"),
)


def power_case(table: Measurements, prior: Scenario | None, form: str | None = None) -> CalibrationCase:
    """Time and power of a device at power limits or clocks: nine constants, or eight, see `predict_power`.

    **Arguments:**

    - `form`: one of `device_power.FORMS`; by default the one of `chosen_form`.
    """
    _check(table)
    columns, chip = table.columns, prior.system.accelerator if prior else None
    parts = [columns[name] for name in ("workload", "dataset", "network", "optimizer") if name in columns]
    workload = np.array(["/".join(words) for words in zip(*parts, strict=True)] if parts else ["all"] * len(table))
    idle = columns.get("idle_power_w")
    idle = None if idle is None or np.all(np.isnan(idle)) else float(np.nanmean(idle))
    if idle is None and chip is not None:
        idle = float(chip.idle_power)
    limit = columns.get("power_limit_w", np.full(len(table), np.inf))
    batch, time, watt = (columns[name] for name in ("batch", "time_s", "power_w"))
    try:
        runs, is_profile = profiles(workload, batch, limit, time, watt, clock=columns.get("clock_hz"), idle_power=idle)
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from None
    chosen = chosen_form(runs, is_profile, prior) if form is None else ChosenForm(form, "it was asked for")
    simple = chosen.name == "posynomial"
    rated, idle_used = float(runs.rated_power[0]), float(runs.idle_power[0])
    notes = _notes(runs, prior, simple=simple)
    if idle is None:
        notes.append(
            f"Idle power is taken as {idle_used:.4g} W, just under the lowest measured: better give idle_power_w."
        )
    groups = Grouping(workload, "workload")
    if len({*workload.tolist()}) == 1:
        groups = Grouping(np.array([f"batch {one:g}" for one in batch]), "batch")
    along = ("power limit [W]", limit) if runs.by_limit else ("clock [MHz]", columns["clock_hz"] / 1e6)
    weights = np.where(is_profile, 0.0, 1.0)
    return CalibrationCase(
        fit=FitProblem(power_errors, _constants(prior, simple=simple), runs, weights, NOISE, OPTIONS),
        groups=groups,
        outputs={"time": (1.0, 0.0), "power": (0.0, 1.0), "energy": (1.0, 1.0)},
        along=along,
        candidates=_candidates(runs, workload, batch, is_profile),
        fitted_numbers=_fitted_numbers(runs, prior, simple=simple),
        known_numbers={
            f"{CHIP}.rated_power": KnownNumber(rated, "W"),
            f"{CHIP}.idle_power": KnownNumber(idle_used, "W"),
        },
        notes=notes,
        law=partial(_lowest_clock, runs),
        law_needs=(),
        range=_range(runs),
        form=chosen,
        components={f"{CHIP}.voltage": "PosynomialVoltage"} if simple else {},
        best=lambda values, error: best_settings(values, runs, is_profile, workload, batch, error["energy"]),
    )


def _check(table: Measurements) -> None:
    if "power_limit_w" not in table.columns and "clock_hz" not in table.columns:
        raise InputError(
            f'{table.path}, line 1: column "power_limit_w" [W] or "clock_hz" [Hz] is missing: the limit or clock that '
            "was set."
        )
    devices = sorted({*table.text("gpu", "").tolist()})
    if len(devices) > 1:
        raise InputError(
            f'{table.path}: column "gpu" holds {", ".join(devices)}; constants belong to one device. Choose it with '
            f"--where gpu={devices[0]}."
        )
    check_repeats(table, ("workload", "dataset", "network", "optimizer", "batch", "power_limit_w", "clock_hz", "run"))


def chosen_form(runs: Profiles, is_profile: np.ndarray, prior: Scenario | None) -> ChosenForm:
    """The form that measurements can determine [docs/physics.md B2.1].

    That of an earlier calibration; else floor and knee of the voltage if the prior knows them and does not assume them,
    or if there are enough settings below the profiles to determine them; else the posynomial form, which has one
    constant in their place.

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


def _notes(runs: Profiles, prior: Scenario | None, *, simple: bool) -> list[str]:
    if prior is None:
        return []
    chip, rated, notes = prior.system.accelerator, float(runs.rated_power[0]), []
    if not 0.8 < rated / float(chip.rated_power) < 1.25:
        notes.append(
            f"The highest limit, {rated:g} W, is not the rated power of the prior's accelerator, "
            f"{float(chip.rated_power):g} W: give --prior the same device if there is one."
        )
    if not simple and not hasattr(chip.voltage, "floor"):
        notes.append("The prior's voltage has neither floor nor knee: the scenario keeps it, without the fitted ones.")
    return notes


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
    numbers = {f"{CHIP}.busy_power": FittedNumber("busy_power", rated, "W")}
    for name, share in (("leakage.power", leakage), ("fixed_power", 1.0 - leakage)):
        numbers[f"{CHIP}.{name}"] = FittedNumber("static_above_idle", share * rated, "W", share * idle)
    if simple:
        numbers[f"{CHIP}.voltage.cubic_share"] = FittedNumber("cubic_share", 1.0, "1")
    elif chip is None or hasattr(chip.voltage, "floor"):
        for name in ("floor", "knee"):
            numbers[f"{CHIP}.voltage.{name}"] = FittedNumber(f"voltage_{name}", 1.0, "1")
    return numbers


def _range(runs: Profiles) -> dict[str, float]:
    finite = runs.limit[np.isfinite(runs.limit)]
    lowest = {"lowest_power_cap": float(np.min(finite))} if len(finite) else {}
    return {**lowest, "rated_power": float(runs.rated_power[0])}


def _lowest_clock(runs: Profiles, values: Mapping[str, float]) -> dict[str, KnownNumber]:
    """Clock of a busy device at the lowest limit that was measured; a plan may not go below it."""
    lowest = float(np.min(runs.clock))
    if (cap := _range(runs).get("lowest_power_cap")) is not None:
        rated = float(runs.rated_power[0])
        static = float(runs.idle_power[0]) + values["static_above_idle"] * rated
        share = np.clip((cap - static) / (values["busy_power"] * rated - static), LOWEST_ABOVE, 1.0)
        with jax.enable_x64(True):
            clock = clock_at_power(jnp.asarray(share), values)
        lowest = min(lowest, max(float(clock), values["lowest_clock"]))
    return {f"{CHIP}.minimum_clock": KnownNumber(lowest, "1")}


def _candidates(runs: Profiles, workload: np.ndarray, batch: np.ndarray, is_profile: np.ndarray) -> Candidates:
    """Settings between the lowest and the highest limit (or clock) of every profile."""
    values = np.asarray(runs.limit if runs.by_limit else runs.clock)
    steps = np.linspace(np.min(values), np.max(values[np.isfinite(values)]), SPLITS, endpoint=False)
    pairs = Candidates.thinned([(row, step) for row in np.flatnonzero(is_profile) for step in steps])
    chosen, at = np.array([row for row, _ in pairs]), np.array([step for _, step in pairs])
    unit = "W" if runs.by_limit else "of the profile's clock"
    words = [f"{workload[row]}, batch {batch[row]:g}, at {step:.3g} {unit}" for row, step in pairs]
    return Candidates(runs.at_speeds(chosen, at), words)
