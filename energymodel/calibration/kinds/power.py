"""How does a file of times and powers become a fit: `calibrate` kind `power`?"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration import power
from energymodel.calibration.best_setting import best_settings
from energymodel.calibration.measurements import Column, Measurements, check_repeats
from energymodel.calibration.problem import MOST_CANDIDATES, Change, Form, Given, Problem
from energymodel.errors import InputError
from energymodel.physics.voltage import PosynomialVoltage
from energymodel.presets.scenario import Scenario

LEAST_LIMITS = 3  # below the highest, in a workload, that floor and knee of the voltage need
SPLITS = 8  # of the range of limits, where candidates lie

POWER_COLUMNS = (
    Column("workload", "text", "what was run", needed=False),
    Column("gpu", "text", "kind of device; one in a file", needed=False),
    Column("dataset", "text", "part of the workload", needed=False),
    Column("network", "text", "part of the workload", needed=False),
    Column("optimizer", "text", "part of the workload", needed=False),
    Column("run", "text", "number of a repeated measurement", needed=False),
    Column("batch", "1", "batch", others=("batch_size", "microbatch")),
    Column("power_limit_w", "W", "power limit", needed=False),
    Column("clock_hz", "Hz", "clock that was set", needed=False, others=("core_clock_hz",)),
    Column(
        "time_s", "s", "time of the same work at every setting of a workload, such as an epoch",
        others=("epoch_time_s", "elapsed_time_s"),
    ),
    Column("power_w", "W", "mean power of the device", others=("average_power_w", "mean_power_per_gpu_w")),
    Column("idle_power_w", "W", "power of the idle device", needed=False),
)  # fmt: skip


def power_problem(table: Measurements, prior: Scenario | None, form: str | None = None) -> Problem:
    """Time and power of a device at power limits or clocks: nine constants, or eight, see `power.predict_power`.

    **Arguments:**

    - `form`: one of `power.FORMS`; by default the one of `chosen_form`.
    """
    columns = table.columns
    if "power_limit_w" not in columns and "clock_hz" not in columns:
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
    parts = [columns[name] for name in ("workload", "dataset", "network", "optimizer") if name in columns]
    workload = np.array(["/".join(words) for words in zip(*parts, strict=True)] if parts else ["all"] * len(table))
    limit = columns.get("power_limit_w", np.full(len(table), np.inf))
    idle = columns.get("idle_power_w")
    idle = None if idle is None or np.all(np.isnan(idle)) else float(np.nanmean(idle))
    if idle is None and prior is not None:
        idle = float(prior.system.accelerator.idle_power)
    try:
        runs, is_profile = power.profiles(
            workload, columns["batch"], limit, columns["time_s"], columns["power_w"], clock=columns.get("clock_hz"),
            idle_power=idle,
        )  # fmt: skip
    except InputError as error:
        raise InputError(f"{table.path}: {error}") from None
    notes: list[str] = []
    chosen = Form(form, "it was asked for") if form is not None else chosen_form(runs, is_profile, prior)
    simple = chosen.name == "posynomial"
    shape: power.Form = "posynomial" if simple else "voltage-floor"
    constants = power.power_constants(form=shape)
    rated, idle_used = float(runs.rated_power[0]), float(runs.idle_power[0])
    path, chip = "system.accelerator", prior.system.accelerator if prior else None
    changes = {
        f"{path}.busy_power": Change("busy_power", rated, "W"),
    }
    leakage = 0.5 if chip is None else float(chip.leakage.power) / float(chip.leakage.power + chip.fixed_power)
    for name, share in (("leakage.power", leakage), ("fixed_power", 1.0 - leakage)):
        changes[f"{path}.{name}"] = Change("static_above_idle", share * rated, "W", share * idle_used)
    given = {f"{path}.rated_power": Given(rated, "W"), f"{path}.idle_power": Given(idle_used, "W")}
    curve: dict[str, float] = {}
    if chip is not None:
        static = float(chip.leakage.power) + float(chip.fixed_power)
        above = (static - float(chip.idle_power)) / float(chip.rated_power)
        curve = {
            name: float(getattr(chip.voltage, name))
            for name in ("floor", "knee")
            if hasattr(chip.voltage, name)
        }  # fmt: skip
        floor, knee = curve.get("floor", 0.8), curve.get("knee", 0.6)
        constants = power.power_constants(floor, knee, float(chip.minimum_clock), max(above, 0.02), form=shape)
        if not 0.8 < rated / float(chip.rated_power) < 1.25:
            notes.append(
                f"The highest limit, {rated:g} W, is not the rated power of the prior's accelerator, "
                f"{float(chip.rated_power):g} W: give --prior the same device if there is one."
            )
    if simple and chip is not None and isinstance(chip.voltage, PosynomialVoltage):
        share = min(max(float(chip.voltage.cubic_share), 0.05), 0.95)
        constants = {**constants, "cubic_share": constants["cubic_share"]._replace(median=share)}
    if simple:
        changes[f"{path}.voltage.cubic_share"] = Change("cubic_share", 1.0, "1")
    elif chip is None or curve:
        changes |= {f"{path}.voltage.{name}": Change(f"voltage_{name}", 1.0, "1") for name in ("floor", "knee")}
    else:
        notes.append("The prior's voltage has neither floor nor knee: the scenario keeps it, without the fitted ones.")
    if idle is None:
        notes.append(
            f"Idle power is taken as {idle_used:.4g} W, just under the lowest measured: better give idle_power_w."
        )
    groups, word = workload, "workload"
    if len({*workload.tolist()}) == 1:
        groups, word = np.array([f"batch {one:g}" for one in columns["batch"]]), "batch"
    speed = limit if np.any(np.isfinite(limit)) else columns["clock_hz"] / 1e6
    label = "power limit [W]" if np.any(np.isfinite(limit)) else "clock [MHz]"
    candidates, words = _power_candidates(runs, workload, columns["batch"], is_profile)
    return Problem(
        errors=power.errors, constants=constants, table=runs, weights=np.where(is_profile, 0.0, 1.0), groups=groups,
        group_word=word, outputs={"time": (1.0, 0.0), "power": (0.0, 1.0), "energy": (1.0, 1.0)},
        along=(label, np.asarray(speed)), candidates=candidates, candidate_words=words, changes=changes, given=given,
        notes=notes, law=partial(_lowest_clock, runs, path), law_needs=(), range=_range(runs),
        form=chosen, components={f"{path}.voltage": "PosynomialVoltage"} if simple else {},
        best=lambda values, error: best_settings(
            values, runs, is_profile, workload, columns["batch"], error["energy"]
        ),
    )  # fmt: skip


def chosen_form(runs: power.Profiles, is_profile: np.ndarray, prior: Scenario | None) -> Form:
    """The form that measurements can determine [docs/physics.md B2.1].

    That of an earlier calibration; else floor and knee of the voltage if the prior knows them and does not assume them,
    or if there are enough settings below the profiles to determine them; else the posynomial form, which has one
    constant in their place.

    **Arguments:**

    - `runs`, `is_profile`: from `power.profiles`.
    - `prior`: the scenario behind `--prior`.
    """
    if prior is not None:
        earlier = prior.tables.get("calibration", {}).get("power", {}).get("names", ())
        for name, constant in zip(power.FORMS, ("voltage_floor", "cubic_share"), strict=True):
            if constant in earlier:
                return Form(name, "the prior was calibrated with it")
        floor = prior.provenance.get("system.accelerator.voltage.floor")
        if floor is not None and not floor.is_prior:
            return Form("voltage-floor", "the prior's voltage floor and knee are known")
    speeds = np.asarray(runs.limit if np.any(np.isfinite(runs.limit)) else runs.clock)
    lower, workload = ~is_profile, np.asarray(runs.workload)
    most = max(len({*speeds[lower & (workload == one)].tolist()}) for one in {*workload.tolist()})
    if most < LEAST_LIMITS:
        words = f"{most} setting{'s' if most > 1 else ''}"
        return Form(
            "posynomial",
            f"no workload has more than {words} below its highest limit or clock; floor and knee of the voltage need "
            f"{LEAST_LIMITS}",
        )
    needed = len(power.power_constants())
    if np.sum(lower) < needed:
        return Form("posynomial", f"{np.sum(lower)} rows below the highest limit or clock are fewer than {needed}")
    return Form("voltage-floor", f"a workload has {most} settings below its highest limit or clock")


def _range(runs: power.Profiles) -> dict[str, float]:
    finite = runs.limit[np.isfinite(runs.limit)]
    lowest = {"lowest_power_cap": float(np.min(finite))} if len(finite) else {}
    return {**lowest, "rated_power": float(runs.rated_power[0])}


def _lowest_clock(runs: power.Profiles, path: str, values: Mapping[str, float]) -> dict[str, Given]:
    """Clock of a busy device at the lowest limit that was measured; a plan may not go below it."""
    lowest = float(np.min(runs.clock))
    if (cap := _range(runs).get("lowest_power_cap")) is not None:
        rated = float(runs.rated_power[0])
        static = float(runs.idle_power[0]) + values["static_above_idle"] * rated
        share = np.clip((cap - static) / (values["busy_power"] * rated - static), power.LEAST_ABOVE, 1.0)
        with jax.enable_x64(True):
            clock = power.clock_at_power(jnp.asarray(share), values)
        lowest = min(lowest, max(float(clock), values["lowest_clock"]))
    return {f"{path}.minimum_clock": Given(lowest, "1")}


def _power_candidates(
    runs: power.Profiles, workload: np.ndarray, batch: np.ndarray, is_profile: np.ndarray
) -> tuple[power.Profiles, list[str]]:
    """Settings between the lowest and the highest limit (or clock) of every profile."""
    rows = np.flatnonzero(is_profile)
    by_limit = bool(np.any(np.isfinite(runs.limit)))
    values = np.asarray(runs.limit if by_limit else runs.clock)
    low, high = float(np.min(values)), float(np.max(values[np.isfinite(values)]))
    steps = np.linspace(low, high, SPLITS, endpoint=False)
    pairs = [(row, step) for row in rows for step in steps]
    pairs = pairs[:: max(1, -(-len(pairs) // MOST_CANDIDATES))]
    chosen, at = np.array([row for row, _ in pairs]), np.array([step for _, step in pairs])
    table = power.Profiles(*(np.asarray(leaf)[chosen] for leaf in runs))
    table = table._replace(limit=at) if by_limit else table._replace(clock=at)
    unit = "W" if by_limit else "of the profile's clock"
    words = [
        f"{workload[row]}, batch {batch[row]:g}, at {step:.3g} {unit}" for row, step in zip(chosen, at, strict=True)
    ]
    return table, words
