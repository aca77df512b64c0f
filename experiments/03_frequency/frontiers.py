"""The front of time and energy of a pipelined step through `evaluate`: its shape over the clock of all chips.

`evaluate` predicts time and energy of a chip at each clock, and with them the energy at a later deadline over that of
the fastest plan. Floor and knee of the chip's voltage are fitted; all else is the scenario's.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import energymodel as em
from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Values
from energymodel.calibration.least_squares import ErrorFunction, FitOptions, FitProblem, FitResult, fit
from energymodel.scenarios.scenario import Scenario
from energymodel.search.pipeline_clocks import Per, stage_front
from energymodel.system.accelerator import Accelerator
from energymodel.system.step import training_step
from energymodel.system.training_system import as_designed

DATA = Path(__file__).parents[1] / "data"
STRETCHES = np.linspace(1.0, 1.3, 11)[1:]  # time over that of the fastest plan, at which errors are taken
SHOWN = (1.05, 1.1, 1.2, 1.3)
CLOCKS = np.linspace(1.0, 0.5, 41)
OUTLIER = ("perseus", "llama3.2_3b", "cp2 tp4, 8 x 8192 tokens")
NOISE = 0.03
OPTIONS = FitOptions(starts=4, tolerance=1e-9, steps=100)
CONSTANTS: ConstantPriors = {
    "voltage_floor": ConstantPrior(0.79, 0.07, 0.5, 0.98),
    "voltage_knee": ConstantPrior(0.73, 0.1, 0.2, 0.97),
}
"""Priors: of chips that nobody has measured (`presets/hardware/_accelerator.toml`)."""
KEY = ("method", "model", "cp", "tp", "pp", "microbatch", "seq_len_tokens", "num_microbatches", "gpu")
NAMES = ("layers", "hidden", "heads", "kv_heads", "head_size", "feed_forward", "dense_feed_forward", "vocabulary")
MODELS = {
    "llama3.2_3b": (28, 3072, 24, 8, 128, 8192, 8192, 128256),
    "qwen3_1.7b": (28, 2048, 16, 8, 128, 6144, 6144, 151936),
}
"""Shapes of the `config.json` of both models, in the order of `NAMES`."""


class Front(NamedTuple):
    """Plans of one method, model and layout, by time: step time [s] and energy of one chip per stage [J]."""

    method: str
    model: str
    layout: str
    key: tuple[str, ...]
    time: np.ndarray
    energy: np.ndarray

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

    def measured(self, stretches: Any = STRETCHES) -> np.ndarray:
        """Energies over that of the fastest plan at times over its own."""
        return np.interp(stretches, self.stretch, self.ratio)


def fronts() -> list[Front]:
    """All fronts of the file."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    with (DATA / "perseus_kareus_frontiers_a100.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            point = float(row["iteration_time_s"]), float(row["sum_over_stages_energy_j"])
            groups[tuple(row[name] for name in KEY)].append(point)
    result = []
    for key, points in groups.items():
        of = dict(zip(KEY, key, strict=True))
        layout = f"cp{of['cp']} tp{of['tp']}, {of['microbatch']} x {of['seq_len_tokens']} tokens"
        result.append(Front(of["method"], of["model"], layout, key[1:], *np.array(sorted(points)).T))
    return result


@cache
def scenario(key: tuple[str, ...]) -> Scenario:
    """A front's run: 16 chips of two nodes, Megatron, stages equal with the output head [Chung et al. 2024]."""
    of = dict(zip(KEY[1:], key, strict=True))
    shape, stages = dict(zip(NAMES, MODELS[of["model"]], strict=True)), int(of["pp"])
    sequence = int(of["seq_len_tokens"])
    hidden, kv = shape["hidden"], shape["kv_heads"] * shape["head_size"]
    of_layer = 2 * hidden * (shape["heads"] * shape["head_size"] + kv) + 3 * hidden * shape["feed_forward"]
    first = round((shape["layers"] + shape["vocabulary"] * hidden / of_layer) / stages)
    known = {"kind": "published", "source": "config.json of the model"}
    numbers: dict[str, Any] = {name: {"value": float(value), **known} for name, value in shape.items()}
    numbers |= {"gated": {"value": 1.0, **known}, "tied": {"value": 1.0, **known}}
    numbers |= {"sequence": {"value": float(sequence), "unit": "token", **known}}
    layout = {"tensor": int(of["tp"]), "context": int(of["cp"]), "microbatch": int(of["microbatch"])}
    last = shape["layers"] - (stages - 1) * first
    layout |= {"pipeline": stages, "first_stage_layers": first, "last_stage_layers": last}
    system = {"workload": {"preset": "_dense", **numbers}, "accelerator": of["gpu"].lower(), "node": "dgx-a100"}
    system |= {"network": "infiniband-400g", "facility": "air-cooled", "production_slowdown": 1.0}
    chips = 16
    replicas = chips // (stages * layout["tensor"] * layout["context"])
    batch = replicas * int(of["microbatch"]) * int(of["num_microbatches"]) * sequence
    plan = {"chips": chips, "batch": f"{batch} tokens", "goal": {"tokens": "1 G tokens"}}
    plan |= {"layout": {**layout, "zero": 0, "recomputation": "none"}}
    return em.load_scenario({"base": "_common", "system": system, "plan": plan})


def with_voltage(chip: Accelerator, values: Mapping[str, Any]) -> Accelerator:
    """A chip with floor and knee of the voltage."""
    new = values["voltage_floor"], values["voltage_knee"]
    return eqx.tree_at(lambda chip: (chip.voltage.floor, chip.voltage.knee), chip, new)


@cache
def through_evaluate(key: tuple[str, ...]) -> Callable[[Values], Float[Array, "2 clocks"]]:
    """Step time [s] and energy of a chip [J] over the clock, in the terms of `evaluate`."""
    run = scenario(key)
    with jax.enable_x64(True):
        system, plan = as_designed(run.system, run.plan)

    def sweep(values: Values) -> Float[Array, "2 clocks"]:
        changed = eqx.tree_at(lambda s: s.accelerator, system, with_voltage(system.accelerator, values))

        def at(clock: Array) -> Array:
            step = training_step(changed, eqx.tree_at(lambda p: p.clock, plan, clock), jnp.max(jnp.asarray(plan.batch)))
            return jnp.stack([step.duration, step.power.chip * step.duration])

        return jax.vmap(at, out_axes=1)(jnp.asarray(CLOCKS))

    return sweep


def predicted(values: Values, key: tuple[str, ...], stretches: Any = STRETCHES) -> Float[Array, " stretches"]:
    """Energy at times over that of the highest clock, over the energy there."""
    time, energy = through_evaluate(key)(values)
    return jnp.interp(jnp.asarray(stretches), time / time[0], energy / energy[0])


def front_errors(all_of_them: list[Front]) -> ErrorFunction:
    """Logarithmic errors of energies over that of the fastest plan, by front and stretch."""
    keys = list(dict.fromkeys(front.key for front in all_of_them))
    _ = [through_evaluate(key) for key in keys]  # scenarios are read before anything is traced

    def errors(values: Values, table: Any) -> Float[Array, "rows outputs"]:
        number, measured = table
        return jnp.log(jnp.stack([predicted(values, key) for key in keys]))[number] - jnp.log(measured)

    return errors


@cache
def _problem() -> tuple[ErrorFunction, tuple[np.ndarray, np.ndarray]]:
    result = fronts()
    keys = list(dict.fromkeys(front.key for front in result))
    number = np.array([keys.index(front.key) for front in result])
    return front_errors(result), (number, np.stack([front.measured() for front in result]))


def fitted(chosen: list[bool]) -> FitResult:
    """Floor and knee of the voltage that fit some of the fronts best."""
    errors, table = _problem()
    return fit(FitProblem(errors, CONSTANTS, table, np.array(chosen, float), NOISE, OPTIONS))


def preset_values(key: tuple[str, ...]) -> Values:
    """Floor and knee of the preset."""
    voltage: Any = scenario(key).system.accelerator.voltage
    return {"voltage_floor": np.asarray(voltage.floor), "voltage_knee": np.asarray(voltage.knee)}


def prior_values() -> Values:
    """Medians of the priors: what was known before any front was measured."""
    return {name: np.asarray(constant.median) for name, constant in CONSTANTS.items()}


def curve(front: Front, values: Values, stretches: Any = STRETCHES) -> np.ndarray:
    """Energies over that of the highest clock, as numbers."""
    with jax.enable_x64(True):
        return np.asarray(_curve(front.key)(values, jnp.asarray(stretches)))


@cache
def _curve(key: tuple[str, ...]) -> Callable[..., Array]:
    return jax.jit(lambda values, stretches: predicted(values, key, stretches))


def planned(key: tuple[str, ...], values: Values, per: Per) -> np.ndarray:
    """The same with clocks planned for each rank, or for each operation as in Perseus, from the fastest plan on."""
    run = scenario(key)
    chip = with_voltage(run.system.accelerator, values)
    found = stage_front(eqx.tree_at(lambda s: s.accelerator, run.system, chip), run.plan, per=per, slowdown=0.3)
    return np.interp(STRETCHES, found.step_time / found.step_time[0], found.energy / found.energy[0])
