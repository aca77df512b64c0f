"""Constants of nodes from their meters, and refusals that name the line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from calibration.files import constants_of, table_file
from cli.shell import run as run_command
from energymodel.calibration.calibrate import calibrate
from energymodel.calibration.constant_priors import Values
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.kinds.node import node_case
from energymodel.calibration.node_power import CONSTANTS, node_runs, predicted_power, system_columns, system_constants
from energymodel.errors import InputError
from energymodel.readers.columns import TableChoices
from energymodel.scenarios.scenario import load_scenario

DATA = Path(__file__).parents[2] / "experiments" / "data" / "mlperf_power_runs.csv"
HEADER = "system,benchmark,node_power_w,min_power_w"
TRUE = {"idle_power": 2950.0, "waiting_power": 0.33, "busy_share": 0.75, "fan_fraction": 0.14}
SHAPE = {
    "chips": 8.0,
    "rated_power": 700.0,
    "busy_power": 8.0 / 7.0,
    "idle_chip": 75.0 / 700.0,
    "efficiency": 0.975,
    "fan_effort": 1.0,
    "idle_power": 0.0,
}


def write(tmp_path, rows, header=HEADER):
    return table_file(tmp_path, header, *rows, name="nodes.csv")


def air_cooled(tmp_path, *, chips_metered=True):
    """Runs of the true constants, with busy shares that differ by 2 %, of nodes in the air of the prior."""
    scenario = load_scenario("test-1b-h100")
    effort = float(scenario.system.facility.cooling.at(scenario.plan.coolant_temperature).fan_effort)
    noise = np.random.default_rng(1)
    rows = []
    for benchmark in "abcdef":
        share = 1.0 + 0.02 * noise.normal()
        for system, rate in (("1x", 1.0), ("8x", 0.6), ("32x", 0.4)):
            chip = min(1.0, 0.33 + 0.75 * share * rate * (8.0 / 7.0 - 0.33))
            runs = node_runs(np.ones(1), **{**SHAPE, "chip_power": chip, "fan_effort": effort})
            values: Values = {name: np.asarray(constant) for name, constant in TRUE.items()}
            power = float(predicted_power(values, runs)[0]) * np.exp(0.003 * noise.normal())
            metered = f"{700.0 * chip}" if chips_metered else ""
            nodes = system.removesuffix("x")
            rows.append(f"{system},{benchmark},{power},2950,{metered},{nodes},{float(nodes) * rate},air,H100 SXM")
    header = "system,benchmark,node_power_w,idle_power_w,chip_power_w,nodes,samples_per_second,cooling,accelerator"
    return write(tmp_path, rows, header)


def test_meters_of_nodes_and_chips_give_fans_and_idle_power(tmp_path):
    choices = TableChoices(constants={"supply_efficiency": "0.975"})
    fitted = calibrate("node", air_cooled(tmp_path), prior="h100-sxm", choices=choices)
    constants = constants_of(fitted)
    assert set(constants) == {"idle_power", "fan_fraction"}
    for name, constant in constants.items():
        assert constant.determined
        assert constant.laplace is not None
        low, high = constant.laplace
        assert low <= TRUE[name] <= high, name
    assert constants["fan_fraction"].value == pytest.approx(0.14, rel=0.1)
    assert fitted.held_out_mean["node power"] < 1.0


def test_meters_of_nodes_alone_do_not_tell_fans_from_busy_chips(tmp_path):
    fitted = calibrate("node", air_cooled(tmp_path, chips_metered=False), prior="h100-sxm")
    assert "fan_fraction" in fitted.undetermined
    assert fitted.held_out_mean["node power"] < 3.0
    assert "chips and node" in fitted.next_setting or "idle" in fitted.next_setting or "samples" in fitted.next_setting


def test_what_is_written_is_what_was_metered(tmp_path):
    """The scenario's node draws the metered idle power, and its fans rise as fitted."""
    fitted = calibrate("node", air_cooled(tmp_path), prior="h100-sxm")
    written = load_scenario({**fitted.tables, "name": "nodes"})
    system, coolant = written.system, written.plan.coolant_temperature
    chip = np.array([75.0, 700.0])
    load = 8.0 * (chip + np.asarray(system.host_power(chip, system.facility.cooling.at(coolant))))
    fan = constants_of(fitted)["fan_fraction"].value
    idle = constants_of(fitted)["idle_power"].value
    efficiency = 1.0 / float(system.facility.power_supply.input_power(load[1] / 8.0) * 8.0 / load[1])
    np.testing.assert_allclose(load[0] / efficiency, idle, rtol=2e-3)
    effort = float(system.facility.cooling.at(coolant).fan_effort)
    np.testing.assert_allclose((load[1] - load[0]) / (8.0 * 625.0), 1.0 + fan * effort, rtol=1e-6)


def test_warmer_air_explains_what_fans_draw_more(tmp_path):
    """The same runs at a higher inlet temperature: a smaller share at rated flow."""
    path = air_cooled(tmp_path)
    cool, warm = (
        calibrate("node", path, prior="h100-sxm", choices=TableChoices(constants={"inlet_temperature_k": kelvin}))
        for kelvin in ("293.15", "308.15")
    )
    fans = [constants_of(fitted)["fan_fraction"].value for fitted in (cool, warm)]
    cooling = load_scenario("test-1b-h100").system.facility.cooling
    efforts = [float(cooling.at(kelvin).fan_effort) for kelvin in (293.15, 308.15)]
    np.testing.assert_allclose(fans[0] * efforts[0], fans[1] * efforts[1], rtol=0.1)
    assert fans[1] < 0.8 * fans[0]


def test_metered_runs_of_a_cluster_are_predicted_held_out():
    fitted = calibrate("node", DATA, choices=TableChoices(where={"submitter": "smc-ac-power"}))
    assert fitted.held_out_mean["node power"] < 2.5
    waiting = constants_of(fitted)["waiting_power"]
    assert waiting.laplace is not None
    assert waiting.laplace[0] < 0.308 < waiting.laplace[1]  # experiments/04_metered_runs
    assert fitted.tables["system"]["facility"]["preset"] == "immersion"
    assert not any(constant.name == "fan_fraction" for constant in fitted.constants)
    system = load_scenario({**fitted.tables, "name": "immersed"}).system
    assert float(system.node.overhead_power) > 1000.0
    chip = system.accelerator
    spinning = float(chip.leakage.power) + float(chip.fixed_power) + float(chip.spin_power(1.0, 1.0))
    np.testing.assert_allclose(spinning / float(chip.rated_power), waiting.value, rtol=1e-5)


def test_nodes_that_nobody_metered_are_predicted_from_presets():
    """8 x B200 behind cold plates: 9.6 to 10.0 kW [MLPerf 5.0, notes to mlperf_power_runs.csv]; more in air."""
    powers = {}
    for name in ("direct-liquid", "air-cooled"):
        scenario = load_scenario("llama-3.1-70b-b200", {"system.facility": name})
        columns = system_columns(scenario.system, scenario.plan.coolant_temperature)
        powers[name] = float(predicted_power(system_constants(scenario.system), node_runs(np.ones(1), **columns))[0])
    assert powers["direct-liquid"] == pytest.approx(9800.0, rel=0.02)
    assert powers["air-cooled"] > 1.1 * powers["direct-liquid"]
    # 70 W of leakage, 70 W fixed, 0.123 x 618 W of switching, over 700 W [tests/system/test_caps_and_clocks.py]
    waiting = system_constants(load_scenario("test-1b-h100").system)["waiting_power"]
    assert float(waiting) == pytest.approx(216.0 / 700.0, rel=2e-3)


def test_a_run_at_two_meters_is_refused():
    with pytest.raises(InputError, match=r"the run and node of line \d+ again .*--where submitter=NAME"):
        calibrate("node", DATA)


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (["1x,a,7000,4000", "1x,b,7200,4100"], r"No reading .* can be idle: the prior's \d+ W are used.*line 2"),
        (["1x,a,7000,2900", "1x,b,7200,-43"], r"2900 W.*1 at or below the \d+ W that idle chips .*line 3"),
        (["1x,a,9000,4100", "1x,b,9200,4200"], r"4100 W, are 4\d % above the idle power of the prior.*warm"),
        (["1x,a,7000,2900", "1x,b,7200,6000"], r"2900 W.*1 above 50 % .* began warm \(line 3"),
    ],
)
def test_readings_that_cannot_be_idle_are_named(tmp_path, rows, note):
    fitted = calibrate("node", write(tmp_path, rows), prior="h100-sxm")
    assert any(re.search(note, reading) for reading in fitted.notes), fitted.notes
    idle = constants_of(fitted)["idle_power"]
    if "can be idle" in note:
        assert not idle.determined
        assert idle.value == pytest.approx(idle.prior, rel=0.1)
    else:
        assert idle.value == pytest.approx(float(note[:4]), rel=0.03)


@pytest.mark.parametrize(
    ("rows", "header", "pattern"),
    [
        (["a,7000,8", "b,7000,4"], "benchmark,node_power_w,chips", r'line 3, column "chips": 4, and 8 in line 2'),
        (["a,7000,80", "b,7000,70"], "benchmark,node_power_w,busy_share", r"80 cannot be; .* at most 1. Divide"),
        (["a,7000,air", "b,7000,sand"], "benchmark,node_power_w,cooling", r'line 3, .* unknown cooling "sand"'),
        (["a,7000,air", "b,7000,water"], "benchmark,node_power_w,cooling", r"line 3, .* liquid, and air in line 2"),
        (
            ["a,7000,B200", "b,7000,B200"],
            "benchmark,node_power_w,gpu",
            r'line 2: "B200" is rated 1000 W.*--prior b200-sxm',
        ),
        (["a,7000,x1", "b,7000,x1"], "benchmark,node_power_w,gpu", r'line 2: unknown accelerator "x1"'),
        (["a,7000,1", "a,7100,1"], "benchmark,node_power_w,run", r"line 3: the run and node of line 2 again"),
    ],
)
def test_a_bad_file_is_answered_in_one_line(tmp_path, rows, header, pattern):
    with pytest.raises(InputError, match=pattern) as caught:
        calibrate("node", write(tmp_path, rows, header), prior="h100-sxm")
    assert "nodes.csv" in str(caught.value)
    assert "\n" not in str(caught.value) or "2 of 2 rows" in str(caught.value)


def test_the_command_says_the_same_and_writes_a_scenario(tmp_path):
    result = run_command("calibrate", "node", str(write(tmp_path, ["a,x"], "benchmark,power")))
    assert result.exit_code != 0
    assert "--rename THEIRS=node_power_w" in " ".join(result.stderr.split())
    output = tmp_path / "node.toml"
    words = ("calibrate", "node", str(air_cooled(tmp_path)), "--prior", "h100-sxm")
    result = run_command(*words, "--rename", "system=system", "-o", str(output), "--json")
    assert result.exit_code == 0, result.stderr
    tree = json.loads(result.stdout)
    updated = {row["constant"]: row["updated"] for row in tree["tables"]["constants"]["rows"]}
    assert updated["fan_fraction"] == "yes"
    written = load_scenario(output)
    assert float(written.system.node.fan_fraction) == pytest.approx(0.14, rel=0.1)
    assert "node_power_w [W], needed" in run_command("calibrate", "node", "--columns").stdout


def test_without_rates_the_busy_share_falls_with_the_nodes(tmp_path):
    rows = [
        f"{nodes}x,{word},{power},2900,{nodes}" for word in "ab" for nodes, power in ((1, 7300), (8, 6600), (64, 5900))
    ]
    fitted = calibrate("node", write(tmp_path, rows, f"{HEADER},nodes"), prior="h100-sxm")
    exponent = constants_of(fitted)["node_exponent"]
    assert exponent.value > 0.05
    assert any("fall with a power of the nodes" in note for note in fitted.notes)
    fitted = calibrate(
        "node", write(tmp_path, [row for row in rows if row[0] == "8"], f"{HEADER},nodes"), prior="h100-sxm"
    )
    assert any("busy for the same share" in note for note in fitted.notes)
    assert CONSTANTS.keys() >= {"waiting_power", "busy_share", "fan_fraction"}


def test_rows_without_names_are_compared_by_their_rates(tmp_path):
    """Without benchmark and system, a slower run on more nodes is less busy."""
    rows = ["7200,2900,1,10", "6600,2900,8,50", "6000,2900,64,"]
    header = "node_power_w,idle_power_w,nodes,samples_per_second"
    problem = node_case(KINDS["node"].table(write(tmp_path, [*rows[:2], f"{rows[2]}250"], header)), None).fit
    np.testing.assert_allclose(problem.table.relative_rate, [1.0, 50.0 / 80.0, 250.0 / 640.0, 1.0])
    problem = node_case(KINDS["node"].table(write(tmp_path, rows, header)), None).fit
    assert "node_exponent" in problem.constants  # a rate is missing
