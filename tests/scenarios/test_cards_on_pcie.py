"""Rates of nodes on PCIe and products of L40S: those that experiment 17 reads in its tables."""

import math

import pytest

from experiment import Experiment
from preset_layout import read, value

EXPERIMENT = Experiment("17_kernels")


@pytest.fixture(scope="module")
def shares():
    """Share of the line that NCCL reaches, by server and cards."""
    rows = EXPERIMENT.collectives.over_pcie()
    return {(row["node"], row["cards"]): row["share_of_line"] for row in rows}


def test_rates_over_pcie_are_those_of_the_tables(shares):
    l40s, blackwell = "l40s", "rtx_pro_6000_server"
    expected = {
        "pcie5-server-8": shares[blackwell, 8],
        "pcie5-workstation-4": shares[blackwell, 4],
        "pcie5-workstation-2": shares[blackwell, 2],
        "pcie4-workstation-2": shares[l40s, 2],
        # Between a server that loses nine tenths of its rate and one that loses a third: the geometric mean.
        "pcie4-workstation-4": math.sqrt(shares[l40s, 4] * shares[blackwell, 4]),
        "pcie4-server-8": math.sqrt(shares[l40s, 8] * shares[blackwell, 8]),
    }
    for node, share in expected.items():
        assert value(read("nodes", node), "scale_up.efficiency") == pytest.approx(share, abs=1e-3), node


def test_protocol_of_the_experiment_is_that_of_the_presets():
    link = read("nodes", "pcie5-server-8")["scale_up"]
    payload, overhead, coding = EXPERIMENT.collectives.PCIE_PROTOCOL
    assert (value(link, "payload"), value(link, "overhead")) == (payload, overhead)
    assert value(link, "coding") == pytest.approx(coding)


def test_products_of_l40s_are_fitted_to_its_table():
    products = EXPERIMENT.products
    fitted = {
        precision: products.fit(products.products()["l40s", precision], *products.product_law(precision, "l40s"))
        for precision in ("bfloat16", "fp8")
    }
    device = read("hardware", "l40s")
    for precision, prefix in (("bfloat16", ""), ("fp8", "fp8_")):
        constants = dict(zip(fitted[precision].names, fitted[precision].values, strict=True))
        assert value(device, f"{prefix}gemm_efficiency") == pytest.approx(constants["efficiency"], rel=1e-3)
        assert value(device, f"{prefix}gemm_edge") == pytest.approx(constants["edge"], rel=1e-2)
