"""Results of the experiment on metered runs, and node power by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from energymodel.calibration import node_power
from energymodel.calibration.node_power import CONSTANTS, idle_reading, node_runs, predicted_power
from energymodel.scenarios.scenario import load_scenario
from experiment import Experiment, assert_rows

pytestmark = pytest.mark.slow

EXPERIMENT = Experiment("04_metered_runs")
STATED = EXPERIMENT.stored


def test_law_by_hand():
    # 0.8 x 8/7 + 0.2 x 0.3 = 0.974286 of 700 W; 2080 W + 8 x 700 W x (0.974286 - 0.107143) / 0.98 = 7035.10 W
    chip = node_power.chip_power(0.8, 8.0 / 7.0, 0.3)
    np.testing.assert_allclose(chip, 0.9742857, rtol=1e-6)
    np.testing.assert_allclose(node_power.node_power(2080.0, 8.0, 700.0, chip, 75.0 / 700.0, 0.98), 7035.102, rtol=1e-6)
    shares = np.linspace(0.0, 1.0, 11)
    answer = np.asarray(node_power.chip_power(shares, 1.25, 0.25))
    np.testing.assert_allclose(answer, np.minimum(1.0, 0.25 + shares), rtol=1e-12)
    # An idle chip leaves the node idle, however efficient its supplies are.
    np.testing.assert_allclose(node_power.node_power(2000.0, 8.0, 700.0, 0.1, 0.1, 0.9), 2000.0)
    # As above, 4855.2 W of chips above idle: a tenth of it in fans at rated flow, 0.15 of that behind cold plates.
    common = (2080.0, 8.0, 700.0, chip, 75.0 / 700.0, 0.98)
    still = float(node_power.node_power(*common))
    heat = 8.0 * (700.0 * 0.97428571 - 75.0)
    np.testing.assert_allclose(float(node_power.node_power(*common, 0.1, 1.0)) - still, 0.1 * heat / 0.98, rtol=1e-6)
    np.testing.assert_allclose(float(node_power.node_power(*common, 0.1, 0.15)) - still, 0.015 * heat / 0.98, rtol=1e-5)
    np.testing.assert_allclose(node_power.node_power(*common, 0.1, 0.0), still)
    # 0.8 x 8^-0.2 = 0.52780: 0.25 + 0.52780 x 0.75 = 0.64585 of 700 W
    runs = node_runs(np.ones(1), **{**SHAPE, "nodes": 8.0})
    values = {name: np.asarray(constant.median) for name, constant in CONSTANTS.items()}
    answer = predicted_power({**values, "node_exponent": np.asarray(0.2)}, runs)
    np.testing.assert_allclose(answer, 2000.0 + 8.0 * 700.0 * (0.64585 - 0.1), rtol=1e-5)


@pytest.mark.parametrize(
    ("facility", "coolant"), [("air-cooled", 22.0), ("air-cooled", 32.0), ("direct-liquid", 32.0), ("immersion", 32.0)]
)
def test_the_law_is_that_of_evaluate(facility, coolant):
    """Host and fans of `TrainingSystem.host_power`, in every kind of cooling and in warm air."""
    system = load_scenario("test-1b-h100", {"system.facility": facility}).system
    temperature, chip = 273.15 + coolant, np.array([75.0, 300.0, 700.0])
    columns = node_power.system_columns(system, temperature)
    values = {"waiting_power": 0.3, "fan_fraction": float(system.node.fan_fraction)}
    runs = node_runs(np.ones(3), **columns, chip_power=chip / float(system.accelerator.rated_power))
    answer = np.asarray(predicted_power({name: np.asarray(value) for name, value in values.items()}, runs))
    host = np.asarray(system.host_power(chip, system.facility.cooling.at(temperature)))
    np.testing.assert_allclose(answer * columns["efficiency"], 8.0 * (chip + host), rtol=1e-6)


def test_gradients_of_node_power_are_finite_at_the_limit_and_without_fans():
    for effort in (0.0, 1.3):

        def power(share, fraction, effort=effort):
            chip = node_power.chip_power(share, 1.2, 0.3)
            return node_power.node_power(2000.0, 8.0, 0.7, chip, 0.1, 0.97, fraction, effort) / 2000.0

        check_grads(power, (jnp.asarray(0.6), jnp.asarray(0.1)), order=2, modes=("fwd", "rev"))
        assert np.all(np.isfinite(jax.grad(power, argnums=(0, 1))(1.0, 0.1)))


def test_warm_starts_and_gaps_are_no_idle_readings():
    mean = np.array([7000.0, 7000.0, 5000.0, 6000.0, 6000.0])
    power, warm, lost = idle_reading(np.array([2100.0, 2300.0, 2600.0, -43.0, np.nan]), mean, floor=600.0)
    assert power == 2100.0
    assert warm.tolist() == [False, False, True, False, False]
    assert lost.tolist() == [False, False, False, True, False]
    # Of a hundred readings, three gaps do not count, and neither do the warmer half.
    many = np.concatenate([np.full(3, 1200.0), np.linspace(2100.0, 3400.0, 97)])
    assert idle_reading(many, np.full(100, 7000.0))[0] == pytest.approx(2120.0, abs=20.0)
    assert idle_reading(np.array([4000.0]), np.array([7000.0]))[0] is None


SHAPE = {"idle_power": 2000.0, "chips": 8.0, "rated_power": 700.0, "busy_power": 1.0, "idle_chip": 0.1} | {
    "efficiency": 1.0
}


def test_accuracy_reached():
    errors = {row["known"]: row["mean_error"] for row in STATED["summary"]}
    assert errors["benchmark held out"] <= 0.02
    assert errors["system held out"] <= errors["preset idle priors alone"] <= 0.03
    assert errors["preset idle system held out"] <= 0.03
    assert errors["rated"] > 0.114
    fans = next(row for row in STATED["constants"] if row["name"] == "fan_fraction")
    assert fans["determined"] == "no"  # immersed nodes have none
    cases = {row["known"]: row for row in STATED["gpt3"]}
    assert abs(cases["system, model, batch"]["energy_error"]) <= 0.10
    assert abs(cases["and layout"]["energy_error"]) <= 0.10
    assert abs(cases["and layout"]["time_error"]) <= 0.10
    assert abs(cases["and measured time"]["energy_error"]) <= 0.06
    # Within 5 % of every visible row, of the GPT-3 run, and of what is known of other nodes.
    assert max(abs(row["preset_idle_benchmark_held_out_error"]) for row in STATED["nodes"]) <= 0.05
    assert abs(cases["and layout"]["preset_energy_error"]) <= 0.05
    for row in STATED["preset_nodes"]:
        for state in ("idle", "busy"):
            assert row[f"{state}_error"] is None or abs(row[f"{state}_error"]) <= 0.05, (row["node"], state)
    # 3,412 s and 1.496 GJ at the nodes, and the mean of the pair of meters below one.
    run = next(row for row in STATED["runs"] if row["benchmark"] == "gpt3")
    np.testing.assert_allclose([run["time_s"], run["energy_j"]], [3412.0, 1.496e9], rtol=1e-3)
    np.testing.assert_allclose(run["energy_j"], run["node_power_w"] * run["time_s"] * run["nodes"], rtol=1e-4)
    assert all(0.95 < row["supply_efficiency"] < 1.0 for row in STATED["runs"])


def test_constants_and_nodes_again():
    again = EXPERIMENT.metered_runs.compute()
    for name in ("constants", "nodes", "runs", "traces"):
        assert_rows(again[name], STATED[name], 1e-5, where=name)
    constants = {row["name"]: row["value"] for row in STATED["constants"]}
    rows = EXPERIMENT.preset_nodes.compute(constants)
    assert [row["node"] for row in rows] == [row["node"] for row in STATED["preset_nodes"]]
    assert_rows(rows, STATED["preset_nodes"], 1e-6, only=("idle_w", "busy_w").__contains__)
