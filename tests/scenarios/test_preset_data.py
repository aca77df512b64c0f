"""Every preset file: complete, in SI, within the ranges of its fields, and with a source for each number."""

import math
import re
import tomllib

import pytest

from energymodel.scenarios.components import preset_in_si
from energymodel.units import SI_UNITS
from preset_layout import ROOT, fields_of, names, read

KINDS = {"measured", "specification", "published", "derived", "definition", "prior"}
KEYS = {"value", "unit", "kind", "source"}
# What no measurement could change: terms that are off, numerical widths, references, conventions of accounting, limits
# and choices of a scenario.
DEFINED = """
    absorbed_overhead bits_per_flop blend_time blend_width chiller_capacity coding contention_exponent delay_cost
    energy expert_imbalance flash flow fraction hop_latency hot_spot_resistance included_lanes own_share power
    power_limit power_ramp_limit protocol_latency ramp_limit rating_price ratio reduction_rate
    reference_temperature replacement_time single_links small_rate start_latency static_power swing_limit
    uplink_lane_price width write_time
"""
ZERO_ALLOWED = """
    air_share alternating_dense batch_trend bus_share chiller_capacity coil_approach delay_cost dense_layers
    energy expert_vectors fan_fraction fan_power flash flow_growth fraction gated gemm_edge hop_latency
    hot_spot_resistance included_lanes kv_rank lane_power local_layers own_share parallel_block peak_flops_fp4
    peak_flops_fp8 peak_flops_tf32 power protocol_latency query_rank rating_price reduction_rate replacement_time
    rope_head_size router shared_experts single_links start_latency static_power switch_lane_power
    switch_lane_price tied token_trend uplink_lane_price value_head_size vector_parameters window work_fraction
    write_time
"""
DISTRIBUTION = re.compile(
    r"(lognormal|normal) \d*\.?\d+(e-?\d+)?|(uniform|beta) \d*\.?\d+(e-?\d+)? \d*\.?\d+(e-?\d+)?|joint [a-z-]+"
)
FOLDERS = """
    hardware nodes networks topologies models facilities regulators weather inlets regions prices carbon laws
    recipes optimizers schedules reliability
"""
FILES = sorted(ROOT / folder / f"{name}.toml" for folder in FOLDERS.split() for name in names(folder))
IDS = [f"{path.parent.name}/{path.stem}" for path in FILES]
REQUIRED = {
    "hardware": """v100-sxm2-32gb a100-sxm4-40gb a100-sxm4-80gb h100-sxm h100-pcie h800-sxm h200-sxm b200-sxm gb200
        mi250x mi300x tpu-v3 tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7 trainium2 gaudi3 near-limit gb300 mi325x mi355x
        a100-pcie-80gb h100-nvl l4 l40s a10 a40 rtx-3090 rtx-4090 rtx-5090 rtx-6000-ada rtx-pro-6000 p100-pcie-16gb
        v100-pcie-32gb rtx-6000-turing rtx-8000""",
    "models": """chinchilla-70b gpt3-175b bloom-176b llama-2-7b llama-2-13b llama-2-70b llama-3.1-8b llama-3.1-70b
        llama-3.1-405b olmo-2-7b olmo-2-13b deepseek-v3 test-1b megatron-22b megatron-175b megatron-530b
        megatron-1t""",
    "facilities": "air-cooled hyperscale direct-liquid two-phase-immersion",
    "regions": "world us us-virginia us-texas us-iowa france germany norway",
    "laws": "besiroglu-2024 hoffmann-2022 bergsma-2025 zhang-2024 kaplan-2020",
}


def check_quantity(where, name, unit, table):
    assert KEYS <= set(table) <= KEYS | {"distribution"}, where
    number = table["value"]
    assert isinstance(number, float), f"{where}: {number!r} is not a float"
    assert math.isfinite(number), where
    assert number > 0 or (number == 0 and name in ZERO_ALLOWED.split()), f"{where}: {number}"
    assert table["unit"] == unit, f"{where}: {table['unit']} is not {unit}"
    assert table["unit"] in SI_UNITS, where
    assert table["kind"] in KINDS, where
    chosen = where.startswith("near-limit")  # a machine that nobody has built has no values in the world
    assert table["kind"] != "definition" or name in DEFINED.split() or chosen, f"{where}: has a value in the world"
    assert table["kind"] != "prior" or "distribution" in table, f"{where}: how far may the prior be off?"
    assert len(table["source"]) > 8, where
    if re.search(r"recalled|assumed|hypothetical|by analogy|imputed", table["source"]) and not chosen:
        assert table["kind"] == "prior", f"{where}: recalled or assumed, but {table['kind']}"
    if "distribution" in table:
        assert DISTRIBUTION.fullmatch(table["distribution"]), f"{where}: {table['distribution']}"


def check_component(where, tables):
    fields = fields_of(tables["component"])
    assert set(tables) - {"component", "title", "template"} == set(fields), where
    for name, kind in fields.items():
        if isinstance(kind, set):
            assert tables[name]["component"] in kind, where
            check_component(f"{where}.{name}", tables[name])
        else:
            check_quantity(f"{where}.{name}", name, kind, tables[name])


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_preset_is_complete_and_sourced(path):
    text, folder, name = path.read_text(encoding="utf-8"), path.parent.name, path.stem
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name)
    assert len(tomllib.loads(text)["title"]) > 3  # its own, not that of its base
    check_component(name, read(folder, name))
    preset_in_si(folder, name)  # refuses a component of another category, and numbers outside their range
    assert not re.search(r"[\s\"(~]/\w", text), "a path of some machine is no source"


@pytest.mark.parametrize("folder", REQUIRED)
def test_required_presets_exist(folder):
    assert set(names(folder)) >= set(REQUIRED[folder].split())
