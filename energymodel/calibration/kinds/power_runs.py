"""Rows of kind `power` with their profiles and devices, and the numbers of a scenario that follow from them."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from energymodel.calibration.best_setting import LOWEST_HELD, Settings, lowest_limits
from energymodel.calibration.calibration_case import CHIP, FittedNumber, KnownNumber
from energymodel.calibration.device_power import LOWEST_ABOVE, MOST_IDLE, USUAL_IDLE, Profiles, clock_at_power, profiles
from energymodel.calibration.kinds.power_table import ACTIVITY, asked_settings, labels_of
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.power_population import Architecture, architecture_of
from energymodel.errors import InputError
from energymodel.scenarios.scenario import Scenario
from energymodel.system.step import training_step

NO_NAME = "this device"
APART = 0.1  # of the busy power, between which the line is drawn
NO_CAP = 10.0  # [rated power]


class Cards(NamedTuple):
    """Devices of the rows: a name by row, all names, and the architecture of each, if it is known."""

    by_row: np.ndarray
    names: tuple[str, ...]
    architectures: tuple[Architecture | None, ...]

    @property
    def known(self) -> bool:
        """Whether the architecture of all of them is."""
        return all(architecture is not None for architecture in self.architectures)

    @property
    def several(self) -> bool:
        """Whether there is more than one device."""
        return len(self.names) > 1


class PowerRuns(NamedTuple):
    """Measured settings of devices, and what a scenario knows of them before."""

    settings: Settings
    cards: Cards
    columns: Mapping[str, np.ndarray]
    prior: Scenario | None
    prior_idle: float | None

    @property
    def rated(self) -> float:
        """Rated power of the first device [W]."""
        return float(self.settings.runs.rated_power[0])


def power_runs(
    table: Measurements, asked: Measurements, cards: Cards, prior: Scenario | None, noise: float
) -> PowerRuns:
    """Rows joined with their profiles, and the settings to predict."""
    columns, count = table.columns, len(table)
    workload, batch = labels_of(table), columns.get("batch", np.ones(count))
    idle = columns.get("idle_power_w", np.full(count, np.nan))
    prior_idle = None if cards.several else _idle_of(prior)
    if prior_idle is not None and np.all(np.isnan(idle)):
        idle = np.full(count, prior_idle)
    runs, is_profile = profiles(
        workload,
        batch,
        columns.get("power_limit_w", np.full(count, np.inf)),
        columns["time_s"],
        columns["power_w"],
        clock=columns.get("clock_hz"),
        idle_power=idle,
        device=cards.by_row,
        memory_activity=columns.get(ACTIVITY),
    )
    epochs = columns.get("epochs", np.ones(count))
    epochs = np.where(np.isfinite(epochs), epochs, np.inf)
    predicted = asked_settings(asked, table, workload, is_profile, by_limit=runs.by_limit)
    settings = Settings(runs, is_profile, workload, batch, cards.names, epochs, noise, predicted)
    return PowerRuns(settings, cards, columns, prior, prior_idle)


def cards_of(table: Measurements, prior: Scenario | None) -> Cards:
    """Devices of the rows; where none is named, that of the prior.

    **Raises:** `InputError` where only some rows name theirs.
    """
    named = table.text("gpu", "")
    blank = named == ""
    if np.any(blank) and not np.all(blank):
        line = int(table.lines[np.flatnonzero(blank)[0]])
        raise InputError(f'{table.path}, line {line}, column "gpu": empty. Name the device of every row, or of none.')
    if not np.any(blank):
        names = tuple(dict.fromkeys(named.tolist()))
        return Cards(named, names, tuple(map(architecture_of, names)))
    kind = None
    if prior is not None:
        earlier = prior.tables.get("calibration", {}).get("power", {}).get("gpu", "")
        chip = prior.tables.get("system", {}).get("accelerator", "")
        chip = chip.get("preset", "") if isinstance(chip, Mapping) else chip
        kind = architecture_of(str(earlier)) or architecture_of(str(chip))
    return Cards(np.full(len(table), NO_NAME), (NO_NAME,), (kind,))


def power_notes(data: PowerRuns, *, simple: bool) -> list[str]:
    """What a reader must know of the devices and of the prior."""
    runs, cards, notes = data.settings.runs, data.cards, []
    if np.all(data.settings.is_profile):
        whose = "other cards" if cards.known else "the prior"
        notes.append(f"Nothing was measured below the highest limit or clock: all constants are those of {whose}.")
    unknown = [name for name, kind in zip(cards.names, cards.architectures, strict=True) if kind is None]
    if unknown and unknown != [NO_NAME]:
        notes.append(f"No card similar to {', '.join(unknown)} is known: the priors are those of any card.")
    lowest_of = lowest_limits(data.settings)
    for number, name in enumerate(cards.names):
        rows = np.asarray(runs.device) == number
        if data.prior_idle is None and not _is_metered(data.columns, rows):
            notes.append(
                f"Idle power of {name} is taken as {float(runs.idle_power[rows][0]):.4g} W, "
                f"{_idle_guess(runs, rows)}: better give idle_power_w."
            )
        if not runs.by_limit:
            continue
        rated, limits, lowest = float(runs.rated_power[rows][0]), np.asarray(runs.limit)[rows], lowest_of[rows][0]
        exceeded = ", ".join(f"{limit:g} W" for limit in np.unique(limits[limits < lowest]))
        if exceeded:
            notes.append(
                f"{name} draws more than some of its limits: it does not hold {exceeded}, which are not chosen."
            )
        notes.append(
            f"No limit of {name} below {lowest:.0f} W is chosen: below {100 * LOWEST_HELD:.0f} % of the rated power "
            f"({rated:g} W) cards may fall to a lower performance state, unless a limit was measured to hold."
        )
    if data.prior is None or cards.several:
        return notes
    prior_rated = float(data.prior.system.accelerator.rated_power)
    if not 0.8 < data.rated / prior_rated < 1.25:
        notes.append(
            f"The highest limit, {data.rated:g} W, is not the rated power of the prior's accelerator, "
            f"{prior_rated:g} W: give --prior the same device if there is one."
        )
    if not simple and not has_floor(data.prior):
        notes.append("The prior's voltage has neither floor nor knee: the scenario keeps it, without the fitted ones.")
    return notes


def has_floor(scenario: Scenario) -> bool:
    """Whether the voltage of a scenario has a floor and a knee."""
    return hasattr(scenario.system.accelerator.voltage, "floor")


def _is_metered(columns: Mapping[str, np.ndarray], rows: np.ndarray | slice = slice(None)) -> bool:
    return "idle_power_w" in columns and bool(np.any(np.isfinite(columns["idle_power_w"][rows])))


def _idle_guess(runs: Profiles, rows: np.ndarray | slice = slice(None)) -> str:
    """Source of the idle power of some rows that nobody metered."""
    if np.min(np.asarray(runs.power)[rows]) <= MOST_IDLE * np.asarray(runs.rated_power)[rows][0]:
        return "just under the lowest power that was measured, an upper bound"
    return f"{100 * USUAL_IDLE:.0f} % of the highest limit: nothing that was measured is as low as an idle device"


def _idle_of(prior: Scenario | None) -> float | None:
    """Idle power of the prior's accelerator [W], unless it was assumed."""
    source = None if prior is None else prior.provenance.get(f"{CHIP}.idle_power")
    return None if prior is None or source is None or source.is_prior else float(prior.system.accelerator.idle_power)


def known_numbers(data: PowerRuns) -> dict[str, KnownNumber]:
    """Rated and idle power, with what they are where no meter showed them."""
    runs, idle = data.settings.runs, float(data.settings.runs.idle_power[0])
    limited = "the highest limit that was set" if runs.by_limit else "the highest power that was measured"
    guess = "that of the prior" if idle == data.prior_idle else _idle_guess(runs)
    return {
        f"{CHIP}.rated_power": KnownNumber(data.rated, "W", limited),
        f"{CHIP}.idle_power": KnownNumber(idle, "W", "" if _is_metered(data.columns) else guess),
    }


def fitted_numbers(data: PowerRuns, form: str) -> dict[str, FittedNumber]:
    """Numbers of a scenario that follow from constants of the voltage forms."""
    rated, idle = data.rated, float(data.settings.runs.idle_power[0])
    leakage, (intercept, slope) = 0.5, (0.0, 1.0)
    if data.prior is not None:
        chip = data.prior.system.accelerator
        leakage = float(chip.leakage.power) / float(chip.leakage.power + chip.fixed_power)
        intercept, slope = busy_line(data.prior)
    numbers = {f"{CHIP}.busy_power": FittedNumber("busy_power", rated / slope, "W", -intercept / slope)}
    for name, share in (("leakage.power", leakage), ("fixed_power", 1.0 - leakage)):
        numbers[f"{CHIP}.{name}"] = FittedNumber("static_above_idle", share * rated, "W", share * idle)
    if form == "posynomial":
        numbers[f"{CHIP}.voltage.cubic_share"] = FittedNumber("cubic_share", 1.0, "1")
    elif data.prior is None or has_floor(data.prior):
        for name in ("floor", "knee"):
            numbers[f"{CHIP}.voltage.{name}"] = FittedNumber(f"voltage_{name}", 1.0, "1")
    return numbers


def busy_line(scenario: Scenario) -> tuple[float, float]:
    """Power of a chip at work in a scenario at clock 1 by its `accelerator.busy_power` b, `a + s b` [W]: a and s.

    Training works on attention, memory and small products as well as on large ones, so that a chip draws less in it:
    a power that was measured in training belongs to a higher `busy_power`. The line goes through two busy powers;
    switching energy per operation is in proportion to what is left of b.
    """
    chip = scenario.system.accelerator
    powers = float(chip.busy_power) * jnp.array([1.0 - APART, 1.0 + APART])

    def at(power: Float[Array, ""]) -> Float[Array, ""]:
        system = eqx.tree_at(lambda tree: tree.accelerator.busy_power, scenario.system, power)
        where = lambda tree: (tree.power_cap, tree.clock)  # noqa: E731
        plan = eqx.tree_at(where, scenario.plan, (jnp.asarray(NO_CAP * chip.rated_power), jnp.ones(())))
        return training_step(system, plan, jnp.max(jnp.asarray(plan.batch))).point.busy_power

    low, high = (float(power) for power in np.asarray(jax.jit(jax.vmap(at))(powers)))
    slope = (high - low) / float(powers[1] - powers[0])
    return high - slope * float(powers[1]), slope


def _limits(runs: Profiles) -> np.ndarray:
    """Distinct limits that were set [W]."""
    return np.unique(np.asarray(runs.limit)[np.isfinite(runs.limit)])


def measured_range(runs: Profiles, cards: Cards) -> dict[str, float | str]:
    """Lowest limit, rated power and name of the devices, for the calibrations that come after."""
    limits = _limits(runs)
    bounds: dict[str, float | str] = {"lowest_power_cap": float(limits[0])} if len(limits) > 1 else {}
    bounds["rated_power"] = float(runs.rated_power[0])
    return bounds if cards.names == (NO_NAME,) else {**bounds, "gpu": ", ".join(cards.names)}


def lowest_clock(runs: Profiles, values: Mapping[str, float]) -> dict[str, KnownNumber]:
    """Clock of a busy device at the lowest limit that was measured; a plan may not go below it."""
    lowest, limits = float(np.min(runs.clock)), _limits(runs)
    if len(limits) > 1:
        rated = float(runs.rated_power[0])
        static = float(runs.idle_power[0]) + values["static_above_idle"] * rated
        share = np.clip((limits[0] - static) / (values["busy_power"] * rated - static), LOWEST_ABOVE, 1.0)
        with jax.enable_x64(True):
            clock = clock_at_power(jnp.asarray(share), values)
        lowest = min(lowest, max(float(clock), values["lowest_clock"]))
    return minimum_clock(lowest, "that of the lowest limit or clock that was measured")


def minimum_clock(lowest: float, assumed: str) -> dict[str, KnownNumber]:
    """The lowest clock that a plan may take, where one was measured below 1."""
    return {} if lowest == 1.0 else {f"{CHIP}.minimum_clock": KnownNumber(lowest, "1", assumed)}
