"""Bad input: exit code 2, one line on stderr that names what was given, no traceback."""

import pytest

from cli.shell import SMALL, run


def assert_bad_input(arguments: list[str], *mentioned: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stderr.startswith("energymodel: error: ")
    assert "Traceback" not in result.stderr
    assert "No such option" not in result.stderr
    for word in mentioned:
        assert word in result.stderr


COMMANDS = ("evaluate", "optimize", "limits")


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_preset_suggests_the_nearest(command):
    assert_bad_input([command, "llama-3.1-405b-h10"], "llama-3.1-405b-h10", 'Did you mean "llama-3.1-405b-h100"?')


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("change", "mentioned"),
    [
        ("system.accelerator.rated_powr=700 W", ["rated_powr", 'Did you mean "rated_power"?']),
        ("plan.chip=8", ["chip", "chips"]),
        ("sistem.market=france", ["sistem.market"]),
        ("system.accelerator.rated_power=700 GB", ["system.accelerator.rated_power", "700 GB", "power"]),
        ("system.accelerator.rated_power=700", ["system.accelerator.rated_power", "700", "no unit"]),
        ("system.accelerator.rated_power=-700 W", ["-700 W", "negative"]),
        ("system.accelerator.rated_power=nan W", ["nan W", "finite"]),
        ("system.accelerator.rated_power=inf W", ["inf W", "finite"]),
        ("system.accelerator.rated_power=1e400 W", ["1e400 W", "finite"]),
        ("system.accelerator.rated_power=many W", ["many W"]),
        ("system.accelerator=h200-sx", ["h200-sx", 'Did you mean "h200-sxm"?']),
        ("plan.layout.tensor=3", ["tensor 3", "8"]),
        ("plan.layout.tensor=2.5", ["plan.layout.tensor", "2.5"]),
        ("plan.layout.zero=7", ["7", "ZeRO"]),
        ("plan.layout.offload_parameters=2", ["plan.layout.offload_parameters", "2", "share"]),
        ("plan.layout.recomputation=som", ["som"]),
        ("plan.goal.loss=1.9 nat/token", ["1.9 nat/token", "cannot be reached"]),
        ("plan.goal.tokens=15.6 T bananas", ["bananas"]),
        ("plan.clock=1.5", ["plan.clock", "1.5"]),
        ("plan.power_cap=2000 W", ["plan.power_cap", "2 kW", "700 W", "rated power"]),
        ("plan.coolant_temperature=25 K", ["plan.coolant_temperature", "-248.2 °C", "between -40 °C and 100 °C"]),
        ("system.accelerator.gemm_efficiency=1.5", ["system.accelerator.gemm_efficiency", "1.5", "share"]),
        ("system.accelerator.leakage.power=700 W", ["leakage.power 700 W", "-11.81 W", "busy_power"]),
        ("system.accelerator.die_area=0 m^2", ["system.accelerator.die_area", "0 m^2", "between"]),
        ("system.accelerator.peak_flops=1e30 FLOP/s", ["Landauer", "peak_flops"]),
        ("system.accelerator.idle_power=2 kW", ["system.accelerator.idle_power", "2 kW", "busy_power"]),
        ("system.workload.active_experts=9", ["system.workload.active_experts", "9", "experts"]),
        ("plan.batch=1 token", ["plan.batch", "1 token"]),
        ("plan.chips", ["plan.chips", "PATH=VALUE"]),
    ],
)
def test_bad_change(command, change, mentioned):
    assert_bad_input([command, SMALL, "--set", change], *mentioned)


def test_a_product_has_one_precision():
    changes = ["--set", "plan.layout.fp8=0.7", "--set", "plan.layout.tf32=0.5"]
    assert_bad_input(["evaluate", SMALL, *changes], "fp8 0.7 + tf32 0.5 = 1.2")


@pytest.mark.parametrize("command", ["evaluate", "limits"])
def test_a_model_that_cannot_fit(command):
    assert_bad_input([command, SMALL, "--set", "system.workload=llama-3.1-405b"], "does not fit", "80 GB")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "content", "mentioned"),
    [
        ("empty.toml", b"", ["empty.toml", "empty"]),
        ("blank.toml", b" \n\n", ["blank.toml", "empty"]),
        ("binary.toml", bytes(range(256)), ["binary.toml", "no text in UTF-8"]),
        ("broken.toml", b"[system\n", ["broken.toml", "TOML"]),
        ("key.toml", b'base = "test-1b-h100"\n[sistem]\n', ["sistem", 'Did you mean "system"?']),
        ("missing-section.toml", b'title = "nothing"\n', ["missing-section", "[system]"]),
        ("number.toml", b'base = "test-1b-h100"\n[plan]\npower_cap = 700\n', ["plan.power_cap", "700", "no unit"]),
        ("section.toml", b'base = "test-1b-h100"\nplan = 3\n', ["[plan]"]),
        ("broken.json", b"{", ["broken.json", "JSON"]),
        ("list.json", b"[1]", ["list.json", "scenario"]),
        ("binary.json", bytes(range(256)), ["binary.json", "JSON"]),
    ],
)
def test_bad_file(command, name, content, mentioned, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    assert_bad_input([command, str(path)], *mentioned)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["missing.toml", "missing.json", "folder/missing", "."])
def test_missing_file(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_bad_input([command, name], name)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        ("run.parquet", [".parquet", ".json", ".csv"]),
        ("run", ["run", ".json", ".csv"]),
        ("nowhere/run.json", ["nowhere"]),
    ],
)
def test_output_that_cannot_be_written(command, name, mentioned, tmp_path):
    assert_bad_input([command, SMALL, "-o", str(tmp_path / name)], *mentioned)


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        (["--minimize", "enrgy"], ["enrgy", 'Did you mean "energy"?']),
        (["--limit", "tme=60 days"], ["tme", 'Did you mean "time"?']),
        (["--limit", "time"], ["time", "NAME=VALUE"]),
        (["--limit", "time=60"], ["limit time", "60", "no unit"]),
        (["--limit", "time=60 MW"], ["limit time", "60 MW"]),
        (["--limit", "time=-60 days"], ["-60 days", "negative"]),
        (["--limit", "time=nan days"], ["nan days"]),
        (["--limit", "chips=0"], ["chips", "0"]),
        (["--vary", "plan.clok=0.5:1"], ["plan.clok", 'Did you mean "plan.clock"?']),
        (["--vary", "plan.clock=0.5"], ["plan.clock=0.5", "LOW:HIGH"]),
        (["--vary", "plan.clock=1:0.5"], ["1 is above 0.5"]),
        (["--vary", "plan.power_cap=400:700 GB"], ["400 GB"]),
        (["--fix", "plan.clok"], ["plan.clok", 'Did you mean "plan.clock"?']),
    ],
)
def test_bad_option_of_optimize(arguments, mentioned):
    assert_bad_input(["optimize", SMALL, *arguments], *mentioned)


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        ("h100-sx", ['"h100-sx"', 'Did you mean "h100-sxm"?']),
        ("hardwar/h100-sxm", ['"hardwar"', 'Did you mean "hardware"?']),
        ("models/h100-sxm", ['"h100-sxm" among models']),
    ],
)
def test_bad_preset_name(name, mentioned):
    assert_bad_input(["presets", "show", name], *mentioned)


def test_usage_errors_exit_with_2():
    assert run("evaluate").exit_code == 2
    assert run("evaluate", SMALL, "--sett", "plan.clock=0.8").exit_code == 2
    assert run("evluate", SMALL).exit_code == 2
