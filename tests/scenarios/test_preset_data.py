"""Every preset file: complete, in SI, with a source for each number, and physically consistent."""

import math
import re
import tomllib

import pytest

from energymodel.units import SI_UNITS
from preset_layout import ROOT, fields_of, names, read

KINDS = {"measured", "specification", "published", "derived", "definition", "prior"}
# What no measurement could change: terms that are off, numerical widths, references, conventions of accounting, limits
# and choices of a scenario.
DEFINED = {
    "replacement_time",
    "write_time",
    "chiller_capacity",
    "hot_spot_resistance",
    "rating_price",
    "absorbed_overhead",
    "hop_latency",
    "uplink_lane_price",
    "single_links",
    "bits_per_flop",
    "blend_time",
    "blend_width",
    "coding",
    "contention_exponent",
    "delay_cost",
    "expert_imbalance",
    "flash",
    "flow",
    "fraction",
    "included_lanes",
    "own_share",
    "energy",  # of storage that a scenario may give
    "power",
    "power_limit",
    "power_ramp_limit",
    "swing_limit",
    "protocol_latency",
    "ramp_limit",
    "ratio",
    "reduction_rate",
    "reference_temperature",
    "small_rate",
    "start_latency",
    "static_power",
    "width",
}
DISTRIBUTION = re.compile(
    r"(lognormal|normal) \d*\.?\d+(e-?\d+)?|(uniform|beta) \d*\.?\d+(e-?\d+)? \d*\.?\d+(e-?\d+)?|joint [a-z-]+"
)

# Fields that may be zero; all others are positive.
ZERO_ALLOWED = {
    "bus_share",
    "hop_latency",
    "single_links",
    "uplink_lane_price",
    "energy",
    "chiller_capacity",
    "hot_spot_resistance",
    "rating_price",
    "power",
    "lane_power",
    "static_power",
    "included_lanes",
    "switch_lane_power",
    "switch_lane_price",
    "fraction",
    "delay_cost",
    "gated",
    "tied",
    "flash",
    "shared_experts",
    "dense_layers",
    "gemm_edge",
    "alternating_dense",
    "kv_rank",
    "query_rank",
    "rope_head_size",
    "value_head_size",
    "window",
    "local_layers",
    "vector_parameters",
    "expert_vectors",
    "router",
    "parallel_block",
    "peak_flops_fp8",
    "token_trend",
    "batch_trend",
    "peak_flops_fp4",
    "peak_flops_tf32",
    "coil_approach",
    "replacement_time",
    "write_time",
    "fan_power",
    "air_share",
    "fan_fraction",
    "flow_growth",
    "own_share",
    "protocol_latency",
    "reduction_rate",
    "start_latency",
    "work_fraction",
}
FRACTIONS = {
    "bus_share",
    "single_links",
    "local_layers",
    "router",
    "parallel_block",
    "floor",
    "knee",
    "minimum_clock",
    "residual_fraction",
    "fraction",
    "efficiency",
    "small_rate",
    "reduction_rate",
    "coding",
    "attention_efficiency",
    "gemm_efficiency",
    "memory_efficiency",
    "reference_memory_utilization",
    "utilization",
    "quality",
    "heat_flux_margin",
    "effectiveness",
    "evaporated_share",
    "transformer_loss",
    "miscellaneous_fraction",
}
FOLDERS = {
    "hardware": {"Accelerator", "NearLimitAccelerator"},
    "nodes": {"Node"},
    "networks": {"Network"},
    "topologies": {"FatTree", "RailOnly", "Dragonfly", "Torus"},
    "models": {"Transformer"},
    "facilities": {"Facility"},
    "regulators": {"Regulator"},
    "weather": {"Weather"},
    "inlets": {"InletClass"},
    "regions": {"Market"},
    "prices": {"OwnedPrice", "RentedPrice"},
    "carbon": {"Carbon"},
    "laws": {"ChinchillaLaw", "PowerCriticalBatch", "KaplanCriticalBatch", "StatedBatchEfficiency"},
    "recipes": {"Recipe"},
    "optimizers": {"Optimizer"},
    "schedules": {"LearningRate"},
    "reliability": {"Reliability"},
}
FILES = sorted(ROOT / folder / f"{name}.toml" for folder in FOLDERS for name in names(folder))
IDS = [f"{path.parent.name}/{path.stem}" for path in FILES]


def check_quantity(where, name, unit, table):
    assert {"value", "unit", "kind", "source"} <= set(table) <= {"value", "unit", "kind", "source", "distribution"}, (
        where
    )
    number = table["value"]
    assert isinstance(number, float), f"{where}: {number!r} is not a float"
    assert math.isfinite(number), where
    assert number > 0 or (number == 0 and name in ZERO_ALLOWED), f"{where}: {number}"
    assert name not in FRACTIONS or number <= 1, f"{where}: {number}"
    assert table["unit"] == unit, f"{where}: {table['unit']} is not {unit}"
    assert table["unit"] in SI_UNITS, where
    assert table["kind"] in KINDS, where
    chosen = where.startswith("near-limit")  # a machine that nobody has built has no values in the world
    assert table["kind"] != "definition" or name in DEFINED or chosen, f"{where}: has a value in the world"
    assert table["kind"] != "prior" or "distribution" in table, f"{where}: how far may the prior be off?"
    assert len(table["source"]) > 8, where
    if re.search(r"recalled|assumed|hypothetical|by analogy|imputed", table["source"]) and not chosen:
        assert table["kind"] == "prior", f"{where}: recalled or assumed, but {table['kind']}"
    if "distribution" in table:
        assert DISTRIBUTION.fullmatch(table["distribution"]), f"{where}: {table['distribution']}"


def check_component(where, tables, allowed, extra=()):
    component = tables["component"]
    assert component in allowed, where
    fields = fields_of(component)
    present = [name for name in tables if name not in {"component", "title", *extra}]
    assert set(present) == set(fields), f"{where}: {sorted(set(present) ^ set(fields))}"
    for name, kind in fields.items():
        if isinstance(kind, set):
            check_component(f"{where}.{name}", tables[name], kind)
        else:
            check_quantity(f"{where}.{name}", name, kind, tables[name])


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_preset_is_complete_and_sourced(path):
    text, tables = path.read_text(encoding="utf-8"), read(path.parent.name, path.stem)
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", path.stem)
    assert len(tomllib.loads(text)["title"]) > 3  # its own, not that of its base
    extra = {"template"} if tables["component"] == "NearLimitAccelerator" else set()
    check_component(path.stem, tables, FOLDERS[path.parent.name], extra)
    assert not re.search(r"[\s\"(~]/\w", text), "a path of some machine is no source"


def test_required_presets_exist():
    assert set(names("hardware")) >= {
        "v100-sxm2-32gb",
        "a100-sxm4-40gb",
        "a100-sxm4-80gb",
        "h100-sxm",
        "h100-pcie",
        "h800-sxm",
        "h200-sxm",
        "b200-sxm",
        "gb200",
        "mi250x",
        "mi300x",
        "tpu-v3",
        "tpu-v4",
        "tpu-v5e",
        "tpu-v5p",
        "tpu-v6e",
        "tpu-v7",
        "trainium2",
        "gaudi3",
        "near-limit",
        "gb300",
        "mi325x",
        "mi355x",
        "a100-pcie-80gb",
        "h100-nvl",
        "l4",
        "l40s",
        "a10",
        "a40",
        "rtx-3090",
        "rtx-4090",
        "rtx-5090",
        "rtx-6000-ada",
        "rtx-pro-6000",
        "p100-pcie-16gb",
        "v100-pcie-32gb",
        "rtx-6000-turing",
        "rtx-8000",
    }
    assert set(names("models")) >= {
        "chinchilla-70b",
        "gpt3-175b",
        "bloom-176b",
        "llama-2-7b",
        "llama-2-13b",
        "llama-2-70b",
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "olmo-2-7b",
        "olmo-2-13b",
        "deepseek-v3",
        "test-1b",
        "megatron-22b",
        "megatron-175b",
        "megatron-530b",
        "megatron-1t",
    }
    assert set(names("facilities")) >= {"air-cooled", "hyperscale", "direct-liquid", "two-phase-immersion"}
    assert set(names("regions")) >= {"world", "us", "us-virginia", "us-texas", "us-iowa", "france", "germany", "norway"}
    assert set(names("laws")) >= {"besiroglu-2024", "hoffmann-2022", "bergsma-2025", "zhang-2024", "kaplan-2020"}
