"""Kind `node`: idle power, waiting power, busy share and fans of one kind of node from its power meters."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.calibration_case import BASE, CHIP, CalibrationCase, Candidates, FittedNumber, Grouping
from energymodel.calibration.cluster_source import PLACEHOLDER, chip_preset
from energymodel.calibration.constant_priors import ConstantPrior, Values
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.calibration.measurements import Measurements
from energymodel.calibration.node_power import (
    CONSTANTS,
    HIGHEST_IDLE,
    NodeRuns,
    idle_reading,
    node_power_errors,
    node_runs,
    system_columns,
    system_constants,
)
from energymodel.errors import InputError
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.training_system import TrainingSystem

NODE = "system.node"
OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100, noise_counts=4.0)
NOISE = 0.02
IDLE_WEIGHT = 3.0  # of an idle reading, which knows nothing of busy shares
IDLE_SPREAD, UNREAD_SPREAD = 0.25, 0.1  # of what a node draws beside idle chips and fans; without an idle reading
FACILITIES = {"air": "air-cooled", "liquid": "direct-liquid", "immersion": "immersion"}
"""Facility of each cooling type, where that of the prior has another."""
COOLING_WORDS = {
    "immersion": ("immers",),
    "liquid": ("liquid", "water", "cold plate", "neptune", "dlc"),
    "air": ("air", "fan"),
}
"""Parts of what submitters call the cooling of their nodes; the first that fits."""
AIR, NONE = 0.5, 0.0  # effort of fans above which nodes are in air, and without fans
ANY_IDLE = "idle node"
DOUBTFUL_IDLE = 1.3  # of the prior's idle power, whose spread is 0.1 to 0.15
SAME_CHIP = 0.05  # difference of rated powers
RATES = (0.25, 0.5, 0.75, 1.0)
EXPONENT = ConstantPrior(0.15, 0.10, 0.0, 0.6)
"""Of the count of nodes, by which the busy share of one job falls: two thirds on 8 nodes and half on 64
(`experiments/04_metered_runs`), less where the job grows with the nodes."""


class _Settings(NamedTuple):
    """Means over the runs of each setting, and words for it."""

    columns: Mapping[str, np.ndarray]
    system: np.ndarray
    benchmark: np.ndarray
    words: list[str]


def node_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Idle power, waiting power, busy share and fans of one kind of node, see `node_power.predicted_power`.

    Runs of one setting (submitter, system, benchmark) are averaged. The idle power is one more row, the lowest
    readings, which every held-out fit knows.

    **Raises:** `InputError` for several kinds of node, chips that are not the prior's, and one run at two meters.
    """
    scenario = prior or load_scenario(BASE)
    _check(table, scenario)
    notes: list[str] = []
    system, facility = _cooled(table, scenario, notes)
    settings = _settings(table)
    cooling = system.facility.cooling
    with jax.enable_x64(True):
        shared = system_columns(system, scenario.plan.coolant_temperature)
        static = float(system.accelerator.leakage.power) + float(system.accelerator.fixed_power)
        usual = system_constants(system)
        effort = shared["fan_effort"]
        inlet = settings.columns.get("inlet_temperature_k", np.full(len(settings.words), np.nan))
        efforts = [float(cooling.at(kelvin).fan_effort) if np.isfinite(kelvin) else effort for kelvin in inlet]
    for name, column in (("chips",) * 2, ("rated_power", "rated_power_w"), ("efficiency", "supply_efficiency")):
        values = table.columns.get(column, np.zeros(0))
        if np.any(np.isfinite(values)):
            shared[name] = float(values[np.isfinite(values)][0])
    rated, chips, efficiency = shared["rated_power"], shared["chips"], shared["efficiency"]
    fans = float(system.node.fan_power) * effort
    floor = (chips * shared["idle_chip"] * rated + fans) / efficiency
    idle = _idle(table, floor, shared["idle_power"], notes)
    power = settings.columns["node_power_w"]
    count = len(power)
    metered = settings.columns.get("chip_power_w", np.full(count, np.nan))
    spread = UNREAD_SPREAD if idle is None else IDLE_SPREAD
    rate = np.ones(count)
    constants = {"idle_power": ConstantPrior(max(shared["idle_power"], 1.05 * floor), spread, floor, unit="W")}
    if not np.all(np.isfinite(metered)):
        rate, busy = _busy_law(settings, notes)
        lowest = min(static / rated, 0.8)
        waiting = min(max(float(usual["waiting_power"]), lowest + 0.02), 0.88)
        constants |= {**busy, "waiting_power": ConstantPrior(waiting, 0.08, lowest, 0.9)}
    if effort > NONE:
        constants["fan_fraction"] = CONSTANTS["fan_fraction"]._replace(median=max(float(usual["fan_fraction"]), 0.01))
    runs = node_runs(
        np.append(power, idle or shared["idle_power"]),
        **{**shared, "fan_effort": np.append(efforts, effort)},
        relative_rate=np.append(rate, 1.0),
        nodes=np.append(settings.columns["nodes"], 1.0),
        chip_power=np.append(np.nan_to_num(metered) / rated, 0.0),
        running=np.append(np.ones(count), 0.0),
    )
    medians: Values = {name: np.asarray(each.median) for name, each in constants.items()}
    errors = np.expm1(np.abs(np.asarray(node_power_errors(medians, runs))[:count]))
    notes.append(f"The priors alone, without any of these rows, have a mean error of {100 * np.mean(errors):.1f} %.")
    if len(table) > count:
        notes.append(f"{len(table):,} rows are averaged to {count} settings.")
    weights = np.append(np.ones(count), IDLE_WEIGHT * float(idle is not None))
    switching = float(jnp.asarray(system.accelerator.dynamic_power))
    others = chips * shared["idle_chip"] * rated + fans
    written = {
        f"{NODE}.overhead_power": FittedNumber("idle_power", efficiency, "W", -others),
        f"{CHIP}.spin_activity": FittedNumber("waiting_power", rated / switching, "1", -static / switching),
        f"{NODE}.fan_fraction": FittedNumber("fan_fraction", 1.0, "1"),
    }
    return CalibrationCase(
        fit=FitProblem(node_power_errors, constants, runs, weights, NOISE, OPTIONS),
        groups=_groups(settings),
        outputs={"node power": (1.0,)},
        along=("measured node power [W]", np.asarray(runs.power)),
        candidates=_candidates(runs, metered="waiting_power" not in constants),
        fitted_numbers={path: number for path, number in written.items() if number.constant in constants},
        notes=notes,
        trained_on=np.append(np.zeros(count, bool), True),
        presets={} if facility is None else {"system.facility": facility},
    )


def _check(table: Measurements, scenario: Scenario) -> None:
    """Refuse other chips than the prior's, several kinds of node, and a run that two meters read."""
    rated = float(scenario.system.accelerator.rated_power)
    chips = dict(zip(table.text("accelerator", "")[::-1], table.lines[::-1], strict=True))
    for word, line in sorted(chips.items(), key=lambda item: item[1]):
        name = chip_preset(word, f"{table.path}, line {line}") if word else ""
        power = float(read_preset("hardware", name)["rated_power"]["value"]) if name else rated
        if abs(power / rated - 1.0) > SAME_CHIP:
            raise InputError(
                f'{table.path}, line {line}: "{word}" is rated {power:g} W, the chip of the prior {scenario.name} '
                f"{rated:g} W. Give --prior {name}."
            )
    for name in ("chips", "rated_power_w", "supply_efficiency"):
        values = table.columns.get(name, np.zeros(0))
        rows = np.flatnonzero(np.isfinite(values))
        other = rows[values[rows] != values[rows[:1]]]
        if other.size:
            raise InputError(
                f'{table.path}, line {table.lines[other[0]]}, column "{name}": {values[other[0]]:g}, and '
                f"{values[rows[0]]:g} in line {table.lines[rows[0]]}; constants belong to one kind of node. Choose its "
                "rows with --where COLUMN=VALUE."
            )
    if "run" not in table.columns:
        return
    seen: dict[tuple[str, ...], int] = {}
    keys = [table.text(name, "").tolist() for name in ("system", "benchmark", "run", "node")]
    for line, *key in zip(table.lines, *keys, strict=True):
        first = seen.setdefault(tuple(key), int(line))
        if first != line:
            raise InputError(
                f"{table.path}, line {line}: the run and node of line {first} again ({', '.join(map(str, key))}). "
                "Choose one of two meters with --where submitter=NAME, or number repeated runs in the column run."
            )


def _cooled(table: Measurements, scenario: Scenario, notes: list[str]) -> tuple[TrainingSystem, str | None]:
    """The prior's system with the cooling that the table names, and the facility preset if it is not the prior's."""
    system, kinds = scenario.system, dict[str, int]()
    for line, word in zip(table.lines, table.text("cooling", ""), strict=True):
        kind = next((kind for kind, parts in COOLING_WORDS.items() if any(part in word.lower() for part in parts)), "")
        if word and not kind:
            raise InputError(
                f'{table.path}, line {line}, column "cooling": unknown cooling "{word}". Write air, liquid or '
                "immersion, or for all rows --column cooling=WORD."
            )
        if word:
            kinds.setdefault(kind, int(line))
    if len(kinds) > 1:
        first, other = list(kinds)[:2]
        raise InputError(
            f'{table.path}, line {kinds[other]}, column "cooling": {other}, and {first} in line {kinds[first]}; '
            "constants belong to one kind of node. Choose its rows with --where cooling=WORD."
        )
    effort = float(system.facility.cooling.at(scenario.plan.coolant_temperature).fan_effort)
    own = "air" if effort > AIR else "liquid" if effort > NONE else "immersion"
    cooling = next(iter(kinds), own)
    if cooling == own:
        return system, None
    name = FACILITIES[cooling]
    notes.append(
        f"The scenario takes the facility {name}: the nodes are cooled by {cooling}, those of the prior by {own}. The "
        "power and limits of the prior's site are lost: lay your own over it."
    )
    replacement = load_scenario(PLACEHOLDER, {"system.facility": name}).system.facility.cooling
    return eqx.tree_at(lambda tree: tree.facility.cooling, system, replacement), name


def _settings(table: Measurements) -> _Settings:
    submitter, system, benchmark, run = (table.text(name, "") for name in ("submitter", "system", "benchmark", "run"))
    keys = list(zip(submitter.tolist(), system.tolist(), benchmark.tolist(), strict=True))
    if not any(any(key) for key in keys):
        keys = [("", f"line {line}", "") for line in table.lines]
    order = list(dict.fromkeys(keys))
    setting = np.array([order.index(key) for key in keys])
    count = np.bincount(setting)
    columns: dict[str, np.ndarray] = {}
    for name, values in table.columns.items():
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            total = np.bincount(setting[finite], values[finite], len(order))
            read = np.bincount(setting[finite], minlength=len(order))
            columns[name] = np.where(read == count, total / np.maximum(read, 1), np.nan)
    if "nodes" in columns:
        columns["nodes"] = np.where(np.isfinite(columns["nodes"]), columns["nodes"], 1.0)
    else:
        # Distinct nodes that were metered in a run.
        node = table.text("node", "").tolist()
        nodes, runs = (
            np.bincount([number for number, *_ in {*zip(setting.tolist(), *words, strict=True)}])
            for words in ((run.tolist(), node), (run.tolist(),))
        )
        columns["nodes"] = np.maximum(1.0, nodes / runs)
    _, of_system, of_benchmark = (np.array(column) for column in zip(*order, strict=True))
    return _Settings(columns, of_system, of_benchmark, [", ".join(filter(None, key)) for key in order])


def _groups(settings: _Settings) -> Grouping:
    """Settings of a benchmark, else of a system, else each alone, and the idle node."""
    labels, word = np.array([words or "all" for words in settings.words]), "setting"
    for others, name in ((settings.system, "system"), (settings.benchmark, "benchmark")):
        if len({*others.tolist()}) > 1:
            labels, word = others, name
    return Grouping(np.append(labels, ANY_IDLE), word)


def _idle(table: Measurements, floor: float, preset: float, notes: list[str]) -> float | None:
    """The lowest readings of the nodes [W], if one can be idle; a note says which or why none."""
    names = [name for name in ("idle_power_w", "pre_run_min_power_w", "min_power_w") if name in table.columns]
    if not names:
        notes.append(f"No idle power and no lowest reading: the prior's {preset:.0f} W are used.")
        return None
    lowest = np.fmin.reduce([table.columns[name] for name in names])
    reading = idle_reading(lowest, table.columns["node_power_w"], floor)
    reasons = (
        (reading.warm, f"above {100 * HIGHEST_IDLE:.0f} % of the mean power of the run, which began warm (line"),
        (
            reading.lost,
            f"at or below the {floor:.0f} W that idle chips and fans of the prior draw: gaps of the meter, or fans "
            "that draw less (line",
        ),
    )
    refused = [
        f"{np.sum(rows)} {reason} {table.lines[int(np.flatnonzero(rows)[0])]} is the first)"
        for rows, reason in reasons
        if np.any(rows)
    ]
    without = f" Not read as idle: {'; '.join(refused)}." if refused else ""
    if reading.power is None:
        notes.append(f"No reading in {', '.join(names)} can be idle: the prior's {preset:.0f} W are used.{without}")
        return None
    if reading.power > DOUBTFUL_IDLE * preset:
        notes.append(
            f"The lowest readings, {reading.power:.0f} W, are {100 * (reading.power / preset - 1):.0f} % above the "
            f"idle power of the prior, {preset:.0f} W. If all runs began warm, leave them out (--ignore-columns) or "
            "meter the idle node."
        )
    notes.append(f"Idle power is the lowest 5 % of {', '.join(names)}, {reading.power:.0f} W.{without}")
    return reading.power


def _busy_law(settings: _Settings, notes: list[str]) -> tuple[np.ndarray, dict[str, ConstantPrior]]:
    """Busy share of each setting relative to a constant, and the constants that it takes."""
    columns, count = settings.columns, len(settings.words)
    share = {"busy_share": CONSTANTS["busy_share"]}
    measured = columns.get("busy_share", np.full(count, np.nan))
    if np.all(np.isfinite(measured)):
        return measured, {}
    rate = columns.get("samples_per_second", np.full(count, np.nan))
    if "time_s" in columns:
        samples = columns.get("samples", np.full(count, np.nan))
        for name in {*settings.benchmark.tolist()}:
            rows = settings.benchmark == name
            same = np.where(np.all(np.isfinite(samples[rows])), samples[rows], 1.0)
            rate[rows] = np.where(np.isfinite(rate[rows]), rate[rows], same / columns["time_s"][rows])
    nodes = columns["nodes"]
    if np.all(np.isfinite(rate)):
        relative, alone = np.ones(count), []
        for name in {*settings.benchmark.tolist()}:
            rows = np.flatnonzero(settings.benchmark == name)
            smallest = rows[np.argmin(nodes[rows])]
            relative[rows] = rate[rows] * nodes[smallest] / (rate[smallest] * nodes[rows])
            if nodes[smallest] > 1.0:
                alone.append(f"{name or 'all rows'} ({nodes[smallest]:g})")
        if alone:
            notes.append(
                "The busy share of the fewest nodes of a benchmark is taken for that of one node by itself: "
                f"{', '.join(sorted(alone))}."
            )
        return relative, share
    if np.all(nodes == 1.0):
        return np.ones(count), share
    advice = "better give samples_per_second, or the time_s of the same work."
    if np.all(nodes == nodes[0]):
        notes.append(f"All runs are taken to be busy for the same share of the time: {advice}")
        return np.ones(count), share
    notes.append(f"The busy share is taken to fall with a power of the nodes, whatever the job: {advice}")
    return np.ones(count), {**share, "node_exponent": EXPONENT}


def _candidates(runs: NodeRuns, *, metered: bool) -> Candidates:
    """An idle node, runs at some rates unless the chips of all are metered, and runs with chips metered as well."""
    settings = [("the idle node, an hour after a run", 1.0, 0.0, 0.0)]
    for rate in RATES if not metered else ():
        settings.append((f"a run at {100 * rate:.0f} % of the samples per second and chip", rate, 0.0, 1.0))
    for share in RATES:
        settings.append((f"chips and node of a run at {100 * share:.0f} % of the chips' limit", 1.0, share, 1.0))
    words, rate, chip, running = zip(*settings, strict=True)
    first = {name: np.asarray(column)[0] for name, column in runs._asdict().items()}
    changed = {"relative_rate": np.array(rate), "chip_power": np.array(chip), "running": np.array(running)}
    power = np.full(len(words), first.pop("power"))
    return Candidates(node_runs(power, **{**first, **changed, "nodes": 1.0}), list(words))
