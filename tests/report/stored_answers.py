"""One answer for each command that has moved to `report.answers`, made once for all tests of renderers."""

import dataclasses
import io
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import energymodel as em
from energymodel.calibration.benchmark import Benchmark
from energymodel.calibration.best_setting import EnergyCurve, PowerSetting, Recommendation
from energymodel.calibration.calibrate import Calibration, GroupError
from energymodel.calibration.calibrate_logs import measured_rows
from energymodel.calibration.calibration_case import Candidates, Grouping, PredictedAmount
from energymodel.calibration.fitted_scenario import FittedConstant
from energymodel.calibration.kinds.kernels import UNUSED, MeasuredKernels
from energymodel.explorer.answer import explore_answer
from energymodel.explorer.state import PagePlan
from energymodel.explorer.view import Nearby, View, Warmth
from energymodel.monitor.monitor import Monitor
from energymodel.monitor.status import Status
from energymodel.readers.measured_log import measure_logs
from energymodel.report import terminal
from energymodel.report.answer import Answer
from energymodel.report.answers.batch import batch_answer
from energymodel.report.answers.benchmark import benchmark_answer
from energymodel.report.answers.calendar import calendar_answer
from energymodel.report.answers.calibrate import calibrate_answer
from energymodel.report.answers.details import money_parts
from energymodel.report.answers.doctor import cleared_answer, doctor_answer
from energymodel.report.answers.evaluate import evaluate_answer
from energymodel.report.answers.fleet import fleet_answer, site_answer
from energymodel.report.answers.limits import limits_answer
from energymodel.report.answers.measure import measure_answer
from energymodel.report.answers.monitor import monitor_answer
from energymodel.report.answers.optimize import design_chip_answer, optimize_answer
from energymodel.report.answers.pareto import compare_answer, frontier_answer, pareto_answer
from energymodel.report.answers.post_training import post_training_answer
from energymodel.report.answers.presets import category_answer, presets_answer
from energymodel.report.answers.samples import samples_answer
from energymodel.report.answers.scenario import replan_answer
from energymodel.report.answers.sensitivity import sensitivity_answer
from energymodel.report.answers.sweep import sweep_answer
from energymodel.report.answers.timeline import stage_clocks_answer, timeline_answer
from energymodel.scenarios.pieces import Pieces
from energymodel.search.calendar import calendar
from energymodel.search.compare import CacheSizes, Candidate, Comparison, DesignedOptimum, Frontier, FrontierStep
from energymodel.search.fleet import FleetOptimum, load_fleet
from energymodel.search.pipeline_clocks import StageClocks
from energymodel.search.posterior import Update
from energymodel.search.replan import Forecast, Replan, Rest
from energymodel.search.result import Front, FrontPoint, SearchResult
from energymodel.search.site import SiteChoice, SitePower, SiteSplit
from energymodel.sweeps.batch_curve import BatchCurve, BestBatch
from energymodel.sweeps.best_points import Top
from energymodel.sweeps.first_order import saving_at_risk
from energymodel.sweeps.outcome_spread import OutcomeSpread, outcome_spread
from energymodel.sweeps.post_training import PostTraining, post_training
from energymodel.system.outcome import TrainingOutcome
from energymodel.system.timeline import step_timeline
from energymodel.system.trajectory import RunTrajectory
from monitor.recorded_run import plan as recorded_plan
from monitor.recorded_run import steps_until
from outcomes import outcome_of
from readers.test_measured_log import write_run
from report.reference_optimum import infeasible, optimum
from report.reference_sensitivity import of_optimum, sensitivity
from report.reference_sweep import samples, swept

HOSTILE = '</title><script>alert("x")</script> \u202ereversed & <b>bold'


@lru_cache(maxsize=1)
def evaluated() -> tuple[em.Scenario, TrainingOutcome, OutcomeSpread]:
    """A small run whose title is hostile."""
    scenario = dataclasses.replace(em.load_scenario("test-1b-h100"), title=HOSTILE)
    return scenario, outcome_of("test-1b-h100"), outcome_spread(scenario)


def front() -> Front:
    """Three plans made by hand."""
    best, scenario = optimum(), em.load_scenario("test-1b-h100")
    points = tuple(
        FrontPoint({"energy": energy, "time": time}, {"time": rate}, best.plan, best.outcome)
        for energy, time, rate in ((5e8, 5e4, 0.8), (4.5e8, 5.5e4, 0.4), (4.4e8, 6e4, 0.1))
    )
    return Front(
        scenario=scenario,
        minimize=("energy", "time"),
        units={"energy": "J", "time": "s"},
        points=points,
        baseline={"energy": 5.3e8, "time": 5e4},
        knee=1,
        layouts_considered=10,
        layouts_searched=2,
        result=SearchResult.successful,
        message="Every plan is realizable.",
    )


def _post_train() -> Answer:
    asked = PostTraining("grpo", 64.0, 8.0, 1.0, 200.0, 600.0, 1848.0)
    return post_training_answer(asked, post_training(asked, lambda *_: Pieces(evaluated()[0], ("assumed",))))


def _evaluate_over_time() -> Answer:
    scenario, outcome, spread = evaluated()

    def so_far(end: Any) -> np.ndarray:
        return float(end) * np.array([0.25, 0.5, 1.0])

    run = RunTrajectory(
        time=so_far(outcome.time),
        progress=so_far(1.0),
        batch=so_far(5e5),
        tokens=so_far(outcome.tokens),
        token_rate=so_far(1e6),
        loss=so_far(outcome.loss),
        loss_rate=so_far(-1e-12),
        information=so_far(outcome.information),
        information_rate=so_far(1e4),
        power=so_far(outcome.power_average),
        energy=so_far(outcome.energy.total),
        energy_per_bit=so_far(1e-3),
        money=so_far(outcome.money),
        carbon=so_far(outcome.carbon),
    )
    return evaluate_answer(scenario, outcome, spread, trajectory=run)


def _batch() -> Answer:
    scenario, own, _ = evaluated()
    scales = np.array([0.9, 1.0, 1.2])
    outcomes = jax.tree.map(lambda leaf: np.asarray(leaf) * scales, own)
    best = {
        "time": BestBatch(5e5, 4e5, 6e5, (4.5e5, 5.5e5), 0.1, 0),
        "energy": BestBatch(2.6e5, 2.6e5, 2.6e5, (2.6e5, 3e5), 0.0, -1),
    }
    rates = 1e6 * scales
    return batch_answer(scenario, BatchCurve(own, 5e5 * scales, outcomes, rates, 1e3 * scales, best))


def _compare() -> Answer:
    candidates = (
        Candidate("h100-sxm", "fp8", None, None, 8, optimum()),
        Candidate("v100-sxm2-32gb", "fp8", None, None, 8, None, "The accelerator has no fp8."),
    )
    return compare_answer(Comparison("energy", "J", {}, candidates))


def _frontier() -> Answer:
    steps = (FrontierStep(0.0, 5e-13, 2e6, optimum(), ""), FrontierStep(30.0, 1e-18, 4.0, None, "nothing fits"))
    return frontier_answer(Frontier("energy", {}, steps))


def _optimize() -> Answer:
    split = dataclasses.replace(optimum(), saving={"clock": 2e6, "batch": 1e6})
    return optimize_answer(split, saving_at_risk(split), details=True)


def _calibration() -> Calibration:
    """A fit of three rows to two groups, made by hand."""
    busy = (280.0, 320.0)
    constants = (
        FittedConstant("busy_power", 300.0, "W", 250.0, busy, (270.0, 330.0), True, busy, (190.0, 330.0), True),
        FittedConstant("exponent", 0.4, "1", 0.5, None, None, False, (0.2, 0.9), (0.2, 0.9), False),
    )
    ends = ((1.1, 1.3), (0.75, 0.85), (0.6, 0.7))
    best = PowerSetting("V100", "a", 8.0, 150.0, None, 1.2, 0.8, 0.65, *ends)
    speed = np.array([150.0, 250.0])
    energy, low, high = np.array([[0.8, 1.0], [0.75, 1.0], [0.85, 1.0]])
    curve = EnergyCurve(speed, energy, low, high, speed, speed / 250.0)
    ends = ((10.0, 12.0), (1900.0, 2300.0), (180.0, 200.0))
    asked = PowerSetting("V100", "a", 8.0, 200.0, None, 11.0, 2090.0, 190.0, *ends, line=3)
    along = ("power limit [W]", np.array([150.0, 200.0, 250.0]))
    return Calibration(
        kind="power",
        source="runs.csv",
        base="v100-sxm2-32gb",
        rows=3,
        group_word="workload",
        constants=constants,
        undetermined=("exponent",),
        common=((1.1, 1.0, 1.2), (1.0, 0.8, 1.3)),
        held_out=(GroupError("a", 2, {"time": 4.0}), GroupError("b", 1, {"time": 5.0})),
        held_out_mean={"time": 4.3},
        in_fit={"time": 2.0},
        next_setting="b at 100 W",
        next_gain=0.3,
        predictions=(PredictedAmount("a", 16.0, 5e5, 4e5, 6e5, "sequence"),),
        best=Recommendation((best,), (curve,), (), (asked,)),
        tables={},
        residuals={"time": np.array([0.01, -0.02, 0.03])},
        along=along,
        groups=np.array(["a", "a", "b"]),
        notes=("Repeats were averaged.",),
        converged=True,
        message="",
        fit=cast(Any, None),
        case=cast(
            Any, SimpleNamespace(devices=(), form=None, along=along, candidates=Candidates(None, ()), common="Times")
        ),
    )


def _benchmark() -> Answer:
    """A product that took 2 µs, and would take 1 µs by its preset."""
    edges = dict.fromkeys("mnk", 1024)
    rows = {name: np.full(1, value) for name, value in {**UNUSED, **edges, "code": 0.0, "width": 2.0}.items()}
    fitted = _calibration()
    shown = {"words": {}, "groups": Grouping(np.array(["bf16 product 1024 x 1024 x 1024"]), "shape")}
    shown["fit"] = SimpleNamespace(table=MeasuredKernels(evaluated()[0].system, rows))
    case = SimpleNamespace(**vars(fitted.case), **shown)
    fitted = dataclasses.replace(fitted, fit=cast(Any, SimpleNamespace(values={})), case=cast(Any, case))
    row = {
        "kernel": "product",
        "precision": "bf16",
        **edges,
        "time_s": 2e-6,
        "time_low_s": 1.9e-6,
        "time_high_s": 2.2e-6,
    }
    return benchmark_answer(Benchmark("NVIDIA H100", "h100-sxm", (row,), ("power",), fitted, np.array([1e-6])))


def _measure(*, training: bool) -> Answer:
    """A log with a meter, or the meter alone."""
    with tempfile.TemporaryDirectory() as folder:
        logs = measure_logs(write_run(Path(folder))[0 if training else 1 :])
    return measure_answer(logs, measured_rows(logs))


def _design_chip() -> Answer:
    chip = evaluated()[0].system.accelerator
    design = dataclasses.replace(chip, die_area=np.asarray(9e-4), price=np.asarray(4e4))
    return design_chip_answer(DesignedOptimum(optimum(), chip, design, CacheSizes(4.1e6, 7e5, 9.2e4)))


def _replan() -> Answer:
    scenario = evaluated()[0]
    updates = tuple(Update(f"system.number{index}", "W", 100.0, 110.0 + index, 90.0, 130.0) for index in range(9))
    posterior = cast(Any, SimpleNamespace(distances={}))
    rest = Rest(scenario, updates, {"time": 1e4, "energy": 2e8}, posterior, {"time": 3.0})
    forecast = {"time": Forecast(5e4, 4e4, 6e4), "loss": Forecast(2.5, 2.4, 2.6)}
    return replan_answer(Replan(rest, optimum(), forecast), "rest.toml")


def _stage_clocks() -> Answer:
    clocks = StageClocks(
        clock=np.broadcast_to(np.array([1.0, 0.9, 0.8])[:, None], (2, 2, 3, 1)),
        step_time=np.array([1.0, 1.2]),
        energy=np.array([10.0, 8.0]),
        one_clock_energy=np.array([10.0, 9.0]),
        price=np.array([5.0, 1.0]),
        result=cast(Any, np.array([0, 1])),
        paths=7,
    )
    return stage_clocks_answer(evaluated()[0], clocks)


def _sweep() -> Answer:
    scenario, _, spread = evaluated()
    result = swept(Top("energy", 3), (4e8, 4.4e8, 5e8))
    return sweep_answer(scenario, result, "energy", spread, {"keep": "top:3"}, details=True)


def _fleet(*, searched: bool) -> Answer:
    """Two groups; of a search, the same outcome as if it had been found."""
    fleet = load_fleet("test-1b-h100", ["a100-sxm4-80gb 8"])
    outcome = fleet.evaluate()
    limits = {"time": 6e4}
    optimum = FleetOptimum(
        *(fleet, outcome, (4, 2), outcome, outcome, fleet.evaluate_alone()),
        *("energy", limits, {"time": 0.4, "memory": 0.0}, True, ""),
    )
    return fleet_answer(fleet, optimum if searched else None)


def _site() -> Answer:
    power = SitePower(*map(jnp.asarray, (4e6, 2e6, 1e6, 5e5, 2e5, 3e5, 0.0)))
    choice = SiteChoice(*map(jnp.asarray, (0.8, 0.9, 1.0, 300.0, 340.0)))
    split = SiteSplit(jnp.asarray(8e6), choice, power, jnp.asarray(1e6), jnp.asarray(0.05), cast(Any, None))
    return site_answer(evaluated()[0], [split, split._replace(limit=jnp.asarray(9e6))])


def _calendar() -> Answer:
    """A run of three hours, as it is planned."""
    scenario = em.load_scenario("test-1b-h100", {"plan.goal.tokens": "2 G tokens"})
    return calendar_answer(calendar(scenario, minimize="money", start="0", deadline="4 h"))


@cache
def _watched() -> Status:
    """A fifth of a recorded run."""
    return Monitor(recorded_plan()).watch(steps_until(0.2, slower=1.2))


def _monitor(*, planned: bool) -> Answer:
    """The watched run, with a new plan for the rest."""
    replanned = Replan(cast(Any, SimpleNamespace(caution="Mind.")), optimum(), {}) if planned else None
    return monitor_answer(_watched(), replanned, details=planned)


def _explore() -> Answer:
    """The own plan of the page, with plans near it made by hand."""
    scenario, outcome, spread = evaluated()
    amounts = [np.array([0.9, 1.0, 1.1]) * float(number) for number in (outcome.time, 5.3e8, outcome.money, 50.0)]
    batches, clocks, slack = np.array([[0.5, 1.0, 2.0], [0.9, 1.0, 1.0], [0.1, 0.1, -0.1]])
    near: Any = Nearby(batches, clocks, *amounts, slack)  # type: ignore[arg-type]
    roof: Any = SimpleNamespace(intensity=np.array([300.0, 150.0, 20.0]), rate=np.array([4e14, 3e14, 5e13]))
    roof.peak, roof.bandwidth = 9e14, 3e12
    warmth = Warmth(*map(np.array, (298.0, 3.0, 20.0, 15.0, 5.0, 360.0)))  # type: ignore[arg-type]
    money = money_parts(scenario, scenario.plan, outcome)
    view = View(outcome, cast(Any, money), roof, warmth, cast(Any, None), near)
    nothing: Any = None
    own = PagePlan(nothing, scenario, {}, nothing, 0.0, 0.0, view, spread)
    return explore_answer(cast(Any, SimpleNamespace(own=scenario)), own, own, {})


BUILDERS: dict[str, Callable[[], Answer]] = {
    "evaluate": lambda: evaluate_answer(*evaluated(), details=True),
    "evaluate --trajectory": _evaluate_over_time,
    "explore": _explore,
    "evaluate, uncertainty unknown": lambda: evaluate_answer(*evaluated()[:2], None),
    "pareto": lambda: pareto_answer(front(), evaluated()[2], evaluated()[2], details=True),
    "batch": _batch,
    "benchmark": _benchmark,
    "calibrate": lambda: calibrate_answer(_calibration()),
    "calendar": _calendar,
    "compare": _compare,
    "doctor": lambda: doctor_answer("No module named pallas"),
    "doctor --clear-cache": lambda: cleared_answer("/cache", 3, 3508, 1),
    "fleet": lambda: _fleet(searched=False),
    "fleet --minimize": lambda: _fleet(searched=True),
    "fleet --site": _site,
    "monitor": lambda: _monitor(planned=False),
    "monitor, replanned": lambda: _monitor(planned=True),
    "post-train": _post_train,
    "presets": presets_answer,
    "presets nodes": lambda: category_answer("nodes"),
    "frontier": _frontier,
    "design-chip": _design_chip,
    "limits": lambda: limits_answer(*evaluated()),
    "measure": lambda: _measure(training=True),
    "measure, no training": lambda: _measure(training=False),
    "optimize": _optimize,
    "replan": _replan,
    "timeline": lambda: timeline_answer(evaluated()[0], step_timeline(evaluated()[0].system, evaluated()[0].plan)),
    "timeline --clocks": _stage_clocks,
    "sensitivity": lambda: sensitivity_answer(sensitivity()),
    "sensitivity --optimum": lambda: sensitivity_answer(of_optimum()),
    "sweep": _sweep,
    "sweep --samples": lambda: samples_answer(evaluated()[0], samples(), {"seed": "0"}),
    "optimize, infeasible": lambda: optimize_answer(infeasible()),
}


@cache
def answer(name: str) -> Answer:
    """A stored answer."""
    return BUILDERS[name]()


def on_terminal(result: Answer, width: int = 400, *, full: bool = True) -> str:
    """What a terminal of a width shows, under --full or without."""
    console = Console(width=width, file=io.StringIO())
    console.print(terminal.terminal(result, full=full), crop=False)
    return console.file.getvalue()  # type: ignore[attr-defined]
