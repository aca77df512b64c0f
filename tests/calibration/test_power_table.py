"""Tables of times and powers as people have them: repeats, several cards, kernels, logs of nvidia-smi."""

import jax
import numpy as np
import pytest

from calibration.files import constants_of, scenario_file, table_file
from energymodel.calibration.calibrate import calibrate
from energymodel.calibration.constant_priors import values_of
from energymodel.calibration.device_power import Profiles
from energymodel.calibration.kernel_clock import CONSTANTS, split_power
from energymodel.calibration.kinds import KINDS
from energymodel.calibration.kinds.power import busy_line
from energymodel.calibration.kinds.power_table import averaged
from energymodel.calibration.power_population import KERNELS, architecture_of, power_population
from energymodel.errors import InputError
from energymodel.report import data
from energymodel.report.answers.calibrate import calibrate_answer, calibration_toml, commands
from energymodel.report.number import sentence
from energymodel.report.page import page_html
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate
from report.page.read_page import assert_sound

HEADER = "gpu,workload,batch,power_limit_w,time_s,power_w"


def table(tmp_path, *lines):
    return KINDS["power"].table(table_file(tmp_path, *lines))


def test_repeats_are_averaged_and_their_noise_is_known(tmp_path):
    rows = [f"V100,a,8,{limit},{time},{watt}" for limit, time, watt in ((250, 10, 200), (250, 12, 200), (150, 14, 140))]
    means, noise = averaged(table(tmp_path, HEADER, *rows))
    np.testing.assert_allclose(means.columns["time_s"], [11.0, 14.0])
    assert noise == pytest.approx(np.log(1.2) / np.sqrt(2.0))
    assert "3 rows are 2 settings" in means.notes[0]
    once, noise = averaged(table(tmp_path, HEADER, *rows[1:]))
    assert noise == 0.0
    assert len(once) == 2


def test_ten_repeats_of_one_setting_of_a_known_card_still_give_predictions(tmp_path):
    result = calibrate(
        "power", table_file(tmp_path, HEADER, *(f"RTX 6000,a,8,260,{10 + 0.01 * k},255" for k in range(10)))
    )
    assert result.converged
    assert result.rows == 0
    assert result.best.settings[0].speed < 260
    answer = calibrate_answer(result)
    assert "NaN" not in data.dumps(answer)
    page = assert_sound(page_html(answer, "energymodel calibrate power"), data=False)
    assert page.headings[1:3] == ["Constants", "Lowest energy for the same work"]


def test_one_setting_of_an_unknown_card_is_not_enough(tmp_path):
    file = table_file(tmp_path, HEADER.removeprefix("gpu,"), "a,8,260,10,255")
    with pytest.raises(InputError, match="one limit or clock only, on a device of which nothing is known"):
        calibrate("power", file)
    assert calibrate("power", file, prior="a100-sxm4-80gb").best.settings[0].saves


def test_columns_of_nvidia_smi_are_read_as_they_are(tmp_path):
    result = table(
        tmp_path,
        "workload,name,power.limit [W],power.draw [W],clocks.applications.graphics [MHz],time_s",
        "a,NVIDIA A40,300.00 W,271.25 W,1740 MHz,10",
        "a,NVIDIA A40,200.00 W,199.00 W,1740 MHz,11",
    )
    np.testing.assert_allclose(result.columns["power_limit_w"], [300.0, 200.0])
    np.testing.assert_allclose(result.columns["power_w"], [271.25, 199.0])
    np.testing.assert_allclose(result.columns["clock_hz"], 1.74e9)
    assert result.columns["gpu"].tolist() == ["NVIDIA A40"] * 2
    unread = table_file(tmp_path, "name,power.limit [W],power.draw [W],time_s", "A40,300 W,[N/A],10")
    with pytest.raises(InputError, match='line 2, column "power_w": empty'):
        calibrate("power", unread)


def test_a_log_becomes_a_row_for_each_setting(tmp_path):
    readings = [
        f"2026/11/22 14:0{minute}:{second:02d}.500, NVIDIA L4, {watt + second % 2} W, {limit} W"
        for minute, watt, limit, count in ((0, 70, 72, 50), (2, 58, 60, 56))
        for second in range(count)
    ]
    result = table(tmp_path, "timestamp, name, power.draw [W], power.limit [W]", *readings)
    np.testing.assert_allclose(result.columns["time_s"], [50.0, 56.0])
    np.testing.assert_allclose(result.columns["power_w"], [70.5, 58.5])
    assert "106 readings of a log are 2 settings" in result.notes[0]
    with pytest.raises(InputError, match='line 2, column "timestamp": "noon" is not a time as nvidia-smi writes it'):
        table(tmp_path, "timestamp,power.draw [W],power.limit [W]", "noon,70 W,72 W")
    with pytest.raises(InputError, match="line 2: one setting of a log needs two readings or more"):
        table(tmp_path, "timestamp,power.draw [W],power.limit [W]", "2026/11/22 14:00:00.000,70 W,72 W")


def several(tmp_path, seed=0):
    noise = np.random.default_rng(seed)
    rows = [
        f"{gpu},{word},8,{limit},{(rated / limit) ** 0.4 * noise.uniform(9.9, 10.1):.5g},{0.95 * limit}"
        for gpu, rated in (("V100", 250), ("A40", 300))
        for word in "abc"
        for limit in (0.6 * rated, 0.8 * rated, rated)
    ]
    return table_file(tmp_path, HEADER, *rows)


def test_cards_of_one_file_have_constants_of_their_own_and_no_common_scenario(tmp_path):
    result = calibrate("power", several(tmp_path))
    names = [constant.name for constant in result.constants]
    assert len(names) == 18
    assert {"busy_power[V100]", "busy_power[A40]"} <= {*names}
    assert {(setting.device, setting.workload) for setting in result.best.settings} == {
        (g, w) for g in ("V100", "A40") for w in "abc"
    }
    assert [line.words.partition(":")[0] for line in commands(result)] == ["V100", "A40"]
    with pytest.raises(InputError, match=r"holds V100, A40; a scenario has one accelerator.*--where gpu=V100"):
        calibration_toml(result)
    assert calibrate("power", several(tmp_path), where={"gpu": "A40"}).tables["calibration"]["power"]["gpu"] == "A40"


def test_what_nobody_metered_is_not_written_as_measured(tmp_path):
    result = calibrate("power", several(tmp_path), where={"gpu": "V100"})
    chip = result.tables["system"]["accelerator"]
    assert chip["idle_power"]["kind"] == "prior"
    assert chip["idle_power"]["value"] < 50.0  # nothing that was measured is as low: 15 % of 250 W
    assert chip["busy_power"]["kind"] in ("measured", "prior")
    header = HEADER + ",idle_power_w"
    metered = calibrate("power", table_file(tmp_path, header, "V100,a,8,250,10,240,31", "V100,a,8,150,12,148,31"))
    assert metered.tables["system"]["accelerator"]["idle_power"] | {"source": ""} == {
        "value": 31.0,
        "unit": "W",
        "kind": "measured",
        "source": "",
    }


@pytest.mark.slow
def test_an_earlier_calibration_of_another_card_is_less_certain(tmp_path):
    out = scenario_file(tmp_path, calibrate("power", several(tmp_path), where={"gpu": "V100"}))
    same = calibrate("power", several(tmp_path, 1), prior=out, where={"gpu": "V100"})
    other = calibrate("power", several(tmp_path, 1), prior=out, where={"gpu": "A40"})
    assert not any("another device" in note for note in same.notes)
    assert any("measured on another device (of V100)" in note for note in other.notes)
    index = other.fit.names.index("voltage_floor")
    assert other.fit.prior.spread[index] > 1.5 * same.fit.prior.spread[index]


def test_a_slowdown_is_for_kind_power_and_not_negative(tmp_path):
    with pytest.raises(InputError, match="max-slowdown: only kind power"):
        calibrate("loss", tmp_path / "x.csv", max_slowdown=0.1)
    with pytest.raises(InputError, match="max-slowdown: -10 % cannot be"):
        calibrate("power", several(tmp_path), max_slowdown=-0.1)


def test_kernels_need_no_batch(tmp_path):
    rows = [
        f"V100,real,{kernel},{clock}e6,{1.38 / clock:.5g},{0.15 * clock}" for kernel in "ab" for clock in (1380, 1000)
    ]
    result = table(tmp_path, "gpu,suite,kernel,core_clock_hz,kernel_time_s,average_power_w", *rows)
    case = KINDS["power"].read(result, None)
    assert {*case.groups.labels.tolist()} == {"real/a", "real/b"}


COUNTED = "gpu,benchmark,kernel,core_clock_hz,kernel_time_s,average_power_w,dram_active_frac"


def kernel_rows(gpu="Quadro RTX 8000", clocks=(1700, 1300, 1000, 700)):
    """Two benchmarks at several clocks by the law itself: one of the core alone, one that fills the memory."""
    prior = power_population(KERNELS).of([architecture_of("V100")])
    with jax.enable_x64(True):
        values = values_of(CONSTANTS, prior.mean)
        rows = []
        for name, activity, power in (("core", 0.0, 240.0), ("copy", 0.9, 200.0), ("both", 0.5, 220.0)):
            columns = {name: np.ones(len(clocks)) for name in Profiles._fields}
            columns |= {"clock": np.array(clocks) / clocks[0], "rated_power": np.full(len(clocks), 240.0)}
            columns |= {
                "reference_power": np.full(len(clocks), power),
                "memory_activity": np.full(len(clocks), activity),
            }
            result = split_power(values, Profiles(**columns))
            rows += [
                f"{gpu},{name},k,{clock}e6,{float(time):.6g},{float(watt):.6g},{activity}"
                for clock, time, watt in zip(clocks, result.time, result.power, strict=True)
            ]
    return rows


def test_kernels_with_a_counter_are_predicted_by_it_also_where_no_lower_clock_was_measured(tmp_path):
    rows = kernel_rows()
    fitted = calibrate("power", table_file(tmp_path, COUNTED, *rows))
    assert fitted.case.form is not None
    assert fitted.case.form.name == "counters"
    assert fitted.in_fit["energy"] < 1.0
    alone = calibrate("power", table_file(tmp_path, COUNTED, *(row for row in rows if "1700e6" in row)))
    assert alone.rows == 0
    by_name = {setting.workload: setting for setting in alone.best.settings}
    assert by_name["copy/k"].time < by_name["core/k"].time  # of the core the clock takes the time, of the memory not
    assert all(low.covariance[0, 0] < high.covariance[0, 0] for low, high in ((fitted.fit, alone.fit),))


@pytest.mark.parametrize(
    ("rows", "pattern"),
    [
        (["A,b,k,1e9,1,100,0.5", "B,b,k,1e9,1,100,0.5"], "holds A, B; form counters is of one device"),
        (["A,b,k,1e9,1,100,50", "A,b,k,8e8,1,90,50"], "line 2.*a share of time is at most 1, not a percentage"),
        (["A,b,k,1e9,1,100,", "A,b,k,8e8,1,90,0.5"], "line 2.*empty at the highest clock of a kernel"),
    ],
)
def test_bad_counters_are_named(tmp_path, rows, pattern):
    with pytest.raises(InputError, match=pattern):
        calibrate("power", table_file(tmp_path, COUNTED, *rows))


def test_the_form_of_counters_needs_them(tmp_path):
    with pytest.raises(InputError, match="form counters needs columns clock_hz"):
        calibrate("power", several(tmp_path), form="counters")


def test_a_card_with_a_preset_of_its_name_is_its_own_prior(tmp_path):
    result = calibrate("power", table_file(tmp_path, HEADER, "MI300X,a,8,750,10,700", "MI300X,a,8,600,10.5,598"))
    assert result.base == "mi300x"
    assert any("The prior is mi300x, which the table names" in note for note in result.notes)
    assert sentence(commands(result)[0]).startswith(("rocm-smi --setpoweroverdrive 600", "No lower setting"))


def test_a_power_far_above_its_limit_is_refused(tmp_path):
    with pytest.raises(InputError, match='line 2, column "power_w": 2000 W at a limit of 250 W cannot be'):
        KINDS["power"].read(table(tmp_path, HEADER, "V100,a,8,250,10,2000", "V100,a,8,150,10,140"), None)


def test_rows_without_time_and_power_are_predicted(tmp_path):
    rows = ["A40,a,8,300,10,270", "A40,a,8,200,,", "A40,a,8,150,,", "A40,b,16,300,20,100", "A40,b,16,200,,"]
    result = calibrate("power", table_file(tmp_path, HEADER, *rows))
    assert [(setting.line, setting.workload, setting.limit) for setting in result.best.asked] == [
        (3, "a", 200.0),
        (4, "a", 150.0),
        (6, "b", 200.0),
    ]
    middle, low, waiting = result.best.asked
    assert 10.0 < middle.time < low.time
    assert 270.0 > middle.power > low.power
    assert waiting.time == pytest.approx(20.0, rel=0.02)  # it draws less than the limit: nothing holds it back
    for setting in result.best.asked:
        assert setting.time_interval[0] < setting.time < setting.time_interval[1]
        assert setting.power_interval[0] < setting.power < setting.power_interval[1]
    assert all(constant.determined is False for constant in result.constants)
    tree = data.tree(calibrate_answer(result))["tables"]["settings"]["rows"]
    assert tree[0]["energy"] == pytest.approx(middle.time * middle.power)


@pytest.mark.parametrize(
    ("rows", "pattern"),
    [
        (["A40,a,8,300,10,", "A40,a,8,200,11,190"], 'line 2, column "power_w": empty.*or leave time and power empty'),
        (["A40,a,8,300,,", "A40,a,8,200,,"], "no row has time_s and power_w"),
        (["A40,a,8,300,10,270", "A40,c,8,200,,"], "line 3: c, batch 8, was not measured"),
        (["A40,a,8,300,10,270", "A40,a,8,,,"], 'line 3, column "power_limit_w": empty. Write what is to be predicted'),
    ],
)
def test_rows_that_cannot_be_predicted_are_named(tmp_path, rows, pattern):
    with pytest.raises(InputError, match=pattern):
        calibrate("power", table_file(tmp_path, HEADER, *rows))


def test_an_idle_power_that_the_prior_assumes_gives_way_to_the_lowest_reading(tmp_path):
    rows = ["RTX 8000,a,8,260,10,250", "RTX 8000,b,8,260,10,60", "RTX 8000,a,8,200,11,195"]
    result = calibrate("power", table_file(tmp_path, HEADER, *rows))
    assert result.base == "rtx-8000"
    assert result.tables["system"]["accelerator"]["idle_power"]["value"] == pytest.approx(0.999 * 60.0)


@pytest.mark.slow
def test_the_written_scenario_draws_the_power_that_was_measured(tmp_path):
    rows = (
        "a,8,700,100,668",
        "a,8,500,104,492",
        "a,8,400,113,393",
        "b,16,700,99,672",
        "b,16,500,103,493",
        "b,16,400,112,395",
    )
    file = table_file(tmp_path, HEADER, *(f"H100,{row}" for row in rows))
    calibration = calibrate("power", file, prior="test-1b-h100")
    fitted = constants_of(calibration)["busy_power"].value * 700.0
    scenario = load_scenario(scenario_file(tmp_path, calibration))
    np.testing.assert_allclose(evaluate(scenario.system, scenario.plan).power_busy, fitted, rtol=0.04)
    assert float(scenario.system.accelerator.busy_power) > 1.1 * fitted  # of large products alone
    intercept, slope = busy_line(scenario)
    expected = intercept + slope * float(scenario.system.accelerator.busy_power)
    np.testing.assert_allclose(evaluate(scenario.system, scenario.plan).power_busy, expected, rtol=1e-3)
