"""`fleet`: groups, a search with whole micro-batches, the power of a site divided, and errors."""

import jax
import numpy as np
import pytest

from cli.shell import SMALL, numbers, rows_of, run, run_json
from energymodel.errors import InputError
from energymodel.scenarios.scenario import load_scenario
from energymodel.search import fleet as fleet_search
from energymodel.search.fleet import load_fleet, optimize_fleet
from energymodel.search.relaxation import evaluate_points
from energymodel.search.site import divide_site_power
from energymodel.system.outputs import output

SITE = ("fleet", "llama-3.1-405b-h100", "--site")
OTHERS = "a100-sxm4-80gb 8"


def outcome(fleet, name):
    return float(output(fleet.job, name))


def test_the_command_shows_groups_and_writes_files(tmp_path):
    files = ("-o", str(tmp_path / "f.csv"), "--plot", str(tmp_path / "f.svg"))
    tree = run_json("fleet", SMALL, "--group", OTHERS, *files)
    groups, fleet, alone = tree["tables"]["groups"]["rows"], numbers(tree), numbers(tree, row=2)
    assert [row["row"] for row in groups] == ["h100-sxm", "a100-sxm4-80gb"]
    assert sum(row["token_share"] for row in groups) == pytest.approx(1.0)
    assert alone["row"] == "h100-sxm alone"
    assert fleet["time"] < alone["time"]
    assert [float(row["token_share [1]"]) for row in rows_of(tmp_path / "f.csv")] == [
        row["token_share"] for row in groups
    ]
    assert "<svg" in (tmp_path / "f.svg").read_text()
    again = load_fleet(tree["scenario"])
    np.testing.assert_allclose(float(again.evaluate().job.time), fleet["time"], rtol=1e-12)


def test_a_scenario_states_its_groups(tmp_path):
    path = tmp_path / "mixed.toml"
    path.write_text(
        f'base = "{SMALL}"\n[fleet.old]\naccelerator = "a100-sxm4-80gb"\nchips = 8\nclock = 0.8\npower_cap = "350 W"\n'
    )
    group = load_fleet(path).groups[1]
    plan = group.scenario.plan
    assert group.name == "old"
    assert [float(np.asarray(leaf)) for leaf in (plan.chips, plan.clock, plan.power_cap)] == [8.0, 0.8, 350.0]
    assert run("evaluate", str(path)).exit_code == 2
    with pytest.raises(InputError, match="energymodel fleet"):
        load_scenario(path)


def test_a_search_asks_what_the_fleet_takes():
    groups = load_fleet(SMALL, [OTHERS])
    own = groups.evaluate()
    asked = fleet_search._problem(groups, "energy", {"time": float(own.job.time)}, own)
    point = np.log([*(float(plan.clock) for _, plan in groups.pairs), *np.asarray(own.work), 1.0])
    lattice = jax.tree.map(lambda leaf: np.full(1, float(leaf)), groups.main.plan.layout)
    values = evaluate_points(asked, point[None, None], lattice)
    np.testing.assert_allclose(values.objective, np.log([[outcome(own, "energy")]]), rtol=1e-9)


@pytest.mark.slow
def test_the_search_saves_energy_with_whole_microbatches():
    """A limit of the time that binds has a price, and a later one saves what it says, to first order."""
    fleet = load_fleet(SMALL, [OTHERS], ["plan.batch=2 Mi token"])
    within = optimize_fleet(fleet, "energy")
    time = within.limits["time"]
    later = optimize_fleet(fleet, "energy", {"time": 1.001 * time})
    for optimum in (within, later):
        assert optimum.success
        assert all(isinstance(count, int) for count in optimum.microbatches)
        assert outcome(optimum.outcome, "time") <= optimum.limits["time"] * (1.0 + 1e-6)
        assert outcome(optimum.outcome, "energy") <= outcome(optimum.own, "energy")
    assert within.microbatches == later.microbatches
    saved = 1.0 - outcome(later.outcome, "energy") / outcome(within.outcome, "energy")
    assert within.prices["time"] > 0.01
    np.testing.assert_allclose(saved / 0.001, within.prices["time"], rtol=0.05)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("a100-sxm4-80gb", "is not an accelerator and its number of chips"),
        ("a100 8", "fleet.a100.*Unknown preset"),
        ("a100-sxm4-80gb 0", "is not a number of chips"),
        ("a100-sxm4-80gb 8.5", "replicas in the layout"),
        ("a100-sxm4-80gb 8 speed=1", 'unknown key "speed"'),
        ("a100-sxm4-80gb 8 clock=3", "plan.clock: 3"),
        ("a100-sxm4-80gb 8192", "plan.batch.*fewer than 1"),
    ],
)
def test_what_is_no_group_is_refused(group, words):
    with pytest.raises(InputError, match=words):
        load_fleet(SMALL, [group])


def test_what_a_fleet_cannot_have_is_refused():
    with pytest.raises(InputError, match="0 further groups"):
        load_fleet(SMALL)
    with pytest.raises(InputError, match="a fleet needs one value"):
        load_fleet(SMALL, [OTHERS], {"plan.batch": ["1 Mi tokens", "2 Mi tokens"]})
    fleet = load_fleet(SMALL, [OTHERS])
    with pytest.raises(InputError, match="limit chips: a fleet has it as given"):
        optimize_fleet(fleet, "energy", {"chips": 4.0})
    with pytest.raises(InputError, match=r"optimize plan\.chips: a fleet varies its clocks"):
        optimize_fleet(load_fleet({"base": SMALL, "optimize": {"fix": ["plan.chips"]}}, [OTHERS]), "energy")
    with pytest.raises(InputError, match="minimize loss"):
        optimize_fleet(fleet, "loss")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    files = ("-o", str(folder / "s.csv"), "--plot", str(folder / "s.svg"))
    return run_json(*SITE, "--power", "16 MW", "--power", "16.2 MW", "--power", "20 MW", *files), folder


def test_parts_add_up_to_the_limit_and_rows_are_the_same(site):
    tree, folder = site
    written = [float(row["throughput [token/s]"]) for row in rows_of(folder / "s.csv")]
    rows = tree["tables"]["site_power"]["rows"]
    assert written == [row["throughput"] for row in rows]
    parts = ("compute", "memory", "network", "host", "delivery_loss", "cooling", "other")
    for row in rows:
        assert sum(row[part] for part in parts) == pytest.approx(row["limit"], rel=1e-5)
    assert {"compute", "cooling"} <= set(tree["tables"]["site_power"]["columns"])
    assert "Power of the site at each limit" in (folder / "s.svg").read_text(encoding="utf-8")


def test_the_price_is_what_the_next_watt_brings(site):
    low, near, high = site[0]["tables"]["site_power"]["rows"]
    slope = (near["throughput"] - low["throughput"]) / (near["limit"] - low["limit"])
    assert slope == pytest.approx(0.5 * (low["price"] + near["price"]), rel=1e-3)
    assert high["price"] < low["price"]
    assert high["clock"] > low["clock"]


def test_without_limits_shares_of_the_highest_power_of_the_plan():
    limits = np.array([divided.limit for divided in divide_site_power(load_scenario(SITE[1]))])
    np.testing.assert_allclose(limits / limits[-1], [0.6, 0.7, 0.8, 0.9, 1.0])


@pytest.mark.slow
def test_a_power_below_the_lowest_of_a_site_is_refused():
    with pytest.raises(InputError, match="is not enough: at the lowest clock and width, the site needs"):
        divide_site_power(load_scenario(SITE[1]), ["1 MW"])
