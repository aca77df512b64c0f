"""Names of the last version are read for one more, with a warning that says the new one."""

import json
import subprocess
import sys

import pytest

from energymodel.calibration.cluster_source import cluster_system
from energymodel.calibration.layout_table import layouts
from energymodel.learning.critical_batch import PowerCriticalBatch
from energymodel.learning.learning import CriticalBatchLearning
from energymodel.physics.heat_rejection import CoolingTower, EvaporativeAir
from energymodel.scenarios.components import CATEGORY_OF, final_classes
from energymodel.scenarios.files import names, read_preset
from energymodel.scenarios.renamed import RENAMED, current_name, current_names
from energymodel.scenarios.scenario import load_scenario
from energymodel.sweeps.scenario_axes import scenario_axis
from energymodel.system.plan import ParallelLayout

SMALL = "test-1b-h100"


def test_every_new_name_exists_and_no_old_one():
    kinds = [final for kind in CATEGORY_OF for final in final_classes(kind).values()]
    fields = {name for kind in (*kinds, ParallelLayout) for name in kind.__dataclass_fields__}
    assert set(RENAMED.values()) <= fields | set(names("clusters"))
    assert not set(RENAMED) & (fields | set(names("clusters")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plan.layout.interleaving", "plan.layout.virtual_stages"),
        ("system.accelerator.peak_flops_8bit", "system.accelerator.peak_flops_fp8"),
        ("host_time", "launch_overhead"),
        ("system.facility.cooling.approach", "system.facility.cooling.rejection.approach"),
        ("system.facility.cooling.wet_bulb_temperature", "system.facility.cooling.weather.wet_bulb"),
    ],
)
def test_an_old_name_warns_and_names_the_new_one(old, new):
    with pytest.warns(FutureWarning, match=f'"{old}" is now called "{new}"'):
        assert current_name(old) == new


def test_a_current_name_says_nothing():
    assert current_name("plan.layout.virtual_stages") == "plan.layout.virtual_stages"
    assert current_name("llama-3.1-405b-h100") == "llama-3.1-405b-h100"


def test_old_keys_of_a_file():
    tables = {
        "base": SMALL,
        "system": {"accelerator": {"host_time": "1 ms"}},
        "plan": {"layout": {"eight_bit": 0.5}},
        "optimize": {"vary": {"plan.layout.eight_bit": [0.0, 1.0]}, "fix": ["plan.layout.interleaving"]},
        "uncertainty": {"system.accelerator.host_exponent": "lognormal 0.1"},
    }
    with pytest.warns(FutureWarning, match="is now called") as caught:
        found = load_scenario(tables)
    assert len(caught) == 5
    assert float(found.system.accelerator.launch_overhead) == 1e-3
    assert float(found.plan.layout.fp8) == 0.5
    assert set(found.tables["optimize"]["vary"]) == {"plan.layout.fp8"}
    assert found.tables["optimize"]["fix"] == ["plan.layout.virtual_stages"]
    assert found.uncertainty["system.accelerator.launch_exponent"] == "lognormal 0.1"


def test_weather_and_approach_of_a_file_move_to_their_components():
    cooling = {"wet_bulb_temperature": "20 °C", "approach": "7 K", "blend_width": "2 K", "weather": "texas-weather"}
    with pytest.warns(FutureWarning, match="is now called") as caught:
        found = load_scenario({"base": SMALL, "system": {"facility": {"cooling": cooling}}}).system.facility.cooling
    assert len(caught) == 3
    assert isinstance(found.rejection, EvaporativeAir | CoolingTower)
    assert float(found.rejection.approach) == 7.0
    assert float(found.weather.wet_bulb) == 293.15
    assert float(found.weather.spread) == 2.0
    assert float(found.weather.dry_bulb) == 293.55  # of Texas, as before


def test_an_old_key_beats_the_new_one_below_it():
    below = {"base": SMALL, "plan": {"layout": {"virtual_stages": 2.0}}}
    with pytest.warns(FutureWarning, match="virtual_stages"):
        assert float(load_scenario(below, ["plan.layout.interleaving=1"]).plan.layout.virtual_stages) == 1.0


def test_old_names_of_columns_axes_and_clusters():
    row = {"model": "llama-2-7b", "cluster": "nanotron-h100", "chips": 8, "batch_sequences": 64}
    with pytest.warns(FutureWarning, match='"interleaving" is now called "virtual_stages"'):
        assert layouts([{**row, "interleaving": 2}]).columns["virtual_stages"] == 2.0
    with pytest.warns(FutureWarning, match="launch_overhead"):
        assert scenario_axis(load_scenario(SMALL), "system.accelerator.host_time", "1,2 ms").name.endswith("overhead")
    with pytest.warns(FutureWarning, match="nanotron-h100-ring-before-fix"):
        found = cluster_system("nanotron-h100-ring-unmended")
    assert found.software == cluster_system("nanotron-h100-ring-before-fix").software
    with pytest.warns(FutureWarning, match="before-fix"):
        assert "system" in read_preset("clusters", "nanotron-h100-ring-unmended")


def test_the_result_of_an_earlier_run_on_the_command_line(tmp_path):
    tables = json.loads(json.dumps(load_scenario(SMALL).tables))
    new_to_old = {new: old for old, new in RENAMED.items()}
    old = _renamed(tables, new_to_old)
    with pytest.warns(FutureWarning):
        assert current_names(old) == tables
    (tmp_path / "run.json").write_text(json.dumps({"scenario": old}))
    command = "import sys; from energymodel.cli import main; sys.argv[0] = 'energymodel'; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "evaluate", "run.json", "--set", "plan.layout.interleaving=1", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stderr.splitlines()
    assert all(line.startswith("energymodel: warning: ") for line in lines)
    assert len(lines) == len(set(lines))
    assert any('"plan.layout.interleaving" is now called "plan.layout.virtual_stages"' in line for line in lines)


def _renamed(tables, words):
    if not isinstance(tables, dict):
        return tables
    return {words.get(key, key): _renamed(value, words) for key, value in tables.items()}


def critical_batch(source, changes=()):
    """The power law of the critical batch of a scenario."""
    learning = load_scenario(source, changes).system.learning
    assert isinstance(learning, CriticalBatchLearning)
    assert isinstance(learning.critical_batch, PowerCriticalBatch)
    return learning.critical_batch


def test_old_coefficient_of_the_critical_batch():
    old = {"component": "PowerCriticalBatch", "coefficient": "96.4608 token", "exponent": 0.462}
    with pytest.warns(FutureWarning, match='is now "at_pivot"'):
        law = critical_batch({"base": SMALL, "system": {"learning": {"critical_batch": old}}})
    assert (float(law.at_pivot), float(law.pivot), float(law.exponent)) == (96.4608, 1.0, 0.462)
    with pytest.warns(FutureWarning, match='is now "at_pivot"'):
        law = critical_batch(SMALL, ["system.learning.critical_batch.coefficient=96.4608 token"])
    assert (float(law.at_pivot), float(law.pivot)) == (96.4608, 1.0)


def test_a_dropped_number_warns_with_what_says_it_now():
    with pytest.warns(FutureWarning, match=r'"collective_steps" is not used any more; see node.collectives'):
        found = load_scenario(SMALL, {"system.software.collective_steps": 2})
    assert found.system.software == load_scenario(SMALL).system.software


def test_numbers_that_measured_ones_replace_are_left_out():
    chip = {"system": {"accelerator": {"preset": "h100-sxm", "gemm_half_size": 165.0}}}
    with pytest.warns(FutureWarning, match='"gemm_half_size" is not used any more'):
        assert current_names(chip) == {"system": {"accelerator": {"preset": "h100-sxm"}}}
    with pytest.warns(FutureWarning, match='"gemm_tile" is not used any more'):
        changed = load_scenario(SMALL, ["system.accelerator.gemm_tile=200"])
    assert changed.system.accelerator.gemm_edge == load_scenario(SMALL).system.accelerator.gemm_edge
