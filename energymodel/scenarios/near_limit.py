"""An accelerator near the limits of physics, of which only a few numbers are chosen.

Chosen are the energy of an operation as a multiple of Landauer's bound, the bits that an operation erases, the
supply voltage, the junction temperature, the power and the die area, besides two numbers of the circuit. All else
follows: from thermodynamics (energy of an operation), from the subthreshold slope (leakage, its temperature
sensitivity, the voltage range), and, where physics sets no bound, from keeping the balance of a template device
of today (FLOP per byte, energy of a memory bit against an operation, resistance times area).
"""

import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

from energymodel.constants import BOLTZMANN
from energymodel.physics.voltage import thermal_voltage
from energymodel.ranges import ABOVE_ZERO, AT_LEAST_ONE, Range
from energymodel.readers.expressions import data_file, evaluate, work_out

NEAR_LIMIT_RANGES: Mapping[str, Range] = {
    **dict.fromkeys(("landauer_multiple", "slope_factor"), AT_LEAST_ONE),
    **dict.fromkeys(("bits_per_flop", "reference_voltage", "temperature", "rated_power", "die_area"), ABOVE_ZERO),
    "depth_per_activity": ABOVE_ZERO,
}
"""Of the numbers that a near-limit accelerator follows from."""


def operation_energy(landauer_multiple: float, bits: float, temperature: float) -> float:
    """Energy of an operation, `E = kappa n k_B T ln 2` [Landauer 1961; docs/physics.md A0.8].

    **Arguments:**

    - `landauer_multiple`: kappa, energy per erased bit over the bound [1], at least 1.
    - `bits`: n, bits erased in an operation [bit/FLOP].
    - `temperature`: T of the junction [K].

    **Returns:** E [J/FLOP].
    """
    return landauer_multiple * bits * BOLTZMANN * temperature * math.log(2.0)


def leakage_ratio(voltage: float, temperature: float, slope_factor: float, depth_per_activity: float) -> float:
    """Leakage over dynamic power, `(d/a) exp(-V / (n v_T))` [Zhai et al. 2004, derivation below].

    A gate that switches with activity a in a path of d gates dissipates `a C V^2 f` and leaks `I_off V`, with
    `f = I_on / (d C V)`; the transistor's current falls by e for each `n v_T` of gate voltage, so that
    `I_off / I_on = exp(-V / (n v_T))`. Exact in the subthreshold regime, an overestimate of the on-current above.

    **Arguments:**

    - `voltage`: supply V [V].
    - `temperature`: T [K].
    - `slope_factor`: n [1], at least 1; 1 is 60 mV per decade at 300 K.
    - `depth_per_activity`: d/a [1].

    **Returns:** the ratio [1].
    """
    return depth_per_activity * math.exp(-voltage / (slope_factor * thermal_voltage(temperature)))


def leakage_temperature_sensitivity(voltage: float, temperature: float, slope_factor: float) -> float:
    """Relative growth of leakage with temperature, `b = V / (n v_T T)` [derivation: d ln(leakage_ratio) / dT].

    **Arguments:**

    - `voltage`: supply V [V].
    - `temperature`: T [K].
    - `slope_factor`: n [1].

    **Returns:** b [1/K].
    """
    return voltage / (slope_factor * thermal_voltage(temperature) * temperature)


def voltage_floor(voltage: float, temperature: float, slope_factor: float, minimum_clock: float) -> float:
    """Supply at the lowest clock over that at the reference, `1 - n v_T ln(1/phi_min) / V` [Zhai et al. 2004].

    In the subthreshold regime the clock goes as `exp(V / (n v_T))`, so that slowing down saves little voltage.

    **Arguments:**

    - `voltage`: supply V at the reference clock [V].
    - `temperature`: T [K].
    - `slope_factor`: n [1].
    - `minimum_clock`: phi_min [1].

    **Returns:** fraction of V [1].
    """
    return 1.0 - slope_factor * thermal_voltage(temperature) * math.log(1.0 / minimum_clock) / voltage


def dynamic_power(rated_power: float, fixed_power: float, leakage_ratio: float, memory_ratio: float) -> float:
    """Power left for operations, `(P - P_fix) / (1 + leakage + memory)`, so that all parts add up to P [definition].

    **Arguments:**

    - `rated_power`: P [W].
    - `fixed_power`: P_fix [W].
    - `leakage_ratio`, `memory_ratio`: leakage and memory power over dynamic power [1].

    **Returns:** [W].
    """
    return (rated_power - fixed_power) / (1.0 + leakage_ratio + memory_ratio)


def near_limit_accelerator(preset: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Complete accelerator preset from the few numbers of a near-limit preset and the accelerator it takes after.

    **Returns:** tables as in every other file of `hardware/`; derived quantities carry their formula as source.
    """
    chosen = {name: float(number["value"]) for name, number in preset.items() if isinstance(number, Mapping)}
    formulas = (leakage_ratio, dynamic_power, operation_energy, voltage_floor, leakage_temperature_sensitivity)
    words: dict[str, Any] = {formula.__name__: formula for formula in formulas} | chosen
    words["of"] = lambda path: float(reduce(lambda table, part: table[part], path.split("."), template)["value"])
    rules = data_file(__file__, "near_limit.toml")
    work_out(rules["words"], words)

    def filled(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        return {name: number(value, prefix + name) for name, value in table.items()}

    def number(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        if "value" not in value:
            return filled(value, path + ".")
        if path in chosen:
            return dict(preset[path])
        if path not in rules["derived"]:
            return {**value, "source": f"as the template {template['title']}: {value['source']}"}
        expression, formula = rules["derived"][path]
        source = f"energymodel/scenarios/near_limit.py: {formula}"
        return {"value": evaluate(expression, words), "unit": value["unit"], "kind": "derived", "source": source}

    return {**filled(template), "title": preset["title"]}
