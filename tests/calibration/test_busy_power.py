"""Power of a chip at work in a scenario that a calibration wrote."""

import numpy as np
import pytest

from energymodel.calibration.calibrate import calibrate
from energymodel.calibration.kinds.power_runs import busy_line
from energymodel.report.calibration_report import calibration_toml
from energymodel.scenarios.scenario import load_scenario
from energymodel.system.evaluate import evaluate

ROWS = (
    "gpu,workload,batch,power_limit_w,time_s,power_w",
    "H100,a,8,700,100,668",
    "H100,a,8,500,104,492",
    "H100,a,8,400,113,393",
    "H100,b,16,700,99,672",
    "H100,b,16,500,103,493",
    "H100,b,16,400,112,395",
)


@pytest.mark.slow
def test_the_written_scenario_draws_the_power_that_was_measured(tmp_path):
    table, out = tmp_path / "m.csv", tmp_path / "out.toml"
    table.write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    fitted = calibrate("power", table, prior="test-1b-h100")
    out.write_text(calibration_toml(fitted), encoding="utf-8")
    fitted = next(constant.value for constant in fitted.constants if constant.name == "busy_power") * 700.0
    scenario = load_scenario(out)
    np.testing.assert_allclose(evaluate(scenario.system, scenario.plan).power_busy, fitted, rtol=0.04)
    assert float(scenario.system.accelerator.busy_power) > 1.1 * fitted  # of large products alone
    intercept, slope = busy_line(scenario)
    expected = intercept + slope * float(scenario.system.accelerator.busy_power)
    np.testing.assert_allclose(evaluate(scenario.system, scenario.plan).power_busy, expected, rtol=1e-3)
