"""Energy to train on a number of tokens, on hardware of today and at the bounds below it.

The model is the compute-optimal one for the tokens; the loss that both together give is held. Every plan is the one of
least energy: layout, chips, batch, clock and coolant are searched.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

import energymodel as em
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.learning.loss_law import ChinchillaLaw, chinchilla_loss
from energymodel.physics.limits import (
    cmos_wall_energy,
    landauer_model_energy,
    landauer_operation_energy,
    landauer_overwrite_energy,
    landauer_source_energy,
)
from energymodel.report.answers.limits import OPERATIONS_PER_JOULE
from energymodel.scenarios.scenario import Scenario

BASE = "test-1b-h100"
LAW = {"system.learning.critical_batch": "bergsma-2025"}  # its closed form gives the steps of a run
TOKENS = tuple(10.0**power for power in range(9, 16))
HARDWARE = {"h100": ("h100-sxm", "dgx-h100"), "b200": ("b200-sxm", "dgx-b200")}
DAY = 86400.0
DEADLINE = 100.0 * DAY
NO_DEADLINE = 1e9 * DAY
LN2 = float(np.log(2.0))
HEAD = 128  # width of an attention head
ASPECT = 100.0  # width over depth [docs/physics.md A0.13]
BYTES = 18.0  # of weights, gradients and optimizer states per parameter, more or less
UTILIZATION = 0.3  # for a first guess of the chips
SPARE = 4.0  # chips allowed over that guess
LEAST_CHIPS, MOST_CHIPS = 8, 2**20
BATCH_SHARE = 0.1  # of the critical batch, for a start
BOUNDS = ("landauer_model", "landauer_overwrite", "landauer_source", "landauer_operation", "cmos_wall")


class Model(NamedTuple):
    """A transformer near the compute-optimal size for some tokens."""

    layers: int
    hidden: int


def compute_optimal_parameters(tokens: float, law: ChinchillaLaw) -> float:
    """Size [1] whose compute-optimal tokens these are: `alpha A N^-alpha = beta b D^-beta` [Hoffmann et al. 2022]."""
    slope = law.data_exponent * law.data_coefficient * tokens ** -float(law.data_exponent)
    return float((law.parameter_exponent * law.parameter_coefficient / slope) ** (1.0 / float(law.parameter_exponent)))


def shape(parameters: float, vocabulary: float) -> Model:
    """Whole layers and heads, a hundred times as wide as deep: `12 l h^2 + V h = N`."""
    cubic = np.roots([12.0 / ASPECT, 0.0, vocabulary, -parameters])
    width = float(np.max(np.real(cubic[np.abs(np.imag(cubic)) < 1e-6 * np.abs(cubic)])))
    step = HEAD if width < 64 * HEAD else 8 * HEAD  # so that eight ranks can share the heads
    hidden = max(1, round(width / step)) * step
    layers = max(1.0, (parameters - vocabulary * hidden) / (12.0 * hidden**2))
    full = 1 if layers < 32 else 8 if layers < 128 else 32 if layers < 512 else 512  # so that pipelines are full
    full_layers = max(1, round(layers / full)) * full
    return Model(full_layers, max(1, round(hidden * np.sqrt(layers / full_layers) / step)) * step)


def run(tokens: float, hardware: str, fewest: bool) -> tuple[Scenario, float]:
    """A scenario from which a search starts, and the loss to hold; `fewest`: no more chips than the model asks for."""
    base = em.load_scenario(BASE, LAW)
    law = _law(base)
    model = shape(compute_optimal_parameters(tokens, law), float(base.system.workload.vocabulary))
    chip, node = HARDWARE[hardware]
    heads, feed_forward = model.hidden // HEAD, 8.0 / 3.0 * model.hidden
    changes: dict[str, Any] = {
        **LAW,
        "system.accelerator": chip,
        "system.node": node,
        # Only chip and node differ: the supplies of the base stay.
        "system.facility.power_supply.rated_power": "1400 W",
        "system.facility.uninterruptible.rated_power": "1500 W",
        "system.workload.layers": model.layers,
        "system.workload.hidden": model.hidden,
        "system.workload.heads": heads,
        "system.workload.kv_heads": heads,
        "system.workload.feed_forward": feed_forward,
        "system.workload.dense_feed_forward": feed_forward,
        "system.facility.power_limit": "1e6 GW",
        # 64-port switches end at 65,536 chips; three tiers of 102.4 Tbit/s switches connect four million.
        "system.network.topology.pod": 2**14,
        "system.network.topology.radix": 256,
        "system.network.topology.switch_lanes": 1024,
    }
    system = em.load_scenario(BASE, changes).system
    parameters = float(system.workload.parameters)
    loss = float(chinchilla_loss(parameters, tokens, law))

    # A first guess of the chips, and a plan on them: tensor 8, and as few replicas as make a sensible batch.
    guess = BYTES * parameters / float(system.accelerator.memory_capacity)
    if not fewest:
        rate = UTILIZATION * float(system.accelerator.peak_flops)
        guess = max(guess, 6.0 * parameters * tokens / (rate * DEADLINE))
    # A power of two, which pipelines divide.
    chips = int(np.clip(2.0 ** np.ceil(np.log2(SPARE * guess)), LEAST_CHIPS, MOST_CHIPS))
    sequence = float(system.workload.sequence)
    batch = BATCH_SHARE * _critical_batch(base, tokens, loss)
    tensor = 8 if heads % 8 == 0 else 1
    pipelines = [p for p in 2 ** np.arange(20) if model.layers % p == 0]
    few = (p for p in pipelines if chips / (tensor * p) * sequence <= batch or tensor * p >= chips)
    pipeline = next(few, pipelines[-1])
    group = int(tensor * pipeline)
    replicas = max(1, chips // group)
    micro_batches = max(1, round(batch / (sequence * replicas)))
    changes |= {
        "plan.chips": replicas * group,
        "plan.batch": f"{micro_batches * replicas * sequence!r} token",
        "plan.layout.tensor": tensor,
        "plan.layout.pipeline": int(pipeline),
        "plan.layout.microbatch": 1,
        "plan.goal": {"loss": f"{loss!r} nat/token"},
    }
    return em.load_scenario(BASE, changes), loss


def least_energy(tokens: float, hardware: str) -> dict[str, Any]:
    """The plan of least energy within 100 days; where failures forbid that, at leisure, and the shortest time."""
    scenario, loss = run(tokens, hardware, fewest=False)
    result = em.optimize(scenario, minimize="energy", limits={"time": DEADLINE, "loss": loss}, tolerance=0.0)
    shortest: dict[str, Any] = {}
    if result.result == "infeasible":
        fastest: Any = em.optimize(
            scenario, minimize="time", limits={"loss": loss, "chips": float(MOST_CHIPS)}, tolerance=0.0
        )
        shortest = {
            "shortest_day": float(fastest.outcome.time) / DAY,
            "shortest_chips": float(fastest.plan.chips),
            "shortest_availability": float(fastest.outcome.availability),
            "shortest_energy_j": float(fastest.outcome.energy.total),
            "shortest_result": fastest.result,
        }
        scenario, loss = run(tokens, hardware, fewest=True)
        limits = {"time": NO_DEADLINE, "loss": loss, "chips": float(MOST_CHIPS)}  # memory sets how few do
        result = em.optimize(scenario, minimize="energy", limits=limits, tolerance=0.0)
    outcome: Any = result.outcome
    plan: Any = result.plan
    parameters, energy = float(scenario.system.workload.parameters), float(outcome.energy.total)
    return {
        "tokens_effective": tokens,
        "hardware": hardware,
        "parameters": parameters,
        "loss": loss,
        "within_100_days": not shortest,
        "result": result.result,
        "energy_j": energy,
        "energy_j_per_flop": energy / (6.0 * parameters * tokens),
        "time_day": float(outcome.time) / DAY,
        "power_over_100_days_w": energy / DEADLINE,
        "chips": float(plan.chips),
        "batch_token": float(plan.batch[0]),
        "clock": float(plan.clock),
        "tensor": float(plan.layout.tensor),
        "pipeline": float(plan.layout.pipeline),
        "mfu": float(outcome.mfu),
        "availability": float(outcome.availability),
        "layouts": result.layouts_considered,
        **shortest,
    }


def bounds(tokens: float) -> dict[str, Any]:
    """The ladder of bounds at 25 °C for the compute-optimal model, in any number of steps."""
    base = em.load_scenario(BASE, LAW)
    law, system = _law(base), base.system
    theta = float(base.plan.coolant_temperature)
    parameters = compute_optimal_parameters(tokens, law)
    operations = 6.0 * parameters * tokens
    loss = float(chinchilla_loss(parameters, tokens, law))
    least_steps = tokens / _critical_batch(base, tokens, loss)
    information, capacity = float(law.information(tokens)), float(system.capacity_per_parameter)
    weight_bits = 8.0 * float(system.software.weight_bytes)
    entropy = float(law.entropy_floor) / LN2
    energies = (
        landauer_model_energy(information, parameters, capacity, theta),
        landauer_overwrite_energy(parameters, least_steps, weight_bits, theta),
        landauer_source_energy(parameters, tokens * entropy, theta),
        landauer_operation_energy(operations, float(system.accelerator.bits_per_flop), theta),
        cmos_wall_energy(operations, OPERATIONS_PER_JOULE),
    )
    return {
        "tokens_effective": tokens,
        "parameters": parameters,
        "operations_flop": operations,
        "loss": loss,
        "information_bit_per_parameter": information / parameters,
        **{f"{name}_j": float(energy) for name, energy in zip(BOUNDS, energies, strict=True)},
    }


def exponents(ladder: list[dict[str, Any]], runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Slope of ln E against ln D: over all decades, and the least and largest between neighbors."""
    lines = {name: [row[f"{name}_j"] for row in ladder] for name in BOUNDS}
    lines |= {name: [row["energy_j"] for row in runs if row["hardware"] == name] for name in HARDWARE}
    logs = np.log([row["tokens_effective"] for row in ladder])
    rows = []
    for name, energies in lines.items():
        local = np.diff(np.log(energies)) / np.diff(logs[: len(energies)])
        fit = np.polyfit(logs[: len(energies)], np.log(energies), 1)[0]
        rows.append({"line": name, "exponent": float(fit), "least": float(local.min()), "most": float(local.max())})
    return rows


def compute(tokens: Any = TOKENS) -> dict[str, list[dict[str, Any]]]:
    """The tables of plans, of bounds and of exponents."""
    with jax.enable_x64(True):
        ladder = [bounds(token) for token in tokens]
        runs = [least_energy(token, hardware) for hardware in HARDWARE for token in tokens]
        for row in runs:
            below = next(lower for lower in ladder if lower["tokens_effective"] == row["tokens_effective"])
            row |= {f"over_{name}": row["energy_j"] / below[f"{name}_j"] for name in BOUNDS}
        return {"runs": runs, "ladder": ladder, "exponents": exponents(ladder, runs)}


def _critical_batch(scenario: Scenario, tokens: float, loss: float) -> float:
    """Critical batch [token] of a run that ends there."""
    learning = scenario.system.learning
    assert isinstance(learning, CriticalBatchLearning)
    return float(learning.critical_batch.run_level(tokens, loss))


def _law(scenario: Scenario) -> ChinchillaLaw:
    learning = scenario.system.learning
    assert isinstance(learning, CriticalBatchLearning)
    assert isinstance(learning.loss_law, ChinchillaLaw)
    return learning.loss_law
