"""Constants of a chip from timed kernels: published tables, kernels made by hand, refusals."""

import csv
from pathlib import Path

import numpy as np
import pytest

import energymodel as em
from energymodel.calibration.kinds.kernels import CODES, UNUSED, kernel_work
from energymodel.scenarios.files import read_preset

GEMM = Path(__file__).parents[2] / "experiments/data/gemm_measured.csv"


def constants(calibration):
    return {constant.name.removeprefix("accelerator."): constant for constant in calibration.constants}


def test_published_products_give_the_constants_of_the_preset():
    """Experiment 17 fits them in another way: robust least squares by SciPy, without the roofline of the memory."""
    with GEMM.open() as file:
        rows = [row for row in csv.DictReader(file) if (row["system"], row["gemm_dtype"]) == ("h100_sxm", "bfloat16")]
    shapes = [{name: row[name] for name in "mnk"} | {"time_s": 1e-3 * float(row["latency_ms"])} for row in rows]
    fitted = em.calibrate(
        "kernels", [{"kernel": "product", "precision": "bf16"} | row for row in shapes], prior="h100-sxm"
    )
    preset = read_preset("hardware", "h100-sxm")
    for name in ("gemm_efficiency", "gemm_edge", "product_latency"):
        low, high = constants(fitted)[name].ends
        assert low < preset[name]["value"] < high, name
    assert fitted.held_out_mean["time"] < 8.0


def test_work_by_hand():
    rows = {name: np.full(2, value) for name, value in UNUSED.items()}
    rows |= {"code": np.array([CODES["product"], CODES["attention"]]), "width": np.array([1.0, 2.0])}
    rows |= {"m": np.array([8.0, 0.0]), "n": np.array([4.0, 0.0]), "k": np.array([2.0, 0.0])}
    rows |= {"sequence_length": np.array([1.0, 16.0]), "head_size": np.array([1.0, 8.0]), "heads": np.array([1.0, 3.0])}
    operations, moved = kernel_work(rows)
    # 2 x 8 x 4 x 2; half of 4 x 3 x 16^2 x 8. Factors in fp8 and a result of 16 bits; q, k, v and the result in bf16.
    np.testing.assert_array_equal(operations, [128.0, 12288.0])
    np.testing.assert_array_equal(moved, [8 * 2 + 2 * 4 + 2 * 8 * 4, 4 * 2 * 3 * 16 * 8])


TRUTH = {
    "gemm_efficiency": 0.7,
    "gemm_edge": 200.0,
    "product_latency": 5e-6,
    "memory_efficiency": 0.8,
    "attention_efficiency": 0.5,
    "attention_half_keys": 400.0,
    "attention_tail": 3e4,
    "attention_backward": 2.5,
    "idle_power": 90.0,
    "fixed_power": 50.0,
    "busy_power": 640.0,
    "memory_energy": 5e-12,
}


WIDE = {"attention_half_keys": 2.0, "gemm_edge": 1.8, "fixed_power": 1.8}  # ends of intervals; 1.35 of the others


def made_rows(noise=0.01):
    """Kernels of an H100 with the constants of `TRUTH`, by the laws as its data sheet and physics.md state them."""
    peak, bandwidth, leakage, true = 989.4e12, 3.35e12, 70.0, TRUTH
    generator, rows = np.random.default_rng(3), [{"kernel": "idle", "power_w": true["idle_power"]}]
    memory = 8.0 * true["memory_energy"]
    kappa = true["busy_power"] - leakage - true["fixed_power"] - memory * 0.4 * bandwidth
    per_flop = kappa / (true["gemm_efficiency"] * peak)

    def add(row, time, flops, moved):
        power = leakage + true["fixed_power"] + (per_flop * flops + memory * moved) / time
        time, power = np.array([time, power]) * np.exp(noise * generator.standard_normal(2))
        rows.append({**row, "time_s": time} | ({"power_w": power} if row["kernel"] != "launch" else {}))

    for m, n, k in [(s >> a, s >> b, s >> c) for s in (2048, 8192) for a, b, c in np.ndindex(2, 2, 3)]:
        moved = 2.0 * (m * k + k * n + m * n)
        compute = (2.0 * m * n * k + 2.0 * m * n * true["gemm_edge"]) / (true["gemm_efficiency"] * peak)
        time = true["product_latency"] + (compute**4 + (moved / 0.8 / bandwidth) ** 4) ** 0.25
        add({"kernel": "product", "precision": "bf16", "m": m, "n": n, "k": k}, time, 2.0 * m * n * k, moved)
    for batch, length in [(b, n) for b in (1, 4) for n in (1024, 2048, 4096, 16384)]:
        shape = {"batch": batch, "heads": 16, "sequence_length": length, "head_size": 128}
        flops, moved = 2.0 * batch * 16 * length**2 * 128, 8.0 * batch * 16 * length * 128
        rate = true["attention_efficiency"] * peak / np.sqrt(1.0 + (63.4 / 128) ** 2)
        time = flops / rate * (1.0 + 400.0 / (0.5 * length)) * (1.0 + 3e4 / (batch * 16 * length))
        add({"kernel": "attention", **shape}, time, flops, moved)
        add({"kernel": "attention-training", **shape}, 3.5 * time, 3.5 * flops, moved)
    for size in (1e9, 2e9, 4e9):
        add({"kernel": "elementwise", "size_b": size}, true["product_latency"] + size / 0.8 / bandwidth, 0.0, size)
    return [*rows, {"kernel": "launch", "time_s": true["product_latency"]}]


def test_kernels_made_by_hand_are_recovered():
    fitted = constants(em.calibrate("kernels", made_rows(), prior="h100-sxm"))
    assert fitted.keys() == TRUTH.keys()
    for name, value in TRUTH.items():
        low, high = fitted[name].ends
        assert 0.97 * low < value < 1.03 * high, name
        assert high / low < WIDE.get(name, 1.35), name


@pytest.fixture(scope="module")
def unknown():
    """The same kernels on a device that is no preset."""
    rows = [{"device": "Tenstorrent Wormhole", **row} for row in made_rows() if row["kernel"] != "attention-training"]
    return em.calibrate("kernels", rows, prior="l4")


def test_peaks_of_an_unknown_device_are_those_of_its_kernels(unknown):
    chip = unknown.tables["system"]["accelerator"]
    assert chip["title"] == "Tenstorrent Wormhole"
    assert unknown.tables["title"].endswith("on Tenstorrent Wormhole")
    # The largest product reaches 0.68 of 989.4 TFLOP/s; peaks lie a tenth above, and shares are theirs.
    assert 0.65 * 989.4e12 < chip["peak_flops"]["value"] / 1.1 < 0.72 * 989.4e12
    np.testing.assert_allclose(
        chip["gemm_efficiency"]["value"] * chip["peak_flops"]["value"], 0.7 * 989.4e12, rtol=0.03
    )
    assert (chip["peak_flops"]["kind"], chip["peak_flops_fp8"]["value"]) == ("measured", 0.0)
    assert chip["rated_power"]["kind"] == chip["price"]["kind"] == "prior"
    assert chip["rated_power"]["source"].startswith("NVIDIA L4, 24 GB, not measured on Tenstorrent Wormhole")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "produkt"}, 'line 3, column "kernel": unknown kernel "produkt".*"product"'),
        ({"precision": "bf15"}, 'column "precision": unknown format "bf15".*"bf16"'),
        ({"k": ""}, "line 3: part of its shape is missing. product needs m, n, k"),
        ({"device": "H100"}, "devices .* and H100. Choose one with --where"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    row = {"kernel": "product", "precision": "bf16", "m": 64, "n": 64, "k": 64, "time_s": 1e-5, "device": "A100"}
    with pytest.raises(em.InputError, match=message):
        em.calibrate("kernels", [row, {**row, **change}, row], prior="h100-sxm")
