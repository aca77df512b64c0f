"""Best plans of variants: combinations ranked, process generations, topologies, and refusals."""

import dataclasses
import json
import math

import numpy as np
import pytest

from cli.shell import numbers, run, run_json
from energymodel.errors import InputError
from energymodel.performance.switch_topologies import Dragonfly, FatTree, RailOnly
from energymodel.report.answers.pareto import combinations_table, frontier_answer
from energymodel.report.cells import Quantity
from energymodel.scenarios.layers import topology_changes
from energymodel.scenarios.scenario import load_scenario
from energymodel.search.compare import CHOICES, GENERATIONS, Candidate, Comparison, Frontier, compare, frontier
from energymodel.search.optimize import optimize
from energymodel.search.training_run import SLOWDOWN
from energymodel.sweeps.outcome_spread import deviation, outcome_spread, spreads_together
from energymodel.system.evaluate import evaluate_once
from energymodel.system.outputs import objective_value
from report.reference_optimum import optimum

SMALL, LARGE = "test-1b-h100", "llama-3.1-405b-h100"
PATH = "system.network.topology"


@pytest.fixture(scope="module")
def comparison():
    return compare(SMALL, accelerators=("h100-sxm", "v100-sxm2-32gb"), precisions=("bf16", "fp8"), chips=(8,))


@pytest.fixture(scope="module")
def steps():
    return frontier(SMALL, points=2, last=4.0)


@pytest.mark.slow
def test_the_best_plan_of_each_is_that_of_a_search(comparison):
    by_name = {candidate.name: candidate for candidate in comparison.candidates}
    assert next(iter(by_name)) == "h100-sxm, fp8, 8 chips"
    own = by_name["h100-sxm, bf16, 8 chips"]
    assert own.reason == ""
    alone = optimize(load_scenario(SMALL), keep_layout=False)
    assert own.optimum.value == pytest.approx(alone.value, rel=1e-9)
    values = [candidate.optimum.value for candidate in comparison.candidates if not candidate.reason]
    assert values == sorted(values)
    np.testing.assert_allclose(alone.limits["loss"], comparison.limits["loss"], rtol=1e-12)
    assert "has no fp8" in by_name["v100-sxm2-32gb, fp8, 8 chips"].reason
    assert "No plan obeys these limits together" in by_name["v100-sxm2-32gb, bf16, 8 chips"].reason


def test_the_table_holds_all_combinations():
    best, refused = optimum(), "v100-sxm2-32gb has no fp8"
    other = dataclasses.replace(best, value=1.25 * best.value)
    candidates = (
        Candidate("h100-sxm", "fp8", None, None, 8, best),
        Candidate("h100-sxm", "bf16", None, None, 8, other),
        Candidate("v100-sxm2-32gb", "fp8", None, None, 8, reason=refused),
    )
    table = combinations_table(Comparison("energy", "J", {}, candidates))
    values, more = (
        [cell.value for cell in table.column(name)[1] if isinstance(cell, Quantity)] for name in ("value", "more")
    )
    assert values == [best.value, other.value]
    assert more == pytest.approx([0.0, 0.25])
    assert table.column("reason")[1][2] == refused
    assert len(table.rows) == 3


@pytest.fixture
def searched(monkeypatch):
    """A search that takes the plan of each scenario as its best one, and remembers what it was asked."""
    asked = []

    def answer(scenario, *, minimize, limits, vary, keep_layout):
        outcome = evaluate_once(scenario.system, scenario.plan)
        scenario = scenario.with_question(minimize, limits, vary)
        asked.append(scenario)
        value = float(objective_value(outcome, minimize))
        return dataclasses.replace(
            optimum(), scenario=scenario, plan=scenario.plan, outcome=outcome, value=value, found={}, varied=()
        )

    monkeypatch.setattr("energymodel.search.compare.optimize", answer)
    return asked


PIECES = ("--model", "llama-3.1-8b", "--tokens", "100 G", "--chips", "16")
CHIPS = ("--accelerator", "h100-sxm", "--accelerator", "a100-sxm4-80gb")


def test_pieces_are_compared_at_the_loss_of_one_and_in_the_time_of_the_slowest(searched):
    result = run("compare", *PIECES, *CHIPS, "--json")
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == len(set(notes))
    assert sum("Assumed of the run: Megatron-LM; " in note for note in notes) == 1
    tree = json.loads(result.stdout)
    assert [scenario.system.accelerator.rated_power for scenario in searched] == [700.0, 400.0]
    assert all("layout" in scenario.chosen for scenario in searched)
    assert float(searched[1].system.facility.power_limit) == 3 * 400.0 * 16  # a building for its own chips
    runs = [evaluate_once(scenario.system, scenario.plan) for scenario in searched]
    for scenario in searched:
        limits = scenario.optimize.limits
        assert limits["chips"] == 16.0
        assert limits["loss"] == pytest.approx(float(runs[0].loss), rel=1e-9)
        assert limits["time"] == pytest.approx(1.05 * max(float(run.time) for run in runs), rel=1e-9)
    rows = [numbers(tree, "combinations", row) for row in range(2)]
    assert [row["name"] for row in rows] == [f"{name}, 16 chips" for name in (CHIPS[1], CHIPS[3])]
    assert len(tree["tables"]["combinations"]["rows"]) == 2  # nobody gave a plan


def test_the_own_plan_is_the_last_row(searched):
    tree = run_json("compare", SMALL, "--accelerator", "h100-sxm", "--accelerator", "b200-sxm", "--chips", "8")
    rows = tree["tables"]["combinations"]["rows"]
    best, own_chip, own = rows
    assert [row["name"] for row in rows] == ["b200-sxm, 8 chips", "h100-sxm, 8 chips", "own plan"]
    assert own["energy"] == own_chip["energy"]
    assert own["more"]["low"] < own["more"]["value"] < own["more"]["high"]
    wide = own["energy"]["high"] / own["energy"]["low"]
    assert (1.0 + own["more"]["high"]) / (1.0 + own["more"]["low"]) < wide**1.5
    assert best["more"] == 0.0
    assert searched[1].optimize.limits["time"] == pytest.approx(float(optimum().baseline.time), rel=1e-9)


def test_a_function_makes_the_scenarios_and_those_that_cannot_be_are_listed(searched):
    def scenario(layers, accelerator, chips):
        if accelerator == "tpu-v5p":
            raise InputError("no node belongs to it")
        return load_scenario(SMALL, [*layers, f"plan.chips={chips or 8}"])

    comparison = compare(scenario, accelerators=("tpu-v5p", "h100-sxm"), chips=(8,))
    assert [candidate.reason for candidate in comparison.candidates] == ["", "no node belongs to it"]
    assert list(comparison.solved) == ["h100-sxm, 8 chips"]


def test_a_number_of_two_runs_moves_both_and_another_one_moves_alone():
    """Time is in proportion to the slowdown: of two that are unlike, their ratio deviates by sqrt(2) sinh(0.22)."""
    slowdown = {"unit": "1", "kind": "prior", "distribution": "lognormal 0.22", "source": "a test"}
    scenarios = [load_scenario(SMALL, {SLOWDOWN: {"value": value, **slowdown}}) for value in (1.252, 1.252, 2.0)]
    runs = {str(index): (scenario, scenario.plan) for index, scenario in enumerate(scenarios)}
    first, same, other = (spread.relative("time") for spread in spreads_together(runs).values())
    assert deviation(first) == pytest.approx(outcome_spread(scenarios[0]).deviation("time"), rel=1e-9)
    assert deviation(same - first) == 0.0
    assert deviation(other - first) == pytest.approx(math.sqrt(2.0) * math.sinh(0.22), rel=0.02)


@pytest.mark.slow
def test_each_step_is_the_best_plan_of_its_generation(steps):
    today, later = steps.steps
    assert (today.generations, later.generations) == (0.0, 4.0)
    assert not today.reason
    assert not later.reason
    scenario = load_scenario(SMALL, ["system.chip_design=scaled", "system.chip_design.generations=4"])
    again = optimize(scenario, minimize="etp", limits=steps.limits, vary=CHOICES, keep_layout=False)
    assert later.optimum.value == pytest.approx(again.value, rel=1e-4)
    assert later.optimum.found[GENERATIONS] == pytest.approx(4.0, rel=1e-4)
    assert later.optimum.value < 0.5 * today.optimum.value
    assert later.optimum.found["system.chip_design.voltage"] == pytest.approx(
        again.found["system.chip_design.voltage"], rel=1e-2
    )
    # Energy of an operation goes with 0.69 a generation and with the square of the supply, but for the cache.
    volts = [step.optimum.found["system.chip_design.voltage"] for step in (today, later)]
    expected = 0.69**4 * (volts[1] / volts[0]) ** 2
    assert later.operation_energy / today.operation_energy == pytest.approx(expected, rel=0.05)
    ratio = later.landauer_multiple / today.landauer_multiple
    assert ratio == pytest.approx(later.operation_energy / today.operation_energy)


@pytest.mark.slow
def test_the_table_holds_all_steps(steps):
    answer = frontier_answer(steps)
    assert answer.title == "Plans of the lowest energy-time product"
    table = answer.table("steps")
    today, later = (table.number("energy", row)[1].value for row in range(len(table.rows)))
    assert later < today
    assert "loss" in str(table.column("binds")[1][0])


def test_the_objective_never_rises_along_the_path(monkeypatch):
    """A search that ends higher than one at an earlier generation starts again from there, then gives way to it."""
    best, starts = optimum(), []
    worths = iter((1.0, 0.4, 0.6, 0.5, 0.3))

    def found(scenario, *_):
        starts.append(float(scenario.system.chip_design.generations))
        worth = next(worths)
        plan = dataclasses.replace(best, value=1e-30 * worth, scenario=scenario, found={GENERATIONS: 2.0})
        return plan, "not shown" if worth == 0.6 else ""

    monkeypatch.setattr("energymodel.search.compare._optimized", found)
    steps = frontier(SMALL, points=4, last=30.0, minimize="energy").steps
    # At 20 generations it is searched again from 10, 0.3, and at 30 the plan of 20 stays better than its own 0.5.
    assert [step.value / 1e-30 for step in steps] == pytest.approx([1.0, 0.4, 0.3, 0.3])
    assert starts == [0.0, 10.0, 20.0, 30.0, 2.0]
    assert [step.generations for step in steps] == [0.0, 10.0, 20.0, 30.0]
    answer = frontier_answer(Frontier("energy", {}, (*steps[:3], steps[3]._replace(reason="not shown"))))
    assert answer.result == "not trusted"
    assert answer.table("energy_by_generation").number("generations", 3)[1].value == 30.0


@pytest.mark.parametrize("name", ["fat-tree", "rail-only", "dragonfly"])
def test_topologies_are_of_the_switches_of_the_network(name):
    own = load_scenario(LARGE, {f"{PATH}.radix": 96, f"{PATH}.switch_lanes": 384})
    asked = [f"{PATH}.radix=96", f"{PATH}.hop_latency=3e-7 s"]
    changes = topology_changes(name, own.system.network.topology, asked)
    topology = load_scenario(LARGE, changes).system.network.topology
    assert isinstance(topology, FatTree | RailOnly | Dragonfly)
    assert float(topology.switch_lanes) == 384.0
    assert float(topology.hop_latency) == 3e-7
    # Balanced of at most 96 ports: 24 hosts, 24 global links, 48 routers, 95 ports.
    assert float(topology.radix) == (95.0 if name == "dragonfly" else 96.0)
    if not isinstance(topology, Dragonfly):
        assert float(topology.pod) == 96.0**2 / 4.0


def test_a_torus_has_no_switches():
    own = load_scenario(LARGE).system.network.topology
    assert topology_changes("torus", own, []) == [f"{PATH}=torus"]


@pytest.mark.parametrize(
    ("search", "asked", "message"),
    [
        (compare, {"precisions": ("fp16",)}, 'precision: unknown "fp16"'),
        (compare, {"chips": range(1, 67)}, "66 combinations are more than 64"),
        (compare, {"topologies": ("rail-onyl",)}, 'unknown "rail-onyl"'),
        (frontier, {"points": 1}, "points: 1 make no path"),
        (frontier, {"last": 0.0}, "generations: 0 is not above 0"),
        (frontier, {"last": 61.0}, "at most 60"),
        (frontier, {"limits": {"tme": "1 day"}}, 'limit: unknown "tme"'),
    ],
)
def test_too_much_and_unknown_things_are_refused(search, asked, message):
    with pytest.raises(InputError, match=message):
        search(SMALL, **asked)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("compare",), "nothing to compare"),
        (("compare", "--vary", "model.hidden"), "searched by `energymodel optimize --vary model.hidden`"),
        (("compare", "--chips", "8", "--plot", "c.gif"), "Choose one of .json"),
        (("compare", "--topology", "rail-onyl"), 'topology: unknown "rail-onyl". Did you mean "rail-only"?'),
        (("compare", "--topology", "torus", "--vary", f"{PATH}.oversubscription=1:8"), "oversubscription"),
        (("compare", "--network", "infiniband-400h"), "infiniband-400g"),
        (("frontier", "--generations", "-3"), "generations: -3 is not above 0"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(options, words):
    command, *rest = options
    result = run(command, SMALL, *rest)
    assert result.exit_code != 0
    assert words in " ".join((result.stderr + result.stdout).split())


@pytest.mark.slow
def test_each_topology_has_its_best_plan_with_oversubscription_free():
    changes = ("plan.chips=16", "system.facility.power_limit=1 MW", f"{PATH}.radix=4", f"{PATH}.pod=4")
    path = f"{PATH}.oversubscription"
    comparison = compare(SMALL, topologies=("fat-tree", "rail-only"), changes=changes, vary={path: (1.0, 8.0)})
    assert [candidate.topology for candidate in comparison.candidates] == [
        "rail-only",
        "fat-tree",
    ]  # 2 ports a rail, 16 of the tree
    assert not any(candidate.reason for candidate in comparison.candidates)
    rails, tree = (candidate.optimum for candidate in comparison.candidates)
    assert rails is not None
    assert tree is not None
    assert 1.0 <= rails.found[path] <= 8.0
    assert 1.5 < tree.found[path] <= 8.0  # little traffic leaves a pod, and its links draw power
    assert path in combinations_table(comparison).names
