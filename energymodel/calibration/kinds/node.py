"""Which constants of a kind of node do its power meters give: `calibrate` kind `node`?"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration.calibration_case import BASE, CHIP, CalibrationCase, Candidates, FittedNumber, Grouping
from energymodel.calibration.cluster_source import PLACEHOLDER, chip_preset
from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Values
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
    "immers": "immersion",
    "liquid": "liquid",
    "water": "liquid",
    "cold plate": "liquid",
    "neptune": "liquid",
    "dlc": "liquid",
    "air": "air",
    "fan": "air",
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
    """Means over the runs of each setting, and a word for it."""

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
    with jax.enable_x64(True):
        shared = system_columns(system, scenario.plan.coolant_temperature)
        efforts = _efforts(settings, system, shared["fan_effort"])
        static = float(system.accelerator.leakage.power) + float(system.accelerator.fixed_power)
        usual = system_constants(system)
    shared |= {name: one for name in ("chips", "rated_power") if (one := _same(table, name)) is not None}
    if (efficiency := _same(table, "supply_efficiency")) is not None:
        shared["efficiency"] = efficiency
    rated, chips, efficiency = shared["rated_power"], shared["chips"], shared["efficiency"]
    fans = float(system.node.fan_power) * shared["fan_effort"]
    floor = (chips * shared["idle_chip"] * rated + fans) / efficiency
    idle = _idle(table, floor, shared["idle_power"], notes)
    power = settings.columns["node_power_w"]
    metered = settings.columns.get("chip_power_w", np.full(len(power), np.nan))
    rate, chip_constants = np.ones(len(power)), {}
    if not np.all(np.isfinite(metered)):
        rate, chip_constants = _busy_law(settings, notes)
        chip_constants["waiting_power"] = _waiting(static / rated, float(usual["waiting_power"]))
    spread = UNREAD_SPREAD if idle is None else IDLE_SPREAD
    idle_prior = ConstantPrior(max(shared["idle_power"], 1.05 * floor), spread, floor, unit="W")
    constants = {
        "idle_power": idle_prior,
        **chip_constants,
        **_fan_constants(shared["fan_effort"], float(usual["fan_fraction"])),
    }
    runs = node_runs(
        np.append(power, idle or shared["idle_power"]),
        **{**shared, "fan_effort": np.append(efforts, shared["fan_effort"])},
        relative_rate=np.append(rate, 1.0),
        nodes=np.append(settings.columns["nodes"], 1.0),
        chip_power=np.append(np.nan_to_num(metered) / rated, 0.0),
        running=np.append(np.ones(len(power)), 0.0),
    )
    medians: Values = {name: np.asarray(one.median) for name, one in constants.items()}
    errors = np.expm1(np.abs(np.asarray(node_power_errors(medians, runs))[: len(power)]))
    notes.append(f"The priors alone, without any of these rows, have a mean error of {100 * np.mean(errors):.1f} %.")
    groups, word = _groups(settings)
    if len(table) > len(power):
        notes.append(f"{len(table):,} rows are averaged to {len(power)} settings.")
    is_reading = np.append(np.zeros(len(power), bool), True)
    return CalibrationCase(
        fit=FitProblem(
            node_power_errors,
            constants,
            runs,
            weights=np.append(np.ones(len(power)), IDLE_WEIGHT * float(idle is not None)),
            noise=NOISE,
            options=OPTIONS,
        ),
        groups=Grouping(np.append(groups, ANY_IDLE), word),
        outputs={"node power": (1.0,)},
        along=("measured node power [W]", np.asarray(runs.power)),
        candidates=_candidates(runs, metered="waiting_power" not in constants),
        fitted_numbers=_fitted_numbers(constants, shared, fans, static, system),
        notes=notes,
        trained_on=is_reading,
        presets={} if facility is None else {"system.facility": facility},
    )


def _check(table: Measurements, scenario: Scenario) -> None:
    """Refuse other chips than the prior's, several kinds of node, and a run that two meters read."""
    rated = float(scenario.system.accelerator.rated_power)
    given = {}
    for line, word in zip(table.lines, table.text("accelerator", ""), strict=True):
        if word and word not in given:
            given[word] = line
            name = chip_preset(word, f"{table.path}, line {line}")
            power = float(read_preset("hardware", name)["rated_power"]["value"])
            if abs(power / rated - 1.0) > SAME_CHIP:
                raise InputError(
                    f'{table.path}, line {line}: "{word}" is rated {power:g} W, the chip of the prior {scenario.name} '
                    f"{rated:g} W. Give --prior {name}."
                )
    for name in ("chips", "rated_power_w", "supply_efficiency"):
        values = table.columns.get(name, np.zeros(0))
        known = np.flatnonzero(np.isfinite(values))
        other = known[values[known] != values[known[0]]] if known.size else known
        if other.size:
            first, line = table.lines[known[0]], table.lines[other[0]]
            raise InputError(
                f'{table.path}, line {line}, column "{name}": {values[other[0]]:g}, and {values[known[0]]:g} in line '
                f"{first}; constants belong to one kind of node. Choose its rows with --where COLUMN=VALUE."
            )
    seen: dict[tuple[str, ...], int] = {}
    if "run" in table.columns:
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
    system, words = scenario.system, table.text("cooling", "")
    kinds: dict[str, int] = {}
    for line, word in zip(table.lines, words, strict=True):
        if word:
            kind = next((kind for part, kind in COOLING_WORDS.items() if part in word.lower()), None)
            if kind is None:
                raise InputError(
                    f'{table.path}, line {line}, column "cooling": unknown cooling "{word}". Write air, liquid or '
                    "immersion, or for all rows --column cooling=WORD."
                )
            kinds.setdefault(kind, int(line))
    if len(kinds) > 1:
        first, other = list(kinds)[:2]
        raise InputError(
            f'{table.path}, line {kinds[other]}, column "cooling": {other}, and {first} in line {kinds[first]}; '
            "constants belong to one kind of node. Choose its rows with --where cooling=WORD."
        )
    effort = float(system.facility.cooling.fan_effort(scenario.plan.coolant_temperature))
    own = "air" if effort > AIR else "liquid" if effort > NONE else "immersion"
    wanted = next(iter(kinds), own)
    if wanted == own:
        return system, None
    name = FACILITIES[wanted]
    other_cooling = load_scenario(PLACEHOLDER, {"system.facility": name}).system.facility.cooling
    notes.append(
        f"The scenario takes the facility {name}: the nodes are cooled by {wanted}, those of the prior by {own}. The "
        "power and limits of the prior's site are lost: lay your own over it."
    )
    return eqx.tree_at(lambda one: one.facility.cooling, system, other_cooling), name


def _same(table: Measurements, name: str) -> float | None:
    """The one value of a column, if it has any."""
    column = "rated_power_w" if name == "rated_power" else name
    values = table.columns.get(column, np.zeros(0))
    values = values[np.isfinite(values)]
    return float(values[0]) if values.size else None


def _settings(table: Measurements) -> _Settings:
    submitter, system, benchmark, run = (table.text(name, "") for name in ("submitter", "system", "benchmark", "run"))
    keys = list(zip(submitter.tolist(), system.tolist(), benchmark.tolist(), strict=True))
    if not any(any(key) for key in keys):
        keys = [("", f"line {line}", "") for line in table.lines]
    order = list(dict.fromkeys(keys))
    place = np.array([order.index(key) for key in keys])
    count = np.bincount(place)
    columns: dict[str, np.ndarray] = {}
    for name, values in table.columns.items():
        if values.dtype.kind == "f":
            known = np.isfinite(values)
            total = np.bincount(place[known], values[known], len(order))
            read = np.bincount(place[known], minlength=len(order))
            columns[name] = np.where(read == count, total / np.maximum(read, 1), np.nan)
    if "nodes" in columns:
        columns["nodes"] = np.where(np.isfinite(columns["nodes"]), columns["nodes"], 1.0)
    else:
        # Distinct nodes that were metered in a run.
        pairs = {*zip(place.tolist(), run.tolist(), table.text("node", "").tolist(), strict=True)}
        runs = Counter(one for one, _ in {(one, other) for one, other, _ in pairs})
        nodes = Counter(one for one, _, _ in pairs)
        columns["nodes"] = np.array([max(1.0, nodes[one] / runs[one]) for one in range(len(order))])
    words = [", ".join(part for part in key if part) for key in order]
    _, of_system, of_benchmark = (np.array(column) for column in zip(*order, strict=True))
    return _Settings(columns, of_system, of_benchmark, words)


def _groups(settings: _Settings) -> tuple[np.ndarray, str]:
    """What is held out together: a benchmark, else a system, else a setting."""
    for labels, word in ((settings.benchmark, "benchmark"), (settings.system, "system")):
        if len({*labels.tolist()}) > 1:
            return labels, word
    return np.array([word or "all" for word in settings.words]), "setting"


def _efforts(settings: _Settings, system: TrainingSystem, usual: float) -> np.ndarray:
    """Effort of the fans by setting, at the inlet temperature where it was metered."""
    inlet = settings.columns.get("inlet_temperature_k")
    if inlet is None:
        return np.full(len(settings.words), usual)
    efforts = [float(system.facility.cooling.fan_effort(one)) if np.isfinite(one) else usual for one in inlet]
    return np.array(efforts)


def _idle(table: Measurements, floor: float, preset: float, notes: list[str]) -> float | None:
    """The lowest readings of the nodes [W], if one can be idle; a note says which or why none."""
    names = [name for name in ("idle_power_w", "pre_run_min_power_w", "min_power_w") if name in table.columns]
    mean = table.columns["node_power_w"]
    if not names:
        notes.append(f"No idle power and no lowest reading: the prior's {preset:.0f} W are used.")
        return None
    lowest = np.fmin.reduce([table.columns[name] for name in names])
    found = idle_reading(lowest, mean, floor)
    refused = []
    if np.any(found.warm):
        line = table.lines[int(np.flatnonzero(found.warm)[0])]
        refused.append(
            f"{np.sum(found.warm)} above {100 * HIGHEST_IDLE:.0f} % of the mean power of the run, which began warm "
            f"(line {line} is the first)"
        )
    if np.any(found.lost):
        line = table.lines[int(np.flatnonzero(found.lost)[0])]
        refused.append(
            f"{np.sum(found.lost)} at or below the {floor:.0f} W that idle chips and fans of the prior draw: gaps of "
            f"the meter, or fans that draw less (line {line} is the first)"
        )
    without = f" Not read as idle: {'; '.join(refused)}." if refused else ""
    if found.power is None:
        notes.append(f"No reading in {', '.join(names)} can be idle: the prior's {preset:.0f} W are used.{without}")
    else:
        if found.power > DOUBTFUL_IDLE * preset:
            above = 100 * (found.power / preset - 1)
            notes.append(
                f"The lowest readings, {found.power:.0f} W, are {above:.0f} % above the idle power of the prior, "
                f"{preset:.0f} W. If all runs began warm, leave them out (--ignore-columns) or meter the idle node."
            )
        notes.append(f"Idle power is the lowest 5 % of {', '.join(names)}, {found.power:.0f} W.{without}")
    return found.power


def _busy_law(settings: _Settings, notes: list[str]) -> tuple[np.ndarray, dict[str, ConstantPrior]]:
    """Busy share of each setting relative to a constant, and the constants that it takes."""
    columns, count = settings.columns, len(settings.words)
    share = {"busy_share": CONSTANTS["busy_share"]}
    given = columns.get("busy_share")
    if given is not None and np.all(np.isfinite(given)):
        return given, {}
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
    known = "better give samples_per_second, or the time_s of the same work."
    if np.all(nodes == nodes[0]):
        notes.append(f"All runs are taken to be busy for the same share of the time: {known}")
        return np.ones(count), share
    notes.append(f"The busy share is taken to fall with a power of the nodes, whatever the job: {known}")
    return np.ones(count), {**share, "node_exponent": EXPONENT}


def _waiting(static: float, waiting: float) -> ConstantPrior:
    """Prior of the waiting power over the rated power: that of the prior's chip, above its static power."""
    lowest = min(static, 0.8)
    return ConstantPrior(min(max(waiting, lowest + 0.02), 0.88), 0.08, lowest, 0.9)


def _fan_constants(effort: float, usual: float) -> ConstantPriors:
    """Prior of the share of the fans, that of the prior's node, unless there are none."""
    return {"fan_fraction": CONSTANTS["fan_fraction"]._replace(median=max(usual, 0.01))} if effort > NONE else {}


def _fitted_numbers(
    constants: ConstantPriors, shared: Mapping[str, float], fans: float, static: float, system: TrainingSystem
) -> dict[str, FittedNumber]:
    """Host power of the idle node without chips and fans, activity of waiting chips, and fans."""
    rated, switching = shared["rated_power"], float(jnp.asarray(system.accelerator.dynamic_power))
    others = shared["chips"] * shared["idle_chip"] * rated + fans
    numbers = {f"{NODE}.overhead_power": FittedNumber("idle_power", shared["efficiency"], "W", -others)}
    if "waiting_power" in constants:
        numbers[f"{CHIP}.spin_activity"] = FittedNumber("waiting_power", rated / switching, "1", -static / switching)
    if "fan_fraction" in constants:
        numbers[f"{NODE}.fan_fraction"] = FittedNumber("fan_fraction", 1.0, "1")
    return numbers


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
