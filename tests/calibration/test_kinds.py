"""Bad files refused by each kind, forms of kind `power`, and recovery of known constants."""

import re
from pathlib import Path

import numpy as np
import pytest

from calibration.files import constants_of, scenario_file, table_file
from energymodel.calibration import device_power
from energymodel.calibration.calibrate import calibrate
from energymodel.calibration.calibration_case import ChosenForm
from energymodel.calibration.constant_priors import ConstantPrior, Values, joint_prior, updated_prior
from energymodel.calibration.kinds import KINDS
from energymodel.errors import InputError
from energymodel.learning.critical_batch import batch_penalty
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.axes import Axis
from energymodel.sweeps.scenario_axes import scenario_axis

FILES = {
    "power": ("workload,batch,power_limit_w,time_s,power_w", ["a,8,100,20,98", "a,8,200,14,180", "a,16,200,13,190"]),
    "loss": ("parameters,tokens,loss_nats", ["1e8,2e9,3.4", "1e9,2e10,2.6", "3e9,1e10,2.65"]),
    "batch": ("group,batch_tokens,tokens", ["a,1e5,2e9", "a,1e6,3e9", "a,4e6,6e9"]),
    "step-time": (
        "layers,hidden,heads,vocabulary,sequence,tensor,chips,batch_sequences,step_time_s",
        ["24,2048,16,51200,2048,1,8,64,1.1", "24,2048,16,51200,2048,2,8,64,1.2", "32,4096,32,51200,2048,8,8,64,5.1"],
    ),
}
"""What is wrong in a cell or a heading of any kind is in tests/readers/test_table.py."""


def assert_refused(tmp_path, kind, header, rows, pattern):
    with pytest.raises(InputError, match=pattern) as caught:
        KINDS[kind].case(KINDS[kind].table(table_file(tmp_path, header, *rows)), None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", FILES)
def test_a_good_file_becomes_a_problem_with_settings_to_measure_next(tmp_path, kind):
    case = KINDS[kind].case(KINDS[kind].table(table_file(tmp_path, FILES[kind][0], *FILES[kind][1])), None)
    medians: Values = {
        name: np.full(constant.size, constant.median) if constant.labels else np.asarray(constant.median)
        for name, constant in case.fit.constants.items()
    }
    errors = np.asarray(case.fit.errors(medians, case.fit.table))
    assert errors.shape == (3, len(next(iter(case.outputs.values()))))
    assert np.all(np.isfinite(errors))
    assert len(case.candidates.words) == len(case.candidates.table[-1]) > 3


@pytest.mark.parametrize("kind", ["loss", "batch"])
def test_repeated_rows_name_both_lines_and_one_row_is_too_few(tmp_path, kind):
    header, rows = FILES[kind]
    assert_refused(tmp_path, kind, header, [*rows, rows[1]], "line 5: repeats the setting of line 3")
    if kind != "batch":  # of which one row is enough, see test_batch_calibration.py
        assert_refused(tmp_path, kind, header, rows[:1], "1 row of measurements; at least 2")
    assert_refused(tmp_path, kind, header, [], "0 rows of measurements")


def test_laws_need_models_of_several_sizes(tmp_path):
    for kind, header, rows, pattern in (
        ("loss", "parameters,tokens,loss", ["1e8,1e9,3.5", "1e8,2e9,3.4"], '"parameters" holds one value'),
        ("batch", "batch_tokens,samples", ["8,1", "16,2"], '"steps" is missing: steps to the target'),
        ("batch", "steps,samples", ["8,1", "16,2"], '"batch_tokens" is missing: batch in tokens'),
        ("batch", "batch,steps", ["8,", "16,"], 'line 2, column "steps": empty, as in all rows'),
        ("batch", "batch,samples,tokens", ["8,100,", "16,,5"], 'line 2, column "tokens": empty'),
    ):
        assert_refused(tmp_path, kind, header, rows, pattern)


def test_a_layout_is_told_what_it_lacks_by_line(tmp_path):
    header, rows = FILES["step-time"]
    short = [rows[0], "", rows[1].replace("24,2048", "24,", 1)]
    assert_refused(tmp_path, "step-time", header, short, r"m\.csv, line 4.*hidden is missing: hidden size")
    words = [rows[0], rows[1].replace("24,2048", "24,wide", 1)]
    assert_refused(tmp_path, "step-time", header, words, "m\\.csv, line 3: hidden: 'wide' is not a number")
    clusters = [f"{name},{row}" for name, row in zip("ab", rows, strict=False)]
    assert_refused(tmp_path, "step-time", f"cluster,{header}", clusters, "holds a, b; constants belong to one cluster")


def test_an_earlier_covariance_replaces_the_prior_of_the_coordinates_that_it_has():
    constants = {name: ConstantPrior(1.0, 0.5) for name in "abc"}
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    prior = updated_prior(
        joint_prior(constants),
        ("c", "x", "a"),
        np.array([1.0, 9.0, -1.0]),
        np.array([[0.04, 0, 0.01], [0, 1, 0], [0.01, 0, 0.09]]),
    )
    np.testing.assert_allclose(prior.mean, [-1.0, 0.0, 1.0])
    np.testing.assert_allclose(np.linalg.inv(prior.information)[np.ix_([2, 0], [2, 0])], covariance, atol=1e-12)
    np.testing.assert_allclose(prior.spread, [0.3, 0.5, 0.2])
    with pytest.raises(ValueError, match="not positive definite"):
        updated_prior(joint_prior(constants), ("a", "b"), np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_a_plan_below_the_lowest_measured_cap_is_refused():
    measured = {"source": "calibrate power m.csv", "lowest_power_cap": 300.0, "rated_power": 700.0}
    tables = {"base": "test-1b-h100", "calibration": {"power": measured}}
    assert load_scenario(tables, {"plan.power_cap": "300 W"}).tables["calibration"]["power"] == measured
    with pytest.raises(InputError, match=re.escape("plan.power_cap: 250 W is below 300 W, the lowest limit that was")):
        load_scenario(tables, {"plan.power_cap": "250 W"})
    # Ranges are refused as a at_once and before anything is evaluated: in a sweep, and to search in.
    calibrated = load_scenario(tables)
    pattern = "250 W is below 300 W, the lowest limit that was measured (calibrate power m.csv). Power and time there"
    for values in ("250..700 W 10", np.array([700.0, 250.0]), Axis.linear("plan.power_cap", 250.0, 700.0, 3, "W")):
        with pytest.raises(InputError, match=re.escape(f"axis plan.power_cap: {pattern}")):
            scenario_axis(calibrated, "plan.power_cap", values)
    with pytest.raises(InputError, match=re.escape(f"plan.power_cap: {pattern}")):
        calibrated.with_question(vary={"plan.power_cap": ("250 W", "700 W")})
    assert len(scenario_axis(calibrated, "plan.power_cap", "300..700 W 10")) == 10
    assert len(scenario_axis(load_scenario("test-1b-h100"), "plan.power_cap", "250..700 W 10")) == 10
    # Another accelerator was not the one that was measured.
    load_scenario(tables, {"plan.power_cap": "250 W", "system.accelerator.rated_power": "400 W"})


def posed(tmp_path, lines, prior=None, form=None):
    """The case of a file of powers, its table read from a file."""
    table = KINDS["power"].table(table_file(tmp_path, FILES["power"][0], *lines))
    case = KINDS["power"].read(table, load_scenario(prior) if prior else None, form)
    return case, case.form or ChosenForm("", "")


def power_lines(limits, words="abc"):
    return [f"{word},8,{limit},{20 * (250 / limit) ** 0.5},{0.9 * limit}" for word in words for limit in (*limits, 250)]


def test_few_limits_take_the_posynomial_form_unless_the_curve_is_known_or_asked_for(tmp_path):
    few, form = posed(tmp_path, power_lines((150, 200)))
    assert form.name == "posynomial"
    assert "no workload has more than 2 settings below its highest" in form.reason
    assert "cubic_share" in few.fit.constants
    assert few.numbers["system.accelerator.voltage.cubic_share"].constant == "cubic_share"
    assert posed(tmp_path, power_lines((150, 200)), form="voltage-floor")[1] == ("voltage-floor", "it was asked for")
    enough, form = posed(tmp_path, power_lines((125, 150, 200)))
    assert form.name == "voltage-floor"
    assert "voltage_knee" in enough.fit.constants
    # Three limits of one workload are still fewer rows than constants.
    short = posed(tmp_path, power_lines((125, 150, 200), "a"))[1]
    assert short == ("posynomial", "3 rows below the highest limit or clock are fewer than 9")
    # The curve of this card was fitted to measurements; that of an H100 is assumed.
    card = {"base": "test-1b-h100", "system": {"accelerator": "v100-sxm2-32gb"}}
    assert posed(tmp_path, power_lines((150, 200)), card)[1].name == "voltage-floor"
    unknown = {"base": "test-1b-h100", "system": {"accelerator": {"preset": "gaudi3"}}}
    assert posed(tmp_path, power_lines((150, 200)), unknown)[1].name == "posynomial"


def test_a_posynomial_curve_replaces_floor_and_knee_in_a_scenario_and_is_kept_by_the_next_calibration(tmp_path):
    curve = {"component": "PosynomialVoltage", "cubic_share": {"value": 0.7, "unit": "1", "kind": "measured"}}
    fitted_before = {"names": ["cubic_share"], "coordinates": [0.85], "covariance": [[0.04]]}
    earlier = {"power": {**fitted_before, "rated_power": 700.0}}
    tables = {"base": "test-1b-h100", "system": {"accelerator": {"voltage": curve}}, "calibration": earlier}
    scenario = load_scenario(tables)
    np.testing.assert_allclose(scenario.system.accelerator.voltage(0.5) ** 2, 1.0 - 0.7 * 0.75)
    case, form = posed(tmp_path, power_lines((125, 150, 200)), tables)
    assert form == ("posynomial", "the prior was calibrated with it")
    assert case.fit.constants["cubic_share"].median == pytest.approx(0.7)
    assert case.words == {"system.accelerator.voltage.component": "PosynomialVoltage"}
    other, _ = posed(tmp_path, power_lines((125, 150, 200)), tables, "voltage-floor")
    assert not any("voltage" in path for path in other.numbers)
    assert any("neither floor nor knee" in note for note in other.notes)


def test_an_unknown_form_is_refused(tmp_path):
    file = table_file(tmp_path, FILES["power"][0], *FILES["power"][1])
    with pytest.raises(InputError, match=r'unknown form "floor"\. Did you mean "voltage-floor"'):
        calibrate("power", file, form="floor")
    with pytest.raises(InputError, match="loss has one form only"):
        calibrate("loss", file, form="posynomial")


@pytest.mark.slow
def test_a_known_cubic_share_comes_back_from_two_limits_and_is_written(tmp_path):
    generator, truth = np.random.default_rng(0), 0.75
    values: Values = {
        name: np.asarray(prior.median) for name, prior in device_power.power_constants(form="posynomial").items()
    }
    values["cubic_share"] = np.asarray(truth)
    lines = []
    for word, time, watt in (("a", 30, 240), ("b", 50, 225), ("c", 20, 200), ("d", 25, 245), ("e", 44, 180)):
        for limit in (125, 175, 250):
            limits = np.array([limit - 1e-3, 250.0])
            runs, _ = device_power.profiles(
                ["x", "x"], np.ones(2), limits, np.ones(2), np.full(2, watt), idle_power=40.0
            )
            runs = runs._replace(reference_time=np.full(2, time), reference_power=np.full(2, watt))
            seconds, mean = (float(values_of[0]) for values_of in device_power.predict_power(values, runs))
            noise = np.exp(0.01 * generator.standard_normal(2))
            lines.append(f"{word},8,{limit},{seconds * noise[0]:.6g},{mean * noise[1]:.6g},40")
    fitted = calibrate("power", table_file(tmp_path, FILES["power"][0] + ",idle_power_w", *lines))
    share = constants_of(fitted)["cubic_share"]
    assert share.laplace is not None
    assert share.laplace[0] < truth < share.laplace[1]
    voltage = load_scenario(scenario_file(tmp_path, fitted)).system.accelerator.voltage
    np.testing.assert_allclose(voltage.cubic_share, share.value)  # pyright: ignore[reportAttributeAccessIssue]


def batch_lines(generator, noise, sizes=(1e8, 3e8, 1e9, 3e9), critical=2e6, exponent=0.5, share=0.9):
    lines = []
    for size in sizes:
        effective = share * 20.0 * size
        for batch in np.geomspace(1e5, 1e7, 8):
            tokens = effective * batch_penalty(batch, critical * (effective / 5e9) ** exponent)
            lines.append(f"{size:.6g},{batch:.10g},{float(tokens) * np.exp(noise * generator.standard_normal()):.10g}")
    return lines


def test_a_power_law_of_critical_batches_is_found_and_written_to_a_scenario(tmp_path):
    lines = batch_lines(np.random.default_rng(0), 0.0)
    fitted = calibrate("batch", table_file(tmp_path, "parameters,batch_tokens,tokens", *lines))
    for name, value in (("critical_batch_at_pivot", 2e6), ("exponent", 0.5)):
        np.testing.assert_allclose(constants_of(fitted)[name].value, value, rtol=1e-3)
    assert fitted.undetermined == ()
    assert fitted.held_out_mean["tokens to target"] < 0.1
    law = load_scenario(scenario_file(tmp_path, fitted)).system.learning.critical_batch  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(float(law.run_level(5e9, np.asarray(2.0))), 2e6, rtol=1e-3)


@pytest.mark.slow
def test_measurements_in_two_parts_give_the_constants_of_all_at_once(tmp_path):
    generator = np.random.default_rng(1)
    lines, header = batch_lines(generator, 0.02), "parameters,batch_tokens,tokens"
    at_once = calibrate("batch", table_file(tmp_path, header, *lines))
    first = calibrate("batch", table_file(tmp_path, header, *lines[:16]))
    second = calibrate("batch", table_file(tmp_path, header, *lines[16:]), prior=scenario_file(tmp_path, first))
    assert any("Priors with their intervals" in note for note in second.notes)
    for before, constant, other in zip(first.constants[:2], at_once.constants[:2], second.constants[:2], strict=True):
        assert before.laplace is not None
        assert constant.laplace is not None
        assert other.laplace is not None
        width = constant.laplace[1] - constant.laplace[0]
        assert abs(constant.value - other.value) < 0.15 * width
        assert width < before.laplace[1] - before.laplace[0]
        np.testing.assert_allclose(other.laplace[1] - other.laplace[0], width, rtol=0.3)


@pytest.mark.slow
def test_limits_of_new_workloads_update_the_constants_of_a_card(tmp_path):
    data = Path(__file__).parents[2] / "experiments" / "data" / "zeus_nsdi23_power.csv"
    header, *rows = data.read_text(encoding="utf-8").splitlines()
    rows = [row for row in rows if row.startswith("V100")]
    early = [row for row in rows if "cifar100" in row or "librispeech" in row]
    late = [row for row in rows if row not in early]
    first = calibrate("power", table_file(tmp_path, header, *early), prior="v100-sxm2-32gb")
    at_once = calibrate("power", table_file(tmp_path, header, *rows), prior="v100-sxm2-32gb")
    out = scenario_file(tmp_path, first)
    second = calibrate("power", table_file(tmp_path, header, *late), prior=out)
    new, every = second.case.fit, at_once.case.fit

    def error(values, problem):
        rows = problem.weights > 0
        return float(np.mean(np.abs(np.expm1(np.asarray(problem.errors(values, problem.table))[rows]))))

    # New rows are predicted better than without them, all rows nearly as well as by a fit to all of them.
    assert error(second.fit.values, new) < 0.8 * error(first.fit.values, new)
    assert error(second.fit.values, every) < 1.1 * error(at_once.fit.values, every)
    for constant in second.constants:
        assert (constant.laplace is None) == (constant.name in second.undetermined)
    with pytest.raises(InputError, match="is below 100 W, the lowest limit that was measured"):
        load_scenario(out, {"plan.power_cap": "80 W"})
