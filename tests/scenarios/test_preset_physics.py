"""Numbers of presets: physically consistent, and those that their sources publish."""

import json
import math
import re
import statistics
import tomllib
from pathlib import Path

import pytest

import energymodel as em
from energymodel.performance.kernels import exponential_slowdown, forward_attention_time, product_time
from preset_layout import fields_of, names, read, value

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
DEVICES = [name for name in names("hardware") if name != "near-limit"]
DATA = tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8"))


NO_MATRIX_UNITS = {"p100-pcie-16gb": 14e-12, "m4-max": 7e-12, "m3-ultra": 7e-12}  # most energy of an operation [J]


@pytest.mark.parametrize("name", DEVICES)
def test_device_is_physically_consistent(name):
    device = read("hardware", name)
    static = value(device, "leakage.power") + value(device, "fixed_power")
    memory = value(device, "reference_memory_utilization") * value(device, "memory_bandwidth") * 8
    memory *= value(device, "memory_energy")
    dynamic = value(device, "busy_power") - static - memory
    assert value(device, "idle_power") <= static < value(device, "rated_power")
    # No run of Zeus brings a P100 to its limit: at most 180 of 250 W.
    assert (value(device, "rated_power") <= value(device, "busy_power")) == (name != "p100-pcie-16gb")
    # An operation costs 0.3 to 3.5 pJ from 4 nm to 16 nm; docs/physics.md B2.2 has 0.3 to 0.71 at 4 nm. Without matrix
    # units it costs some four times as much, and up to 5 pJ where fp32 accumulation halves the rate of 8 nm.
    per_operation = dynamic / (value(device, "gemm_efficiency") * value(device, "peak_flops"))
    assert 0.3e-12 < per_operation < {**NO_MATRIX_UNITS, "rtx-3090": 5e-12}.get(name, 3.5e-12)
    # Formats that the device lacks have a rate of zero; each halving of the width at most doubles the rate. GeForce
    # cards accumulate bf16 and fp8 in fp32 at half their rate, but not fp4.
    for narrower, factor in (
        ("peak_flops_fp8", 2.03),
        ("peak_flops_fp4", 8.01 if "GeForce" in device["title"] else 6.7),
    ):
        rate = value(device, narrower)
        assert rate == 0 or value(device, "peak_flops") <= rate <= factor * value(device, "peak_flops")
    # docs/physics.md B2: die, lid and junction-to-case resistance, K m^2/W, of 0.02 K/W on 8.14 cm^2.
    assert value(device, "thermal_resistance") * value(device, "die_area") == pytest.approx(0.02 * 814e-6, rel=1e-3)
    assert value(device, "voltage.floor") < 1
    # The voltage curve must be convex in logarithms for the certificate: floor >= slope x knee (docs/physics.md C).
    # Three that were measured are steeper: energies are convex in the logarithm of the clock, but not log-convex.
    floor, knee = value(device, "voltage.floor"), value(device, "voltage.knee")
    steep = name.startswith("a100") or name in ("a800", "a40", "p100-pcie-16gb")
    assert (floor >= (1 - floor) / (1 - knee) * knee) != steep


def test_h100_is_the_default_of_the_specification():
    # docs/physics.md B2 and B2.2.
    device = read("hardware", "h100-sxm")
    assert value(device, "busy_power") == 800
    assert value(device, "idle_power") == 75
    assert value(device, "leakage.power") == value(device, "fixed_power") == 70
    # 3.35e12 B/s x 8 x 3.9e-12 J/bit = 104.5 W, printed as 105 W.
    assert value(device, "memory_bandwidth") * 8 * value(device, "memory_energy") == pytest.approx(105, abs=0.5)


def test_voltage_curve_is_the_mean_of_the_curves_that_are_known():
    limits = json.loads((EXPERIMENTS / "02_power_limits" / "result.json").read_text(encoding="utf-8"))
    clocks = json.loads((EXPERIMENTS / "03_frequency" / "result.json").read_text(encoding="utf-8"))
    text = json.dumps([limits["transfer"], clocks["kernel_constants"]])
    fitted = [re.findall(rf'"voltage_{name}": ([0-9.]+)', text) for name in ("floor", "knee")]
    for values, name in zip(fitted, ("floor", "knee"), strict=True):
        values += re.findall(rf'"constant": "voltage_{name}", "value": ([0-9.]+)', text)
        assert len(values) == 4
    # Tenstorrent Blackhole: floor 0.87, knee 0.65 (docs/physics.md B2); NVIDIA L4: 0.655 V idle, 0.885 V at 2.04 GHz.
    # A100: 0.67 and 0.81 by an earlier law of fronts, which the prior of other chips still counts.
    floors = [*map(float, fitted[0]), 0.6745, 0.87, 0.655 / 0.885]
    knees = [*map(float, fitted[1]), 0.8141, 0.65]
    for name in ("h100-sxm", "b200-sxm"):
        device = read("hardware", name)
        assert value(device, "voltage.floor") == pytest.approx(statistics.fmean(floors), abs=0.005)
        assert value(device, "voltage.knee") == pytest.approx(statistics.fmean(knees), abs=0.005)
    # 0.692 V at the lowest clock, over the floor.
    assert value(read("hardware", "h100-sxm"), "reference_voltage") == pytest.approx(0.692 / 0.79, abs=0.005)


def test_supplies_deliver_what_was_metered():
    # experiments/04_metered_runs: 97.7 % at the 850 W per chip of busy nodes, six supplies of 3.3 kW for 8 chips.
    supply = read("facilities", "air-cooled")["power_supply"]
    load = 850 / value(supply, "rated_power")
    assert value(supply, "rated_power") == 6 * 3300 / 8
    a0, a1, a2 = (value(supply, f"{kind}_loss") for kind in ("fixed", "proportional", "quadratic"))
    assert load / (load + a0 + a1 * load + a2 * load**2) == pytest.approx(0.977, abs=5e-5)


@pytest.mark.parametrize("name", names("nodes"))
def test_link_rates_are_those_of_the_product(name):
    nominal = DATA["link_rates"][name]
    link = read("nodes", name)["scale_up"]
    assert value(link, "lanes") * value(link, "lane_bandwidth") == pytest.approx(nominal, rel=1e-6)


def test_total_link_efficiencies_are_those_of_the_specification():
    # docs/physics.md E: InfiniBand 0.85 of the nominal rate, protocol included.
    link = read("networks", "infiniband-400g")["link"]
    protocol = value(link, "payload") / (value(link, "payload") + value(link, "overhead")) * value(link, "coding")
    assert protocol * value(link, "efficiency") == pytest.approx(0.85, rel=1e-6)
    assert protocol == pytest.approx(0.9543, abs=5e-5)  # printed in docs/physics.md B7


def parameters(model):
    """Count by hand: attention 2 h d (a + a_kv), feed-forward (2 + gated) h f, embeddings (2 - tied) V h."""
    v = {name: value(model, name) for name in fields_of("Transformer")}
    attention = 2 * v["hidden"] * v["head_size"] * (v["heads"] + v["kv_heads"])
    if v["kv_rank"]:  # the matrices q_a, q_b (or q), kv_a, kv_b and o of a checkpoint of DeepSeek's architecture
        h, a, d, rope, d_v = (v[name] for name in ("hidden", "heads", "head_size", "rope_head_size", "value_head_size"))
        q = v["query_rank"] * (h + a * d) if v["query_rank"] else h * a * d
        attention = q + h * (v["kv_rank"] + rope) + v["kv_rank"] * a * (d - rope + d_v) + a * d_v * h
    block = (2 + v["gated"]) * v["hidden"]
    embeddings = (2 - v["tied"]) * v["vocabulary"] * v["hidden"]
    fixed = v["layers"] * attention + v["dense_layers"] * block * v["dense_feed_forward"] + embeddings
    routed = (v["layers"] - v["dense_layers"]) * block * v["feed_forward"]
    return fixed + routed * (v["experts"] + v["shared_experts"]), fixed + routed * (
        v["active_experts"] + v["shared_experts"]
    )


def test_every_model_has_a_published_size():
    assert set(names("models")) == {*DATA["published"], *DATA["rounded"]}


@pytest.mark.parametrize("name", DATA["published"])
def test_parameter_count_is_the_published_one(name):
    published, tolerance = DATA["published"][name]
    assert parameters(read("models", name))[0] == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize("name", DATA["rounded"])
def test_parameter_count_is_that_of_the_name(name):
    workload = em.load_scenario("test-1b-h100", {"system.workload": name}).system.workload
    assert float(workload.parameters) == pytest.approx(DATA["rounded"][name], rel=0.03)


def test_active_parameters_of_deepseek():
    assert parameters(read("models", "deepseek-v3"))[1] == pytest.approx(37e9, rel=0.02)


def test_titanium_supply_meets_its_label():
    # 80 PLUS Titanium: 90, 94, 96, 91 % at 10, 20, 50, 100 % load.
    supply = read("facilities", "hyperscale")["power_supply"]
    a0, a1, a2 = (value(supply, f"{kind}_loss") for kind in ("fixed", "proportional", "quadratic"))
    for load, label in [(0.1, 0.90), (0.2, 0.94), (0.5, 0.96), (1.0, 0.91)]:
        assert load / (load + a0 + a1 * load + a2 * load**2) >= label


def test_two_phase_cooling_carries_an_h100():
    # docs/physics.md B6: 14.23 W/cm^2 x 0.7 x area enhancement >= 86.0 W/cm^2.
    loop = read("facilities", "two-phase-immersion")["cooling"]["loop"]
    assert 14.23 * value(loop, "heat_flux_margin") * value(loop, "area_enhancement") > 86.0


def test_regions_are_those_of_the_data():
    # carbon_intensity.csv, g/kWh, and electricity prices in USD/kWh, copied by hand.
    for name, intensity, price in [
        ("us", 369.473, 0.0826),
        ("france", 56.039, None),
        ("norway", 30.08, None),
        ("china", 582.317, None),
        ("us-virginia", 369.13, 0.0892),
        ("us-texas", 476.06, 0.066),
        ("world", 475.0, 0.08),
    ]:
        region = read("regions", name)
        assert value(region, "carbon.intensity") * 3.6e9 == pytest.approx(intensity, rel=1e-4)
        if price is not None:
            assert value(region, "price.electricity") * 3.6e6 == pytest.approx(price, rel=1e-4)


def test_laws_are_those_of_the_specification():
    # docs/physics.md B1: 2048 x 0.0471 x (1.4e12)^0.462 = 3.94e7, Zhang x 5 = 4.54e7, Kaplan at L = 2: 7.74e6; the fit
    # to the runs of Zhang et al., by hand: 2.114e6 x (1.4e12/5e9)^0.5695 = 2.114e6 x 24.76 = 5.235e7.
    for name, expected in (("bergsma-2025", 3.94e7), ("zhang-2024", 4.54e7), ("zhang-2024-runs", 5.235e7)):
        law = read("laws", name)
        critical = value(law, "at_pivot") * (1.4e12 / value(law, "pivot")) ** value(law, "exponent")
        assert critical == pytest.approx(expected, rel=2e-3)
        assert value(law, "pivot") < value(law, "tested_tokens")
    kaplan = read("laws", "kaplan-2020")
    assert value(kaplan, "coefficient") * 2.0 ** -value(kaplan, "exponent") == pytest.approx(7.74e6, rel=2e-3)


def test_chip_lifetime_is_that_of_llama_3():
    # docs/physics.md B3: 3.09 h on 16384 chips, 5.785 years of 365 days per chip.
    lifetime = value(read("reliability", "llama-3"), "chip_mtbf")
    assert lifetime / (365 * 86400) == pytest.approx(5.785, abs=5e-4)
    assert lifetime / 16384 / 3600 == pytest.approx(3.09, abs=5e-3)


def test_restarts_leave_the_effective_time_of_llama_3():
    # Young's interval: checkpoints and lost work cost sqrt(2 x 30 s x 11135 s) = 817 s; a tenth of 11135 s is 1113 s.
    reliability = read("reliability", "llama-3")
    between = value(reliability, "chip_mtbf") / 16384
    lost = math.sqrt(2 * value(reliability, "checkpoint_time") * between)
    assert lost + value(reliability, "restart_time") == pytest.approx(0.1 * between, rel=0.01)


def test_prices_in_units_people_use():
    owned = read("prices", "owned")
    assert value(owned, "demand_charge") * 1000 * 730 * 3600 == pytest.approx(15)
    assert value(owned, "electricity") * 3.6e6 == pytest.approx(0.08)
    assert value(owned, "life") == value(read("carbon", "standard"), "chip_life") == 5.5 * 8760 * 3600
    assert value(owned, "facility_life") == 25 * 8760 * 3600


@pytest.mark.parametrize("name", names("regions"))
def test_regions_differ_only_in_grid_and_price(name):
    region, owned, standard = read("regions", name), read("prices", "owned"), read("carbon", "standard")
    for field in fields_of("OwnedPrice"):
        assert field == "electricity" or region["price"][field] == owned[field]
    for field in fields_of("Carbon"):
        assert field == "intensity" or region["carbon"][field] == standard[field]


@pytest.mark.parametrize(
    ("name", "fp8", "m", "n", "k", "rate"),
    [  # as the sources of the presets print them
        ("mi300x", "", 10240, 15360, 8192, 668.4e12),
        ("mi300x", "fp8_", 8192, 8192, 8192, 1159.2e12),
        ("mi325x", "", 4096, 4864, 32896, 831.4e12),
        ("mi325x", "fp8_", 4096, 3648, 32896, 1408e12),
        ("mi355x", "", 12288, 8192, 8192, 1565e12),
        ("mi355x", "fp8_", 5120, 32768, 2880, 2541e12),
    ],
)
def test_products_of_amd_chips_run_as_measured(name, fp8, m, n, k, rate):
    names = (f"{fp8}gemm_efficiency", f"peak_flops_{fp8}".rstrip("_"), f"{fp8}gemm_edge", "product_latency")
    efficiency, peak, edge, latency = (value(read("hardware", name), number) for number in names)
    operations = 2.0 * m * n * k
    time = product_time(operations, 2.0 * m * n, efficiency * peak, edge, latency)
    assert operations / time == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize(("name", "rate"), [("mi300x", 446.3e12), ("mi355x", 1173.2e12)])
def test_attention_of_amd_chips_runs_as_measured(name, rate):  # causal, 16 sequences of 8,192 tokens, 16 heads of 128
    names = ("peak_flops", *(f"attention_{number}" for number in ("efficiency", "half_head", "half_keys", "tail")))
    peak, efficiency, half_head, half_keys, tail = (value(read("hardware", name), number) for number in names)
    operations, reached = 2.0 * 16 * 16 * 8192**2 * 128, peak * efficiency / exponential_slowdown(128, half_head)
    time = forward_attention_time(operations, reached, 4096.0, 16.0 * 16 * 8192, half_keys, tail)
    assert operations / time == pytest.approx(rate, rel=0.05)
