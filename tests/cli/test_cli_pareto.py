"""`pareto`: what is asked reaches the search; files of every kind; bad input."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest

import energymodel as em
from cli.shell import SMALL, numbers, run
from energymodel.search.result import Front, FrontPoint, SearchResult
from energymodel.system.evaluate import evaluate_once


@pytest.fixture(scope="module")
def front():
    """Five clocks of the small scenario, put together by hand: `design/test_pareto.py` searches for fronts."""
    scenario, points = em.load_scenario(SMALL), []
    with jax.enable_x64(True):
        for clock in (1.0, 0.9, 0.8, 0.7, 0.6):
            plan = eqx.tree_at(lambda plan: plan.clock, scenario.plan, np.asarray(clock))
            outcome = jax.device_get(evaluate_once(scenario.system, plan))
            values = {"energy": float(outcome.power_average * outcome.time), "time": float(outcome.time)}
            points.append(FrontPoint(values, {"time": 0.5}, plan, outcome))
    return Front(
        scenario=scenario,
        minimize=("energy", "time"),
        units={"energy": "J", "time": "s"},
        points=tuple(points),
        baseline=points[0].values,
        hypervolume=0.6,
        knee=2,
        layouts_considered=8,
        layouts_searched=2,
        result=SearchResult.successful,
        message="",
    )


@pytest.fixture
def search(monkeypatch, front):
    asked = []

    def answer(scenario, minimize, points, *, progress):
        asked.append((scenario.name, minimize, points, dict(scenario.optimize.limits), scenario.optimize.fix))
        progress("searching")
        return front

    monkeypatch.setattr("energymodel.search.pareto.pareto", answer)
    return asked


def test_table_says_what_is_given_up(search):
    result = run("pareto", SMALL)
    assert result.exit_code == 0
    assert "5 plans trade energy against time" in result.stdout
    assert "knee" in result.stdout
    assert "own plan" in result.stdout
    assert search == [(SMALL, ("energy", "time"), 64, {}, ())]


def test_options_reach_the_search(search):
    options = ["--minimize", "money", "--minimize", "carbon", "--points", "9", "--limit", "time=2 days"]
    assert run("pareto", SMALL, *options, "--fix", "plan.clock").exit_code == 0
    assert search == [(SMALL, ["money", "carbon"], 9, {"time": 172800.0}, ("plan.clock",))]


def test_json_repeats_the_front(search, front):
    tree = json.loads(run("pareto", SMALL, "--json").stdout)
    plans = [numbers(tree, "plans", row) for row in range(len(front.points))]
    assert [{name: plan[name] for name in front.minimize} for plan in plans] == [dict(p.values) for p in front.points]
    assert tree["tables"]["plans"]["columns"]["energy"]["unit"] == "J"
    assert plans[0]["chips"] == float(front.points[0].plan.chips)
    assert numbers(tree, "outcomes", 1)["loss"] == float(front.points[1].outcome.loss)


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        ("csv", b"energy [J],energy low [J]"),
        ("svg", b"<svg"),
        ("png", b"\x89PNG"),
        ("pdf", b"%PDF"),
        ("html", b"<!doctype"),
    ],
)
def test_files(search, front, tmp_path, suffix, start):
    path = tmp_path / f"front.{suffix}"
    assert run("pareto", SMALL, "-o", str(path)).exit_code == 0
    assert path.read_bytes().startswith(start)
    if suffix == "csv":
        assert len(path.read_text().splitlines()) == 1 + len(front.points)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minimize", "energy"], ["two or more"]),
        (["--minimize", "energy", "--minimize", "tme"], ["tme", "time"]),
        (["--minimize", "energy", "--minimize", "mfu"], ["mfu", "better"]),
        (["--points", "1"], ["1 points"]),
        (["-o", "front.gif"], [".gif", ".svg"]),
        (["--limit", "tme=2 days"], ["tme", "time"]),
    ],
)
def test_bad_input(options, words):
    result = run("pareto", SMALL, *options)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
