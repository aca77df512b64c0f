"""What the test files of the presets share: the layout that each component must have, and how to read a number."""

from pathlib import Path

import energymodel
from energymodel.presets.components import expand_presets
from energymodel.presets.files import names, read_preset
from energymodel.system.facility import Market

__all__ = ["COMPONENTS", "ROOT", "names", "read", "value"]

ROOT = Path(energymodel.__file__).parent / "presets"

_LINK: dict[str, str | tuple[str, ...]] = {
    "lanes": "1",
    "lane_bandwidth": "B/s",
    "payload": "B",
    "overhead": "B",
    "coding": "1",
    "efficiency": "1",
    "latency": "s",
    "energy": "J/bit",
    "lane_power": "W",
    "included_lanes": "1",
    "lane_price": "USD",
}
# Component -> field -> unit, or the components that may stand there. The fields of DESIGN 2 and of the task's list.
COMPONENTS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "Accelerator": {
        "peak_flops": "FLOP/s",
        "peak_flops_fp8": "FLOP/s",
        "peak_flops_fp4": "FLOP/s",
        "peak_flops_tf32": "FLOP/s",
        "peak_flops_fp32": "FLOP/s",
        "reference_clock": "Hz",
        "minimum_clock": "1",
        "memory_capacity": "B",
        "memory_bandwidth": "B/s",
        "cache_size": "B",
        "rated_power": "W",
        "idle_power": "W",
        "fixed_power": "W",
        "busy_power": "W",
        "reference_memory_utilization": "1",
        "fp8_energy_ratio": "1",
        "voltage": ("VoltageCurve", "PolynomialVoltage"),
        "reference_voltage": "V",
        "leakage": ("Leakage",),
        "gate": ("PowerGate",),
        "memory_energy": "J/bit",
        "gemm_efficiency": "1",
        "gemm_half_size": "1",
        "memory_efficiency": "1",
        "roofline_exponent": "1",
        "launch_exponent": "1",
        "launch_overhead": "s",
        "overhead_time": "s",
        "die_area": "m^2",
        "heat_capacity": "J/K",
        "thermal_resistance": "K/W",
        "maximum_temperature": "K",
        "price": "USD",
        "embodied_carbon": "kg",
        "bits_per_flop": "bit/FLOP",
        "gemm_tile": "1",
    },
    "NearLimitAccelerator": {
        "landauer_multiple": "1",
        "bits_per_flop": "bit/FLOP",
        "reference_voltage": "V",
        "temperature": "K",
        "slope_factor": "1",
        "depth_per_activity": "1",
        "rated_power": "W",
        "die_area": "m^2",
    },
    "VoltageCurve": {"floor": "1", "knee": "1", "width": "1"},
    "Leakage": {
        "power": "W",
        "voltage_sensitivity": "1",
        "temperature_sensitivity": "1/K",
        "reference_temperature": "K",
    },
    "PowerGate": {"fraction": "1", "residual_fraction": "1", "wake_energy": "J", "wake_time": "s", "blend_time": "s"},
    "Node": {"chips": "1", "overhead_power": "W", "scale_up": ("Link",), "host_bandwidth": "B/s"},
    "Link": _LINK,
    "Network": {
        "link": ("Link",),
        "topology": ("Ring", "Torus", "FatTree", "Dragonfly", "FullyConnected"),
        "hop_energy": "J/bit",
        "static_power": "W",
        "contention_exponent": "1",
        "switch_lane_power": "W",
        "switch_lane_price": "USD",
    },
    "FatTree": {"radix": "1", "pod": "1", "oversubscription": "1", "port_lanes": "1"},
    "Torus": {"dimensions": "1"},
    "Dragonfly": {"routers_per_group": "1", "global_links": "1", "hosts_per_router": "1"},
    "Transformer": {
        "layers": "1",
        "hidden": "1",
        "heads": "1",
        "kv_heads": "1",
        "head_size": "1",
        "feed_forward": "1",
        "gated": "1",
        "vocabulary": "1",
        "sequence": "token",
        "tied": "1",
        "experts": "1",
        "active_experts": "1",
        "shared_experts": "1",
        "dense_layers": "1",
        "dense_feed_forward": "1",
        "flash": "1",
        "expert_imbalance": "1",
    },
    "Facility": {
        "power_supply": ("Regulator",),
        "uninterruptible": ("Regulator",),
        "transformer_loss": "1",
        "distribution": ("Distribution",),
        "cooling": ("Cooling",),
        "miscellaneous_fraction": "1",
        "power_limit": "W",
        "ramp_limit": "K/s",
    },
    "Regulator": {"rated_power": "W", "fixed_loss": "1", "proportional_loss": "1", "quadratic_loss": "1"},
    "Distribution": {"voltage": "V", "resistance": "ohm"},
    "Cooling": {
        "loop": ("SinglePhaseLoop", "TwoPhaseLoop"),
        "chiller": ("QuadraticChiller", "CarnotChiller"),
        "wet_bulb_temperature": "K",
        "approach": "K",
        "blend_width": "K",
    },
    "SinglePhaseLoop": {
        "base_resistance": "K/W",
        "flow_resistance": "K/W",
        "flow": "1",
        "mover_power_fraction": "1",
        "coolant_rise": "K",
        "heat_flux_capability": "W/m^2",
    },
    "TwoPhaseLoop": {
        "resistance": "K/W",
        "mover_power_fraction": "1",
        "coolant_rise": "K",
        "latent_heat": "J/kg",
        "vapor_density": "kg/m^3",
        "liquid_density": "kg/m^3",
        "surface_tension": "N/m",
        "quality": "1",
        "area_enhancement": "1",
        "heat_flux_margin": "1",
    },
    "QuadraticChiller": {
        "curvature": "1/K^2",
        "slope": "1/K",
        "offset": "1",
        "minimum_temperature": "K",
        "maximum_temperature": "K",
    },
    "Market": {"price": ("OwnedPrice", "RentedPrice"), "carbon": ("Carbon",)},
    "OwnedPrice": {
        "server_multiplier": "1",
        "interest_rate": "1",
        "life": "s",
        "utilization": "1",
        "electricity": "USD/J",
        "demand_charge": "USD/(W s)",
        "facility_price": "USD/W",
        "facility_life": "s",
        "delay_cost": "USD/s",
    },
    "RentedPrice": {"chip_time": "USD/s", "delay_cost": "USD/s"},
    "Carbon": {"intensity": "kg/J", "chip_life": "s", "utilization": "1", "embodied_multiplier": "1"},
    "ChinchillaLaw": {
        "entropy_floor": "nat/token",
        "parameter_coefficient": "1",
        "parameter_exponent": "1",
        "data_coefficient": "1",
        "data_exponent": "1",
    },
    "PowerCriticalBatch": {
        "at_pivot": "token",
        "exponent": "1",
        "pivot": "token",
        "sharpness": "1",
        "tested_tokens": "token",
        "tested_batch": "token",
        "token_trend": "1",
        "batch_trend": "1",
    },
    "Recipe": {"precision": ("NarrowProducts",)},
    "NarrowProducts": {
        "fp8_parameter_efficiency": "1",
        "fp8_token_efficiency": "1",
        "fp4_parameter_efficiency": "1",
        "fp4_token_efficiency": "1",
    },
    "KaplanCriticalBatch": {"coefficient": "token", "exponent": "1"},
    "Reliability": {"chip_mtbf": "s", "checkpoint_time": "s", "restart_time": "s", "straggler_variation": "1"},
}


def read(folder, name):
    """A preset with its base; a region with the presets of price and carbon that it names."""
    tables = read_preset(folder, name)
    return expand_presets(tables, Market, name) if folder == "regions" else tables


def value(tables, path):
    for part in path.split("."):
        tables = tables[part]
    return float(tables["value"])
