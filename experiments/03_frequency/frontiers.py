"""The front of time and energy of a pipelined step, predicted from its fastest plan."""

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from pipeline_front import CONSTANTS, Deadlines, front_energy, front_errors

import energymodel as em
from energymodel.calibration.constant_priors import Values
from energymodel.calibration.device_power import WIDTH
from energymodel.calibration.least_squares import FitOptions, FitProblem, FitResult, fit
from energymodel.performance.pipeline_schedule import Schedule, pipeline_makespan, pipeline_schedule
from energymodel.physics.voltage import VoltageCurve
from energymodel.search.pipeline_clocks import FORWARD_SHARE, PipelineLoad, operation_kinds, stage_clocks
from energymodel.system.chip_load import ChipLoad

DATA = Path(__file__).parents[1] / "data"
WAITING = 85.0  # W, measured by the authors of the data while a chip is blocked on communication
DEADLINES = 10
ROOM = 1e-4  # relative time that even the fastest plan is given, so that its search has an interior
OUTLIER = ("perseus", "llama3.2_3b", "cp2 tp4, 8 x 8192 tokens")
NOISE = 0.03
OPTIONS = FitOptions(starts=4, tolerance=1e-9, steps=200)
KEY = ("method", "model", "cp", "tp", "pp", "microbatch", "seq_len_tokens", "num_microbatches", "gpu")
CLOCKS = [[f"stage{stage}_{direction}_mean_clock_hz" for stage in range(2)] for direction in ("forward", "backward")]


class Front(NamedTuple):
    """Plans of one method, model and layout, by time.

    - `time`, `energy`: of a step, energy of one chip per stage [s], [J].
    - `clocks`: mean clocks by plan, direction and stage [Hz]; `lowest`: of any pass on that kind of chip [Hz].
    """

    method: str
    model: str
    layout: str
    gpu: str
    stages: int
    microbatches: int
    time: np.ndarray
    energy: np.ndarray
    clocks: np.ndarray
    lowest: float

    @property
    def stretch(self) -> np.ndarray:
        """Times over that of the fastest plan."""
        return self.time / self.time[0]

    @property
    def ratio(self) -> np.ndarray:
        """Energies over that of the fastest plan."""
        return self.energy / self.energy[0]

    @property
    def is_outlier(self) -> bool:
        """Whether the file's own description calls it one."""
        return (self.method, self.model, self.layout) == OUTLIER


def fronts() -> list[Front]:
    """All fronts of the file."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with (DATA / "perseus_kareus_frontiers_a100.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups[tuple(row[name] for name in KEY)].append(row)
    lowest = {row["gpu"]: np.inf for rows in groups.values() for row in rows}
    for rows in groups.values():
        for row in rows:
            lowest[row["gpu"]] = min(lowest[row["gpu"]], float(row["min_clock_hz"]))
    result = []
    for key, rows in groups.items():
        labels = dict(zip(KEY, key, strict=True))
        rows.sort(key=lambda row: float(row["iteration_time_s"]))
        result.append(
            Front(
                method=labels["method"],
                model=labels["model"],
                layout=f"cp{labels['cp']} tp{labels['tp']}, {labels['microbatch']} x {labels['seq_len_tokens']} tokens",
                gpu=labels["gpu"],
                stages=int(labels["pp"]),
                microbatches=int(labels["num_microbatches"]),
                time=np.array([float(row["iteration_time_s"]) for row in rows]),
                energy=np.array([float(row["sum_over_stages_energy_j"]) for row in rows]),
                clocks=np.array([[[float(row[name]) for name in names] for names in CLOCKS] for row in rows]),
                lowest=lowest[labels["gpu"]],
            )
        )
    return result


@cache
def chip(gpu: str) -> Any:
    """The accelerator of that name among the presets."""
    return em.load_scenario("olmo-2-13b-h100", [f"system.accelerator={gpu.lower()}"]).system.accelerator


@cache
def schedule_of(stages: int, microbatches: int) -> Schedule:
    """One forward, one backward."""
    return pipeline_schedule(stages, microbatches)


@cache
def hurried(stages: int, microbatches: int) -> float:
    """Share of the passes that lie on a longest path of equal stages, by stretching each of them a little."""
    schedule = schedule_of(stages, microbatches)
    equal = np.broadcast_to(np.array([1.0, 2.0])[:, None, None], (2, stages, microbatches))
    with jax.enable_x64(True):
        length = jax.jit(pipeline_makespan)
        shortest = float(length(equal, schedule))
        nudges = 1e-3 * np.eye(equal.size).reshape(-1, *equal.shape)
        longer = np.array([float(length(equal + nudge, schedule)) for nudge in nudges])
    return float(np.mean(longer > shortest + 1e-6))


def table_of(all_of_them: list[Front]) -> tuple[Deadlines, np.ndarray]:
    """Plans of fronts as rows, and the number of the front of each; the fastest plans are left out."""
    rows, owner = [], []
    for number, front in enumerate(all_of_them):
        device = chip(front.gpu)
        busy = front.microbatches / (front.microbatches + front.stages - 1)
        first = front.energy[0] / front.time[0] / front.stages
        for stretch, ratio in zip(front.stretch[1:], front.ratio[1:], strict=True):
            rows.append(
                (
                    stretch,
                    first,
                    WAITING,
                    float(device.rated_power),
                    busy,
                    hurried(front.stages, front.microbatches),
                    front.lowest / float(device.reference_clock),
                    ratio,
                )
            )
            owner.append(number)
    return Deadlines(*np.array(rows).T), np.array(owner)


def fitted(all_of_them: list[Front], chosen: list[bool]) -> FitResult:
    """Constants of the fronts that are known; each counts the same, however many plans it has."""
    table, owner = table_of(all_of_them)
    counts = np.bincount(owner, minlength=len(chosen))
    weights = np.array([chosen[number] * np.sqrt((DEADLINES - 1) / counts[number]) for number in owner])
    return fit(FitProblem(front_errors, CONSTANTS, table, weights, NOISE, OPTIONS))


def prior_values() -> Values:
    """Medians of the priors: what was known before any front was measured."""
    return {name: np.asarray(constant.median) for name, constant in CONSTANTS.items()}


def pipeline_of(front: Front, values: Values, switching: float) -> PipelineLoad:
    """Passes of a front whose step takes one second at full clock; energies are those above waiting.

    Stages are equal and the backward pass does twice the work of the forward one. A chip that works draws its waiting
    power as well, so that the energy above it knows no static power.
    """
    device = chip(front.gpu)
    equal = FORWARD_SHARE / (front.microbatches + front.stages - 1)
    pass_time = jnp.repeat(jnp.array([[equal], [2.0 * equal]]), front.stages, axis=1)
    memory_time = float(values["memory_time"])
    above = eqx.tree_at(
        lambda chip: (chip.voltage, chip.leakage.power, chip.fixed_power, chip.minimum_clock),
        device,
        (
            VoltageCurve(float(values["voltage_floor"]), float(values["voltage_knee"]), WIDTH),
            0.0,
            0.0,
            front.lowest / float(device.reference_clock),
        ),
    )
    load = ChipLoad(
        arithmetic=(1.0 - memory_time) * pass_time,
        attention=0.0 * pass_time,
        product_memory=0.0 * pass_time,
        elementwise=memory_time * pass_time,
        switching_energy=switching * pass_time,
        memory_energy=float(values["memory_power"]) * float(device.rated_power) * pass_time,
    )
    return PipelineLoad(above, load, 330.0, 0.0, 1.0, 0.0, 1.0)


class Plans(NamedTuple):
    """Energies of the best plans at the deadlines, over that of the fastest, and their clocks."""

    ratio: np.ndarray
    clock: np.ndarray
    solved: bool


def exact_plans(front: Front, values: Values) -> Plans:
    """The best clock for every pass at the deadlines of a front, by the exact makespan of its schedule."""
    schedule = schedule_of(front.stages, front.microbatches)
    with jax.enable_x64(True):
        # The best clocks do not depend on how large the switching energy is; the fastest plan then says how large.
        unit = pipeline_of(front, values, 1.0)
        front_plans = stage_clocks(unit, schedule, np.maximum(front.stretch, 1.0 + ROOM), per="operation")
        memory = float(np.sum(np.asarray(unit.load.memory_energy)) * front.microbatches)
        squares = front_plans.energy - memory
        switching = _above_waiting(front) - memory
        energy = WAITING * front.stages * front.stretch + memory + switching * squares / squares[0]
        solved = bool(np.all(front_plans.result == em.solver.RESULTS.successful))
    return Plans(energy / energy[0], front_plans.clock, solved)


def _above_waiting(front: Front) -> float:
    """Energy of the fastest plan above waiting, per second of it [W]."""
    return float(front.energy[0] / front.time[0] - WAITING * front.stages)


def from_mean_clocks(front: Front, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """Time and energy of each plan over those of the fastest one, from the mean clocks by stage and direction."""
    schedule = schedule_of(front.stages, front.microbatches)
    kinds = operation_kinds(schedule, "rank")
    clocks = front.clocks[..., None] / float(chip(front.gpu).reference_clock)
    with jax.enable_x64(True):
        unit = pipeline_of(front, values, 1.0)
        time = np.array([float(unit.makespan(clock, schedule, kinds)) for clock in clocks])
        above = np.array([float(unit.energy(clock, kinds, 0.0)) for clock in clocks])
        memory = float(np.sum(np.asarray(unit.load.memory_energy)) * front.microbatches)
    squares = above - memory
    time = time / time[0]
    energy = WAITING * front.stages * time + memory + (_above_waiting(front) - memory) * squares / squares[0]
    return time, energy / energy[0]


def at_deadlines(front: Front, ratio: np.ndarray) -> np.ndarray:
    """Relative errors of energy ratios at ten deadlines, even in time from the fastest to the slowest plan."""
    times = np.linspace(1.0, front.stretch[-1], DEADLINES)
    return np.interp(times, front.stretch, ratio) / np.interp(times, front.stretch, front.ratio) - 1.0


def one_clock(front: Front, values: Values) -> np.ndarray:
    """Energy ratios with one clock for all passes without slack, the law that is fitted."""
    table, _ = table_of([front])
    with jax.enable_x64(True):
        return np.concatenate([[1.0], np.asarray(front_energy(values, table))])
