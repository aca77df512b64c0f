"""How a search ended: words for people and programs, and an exception where one is asked for."""

import dataclasses
import json

import numpy as np
import pytest

import energymodel as em
from energymodel.search import optimize as optimizing
from energymodel.search import pareto as trading
from energymodel.search import replan as replanning
from energymodel.search.posterior import Posterior
from energymodel.search.result import NOT_CONVERGED, Front, SearchResult
from report.reference_optimum import infeasible, optimum

MESSAGE = "No plan obeys these limits together."


def test_results_compare_and_print_as_their_words():
    words = ["successful", "infeasible", "not converged", "interrupted"]
    assert [str(result) for result in SearchResult] == words
    assert SearchResult.not_converged == "not converged"
    assert json.dumps({"result": SearchResult.infeasible}) == '{"result": "infeasible"}'
    for result in SearchResult:
        assert result.message.endswith(".")


def test_only_success_is_silent():
    SearchResult.successful.throw_unless_successful("never seen")
    for result in set(SearchResult) - {SearchResult.successful}:
        with pytest.raises(RuntimeError, match=f"{result}: {result.message}"):
            result.throw_unless_successful(result.message)


@pytest.mark.usefixtures("room")
def test_optimize_throws_where_asked(monkeypatch):
    scenario = optimum().scenario
    monkeypatch.setattr(optimizing, "_best_plan", lambda *arguments, is_given: infeasible())
    assert em.optimize(scenario).result == "infeasible"
    with pytest.raises(RuntimeError, match=f"infeasible: {MESSAGE}"):
        em.optimize(scenario, throw=True)
    monkeypatch.setattr(optimizing, "_best_plan", lambda *arguments, is_given: optimum())
    assert em.optimize(scenario, throw=True).success


def test_replan_throws_where_asked(monkeypatch):
    nothing = Posterior({}, np.zeros(0), np.zeros((0, 0)))
    rest = replanning.Rest(optimum().scenario, (), {}, nothing, {})
    monkeypatch.setattr(replanning, "rest_of", lambda scenario, measured: rest)
    monkeypatch.setattr(replanning.Rest, "forecast", lambda self, outcome: {})
    monkeypatch.setattr(optimizing, "_best_plan", lambda *arguments, is_given: infeasible())
    scenario, measured = optimum().scenario, em.MeasuredRun(tokens=1e9)
    assert em.replan(scenario, measured).optimum.result == "infeasible"
    with pytest.raises(RuntimeError, match=f"infeasible: {MESSAGE}"):
        em.replan(scenario, measured, throw=True)


def test_pareto_throws_where_asked(monkeypatch):
    scenario = optimum().scenario
    result = SearchResult.not_converged
    front = Front(scenario, ("energy", "time"), {}, (), {}, 0, 1, 1, result, NOT_CONVERGED)
    monkeypatch.setattr(trading, "_searched", lambda *arguments: front)
    assert not em.pareto(scenario).success
    with pytest.raises(RuntimeError, match="not converged: Some plans are feasible"):
        em.pareto(scenario, throw=True)
    done = dataclasses.replace(front, result=SearchResult.successful)
    monkeypatch.setattr(trading, "_searched", lambda *arguments: done)
    assert em.pareto(scenario, throw=True).success
