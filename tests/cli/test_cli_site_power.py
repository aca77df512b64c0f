"""`site-power`: the division as table, rows and figure, what more power brings, and errors."""

import csv

import numpy as np
import pytest

from cli.shell import run, run_json
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.site_power import divide_site_power

ARGUMENTS = ("site-power", "llama-3.1-405b-h100")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    files = ("-o", str(folder / "s.csv"), "--plot", str(folder / "s.svg"))
    return run_json(*ARGUMENTS, "--power", "16 MW", "--power", "16.2 MW", "--power", "20 MW", *files), folder


def test_parts_add_up_to_the_limit_and_rows_are_the_same(shown):
    tree, folder = shown
    with open(folder / "s.csv", encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert rows == tree["site_power"]
    parts = ("compute_w", "memory_w", "network_w", "host_w", "delivery_loss_w", "cooling_w", "other_w")
    for row in rows:
        assert sum(row[part] for part in parts) == pytest.approx(row["limit_w"], rel=1e-5)
    assert "limit of the site" in (folder / "s.svg").read_text(encoding="utf-8")


def test_the_price_is_what_the_next_watt_brings(shown):
    low, near, high = shown[0]["site_power"]
    slope = (near["throughput_token_per_s"] - low["throughput_token_per_s"]) / (near["limit_w"] - low["limit_w"])
    assert slope == pytest.approx(0.5 * (low["price_token_per_j"] + near["price_token_per_j"]), rel=1e-3)
    assert high["price_token_per_j"] < low["price_token_per_j"]
    assert high["clock"] > low["clock"]


def test_table_has_the_shares(shown):
    text = run(*ARGUMENTS, "--power", "16 MW").stdout
    assert "The site's power, divided" in text
    assert "compute" in text


def test_without_limits_shares_of_the_highest_power_of_the_plan():
    limits = np.array([one.limit for one in divide_site_power(load_scenario(ARGUMENTS[1]))])
    np.testing.assert_allclose(limits / limits[-1], [0.6, 0.7, 0.8, 0.9, 1.0])


@pytest.mark.parametrize(
    ("power", "message"),
    [
        pytest.param("1 MW", "is not enough: at the lowest clock and width, the site needs", marks=pytest.mark.slow),
        ("0 MW", "not a positive power"),
        ("25", "has no unit"),
    ],
)
def test_powers_that_no_site_has_are_refused(power, message):
    result = run(*ARGUMENTS, "--power", power)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    with pytest.raises(InputError):
        divide_site_power(load_scenario(ARGUMENTS[1]), [power])
