"""Which values can a number of a system or a plan not have?

Declared once, by class and field; text with a unit is never negative (`units.parse_quantity`), unless its field is
`signed`. A number that is not named here may be anything from zero up.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from energymodel.constants import ZERO_CELSIUS
from energymodel.errors import InputError
from energymodel.units import format_quantity


class Range(NamedTuple):
    """What a number may be, in SI: from `low`, itself excluded if `above`, to `high`."""

    low: float
    high: float = math.inf
    above: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value is possible."""
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def describe(self, unit: str) -> str:
        """What is possible, in words that follow "give"."""
        low = format_quantity(self.low, unit)
        if self.high == math.inf:
            return f"a value above {low}" if self.above else f"a value of at least {low}"
        high = format_quantity(self.high, unit)
        what = "a share" if (self.low, self.high) == (0.0, 1.0) else "a value"
        return f"{what} above {low} and at most {high}" if self.above else f"{what} between {low} and {high}"


SHARE = Range(0.0, 1.0)
SHARE_ABOVE_ZERO = Range(0.0, 1.0, above=True)
ABOVE_ZERO = Range(0.0, above=True)
AT_LEAST_ONE = Range(1.0)
COOLANT = Range(ZERO_CELSIUS - 40.0, ZERO_CELSIUS + 100.0)  # liquids and air that leave a chip below its limit


def _fields(owner: str, names: str, allowed: Range) -> dict[tuple[str, str], Range]:
    return {(owner, name): allowed for name in names.split()}


RANGES: dict[tuple[str, str], Range] = {
    **_fields("Accelerator", "peak_flops", ABOVE_ZERO),
    **_fields("Accelerator", "reference_clock memory_capacity memory_bandwidth rated_power busy_power", ABOVE_ZERO),
    **_fields("Accelerator", "reference_voltage die_area heat_capacity maximum_temperature bits_per_flop", ABOVE_ZERO),
    **_fields(
        "Accelerator",
        "minimum_clock gemm_efficiency fp8_gemm_efficiency fp4_gemm_efficiency memory_efficiency fp8_energy_ratio",
        SHARE_ABOVE_ZERO,
    ),
    **_fields("Accelerator", "attention_efficiency", SHARE_ABOVE_ZERO),
    **_fields("Accelerator", "reference_memory_utilization", SHARE),
    # A p-norm of times with p below one is more than their sum.
    **_fields("Accelerator", "roofline_exponent launch_exponent", AT_LEAST_ONE),
    **_fields("VoltageCurve", "floor knee", SHARE),
    **_fields("VoltageCurve", "width", ABOVE_ZERO),
    **_fields("PosynomialVoltage", "cubic_share", SHARE),
    **_fields("Leakage", "reference_temperature", ABOVE_ZERO),
    **_fields("PowerGate", "fraction residual_fraction", SHARE),
    **_fields("PowerGate", "blend_time", ABOVE_ZERO),
    **_fields("StatedAccess", "line_size run_length in_flight element_size sector_size", ABOVE_ZERO),
    **_fields("StatedAccess", "measured_line_size measured_run_length measured_in_flight", ABOVE_ZERO),
    **_fields("StatedAccess", "stride", AT_LEAST_ONE),
    **_fields("StatedAccess", "prefetch_coverage prefetch_timeliness", SHARE),
    **_fields("StatedAccess", "prefetch_accuracy", SHARE_ABOVE_ZERO),
    **_fields("DividedAccess", "collective_share", Range(1e-3, 0.999)),
    **_fields("DividedAccess", "moved_per_sent", ABOVE_ZERO),
    **_fields("CoreMemory", "registers local_memory local_width shared_width register_banks", ABOVE_ZERO),
    **_fields("ScaledChip", "voltage", Range(0.15, 1.3)),
    **_fields("ScaledChip", "area cache memory_stacks link_lanes registers local_memory", Range(1e-3, 1e3)),
    **_fields("ScaledChip", "generations", Range(0.0, 60.0)),
    **_fields("ScaledChip", "number_bits", Range(2.0, 32.0)),
    **_fields("ScaledChip", "error_margin", Range(math.log(2.0), 1e4)),
    **_fields("Technology", "threshold logic_energy logic_density sram_density memory_rate", ABOVE_ZERO),
    **_fields("Technology", "memory_size interface_energy", ABOVE_ZERO),
    **_fields("Technology", "slope_factor", AT_LEAST_ONE),
    **_fields("Technology", "other_area corruption", SHARE),
    **_fields("Sram", "reference_size cell_area", ABOVE_ZERO),
    **_fields("Sram", "array_efficiency", SHARE_ABOVE_ZERO),
    **_fields("SiliconCost", "area_price largest_die clustering price_growth carbon_growth", ABOVE_ZERO),
    **_fields("NearLimitAccelerator", "landauer_multiple slope_factor", AT_LEAST_ONE),
    **_fields("NearLimitAccelerator", "bits_per_flop reference_voltage temperature rated_power die_area", ABOVE_ZERO),
    **_fields("NearLimitAccelerator", "depth_per_activity", ABOVE_ZERO),
    **_fields("Node", "chips", AT_LEAST_ONE),
    **_fields("Node", "host_bandwidth host_update_bandwidth", ABOVE_ZERO),
    **_fields("Link", "lanes lane_bandwidth payload", ABOVE_ZERO),
    **_fields("Link", "coding efficiency", SHARE_ABOVE_ZERO),
    **_fields("CollectiveLibrary", "small_rate", SHARE_ABOVE_ZERO),
    **_fields("CollectiveLibrary", "reduction_rate", SHARE),
    **_fields("Network", "contention_exponent", AT_LEAST_ONE),
    **_fields("Network", "bus_share", SHARE),
    **_fields("Torus", "dimensions", AT_LEAST_ONE),
    **_fields("Torus", "single_links", SHARE),
    **_fields("FatTree", "switch_lanes", ABOVE_ZERO),
    **_fields("RailOnly", "switch_lanes", ABOVE_ZERO),
    **_fields("Dragonfly", "routers_per_group global_links hosts_per_router", AT_LEAST_ONE),
    **_fields("Dragonfly", "port_lanes switch_lanes", ABOVE_ZERO),
    **_fields("Software", "weight_bytes gradient_bytes optimizer_bytes communicated_bytes bucket_size", ABOVE_ZERO),
    **_fields("Software", "tensor_overlap pipeline_overlap data_overlap context_overlap expert_overlap", SHARE),
    **_fields(
        "Software",
        "latency_overlap async_efficiency node_dispatch unmasked tree late_communication balanced_stages",
        SHARE,
    ),
    **_fields("Software", "usable_memory", SHARE_ABOVE_ZERO),
    **_fields("Software", "product_efficiency fp8_efficiency fp4_efficiency attention_efficiency", ABOVE_ZERO),
    **_fields("Software", "kept_expert_inputs kept_latent_heads", SHARE),
    **_fields("Transformer", "layers hidden heads kv_heads head_size vocabulary sequence", AT_LEAST_ONE),
    **_fields("Transformer", "experts active_experts expert_imbalance", AT_LEAST_ONE),
    **_fields("Transformer", "gated tied flash alternating_dense local_layers router parallel_block", SHARE),
    **_fields("Facility", "transformer_loss", SHARE),
    **_fields("Facility", "power_limit ramp_limit response_time swing_limit power_ramp_limit", ABOVE_ZERO),
    **_fields("EnergyStorage", "efficiency", SHARE_ABOVE_ZERO),
    **_fields("Regulator", "rated_power", ABOVE_ZERO),
    **_fields("Regulator", "fixed_loss proportional_loss quadratic_loss", SHARE),
    **_fields("Distribution", "voltage", ABOVE_ZERO),
    **_fields("SinglePhaseLoop", "flow heat_flux_capability", ABOVE_ZERO),
    **_fields("SinglePhaseLoop", "mover_power_fraction", SHARE),
    **_fields("TwoPhaseLoop", "latent_heat vapor_density liquid_density surface_tension", ABOVE_ZERO),
    **_fields("TwoPhaseLoop", "area_enhancement", ABOVE_ZERO),
    **_fields("TwoPhaseLoop", "quality heat_flux_margin", SHARE_ABOVE_ZERO),
    **_fields("TwoPhaseLoop", "mover_power_fraction", SHARE),
    **_fields("CarnotChiller", "fraction", SHARE_ABOVE_ZERO),
    **_fields("OwnedPrice", "life facility_life", ABOVE_ZERO),
    **_fields("OwnedPrice", "utilization", SHARE_ABOVE_ZERO),
    **_fields("Carbon", "chip_life", ABOVE_ZERO),
    **_fields("Carbon", "utilization", SHARE_ABOVE_ZERO),
    **_fields("Reliability", "chip_mtbf checkpoint_time repair_time", ABOVE_ZERO),
    **_fields("Serving", "sequences weight_bytes", ABOVE_ZERO),
    **_fields("Serving", "utilization", SHARE_ABOVE_ZERO),
    **_fields("TrainingSystem", "production_slowdown", ABOVE_ZERO),
    **_fields("TrainingSystem", "mixture_exponent", SHARE),
    **_fields("TrainingSystem", "capacity_per_parameter", ABOVE_ZERO),
    **_fields("PowerCriticalBatch", "exponent", SHARE),
    **_fields("PowerCriticalBatch", "at_pivot pivot", ABOVE_ZERO),
    **_fields("KaplanCriticalBatch", "coefficient", ABOVE_ZERO),
    **_fields("StatedBatchEfficiency", "unit_batch", ABOVE_ZERO),
    **_fields("StatedBatchEfficiency", "exponent", SHARE_ABOVE_ZERO),
    **_fields("StatedSaturation", "saturation_batch bend", ABOVE_ZERO),
    **_fields("TrainingPlan", "chips", AT_LEAST_ONE),
    **_fields("TrainingPlan", "batch power_cap", ABOVE_ZERO),
    **_fields("TrainingPlan", "clock waiting_clock trained_share", SHARE_ABOVE_ZERO),
    **_fields("TrainingPlan", "power_floor", SHARE),
    **_fields("ClockCourse", "clock_shares", SHARE_ABOVE_ZERO),
    **_fields("TrainingPlan", "coolant_temperature", COOLANT),
    **_fields("LimitedData", "unique_tokens repetition_scale", ABOVE_ZERO),
    **_fields("StagePower", "first_stage middle_stages last_stage", ABOVE_ZERO),
    **_fields("ParallelLayout", "tensor pipeline virtual_stages context expert microbatch", AT_LEAST_ONE),
    **_fields("ParallelLayout", "sequence_parallel shard_optimizer shard_gradients shard_parameters", SHARE),
    **_fields("ParallelLayout", "async_tensor context_all_to_all", SHARE),
    **_fields("ParallelLayout", "recompute_attention recompute_full fp8 fp4 tf32 fp32 zero_bubble", SHARE),
    **_fields("ParallelLayout", "offload_optimizer offload_activations offload_parameters offload_gradients", SHARE),
    **_fields("ParallelLayout", "cuda_graphs embedding_balanced", SHARE),
}


def check_range(owner: str, name: str, values: Iterable[float], unit: str, path: str) -> None:
    """Check numbers of a field against what it may be.

    **Arguments:**

    - `owner`, `name`: class and field.
    - `values`: in SI.
    - `path`: what the message calls the field.

    **Raises:** `InputError` that names path, value, unit and what is possible.
    """
    allowed = RANGES.get((owner, name))
    if allowed is None:
        return
    for value in values:
        if not allowed.holds(value):
            raise InputError(f"{path}: {format_quantity(value, unit)} is impossible; give {allowed.describe(unit)}.")


def check_number(component: Any, field: str, values: Iterable[float], path: str) -> None:
    """Check numbers that shall stand at a dotted field below a component, as `check_range`; `path` is for messages."""
    owner, name = _owner(component, field)
    fields = {one.name: one for one in dataclasses.fields(owner)}
    if name in fields:  # the tokens of a plan whose goal is a loss are not
        check_range(type(owner).__name__, name, values, fields[name].metadata["unit"], path)


def ends_of(component: Any, field: str) -> tuple[float, float]:
    """The lowest and the highest value that a number at a dotted field below a component may have, in SI."""
    owner, name = _owner(component, field)
    (found,) = (one for one in dataclasses.fields(owner) if one.name == name)
    if found.metadata.get("signed"):
        return -math.inf, math.inf
    allowed = RANGES.get((type(owner).__name__, name), Range(0.0))
    return (math.nextafter(allowed.low, math.inf) if allowed.above else allowed.low), allowed.high


def _owner(component: Any, field: str) -> tuple[Any, str]:
    """The component that holds a dotted field, and the name of the field in it."""
    *parents, name = field.split(".")
    for part in parents:
        component = getattr(component, part)
    return component, name


def check_numbers(component: Any, path: str) -> None:
    """Check all numbers of a component and its parts, as a file is checked that gives them.

    **Raises:** `InputError` for the first that is negative, not finite or outside its range.
    """
    owner = type(component).__name__
    for field in dataclasses.fields(component):
        given, where = getattr(component, field.name), f"{path}.{field.name}"
        if "unit" not in field.metadata:
            if dataclasses.is_dataclass(given):
                check_numbers(given, where)
            continue
        unit = field.metadata["unit"]
        values = [float(value) for value in np.ravel(np.asarray(given))]
        for value in values:
            if not math.isfinite(value) or (value < 0.0 and not field.metadata.get("signed")):
                what = "negative" if value < 0.0 else "not a finite number"
                raise InputError(f"{where}: {value:g} {unit} is {what}. Give a number of at least 0.")
        check_range(owner, field.name, values, unit, where)
