"""Bad input: exit code 2, one line on stderr that names what was given and the next step, no traceback."""

import pytest

from cli.shell import SMALL, assert_bad_input, run

COMMANDS = ("evaluate", "optimize", "limits")
CHANGES = [
    ("system.accelerator.rated_powr=700 W", "rated_powr", 'Did you mean "rated_power"?'),
    ("plan.chip=8", "chip", "chips"),
    ("sistem.market=france", "sistem.market"),
    ("system.accelerator.rated_power=700 GB", "system.accelerator.rated_power", "700 GB", "power"),
    ("system.accelerator.rated_power=700", "system.accelerator.rated_power", "700", "no unit"),
    ("system.accelerator.rated_power=-700 W", "-700 W", "negative"),
    ("system.accelerator.rated_power=nan W", "nan W", "finite"),
    ("system.accelerator.rated_power=inf W", "inf W", "finite"),
    ("system.accelerator.rated_power=1e400 W", "1e400 W", "finite"),
    ("system.accelerator.rated_power=many W", "many W"),
    ("system.accelerator=h200-sx", "h200-sx", 'Did you mean "h200-sxm"?'),
    ("plan.layout.tensor=3", "tensor 3", "8"),
    ("plan.layout.tensor=2.5", "plan.layout.tensor", "2.5"),
    ("plan.layout.zero=7", "7", "ZeRO"),
    ("plan.layout.offload_parameters=2", "plan.layout.offload_parameters", "2", "share"),
    ("plan.layout.recomputation=som", "som"),
    ("plan.goal.loss=1.9 nat/token", "1.9 nat/token", "cannot be reached"),
    ("plan.goal.tokens=15.6 T bananas", "bananas"),
    ("plan.clock=1.5", "plan.clock", "1.5"),
    ("plan.power_cap=2000 W", "plan.power_cap", "2 kW", "700 W", "rated power"),
    ("plan.coolant_temperature=25 K", "plan.coolant_temperature", "-248.2 °C", "between -40 °C and 100 °C"),
    ("system.accelerator.gemm_efficiency=1.5", "system.accelerator.gemm_efficiency", "1.5", "share"),
    ("system.accelerator.leakage.power=700 W", "leakage.power 700 W", "-11.81 W", "busy_power"),
    ("system.accelerator.die_area=0 m^2", "system.accelerator.die_area", "0 m^2", "between"),
    ("system.accelerator.peak_flops=1e30 FLOP/s", "Landauer", "peak_flops"),
    ("system.accelerator.idle_power=2 kW", "system.accelerator.idle_power", "2 kW", "busy_power"),
    ("system.workload.active_experts=9", "system.workload.active_experts", "9", "experts"),
    ("system.workload=llama-3.1-405b", "does not fit", "80 GB"),
    ("plan.batch=1 token", "plan.batch", "1 token"),
    ("plan.chips", "plan.chips", "PATH=VALUE"),
]
FILES = [
    ("empty.toml", b"", "empty.toml", "empty"),
    ("blank.toml", b" \n\n", "blank.toml", "empty"),
    ("binary.toml", bytes(range(256)), "binary.toml", "no text in UTF-8"),
    ("broken.toml", b"[system\n", "broken.toml", "TOML"),
    ("key.toml", b'base = "test-1b-h100"\n[sistem]\n', 'Did you mean "system"?'),
    ("missing-section.toml", b'title = "nothing"\n', "missing-section", "[system]"),
    ("number.toml", b'base = "test-1b-h100"\n[plan]\npower_cap = 700\n', "no unit"),
    ("section.toml", b'base = "test-1b-h100"\nplan = 3\n', "[plan]"),
    ("broken.json", b"{", "broken.json", "JSON"),
    ("list.json", b"[1]", "list.json", "scenario"),
    ("binary.json", bytes(range(256)), "binary.json", "JSON"),
    ("config.json", b'{"model_type": "llama"}', "config.json", "Give it as --model"),
    ("missing.toml", None, "missing.toml", "missing.toml"),
    ("missing.json", None, "missing.json", "missing.json: no such file"),
    ("folder/missing", None, "folder/missing", "folder/missing"),
]
PIECES = ("--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "16", "--tokens", "50 G")
CLOCKS = ("timeline", SMALL, "--clocks")
TRAJECTORY = ("evaluate", SMALL, "--trajectory")
SITE = ("fleet", "llama-3.1-405b-h100", "--site")
SHAPE = ("optimize", SMALL, "--vary", "model.*")
REFUSED = [
    (("batch", SMALL, "--points", "1"), "1 make no curve"),
    (("batch", SMALL, "-o", "b.gif"), "Choose one of .json"),
    (("calendar", SMALL, "--minimize", "etp"), "is no objective of a calendar"),
    (("calendar", SMALL, "--deadline", "10"), "has no unit"),
    (("calendar", SMALL, "--start", "noon"), "is no hour of the file"),
    (("calendar", SMALL, "--battery", "50 MWh"), "--battery: a calendar plans no battery"),
    (("calendar", SMALL, "--battery-efficiency", "0.9"), "--battery-efficiency: a calendar plans no battery"),
    (("calendar", SMALL, "--contract", "0.04 USD/kWh"), "has no power"),
    (("calendar", SMALL, "--minimize", "energy", "--carbon-price", "100 USD/t"), "does not enter energy"),
    (("calendar", SMALL, "--demand-charge", "15 USD"), "demand_charge"),
    (("calendar", SMALL, "--weather", "sunny"), "Give file or scenario"),
    (("calibrate", "pover", "m.csv"), 'Unknown kind "pover". Did you mean "power"?'),
    (("calibrate", "power"), "give a CSV file or logs; `energymodel calibrate power --columns`"),
    (("calibrate", "power", "none.csv"), "none.csv: no such file"),
    (("calibrate", "step-time", "a.csv", "b.csv"), "2 tables, and no training log"),
    (("calibrate", "step-time", "a.csv", *PIECES), "it is a table"),
    (("compare", SMALL), "nothing to compare"),
    (("design-chip", SMALL, "--vary", "system.chip_design.voltag=0.8:1"), "voltage"),
    (("design-chip", SMALL, "--limit", "chip_area=814"), "has no unit"),
    (("design-chip", SMALL, "--set", "system.chip_design.voltage=-1"), "voltage"),
    (("design-chip", SMALL, "--set", "system.chip_design=near"), "Unknown preset"),
    (("doctor", "--yes"), "Add --clear-cache"),
    (("evaluate", SMALL, "--points", "5"), "add --trajectory"),
    ((*TRAJECTORY, "--points", "0"), "0 make no trajectory"),
    (("evaluate", SMALL, "--set", "plan.layout.fp8=0.7", "--set", "plan.layout.tf32=0.5"), "fp8 0.7 + tf32 0.5 = 1.2"),
    (("explore", "no-such-scenario"), "no-such-scenario"),
    ((*SITE, "--power", "0 MW"), "not a positive power"),
    ((*SITE, "--power", "25"), "has no unit"),
    (("fleet", SMALL, "--site", "--minimize", "energy"), "minimize: a site has one group"),
    (("fleet", SMALL, "--power", "1 MW"), "Add --site"),
    (("fleet", SMALL, "--limit", "time=1 d"), "Say what to --minimize"),
    (("fleet", SMALL, "--model", "llama-3.1-8b"), "groups belong to a SCENARIO"),
    (("measure", "nothing.log"), "Cannot read"),
    (("optimize", SMALL, "--minimize", "enrgy"), 'Did you mean "energy"?'),
    (("optimize", SMALL, "--limit", "tme=60 days"), 'Did you mean "time"?'),
    (("optimize", SMALL, "--limit", "time"), "NAME=VALUE"),
    (("optimize", SMALL, "--limit", "time=60"), "no unit"),
    (("optimize", SMALL, "--limit", "time=60 MW"), "limit time"),
    (("optimize", SMALL, "--limit", "time=-60 days"), "negative"),
    (("optimize", SMALL, "--limit", "time=nan days"), "nan days"),
    (("optimize", SMALL, "--limit", "chips=0"), "chips"),
    (("optimize", SMALL, "--vary", "plan.clok=0.5:1"), 'Did you mean "plan.clock"?'),
    (("optimize", SMALL, "--vary", "plan.clock=0.5"), "LOW:HIGH"),
    (("optimize", SMALL, "--vary", "plan.clock=1:0.5"), "1 is above 0.5"),
    (("optimize", SMALL, "--vary", "plan.power_cap=400:700 GB"), "400 GB"),
    (("optimize", SMALL, "--fix", "plan.clok"), 'Did you mean "plan.clock"?'),
    (("optimize", SMALL, "--vary", "model.hidden=1000:4000"), "without bounds of its own"),
    (("optimize", SMALL, "--vary", "model.depth"), 'Shape variable "depth" is none of'),
    ((*SHAPE, "--tolerance", "0.1"), "a search of the model's shape has none"),
    ((*SHAPE, "--minimize", "loss"), "the loss is held"),
    ((*SHAPE, "--vary", "plan.batch@0..1"), "only optimize lets it vary, for the model as it is"),
    ((*SHAPE, "--vary", "plan.layout.tensor=1:8"), "the layout stays while the shape varies"),
    (("pareto", SMALL, "--vary", "model.hidden=1000:4000"), "energymodel optimize --vary model.*"),
    (("pareto", SMALL, "--minimize", "energy"), "two or more"),
    (("pareto", SMALL, "--minimize", "energy", "--minimize", "tme"), 'Did you mean "time"?'),
    (("pareto", SMALL, "--minimize", "energy", "--minimize", "mfu"), "better"),
    (("pareto", SMALL, "--points", "1"), "1 points"),
    (("predict",), "give a configuration file, or a CSV file"),
    (("predict", "t.csv", "--chips", "8"), "--chips: a table says it itself"),
    (("predict", "train.toml", "--rename", "a=b"), "--rename belongs to a table"),
    (("presets", "list", "hardwar"), 'Did you mean "hardware"?'),
    (("presets", "show", "h100-sx"), 'Did you mean "h100-sxm"?'),
    (("presets", "show", "hardwar/h100-sxm"), 'Did you mean "hardware"?'),
    (("presets", "show", "models/h100-sxm"), '"h100-sxm" among models'),
    (("replan", SMALL, "--so-far", "x.toml", "--rest", "rest.json"), "Choose one of .toml"),
    (("scenario", "--model", "test-1b", *PIECES[2:], "--vocabulary", "9"), "belongs to a --training file"),
    (("sensitivity", SMALL, "--of", "enrgy"), 'Did you mean "energy"'),
    (("sensitivity", SMALL, "--minimize", "money"), "--minimize is about the optimum: add --optimum"),
    (("sensitivity", SMALL, "--limit", "time=2 days"), "add --optimum"),
    (("sensitivity", SMALL, "--optimum", "--of", "energy"), "leave out --optimum"),
    (("sensitivity", SMALL, "--optimum", "--minimize", "enrgy"), 'Did you mean "energy"'),
    (("sweep", SMALL), "sweep: no axis"),
    (("sweep", SMALL, "--of", "energy"), "--of needs samples"),
    (("sweep", SMALL, "--samples", "9", "--polish"), "--polish needs a grid"),
    (("sweep", SMALL, "--axis", "plan.clock=0.5:1:2", "--dry-run", "-o", "r.html"), "--dry-run computes nothing that"),
    (("timeline", SMALL, "--per", "phase"), "Add --clocks"),
    ((*CLOCKS, "--per", "stage"), 'per: unknown "stage"'),
    ((*CLOCKS, "--slowdown", "2 s"), "slowdown:"),
    (("timeline", "llama-3.1-405b-h100", "--set", "plan.batch=16.5 Mi tokens"), "whole micro-batches"),
    (("stage-clocks", SMALL, "--per", "rank"), "`energymodel timeline --clocks` now"),
    (("site-power", SMALL, "--power", "1 MW"), "`energymodel fleet --site` now"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_preset_suggests_the_nearest(command):
    assert_bad_input([command, "llama-3.1-405b-h10"], "llama-3.1-405b-h10", 'Did you mean "llama-3.1-405b-h100"?')


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
def test_bad_change(change):
    assert_bad_input(["evaluate", SMALL, "--set", change[0]], *change[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_checks_changes(command):
    assert_bad_input([command, SMALL, "--set", CHANGES[0][0]], *CHANGES[0][1:])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file[0])
def test_bad_file(file, tmp_path, monkeypatch):
    name, content, *mentioned = file
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert_bad_input(["evaluate", name], *mentioned)


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [("run.parquet", (".parquet", ".json", ".csv")), ("run", ("run", ".json")), ("nowhere/run.json", ("nowhere",))],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written(command, name, mentioned, tmp_path):
    assert_bad_input([command, SMALL, "-o", str(tmp_path / name)], *mentioned)


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_options_that_cannot_be_answered(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in " ".join(result.stderr.split())
    assert result.stderr.splitlines()[-1].startswith("energymodel: error: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((SMALL, *PIECES), "with --model or --training there is no SCENARIO"),
        ((SMALL, "--chips", "8"), "--chips belongs to --model or --training"),
        ((), "no scenario. Give its name or file, or --model"),
        (("--model", "test-1b", "--accelerator", "h100-sxm"), "--chips, --tokens is missing"),
        (("--model", "test-1b", "--chips", "8"), "--accelerator is missing"),
        ((*PIECES, "--vocabulary", "9"), "belongs to a --training file"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "pareto"])
def test_what_is_no_source_is_refused(command, words, message):
    assert_bad_input([command, *words], message)


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", SMALL),
        ("sensitivity", SMALL),
        ("sweep", SMALL, "--axis", "plan.clock=0.5:1:2"),
        ("predict", "--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "8"),
        ("calibrate", "power", "runs.csv"),
        ("monitor", SMALL, "--log", "train.log"),
    ],
)
def test_files_that_cannot_be_made_are_refused_before_the_work(words, tmp_path, monkeypatch):
    assert_bad_input([*words, "--open"], "--open shows a page, and none is written. Add -o report.html.")
    assert_bad_input([*words, "-o", "report.docx"], ".html")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert_bad_input(
        [*words, "-o", str(tmp_path / "f.png")], 'figures need matplotlib. Install it: pip install "energy'
    )


def test_usage_errors_exit_with_2():
    for words in (("compare",), ("evaluate", SMALL, "--sett", "plan.clock=0.8"), ("evluate", SMALL)):
        assert run(*words).exit_code == 2
