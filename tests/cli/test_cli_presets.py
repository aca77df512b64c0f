"""`presets`: lists everything; what it shows reads back."""

import math
import statistics
import tomllib
import warnings

import pytest

import energymodel as em
from cli.shell import SMALL, run, run_json
from energymodel.calibration.cluster_source import cluster_scenario
from energymodel.cli.installed_commands import ALONE, find, preset_toml, scenario_toml
from energymodel.errors import InputError
from energymodel.monitor.expectation import course_prior
from energymodel.report.answers.presets import KINDS
from energymodel.scenarios.files import CATEGORIES, names, read_preset


def test_the_list_names_every_preset_with_its_title():
    text = run("presets").stdout
    assert all(name in text for category in CATEGORIES for name in (category, *names(category)))
    assert "NVIDIA H100 SXM5, 80 GB" in text
    listed = [(row["category"], row["preset"]) for row in run_json("presets")["tables"]["presets"]["rows"]]
    assert listed == [(category, name) for category in CATEGORIES for name in names(category)]


def test_a_category_has_main_numbers_and_marks_priors():
    lines = {line.split()[0]: line for line in run("presets", "hardware").stdout.splitlines() if line.strip()}
    assert set(names("hardware")) <= set(lines)
    for word in ("989.4 TFLOP/s", "85.52 GB", "3.35 TB/s", "700 W", "1.83 GHz", "dgx-h100"):
        assert word in lines["h100-sxm"]
    assert "†" not in lines["h100-sxm"]
    assert "165.2 TFLOP/s †" in lines["rtx-4090"]
    assert run("presets", "list", "hardware").stdout == run("presets", "hardware").stdout


def test_a_category_as_json_counts_numbers_of_each_kind():
    listed = {row["preset"]: row for row in run_json("presets", "nodes")["tables"]["presets"]["rows"]}
    assert [*listed] == names("nodes")
    node = listed["mi355x-node"]
    assert node["chips"] == 8.0
    assert len({sum(listed[name][kind] for kind in KINDS) for name in ("mi355x-node", "dgx-h100")}) == 1


def test_a_preset_shows_units_sources_and_uncertainty():
    result = run("presets", "show", "h100-sxm")
    assert result.exit_code == 0
    printed = tomllib.loads(result.stdout)["system"]["accelerator"]
    for name, number in read_preset("hardware", "h100-sxm").items():
        assert printed.get(name) == number or name == "title"
    assert printed["idle_power"]["unit"] == "W"
    assert "lognormal" in printed["idle_power"]["distribution"]


# Files of a category have one form (tests/scenarios), so the first and the last of each stand for all.
COMPONENTS = [
    (category, name)
    for category in CATEGORIES
    if category not in ("scenarios", "clusters", *ALONE)
    for name in sorted(
        {names(category)[0], names(category)[-1]} | ({"near-limit"} if category == "hardware" else set())
    )
]


@pytest.mark.parametrize(("category", "name"), COMPONENTS)
def test_a_shown_component_reads_back_to_the_same_numbers(category, name):
    tables = tomllib.loads(preset_toml(category, name))
    path = next(iter(_places(tables["system"])))
    copied = em.load_scenario({**tables, "plan": _small_plan()})
    system = _nest(path, name)
    if category == "cores":  # of a design
        system = {"chip_design": {"preset": "scaled", "technology": {"core": name}}}
    named = em.load_scenario({"base": tables["base"], "system": system, "plan": _small_plan()})
    assert copied.provenance == named.provenance
    assert em.load_scenario(copied.tables).tables["system"] == copied.tables["system"]
    assert copied.system == named.system


def test_the_numbers_of_a_monitor_are_shown():
    printed = tomllib.loads(preset_toml("courses", "own-run"))
    prior = course_prior()
    assert {name: number["value"] for name, number in printed.items()} == prior._asdict()
    assert all(number["source"] for number in printed.values())


@pytest.mark.parametrize("name", [names("clusters")[0], names("clusters")[-1]])
def test_a_shown_cluster_is_a_scenario(name):
    printed = em.load_scenario(tomllib.loads(preset_toml("clusters", name)))
    cluster = cluster_scenario(name).system
    assert printed.system.accelerator == cluster.accelerator
    assert printed.system.software == cluster.software


@pytest.mark.parametrize("category", ["models", "software", "clusters", "hardware", "networks"])
def test_a_shown_preset_is_a_scenario(category):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of supplies, and of models whose configuration leaves things out
        for name in names(category)[::5]:
            assert em.load_scenario(tomllib.loads(preset_toml(category, name))).provenance


def test_a_shown_scenario_has_every_number_that_the_report_counts(tmp_path):
    scenario = em.load_scenario("llama-3.1-405b-h100")
    printed = scenario_toml(scenario)
    assert {path for path in scenario.provenance if path.startswith("system.")} <= set(_numbers(tomllib.loads(printed)))
    path = tmp_path / "a70b.toml"
    path.write_text(printed, encoding="utf-8")
    again = em.load_scenario(path)
    assert again.system == scenario.system
    assert again.provenance == scenario.provenance
    assert run("presets", "show", str(path)).stdout == scenario_toml(em.load_scenario(path))


def _numbers(tables, path=""):
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from ([f"{path}{key}"] if "value" in value else _numbers(value, f"{path}{key}."))


def _places(system, path=()):
    """Path at which a fragment of a system holds its component."""
    for key, value in system.items():
        if "component" in value or "preset" in value:
            yield (*path, key)
        else:
            yield from _places(value, (*path, key))


def _nest(path, name):
    tables = name
    for part in reversed(path):
        tables = {part: tables}
    return tables


def _small_plan():
    layout = {"tensor": 1, "pipeline": 1, "virtual_stages": 1, "context": 1, "expert": 1, "microbatch": 1}
    return {"chips": 8, "layout": layout, "goal": {"tokens": "1 T tokens"}, "power_cap": "50 W"}


def test_every_scenario_reads_back_exactly():
    for name in names("scenarios"):
        own, copy = em.load_scenario(name), em.load_scenario(tomllib.loads(preset_toml("scenarios", name)))
        assert {**copy.tables, "system": None} == {**own.tables, "system": None}
        assert copy.system == own.system
        assert copy.provenance == own.provenance


def test_a_category_may_be_named():
    assert find(f"scenarios/{SMALL}") == ("scenarios", SMALL)
    assert find("h100-sxm") == ("hardware", "h100-sxm")


def test_an_ambiguous_name_asks_for_the_category(monkeypatch):
    monkeypatch.setattr("energymodel.scenarios.files.names", lambda category: ["twin"] if category[0] == "n" else [])
    with pytest.raises(InputError, match=r'"twin" is ambiguous\. Give nodes/twin or networks/twin\.'):
        find("twin")


def test_a_new_accelerator_takes_from_the_population_what_is_not_stated(tmp_path):
    path = tmp_path / "mine.toml"
    stated = ("--peak", "400 TFLOP/s", "--memory", "64 GB", "--power", "500 W", "--set", "peak_flops_fp8=0.8 PFLOP/s")
    assert run("presets", "new", str(path), *stated).exit_code == 0
    chip = tomllib.loads(path.read_text(encoding="utf-8"))["system"]["accelerator"]
    values = [chip[name]["value"] for name in ("peak_flops", "memory_capacity", "rated_power", "peak_flops_fp8")]
    assert values == [400e12, 64e9, 500.0, 800e12]
    ratios = [
        device["memory_bandwidth"]["value"] / device["peak_flops"]["value"]
        for device in (read_preset("hardware", name) for name in names("hardware") if name != "near-limit")
    ]
    assert chip["memory_bandwidth"]["value"] == pytest.approx(400e12 * statistics.median(ratios), rel=5e-3)
    assert chip["memory_bandwidth"]["kind"] == "prior"
    spread = statistics.pstdev(map(math.log, ratios))
    assert chip["memory_bandwidth"]["distribution"] == f"lognormal {spread:.2g}"
    scenario = em.load_scenario("test-1b-h100", {"system.accelerator": str(path)})
    assert float(scenario.system.accelerator.peak_flops_fp8) == 800e12
    assert scenario.system.accelerator.price > 0.0
    for refused, words in (
        ([str(path), *stated], "exists"),
        ([str(tmp_path / "two.toml"), "--peak", "1 PFLOP/s"], "memory_capacity: missing"),
        ([str(tmp_path / "two.toml"), *stated[:4], "--set", "peak=3"], 'Did you mean "peak_flops"'),
    ):
        result = run("presets", "new", *refused)
        assert result.exit_code == 2
        assert words in result.stderr


def test_an_unknown_accelerator_says_how_to_describe_ones_own():
    result = run("evaluate", "test-1b-h100", "--set", "system.accelerator=gh20")
    assert 'Did you mean "gh200"?' in result.stderr
    assert "energymodel presets new" in result.stderr
