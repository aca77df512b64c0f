"""Time and power of training at power limits through `evaluate`: constants of presets from BERT on SQuAD.

Times and energies are over those at the highest limit. The run of `evaluate` is another one, `test-1b-h100` with the
card in place of its H100: the chip is tested, not the workload. SQuAD keeps a card busy as training of a large model
does; the other data sets are held out.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from power_limits import Traces

import energymodel as em
from energymodel.calibration.best_setting import LOWEST_HELD
from energymodel.calibration.constant_priors import ConstantPrior, ConstantPriors, Values
from energymodel.calibration.device_power import NOISE, OPTIONS
from energymodel.calibration.least_squares import FitProblem, FitResult, fit
from energymodel.system.step import training_step
from energymodel.system.training_system import as_designed

PRESETS = {"V100": "v100-pcie-32gb", "A40": "a40", "P100": "p100-pcie-16gb"}
FITTED, HELD_OUT = "squad", ("sentiment140", "imagenet")
CONSTANTS: ConstantPriors = {
    "voltage_floor": ConstantPrior(0.79, 0.07, 0.5, 0.98),
    "voltage_knee": ConstantPrior(0.73, 0.1, 0.2, 0.97),
    "busy_power": ConstantPrior(1.14, 0.15, 0.6, 1.8, "rated power"),
}
"""Priors: of cards that nobody has measured (`presets/hardware`)."""


def measured(data: Traces, dataset: str) -> Float[np.ndarray, "limits 3"]:
    """Limit [W], time over that at the highest limit [1] and power [W], means over batches, from the highest limit."""
    runs, result = data.runs, []
    for limit in np.unique(data.limit[data.dataset == dataset])[::-1]:
        rows = (data.limit == limit) & (data.dataset == dataset)
        if limit >= LOWEST_HELD * np.max(runs.rated_power):
            stretch = np.asarray(runs.time / runs.reference_time)[rows]
            result.append((limit, np.mean(stretch), np.mean(np.asarray(runs.power)[rows])))
    return np.array(result)


@cache
def through_evaluate(card: str) -> Callable[[Values | None, Any], Float[Array, "limits 2"]]:
    """Time of a step [s] and power of a chip [W] at power limits [W], with constants in place of the preset's."""
    scenario = em.load_scenario("test-1b-h100", [f"system.accelerator={PRESETS[card]}", "plan.layout.microbatch=1"])
    with jax.enable_x64(True):
        system, plan = as_designed(scenario.system, scenario.plan)
    chip = system.accelerator

    def steps(values: Values | None, limits: Any) -> Float[Array, "limits 2"]:
        changed = system
        if values is not None:
            new = values["voltage_floor"], values["voltage_knee"], values["busy_power"] * chip.rated_power
            own = eqx.tree_at(lambda c: (c.voltage.floor, c.voltage.knee, c.busy_power), chip, new)
            changed = eqx.tree_at(lambda s: s.accelerator, system, own)

        def at(limit: Array) -> Array:
            capped = eqx.tree_at(lambda p: p.power_cap, plan, limit)
            step = training_step(changed, capped, jnp.max(jnp.asarray(plan.batch)))
            return jnp.stack([step.duration, step.power.chip])

        return jax.vmap(at)(jnp.asarray(limits))

    return steps


def fitted(card: str, data: Traces) -> FitResult:
    """Voltage and busy power of a card from one data set."""
    steps, table = through_evaluate(card), measured(data, FITTED)

    def errors(values: Values, rows: Any) -> Float[Array, "rows 2"]:
        limits, stretch, power = jnp.asarray(rows).T
        time, watt = steps(values, jnp.append(limits, table[0, 0])).T
        return jnp.stack([jnp.log(time[:-1] / time[-1] / stretch), jnp.log(watt[:-1] / power)], axis=1)

    return fit(FitProblem(errors, CONSTANTS, table, noise=NOISE, options=OPTIONS))


def tables(data: Mapping[str, Traces]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, np.ndarray]]:
    """Fitted constants; rows by card, data set and limit with the preset; relative errors of held-out data sets."""
    constants, rows = [], []
    for card, own in data.items():
        values = fitted(card, own).values
        constants.append({"gpu": card, **{name: float(value) for name, value in values.items()}})
        for dataset in (FITTED, *HELD_OUT):
            known = measured(own, dataset)
            with jax.enable_x64(True):
                time, power = np.asarray(jax.jit(through_evaluate(card))(None, known[:, 0])).T
            stretch, energy = time / time[0], time * power / (time[0] * power[0])
            for limit, *ratios in zip(
                known[:, 0], known[:, 1], stretch, known[:, 1] * known[:, 2] / known[0, 2], energy, strict=True
            ):
                names = ("time", "time_predicted", "energy", "energy_predicted")
                row = dict(zip(names, map(float, ratios), strict=True))
                rows.append({"gpu": card, "dataset": dataset, "limit_w": float(limit), **row})
    blind = [row for row in rows if row["dataset"] in HELD_OUT and row["time"] != 1.0]
    errors = {
        name: np.array([row[f"{name}_predicted"] / row[name] - 1.0 for row in blind]) for name in ("time", "energy")
    }
    return constants, rows, errors
