"""Power and rate of published accelerators by a few shared constants, each held out of the fit.

Prints its tables, and writes `result.json` beside this file.
"""

import csv
import sys
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.optimize import least_squares

import energymodel as em
from energymodel.system.accelerator import Accelerator
from energymodel.system.chip_design import ScaledChip

sys.path.insert(0, str(Path(__file__).parents[1]))
import outputs

HERE = Path(__file__).parent
SCENARIO = "test-1b-h100"
START = (0.3e-12, 0.2e6, 5e-12)  # J/FLOP in N7, W/m^2, J/bit
WITHIN = 0.15
STEPS = (
    ("v100-sxm2-32gb", "a100-sxm4-80gb"),
    ("a100-sxm4-80gb", "h100-sxm"),
    ("h100-sxm", "h200-sxm"),
    ("h100-sxm", "b200-sxm"),
    ("mi250x", "mi300x"),
    ("tpu-v4", "tpu-v5p"),
    ("tpu-v5p", "tpu-v6e"),
)


class Chip(NamedTuple):
    """A published accelerator, its presets, and what its process takes for an operation over N7."""

    name: str
    accelerator: Accelerator
    design: ScaledChip
    link_rate: float
    switching: float


def _rows(name: str) -> list[dict[str, str]]:
    with open(HERE / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def chips() -> list[Chip]:
    """All chips of `chips.csv`."""
    switching = {row["process"]: float(row["switching_energy"]) for row in _rows("processes")}
    result = []
    for row in _rows("chips"):
        changes = {"system.accelerator": row["preset"], "system.chip_design": "scaled"}
        system = em.load_scenario(SCENARIO, changes).system
        assert isinstance(system.chip_design, ScaledChip)
        link = system.node.scale_up
        rate = float(link.lanes * link.lane_bandwidth)
        result.append(Chip(row["preset"], system.accelerator, system.chip_design, rate, switching[row["process"]]))
    return result


def drawn(constants: np.ndarray, all_chips: list[Chip]) -> np.ndarray:
    """Rated power by three constants, `P = e s R + p A + b W`, with rate R, area A and memory bandwidth W [W]."""
    energy, density, bit = constants
    each = [(chip.switching, chip.accelerator) for chip in all_chips]
    return np.array(
        [energy * s * a.peak_flops + density * a.die_area + 8.0 * bit * a.memory_bandwidth for s, a in each]
    )


def fitted(all_chips: list[Chip]) -> np.ndarray:
    """The constants of least squares of the logarithm."""
    rated = np.array([float(chip.accelerator.rated_power) for chip in all_chips])
    scale = np.log(START)
    solution = least_squares(lambda x: np.log(drawn(np.exp(x), all_chips) / rated), scale, x_scale=0.1)
    return np.exp(solution.x)


def power_rows(all_chips: list[Chip]) -> list[dict[str, Any]]:
    """Rated power of each chip from the constants of the others."""
    rows = []
    for chip in all_chips:
        constants = fitted([other for other in all_chips if other is not chip])
        power, rated = float(drawn(constants, [chip])[0]), float(chip.accelerator.rated_power)
        rows.append({"chip": chip.name, "rated_W": rated, "predicted_W": power, "error": power / rated - 1.0})
    return rows


def step_row(old: Chip, new: Chip) -> dict[str, Any]:
    """The new chip by the laws of a design: area, cache, memory and links as published, process by its energy."""
    own = old.design.technology
    generations = float(np.log(new.switching / old.switching) / np.log(own.logic_energy))
    a, b = old.accelerator, new.accelerator
    choices = {
        "generations": generations,
        "area": b.die_area / a.die_area,
        "cache": b.cache_size / a.cache_size,
        "memory_stacks": b.memory_bandwidth / a.memory_bandwidth / own.memory_rate**generations,
        "link_lanes": new.link_rate / old.link_rate,
    }
    values = tuple(np.asarray(float(value)) for value in choices.values())
    design = eqx.tree_at(lambda chip: tuple(getattr(chip, name) for name in choices), old.design, values)
    built = design.build(a, old.link_rate).accelerator
    rate, power = float(built.peak_flops), float(built.rated_power)
    return {
        "from": old.name,
        "to": new.name,
        "generations": generations,
        "rate_error": rate / float(b.peak_flops) - 1.0,
        "power_error": power / float(b.rated_power) - 1.0,
        "energy_error": (power / rate) / float(b.rated_power / b.peak_flops) - 1.0,
    }


def main() -> None:
    """Print and write all tables."""
    with jax.enable_x64(True):
        products = chips()
        names = {chip.name: chip for chip in products}
        constants = fitted(products)
        power = power_rows(products)
        steps = [step_row(names[old], names[new]) for old, new in STEPS]
    errors = [row["error"] for row in power]
    tables = {
        "constants": [
            {
                "pJ_per_FLOP_N7": float(constants[0]) * 1e12,
                "W_per_mm2": float(constants[1]) * 1e-6,
                "pJ_per_bit": float(constants[2]) * 1e12,
                "chips": len(products),
                "within_15_percent": int(np.sum(np.abs(errors) <= WITHIN)),
            }
        ],
        "power": power,
        "steps": steps,
        "accuracy": [
            outputs.accuracy(
                "rated power of an accelerator from its rate, area, memory bandwidth and process",
                errors,
                "each chip",
                "V100 to B200, MI250X, MI300X, TPU v4 to v6e; powers of two TPUs are estimates",
            ),
            *(
                outputs.accuracy(
                    f"{what} of an accelerator by the laws of a design",
                    [row[f"{key}_error"] for row in steps],
                    "the newer chip of each pair; nothing is fitted to any of them",
                    "an older chip of the same vendor, up to 1.8 times its area",
                )
                for key, what in (("rate", "peak rate"), ("power", "rated power"))
            ),
        ],
    }
    outputs.keep(tables, HERE)


if __name__ == "__main__":
    main()
