"""A config.json as the workload of a scenario: its numbers, their origin, what is warned of and refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario


@pytest.fixture
def path(tmp_path):
    return Path(shutil.copy(Path(__file__).with_name("config.json"), tmp_path))


def test_a_config_is_a_workload_and_its_numbers_can_be_changed(path):
    changes = {"system.workload": str(path), "system.workload.sequence": "2048 token"}
    with pytest.warns(UserWarning, match="training sequence is taken as 4096 tokens"):
        scenario = load_scenario("test-1b-h100", changes)
    workload = scenario.system.workload
    assert float(workload.sequence) == 2048.0
    expert, attention = 3 * 512 * 256, 2 * 512 * 64 * (8 + 2)
    layer = attention + 16 * expert + 512 * 16 + 2 * 512 + 2 * 64
    np.testing.assert_allclose(float(workload.parameters), 8 * layer + 2 * 32000 * 512 + 512, rtol=1e-7)
    assert scenario.provenance["system.workload.layers"].kind == "specification"
    assert scenario.provenance["system.workload.sequence"].kind == "given"


def test_the_tables_of_the_scenario_hold_the_model(path):
    with pytest.warns(UserWarning, match="config.json"):
        scenario = load_scenario("test-1b-h100", {"system.workload": str(path)})
    path.unlink()
    again = load_scenario(scenario.named_tables)
    assert float(again.system.workload.parameters) == float(scenario.system.workload.parameters)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_scenario("test-1b-h100", {"system.workload": str(tmp_path / "none.json")})
    (tmp_path / "m.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(InputError, match="state-space"):
        load_scenario("test-1b-h100", {"system.workload": str(tmp_path / "m.json")})
