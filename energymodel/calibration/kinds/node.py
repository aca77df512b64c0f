"""Kind `node`: idle power, waiting power, busy share and fans of one kind of node from its power meters."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from energymodel.calibration import node_power
from energymodel.calibration.calibration_case import (
    BASE,
    CHIP,
    COLUMNS,
    CalibrationCase,
    Candidates,
    Grouping,
    WrittenNumber,
)
from energymodel.calibration.cluster_source import PLACEHOLDER, named_preset
from energymodel.calibration.constant_priors import ConstantPrior, Values
from energymodel.calibration.least_squares import FitOptions, FitProblem
from energymodel.readers.table import Measurements
from energymodel.scenarios.files import read_preset
from energymodel.scenarios.scenario import Scenario, load_scenario
from energymodel.system.training_system import TrainingSystem

NODE = "system.node"
OPTIONS = FitOptions(starts=4, tolerance=1e-7, steps=100, noise_counts=4.0)
NOISE = 0.02
IDLE_WEIGHT = 3.0  # of an idle reading, which knows nothing of busy shares
IDLE_SPREAD, UNREAD_SPREAD = 0.25, 0.1  # of what a node draws beside idle chips and fans; without an idle reading
FACILITIES, COOLING_WORDS = COLUMNS["facilities"], COLUMNS["cooling_words"]
AIR, NONE = 0.5, 0.0  # effort of fans above which nodes are in air, and without fans
ANY_IDLE = "idle node"
DOUBTFUL_IDLE = 1.3  # of the prior's idle power, whose spread is 0.1 to 0.15
SAME_CHIP = 0.05  # difference of rated powers
ONE_KIND = "constants belong to one kind of node. Choose its rows with"
RATES = (0.25, 0.5, 0.75, 1.0)
EXPONENT = ConstantPrior(0.15, 0.10, 0.0, 0.6)
"""Of the count of nodes, by which the busy share of one job falls: two thirds on 8 nodes and half on 64
(`experiments/04_metered_runs`), less where the job grows with the nodes."""


def node_case(table: Measurements, prior: Scenario | None) -> CalibrationCase:
    """Idle power, waiting power, busy share and fans of one kind of node, see `node_power.predicted_power`.

    Runs of one setting (submitter, system, benchmark) are averaged. The idle power is one more row, the lowest
    readings, which every held-out fit knows.

    **Raises:** `InputError` for several kinds of node, chips that are not the prior's, and one run at two meters.
    """
    scenario, notes = prior or load_scenario(BASE), list[str]()
    _check(table, scenario)
    system, facility = _cooled(table, scenario, notes)
    columns, words = _settings(table)
    count, unknown = len(words), np.full(len(words), np.nan)
    with jax.enable_x64(True):
        shared = node_power.system_columns(system, scenario.plan.coolant_temperature)
        static = float(system.accelerator.leakage.power) + float(system.accelerator.fixed_power)
        switching, usual = float(jnp.asarray(system.accelerator.dynamic_power)), node_power.system_constants(system)
        efforts = [
            float(system.facility.cooling.at(kelvin).fan_effort) if np.isfinite(kelvin) else shared["fan_effort"]
            for kelvin in columns.get("inlet_temperature_k", unknown)
        ]
    for name, column in (("chips", "chips"), ("rated_power", "rated_power_w"), ("efficiency", "supply_efficiency")):
        values = table.columns.get(column, np.zeros(0))
        if np.any(np.isfinite(values)):
            shared[name] = float(values[np.isfinite(values)][0])
    rated, efficiency, effort = shared["rated_power"], shared["efficiency"], shared["fan_effort"]
    idle_chips = shared["chips"] * shared["idle_chip"] * rated
    idle_fans = float(system.node.fan_power) + float(usual["fan_fraction"]) * idle_chips
    others = idle_chips + idle_fans * effort
    floor = others / efficiency
    idle = _idle(table, floor, shared["idle_power"], notes)
    metered, rate = columns.get("chip_power_w", unknown), np.ones(count)
    spread = UNREAD_SPREAD if idle is None else IDLE_SPREAD
    constants = {"idle_power": ConstantPrior(max(shared["idle_power"], 1.05 * floor), spread, floor, unit="W")}
    if not np.all(np.isfinite(metered)):
        rate, busy = _busy_law(columns, notes)
        lowest = min(static / rated, 0.8)
        waiting = min(max(float(usual["waiting_power"]), lowest + 0.02), 0.88)
        constants |= {**busy, "waiting_power": ConstantPrior(waiting, 0.08, lowest, 0.9)}
    if effort > NONE:
        constants["fan_fraction"] = node_power.CONSTANTS["fan_fraction"]._replace(
            median=max(float(usual["fan_fraction"]), 0.01)
        )
    runs = node_power.node_runs(
        np.append(columns["node_power_w"], idle or shared["idle_power"]),
        **{**shared, "fan_effort": np.append(efforts, effort)},
        relative_rate=np.append(rate, 1.0),
        nodes=np.append(columns["nodes"], 1.0),
        chip_power=np.append(np.nan_to_num(metered) / rated, 0.0),
        running=np.append(np.ones(count), 0.0),
    )
    medians: Values = {name: np.asarray(constant.median) for name, constant in constants.items()}
    errors = np.expm1(np.abs(np.asarray(node_power.node_power_errors(medians, runs))[:count]))
    notes.append(f"The priors alone, without any of these rows, have a mean error of {100 * np.mean(errors):.1f} %.")
    if len(table) > count:
        notes.append(f"{len(table):,} rows are averaged to {count} settings.")
    written = {
        f"{NODE}.overhead_power": WrittenNumber("W", -others, "idle_power", efficiency),
        f"{CHIP}.spin_activity": WrittenNumber("1", -static / switching, "waiting_power", rated / switching),
        f"{NODE}.fan_fraction": WrittenNumber("1", constant="fan_fraction"),
        f"{NODE}.fan_power": WrittenNumber("W", idle_fans, "fan_fraction", -idle_chips),
    }
    # Held out are settings of a benchmark, else of a system, else each alone.
    several = (name for name in ("benchmark", "system") if len({*columns[name].tolist()}) > 1)
    word = next(several, "setting")
    labels = columns.get(word, np.array([text or "all" for text in words]))
    weights = np.append(np.ones(count), IDLE_WEIGHT * float(idle is not None))
    return CalibrationCase(
        fit=FitProblem(node_power.node_power_errors, constants, runs, weights, NOISE, OPTIONS),
        groups=Grouping(np.append(labels, ANY_IDLE), word),
        outputs={"node power": (1.0,)},
        along=("measured node power [W]", np.asarray(runs.power)),
        candidates=_candidates(runs, metered="waiting_power" not in constants),
        numbers={path: number for path, number in written.items() if number.constant in constants},
        words={} if facility is None else {"system.facility.preset": facility},
        notes=notes,
        trained_on=np.append(np.zeros(count, bool), True),
    )


def _check(table: Measurements, scenario: Scenario) -> None:
    """Refuse other chips than the prior's, several kinds of node, and a run that two meters read."""
    rated, words = float(scenario.system.accelerator.rated_power), table.text("accelerator", "")
    for word, first in zip(*np.unique(words, return_index=True), strict=True):
        name = named_preset(str(word), "hardware", f"{table.path}, line {table.lines[first]}") if word else ""
        power = float(read_preset("hardware", name)["rated_power"]["value"]) if name else rated
        if abs(power / rated - 1.0) > SAME_CHIP:
            prior = f"the chip of the prior {scenario.name} {rated:g} W"
            raise table.error(first, f'"{word}" is rated {power:g} W, {prior}. Give --prior {name}.')
    for name in ("chips", "rated_power_w", "supply_efficiency"):
        values = table.columns.get(name, np.zeros(0))
        rows = np.flatnonzero(np.isfinite(values))
        other = rows[values[rows] != values[rows[:1]]]
        if other.size:
            both = f"{values[other[0]]:g}, and {values[rows[0]]:g} in line {table.lines[rows[0]]}"
            raise table.error(other[0], f"{both}; {ONE_KIND} --where COLUMN=VALUE.", name)
    keys = [table.text(name, "").tolist() for name in ("system", "benchmark", "run", "node")]
    seen: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(zip(*keys, strict=True)) if "run" in table.columns else ():
        if (first := seen.setdefault(key, row)) != row:
            again = f"the run and node of line {table.lines[first]} again ({', '.join(key)}). Choose one of two meters "
            raise table.error(row, f"{again}with --where submitter=NAME, or number repeated runs in the column run.")


def _cooled(table: Measurements, scenario: Scenario, notes: list[str]) -> tuple[TrainingSystem, str | None]:
    """The prior's system with the cooling that the table names, and the facility preset if it is not the prior's."""
    system, kinds = scenario.system, dict[str, int]()
    for row, word in enumerate(table.text("cooling", "").tolist()):
        kind = next((kind for kind, parts in COOLING_WORDS.items() if any(part in word.lower() for part in parts)), "")
        if word and not kind:
            advice = "Write air, liquid or immersion, or for all rows --column cooling=WORD."
            raise table.error(row, f'unknown cooling "{word}". {advice}', "cooling")
        kinds |= {kind: kinds.get(kind, row)} if word else {}
    if len(kinds) > 1:
        (first, row), (other, other_row), *_ = kinds.items()
        both = f"{other}, and {first} in line {table.lines[row]}"
        raise table.error(other_row, f"{both}; {ONE_KIND} --where cooling=WORD.", "cooling")
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


def _settings(table: Measurements) -> tuple[dict[str, np.ndarray], list[str]]:
    """Means over the runs of each setting by column, its system and benchmark, and words for it."""
    names = ("submitter", "system", "benchmark", "run", "node")
    submitter, system, benchmark, run, node = (table.text(name, "").tolist() for name in names)
    keys = list(zip(submitter, system, benchmark, strict=True))
    if not any(any(key) for key in keys):
        keys = [("", f"line {line}", "") for line in table.lines]
    settings: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(keys):
        settings.setdefault(key, []).append(row)
    groups, numbers = list(settings.values()), {n: own for n, own in table.columns.items() if own.dtype.kind == "f"}
    columns = {name: np.array([np.mean(values[rows]) for rows in groups]) for name, values in numbers.items()}
    # Unless they are stated, distinct nodes that were metered in a run.
    meters = [len({(run[row], node[row]) for row in rows}) / len({run[row] for row in rows}) for rows in groups]
    nodes = columns.get("nodes", np.maximum(1.0, meters))
    columns["nodes"] = np.where(np.isfinite(nodes), nodes, 1.0)
    _, columns["system"], columns["benchmark"] = (np.array(column) for column in zip(*settings, strict=True))
    return columns, [", ".join(filter(None, key)) for key in settings]


def _idle(table: Measurements, floor: float, preset: float, notes: list[str]) -> float | None:
    """The lowest readings of the nodes [W], if one can be idle; a note says which or why none."""
    names = [name for name in ("idle_power_w", "pre_run_min_power_w", "min_power_w") if name in table.columns]
    if not names:
        notes.append(f"No idle power and no lowest reading: the prior's {preset:.0f} W are used.")
        return None
    lowest = np.fmin.reduce([table.columns[name] for name in names])
    power, warm, lost = node_power.idle_reading(lowest, table.columns["node_power_w"], floor)
    too_high = f"above {100 * node_power.HIGHEST_IDLE:.0f} % of the mean power of the run, which began warm"
    too_low = f"at or below the {floor:.0f} W that idle chips and fans of the prior draw: gaps of the meter, or fans "
    reasons = (warm, too_high), (lost, f"{too_low}that draw less")
    refused = [
        f"{np.sum(rows)} {reason} (line {table.lines[np.argmax(rows)]} is the first)"
        for rows, reason in reasons
        if np.any(rows)
    ]
    without = f" Not read as idle: {'; '.join(refused)}." if refused else ""
    if power is None:
        notes.append(f"No reading in {', '.join(names)} can be idle: the prior's {preset:.0f} W are used.{without}")
        return None
    if power > DOUBTFUL_IDLE * preset:
        notes.append(
            f"The lowest readings, {power:.0f} W, are {100 * (power / preset - 1):.0f} % above the idle power of the "
            f"prior, {preset:.0f} W. If all runs began warm, leave them out (--ignore-columns) or meter the idle node."
        )
    notes.append(f"Idle power is the lowest 5 % of {', '.join(names)}, {power:.0f} W.{without}")
    return power


def _busy_law(columns: Mapping[str, np.ndarray], notes: list[str]) -> tuple[np.ndarray, dict[str, ConstantPrior]]:
    """Busy share of each setting relative to a constant, and the constants that it takes."""
    nodes, share = columns["nodes"], {"busy_share": node_power.CONSTANTS["busy_share"]}
    count, unknown = len(nodes), np.full(len(nodes), np.nan)
    names = ("busy_share", "samples_per_second", "samples")
    measured, rate, samples = (columns.get(name, unknown).copy() for name in names)
    if np.all(np.isfinite(measured)):
        return measured, {}
    benchmarks = {name: np.flatnonzero(columns["benchmark"] == name) for name in columns["benchmark"].tolist()}
    for rows in benchmarks.values() if "time_s" in columns else ():
        same = np.where(np.all(np.isfinite(samples[rows])), samples[rows], 1.0)
        rate[rows] = np.where(np.isfinite(rate[rows]), rate[rows], same / columns["time_s"][rows])
    if np.all(np.isfinite(rate)):
        relative, alone = np.ones(count), []
        for name, rows in benchmarks.items():
            smallest = rows[np.argmin(nodes[rows])]
            relative[rows] = rate[rows] * nodes[smallest] / (rate[smallest] * nodes[rows])
            alone += [f"{name or 'all rows'} ({nodes[smallest]:g})"] if nodes[smallest] > 1.0 else []
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


def _candidates(runs: node_power.NodeRuns, *, metered: bool) -> Candidates:
    """An idle node, runs at some rates unless the chips of all are metered, and runs with chips metered as well."""
    settings = [("the idle node, an hour after a run", 1.0, 0.0, 0.0)]
    for share in () if metered else RATES:
        settings.append((f"a run at {100 * share:.0f} % of the samples per second and chip", share, 0.0, 1.0))
    for share in RATES:
        settings.append((f"chips and node of a run at {100 * share:.0f} % of the chips' limit", 1.0, share, 1.0))
    words, rate, chip, running = zip(*settings, strict=True)
    first = {name: np.full(len(words), np.asarray(column)[0]) for name, column in runs._asdict().items()}
    first |= {"relative_rate": np.array(rate), "chip_power": np.array(chip), "running": np.array(running)}
    return Candidates(node_power.NodeRuns(**{**first, "nodes": np.ones(len(words))}), list(words))
