"""Are topologies compared with their best plans, on the switches of the network, with their numbers free to vary?"""

import pytest

from cli.shell import run
from energymodel.errors import InputError
from energymodel.performance.dragonfly import Dragonfly
from energymodel.performance.rail_only import RailOnly
from energymodel.performance.topology import FatTree
from energymodel.report.compare_report import compare_csv
from energymodel.scenarios.scenario import load_scenario
from energymodel.scenarios.topology_choice import topology_changes
from energymodel.search.compare import Candidate, Comparison, compare

SMALL, LARGE = "test-1b-h100", "llama-3.1-405b-h100"
PATH = "system.network.topology"


@pytest.mark.parametrize("name", ["fat-tree", "rail-only", "dragonfly"])
def test_topologies_are_of_the_switches_of_the_network(name):
    own = load_scenario(LARGE, {f"{PATH}.radix": 96, f"{PATH}.switch_lanes": 384})
    asked = [f"{PATH}.radix=96", f"{PATH}.hop_latency=3e-7 s"]
    changes = topology_changes(name, own.system.network.topology, asked)
    found = load_scenario(LARGE, changes).system.network.topology
    assert isinstance(found, FatTree | RailOnly | Dragonfly)
    assert float(found.switch_lanes) == 384.0
    assert float(found.hop_latency) == 3e-7
    # Balanced of at most 96 ports: 24 hosts, 24 global links, 48 routers, 95 ports.
    assert float(found.radix) == (95.0 if name == "dragonfly" else 96.0)
    if not isinstance(found, Dragonfly):
        assert float(found.pod) == 96.0**2 / 4.0


def test_a_torus_has_no_switches():
    own = load_scenario(LARGE).system.network.topology
    assert topology_changes("torus", own, []) == [f"{PATH}=torus"]


def test_rows_name_network_and_topology():
    shown = Candidate(None, None, "infiniband-400g", "rail-only", 64, None, "none")
    assert shown.name == "infiniband-400g, rail-only, 64 chips"
    rows = compare_csv(Comparison("energy", "J", {}, (shown,))).splitlines()
    assert dict(zip(*(line.split(",") for line in rows), strict=True))["topology"] == "rail-only"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--topology", "rail-onyl"), 'topology: unknown "rail-onyl". Did you mean "rail-only"?'),
        (("--topology", "torus", "--vary", "system.network.topology.oversubscription=1:8"), "oversubscription"),
        (("--network", "infiniband-400h"), "infiniband-400g"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(options, words):
    result = run("compare", SMALL, *options)
    assert result.exit_code != 0
    assert words in " ".join((result.stderr + result.stdout).split())


def test_an_unknown_topology_is_refused_in_python_alike():
    with pytest.raises(InputError, match='unknown "rail-onyl"'):
        compare(SMALL, topologies=("rail-onyl",))


@pytest.mark.slow
def test_each_topology_has_its_best_plan_with_oversubscription_free():
    changes = ("plan.chips=16", "system.facility.power_limit=1 MW", f"{PATH}.radix=4", f"{PATH}.pod=4")
    path = f"{PATH}.oversubscription"
    found = compare(SMALL, topologies=("fat-tree", "rail-only"), changes=changes, vary={path: (1.0, 8.0)})
    assert [one.topology for one in found.candidates] == ["rail-only", "fat-tree"]  # 2 ports a rail, 16 of the tree
    assert not any(one.reason for one in found.candidates)
    rails, tree = (one.optimum for one in found.candidates)
    assert rails is not None
    assert tree is not None
    assert 1.0 <= rails.found[path] <= 8.0
    assert 1.5 < tree.found[path] <= 8.0  # little traffic leaves a pod, and its links draw power
    assert path in compare_csv(found)
