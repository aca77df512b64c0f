"""`calendar`: moving a run into cheap and clean hours, rows and figure, and errors before the work."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cli.shell import SMALL, assert_bad_input, numbers, rows_of, run, run_json
from energymodel.errors import InputError
from energymodel.scenarios.grid_hours import region_hours
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.calendar import hourly_powers, levels_of
from energymodel.system.evaluate import evaluate_once


@pytest.fixture
def grid(tmp_path) -> str:
    """Four days: clean and cheap by day, dear at night; the second day is the cleanest."""
    rows = ["hour,ci_direct_g_per_kwh,price_usd_per_mwh"]
    for hour in range(96):
        day = 6 <= hour % 24 < 18
        rows.append(f"{hour},{200 if day else 600 - 50 * (24 <= hour < 48)},{30 if day else 120}")
    path = tmp_path / "grid.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_speeds_are_those_of_evaluate():
    scenario = load_scenario(SMALL, {"plan.clock": 1.0, "plan.spares": 1})
    levels = levels_of(scenario)
    with jax.enable_x64(True):
        outcome = evaluate_once(scenario.system, scenario.plan)
        cooling = scenario.system.facility.cooling
        supply = scenario.plan.coolant_temperature
        year = cooling.weather.year_mean(
            lambda hour: cooling.hour_demand(jnp.asarray(levels.heat[-1]), cooling.at(supply), hour).power
        )
        np.testing.assert_allclose(levels.rate[-1], float(outcome.tokens / outcome.time), rtol=1e-9)
        # The mean over the hours that stand for the year is the power of evaluate.
        np.testing.assert_allclose(levels.base[-1] + float(year), float(outcome.power_average), rtol=1e-9)
    hours = region_hours(scenario.system)
    powers, paused = hourly_powers(scenario, levels, hours)
    np.testing.assert_allclose(np.mean(powers[:, -1]) - levels.base[-1], float(year), rtol=0.03)
    assert np.all(np.diff(levels.rate) > 0.0)
    assert 0.0 < paused.max() < powers[:, 0].min()
    # Holding eight chips costs more than their energy: what evaluate charges beside energy, spare nodes included.
    assert levels.money_held > powers.max() * 120 / 3.6e9
    price: Any = scenario.system.market.price
    of_energy = price.electricity * outcome.energy.total + price.demand_charge * outcome.power_peak * outcome.time
    np.testing.assert_allclose(levels.money_held, (outcome.money - of_energy) / outcome.time, rtol=1e-9)


def test_carbon_falls_where_the_run_may_wait(grid):
    result = run_json("calendar", SMALL, "--grid", grid, "--minimize", "carbon_operational", "--deadline", "30 h")
    constant, calendar = (numbers(result, "runs", row) for row in range(2))
    assert calendar["carbon_operational"] < 0.985 * constant["carbon_operational"]
    np.testing.assert_allclose(calendar["tokens"], 24e9, rtol=1e-6)
    np.testing.assert_allclose(constant["tokens"], 24e9, rtol=1e-9)
    assert calendar["time"] <= 30 * 3600 * (1 + 1e-9)
    saving = 1 - calendar["carbon_operational"] / constant["carbon_operational"]
    np.testing.assert_allclose(numbers(result, "question")["saving"], saving)
    assert calendar["intensity"] < constant["intensity"]


def test_money_holds_the_equipment_so_that_no_pause_pays(grid):
    options = ("--start", "8", "--contract", "0.05 USD/kWh at 5 kW", "--demand-charge", "1 USD/kW")
    result = run_json("calendar", SMALL, "--grid", grid, *options)
    calendar = numbers(result, "runs", 1)
    assert calendar["clock"] == pytest.approx(1.0, abs=1e-3)
    parts = sum(calendar[name] for name in ("held", "bought", "contract", "demand"))
    assert calendar["money"] == pytest.approx(parts)
    assert calendar["contract"] == pytest.approx(0.05 * 5 * calendar["time"] / 3600)
    month = calendar["peak"] / 1e3 * calendar["time"] / (730 * 3600)
    assert calendar["demand"] == pytest.approx(month, rel=1e-6)
    assert numbers(result, "question")["pause_above"] > 120 / 3.6e9
    text = run("calendar", SMALL, "--grid", grid, *options[:-1], "1 USD/(kW month)").stdout
    assert "An hour's pause would pay above" in text


def test_rows_and_figure_are_written(grid, tmp_path):
    rows, drawn = tmp_path / "hours.csv", tmp_path / "hours.svg"
    result = run("calendar", SMALL, "--grid", grid, "--minimize", "carbon", "-o", str(rows), "--plot", str(drawn))
    assert result.exit_code == 0, result.stderr
    tokens = sum(float(row["token_rate [token/s]"]) for row in rows_of(rows)) * 3600
    np.testing.assert_allclose(tokens, 24e9, rtol=1e-6)
    assert drawn.read_text().startswith("<svg")


def test_rented_chips_pay_no_energy(grid):
    rented = ("--set", "system.market.price=rented", "--set", "system.market.price.chip_time=2 USD/h")
    result = run_json("calendar", SMALL, "--grid", grid, *rented)
    calendar = numbers(result, "runs", 1)
    assert calendar["money"] == pytest.approx(2.0 * 8 * calendar["time"] / 3600)
    assert any("rent" in sentence for sentence in result["sentences"])
    refused = ["calendar", SMALL, "--grid", grid, *rented, "--demand-charge", "15 USD/kW"]
    assert_bad_input(refused, "the rent of the scenario includes energy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--deadline", "10 h"), "at its highest speed ends at no constant speed by 10 h"),
        (("--start", "95"), "leaves no time for the run"),
        (("--zone", "DE"), "no column zone"),
    ],
)
def test_bad_input_is_refused(grid, options, message):
    assert_bad_input(["calendar", SMALL, "--grid", grid, *options], message)


def test_the_market_alone_needs_no_file():
    result = run_json("calendar", SMALL, "--minimize", "energy", "--start", "0")
    question = numbers(result, "question")
    assert question["grid"] == "system.market"
    assert question["saving"] >= 0.0
    assert any("only the weather varies" in sentence for sentence in result["sentences"])


def test_a_batch_that_changes_with_progress_is_refused():
    scenario = load_scenario(SMALL, {"plan.batch": ["0.5 M tokens", "1 M tokens"]})
    with pytest.raises(InputError, match=r"plan\.batch: a calendar needs one value"):
        levels_of(scenario)
