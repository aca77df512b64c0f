"""Layouts that `search_layouts` leaves out hold no better plan."""

import dataclasses
import itertools

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from energymodel.scenarios.question import BATCH
from energymodel.search import layout_search
from energymodel.search.layout_search import (
    LEAST_WORTH,
    MARGIN,
    lower_bounds,
    screen_switched,
    search_layouts,
    worth_of_switches,
)
from energymodel.search.layouts import fitting_layouts, take
from energymodel.search.problem import formulate
from energymodel.search.relaxation import (
    COARSE,
    FINE,
    OPTIONS,
    LayoutSearch,
    Screening,
    evaluate_points,
    layout_bounds,
    obeys_limits,
    pack,
    screen,
    solve_relaxed,
)
from energymodel.search.training_run import TrainingRun
from energymodel.solver import RESULTS
from energymodel.system.evaluate import evaluate_once
from energymodel.system.layouts import SCHEDULING, can_run
from energymodel.system.plan import SCHEDULES, ParallelLayout
from experiment import Experiment
from report.reference_optimum import optimum

ipopt = Experiment("20_joint_search").ipopt.ipopt
SCENARIO = "llama-3.1-405b-h100"
DRAWN = 512  # layouts
RIVAL = 0.3  # in the logarithm: of worse layouts it does not matter how tight their bound is


def posed(name, changes=None, longer=1.0, **question):
    """The problem of a scenario whose run may take some times as long as its own plan."""
    scenario = em.load_scenario(name, changes or {})
    baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))
    limits = {"time": longer * float(baseline.time), **question.pop("limits", {})}
    return formulate(scenario.with_question(limits=limits, **question), baseline)


@pytest.fixture(scope="module")
def problem():
    return posed(SCENARIO)


@pytest.mark.slow
def test_a_switch_is_worth_what_evaluate_says():
    best = optimum()
    problem = formulate(best.scenario, best.baseline)
    paths, plan = problem.formulation.paths, best.plan
    found = {path: plan.batch[0] if path == BATCH else getattr(plan, path.removeprefix("plan.")) for path in paths}
    with jax.enable_x64(True):
        worth = {row.switch: row for row in worth_of_switches(problem, dataclasses.replace(best, found=found))}
        goal = em.TargetLoss(problem.limits["loss"])
        plans = [dataclasses.replace(plan, layout=layout, goal=goal) for layout in switched(plan.layout)]
        own, new = (float(evaluate_once(best.scenario.system, plan).energy.total) for plan in plans)
    assert worth["fp8"].saving == pytest.approx(1.0 - new / own, rel=1e-9)
    assert list(worth) == sorted(worth, key=lambda name: -worth[name].saving)
    assert "fp4" not in worth  # an H100 has no such products
    assert "cuda_graphs" not in worth  # searched
    assert not worth["offload_activations"].keeps_limits  # the run takes longer than the own plan


def switched(layout):
    return layout, dataclasses.replace(layout, fp8=1.0)


@pytest.fixture(scope="module")
def on_torchtitan():
    """A problem whose framework has six schedules and switches, with its layouts."""
    problem = posed("test-1b-h100", {"system.software": "torchtitan", "plan.chips": 32, "plan.batch": "1 Mi token"})
    assert set(problem.switches) == set(SCHEDULING) - {"gpipe", "zero_bubble_h2"}
    return problem, fitting_layouts(problem)[0]


def test_no_combination_of_switches_is_better_where_they_are_chosen(on_torchtitan):
    problem, lattice = on_torchtitan
    plain, (switched, screening) = screen(problem, lattice, COARSE), screen_switched(problem, lattice)
    lanes = plain.best(64)
    assert np.all(screening.merit[lanes] <= plain.merit[lanes])
    assert np.mean([float(np.mean(getattr(switched, name)[lanes])) > 0.0 for name in problem.switches]) > 0.5
    points = plain.start[lanes][:, None]
    chosen = Screening(points, evaluate_points(problem, points, take(switched, lanes)))
    lowest = np.full(len(lanes), np.inf)
    for schedule, *others in itertools.product((None, *set(SCHEDULES) & set(problem.switches)), *[(0.0, 1.0)] * 3):
        fields = dict(zip(("async_tensor", "cuda_graphs", "context_all_to_all"), others, strict=True))
        fields |= {name: float(name == schedule) for name in SCHEDULES}
        layouts = take(lattice, lanes)
        layouts = dataclasses.replace(layouts, **{name: np.full(len(lanes), value) for name, value in fields.items()})
        merit = Screening(points, evaluate_points(problem, points, layouts)).merit
        lowest = np.minimum(lowest, np.where(can_run(problem.run.system, layouts), merit, np.inf))
    assert np.all(chosen.merit <= lowest + len(problem.switches) * LEAST_WORTH)


def test_switches_that_somebody_decides_stay_with_him(on_torchtitan):
    problem, _ = on_torchtitan
    scenario = em.load_scenario("test-1b-h100", {"system.software": "torchtitan"})
    baseline = jax.tree.map(np.asarray, evaluate_once(scenario.system, scenario.plan))

    def switches(**ends):
        vary = {f"plan.layout.{name}": value for name, value in ends.items()}
        return set(formulate(scenario.with_question(vary=vary, fix=["plan.layout.cuda_graphs"]), baseline).switches)

    free = set(problem.switches) - {"cuda_graphs"}
    assert switches(zero_bubble=[0, 1]) == free
    assert switches(zero_bubble_h2=[0, 1]) == free | {"zero_bubble_h2"}  # which the framework does not offer
    assert switches(zero_bubble=[1, 1]) == free - set(SCHEDULES)


def test_all_to_alls_divide_no_more_chips_than_heads(on_torchtitan):
    system = on_torchtitan[0].run.system
    heads, (tensor, context) = float(system.workload.heads), np.array([[4.0, 4.0, 8.0, 8.0], [1.0, 4.0, 4.0, 4.0]])
    plain = ParallelLayout(tensor=tensor, context=context, context_all_to_all=np.array([1.0, 1.0, 1.0, 0.0]))
    lattice = jax.tree.map(lambda leaf: np.broadcast_to(leaf, 4), plain)
    assert heads == 16.0
    np.testing.assert_array_equal(can_run(system, lattice), [True, True, False, True])


@pytest.fixture(scope="module")
def lattice(problem):
    return fitting_layouts(problem)[0]


@pytest.fixture(scope="module")
def searched(problem, lattice):
    return search_layouts(problem, lattice)


@pytest.mark.slow
def test_no_layout_that_is_left_out_is_better(monkeypatch):
    # The optimum has 32 times the chips of the scenario's own plan and four times its batch.
    roomy = {"system.facility.power_limit": "1 MW"}
    problem = posed("test-1b-h100", roomy, minimize="time", limits={"chips": 256.0})
    lattice, _ = fitting_layouts(problem)
    monkeypatch.setattr(layout_search, "FIRST", 4)
    searched = search_layouts(problem, lattice)
    assert searched.solution.x[searched.best][problem.index("plan.chips")] > np.log(200.0)
    assert len(searched.solution.value) < len(lattice.tensor) / 2
    every = solve_relaxed(problem, lattice, screen(problem, lattice, FINE).start)
    values = np.where(obeys_limits(every), every.value, np.inf)
    assert np.isfinite(values).sum() > 100
    np.testing.assert_allclose(np.sort(searched.values)[:2], np.sort(values)[:2], rtol=0.0, atol=1e-5)


@pytest.mark.slow
def test_a_layout_that_needs_its_smallest_batch_is_found():
    # Activations of 16 chunks a rank fit only with the fewest micro-batches, and once the pipeline is full no smaller
    # step down would help: from starts with more of them every search of this layout stood still.
    problem = posed(SCENARIO, minimize="time")
    lattice, _ = fitting_layouts(problem)
    searched = search_layouts(problem, lattice)
    best = searched.best
    layout = take(searched.lattice, np.array([best]))
    assert (float(layout.pipeline[0]), float(layout.virtual_stages[0])) == (8.0, 16.0)
    rng = np.random.default_rng(7)
    low, high = layout_bounds(problem, take(layout, np.zeros(64, int)))
    random = solve_relaxed(problem, take(layout, np.zeros(64, int)), rng.uniform(low, high), patient=True)
    least = np.min(random.value[obeys_limits(random)])
    np.testing.assert_allclose(searched.solution.value[best], least, rtol=0.0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("longer", [1.5, 3.0])
def test_no_layout_drawn_at_random_is_better_than_its_bound_says(longer):
    problem = posed(SCENARIO, longer=longer)
    lattice, _ = fitting_layouts(problem)
    searched = search_layouts(problem, lattice)
    bound = lower_bounds(searched, lattice, screen(problem, lattice, COARSE))
    # Half of them from the layouts with the lowest bounds: those could win.
    drawn = np.random.default_rng(5).choice(len(bound), DRAWN, replace=False)
    drawn = np.unique(np.concatenate([drawn, np.argsort(bound)[:DRAWN]]))
    part = take(lattice, drawn)
    solution = solve_relaxed(problem, part, screen(problem, part, FINE).start)
    usable = obeys_limits(solution)
    assert np.sum(usable) > 100
    assert np.min(solution.value[usable]) >= searched.solution.value[searched.best] - 1e-6
    second = np.sort(searched.values)[1]
    excluded = bound[drawn] >= second + MARGIN
    assert np.sum(excluded & usable) > 100
    assert np.min(solution.value[excluded & usable]) >= second
    rival = usable & (solution.value < second + RIVAL)
    assert np.all(bound[drawn][rival] - MARGIN <= solution.value[rival])


@pytest.mark.slow
def test_layouts_stay_rivals_where_the_multipliers_of_an_infeasible_lane_are_gone():
    problem = posed("test-1b-h100", minimize="energy", limits={"time": 60.0})
    lattice, _ = fitting_layouts(problem)
    coarse = screen(problem, lattice, COARSE)
    searched = search_layouts(problem, lattice)
    assert not searched.usable.any()
    bounds = lower_bounds(searched, lattice, coarse)
    least = np.min(np.max(coarse.values.inequalities, axis=2), axis=1)  # what a grid can only overstate
    for gone in (0.0, -1e-3, 1e-320, np.nan):
        y = np.full_like(searched.solution.multipliers.inequalities, gone)
        without = eqx.tree_at(lambda search: search.solution.multipliers.inequalities, searched, y)
        bound = lower_bounds(without, lattice, coarse)
        assert np.all(np.isfinite(bound) == np.isfinite(bounds))
        assert np.all(bound[np.isfinite(bound)] <= least[np.isfinite(bound)])


def test_lanes_that_all_break_their_limits_are_searched_from_elsewhere():
    problem = posed("test-1b-h100", minimize="energy")
    lattice, _ = fitting_layouts(problem)
    part = take(lattice, screen(problem, lattice, COARSE).best(3))
    usable = LayoutSearch(problem, part, solve_relaxed(problem, part, screen(problem, part, FINE).start))
    assert usable.usable.all()
    gone = np.full_like(usable.solution.slacks.inequalities, -1.0), np.full_like(usable.solution.value, 99.0)
    stuck = eqx.tree_at(lambda search: (search.solution.slacks.inequalities, search.solution.value), usable, gone)
    assert not stuck.usable.any()
    again = layout_search._search_elsewhere(stuck)
    assert again.usable.all()
    np.testing.assert_allclose(again.solution.value, usable.solution.value, rtol=0.0, atol=1e-5)


@pytest.mark.slow
def test_a_deadline_that_the_fastest_plan_keeps_is_kept():
    # From the best point of the grid every search ended at a clock above the knee, where power and time exclude each
    # other; 27,712 chips at a clock of 0.8 keep both.
    published = em.load_scenario(SCENARIO)
    loss = float(evaluate_once(published.system, published.plan).loss)
    scenario = em.load_scenario(SCENARIO, {"plan.chips": 32768.0, "plan.batch": f"{32768 / 128 * 16 * 8192} tokens"})
    family = {"tensor": 8.0, "pipeline": 8.0, "virtual_stages": 16.0, "context": 1.0, "shard_gradients": 1.0}
    vary = {f"plan.layout.{name}": (value, value) for name, value in family.items()}
    limits = {"facility_power": 25e6, "chips": 131072.0, "loss": loss}
    fastest = em.optimize(scenario, minimize="time", limits=limits, vary=vary, tolerance=0.0)
    assert fastest.success
    limits["time"] = 1.02 * float(fastest.outcome.time)
    cheapest = em.optimize(scenario, minimize="money", limits=limits, vary=vary, tolerance=0.0)
    assert cheapest.success, cheapest.message
    assert float(cheapest.outcome.time) <= limits["time"] * (1.0 + 1e-6)


@pytest.mark.slow
def test_ipopt_finds_the_same_optimum_of_the_best_layout(problem, searched):
    best = searched.best
    layout = take(searched.lattice, np.array([best]))
    low, high = layout_bounds(problem, layout)
    layout = jax.tree.map(lambda leaf: leaf[0], layout)
    optimum = ipopt(
        problem.formulation.values,
        0.5 * (low + high)[0],
        args=(layout, problem.criteria, problem.run),
        bounds=(low[0], high[0]),
        options=OPTIONS,
    )
    assert bool(optimum.result == RESULTS.successful)
    np.testing.assert_allclose(optimum.value, searched.solution.value[best], rtol=0.0, atol=1e-6)


@pytest.mark.slow
def test_the_others_are_worse_by_more_than_the_margin(searched):
    assert searched.left == 0
    assert searched.others >= searched.solution.value[searched.best] + MARGIN


def test_parts_that_are_off_belong_to_the_program_and_numbers_of_devices_do_not():
    packed = pack({"off": 0.0, "on": np.ones(2), "rate": 3.0})
    np.testing.assert_array_equal(packed.numbers, [3.0])
    trees = []
    jax.eval_shape(lambda packed: trees.append(packed.tree), packed)
    assert [name for name, leaf in trees[0].items() if isinstance(leaf, np.ndarray)] == ["off", "on"]
    np.testing.assert_array_equal(packed.tree["on"], np.ones(2))
    assert float(packed.tree["rate"]) == 3.0
    scenario = em.load_scenario("test-1b-h100")
    run = TrainingRun(scenario.system, scenario.plan)
    switches = dict(zip(run.paths, pack(run).switches, strict=True))
    assert run.number("system.accelerator.peak_flops_fp4") == run.number("system.workload.window") == 0.0
    assert switches["system.accelerator.peak_flops_fp4"] is None
    assert switches["system.workload.window"] == 0.0
    lanes = pack({"layout": np.zeros((4, 2)), "own": np.arange(4.0)}, 4).take(np.array([2, 3]))
    np.testing.assert_array_equal(lanes.numbers, [[0.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
